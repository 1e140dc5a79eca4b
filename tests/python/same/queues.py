"""queues.py - queues. Needs: queues

SPDX-License-Identifier: Apache-2.0
"""
import queue

import multiprocessing as mp

mp = mp.get_context("spawn")


def double(inbox, outbox):
    for x in iter(inbox.get, None):
        outbox.put(x * 2)


def work(q):
    while True:
        q.get()
        q.task_done()


def raises(fn, *args, **kwargs):
    try:
        print(fn(*args, **kwargs))
    except Exception as error:
        print(type(error).__name__, isinstance(error, (queue.Empty, queue.Full)))


if __name__ == "__main__":
    for kind in (mp.Queue, mp.SimpleQueue, mp.JoinableQueue):
        inbox, outbox = kind(), kind()
        p = mp.Process(target=double, args=(inbox, outbox))
        p.start()
        for x in range(20):
            inbox.put(x)
        print([outbox.get() for _ in range(20)])
        inbox.put(None)
        p.join()
        print(p.exitcode, outbox.empty())

    q = mp.Queue(2)
    q.put(1)
    q.put(2, timeout=60)
    raises(q.put_nowait, 3)
    raises(q.put, 3, True, 0.01)
    raises(q.put, 3, block=False)
    print(q.full(), q.get(), q.get(timeout=60))
    raises(q.get_nowait)
    raises(q.get, timeout=0.01)
    q.close()
    q.join_thread()
    raises(q.put, 1)
    raises(q.get)

    j = mp.JoinableQueue()
    p = mp.Process(target=work, args=(j,), daemon=True)
    p.start()
    for x in range(10):
        j.put(x)
    j.join()
    print("joined")
    raises(j.task_done)
    p.terminate()
    p.join()
