"""futures_test.py - results of Fiber for programs that were written for concurrent.futures.

SPDX-License-Identifier: Apache-2.0
"""
import asyncio
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
        with pytest.raises(BrokenProcessPool, match="3 workers died") as caught:
            list(executor.map(die, [0], timeout=LONG))
        assert isinstance(caught.value, concurrent.futures.BrokenExecutor) and isinstance(caught.value, mp.WorkerLost)
        assert executor.submit(abs, -1).result(LONG) == 1


def test_an_executor_without_workers_has_the_exception_of_concurrent_futures():
    with Executor(1, initializer=int, initargs=("no number",)) as executor:
        with pytest.raises(BrokenProcessPool, match="could not be started") as caught:
            executor.submit(abs, -1).result(LONG)
        assert isinstance(caught.value, mp.ProcessError)


def test_the_exception_of_a_call_stays_as_it_is():
    with Executor(1) as executor:
        assert type(executor.submit(raise_process_error).exception(LONG)) is mp.ProcessError


@pytest.mark.parametrize("kind", ["imap", "imap_unordered"])
def test_a_lazy_map_is_awaited_that_has_more_results_than_may_wait(kind):
    async def use(pool):
        numbers = range(70000)
        return [await asyncio.wait_for(asyncio.ensure_future(awaited(getattr(pool, kind)(abs, items))), LONG / 4)
                for items in (numbers, map(abs, numbers))]

    async def awaited(results):
        return await results
    with mp.Pool(2) as pool:
        assert all(sorted(results) == list(range(70000)) for results in asyncio.run(use(pool)))
