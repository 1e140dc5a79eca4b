"""dummy.py - multiprocessing.dummy: the same names for threads of this process.

SPDX-License-Identifier: Apache-2.0
"""
import multiprocessing.dummy
import sys

sys.modules[__name__] = multiprocessing.dummy
