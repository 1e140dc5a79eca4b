"""pool_test.py - Pool: calls, maps, lazy maps, their errors, callbacks, and the life of the pool. The contract is the
documentation of multiprocessing.pool.

SPDX-License-Identifier: Apache-2.0
"""
import asyncio
import atexit
import collections
import functools
import gc
import itertools
import multiprocessing
import os
import pickle
import sys
import threading
import time
import warnings
import weakref

import pytest

import fiber as mp
from fiber.pool import MaybeEncodingError, RemoteTraceback

LONG = 60


add_three = lambda x: x + 3  # noqa: E731


def call(function, x):
    return function(x)


def call_with_one(function):
    return function(1)


def square(x, wait=0.0):
    if wait:
        time.sleep(wait)
    return x * x


def add(a, b, *, c=0):
    return a + b + c


def pid(_=None):
    return os.getpid()


def refuse_seven(x):
    if x == 7:
        raise ValueError("seven is refused", x)
    return x


def leave(code):
    sys.exit(code)


def interrupt(_):
    raise KeyboardInterrupt


def die(_):
    os._exit(3)


def make_unpicklable(_):
    return threading.Lock()


class Stubborn(Exception):
    """Cannot be unpickled: it needs two arguments."""

    def __init__(self, a, b):
        super().__init__(a)


def raise_stubborn(_):
    raise Stubborn("no way", 2)


def wait_for_file(path):
    while not os.path.exists(path):
        time.sleep(0.005)
    return path


def square_after(path, x):
    wait_for_file(path)
    return square(x)


class State:
    def __init__(self, n):
        self.data = bytes(n)

    def __call__(self, x):
        return len(self.data) + x


VALUE = []


def initialize(value, folder=None):
    VALUE.append(value)
    if folder:
        open(os.path.join(folder, str(os.getpid())), "w").close()


def tell_value(_=None):
    return VALUE


def raise_in_initializer():
    raise LookupError("the licence is missing")


def modules(_):
    return sorted(sys.modules)


def nested(n):
    with mp.Pool(2) as pool:
        return pool.map(square, range(n))


def use_multiprocessing(_):
    import multiprocessing.process as p
    this = p.current_process()
    return this.name, this._identity[0], bytes(p.current_process().authkey), p.parent_process().pid


@pytest.fixture(scope="module")
def pool():
    with mp.Pool(3) as p:
        yield p


# ---- Calls ----


def test_apply(pool):
    assert pool.apply(square, (5,)) == 25
    assert pool.apply(add, (1, 2), {"c": 3}) == 6
    assert pool.apply(pid) != os.getpid()


def take_all(*args, **kwargs):
    return args, kwargs


def test_arguments_may_be_any_iterable_and_any_mapping(pool):
    assert pool.apply(add, [1, 2], collections.ChainMap({"c": 3})) == 6
    assert pool.apply(take_all, range(3)) == ((0, 1, 2), {}) and pool.apply(take_all, "ab") == (("a", "b"), {})
    for args, kwargs in ((3, {}), (None, {}), ((), 3), ((), None)):
        with pytest.raises(TypeError, match="must be"):
            pool.apply(take_all, args, kwargs)
    assert pool.apply_async(add, [1, 2]).get(LONG) == 3 and pool.stats()["deaths"] == 0


def test_apply_async_in_any_order(pool):
    results = [pool.apply_async(add, (i, i)) for i in range(3000)]
    assert [r.get(LONG) for r in reversed(results)] == [2 * i for i in reversed(range(3000))]
    assert all(r.ready() and r.successful() for r in results)


def test_a_result_that_is_not_there(pool, tmp_path):
    path = str(tmp_path / "go")
    r = pool.apply_async(wait_for_file, (path,))
    assert not r.ready()
    with pytest.raises(ValueError, match="not ready"):
        r.successful()
    with pytest.raises(mp.TimeoutError):
        r.get(timeout=0.05)
    with pytest.raises(mp.TimeoutError):
        r.get(timeout=0)
    with pytest.raises(multiprocessing.TimeoutError):
        r.get(timeout=-1)
    r.wait(0.05)
    assert not r.ready()
    open(path, "w").close()
    r.wait(LONG)
    assert r.ready() and r.successful() and r.get() == path


def test_results_become_ready_for_a_program_that_only_asks(pool):
    results = [pool.apply_async(square, (3,)), pool.map_async(square, range(1000)), pool.starmap_async(add, [(1, 2)])]
    end = time.monotonic() + LONG
    while not all(r.ready() for r in results) and time.monotonic() < end:
        time.sleep(0.01)
    assert all(r.ready() and r.successful() for r in results)


@pytest.mark.parametrize("chunksize", [None, 1, 7])
def test_what_is_left_of_a_map_falls_to_nothing(pool, tmp_path, chunksize):
    path = str(tmp_path / "go")
    r = pool.map_async(functools.partial(square_after, path), range(5000), chunksize)
    seen, end = [r._number_left], time.monotonic() + LONG
    open(path, "w").close()
    while r._number_left and time.monotonic() < end:
        seen.append(r._number_left)
    assert 0 < seen[0] <= 5000 and seen == sorted(seen, reverse=True)
    assert r._number_left == 0 and r.ready() and len(r.get()) == 5000


