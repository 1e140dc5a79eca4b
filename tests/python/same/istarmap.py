"""istarmap.py - a method that many programs add to the pool of multiprocessing, by its private names.

SPDX-License-Identifier: Apache-2.0
"""
import multiprocessing.pool as mpp

import multiprocessing as mp


def istarmap(self, func, iterable, chunksize=1):
    """imap() for functions of several arguments."""
    self._check_running()
    if chunksize < 1:
        raise ValueError("Chunksize must be 1+, not {0:n}".format(chunksize))
    task_batches = mpp.Pool._get_tasks(func, iterable, chunksize)
    result = mpp.IMapIterator(self)
    self._taskqueue.put((self._guarded_task_generation(result._job, mpp.starmapstar, task_batches), result._set_length))
    return (item for chunk in result for item in chunk)


mpp.Pool.istarmap = istarmap


def divide(a, b):
    return a / b


def pairs():
    yield 6, 3
    raise LookupError("no more pairs")


if __name__ == "__main__":
    mp.set_start_method("spawn")
    with mp.Pool(2) as pool:
        for size in 1, 7:
            print(list(pool.istarmap(divide, [(i, 2) for i in range(40)], size)))
        print(list(pool.istarmap(divide, [])))
        for source in [(1, 1), (1, 0), (2, 1)], pairs():
            results = pool.istarmap(divide, source)
            try:
                print(next(results))
                print(next(results))
            except (ZeroDivisionError, LookupError) as error:
                print(repr(error))
        last = pool.istarmap(divide, [(1, 4)] * 9)
        pool.close()
        print(list(last))
        pool.join()
