"""memory.py - memory that processes share. Needs: sharedctypes

SPDX-License-Identifier: Apache-2.0
"""
import ctypes

import multiprocessing as mp

mp = mp.get_context("spawn")


class Point(ctypes.Structure):
    _fields_ = [("x", ctypes.c_double), ("y", ctypes.c_int)]


def work(value, array, raw, points, i):
    for _ in range(20):
        with value.get_lock():
            value.value += 1
    array[i] = i * 1.5
    raw[i] = 100 + i
    points[0].y += 1
    if i == 0:
        grandchild = mp.Process(target=add, args=(value,))
        grandchild.start()
        grandchild.join()


def add(value):
    with value.get_lock():
        value.value += 1000


if __name__ == "__main__":
    value, array = mp.Value("i", 5), mp.Array("d", 3)
    raw, points = mp.RawArray("i", [7, 8, 9, 10]), mp.Array(Point, [(1.5, 2)], lock=False)
    ps = [mp.Process(target=work, args=(value, array, raw, points, i)) for i in range(3)]
    for p in ps:
        p.start()
    for p in ps:
        p.join()
    print([p.exitcode for p in ps], value.value, array[:], raw[:], points[0].x, points[0].y > 2)
    s = mp.Array("c", b"hello")
    print(s.value, s.raw, len(s), type(s).__name__, type(value).__name__)
    with array.get_lock():
        array.get_obj()[0] = 9
    print(array[0], mp.RawValue("h", 3).value, mp.Value("b", 1, lock=False).value)