def test_calls_that_are_not_done_are_counted_under_the_names_of_multiprocessing(tmp_path):
    gate, seen = tmp_path / "gate", []

    def keep(x):
        time.sleep(0.3)
        seen.append(x)
    with mp.Pool(1) as p:
        calls = [p.apply_async(wait_for_file, (str(gate),)) for _ in range(9)]
        calls.append(p.apply_async(square, (3,), callback=keep))
        assert (len(p._cache), p._taskqueue.qsize(), p._taskqueue.empty()) == (10, 9, False)
        gate.touch()
        while p._cache:
            time.sleep(0.01)
        assert seen == [9] and all(call.ready() for call in calls)
        assert (p._cache, p._taskqueue.qsize(), p._taskqueue.empty()) == ({}, 0, True)
    assert not p._cache


def test_an_exception_is_raised_with_the_traceback_of_the_worker(pool):
    r = pool.apply_async(refuse_seven, (7,))
    with pytest.raises(ValueError) as caught:
        r.get(LONG)
    assert caught.value.args == ("seven is refused", 7)
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert isinstance(caught.value.__cause__, multiprocessing.pool.RemoteTraceback)
    text = str(caught.value.__cause__)
    assert "in refuse_seven" in text and text.startswith('\n"""\nTraceback') and text.endswith('\n"""')
    assert not r.successful()


class Held:
    """What a frame holds that waits for a result."""


@pytest.mark.parametrize("call", [lambda p: p.apply(refuse_seven, (7,)), lambda p: p.map(refuse_seven, [7]),
                                  lambda p: p.apply_async(refuse_seven, (7,)).get(LONG),
                                  lambda p: p.starmap_async(refuse_seven, [(7,)], callback=print).get(LONG)])
def test_a_call_that_has_failed_keeps_nothing(pool, call):
    def fail():
        held = Held()
        with pytest.raises(ValueError):
            call(pool)
        return weakref.ref(held)

    ref = fail()
    end = time.monotonic() + LONG
    while ref() and time.monotonic() < end:  # the thread of the pool may have the last result yet
        gc.collect()
        time.sleep(0.01)
    assert ref() is None


def test_exits_and_interrupts_of_tasks_do_not_end_the_caller(pool):
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        pool.apply(leave, (3,))
    with pytest.raises(RuntimeError, match="KeyboardInterrupt"):
        pool.apply(interrupt, (0,))


def test_what_is_said_of_an_argument_that_cannot_be_pickled(pool):
    for call in (lambda: pool.apply(square, ((x for x in ()),)), lambda: pool.map(square, [(x for x in ())])):
        with pytest.raises(TypeError, match="cannot pickle 'generator' object") as caught:
            call()
        assert caught.value.__context__ is None
    from fiber.futures import Executor
    with Executor(1) as executor, pytest.raises(TypeError, match=r"result\(\)"):
        pool.apply(square, (executor.submit(square, 2),))
    import multiprocessing.managers  # noqa: F401 - has reducers for views of dicts

    assert pool.apply(sum, ({1: 2}.keys(),)) == 1


def test_functions_that_have_another_name(pool):
    pytest.importorskip("cloudpickle")
    assert pool.apply(call, (add_three, 4)) == 7  # _pickle raises PicklingError: it is not what its name says
    assert pool.map(call_with_one, [add_three]) == [4]


def test_what_cannot_be_pickled(pool, monkeypatch):
    monkeypatch.setattr("fiber._pickling.cloudpickle", lambda: None)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pool.apply(lambda: 0)
    with pytest.raises(TypeError):
        pool.map(square, [1, threading.Lock(), 3])
    with pytest.raises(MaybeEncodingError, match="lock") as info:
        pool.apply(make_unpicklable, (0,))
    assert info.value.__cause__ is None  # the reason is in its text
    with pytest.raises(MaybeEncodingError, match="no way"):
        pool.apply(raise_stubborn, (0,))
    with pytest.raises(AttributeError):  # the function is not there in the worker
        pool.apply(functools.partial(getattr, None), ("nothing",))
    assert pool.apply(square, (3,)) == 9


# ---- Maps ----


@pytest.mark.parametrize("chunksize", [None, 1, 3, 1000])
@pytest.mark.parametrize("n", [0, 1, 2, 7, 500])
def test_map(pool, n, chunksize):
    assert pool.map(square, range(n), chunksize) == [x * x for x in range(n)]
    assert pool.starmap(add, zip(range(n), range(n)), chunksize) == [2 * x for x in range(n)]
    assert pool.map_async(square, iter(range(n)), chunksize).get(LONG) == [x * x for x in range(n)]
    assert pool.starmap_async(add, [(x, 1) for x in range(n)], chunksize).get(LONG) == [x + 1 for x in range(n)]


def test_a_long_map_in_blocks(pool):
    assert pool.map(square, range(200000)) == [x * x for x in range(200000)]
    assert pool.map_async(square, range(200000)).get(LONG) == [x * x for x in range(200000)]


def test_a_time_below_a_millisecond_is_not_none():
    with mp.Pool(1, timeout=0.0001) as pool, pytest.raises(mp.TimeoutError):
        pool.apply(time.sleep, (5,))


def test_the_timeout_of_a_pool_is_that_of_each_element():
    with mp.Pool(2, timeout=LONG) as pool:
        assert pool.map(square, range(500)) == [x * x for x in range(500)]
        assert pool.starmap(add, [(x, 1) for x in range(500)]) == [x + 1 for x in range(500)]
        assert pool.progress()[1] == 1000  # tasks, each with a time of its own
        assert pool.map(square, range(500), 100) == [x * x for x in range(500)]
        assert pool.progress()[1] == 1005


