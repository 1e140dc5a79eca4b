# dummy.pyi - types of multiprocessing.dummy, which this module is.
# SPDX-License-Identifier: Apache-2.0
from multiprocessing.dummy import *
