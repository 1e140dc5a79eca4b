"""executor.py - concurrent.futures.ProcessPoolExecutor with the module's context. Needs: synchronize

SPDX-License-Identifier: Apache-2.0
"""
import concurrent.futures
import os
import threading

import multiprocessing as mp

mp = mp.get_context("spawn")
GIVEN = []


def square(x):
    return x * x


def fail(x):
    raise KeyError(x)


def die(code):
    os._exit(code)


def start(*values):
    GIVEN.extend(values)


def given():
    return GIVEN


def show(what, fn, *args):
    try:
        print(what, fn(*args))
    except Exception as error:
        print(what, type(error).__name__, error, type(error.__cause__).__name__)


if __name__ == "__main__":
    with concurrent.futures.ProcessPoolExecutor(2, mp, start, (1, 2)) as executor:
        show("map", lambda: list(executor.map(square, range(20))))
        show("map", lambda: list(executor.map(square, range(20), chunksize=7)))
        show("submit", lambda: executor.submit(square, 7).result())
        show("submit", lambda: executor.submit(fail, 7).result())
        show("submit", lambda: executor.submit(square, threading.Lock()).result())
        show("initializer", lambda: executor.submit(given).result())
        show("as_completed", lambda: sorted(
            f.result() for f in concurrent.futures.as_completed([executor.submit(square, i) for i in range(5)])))
    show("submit", executor.submit, square, 1)
    executor = concurrent.futures.ProcessPoolExecutor(1, mp_context=mp)
    show("a death", lambda: executor.submit(die, 3).result())
    show("submit", executor.submit, square, 1)
    executor.shutdown()
    print(mp.active_children())