def test_a_map_of_long_elements_is_put_in_blocks_that_fit(program):
    """Each input and each result is below the limit, and they take almost no time."""
    ran = program("""
        import fiber as mp

        if __name__ == "__main__":
            mp.config.max_message = "1Mi"
            with mp.Pool(2) as pool:
                print(sum(map(len, pool.map(bytes, [300000] * 200))))
                print(sum(pool.map(len, [bytes(300000) for _ in range(200)])))
    """)
    assert (ran.code, ran.out) == (0, "60000000\n60000000\n"), ran


def test_a_map_goes_on_whose_tasks_end_while_another_thread_feeds(pool):
    assert pool.map(square, range(1000)) == [x * x for x in range(1000)]  # how long a task takes is known
    with pool._feeding:
        result = pool.map_async(square, range(200000))
        while pool._core.tasks:
            result.wait(0.01)
        assert not result.ready()
    assert result.get(LONG) == [x * x for x in range(200000)]


def test_tasks_of_different_lengths(pool):
    waits = [0.05 if x % 50 == 0 else 0 for x in range(300)]
    assert pool.starmap(square, zip(range(300), waits)) == [x * x for x in range(300)]


def test_the_first_error_of_a_map_by_place(pool):
    with pytest.raises(ValueError) as caught:
        pool.map(refuse_seven, [1, 7, 2, 7], chunksize=1)
    assert caught.value.args[1] == 7
    with pytest.raises(ValueError):
        pool.map(refuse_seven, range(100))
    with pytest.raises(TypeError):
        pool.starmap(add, [(1, 2), (3,), 4], chunksize=1)
    with pytest.raises(ValueError):
        pool.map(square, [1], chunksize=0)
    with pytest.raises(TypeError):
        pool.map(square, 5)


def test_a_map_runs_the_tasks_behind_an_error(pool, tmp_path):
    paths = [str(tmp_path / str(i)) for i in range(20)]
    with pytest.raises(FileNotFoundError):
        pool.map(touch_unless_third, paths, chunksize=1)
    assert len(os.listdir(tmp_path)) == 19


def touch_first_at_once(path):
    if not path.endswith("/10"):
        wait_for_file(os.path.join(os.path.dirname(path), "go"))
    touch_unless_third(path)


def touch_unless_third(path):
    if path.endswith("/3"):
        raise FileNotFoundError(path)
    open(path, "w").close()


def test_a_function_with_a_state_travels_once(pool):
    f = State(1 << 20)
    assert pool.map(f, range(200), chunksize=1) == [(1 << 20) + x for x in range(200)]
    assert pool.map(f, range(50)) == [(1 << 20) + x for x in range(50)]


def test_many_functions(pool):
    for n in range(40):
        assert pool.apply(functools.partial(add, n), (1,)) == n + 1
    results = [pool.apply_async(functools.partial(add, n), (1,)) for n in range(40)]
    assert [r.get(LONG) for r in results] == [n + 1 for n in range(40)]


class DroppedWhenFound(collections.OrderedDict):
    """Streams of which another thread drops each one when it is found."""

    def get(self, key):
        return self.pop(key, None)


class DroppedWhenMany(collections.OrderedDict):
    """Streams that another thread drops when they are too many."""

    def items(self):
        items = list(super().items())
        self.clear()
        return items


@pytest.mark.parametrize("kind", [DroppedWhenFound, DroppedWhenMany])
def test_another_thread_drops_streams(monkeypatch, kind):
    with mp.Pool(1) as pool:
        monkeypatch.setattr(pool, "_streams", kind())
        for n in (*range(5), 0, 1, *range(40)):
            assert pool.apply(functools.partial(add, n), (1,)) == n + 1


def test_more_input_than_may_be_under_way(pool, monkeypatch):
    monkeypatch.setattr("fiber.pool.UNDER_WAY", 1 << 20)
    block = bytes(300000)
    assert pool.map(len, [block] * 30, chunksize=1) == [300000] * 30
    assert pool.map_async(len, [block] * 30, chunksize=1).get(LONG) == [300000] * 30
    assert list(pool.imap(len, [block] * 30)) == [300000] * 30


def wait_for_others(folder, n, _):
    open(os.path.join(folder, str(os.getpid())), "w").close()
    while len(os.listdir(folder)) < n:
        time.sleep(0.005)
    return n


@pytest.mark.parametrize("how", ["map_async, 1", "map_async", "imap", "imap of a generator"])
def test_all_workers_work_however_large_the_inputs_are(tmp_path, monkeypatch, how):
    monkeypatch.setattr("fiber.pool.UNDER_WAY", 1 << 20)
    inputs = [bytes(2 << 20)] * 3
    with mp.Pool(3) as pool:
        pool.wait_until_workers_up()
        f = functools.partial(wait_for_others, str(tmp_path), 3)
        if how.startswith("map"):
            assert pool.map_async(f, inputs, 1 if "1" in how else None).get(LONG) == [3] * 3
        else:
            assert pool.imap(f, (x for x in inputs) if "gen" in how else inputs).next(LONG) == 3


def test_a_large_input_of_one_call_does_not_hold_up_others(tmp_path, monkeypatch):
    monkeypatch.setattr("fiber.pool.UNDER_WAY", 1 << 20)
    with mp.Pool(2) as pool:
        hold = pool.apply_async(wait_for_others, (str(tmp_path), LONG, bytes(2 << 20)))
        assert pool.map_async(square, range(500)).get(LONG) == [x * x for x in range(500)]
        for source in range(5), (x for x in range(5)):
            it = pool.imap(square, source)
            assert [it.next(LONG) for _ in range(5)] == [x * x for x in range(5)]
        assert not hold.ready()


# ---- Lazy maps ----


