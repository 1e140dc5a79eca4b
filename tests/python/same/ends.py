"""ends.py - the end of children and of the program: what runs, and in which order.

SPDX-License-Identifier: Apache-2.0
"""
import atexit
import signal
import sys
import threading
from multiprocessing import util

import multiprocessing as mp

mp = mp.get_context("spawn")


def with_a_thread():
    event = threading.Event()

    def work():
        event.wait()
        print("the thread ends")

    threading.Thread(target=work).start()
    util.Finalize(None, print, args=("finalizer 10",), exitpriority=10)
    util.Finalize(None, print, args=("finalizer 20",), exitpriority=20)
    print("main ends")
    if sys.version_info < (3, 13):
        util.Finalize(None, event.set, exitpriority=5)
    else:
        event.set()  # threads are joined before finalizers run


def in_pieces():
    for piece in ("one ", "line\n", "another\n"):
        sys.stdout.write(piece)


def exit_in_a_thread():
    t = threading.Thread(target=sys.exit, args=(3,))
    t.start()
    t.join()


def recurse():
    recurse()


def finish(target, **options):
    p = mp.Process(target=target, **options)
    p.start()
    p.join()
    print("->", p.exitcode)


if __name__ == "__main__":
    finish(with_a_thread)
    finish(in_pieces)
    finish(exit_in_a_thread)
    finish(recurse)
    atexit.register(print, "atexit of the program")
    daemon = mp.Process(target=signal.pause, daemon=True)
    daemon.start()
    last = mp.Process(target=print, args=("the last child",))
    last.start()
    print("the program ends", daemon.is_alive())
    last.join()
