"""resource_tracker.py - multiprocessing.resource_tracker: nothing to track, for the memory of Fiber ends with its run.

SPDX-License-Identifier: Apache-2.0
"""
from multiprocessing import resource_tracker as _mp


def ensure_running():
    """Does nothing: no process has to watch over memory."""


def register(name, rtype):
    """Does nothing: what is left at the end of the run is removed."""


def unregister(name, rtype):
    """Does nothing: memory lives on when a process that has attached to it ends."""


def __getattr__(name):
    """Gives the other names of multiprocessing.resource_tracker."""
    return getattr(_mp, name)
