"""locks.py - locks, semaphores, events, conditions and barriers. Needs: synchronize

SPDX-License-Identifier: Apache-2.0
"""
import threading

import multiprocessing as mp

mp = mp.get_context("spawn")


def take(lock, event):
    with lock:
        event.set()


def signal_all(condition, n):
    with condition:
        condition.notify_all()


def meet(barrier, i):
    barrier.wait(60)
    return i


def raises(fn, *args):
    try:
        print(fn(*args))
    except Exception as error:
        print(type(error).__name__)


if __name__ == "__main__":
    lock, event = mp.Lock(), mp.Event()
    with lock:
        p = mp.Process(target=take, args=(lock, event))
        p.start()
        print(event.wait(0.05), event.is_set())
    print(event.wait(60))
    p.join()
    print(lock.acquire(), lock.acquire(False), lock.acquire(timeout=0.01), lock.release())
    raises(lock.release)

    r = mp.RLock()
    print(r.acquire(), r.acquire(), r.release(), r.release())
    raises(r.release)

    s = mp.Semaphore(2)
    print(s.acquire(), s.acquire(), s.acquire(False), s.release(), s.acquire(timeout=60))
    b = mp.BoundedSemaphore(1)
    raises(b.release)

    with mp.Manager() as manager:
        for lock in (mp.Lock(), mp.RLock(), mp.BoundedSemaphore(), mp.Condition(), manager.Lock(), manager.RLock()):
            thread = threading.Thread(target=lock.acquire)
            thread.start()
            thread.join()
            print("a thread has taken it", lock.acquire(True, 0.2))
            raises(lock.release)
            print(lock.acquire(True, 0.2))

    condition = mp.Condition()
    with condition:
        p = mp.Process(target=signal_all, args=(condition, 1))
        p.start()
        print(condition.wait(60))
    p.join()
    with condition:
        print(condition.wait(0.01), condition.wait_for(lambda: 5, 1))
    try:
        condition.notify()
    except (AssertionError, RuntimeError):  # which of them, the documentation does not say
        print("the lock is not held")

    barrier = mp.Barrier(3)
    ps = [mp.Process(target=meet, args=(barrier, i)) for i in range(2)]
    for p in ps:
        p.start()
    print(barrier.wait(60) in range(3), barrier.parties, barrier.broken)
    for p in ps:
        p.join()
    print([p.exitcode for p in ps], event.clear(), event.is_set())
