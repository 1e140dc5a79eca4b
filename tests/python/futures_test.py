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
import fiber.futures
from fiber.futures import Executor


def die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def fail_by(kind):
    raise kind("of the call")


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


def keep(value):
    global kept
    kept = value


def pid_and_kept(_):
    return os.getpid(), kept


def test_an_executor_has_the_parameters_of_concurrent_futures():
    with Executor(1, mp.get_context("spawn"), keep, (3,), max_tasks_per_child=2) as executor:
        pids, values = zip(*executor.map(pid_and_kept, range(6)))
    assert len(set(pids)) == 3 and set(values) == {3}
    with pytest.raises(ValueError, match="positive"):
        Executor(1, max_tasks_per_child=0)


@pytest.mark.parametrize("kind", [mp.ProcessError, fiber.futures.BrokenProcessPool])
def test_the_exception_of_a_call_stays_as_it_is_and_is_no_other_call_s(kind):
    with Executor(1) as executor:
        first, *others = [executor.submit(fail_by, kind), *(executor.submit(abs, -i) for i in range(50))]
        assert type(first.exception(LONG)) is kind
        assert [other.result(LONG) for other in others] == list(range(50))


# ---- Handles and results as futures ----


class Gate:
    def wait(self, event):
        event.wait(LONG)
        return "open"

    def fail(self):
        raise ZeroDivisionError("on purpose")


class Gates(mp.AsyncManager):
    pass


Gates.register("Gate", Gate)


def wait_for(event):
    return event.wait(LONG)


def test_a_program_waits_for_the_first_of_handles_results_and_calls():
    events = [mp.Event() for _ in range(5)]
    with Gates() as one, Gates() as other, mp.Pool(2) as pool, Executor(1) as executor:
        futures = [one.Gate().wait(events[0]).future(), other.Gate().wait(events[1]).future(),
                   pool.apply_async(wait_for, (events[2],)).future(), pool.imap(wait_for, events[3:4]).future(),
                   executor.submit(wait_for, events[4])]
        assert not concurrent.futures.wait(futures, 0).done and not futures[0].cancel()
        for i in 1, 2, 0, 4, 3:
            events[i].set()
            assert next(concurrent.futures.as_completed([f for f in futures if f], LONG)) is futures[i]
            assert futures[i].result() == ("open" if i < 2 else [True] if i == 3 else True)
            futures[i] = None


def test_futures_of_handles_and_results_raise_what_their_call_has_raised():
    with Gates() as gates, mp.Pool(1) as pool:
        for future in gates.Gate().fail().future(), pool.apply_async(int, ("no number",)).future():
            assert type(future.exception(LONG)) in (ZeroDivisionError, ValueError)


def test_a_handle_is_awaited():
    async def use(gate, other):
        closed, event = other.wait(mp.Event()), mp.Event()
        handle = gate.wait(event)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(closed, 0.01)
        event.set()
        assert await handle == await handle == "open"
        with pytest.raises(ZeroDivisionError):
            await asyncio.gather(*(gate.fail() for _ in range(20)))
    with Gates() as one, Gates() as other:
        asyncio.run(use(one.Gate(), other.Gate()))


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
