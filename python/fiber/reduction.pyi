# reduction.pyi - types of multiprocessing.reduction, which this module is.
# SPDX-License-Identifier: Apache-2.0
from multiprocessing.reduction import *
