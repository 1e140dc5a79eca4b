"""arrays.py - large buffers in queues, pipes and pools: they arrive whole, equal and writable. Needs: pool

SPDX-License-Identifier: Apache-2.0
"""
import array

import multiprocessing as mp

try:
    import numpy
except ImportError:
    numpy = None


def twice(a):
    a[0] += 1  # nobody else sees it
    return a, a


def echo(queue, conn):
    for _ in range(queue.get()):
        conn.send(queue.get())
        queue.task_done()
    conn.send_bytes(memoryview(bytearray(b"x" * 100000))[5:])


def like(a, b):
    if numpy and isinstance(a, numpy.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() and bool(b.flags.writeable)
    return type(a) is type(b) and a == b


def make():
    yield bytearray(b"\1" * 3000000)
    yield array.array("d", range(300000))
    yield array.array("i")
    if numpy:
        yield numpy.arange(500000, dtype="f8")
        yield numpy.arange(500000, dtype="i4").reshape(500, 1000)[::2, ::3]
        yield numpy.asfortranarray(numpy.arange(600000).reshape(600, 1000))
        yield numpy.zeros((0, 3))
        yield numpy.zeros(70000, dtype=[("a", "i2"), ("b", "f4")])
        yield numpy.array([{"an": "object"}, None, 3], dtype=object)


if __name__ == "__main__":
    mp.set_start_method("spawn")
    things = list(make())
    queue = mp.JoinableQueue()
    mine, its = mp.Pipe()
    p = mp.Process(target=echo, args=(queue, its))
    p.start()
    queue.put(len(things))
    for a in things:
        queue.put(a)
        b = mine.recv()
        print(type(a).__name__, len(a), like(a, b))
    print(len(mine.recv_bytes()))
    p.join()
    numbers = [a for a in things if len(a) and getattr(a, "dtype", None) != object and getattr(a, "ndim", 1) == 1 and
               not (hasattr(a, "dtype") and a.dtype.names)]
    with mp.Pool(2) as pool:
        for a in numbers:
            b, c = pool.apply(twice, (a,))
            print(type(b).__name__, b is c, b[0] - a[0], like(a[1:], b[1:]))
        print([b is c for b, c in pool.imap(twice, numbers)], [len(b) for b, c in pool.map(twice, numbers, 1)])
