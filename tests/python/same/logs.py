"""logs.py - the logger of multiprocessing, in the program, in a process and in the worker of a pool. Needs: pool

SPDX-License-Identifier: Apache-2.0
"""
import io
import logging

import multiprocessing as mp


def about(name):
    """Logs into a text, and returns it with what the logger is like."""
    logger = mp.get_logger()
    into = io.StringIO()
    for handler in logger.handlers:
        handler.setStream(into)
    logger.info("not to be seen")
    logger.warning("from a %s", name)
    process = mp.current_process().name
    return logger.level, len(logger.handlers), into.getvalue().replace(process, "NAME").replace("Spawn", "")


def tell(queue):
    queue.put(about("process"))


if __name__ == "__main__":
    mp.set_start_method("spawn")
    with mp.Pool(1) as pool:
        print(pool.map(about, ["worker without"]))
    mp.log_to_stderr().setLevel(logging.WARNING)
    print(about("program"))
    queue = mp.Queue()
    p = mp.Process(target=tell, args=(queue,))
    p.start()
    print(queue.get(timeout=60))
    p.join()
    with mp.Pool(1) as pool:
        print(pool.map(about, ["worker"]))
