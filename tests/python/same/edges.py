"""edges.py - calls at the edges of what is allowed, and what they answer. Needs: synchronize

SPDX-License-Identifier: Apache-2.0
"""
import multiprocessing as mp
import queue
import re
import threading

mp = mp.get_context("spawn")


def show(what, fn, *args, **kwargs):
    """Prints the result of a call, or its exception with the text."""
    try:
        text = repr(fn(*args, **kwargs))
    except Exception as error:
        text = "%s: %s, %s" % (type(error).__name__, error, type(error.__cause__).__name__)
    print(what, "->", re.sub("0x[0-9a-f]+", "ADDRESS", text).replace("multiprocessing.", "").replace("fiber.", ""))


def square(x):
    return x * x


def add(x, y):
    return x + y


def refuse_three(x):
    if x == 3:
        raise KeyError("three")
    return x


def yield_and_raise():
    yield 1
    yield 2
    raise LookupError("the source")


class Unpicklable:
    def __reduce__(self):
        raise RuntimeError("not this one")


def connections():
    a, b = mp.Pipe()
    for timeout in (0, 0.01, -1):
        show("poll", a.poll, timeout)
    show("send", a.send, Unpicklable())
    for args in ((b"abc", -1), (b"abc", 4), (b"abc", 1, -1), (b"abc", 1, 3), ("text",), (3,)):
        show("send_bytes", a.send_bytes, *args)
    a.send_bytes(b"abcdef", offset=2, size=3)
    show("recv_bytes", b.recv_bytes, -1)
    show("recv_bytes", b.recv_bytes, 3)
    a.send_bytes(b"a")
    show("recv_bytes_into", b.recv_bytes_into, bytearray(3), -1)
    show("recv_bytes_into", b.recv_bytes_into, bytearray(3), 9)
    show("recv_bytes", b.recv_bytes)
    b.close()
    show("close", b.close)
    for fn in (a.recv, a.recv_bytes, b.recv, b.poll, b.fileno, b.recv_bytes):
        show(fn.__name__, fn)
    show("send", a.send, 1)
    show("send", b.send, 1)
    show("closed", lambda: (a.closed, b.closed, b.readable))


def queues():
    q = mp.Queue(1)
    for args in ((False,), (True, 0), (True, -1), (True, 0.01), (False, -1)):
        show("get", q.get, *args)
    q.put("one")
    for args in ((2, False), (2, True, 0), (2, True, -1), (2, True, 0.01)):
        show("put", q.put, *args)
    show("get", q.get, timeout=60)
    q.close()
    show("close", q.close)
    for fn in (q.get, q.get_nowait, q.join_thread, q.empty):
        show(fn.__name__, fn)
    unused = mp.Queue()
    unused.close()
    show("empty", unused.empty)
    j = mp.JoinableQueue()
    show("task_done", j.task_done)
    show("join", j.join)
    print(str(queue.Empty()) == "", mp.Queue(-1).full())


def locks():
    for kind in (mp.Lock, mp.RLock):
        lock = kind()
        show("release", lock.release)
        print([lock.acquire(), lock.acquire(False), lock.acquire(False, 1), lock.acquire(timeout=0)])
        show("release", lock.release)
        show("exit", lock.__exit__)
    for kind in (mp.Semaphore, mp.BoundedSemaphore):
        for value in ("text", None, 1.5):
            show("a semaphore", kind, value)
        s = kind(1)
        show("acquire", lambda: (s.acquire(), s.acquire(False), s.acquire(timeout=0.01)))
        show("release", s.release)
        show("release", s.release)
    event = mp.Event()
    show("wait", lambda: [event.wait(t) for t in (0, -1, 0.01)])
    print(repr(mp.Condition()), repr(mp.Condition(mp.Lock())), repr(mp.Condition(lock=mp.RLock())))
    c = mp.Condition()
    show("wait", c.wait, 0.01)
    show("release", c.release)
    show("a condition", mp.Condition, 3)
    with c:
        show("wait", lambda: [c.wait(t) for t in (0, -1, 0.01)])
        show("notify", lambda: [c.notify(n) for n in (0, 2)])
        show("wait_for", lambda: [c.wait_for(lambda: "yes"), c.wait_for(lambda: "", 0.01)])
    b = mp.Barrier(1)
    show("a barrier", lambda: (b.wait(), b.parties, b.n_waiting, b.broken, b.abort(), b.broken))
    show("wait", b.wait)
    b.reset()
    show("wait", b.wait, 0)
    show("wait", mp.Barrier(2, timeout=0.01).wait)
    failing = mp.Barrier(1, action=lambda: 1 / 0)
    show("wait", failing.wait)
    print(failing.broken, threading.BrokenBarrierError.__name__)


def pools():
    with mp.Pool(2) as pool:
        for args in ([3], range(3, 4), 3, None):
            show("apply", pool.apply, square, args)
        for kwds in ({"y": 2}, None, 3):
            show("apply", pool.apply, add, (1,), kwds)
        show("apply", pool.apply, 3)
        for fn in (pool.apply, pool.map, pool.starmap, pool.imap):
            show(fn.__name__, fn, *((square,) if fn == pool.apply else (square, [])) if fn != pool.imap else (square, [], 0))
        show("map", pool.map, square, None)
        show("map", pool.map, square, yield_and_raise())
        show("map", pool.map, refuse_three, range(6))
        show("map", pool.map, square, [1, Unpicklable()])
        show("starmap", pool.starmap, add, [(1,)])
        for it in (pool.imap(refuse_three, range(5)), pool.imap(square, yield_and_raise()),
                   pool.imap(square, [2, Unpicklable(), 3]), pool.imap(square, [2], 3)):
            for _ in range(6):
                show("next", next, it)
        result = pool.apply_async(refuse_three, (3,))
        result.wait()
        show("get", lambda: (result.ready(), result.successful()))
        show("get", result.get)
        called = []
        pool.map_async(square, [], callback=called.append).wait()
        pool.starmap_async(add, [(1, 2)], callback=called.append).wait()
        pool.map_async(refuse_three, range(5), 1, called.append, lambda e: called.append(repr(e))).wait()
        print(called)
        show("apply", pool.apply, Unpicklable)
    for bad in (0, -1):
        show("a pool", mp.Pool, bad)
    show("a pool", mp.Pool, 1, 3)
    pool = mp.Pool(1)
    show("join", pool.join)
    pool.close()
    pool.close()
    for fn in (pool.apply, pool.map, pool.imap, pool.starmap):
        show(fn.__name__, fn, square, (1,))
    show("enter", pool.__enter__)
    pool.join()
    pool.join()
    pool.terminate()


if __name__ == "__main__":
    connections()
    queues()
    locks()
    pools()
