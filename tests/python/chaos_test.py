"""chaos_test.py - long runs: workers that are killed all the time, a million tasks, Ctrl-C at any moment.

CHAOS_SECONDS and CHAOS_SEED say how long and with which choices; the seed is printed.

SPDX-License-Identifier: Apache-2.0
"""
import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid

import pytest

import fiber as mp

LONG = 300
SECONDS = float(os.environ.get("CHAOS_SECONDS", "60"))
SEED = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(1 << 32))
WORKERS = 3
PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def choices():
    print("CHAOS_SEED=%d" % SEED)
    return random.Random(SEED)


# ---- Kills ----


def work(x):
    time.sleep(0.002)
    return x * x


class Killer(threading.Thread):
    """Kills a random worker every 200 ms; not before the tasks that the last one had are done: a task that is hit again
    and again when it comes back is rightly blamed."""

    def __init__(self, pool, choices):
        super().__init__()
        self.pool, self.choices, self.killed, self.ended = pool, choices, 0, False

    def run(self):
        done = 0
        while not self.ended:
            time.sleep(0.2)  # the pace of the kills, not a wait for anything
            now = self.pool.progress()[0]
            pids = [w["pid"] for w in self.pool.workers() if w["state"] == "busy" and w["pid"]]
            if not pids or now < done + 20 * WORKERS:
                continue
            try:
                os.kill(self.choices.choice(pids), signal.SIGKILL)
                self.killed, done = self.killed + 1, now
            except ProcessLookupError:
                pass


CALLS = [
    lambda pool, n: pool.map(work, range(n)),
    lambda pool, n: pool.map(work, range(n), chunksize=1),
    lambda pool, n: pool.starmap(pow, ((x, 2) for x in range(n)), chunksize=7),
    lambda pool, n: list(pool.imap(work, (x for x in range(n)))),
    lambda pool, n: sorted(pool.imap_unordered(work, range(n), chunksize=3)),
    lambda pool, n: [r.get(LONG) for r in [pool.apply_async(work, (x,)) for x in range(n)]],
]


@pytest.mark.parametrize("per_job", [1, 3])
def test_kills(choices, per_job):
    """Every result comes once, and is right, while a worker is killed every 200 ms."""
    with mp.Pool(WORKERS, work, (0,), workers_per_job=per_job, retries=-1) as pool:
        killer, rounds = Killer(pool, choices), 0
        killer.start()
        try:
            end = time.monotonic() + SECONDS / 2
            while time.monotonic() < end:
                n = choices.randrange(1, 400)
                call = choices.randrange(len(CALLS))
                assert CALLS[call](pool, n) == [x * x for x in range(n)], "call %d of %d" % (call, n)
                rounds += 1
        finally:
            killer.ended = True
            killer.join()
        stats = pool.stats()
        print(killer.killed, "kills", rounds, "rounds", stats)
        assert killer.killed > 0 and stats["deaths"] > 0
        assert stats["done"] == stats["submitted"]


# ---- A million tasks ----


def same(x):
    return x


def figures(_):
    """What a leak of one object, or one reference, in each task would let grow."""
    gc.collect()
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * PAGE
    return {"blocks": sys.getallocatedblocks(), "objects": len(gc.get_objects()), "None": sys.getrefcount(None),
            "True": sys.getrefcount(True), "function": sys.getrefcount(same), "resident": resident}


BOUNDS = {"blocks": 20000, "objects": 2000, "None": 5000, "True": 5000, "function": 1000, "resident": 12 << 20}
ROUND, ROUNDS = 20000, 17  # three kinds of calls each: 1,020,000 tasks


def three_kinds(pool):
    assert sum(pool.map(same, range(ROUND), chunksize=1)) == sum(range(ROUND))
    assert sum(pool.imap_unordered(same, range(ROUND))) == sum(range(ROUND))
    results = [pool.apply_async(same, (x,)) for x in range(ROUND)]
    assert sum(r.get(LONG) for r in results) == sum(range(ROUND))


def test_a_million_tasks_leave_nothing_behind():
    with mp.Pool(1) as pool:
        for _ in range(4):
            three_kinds(pool)
        before = [figures(0), pool.apply(figures, (0,))]
        tasks = pool.stats()["done"]
        for _ in range(ROUNDS):
            three_kinds(pool)
        after = [figures(0), pool.apply(figures, (0,))]
        assert pool.stats()["done"] - tasks >= 1000000
    for who, b, a in zip(("master", "worker"), before, after):
        grown = {key: a[key] - b[key] for key in b}
        print(who, grown)
        assert all(grown[key] <= BOUNDS[key] for key in grown), (who, grown)


