"""spawn.py - multiprocessing.spawn: names that programs use before they start anything.

SPDX-License-Identifier: Apache-2.0
"""
from multiprocessing import spawn as _mp

from .context import default

freeze_support = default.freeze_support
set_executable = default.set_executable


def __getattr__(name):
    """Gives the other names of multiprocessing.spawn."""
    return getattr(_mp, name)
