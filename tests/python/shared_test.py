"""shared_test.py - Value, Array, shared_memory and fiber.shared(): memory of the processes of one host.

SPDX-License-Identifier: Apache-2.0
"""
import ctypes
import glob
import multiprocessing
import os
import signal
import sys
import threading

import conftest
import pytest

import fiber as mp
from fiber import shared_memory, sharedctypes

LONG = 60


def add_one(carrier, back):
    value = carrier.get(timeout=LONG)
    value.value += 1
    back.put(value)


def test_a_value_travels_through_queues(start):
    carrier, back, value = mp.Queue(), mp.Queue(), mp.RawValue("l", 5)
    child = start(add_one, carrier, back)
    carrier.put(value)
    again = back.get(timeout=LONG)
    assert value.value == again.value == 6
    value.value = 7
    assert again.value == 7
    assert conftest.well(child)


class Point(ctypes.Structure):
    _fields_ = [("x", ctypes.c_double), ("y", ctypes.c_double)]


def change(value, array, raw, points, text):
    value.value += 1
    for i in range(len(array)):
        array[i] *= 2
    raw.value = 1.5
    for p in points:
        p.x, p.y = p.y, p.x
    text.value = text.value.upper()


def test_a_child_changes_values_and_arrays(start):
    value, array, raw = mp.Value("i", 7), mp.Array("d", [1.5, 2]), mp.RawValue("d")
    points, text = mp.Array(Point, [(1, 2), (3, 4)], lock=False), mp.Array("c", b"hello")
    assert raw.value == 0 and list(mp.RawArray("i", 3)) == [0, 0, 0]
    assert conftest.well(start(change, value, array, raw, points, text))
    assert value.value == 8 and array[:] == [3, 4] and raw.value == 1.5
    assert [(p.x, p.y) for p in points] == [(2, 1), (4, 3)]
    assert text.value == b"HELLO"


def count(value, times):
    for _ in range(times):
        with value.get_lock():
            value.value += 1


def change_all(*values):
    for value in values:
        value.value += 1


def test_values_beside_those_of_multiprocessing(start):
    """A library may have made some, for whose types multiprocessing registers a function."""
    theirs = multiprocessing.get_context("spawn").RawValue("i")
    ours = mp.Value("i", 1), mp.RawValue("i", 2)
    assert conftest.well(start(change_all, *ours, ctypes.c_int(0)))
    assert [value.value for value in ours] == [2, 3]
    with pytest.raises(ValueError, match="cannot send a file descriptor"):
        start(change_all, theirs)


def test_a_process_of_multiprocessing_is_told(program):
    ran = program("""
        import multiprocessing

        import fiber

        if __name__ == "__main__":
            multiprocessing.get_context("spawn").Process(target=print, args=(fiber.Value("i"),)).start()
    """)
    assert "use fiber.Process" in ran.err, ran


def test_the_lock_of_a_value_excludes(start):
    value = mp.Value("q")
    children = [start(count, value, 2000) for _ in range(3)]
    count(value, 2000)
    assert all(conftest.well(c) for c in children)
    assert value.value == 8000


def hold(value, up):
    value.get_lock().acquire()
    up.put(1)
    signal.pause()


def test_the_lock_of_a_dead_process_is_free(start):
    value, up = mp.Value("i"), mp.Queue()
    child = start(hold, value, up)
    up.get(timeout=LONG)
    assert not value.get_lock().acquire(timeout=0.01)
    assert not value.get_lock().acquire(block=False)
    child.kill()
    assert value.get_lock().acquire(timeout=LONG)
    value.get_lock().release()
    with pytest.raises(AssertionError):
        value.get_lock().release()


def test_a_signal_that_ends_acquire_leaves_the_lock_of_a_value_free(interrupt):
    lock, taken = mp.Value("i").get_lock(), threading.Event()

    def hold():
        with lock:
            taken.set()
            end.wait(LONG)
    end = threading.Event()
    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait(LONG)

    def release():
        end.set()
        holder.join(LONG)
    interrupt(lock.acquire, release)

    assert repr(lock) == "<RLock(None, 0)>"


def test_locks_of_values():
    lock = mp.Lock()
    value = mp.Value("i", lock=lock)
    assert value.get_lock() is lock
    assert not hasattr(mp.Value("i", lock=False), "get_lock")
    assert not hasattr(mp.RawArray("i", 2), "get_lock")
    with pytest.raises(AttributeError):
        mp.Array("i", 2, lock="no lock")
    first = mp.Array("i", [1, 2])
    other = sharedctypes.copy(first.get_obj())
    first[0] = 5
    assert list(other) == [1, 2]


def segments():
    """The segments of this program's run. /dev/shm holds a directory for each run that has some."""
    return [path for path in glob.glob(f"/dev/shm/fiber-{os.getpid()}-*/*") if os.path.isfile(path)]


def test_what_is_dropped_is_gone():
    value = mp.Value("i")
    before = len(segments())
    more = [mp.RawArray("i", 10) for _ in range(10)]
    assert all(a[9] == 0 for a in more)
    assert len(segments()) == before + 10
    del more
    assert len(segments()) == before
    del value
    assert len(segments()) < before


def drop_held():
    value, other = mp.Value("i"), mp.Value("i")
    value.get_lock().acquire()
    del value
    with other.get_lock():
        pass


def test_a_value_may_be_dropped_while_its_lock_is_held(start):
    assert conftest.well(start(drop_held))


# ---- shared_memory ----


def write(name):
    block = shared_memory.SharedMemory(name)
    block.buf[:5] = b"child"
    block.close()


