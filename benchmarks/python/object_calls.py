# object_calls.py - `object_calls.py LIB OPERATION`: one sample of what is not a pool, as a JSON line. LIB: fiber, or a start
# method of multiprocessing.
#
#     proxy:N           N calls of a manager's object                                      {"p50_us"}
#     made:N            N objects of a manager that are made, called once and dropped       {"p50_us"}
#     travels:N         N tasks of one worker, each of which gets an object and calls it    {"p50_us"}
#     environments:N    N steps of 4 environments in processes, each behind a Pipe         {"steps_per_s"}
#     queue:BYTES:N     N messages of a process to this one, by a Queue                    {"messages_per_s"}
#
# SPDX-License-Identifier: Apache-2.0
import json
import sys
import time

WARM_UP = 20
ENVIRONMENTS = 4


class Counter:
    def __init__(self):
        self.n = 0

    def step(self, action):
        self.n += action
        return self.n


def serve(connection):
    """An environment that takes no time: its observation is 84 x 84 bytes, as those of Atari's games are."""
    observation = bytes(84 * 84)
    while connection.recv() is not None:
        connection.send((observation, 1.0, False, {}))


def produce(queue, size, n):
    message = bytes(size)
    for _ in range(n):
        queue.put(message)


def load(lib):
    if lib == 'fiber':
        import fiber
        from fiber.managers import BaseManager
        return fiber, BaseManager
    import multiprocessing
    from multiprocessing.managers import BaseManager
    context = multiprocessing.get_context(lib)
    return context, lambda: BaseManager(ctx=context)


def counters(manager_of):
    """Returns a manager that has counters."""
    manager = manager_of()
    type(manager).register('Counter', Counter)
    manager.start()
    return manager


def p50(n, operation):
    """Does the operation n times."""
    took = []
    for _ in range(n + WARM_UP):
        began = time.perf_counter()
        operation()
        took.append((time.perf_counter() - began) * 1e6)
    took = sorted(took[WARM_UP:])
    return {'p50_us': took[len(took) // 2]}


def proxy(mp, manager_of, n):
    manager = counters(manager_of)
    counter = manager.Counter()
    got = p50(n, lambda: counter.step(1))
    manager.shutdown()
    return got


def made(mp, manager_of, n):
    manager = counters(manager_of)
    got = p50(n, lambda: manager.Counter().step(1))
    manager.shutdown()
    return got


def step(counter):
    return counter.step(1)


def travels(mp, manager_of, n):
    manager = counters(manager_of)
    counter = manager.Counter()
    with mp.Pool(1) as pool:
        got = p50(n, lambda: pool.apply(step, (counter,)))
    manager.shutdown()
    return got


def environments(mp, manager_of, n):
    pipes = [mp.Pipe() for _ in range(ENVIRONMENTS)]
    processes = [mp.Process(target=serve, args=(its,)) for _, its in pipes]
    for p, (_, its) in zip(processes, pipes):
        p.start()
        its.close()
    mine = [m for m, _ in pipes]

    def steps(count):
        for _ in range(count):
            for m in mine:
                m.send(1)
            for m in mine:
                m.recv()
    steps(WARM_UP)
    began = time.perf_counter()
    steps(n)
    seconds = time.perf_counter() - began
    for m in mine:
        m.send(None)
    for p in processes:
        p.join()
    return {'steps_per_s': n * ENVIRONMENTS / seconds}


def queue(mp, manager_of, size, n):
    q = mp.Queue()
    producer = mp.Process(target=produce, args=(q, size, n))
    producer.start()
    q.get()
    began = time.perf_counter()
    for _ in range(n - 1):
        q.get()
    seconds = time.perf_counter() - began
    producer.join()
    return {'messages_per_s': (n - 1) / seconds}


if __name__ == '__main__':
    name, *rest = sys.argv[2].split(':')
    print(json.dumps(globals()[name](*load(sys.argv[1]), *map(int, rest))))
