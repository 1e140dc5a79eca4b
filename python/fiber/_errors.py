"""_errors.py - exceptions that multiprocessing does not have.

SPDX-License-Identifier: Apache-2.0
"""
from multiprocessing.context import ProcessError

__all__ = ["RingError", "WorkerLost"]


class WorkerLost(ProcessError):
    """A task killed one worker after another; the text has the report of each."""


class RingError(ProcessError):
    """A ring failed; the text says which rank failed first, where and why."""


for _error in WorkerLost, RingError:
    _error.__module__ = "fiber"  # where programs find them, and what a traceback says
