"""blocks.py - blocks of shared memory, lists in them, and their manager. Needs: shared_memory

SPDX-License-Identifier: Apache-2.0
"""
import importlib
import os
import re

import multiprocessing as mp

shared_memory = importlib.import_module(mp.__name__ + ".shared_memory")
managers = importlib.import_module(mp.__name__ + ".managers")
SharedMemory, ShareableList = shared_memory.SharedMemory, shared_memory.ShareableList


def show(what, fn, *args, **kwargs):
    try:
        text = repr(fn(*args, **kwargs))
    except Exception as error:
        text = "%s: %s" % (type(error).__name__, error)
    print(what, "->", re.sub("(psm_|block-)[0-9a-f]+", "NAME", text))


def double(name, numbers):
    block = SharedMemory(name)
    for i in range(8):
        block.buf[i] *= 2
    block.close()
    numbers[0] = "from a child"
    numbers.shm.close()


if __name__ == "__main__":
    mp.set_start_method("spawn")
    for kwargs in ({"size": 0}, {"size": -1}, {"size": 1, "name": "a/b"}, {"size": 1, "name": ""}):
        show("create", SharedMemory, create=True, **kwargs)
    show("attach", SharedMemory)
    show("attach", SharedMemory, "nobody-has-this")
    for name in ("block-%x", "/block-%x", "a block, %x"):
        name %= os.getpid()
        block = SharedMemory(name, create=True, size=100)
        print(block.name == name, block.size >= 100, block.buf.readonly)
        if not name.startswith("/"):
            block.buf[:3] = b"abc"
            other = SharedMemory(name)
            print(bytes(other.buf[:3]))
            other.close()
            other.close()
            print(other.buf)
        block.close()
        block.unlink()
    show("attach", SharedMemory, "block-%x" % os.getpid())
    block = SharedMemory(create=True, size=8)
    part = block.buf[2:4]
    show("close with a slice", block.close)
    print(block.buf, bytes(part))
    show("close with a slice", block.close)
    part.release()
    show("close", block.close)
    block.unlink()

    with managers.SharedMemoryManager() as manager:
        block, numbers = manager.SharedMemory(8), manager.ShareableList(["twelve bytes", 2.5, None])
        block.buf[:8] = bytes(range(8))
        p = mp.Process(target=double, args=(block.name, numbers))
        p.start()
        p.join()
        print(p.exitcode, bytes(block.buf[:8]), list(numbers), len(numbers), numbers.index(2.5))
        show("a block", manager.SharedMemory, 0)
        names = block.name, numbers.shm.name
        numbers.shm.close()
        block.close()
    for name in names:
        show("attach", SharedMemory, name)