# ---- Ctrl-C ----

STORM = """
    import fiber as mp
    import queue
    import signal
    import sys
    import time

    def square(x):
        time.sleep(0.001)
        return x * x

    def forever(x):
        time.sleep(600)

    def check(got, n):
        if got != [x * x for x in range(n)]:
            raise SystemExit("wrong: %r" % got)

    def new_pool(_):
        with mp.Pool(2) as pool:
            check(pool.map(square, range(20)), 20)

    def closed(_):
        pool = mp.Pool(1)
        results = pool.map_async(square, range(20))
        pool.close()
        pool.join()
        check(results.get(), 20)

    def get(_):
        q = mp.Queue()
        p = mp.Process(target=q.put, args=(3,))
        p.start()
        if q.get(timeout=60) != 3:
            raise SystemExit("wrong")
        p.join()
        try:
            q.get(timeout=0.05)
        except queue.Empty:
            pass

    STEPS = [
        lambda pool: check(pool.map(square, range(100)), 100),
        lambda pool: check(list(pool.imap(square, range(100))), 100),
        lambda pool: check(list(pool.imap(square, (x for x in range(100)))), 100),
        lambda pool: check([pool.apply(square, (x,)) for x in range(20)], 20),
        lambda pool: check([r.get() for r in [pool.apply_async(square, (x,)) for x in range(50)]], 50),
        lambda pool: pool.map(forever, range(4)) if interrupted else None,
        new_pool, closed, get,
    ]

    def steps(pool, end):
        global done, interrupted
        while time.monotonic() < end:
            for step in STEPS:
                try:
                    step(pool)
                    done += 1
                except KeyboardInterrupt:
                    interrupted += 1

    done = interrupted = 0
    if __name__ == "__main__":
        pool = mp.Pool(2)
        for step in STEPS:  # imports all: a KeyboardInterrupt in importlib can keep its lock for ever
            step(pool)
        end = time.monotonic() + float(sys.argv[1])
        print("begins", flush=True)
        while True:
            try:
                steps(pool, end)
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                break
            except KeyboardInterrupt:  # between two steps
                pass
        print("ends", flush=True)
        check(pool.map(square, range(100)), 100)
        pool.close()
        pool.join()
        print(done, interrupted)
"""


def alive(mark):
    """The processes whose environment has the mark."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as file:
                if mark.encode() in file.read():
                    found.append(int(pid))
        except OSError:  # it has ended
            pass
    return found


def wait_for_none(mark):
    end = time.monotonic() + 30
    while alive(mark) and time.monotonic() < end:
        time.sleep(0.05)  # between two looks
    return alive(mark)


def test_control_c_at_any_moment(tmp_path, choices):
    """No call hangs, a pool goes on, no process is left behind."""
    (tmp_path / "prog.py").write_text(textwrap.dedent(STORM))
    mark = uuid.uuid4().hex
    with subprocess.Popen([sys.executable, "prog.py", str(SECONDS / 2)], cwd=tmp_path,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "CHAOS_MARK": mark, "FIBER_GRACE": "1s"}) as child:
        watchdog = threading.Timer(LONG, child.kill)
        watchdog.start()
        assert child.stdout.readline() == "begins\n"
        ended = threading.Event()
        said = []
        reader = threading.Thread(target=lambda: (said.append(child.stdout.readline()), ended.set()))
        reader.start()
        while not ended.wait(choices.choice((0.01, 0.05, 0.2, 0.4)) * choices.random()):
            child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=LONG)
        watchdog.cancel()
        reader.join()
    print(out, err)
    assert said == ["ends\n"] and child.returncode == 0, err
    done, interrupted = map(int, out.split())
    assert done > 0 and interrupted > 0
    assert not wait_for_none(mark)


END = """
    import %s as mp
    import os, signal, threading, time

    def work(x):
        time.sleep(600)

    if __name__ == "__main__":
        pool = mp.get_context("spawn").Pool(2)
        pool.map(int, range(10))
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pool:
            pool.map(work, range(4))
"""


def test_the_exit_code_after_control_c_is_multiprocessings(program):
    mark = uuid.uuid4().hex
    ran = {name: program(END % name, env={"CHAOS_MARK": mark}) for name in ("multiprocessing", "fiber")}
    assert ran["fiber"].code == ran["multiprocessing"].code == -signal.SIGINT, ran
    assert ran["fiber"].err.rstrip().endswith("KeyboardInterrupt"), ran["fiber"]
    assert not wait_for_none(mark)