def test_a_block_outlives_a_process_that_attached_to_it(start):
    block = shared_memory.SharedMemory(create=True, size=100)
    assert block.size >= 100
    assert conftest.well(start(write, block.name))
    assert bytes(block.buf[:5]) == b"child"
    again = shared_memory.SharedMemory(block.name)
    assert bytes(again.buf[:5]) == b"child"
    again.close()
    block.close()
    block.close()
    block.unlink()
    with pytest.raises(FileNotFoundError):
        shared_memory.SharedMemory(block.name)


def test_names_of_blocks():
    block = shared_memory.SharedMemory("mine", create=True, size=1)
    with pytest.raises(FileExistsError):
        shared_memory.SharedMemory("mine", create=True, size=1)
    block.unlink()
    with pytest.raises(ValueError):
        shared_memory.SharedMemory(create=True)
    with pytest.raises(ValueError):
        shared_memory.SharedMemory(create=True, size=-1)
    with pytest.raises(ValueError, match="embedded null character"):
        shared_memory.SharedMemory("mine\0too", create=True, size=1)


def change_list(items):
    items[0], items[1] = items[0] + 1, "x" + items[1][1:]


@pytest.mark.parametrize("name", ["a b", "a:b", "bl\u00f6ck", "x" * 95])
def test_a_name_may_have_any_characters(name):
    block = shared_memory.SharedMemory(name, create=True, size=10)
    other = shared_memory.SharedMemory(name)
    other.buf[:2] = b"hi"
    assert block.name == other.name == name and bytes(block.buf[:2]) == b"hi"
    with pytest.raises(FileExistsError) as caught:
        shared_memory.SharedMemory(name, create=True, size=10)
    assert caught.value.filename == "/" + name
    block.unlink()
    with pytest.raises(OSError, match="File name too long"):
        shared_memory.SharedMemory("y" * 300, create=True, size=10)


def test_a_shareable_list(start):
    items = shared_memory.ShareableList([1, "abc", 2.5, None, b"bytes", True])
    assert conftest.well(start(change_list, items))
    assert list(items) == [2, "xbc", 2.5, None, b"bytes", True]
    again = shared_memory.ShareableList(name=items.shm.name)
    assert again[0] == 2 and len(again) == 6 and again.count(2.5) == 1
    again.shm.close()
    items.shm.close()
    items.shm.unlink()


# ---- shared() ----


def build_slowly(path):
    def build():
        with open(path, "a") as f:
            f.write("x")
        return bytes(range(256)) * 256
    return build


def look(path, sink):
    sink.put(bytes(mp.shared("table", build_slowly(path))[-4:]))


def test_one_process_builds_for_all(start, tmp_path):
    path, sink = str(tmp_path / "built"), mp.Queue()
    children = [start(look, path, sink) for _ in range(3)]
    table = mp.shared("table", build_slowly(path))
    assert all(conftest.well(c) for c in children)
    assert {sink.get(timeout=LONG) for _ in range(3)} == {bytes(table[-4:])} == {b"\xfc\xfd\xfe\xff"}
    assert (tmp_path / "built").read_text() == "x"
    with pytest.raises(TypeError):
        table[0] = 1


def fail():
    raise ZeroDivisionError("on purpose")


def test_an_error_of_build_is_raised_and_the_next_builds():
    with pytest.raises(FileNotFoundError, match="built the shared array: 'later'"):
        mp.shared("later")
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        mp.shared("later", fail)
    assert bytes(mp.shared("later", lambda: b"now")) == b"now"
    assert bytes(mp.shared("nothing", lambda: b"")) == b""
    for name in ["", "a/b", "n" * 195]:
        with pytest.raises(ValueError, match=f"shared array '{name}': a name has 1 to 194 of"):
            mp.shared(name, fail)
    assert bytes(mp.shared("n" * 194, lambda: b"now")) == b"now"


NUMPY = """
    import fiber
    import numpy

    def noise():
        return numpy.random.RandomState(1).randn(1000, 3).astype("f4")

    def mean(sink):
        array = fiber.shared("noise")
        sink.put((float(array.sum()), array.shape, str(array.dtype), array.flags.writeable))

    if __name__ == "__main__":
        array, sink = fiber.shared("noise", noise), fiber.Queue()
        assert (array == noise()).all()
        child = fiber.Process(target=mean, args=(sink,))
        child.start()
        assert sink.get(timeout=60) == (float(array.sum()), (1000, 3), "float32", False)
        child.join()
        pairs = fiber.shared("pairs", lambda: numpy.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]))
        assert pairs["b"][0] == 2.5
        of_structs = numpy.zeros(2, [("at", [("x", "f4"), ("y", "f4")]), ("id", "i1")])
        padded = numpy.zeros(2, numpy.dtype([("id", "i1"), ("x", "f8")], align=True))
        for i, made in enumerate((of_structs, padded, numpy.array(5.5))):
            array = fiber.shared("kind-%d" % i, lambda: made)
            assert (array.dtype, array.shape, array.tobytes()) == (made.dtype, made.shape, made.tobytes())
        print("same")
"""


def test_arrays_of_numpy(program, monkeypatch):
    python = conftest.python_with("numpy")
    if not python:
        pytest.skip("no interpreter here has numpy")
    monkeypatch.setattr(sys, "executable", python)
    ran = program(NUMPY)
    assert (ran.code, ran.out) == (0, "same\n"), ran


def test_another_host_is_told():
    segment = sharedctypes.Segment(8)
    rebuild, (name, size) = segment.__reduce__()
    from fiber import _core
    _core.start().Shared.delete(name)  # as on another host, which has no such memory
    with pytest.raises(OSError, match="Manager"):
        rebuild(name, size)
