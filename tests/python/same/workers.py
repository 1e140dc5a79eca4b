"""workers.py - the workers of a pool as processes, and what a pool says of itself. Needs: pool

SPDX-License-Identifier: Apache-2.0
"""
import importlib
import os
import re

import multiprocessing as mp

pools = importlib.import_module(mp.__name__ + ".pool")


def show(what, thing):
    text = re.sub(r"\b%d\b" % os.getpid(), "OURS", repr(thing)).replace("multiprocessing.", "").replace("fiber.", "")
    print(what, re.sub(r"pid=\d+", "pid=N", text.replace("Spawn", "")))


def about():
    me, parent = mp.current_process(), mp.parent_process()
    return me.daemon, me.is_alive(), me.exitcode, parent.name, parent.pid, re.sub(r"\d+", "N", repr(me)).replace("Spawn", "")


def nothing():
    pass


if __name__ == "__main__":
    mp.set_start_method("spawn")
    with mp.Pool(2) as pool:
        show("in a worker", pool.apply(about))
        workers = sorted(mp.active_children(), key=lambda w: w.name)
        show("workers", workers)
        for w in workers:
            show("worker", (w.is_alive(), w.exitcode, w.daemon, w.pid == w.ident, isinstance(w, mp.process.BaseProcess)))
        print(sorted(w.pid for w in workers) == sorted(w.pid for w in pool._pool), workers[0] in mp.active_children())
        print(len({w.pid for w in workers} | {os.getpid()}))
        show("running", pool)
    show("terminated", pool)
    pool.join()
    show("children", mp.active_children())
    p = mp.Process(target=nothing)
    p.start()
    p.join()
    show("a process", p)
    pool = mp.Pool(1)
    pool.close()
    show("closed", pool)
    pool.join()
    show("joined", pool)
    pool.terminate()
    show("terminated", pool)
    pool.join()
    show("children", mp.active_children())
    with pools.ThreadPool(2) as threads:
        show("threads", (threads, isinstance(threads, pools.Pool), isinstance(pool, pools.Pool)))
    print(issubclass(pools.ThreadPool, pools.Pool), isinstance(3, pools.Pool))
    print(pools.AsyncResult is pools.ApplyResult, issubclass(pools.MapResult, pools.ApplyResult), pools.AsyncResult.__name__)
