"""pools.py - pools. Needs: pool

SPDX-License-Identifier: Apache-2.0
"""
import os
import sys
import threading

import multiprocessing as mp

mp = mp.get_context("spawn")
STATE = []


def square(x):
    return x * x


def add(x, y=0):
    return x + y


def fail_at(x):
    if x == 3:
        raise ValueError("at", x)
    return x


def start(value):
    STATE.append(value)


def state(_):
    return STATE[0]


def unpicklable(_):
    return threading.Lock()


class Odd(Exception):
    def __init__(self, a, b):
        super().__init__("only one")


def raise_odd(_):
    raise Odd(1, 2)


def leave(_):
    sys.exit("left")


class Counter:
    def __init__(self):
        self.n = 0

    def count(self, _):
        self.n += 1
        return self.n


def count_in_calls(pool):
    """A call leaves what it calls as it was, for the next call, too."""
    counter = Counter()
    for _ in range(2):
        print(pool.map(counter.count, [0]), pool.starmap(counter.count, [(0,)]), pool.apply(counter.count, (0,)))
        print(pool.map(counter.count, range(4), chunksize=2), pool.map(counter.count, range(4), chunksize=1),
              list(pool.imap(counter.count, range(4))), list(pool.imap(counter.count, range(4), chunksize=2)))
    values = {"a": 1}
    get = values.get
    print(pool.apply(get, ("a",)))
    values["a"] = 2
    print(pool.apply(get, ("a",)), counter.n)


def raises(fn, *args):
    try:
        print(fn(*args))
    except Exception as error:
        print(type(error).__name__, str(error).split("Reason")[0], type(error.__cause__).__name__)


if __name__ == "__main__":
    with mp.Pool(2) as pool:
        print(pool.map(square, range(10)), pool.map(square, []), pool.map(square, range(7), 3))
        print(pool.starmap(add, [(1, 2), (3,)]), pool.apply(add, (1,), {"y": 5}))
        print(list(pool.imap(square, range(5))), list(pool.imap(square, range(7), 2)))
        print(sorted(pool.imap_unordered(square, range(5))))
        result = pool.apply_async(square, (7,))
        print(result.get(60), result.ready(), result.successful())
        result = pool.map_async(fail_at, range(5))
        result.wait(60)
        print(result.ready(), result.successful())
        raises(result.get)
        raises(pool.map, fail_at, range(5))
        raises(pool.apply, fail_at, (3,))
        it = pool.imap(fail_at, range(6))
        for _ in range(6):
            raises(next, it)
        raises(next, it)
        try:
            pool.apply(unpicklable, (1,))
        except Exception as error:
            print(type(error).__name__, "Lock" not in str(error) or "cannot pickle" in str(error))
        raises(pool.map, square, 5)
        called = []
        pool.apply_async(square, (3,), callback=called.append).wait()
        pool.apply_async(fail_at, (3,), error_callback=lambda e: called.append(repr(e))).wait()
        pool.map_async(square, range(3), callback=called.append).wait()
        print(called)
        raises(pool.join)
    raises(pool.map, square, [1])

    with mp.Pool(2, initializer=start, initargs=("ready",)) as pool:
        print(set(pool.map(state, range(20))))
    with mp.Pool(1) as pool:
        count_in_calls(pool)
    with mp.Pool(1, maxtasksperchild=2) as pool:
        pids = [pool.apply(os.getpid) for _ in range(6)]
        print(len(set(pids)))
    pool = mp.Pool(2)
    results = [pool.apply_async(square, (i,)) for i in range(50)]
    pool.close()
    raises(pool.apply, square, (1,))
    pool.join()
    print(sum(r.get() for r in results))
    raises(mp.Pool, 0)