@pytest.mark.parametrize("chunksize", [1, 3, 100])
@pytest.mark.parametrize("make", [range, lambda n: list(range(n)), lambda n: (x for x in range(n))])
def test_imap(pool, make, chunksize):
    assert list(pool.imap(square, make(300), chunksize)) == [x * x for x in range(300)]
    assert sorted(pool.imap_unordered(square, make(300), chunksize)) == [x * x for x in range(300)]
    assert list(pool.imap(square, make(0), chunksize)) == []


@pytest.mark.parametrize("source", [list, iter], ids=["list", "iterator"])
@pytest.mark.parametrize("asks", [False, True], ids=["never", "once"])
def test_imap_goes_on_while_nobody_asks(pool, tmp_path, source, asks):
    paths = [str(tmp_path / str(i)) for i in range(10, 5000)]
    it = pool.imap(touch_first_at_once if asks else touch_unless_third, source(paths))
    if asks:
        next(it)
        open(tmp_path / "go", "w").close()
    end = time.monotonic() + LONG
    while len(os.listdir(tmp_path)) < len(paths) + asks and time.monotonic() < end:
        time.sleep(0.01)
    assert len(os.listdir(tmp_path)) == len(paths) + asks
    assert len(list(it)) == len(paths) - asks


def test_imap_over_more_than_the_window(pool):
    assert list(pool.imap(square, range(20000))) == [x * x for x in range(20000)]
    assert sum(pool.imap_unordered(square, (x for x in range(20000)))) == sum(x * x for x in range(20000))


def is_held(lock):
    """Tells whether another thread has an RLock."""
    free = lock.acquire(blocking=False)
    if free:
        lock.release()
    return not free


def test_next_with_a_timeout_while_another_thread_waits(pool, tmp_path):
    it = pool.imap(wait_for_file, [str(tmp_path / "1")])
    thread = threading.Thread(target=next, args=(it,))
    thread.start()
    while not is_held(it._one):
        time.sleep(0.01)
    for timeout in 0, 0.05:
        with pytest.raises(mp.TimeoutError):
            it.next(timeout)
    open(tmp_path / "1", "w").close()
    thread.join(LONG)
    with pytest.raises(StopIteration):
        it.next(LONG)


def test_next_with_a_timeout(pool, tmp_path):
    it = pool.imap(wait_for_file, [str(tmp_path / "1"), str(tmp_path / "2")])
    with pytest.raises(mp.TimeoutError):
        it.next(timeout=0.05)
    open(tmp_path / "1", "w").close()
    assert it.next(timeout=LONG).endswith("1")
    with pytest.raises(mp.TimeoutError):
        it.next(0)
    open(tmp_path / "2", "w").close()
    assert next(it).endswith("2")
    with pytest.raises(StopIteration):
        it.next()
    with pytest.raises(StopIteration):
        next(it)


@pytest.mark.parametrize("name", ["imap", "imap_unordered"])
def test_imap_ends_with_its_source_beside_a_long_task(name):
    def source():
        yield 1
        yield 2
        while pool._core.tasks > 1:  # until the caller has both results, and waits for more
            time.sleep(0.1)

    with mp.Pool(2) as pool:
        hold = pool.apply_async(time.sleep, (LONG,))
        assert sorted(getattr(pool, name)(square, source())) == [1, 4]
        assert not hold.ready()


def test_imap_goes_on_behind_an_error(pool):
    it, seen = pool.imap(refuse_seven, range(10)), []
    while True:
        try:
            seen.append(next(it))
        except StopIteration:
            break
        except ValueError:
            seen.append("error")
    assert seen == [0, 1, 2, 3, 4, 5, 6, "error", 8, 9]
    with pytest.raises(ValueError, match="Chunksize must be 1"):
        pool.imap(square, [1], 0)


class Secret:
    def __reduce__(self):
        raise OSError("not for others")


