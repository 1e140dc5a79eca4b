"""owners.py - names and texts of processes, and of locks that others have. Needs: synchronize

SPDX-License-Identifier: Apache-2.0
"""
import os
import re
import threading

import multiprocessing as mp

mp = mp.get_context("spawn")


def take(lock, taken, end):
    with lock:
        taken.set()
        end.wait()


def tell(*locks):
    print(mp.current_process().name, locks)


def show(what, thing):
    print(what, re.sub(r"\b%d\b" % os.getpid(), "OURS", repr(thing)))


def in_thread(fn, *args):
    thread = threading.Thread(target=fn, args=args, name="a-thread")
    thread.start()
    return thread


if __name__ == "__main__":
    lock, rlock = mp.Lock(), mp.RLock()
    for thing in (lock, rlock, mp.Condition(rlock)):
        show("free", thing)
        with thing:
            show("ours", thing)
            in_thread(show, "a thread's view", thing).join()
        taken, end = threading.Event(), threading.Event()
        thread = in_thread(take, thing, taken, end)
        taken.wait()
        show("a thread has it", thing)
        end.set()
        thread.join()
        taken, end = mp.Event(), mp.Event()
        p = mp.Process(target=take, args=(thing, taken, end))
        p.start()
        its = "pid=%d " % p.pid  # before repr(), which waits a second for it
        print(p.name, re.sub("parent=[0-9]+", "parent=OURS", repr(p)).replace(its, "pid=ITS "))
        taken.wait()
        show("a process has it", thing)
        end.set()
        p.join()
    semaphore = mp.Semaphore(3)
    p = mp.Process(target=tell, args=(lock, rlock, semaphore))
    p.start()
    p.join()
    print(p.name, p.exitcode)
