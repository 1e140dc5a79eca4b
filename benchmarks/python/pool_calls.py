# pool_calls.py - `pool_calls.py LIB OPERATION`: one sample of a Python pool, as a JSON line. LIB: fiber, or a start method
# of multiprocessing; `floor` has five processes that only sleep, or only work.
#
#     naps:N:MS       N tasks of MS milliseconds, one a message, 5 workers; also of floor  {"seconds"}
#     tasks:HOW       5,000 tasks of 1 ms, 5 workers. HOW: default, chunk1, unordered     {"seconds"}
#     empty:HOW:N     N tasks that do nothing, 2 workers. HOW: also async                  {"tasks_per_s"}
#     apply:N         N calls one after the other, 5 workers                               {"p50_us", "p99_us"}
#     process:N       N processes one after the other, from start to joined                {"p50_ms"}
#     arrays:N        N tasks that answer their 1 MiB, one a message, 2 workers            {"mib_s"}
#     es:HOW:N        iterations of an evolution strategy with a policy of 1 MiB and N
#                     perturbations, 5 workers; the best of some chunk sizes for others.
#                     HOW: work, naps (workers with a core each); also of floor            {"seconds", "chunk"}
#     state:HOW       200 calls of an object with 1 MiB of state, 2 workers                {"seconds"}
#     start:N         N workers from nothing to a result of each                           {"seconds"}
#     memory:5        5 workers that have done something                                   {"pss_mib"}
#
# SPDX-License-Identifier: Apache-2.0
import array
import functools
import json
import os
import statistics
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


def answer(data):
    return bytes(data)


ES_FLOATS = 131072  # of 8 bytes: 1 MiB
ES_STEPS = 4000  # of an episode
ES_SECONDS = 0.0003  # that as many steps take
ES_CHUNKS = (1, 4, 16, 64)  # that are tried for others


def episode(policy, seed):
    """Follows a policy that is changed at the places of a seed; its reward."""
    at, total = seed % ES_FLOATS, 0.0
    for _ in range(ES_STEPS):
        at = (at * 1103515245 + 12345) % ES_FLOATS
        total += policy[at]
    return total


def nap_episode(policy, seed):
    """The same on a core of its own, whatever else runs."""
    time.sleep(ES_SECONDS)
    return policy[seed % ES_FLOATS]


EPISODES = {'work': episode, 'naps': nap_episode}


def episode_of_object(how, handle, seed):
    return EPISODES[how](handle.get(), seed)


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


def process(mp, n):
    took = []
    for _ in range(int(n)):
        begin = time.perf_counter()
        one = mp.Process(target=nothing, args=(1,))
        one.start()
        one.join()
        took.append((time.perf_counter() - begin) * 1000)
    return {'p50_ms': statistics.median(took)}


def naps(mp, n, ms):
    with mp.Pool(5) as pool:
        all_up(pool, 5)
        return {'seconds': timed(pool, 'chunk1', nap, [float(ms) / 1000] * int(n))}


def arrays(mp, n):
    items = [bytearray(1 << 20) for _ in range(int(n))]
    with mp.Pool(2) as pool:
        all_up(pool, 2)
        run(pool, 'chunk1', answer, items[:4])
        return {'mib_s': 2 * len(items) / timed(pool, 'chunk1', answer, items)}


def es(mp, how, n):
    """Each iteration has another policy: the last one, moved by what was learned."""
    policy, seeds, best = array.array('d', bytes(8 * ES_FLOATS)), list(range(int(n))), {}
    is_fiber = hasattr(mp, 'put')
    with mp.Pool(5) as pool:
        all_up(pool, 5)
        for chunk in (None,) if is_fiber else ES_CHUNKS:
            took = []
            for iteration in range(4):
                begin = time.perf_counter()
                function = (functools.partial(episode_of_object, how, mp.put(policy)) if is_fiber
                            else functools.partial(EPISODES[how], policy))
                rewards = pool.map(function, seeds, chunksize=chunk)
                policy[iteration] += sum(rewards) / len(rewards) + 1
                took.append(time.perf_counter() - begin)
            best[statistics.median(took[1:])] = chunk
    return {'seconds': min(best), 'chunk': best[min(best)]}


def share_of_es(how, seeds):
    policy = array.array('d', bytes(8 * ES_FLOATS))
    return sum(EPISODES[how](policy, seed) for seed in seeds)


def es_floor(how, n):
    """Five processes that have the policy and know their share: the work alone."""
    import multiprocessing
    shares, took = [range(first, int(n), 5) for first in range(5)], []
    with multiprocessing.get_context('fork').Pool(5) as pool:
        for _ in range(4):
            begin = time.perf_counter()
            pool.map(functools.partial(share_of_es, how), shares, chunksize=1)
            took.append(time.perf_counter() - begin)
    return {'seconds': statistics.median(took[1:])}


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


def floor(n, ms):
    """Five processes of this interpreter that share the sleeps, from a common start on."""
    line = 'import sys, time\nsys.stdin.readline()\nfor _ in range(%d): time.sleep(%r)' % (int(n) // 5, float(ms) / 1000)
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
    name, *rest = sys.argv[2].split(':')
    if sys.argv[1] == 'floor':
        print(json.dumps({'naps': floor, 'es': es_floor}[name](*rest)))
    else:
        print(json.dumps(globals()[name](load(sys.argv[1]), *rest)))
