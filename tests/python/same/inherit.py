"""inherit.py - what the workers of a pool are given by their initializer: memory, locks, queues, events. Needs: pool

SPDX-License-Identifier: Apache-2.0
"""
import multiprocessing as mp

mp = mp.get_context("spawn")


def begin(*given):
    global counter, squares, lock, queue, event, raw, semaphore, proxy, pipe
    counter, squares, lock, queue, event, raw, semaphore, proxy, pipe = given


def work(i):
    with counter.get_lock():
        counter.value += 1
    with lock:
        squares[i] = i * i
    with semaphore:
        raw[i] = -i
    proxy[i] = i
    queue.put(i)
    pipe.send_bytes(b"%d" % i)
    return event.wait(60)


if __name__ == "__main__":
    manager = mp.Manager()
    counter, squares, raw = mp.Value("i", 0), mp.Array("d", 4), mp.RawArray("i", 4)
    queue, proxy, event = mp.Queue(), manager.dict(), mp.Event()
    receiver, sender = mp.Pipe(duplex=False)
    given = counter, squares, mp.Lock(), queue, event, raw, mp.Semaphore(2), proxy, sender
    with mp.Pool(2, initializer=begin, initargs=given) as pool:
        result = pool.map_async(work, range(4), chunksize=1)
        event.set()
        print(result.get(60), sorted(queue.get(timeout=60) for _ in range(4)))
        print(sorted(receiver.recv_bytes() for _ in range(4)))
    print(counter.value, squares[:], raw[:], sorted(proxy.items()))
    try:
        pool = mp.Pool(2)
        pool.map(abs, [counter])
    except RuntimeError as error:
        print(error)
    pool.terminate()
