"""prog.py - one program for all backends: each part uses some of the package, and prints one line: its name and what it saw.

    prog.py [PART...]        all parts, or these

backends_test.py runs it and knows what each part has to print.

SPDX-License-Identifier: Apache-2.0
"""
import os
import socket
import sys
import threading
import time
import traceback

import fiber as mp

LONG = 120  # seconds; what takes longer hangs
MIB = 1 << 20


def host():
    return os.uname().nodename


# ---- Processes ----


def give(queue, *args, **kwargs):
    queue.put((args, kwargs, host(), os.getpid()))


def end(how, code):
    {"exit": sys.exit, "os": os._exit}[how](code)


def fail():
    raise ValueError("raised in a process")


def ended(target, *args):
    p = mp.Process(target=target, args=args)
    p.start()
    p.join(LONG)
    return p.exitcode


def process():
    queue = mp.Queue()
    p = mp.Process(target=give, args=(queue, 1, "two"), kwargs={"three": 3.0}, name="a process")
    p.start()
    args, kwargs, there, pid = queue.get(timeout=LONG)
    p.join(LONG)
    print("process", args, kwargs, p.name, p.pid == pid, p.exitcode, "here" if there == host() else "elsewhere")


def codes():
    slow = mp.Process(target=time.sleep, args=(LONG,))
    slow.start()
    slow.terminate()
    slow.join(LONG)
    print("codes", ended(end, "exit", 7), ended(end, "os", 8), ended(fail), slow.exitcode)


# ---- Pools ----


def work(x):
    time.sleep(0.005)
    return x * x


def pool():
    """A worker is killed while it works."""
    with mp.Pool(2) as pool:
        result = pool.map_async(work, range(300), chunksize=1)
        while not pool.progress()[0]:
            result.wait(0.05)
        victim = next(w["name"] for w in pool.workers() if w["tasks"])
        pool.kill_worker(victim)
        right = result.get(LONG) == [x * x for x in range(300)]
        end = time.monotonic() + LONG
        while victim in [w["name"] for w in pool.workers()] and time.monotonic() < end:
            time.sleep(0.05)  # between two looks
        print("pool", right, victim not in [w["name"] for w in pool.workers()])


def choose(x):
    if x == 0:
        raise KeyError("raised in a task")
    if x == 1:
        sys.exit(5)
    return threading.Lock()


def of(call):
    try:
        return call()
    except Exception as error:
        return error


def exceptions():
    with mp.Pool(1) as pool:
        errors = [of(lambda: pool.apply(choose, (x,))) for x in range(3)]
        where = str(errors[0].__cause__)
        print("exceptions", *(type(e).__name__ for e in errors), errors[0], "in choose" in where, "SystemExit: 5" in str(errors[1]))


def say(x):
    print("printed by a worker:", x)
    print("written by a worker:", x, file=sys.stderr)


def output():
    with mp.Pool(1) as pool:
        pool.map(say, ["one", "two"])
        pool.close()
        pool.join()
    print("output")


def add(x, y):
    return x + y


def executor():
    from fiber.futures import Executor
    with Executor(1) as executor:
        print("executor", executor.submit(add, 1, 2).result(LONG), list(executor.map(add, [1, 2], [3, 4])))


