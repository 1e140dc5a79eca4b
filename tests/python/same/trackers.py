"""trackers.py - modules that programs use beside the package itself: spawn, and resource_tracker for attached memory.

SPDX-License-Identifier: Apache-2.0
"""
import importlib
import os
import sys

import multiprocessing as mp

spawn, tracker, memory = (importlib.import_module(mp.__name__ + "." + name)
                          for name in ("spawn", "resource_tracker", "shared_memory"))


def attach(name, told):
    """Unregisters what the tracker of a spawned process knows already, so that it lives on; it is the parent's."""
    block = memory.SharedMemory(name=name)
    tracker.unregister(block._name, "shared_memory")
    block.buf[0] += 1
    block.close()
    tracker.register("/" + name, "shared_memory")
    told.put((mp.get_start_method(allow_none=True), spawn.get_executable() == os.fsencode(sys.executable),
              spawn.is_forking(sys.argv)))


if __name__ == "__main__":
    spawn.freeze_support()
    print(mp.get_start_method(allow_none=True))
    mp.set_start_method("spawn")
    spawn.set_executable(sys.executable)
    tracker.ensure_running()
    told = mp.SimpleQueue()
    block = memory.SharedMemory(create=True, size=8)
    for _ in range(2):
        p = mp.Process(target=attach, args=(block.name, told))
        p.start()
        p.join()
        print(p.exitcode, told.get(), block.buf[0])
    block.close()
    block.unlink()
