"""reduction.py - multiprocessing.reduction: how objects are pickled, which programs add to.

SPDX-License-Identifier: Apache-2.0
"""
import multiprocessing.reduction
import sys

sys.modules[__name__] = multiprocessing.reduction
