# pool_calls.py - `pool_calls.py LIB OPERATION`: one sample of a Python pool, as a JSON line. LIB: fiber, or a start method
# of multiprocessing; `floor` has five processes that only sleep.
#
#     tasks:HOW       5,000 tasks of 1 ms, 5 workers. HOW: default, chunk1, unordered     {"seconds"}
#     empty:HOW:N     N tasks that do nothing, 2 workers. HOW: also async                  {"tasks_per_s"}
#     apply:N         N calls one after the other, 5 workers                               {"p50_us", "p99_us"}
#     state:HOW       200 calls of an object with 1 MiB of state, 2 workers                {"seconds"}
#     start:N         N workers from nothing to a result of each                           {"seconds"}
#     memory:5        5 workers that have done something                                   {"pss_mib"}
#
# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys
import time


def nothing(x):
    return x


def nap(seconds):
    time.sleep(seconds)


def nap_and_tell(seconds):
    time.sleep(seconds)
    return os.getpid()


class Sampler:
    def __init__(self):
        self.data = bytes(1 << 20)

    def __call__(self, x):
        return x


def load(lib):
    if lib == 'fiber':
        import fiber
        return fiber
    import multiprocessing
    return multiprocessing.get_context(lib)


def all_up(pool, n):
    """Until each worker has answered; its ids."""
    seen = set()
    while len(seen) < n:
        seen |= set(pool.map(nap_and_tell, [0.02 if n < 16 else 0.05] * n, chunksize=1))
    return seen


def run(pool, how, function, items):
    if how == 'unordered':
        for _ in pool.imap_unordered(function, items):
            pass
    elif how == 'async':
        results = [pool.apply_async(function, (x,)) for x in items]
        for r in results:
            r.get()
    else:
        pool.map(function, items, chunksize=1 if how == 'chunk1' else None)


def timed(pool, how, function, items):
    start = time.perf_counter()
    run(pool, how, function, items)
    return time.perf_counter() - start


def tasks(mp, how):
    with mp.Pool(5) as pool:
        all_up(pool, 5)
        return {'seconds': timed(pool, how, nap, [0.001] * 5000)}


def empty(mp, how, n):
    items = list(range(int(n)))
    with mp.Pool(2) as pool:
        all_up(pool, 2)
        run(pool, how, nothing, items[:1000])
        return {'tasks_per_s': len(items) / timed(pool, how, nothing, items)}


def apply(mp, n):
    took = []
    with mp.Pool(5) as pool:
        all_up(pool, 5)
        for i in range(int(n)):
            start = time.perf_counter()
            pool.apply(nothing, (i,))
            took.append((time.perf_counter() - start) * 1e6)
    took.sort()
    return {'p50_us': took[len(took) // 2], 'p99_us': took[len(took) * 99 // 100]}


def state(mp, how):
    sampler = Sampler()
    with mp.Pool(2) as pool:
        all_up(pool, 2)
        return {'seconds': timed(pool, how, sampler, list(range(200)))}


def start(mp, n):
    begin = time.perf_counter()
    with mp.Pool(int(n)) as pool:
        all_up(pool, int(n))
        return {'seconds': time.perf_counter() - begin}


def pss_mib(pid):
    with open('/proc/%d/smaps_rollup' % pid) as f:
        return sum(int(line.split()[1]) for line in f if line.startswith('Pss:')) / 1024


def memory(mp, n):
    with mp.Pool(int(n)) as pool:
        return {'pss_mib': sum(map(pss_mib, all_up(pool, int(n)))) / int(n)}


def floor():
    """Five processes of this interpreter that sleep 1,000 times each, from a common start on."""
    line = 'import sys, time\nsys.stdin.readline()\nfor _ in range(1000): time.sleep(0.001)'
    sleepers = [subprocess.Popen([sys.executable, '-c', 'print(flush=True)\n' + line], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE) for _ in range(5)]
    for s in sleepers:
        s.stdout.readline()
    begin = time.perf_counter()
    for s in sleepers:
        s.stdin.write(b'\n')
        s.stdin.flush()
    for s in sleepers:
        s.wait()
    return {'seconds': time.perf_counter() - begin}


if __name__ == '__main__':
    if sys.argv[1] == 'floor':
        print(json.dumps(floor()))
    else:
        name, *rest = sys.argv[2].split(':')
        print(json.dumps(globals()[name](load(sys.argv[1]), *rest)))
