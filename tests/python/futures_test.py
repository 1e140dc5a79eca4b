"""futures_test.py - results of Fiber for programs that were written for concurrent.futures.

SPDX-License-Identifier: Apache-2.0
"""
import concurrent.futures
import os
import signal
from concurrent.futures.process import BrokenProcessPool

import pytest
from conftest import LONG

import fiber as mp
from fiber.futures import Executor


def die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def raise_process_error():
    raise mp.ProcessError("of the call")


def test_a_call_that_kills_its_workers_has_the_exception_of_concurrent_futures():
    with Executor(1) as executor:
        for error in BrokenProcessPool, concurrent.futures.BrokenExecutor, mp.WorkerLost:
            with pytest.raises(error, match="3 workers died"):
                executor.submit(die, 0).result(LONG)
        with pytest.raises(BrokenProcessPool):
            list(executor.map(die, [0], timeout=LONG))
        assert executor.submit(abs, -1).result(LONG) == 1


def test_an_executor_without_workers_has_the_exception_of_concurrent_futures():
    with Executor(1, initializer=int, initargs=("no number",)) as executor:
        for error in BrokenProcessPool, mp.ProcessError:
            with pytest.raises(error, match="could not be started"):
                executor.submit(abs, -1).result(LONG)


def test_the_exception_of_a_call_stays_as_it_is():
    with Executor(1) as executor:
        assert type(executor.submit(raise_process_error).exception(LONG)) is mp.ProcessError