@pytest.mark.parametrize("chunksize", [1, 4])
@pytest.mark.parametrize("make", [list, iter, lambda x: (y for y in x)])
def test_an_element_that_cannot_be_pickled_is_the_error_of_its_block(pool, make, chunksize):
    bad = {3, 70, 71, 299}
    it, seen = pool.imap(square, make([Secret() if i in bad else i for i in range(300)]), chunksize), []
    while True:
        try:
            seen.append(next(it))
        except StopIteration:
            break
        except OSError as error:
            seen.append(str(error))
    lost = {i // chunksize for i in bad}
    want = [[i * i] if i // chunksize not in lost else ["not for others"] * (i % chunksize == 0) for i in range(300)]
    assert seen == sum(want, [])


def test_a_refused_element_fails_a_map_whose_other_tasks_are_taken(pool):
    class Slow:  # until all that was put is done, and taken by another thread
        def __reduce__(self):
            done.wait(LONG)
            raise OSError("not for others")

    done = threading.Event()
    items = [*range(64), Slow()]
    threading.Thread(target=wait_until_taken, args=(pool, done)).start()
    with pytest.raises(OSError, match="not for others"):
        pool.map_async(square, items, 1).get(LONG)


def wait_until_taken(pool, done):
    """Takes what others have put, until nothing is left."""
    while pool.apply_async(square, (1,)).get(LONG) and not pool.progress()[1]:
        pass
    pool._run(lambda: not pool._core.tasks, None, LONG)
    done.set()


def seven_then_error(n=7):
    yield from range(n)
    raise LookupError("the source is broken")


@pytest.mark.parametrize("chunksize, good", [(1, 7), (4, 4), (7, 7), (20, 0)])
def test_an_iterable_that_raises(pool, chunksize, good):
    for call in pool.imap, pool.imap_unordered:
        it, seen = call(square, seven_then_error(), chunksize), []
        with pytest.raises(LookupError, match="broken"):
            for x in it:
                seen.append(x)
        assert sorted(seen) == [x * x for x in range(good)]
        with pytest.raises(StopIteration):
            next(it)
    for call in pool.map, pool.map_async:
        with pytest.raises(LookupError, match="broken"):
            call(square, seven_then_error(), chunksize)


def test_an_iterable_is_consumed_from_the_call_on_and_may_block(pool):
    begun, go = threading.Event(), threading.Event()

    def source():
        begun.set()
        yield 1
        assert go.wait(LONG)
        yield 2
    it = pool.imap(square, source())
    assert begun.wait(LONG)
    assert it.next(LONG) == 1  # the second element is not there yet
    go.set()
    assert it.next(LONG) == 4


def test_join_waits_for_a_source_with_a_thread(monkeypatch):
    def begins_late():
        while pool._state == "RUN":
            time.sleep(0.01)
        for i in range(3):
            time.sleep(0.2)  # without the wait the workers are gone by then
            yield i

    monkeypatch.setattr("fiber.pool.WAITING", 1000)
    for n, source in (3, begins_late()), (5000, range(5000)):  # more than may be put, or wait for their caller
        pool = mp.Pool(2)
        it = pool.imap(square, map(int, source))
        pool.close()
        pool.join()
        assert list(it) == [x * x for x in range(n)]


def test_a_lazy_map_ends_with_the_pool_where_its_source_blocks():
    def source():
        yield 1
        assert go.wait(LONG)

    go, pool = threading.Event(), mp.Pool(1)
    it = pool.imap(square, source())
    assert it.next(LONG) == 1
    pool.terminate()
    with pytest.raises(mp.ProcessError):
        it.next(LONG)
    go.set()
    pool.join()


def test_results_that_are_the_next_inputs(pool):
    got = []

    def source():
        yield 2
        while got[-1:] != [256]:
            if got and got[-1] not in used:
                used.add(got[-1])
                yield got[-1]
            time.sleep(0.001)
    used = set()
    for x in pool.imap(square, source()):
        got.append(x)
    assert got == [4, 16, 256]


# ---- Callbacks, threads, asyncio ----


def test_callbacks_run_before_the_waiters_return(pool):
    seen = []
    for i in range(50):
        r = pool.apply_async(square, (i,), callback=seen.append)
        r.wait(LONG)
        assert seen[-1] == i * i
    r = pool.map_async(square, range(5000), callback=seen.append)
    r.wait(LONG)
    assert seen[-1] == r.get() and len(seen[-1]) == 5000
    r = pool.apply_async(refuse_seven, (7,), callback=seen.append, error_callback=seen.append)
    r.wait(LONG)
    assert isinstance(seen[-1], ValueError) and len(seen) == 52
    r = pool.starmap_async(add, [(1, 2)], callback=lambda x: seen.append(threading.current_thread()))
    r.wait(LONG)
    assert seen[-1] is not threading.current_thread()


def test_join_waits_for_a_callback_that_runs():
    p, begun, seen = mp.Pool(1), threading.Event(), []

    def keep(x):
        begun.set()
        time.sleep(1)
        seen.append(x)
    p.apply_async(square, (3,), callback=keep)
    assert begun.wait(LONG)
    p.close()
    p.join()
    assert seen == [9]


def test_callbacks_come_without_a_waiter(pool):
    done = threading.Event()
    pool.apply_async(square, (3,), callback=lambda x: done.set())
    assert done.wait(LONG)
    chain = []
    done.clear()

    def again(x):
        chain.append(x)
        pool.apply_async(square, (x,), callback=again) if x < 1000 else done.set()
    pool.apply_async(square, (2,), callback=again)
    assert done.wait(LONG) and chain == [4, 16, 256, 65536]


def test_a_thread_that_lingers_serves_the_next_call_at_once(pool, monkeypatch):
    monkeypatch.setattr(mp.pool, "LINGER_S", 2 * LONG)

    async def main():
        assert await pool.apply_async(square, (3,)) == 9
    for _ in range(3):
        done = threading.Event()
        pool.apply_async(square, (3,), callback=lambda x: done.set())
        assert done.wait(LONG / 4)
        asyncio.run(asyncio.wait_for(main(), LONG / 4))


def test_a_callback_that_raises_harms_nobody_else(pool, monkeypatch):
    seen = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    r = pool.apply_async(square, (3,), callback=lambda x: 1 / 0)
    r.wait(LONG)
    assert r.get() == 9 and seen[0].exc_type is ZeroDivisionError
    assert pool.apply_async(square, (4,), callback=lambda x: None).get(LONG) == 16


def test_a_callback_that_ends_its_thread_harms_nobody_else(pool, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    assert pool.apply_async(square, (3,), callback=sys.exit).get(LONG) == 9
    assert pool.apply_async(square, (4,), callback=lambda x: None).get(LONG) == 16


def test_an_iterator_loses_no_results_that_arrive_while_it_looks(pool):
    class Late(dict):
        def __contains__(self, place):
            found = super().__contains__(place)
            while not it._done:
                pool.apply(square, (1,))  # takes what has arrived for all
            return found
    it = pool.imap(square, range(3))
    it._early = Late()
    assert list(it) == [0, 1, 4]


def test_many_threads(pool):
    errors = []

    def use(n):
        try:
            for i in range(20):
                assert pool.map(square, range(n)) == [x * x for x in range(n)]
                assert pool.apply(add, (n, i)) == n + i
                assert list(pool.imap(square, range(30))) == [x * x for x in range(30)]
        except BaseException as exc:
            errors.append(exc)
    threads = [threading.Thread(target=use, args=(50 + n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(LONG)
        assert not t.is_alive()
    assert errors == []


def test_await(pool):
    async def main():
        r = pool.apply_async(square, (3,))
        assert await r == 9 and await r == 9
        assert await asyncio.gather(*(pool.apply_async(square, (i,)) for i in range(20))) == [i * i for i in range(20)]
        with pytest.raises(ValueError):
            await pool.apply_async(refuse_seven, (7,))
        assert await pool.map_async(square, range(3000)) == [x * x for x in range(3000)]
        assert [x async for x in pool.imap(square, range(10))] == [x * x for x in range(10)]
        assert await pool.imap(square, range(10)) == [x * x for x in range(10)]
    asyncio.run(asyncio.wait_for(main(), LONG))


@pytest.mark.parametrize("chunksize", [1, 3])
@pytest.mark.parametrize("name", ["imap", "imap_unordered"])
def test_a_cancelled_caller_loses_no_result(pool, tmp_path, name, chunksize):
    paths = [str(tmp_path / str(i)) for i in range(7)]

    async def main():
        it, got = getattr(pool, name)(wait_for_file, paths, chunksize), []
        for path in paths:
            caller = asyncio.ensure_future(anext(it))
            while not caller.done() and not is_held(it._one):  # until it waits, or has one
                await asyncio.sleep(0.005)
            caller.cancel()
            got += [x for x in await asyncio.gather(caller, return_exceptions=True) if isinstance(x, str)]
            open(path, "w").close()
        got += await asyncio.gather(*(anext(it) for _ in range(min(3, 7 - len(got)))))
        got += [next(it)] if len(got) < 7 else []
        return got + [x async for x in it]
    assert sorted(asyncio.run(asyncio.wait_for(main(), LONG))) == paths


def test_a_lazy_map_is_awaited_in_one_loop_after_the_other(pool, tmp_path):
    async def give_up():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(anext(it), 0.05)

    async def go_on():
        return [x async for x in it]
    path = str(tmp_path / "1")
    it = pool.imap(wait_for_file, [path])
    asyncio.run(give_up())  # does not wait for the task
    open(path, "w").close()
    assert asyncio.run(asyncio.wait_for(go_on(), LONG)) == [path]


# ---- Workers ----


def test_initializers_and_workers(tmp_path):
    with mp.Pool(3, initialize, (42, str(tmp_path))) as p:
        assert p.wait_until_workers_up(LONG)
        assert len(os.listdir(tmp_path)) == 3
        assert p.map(tell_value, range(10)) == [[42]] * 10
        assert {w["pid"] for w in p.workers()} == {int(x) for x in os.listdir(tmp_path)}
        p.resize(1)
        assert p.map(square, range(10)) == [x * x for x in range(10)]
        p.resize(4)
        assert p.wait_until_workers_up(LONG)
        assert p.stats()["workers"] == 4
        done, given = p.progress()
        assert done == given > 0


def test_an_initializer_that_raises_fails_the_pool_with_its_traceback():
    with mp.Pool(2, raise_in_initializer) as p:
        with pytest.raises(mp.ProcessError, match="the licence is missing"):
            p.apply(square, (1,))
        with pytest.raises(mp.ProcessError):
            p.map(square, range(10))


def test_tasks_per_child():
    with mp.Pool(1, maxtasksperchild=2) as p:
        pids = p.map(pid, range(6), chunksize=1)
        assert len(set(pids)) == 3 and all(pids.count(x) == 2 for x in pids)
    for wrong in 0, -1, "1", 1.5:
        with pytest.raises(ValueError):
            mp.Pool(1, maxtasksperchild=wrong)


def test_workers_of_one_job():
    with mp.Pool(4, workers_per_job=2) as p:
        f = State(1000)
        assert p.map(f, range(100), chunksize=1) == [1000 + x for x in range(100)]
        assert p.wait_until_workers_up(LONG)


def test_an_elastic_pool():
    with mp.Pool(min=0, max=3) as p:
        assert p.map(square, range(50)) == [x * x for x in range(50)]
        assert 1 <= p.stats()["target"] <= 3


def test_a_task_that_kills_its_workers_is_blamed():
    with mp.Pool(2) as p:
        r = p.apply_async(die, (0,))
        with pytest.raises(mp.WorkerLost, match="3 workers died"):
            r.get(LONG)
        assert p.map(square, range(20)) == [x * x for x in range(20)]


def test_retries_0_starts_a_task_once():
    with mp.Pool(1, retries=0) as p:
        with pytest.raises(mp.WorkerLost, match="lost with its worker"):
            p.apply_async(die, (0,)).get(LONG)
        assert p.stats()["deaths"] == 1


def test_a_task_that_raised_is_tried_again(tmp_path):
    with mp.Pool(2, error_handling=True) as p:
        assert p.map(fail_twice, [str(tmp_path / str(i)) for i in range(5)]) == [3] * 5
        assert p.apply(square, (3,)) == 9


def fail_twice(path):
    with open(path, "a") as f:
        f.write("x")
        n = f.tell()
    if n < 3:
        raise OSError("try again")
    return n


def test_a_worker_imports_little(tmp_path):
    (tmp_path / "prog.py").write_text(
        "import sys\nimport fiber as mp\ndef modules(_): return sorted(sys.modules)\n"
        "if __name__ == '__main__':\n    with mp.Pool(1) as p: print(*p.apply(modules, (0,)))\n")
    import subprocess
    run = functools.partial(subprocess.run, capture_output=True, text=True, check=True)
    bare = set(run([sys.executable, "-c", "import _pickle, sys; print(*sys.modules)"]).stdout.split())
    loaded = set(run([sys.executable, str(tmp_path / "prog.py")]).stdout.split())
    assert loaded - bare <= {"__mp_main__", "_compat_pickle", "_pickle", "atexit", "fiber", "fiber._child",
                             "fiber._core", "fiber._fiber", "fiber._pickling", "fiber._worker"}
    assert "fiber._worker" in loaded


def test_multiprocessing_in_a_worker_knows_the_pool(pool):
    name, number, key, parent = pool.apply(use_multiprocessing, (0,))
    assert name == "PoolWorker-%d" % number and 1 <= number < 100 and key == bytes(mp.current_process().authkey) and parent == os.getpid()


def test_an_initializer_is_given_nothing_with_a_descriptor():
    theirs = multiprocessing.get_context("spawn")
    for what in (theirs.Queue(), theirs.Value("i"), theirs.Pipe()[0]):
        with pytest.raises((ValueError, TypeError), match="descriptor|cannot pickle"):
            mp.Pool(1, print, (what,))


def test_a_library_that_asks_for_a_pool_of_multiprocessing(pool):
    """As dask does: other pools are executors for it."""
    assert isinstance(pool, multiprocessing.pool.Pool) and not isinstance(pool, mp.pool.ThreadPool)


def test_nested_pools(pool):
    assert pool.map(nested, [3, 5], chunksize=1) == [[0, 1, 4], [0, 1, 4, 9, 16]]


# ---- The end ----


def test_close_and_join(tmp_path):
    p = mp.Pool(2, initialize, (1, str(tmp_path)))
    with pytest.raises(ValueError, match="still running"):
        p.join()
    p.close()
    for call in (lambda: p.apply(square, (1,)), lambda: p.map(square, [1]), lambda: p.imap(square, [1]),
                 lambda: p.apply_async(square, (1,)), lambda: p.imap_unordered(square, [1]), p.__enter__):
        with pytest.raises(ValueError, match="Pool not running"):
            call()
    p.join()
    p.join()
    p.close()
    p.terminate()
    assert len(os.listdir(tmp_path)) == 2  # initializers run also without a task


def test_join_waits_for_all_work(tmp_path):
    p, seen = mp.Pool(2), []
    many = p.map_async(square, range(20000))
    late = p.apply_async(square, (3, 0.2), callback=seen.append)
    lazy = p.imap(square, range(5000))
    paths = [str(tmp_path / str(i)) for i in range(3000)]
    p.imap_unordered(touch_unless_third, iter(paths[4:]))  # nobody asks for its results
    p.close()
    p.join()
    assert many.get(0)[-1] == 19999 ** 2 and late.get(0) == 9 and seen == [9]
    assert list(lazy) == [x * x for x in range(5000)]
    assert len(os.listdir(tmp_path)) == 2996


@pytest.mark.parametrize("wait", ["is_alive", "join", "active_children"])
def test_workers_of_a_closed_pool_end_when_all_is_done(tmp_path, wait):
    """A program waits for them, and does not call join()."""
    for begin in (lambda p: p.map_async(square, range(5000)), lambda p: list(p.imap(square, range(5000))),
                  lambda p: p.imap(square, range(5000)), lambda p: None):
        p = mp.Pool(2, (tmp_path / "up").touch)
        kept, workers = begin(p), p._pool
        p.close()
        if wait == "join":
            for w in workers:
                w.join(LONG)
        end = time.monotonic() + LONG
        while wait == "is_alive" and any(w.is_alive() for w in workers) and time.monotonic() < end:
            time.sleep(0.01)
        while wait == "active_children" and set(workers) & set(mp.active_children()) and time.monotonic() < end:
            time.sleep(0.01)
        assert time.monotonic() < end and [w.exitcode for w in workers] == [0, 0]
        assert (tmp_path / "up").exists()
        (tmp_path / "up").unlink()
        p.join()
        del kept


def test_join_waits_for_a_thread_that_ends_the_workers():
    """It looks at them, and so it ends them when all is done."""
    p = mp.Pool(2, atexit.register, (time.sleep, 0.5))
    pids = [w.pid for w in p._pool]
    p.map(square, range(4))
    p.close()
    looks = threading.Thread(target=mp.active_children)
    looks.start()
    while not p._ending.locked():
        time.sleep(0.001)
    p.join()
    assert not [number for number in pids if os.path.exists("/proc/%d" % number)]
    looks.join()


def test_terminate_fails_what_is_not_done(tmp_path):
    p = mp.Pool(2)
    done = p.apply_async(square, (2,))
    assert done.get(LONG) == 4
    waits = [p.apply_async(wait_for_file, (str(tmp_path / "never"),)) for _ in range(10)]
    lazy = p.imap(wait_for_file, (str(tmp_path / "never") for _ in range(10)))
    began = time.monotonic()
    threading.Timer(0.1, p.terminate).start()
    with pytest.raises(mp.ProcessError):
        waits[0].get(LONG)
    with pytest.raises(mp.ProcessError):
        waits[9].get(LONG)
    with pytest.raises(mp.ProcessError):
        lazy.next(LONG)
    assert time.monotonic() - began < LONG / 2
    assert done.get() == 4
    with pytest.raises(ValueError, match="Pool not running"):
        p.map(square, [1])


def test_with_terminates():
    with mp.Pool(1) as p:
        assert "state=RUN pool_size=1" in repr(p)
    with pytest.raises(ValueError, match="Pool not running"):
        p.apply(square, (1,))
    with pytest.raises(ValueError, match="Pool not running"):
        with p:
            pass
    with pytest.raises(NotImplementedError, match="cannot be passed"):
        pickle.dumps(p)


def test_wrong_arguments():
    for n in 0, -3:
        with pytest.raises(ValueError):
            mp.Pool(n)
    with pytest.raises(TypeError, match="initializer must be a callable"):
        mp.Pool(1, initializer=1)
    with pytest.raises(ValueError):
        mp.Pool(min=3, max=2)


def test_a_pool_that_is_forgotten_ends():
    p = mp.Pool(1)
    worker = p.apply(pid)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del p
        assert caught.pop().category is ResourceWarning  # it has the pool, too
    until = time.monotonic() + LONG
    while os.path.exists("/proc/%d" % worker) and time.monotonic() < until:
        time.sleep(0.01)
    assert not os.path.exists("/proc/%d" % worker)


# ---- Executor ----


def test_executor():
    import concurrent.futures
    from fiber.futures import Executor
    with Executor(2) as e:
        futures = [e.submit(add, i, 1, c=1) for i in range(20)]
        assert [f.result(LONG) for f in concurrent.futures.as_completed(futures, LONG)].sort() is None
        assert [f.result() for f in futures] == [i + 2 for i in range(20)]
        assert isinstance(e.submit(refuse_seven, 7).exception(LONG), ValueError)
        assert list(e.map(add, range(10), range(10), timeout=LONG)) == [2 * x for x in range(10)]
    with pytest.raises(RuntimeError, match="after shutdown"):
        e.submit(square, 1)
    with pytest.raises(RuntimeError, match="after shutdown"):
        e.map(square, [1])


def test_an_executor_has_the_size_that_libraries_read():
    from fiber.futures import Executor
    with Executor(3) as e:
        assert e._max_workers == 3


def test_calls_of_an_executor_that_are_cancelled_do_not_run(tmp_path):
    from fiber.futures import Executor
    go, paths = str(tmp_path / "go"), [str(tmp_path / str(i)) for i in range(20)]
    with Executor(1) as e:
        first, futures = e.submit(wait_for_file, go), [e.submit(touch_unless_third, path) for path in paths]
        try:
            end = time.monotonic() + LONG
            while not first.running() and time.monotonic() < end:
                time.sleep(0.005)
            assert first.running() and not first.cancel()
            assert futures[10].cancel() and futures[11].cancel()
            e.shutdown(wait=False, cancel_futures=True)
            assert sum(f.cancelled() for f in futures) >= 19  # one is handed out ahead
        finally:
            open(go, "w").close()
        assert first.result(LONG) == go
    assert all(f.done() for f in futures)
    assert [os.path.exists(path) for path in paths] == [not f.cancelled() for f in futures]


def test_map_of_an_executor_gives_results_as_they_come(tmp_path):
    from fiber.futures import Executor
    first, second = str(tmp_path / "1"), str(tmp_path / "2")
    with Executor(1) as e:
        try:
            with pytest.raises(TimeoutError):  # of the language, as in concurrent.futures
                next(e.map(wait_for_file, [first], timeout=0.05))
            results = e.map(wait_for_file, [first, second], timeout=LONG)
            open(first, "w").close()
            assert next(results) == first
        finally:
            open(first, "w").close()
            open(second, "w").close()
        assert list(results) == [second]
        results = e.map(refuse_seven, [5, 6, 7, 8])
        assert [next(results), next(results)] == [5, 6]
        with pytest.raises(ValueError, match="seven"):
            next(results)
        for chunksize in 1, 3, 100:
            assert list(e.map(add, range(10), range(11), chunksize=chunksize)) == [2 * x for x in range(10)]


def test_map_of_an_executor_has_the_options_of_this_python(monkeypatch):
    """Python 3.14 has buffersize, which this one need not have."""
    import concurrent.futures
    from fiber.futures import Executor

    def base_map(self, fn, *iterables, timeout=None, chunksize=1, buffersize=None):
        elements = zip(*iterables)
        while buffer := [self.submit(fn, *args) for args in itertools.islice(elements, buffersize)]:
            yield from (future.result(timeout) for future in buffer)
    monkeypatch.setattr(concurrent.futures.Executor, "map", base_map)
    with Executor(2) as e:
        for chunksize in 1, 3:
            results = e.map(square, itertools.count(), chunksize=chunksize, buffersize=2, timeout=LONG)
            assert [next(results) for _ in range(8)] == [x * x for x in range(8)]


def test_many_short_calls_of_an_executor_from_several_threads():
    from fiber.futures import Executor
    with Executor(2) as e:
        def use():
            futures = [e.submit(square, i) for i in range(500)]
            sums.append(sum(f.result(LONG) for f in futures))
        sums, threads = [], [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
        assert sums == [sum(i * i for i in range(500))] * 4
        with pytest.raises(TypeError):
            e.submit(square, threading.Lock()).result(LONG)
        late = [e.submit(square, i, 0.01) for i in range(20)]
    assert [f.result(0) for f in late] == [i * i for i in range(20)]  # shutdown() has waited for all


@pytest.mark.skipif(not hasattr(os, "process_cpu_count"), reason="it came with CPython 3.13")
def test_a_pool_has_as_many_workers_as_the_interpreter_was_told(program):
    ran = program("""
        import fiber as mp

        if __name__ == "__main__":
            with mp.Pool() as pool:
                print(pool._processes)
        """, env={"PYTHON_CPU_COUNT": "1"})
    assert (ran.code, ran.out) == (0, "1\n"), ran
