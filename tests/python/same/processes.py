"""processes.py - processes: names, exit codes, arguments, subclasses, life and misuse.

SPDX-License-Identifier: Apache-2.0
"""
import os
import signal
import sys

import multiprocessing as mp

mp = mp.get_context("spawn")


def say(*args, **kwargs):
    me = mp.current_process()
    print(me.name, me.daemon, args, sorted(kwargs.items()))


def leave(how):
    sys.exit(how)


def leave_at_once(code):
    os._exit(code)


def die(sig):
    os.kill(os.getpid(), sig)


def fail(text):
    raise KeyError(text)


def returns_something():
    return 42


class Mine(mp.Process):
    def __init__(self, x, **options):
        super().__init__(**options)
        self.x = x

    def run(self):
        print(self.name, self.x, self is mp.current_process(), self.pid == os.getpid())


class Unpicklable:
    def __reduce__(self):
        raise ValueError("not me")


def finish(p):
    p.start()
    p.join()
    print(p.name, p.exitcode, p.is_alive(), p.daemon)


def raises(fn, *args):
    try:
        fn(*args)
    except Exception as error:
        print(type(error).__name__, error)
    else:
        print("nothing raised")


if __name__ == "__main__":
    print(mp.current_process().name, mp.parent_process(), mp.active_children())
    finish(mp.Process(target=say, args=(1, "two"), kwargs={"three": 3}))
    finish(mp.Process(target=say, name="with a name"))
    finish(mp.Process(target=say, daemon=True))
    finish(mp.Process())
    finish(mp.Process(target=returns_something))
    for how in (0, 1, 77, 255, None, "text", True, 2.5):
        finish(mp.Process(target=leave, args=(how,)))
    for code in (0, 5, 255):
        finish(mp.Process(target=leave_at_once, args=(code,)))
    for sig in (signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1):
        finish(mp.Process(target=die, args=(sig,)))
    finish(mp.Process(target=fail, args=("a key",)))
    finish(Mine(5))
    finish(Mine(6, name="mine", daemon=True))

    p = mp.Process(target=signal.pause)
    raises(p.join)
    raises(lambda: p.sentinel)
    print(p.pid, p.exitcode, p.is_alive(), repr(p).replace(str(os.getpid()), "PID"))
    p.start()
    raises(p.start)
    raises(p.close)
    print(p.exitcode, p.is_alive(), p in mp.active_children(), p.join(0), p.join(timeout=0.05), type(p.sentinel).__name__)
    p.kill()
    p.join()
    print(p.exitcode, mp.active_children())
    p.close()
    for fn in (p.join, p.is_alive, p.kill, p.start, lambda: p.exitcode, lambda: p.pid, lambda: p.sentinel):
        raises(fn)
    p.close()

    q = mp.Process(target=say)
    q.daemon = True
    q.name = "another"
    finish(q)
    raises(setattr, q, "daemon", False)
    raises(setattr, q, "name", 3)
    raises(mp.Process, 1)
    raises(mp.Process(target=say, args=(Unpicklable(),)).start)
    print([p.name for p in mp.active_children()])
