"""_errors.py - exceptions that multiprocessing does not have.

SPDX-License-Identifier: Apache-2.0
"""
from multiprocessing.context import ProcessError

__all__ = ["RingError", "WorkerLost"]


# How backends say that a program is not there: on Docker, Kubernetes, and as a process.
NOT_THERE = ("cannot run in its image", "is not in the image", ": exec: ")
ADVICE = ("\n    If the interpreter has another path in jobs, set FIBER_PYTHON; python3 -m fiber.image build "
          "NAME PROG.py makes an image of this program")


def with_advice(report):
    """Adds to the report of a process whose interpreter is not there what mends it."""
    first = report.split("; its last lines:")[0]
    return report + ADVICE if any(words in first for words in NOT_THERE) else report


class WorkerLost(ProcessError):
    """A task killed one worker after another; the text has the report of each."""


class RingError(ProcessError):
    """A ring failed; the text says which rank failed first, where and why."""


for _error in WorkerLost, RingError:
    _error.__module__ = "fiber"  # where programs find them, and what a traceback says
