"""values.py - the lock of a Value: how it is taken, and how it and its Value are shown. Needs: sharedctypes

SPDX-License-Identifier: Apache-2.0
"""
import importlib
import re
import threading

import multiprocessing as mp

synchronize = importlib.import_module(mp.__name__ + ".synchronize")


def take(lock, taken, end):
    with lock:
        taken.set()
        end.wait()


def show(what, fn, *args, **kwargs):
    try:
        print(what, re.sub("0x[0-9a-f]+|multiprocessing|fiber", "", repr(fn(*args, **kwargs))))
    except Exception as error:
        print(what, type(error).__name__, error)


if __name__ == "__main__":
    mp.set_start_method("spawn")
    for shared in (mp.Value("i", 5), mp.Array("i", 3), mp.Array("c", b"hello")):
        lock = shared.get_lock()
        print(type(lock).__name__, isinstance(lock, synchronize.RLock), isinstance(lock, synchronize.Lock))
        show("free", lambda: lock)
        show("taken", lambda: (lock.acquire(), repr(lock), lock.acquire(), repr(lock), lock.release(), lock.release()))
        show("release", lock.release)
        show("acquire", lambda: (lock.acquire(False), lock.acquire(True, 0), lock.acquire(timeout=-1), lock.acquire(True, None)))
        show("four times", lambda: (lock, [lock.release() for _ in range(4)], lock))
        for threaded in (True, False):
            taken, end = (threading.Event(), threading.Event()) if threaded else (mp.Event(), mp.Event())
            other = (threading.Thread if threaded else mp.Process)(target=take, args=(lock, taken, end))
            other.start()
            taken.wait()
            show("another has it", lambda: (lock, lock.acquire(False), lock.acquire(timeout=0.01), lock.acquire(True, -1)))
            show("release", lock.release)
            end.set()
            other.join()
        thread = threading.Thread(target=lambda: show("in a thread", lambda: (lock.acquire(), repr(lock), lock.release())),
                                  name="a-thread")
        thread.start()
        thread.join()
        show("shared", lambda: (shared, shared.get_obj(), shared.__enter__(), shared.__exit__(None, None, None), lock))
    show("no lock", mp.Value, "i", lock=3)
    show("a lock", lambda: mp.Value("i", 3, lock=mp.Lock()).get_lock())
    show("unlocked", lambda: (mp.Value("i", 3, lock=False), mp.RawValue("d", 2)))
    for args in (("q", 1), ("zz",), ("i", "x"), ("i", 1, 2), (3,)):
        show("value %r" % (args,), lambda: mp.Value(*args).value)
    for args in (("i", -1), ("i", "x"), ("i", 1.5), ("zz", 3), ("c", 3), ("c", "hello"), ("d", [1, 2])):
        show("array %r" % (args,), lambda: (len(mp.Array(*args)), mp.Array(*args)[:]))
