"""methods.py - the start method, which is set once, and what belongs to it.

SPDX-License-Identifier: Apache-2.0
"""
import sys

import multiprocessing as mp


def raises(fn, *args, **kwargs):
    try:
        print(fn(*args, **kwargs))
    except Exception as error:
        print(type(error).__name__, str(error).split(":")[0])


def nothing():
    pass


if __name__ == "__main__":
    raises(mp.get_start_method, allow_none=True)
    mp.set_start_method("spawn")
    raises(mp.get_start_method, allow_none=True)
    raises(mp.get_start_method)
    raises(mp.set_start_method, "spawn")
    raises(mp.set_start_method, "spawn", force=True)
    raises(mp.set_start_method, "nothing", force=True)
    raises(mp.set_start_method, 3, True)
    context = mp.get_context("spawn")
    raises(context.set_start_method, "spawn")
    raises(context.set_start_method, "fork")
    raises(context.get_context, "nothing")
    print(context.get_context() is context, mp.get_context() is context, context.get_start_method())
    p = mp.Process(target=nothing)
    p.start()
    p.join()
    raises(mp.set_start_method, "spawn")
    raises(mp.set_executable, sys.executable)
    print(mp.SUBDEBUG, mp.SUBWARNING, mp.reducer is mp.reduction, mp.reduction.ForkingPickler.__name__)
    names = {}
    exec("from %s import *" % mp.__name__, names)
    print(all(name in names for name in ("Process", "Pool", "reducer", "TimeoutError")))