@mp.meta(cpu=1, memory=300)
def limit(queue):
    """The smallest limit of memory that this process can see: its control group's."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as file:
                text = file.read().strip()
        except OSError:
            continue
        queue.put(None if text == "max" or int(text) > 1 << 50 else int(text) // MIB)
        return
    queue.put(None)


def meta():
    queue = mp.Queue()
    p = mp.Process(target=limit, args=(queue,))
    p.start()
    print("meta", queue.get(timeout=LONG), ended_of(p))


def ended_of(p):
    p.join(LONG)
    return p.exitcode


# ---- Messages ----


def fill(queue, n):
    for i in range(n):
        queue.put((i, "x" * i))


def queue():
    queue = mp.Queue()
    p = mp.Process(target=fill, args=(queue, 100))
    p.start()
    got = [queue.get(timeout=LONG) for _ in range(100)]
    print("queue", got == [(i, "x" * i) for i in range(100)], queue.empty(), ended_of(p))


def answer(connection):
    while True:
        try:
            connection.send(connection.recv() * 2)
        except EOFError:
            return


def pipe():
    ours, theirs = mp.Pipe()
    p = mp.Process(target=answer, args=(theirs,))
    p.start()
    theirs.close()
    answers = []
    for message in (1, "a", b"x" * MIB):
        ours.send(message)
        assert ours.poll(LONG)
        answers.append(ours.recv())
    ours.close()
    print("pipe", answers[:2], len(answers[2]), ended_of(p))


# ---- Managers and memory ----


def change(shared, lock, event):
    try:
        with lock:
            shared["seen"].append(host())
            shared["n"] = shared["n"] + 1
    except ConnectionError:  # seen once on Docker: is the address that refused it its own?
        print("refused at", socket.gethostbyname(host()), flush=True)
        raise
    finally:
        event.set()


def manager():
    with mp.Manager() as manager:
        shared, lock, event = manager.dict(n=0), mp.Lock(), mp.Event()
        shared["seen"] = manager.list()
        p = mp.Process(target=change, args=(shared, lock, event))
        p.start()
        done = event.wait(LONG)
        missing = of(lambda: shared["missing"])
        ended_of(p)
        print("manager", done, shared["n"], len(shared["seen"]), repr(missing))


class Counter:
    def __init__(self, start):
        self.value = start

    def add(self, n):
        self.value += n
        return self.value

    def where(self):
        return host()

    def refuse(self):
        raise ValueError("refused by the counter")


class Counters(mp.AsyncManager):
    pass


Counters.register("Counter", Counter)


def asynchronous():
    managers = [Counters() for _ in range(2)]
    for manager in managers:
        manager.start()
    counters = [manager.Counter(10 * i) for i, manager in enumerate(managers)]
    handles = [counter.add(n) for n in (1, 2) for counter in counters]
    refused = counters[0].refuse()
    print("asynchronous", [handle.get() for handle in handles], repr(of(refused.get)))
    for manager in managers:
        manager.shutdown()


def tell_length(queue, ref):
    queue.put(len(ref.get()))


def put():
    queue, ref = mp.Queue(), mp.put(list(range(1000)))
    p = mp.Process(target=tell_length, args=(queue, ref))
    p.start()
    print("put", queue.get(timeout=LONG), ended_of(p))


def increase(value):
    with value.get_lock():
        value.value += 1


def memory():
    """Memory of one host: what a process on another one says is on standard error."""
    value = mp.Value("i", 1)
    print("memory", ended(increase, value), value.value)


def built(queue):
    try:
        queue.put(bytes(mp.shared("table")))
    except FileNotFoundError as error:
        queue.put(type(error).__name__)
    queue.put(bytes(mp.shared("table", lambda: b"built there")))


def shared():
    queue = mp.Queue()
    here = bytes(mp.shared("table", lambda: b"built here"))
    p = mp.Process(target=built, args=(queue,))
    p.start()
    print("shared", here, queue.get(timeout=LONG), queue.get(timeout=LONG), ended_of(p))


# ---- Rings ----


def begin_rank(ring, queue):
    global sink
    sink = queue


def tell_rank(rank, size):
    sink.put((rank, size, os.environ["WORLD_SIZE"]))


def ring():
    queue = mp.Queue()
    ring = mp.Ring(2, tell_rank, begin_rank, (queue,), oversubscribe=True)
    ring.run()
    print("ring", sorted(queue.get(timeout=LONG) for _ in range(2)), ring.exitcode)


PARTS = (process, codes, pool, exceptions, output, executor, meta, queue, pipe, manager, asynchronous, put, memory, shared,
         ring)


def main(names):
    failed = 0
    for part in PARTS:
        if names and part.__name__ not in names:
            continue
        began = time.monotonic()
        try:
            part()
        except Exception:
            failed += 1
            print(part.__name__, "FAILED", flush=True)
            traceback.print_exc()
        print("    %s took %.1f s" % (part.__name__, time.monotonic() - began), file=sys.stderr, flush=True)
    print("all parts ran" if not failed else "%d parts failed" % failed)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
