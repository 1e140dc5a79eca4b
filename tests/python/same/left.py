"""left.py - locks of processes that have ended, and a wait that a signal ends. Needs: managers

SPDX-License-Identifier: Apache-2.0
"""
import os
import signal

import multiprocessing as mp


def take(lock):
    print(lock.acquire())


def interrupt(condition, pid):
    with condition:
        os.kill(pid, signal.SIGINT)


def show(what, fn, *args, **kwargs):
    try:
        print(what, fn(*args, **kwargs))
    except Exception as error:
        print(what, type(error).__name__, str(error).splitlines()[-1:])


if __name__ == "__main__":
    mp.set_start_method("spawn")
    with mp.Manager() as manager:
        for lock in (manager.Lock(), manager.BoundedSemaphore(), manager.Semaphore(), mp.Lock(), mp.BoundedSemaphore(),
                     mp.Semaphore()):
            p = mp.Process(target=take, args=(lock,))
            p.start()
            p.join()
            show("release for it", lock.release)
            print(lock.acquire(), lock.acquire(False), lock.release())
        show("release", manager.Lock().release)
        show("release", manager.BoundedSemaphore().release)
        show("release", manager.RLock().release)
    for condition, times in ((mp.Condition(), 1), (mp.Condition(), 2), (mp.Condition(mp.Lock()), 1)):
        p = mp.Process(target=interrupt, args=(condition, os.getpid()))
        for _ in range(times):
            condition.acquire()
        p.start()
        try:
            condition.wait(60)
        except KeyboardInterrupt:
            print("interrupted")
        for _ in range(times):
            condition.release()
        show("release", condition.release)
        p.join()
        print(p.exitcode, condition.acquire(), condition.release())
