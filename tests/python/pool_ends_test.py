"""pool_ends_test.py - Pool when things end: workers that are killed, interpreters that leave, Ctrl-C.

SPDX-License-Identifier: Apache-2.0
"""
import collections
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import pytest

import fiber as mp
from fiber._fiber import TryLock

LONG = 60
KILLS = 12  # 200 ms apart


def work(x):
    time.sleep(0.002)
    return x


class Killer(threading.Thread):
    """Kills a worker that works every 200 ms, so many times; not before the tasks that the last one had are done: a task
    that is hit again and again when it comes back is rightly blamed."""

    def __init__(self, pool):
        super().__init__()
        self.pool, self.killed, self.done = pool, 0, False

    def run(self):
        done = 0
        while self.killed < KILLS and not self.done:
            time.sleep(0.2)  # the pace of the kills, not a wait for anything
            now = self.pool.progress()[0]
            busy = [w["pid"] for w in self.pool.workers() if w["state"] == "busy" and w["pid"]]
            if busy and now >= done + 60:
                try:
                    os.kill(busy[self.killed % len(busy)], signal.SIGKILL)
                    self.killed, done = self.killed + 1, now
                except ProcessLookupError:
                    pass


def maps(pool):
    yield "map", lambda n: pool.map(work, range(n))
    yield "chunks of 1", lambda n: pool.map(work, range(n), chunksize=1)
    yield "imap", lambda n: list(pool.imap(work, range(n)))
    yield "unordered", lambda n: sorted(pool.imap_unordered(work, (x for x in range(n))))
    yield "apply", lambda n: [r.get(LONG) for r in [pool.apply_async(work, (x,)) for x in range(n)]]


@pytest.mark.parametrize("per_job", [1, 3])
def test_every_result_once_while_workers_are_killed(per_job):
    # The initializer imports this module, and pytest with it, which the first task of each worker would do.
    with mp.Pool(3, work, (0,), workers_per_job=per_job, retries=-1) as pool:
        killer, rounds = Killer(pool), 0
        killer.start()
        try:
            while killer.is_alive():
                for name, call in maps(pool):
                    assert call(300) == list(range(300)), name
                    rounds += 1
        finally:
            killer.done = True
            killer.join()
        assert killer.killed == KILLS and pool.stats()["deaths"] > 0
        assert pool.map(work, range(100)) == list(range(100))


PROGRAM = """
    import os, sys, threading, time
    import fiber as mp

    def wait(x):
        time.sleep(x)
        return x

    def pid(x):
        return os.getpid()
"""


def script(text):
    return textwrap.dedent(PROGRAM) + textwrap.dedent(text)


@pytest.mark.parametrize("how", [
    "pass", "p.close()", "r = p.map_async(wait, [600] * 8)", "it = p.imap(wait, (600 for _ in range(100)))",
    "r = p.apply_async(wait, (600,), callback=print); del p", "p.terminate(); p.join()", "sys.exit(0)",
    "threading.Thread(target=p.map, args=(wait, [600] * 4), daemon=True).start()",
])
def test_an_interpreter_leaves_with_a_pool(program, how):
    """It would wait for ten minutes for the end of the tasks, and program() does not."""
    ran = program(script("""
    if __name__ == "__main__":
        p = mp.Pool(2)
        print(*p.map(pid, range(4), chunksize=1), flush=True)
        %s
    """ % how))
    assert ran.code == 0, ran
    for worker in ran.out.split():
        assert not os.path.exists("/proc/%s" % worker)


@pytest.mark.parametrize("call", ["p.map(wait, [600] * 4)", "p.apply(wait, (600,))", "list(p.imap(wait, [600] * 4))",
                                  "list(p.imap(wait, (600 for _ in range(9))))", "p.map_async(wait, [600]).get(999)",
                                  "p.map_async(wait, [600], callback=print).wait()"])
def test_control_c_ends_a_call(tmp_path, call):
    path = tmp_path / "prog.py"
    path.write_text(script("""
    if __name__ == "__main__":
        p = mp.Pool(2)
        p.wait_until_workers_up()
        try:
            print("up", flush=True)
            %s
        except KeyboardInterrupt:
            print("interrupted", time.monotonic(), flush=True)
    """ % call))
    child = subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "up\n"
    at = time.monotonic() + 0.3  # it waits by then; sooner is as good
    while time.monotonic() < at:
        time.sleep(0.01)
    sent = time.monotonic()
    child.send_signal(signal.SIGINT)
    word, when = child.stdout.readline().split()
    assert word == "interrupted" and float(when) - sent < 60
    child.communicate(timeout=LONG)
    assert child.returncode == 0


@pytest.mark.parametrize("call", ["p.map(wait, [60] * 4, 1)", "for x in p.imap(wait, [60] * 4): pass",
                                  "for x in p.imap(wait, (60 for _ in range(4))): pass", "p.apply(wait, (60,))",
                                  "p.apply_async(wait, (60,)); p.close(); p.join()",
                                  "p.apply_async(wait, (60,), callback=print).wait()"])
@pytest.mark.parametrize("leave", ["sys.exit(3)", "pass"])
def test_a_signal_handler_terminates_the_pool(program, call, leave):
    ran = program(script("""
    import signal

    def terminate(*args):
        p.terminate()
        p.join()
        print("terminated")
        %s

    def send():
        while not p._taken:  # the call waits for results
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    if __name__ == "__main__":
        p = mp.Pool(2)
        signal.signal(signal.SIGTERM, terminate)
        threading.Thread(target=send).start()
        try:
            %s
        except mp.ProcessError:
            print("ended")
        p.join()
        sys.exit(4)
    """ % (leave, call)))
    ends = leave == "pass" and "join" not in call and "wait()" not in call
    assert ran.code == (4 if leave == "pass" else 3), ran
    assert ran.out == "terminated\n" + "ended\n" * ends, ran


@pytest.mark.parametrize("call", ["p.map(square, range(20))", "p.apply(square, (3,))", "list(p.imap(square, range(20)))",
                                  "p.apply_async(square, (3,)).get()"])
def test_a_signal_handler_calls_the_pool(program, call):
    """While it waits for results, in C, and while it unpickles one."""
    ran = program(script("""
    import signal

    class Signals:
        def __reduce__(self):
            return send, ()

    def send():
        os.kill(os.getpid(), signal.SIGTERM)

    def square(x):
        return x * x

    def signals(pid, handled):
        os.kill(pid, signal.SIGTERM)
        handled.get()
        return Signals()

    def handle(*args):
        print(%(call)s == expected)
        handled.put(None)

    if __name__ == "__main__":
        p = mp.Pool(2)
        handled = mp.SimpleQueue()
        expected = %(call)s
        signal.signal(signal.SIGTERM, handle)
        print(p.starmap(signals, [(os.getpid(), handled)]), p.apply(square, (2,)))
    """ % {"call": call}))
    assert (ran.code, ran.out) == (0, "True\nTrue\n[None] 4\n"), ran


def in_time(function):
    """Calls it in a thread of its own, and returns what it returned or raised."""
    ends = []

    def call():
        try:
            ends.append(function())
        except BaseException as exc:
            ends.append(exc)
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(LONG)
    assert not thread.is_alive()
    return ends[0]


def test_join_returns_when_another_thread_terminates_the_pool():
    def terminate():
        while not pool._taken:  # join() waits for results
            time.sleep(0.01)
        pool.terminate()

    pool = mp.Pool(2)
    result = pool.map_async(time.sleep, [600] * 4, 1)
    pool.close()
    threading.Thread(target=terminate).start()
    assert in_time(pool.join) is None
    with pytest.raises(mp.ProcessError):
        result.get(LONG)


def is_closed(pool):
    try:
        return not pool.stats()
    except ValueError:
        return True


class Pickled:
    """Calls a function when it is pickled."""

    def __init__(self, function):
        self.function = function

    def __reduce__(self):
        self.function()
        return int, (1,)


@pytest.mark.parametrize("put", [lambda p, x: p.apply_async(abs, (x,), callback=print),
                                 lambda p, x: p.map_async(abs, [x], callback=print)])
def test_join_returns_where_a_call_was_put_while_the_pool_was_terminated(put):
    def wait():
        begun.set()
        assert go.wait(LONG)

    pool, begun, go = mp.Pool(2), threading.Event(), threading.Event()
    thread = threading.Thread(target=in_time, args=(lambda: put(pool, Pickled(wait)),))
    thread.start()
    assert begun.wait(LONG)
    closer = threading.Thread(target=pool.terminate)
    closer.start()
    while not is_closed(pool):
        time.sleep(0.01)
    go.set()
    closer.join(LONG)
    thread.join(LONG)
    assert in_time(pool.join) is None


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("put", [lambda p: p.apply_async(abs, (Pickled(interrupt),), callback=print),
                                 lambda p: p.map_async(abs, [Pickled(interrupt)], callback=print)])
@pytest.mark.parametrize("warm", [False, True])
def test_join_returns_where_a_call_was_interrupted(put, warm):
    pool = mp.Pool(1)
    if warm:
        pool.apply(abs, (1,))
    with pytest.raises(KeyboardInterrupt):
        put(pool)
    pool.close()
    assert in_time(pool.join) is None


@pytest.mark.parametrize("call", [lambda p: p.apply_async(abs, (Pickled(interrupt),), callback=print),
                                  lambda p: p.map_async(abs, [Pickled(interrupt)], callback=print)])
def test_join_returns_where_a_call_was_interrupted_twice(call):
    pool = mp.Pool(1)
    give_up = pool._give_up

    def interrupted(result):
        pool._give_up = give_up
        raise KeyboardInterrupt
    pool._give_up = interrupted
    with pytest.raises(KeyboardInterrupt):
        call(pool)
    assert pool._give_up == give_up
    pool.close()
    assert in_time(pool.join) is None


def interrupt_and_sleep(pid):
    os.kill(pid, signal.SIGINT)
    time.sleep(600)


@pytest.mark.parametrize("call", [lambda p: p.map(interrupt_and_sleep, [os.getpid()]),
                                  lambda p: p.apply(interrupt_and_sleep, (os.getpid(),)),
                                  lambda p: next(p.imap(interrupt_and_sleep, [os.getpid()])),
                                  lambda p: next(p.imap(interrupt_and_sleep, iter([os.getpid()])))])
def test_a_second_interrupt_leaves_no_task_that_runs(call):
    """The first one cancels the tasks of the call; the second one comes before it could."""
    with mp.Pool(1) as pool:
        give_up = pool._give_up

        def interrupted(result):
            pool._give_up = give_up
            raise KeyboardInterrupt
        pool._give_up = interrupted
        with pytest.raises(KeyboardInterrupt):
            call(pool)
        assert pool._give_up == give_up
        assert in_time(lambda: pool.apply(abs, (-1,))) == 1


@pytest.mark.parametrize("call", [lambda p: p.map(interrupt_and_sleep, [os.getpid()]),
                                  lambda p: p.apply(interrupt_and_sleep, (os.getpid(),)),
                                  lambda p: next(p.imap(interrupt_and_sleep, [os.getpid()]))])
def test_a_second_interrupt_at_once_leaves_no_task_that_runs(call):
    """It comes where the interpreter looks for signals first once the call has caught the first one: at the beginning of a
    function of Python."""
    def interrupt_again(frame, event, arg):
        if event == "call" and sys.exc_info()[0] is KeyboardInterrupt and "__exit__" not in frame.f_code.co_name:
            sys.settrace(None)
            entered.append(frame.f_code.co_name)
            raise KeyboardInterrupt
    entered = []
    with mp.Pool(1) as pool:
        before = sys.gettrace()
        sys.settrace(interrupt_again)
        try:
            with pytest.raises(KeyboardInterrupt):
                call(pool)
        finally:
            sys.settrace(before)
        assert entered
        assert in_time(lambda: pool.apply(abs, (-1,))) == 1


def test_an_interrupt_while_a_call_puts_elements_of_another_one_ends_that_call_alone():
    with mp.Pool(1) as pool:
        pool._need = lambda *args: None  # no thread puts its elements
        other = pool.imap(abs, range(20000))
        more = other.more

        def interrupted():
            other.more = more
            raise KeyboardInterrupt
        other.more = interrupted
        with pytest.raises(KeyboardInterrupt):
            pool.map(abs, range(5000), chunksize=1)
        assert in_time(lambda: list(other)) == list(range(20000))
        assert pool.map(abs, [-1]) == [1]


INTERRUPTED = """
    import signal

    def sleeps(x):
        try:
            tell("begun")
            time.sleep(600)
        except KeyboardInterrupt:
            tell("interrupted")
            raise

    def computes(x):
        tell("begun")
        while True:
            pass

    def runs_on(x):
        while True:
            try:
                if x is not None:
                    x = None  # at first: the interrupt may come in what follows
                    tell("begun")
                time.sleep(600)
            except KeyboardInterrupt:
                pass

    def tell(word):
        with open(word, "a") as file:
            print(file=file)

    def lines(word):
        try:
            return len(open(word).readlines())
        except FileNotFoundError:
            return 0

    def interrupt():
        while lines("begun") < 2:
            time.sleep(0.01)  # between two looks
        os.kill(os.getpid(), signal.SIGINT)

    if __name__ == "__main__":
        p = mp.Pool(2, workers_per_job=int(sys.argv[1]))
        threading.Thread(target=interrupt).start()
        try:
            %s
        except KeyboardInterrupt:
            right, end = p.map(wait, [0] * 100, 1) == [0] * 100, time.monotonic() + 60
            said = None
            while said != sys.argv[2] and time.monotonic() < end:  # one worker may have done the map, the other be late
                time.sleep(0.01)
                said = "%s %d %d %d" % (right, lines("begun"), lines("interrupted"), p.stats()["deaths"])
            print(said)
"""


@pytest.mark.parametrize("call, said", [
    ("p.map(sleeps, range(8), 1)", "True 2 2 0"),
    ("p.map(computes, list(range(8)))", "True 2 0 0"),
    ("for x in p.imap(computes, range(8)): pass", "True 2 0 0"),
    ("list(p.imap_unordered(sleeps, (x for x in range(8))))", "True 2 2 0"),
    ("threading.Thread(target=p.apply_async, args=(wait, (0,))).start(); p.starmap(sleeps, [(1,), (2,)])", "True 2 2 0"),
    ("p.map(runs_on, range(8))", "True 2 0 2"),
])
@pytest.mark.parametrize("per_job", ["1", "2"])
def test_control_c_ends_the_tasks_of_a_call(program, call, said, per_job):
    grace = "300ms" if "runs_on" in call else "30s"  # a busy machine interrupts late
    ran = program(script(INTERRUPTED.replace("%s", call, 1)), per_job, said, env={"FIBER_GRACE": grace})
    assert ran.code == 0 and ran.out == said + "\n", ran


def test_a_signal_ends_a_map_whose_results_come_without_a_pause(program):
    ran = program(script("""
    import signal

    class Signalled(Exception):
        pass

    def refuse(*_):
        raise Signalled

    def task(x):
        with open("ran", "a") as ran:
            ran.write(".")
        if x == 0:
            os.kill(os.getppid(), signal.SIGUSR1)
        time.sleep(0.005)

    if __name__ == "__main__":
        signal.signal(signal.SIGUSR1, refuse)
        p = mp.Pool(2)
        try:
            p.map(task, range(4000), chunksize=1)
        except Signalled:
            print(os.path.getsize("ran") < 4000)
    """))
    assert ran.code == 0 and ran.out == "True\n", ran


class Alarm(Exception):
    """What a handler of a signal raises."""


class Interrupted:
    """A stream; when it has put something, a signal comes."""

    def __init__(self, stream):
        self.stream = stream

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def put(self, *args):
        self.stream.put(*args)
        raise Alarm

    def feed(self, *args):
        self.stream.feed(*args)
        raise Alarm


@pytest.mark.parametrize("call", [
    lambda p: p.apply(time.sleep, (600,)), lambda p: p.apply_async(time.sleep, (600,)),
    lambda p: p.map(time.sleep, [600] * 3), lambda p: p.map(time.sleep, [600] * 3, 1),
    lambda p: p.map_async(time.sleep, [600] * 3), lambda p: p.imap(time.sleep, [600] * 3),
])
def test_a_caller_gets_what_a_signal_handler_raises_while_inputs_are_put(call):
    with mp.Pool(1) as pool:
        stream = pool._stream
        pool._stream = lambda *args: Interrupted(stream(*args))

        assert isinstance(in_time(lambda: call(pool)), Alarm)


class InterruptedLater(Interrupted):
    """A signal comes when some inputs were put, and others are to be."""

    before = 9  # calls

    def feed(self, *args):
        error = self.stream.feed(*args)
        self.before -= 1
        if self.before == 0:
            raise Alarm
        return error


@pytest.mark.parametrize("name", ["map_async", "imap", "imap_unordered"])
def test_a_call_that_has_a_result_goes_on_after_a_signal_while_inputs_are_put(name):
    def again(get):
        try:
            return get()
        except Alarm as alarm:
            alarms.append(alarm)
            return get()

    with mp.Pool(1) as pool:
        stream, alarms = pool._stream, []
        pool._stream = lambda *args: InterruptedLater(stream(*args))
        pool._start_thread = lambda: None  # this thread puts all
        call = getattr(pool, name)(abs, range(-3000, 0))
        got = again(call.get) if name == "map_async" else [again(call.next) for _ in range(3000)]

    assert sorted(got) == list(range(1, 3001)) and len(alarms) == 1


def test_an_iteration_goes_on_after_a_signal_in_next():
    class Early(dict):
        def get(self, *args):
            return raise_once("get", super().get(*args))

        def pop(self, *args):
            return raise_once("pop", super().pop(*args))

    def raise_once(name, value):
        if value and name not in raised:
            raised.append(name)
            raise Alarm
        return value

    with mp.Pool(1) as pool:
        it, raised, got = pool.imap(abs, range(-100, 0)), [], []
        it._early = Early()
        while len(got) < 100:
            try:
                got.append(it.next(LONG))
            except Alarm:
                pass
    assert got == list(range(100, 0, -1)) and raised


alarms = 0  # that ring() is to send


def ring():
    global alarms
    if alarms:
        alarms -= 1
        signal.raise_signal(signal.SIGALRM)


class Rings:
    """A signal comes while it is pickled."""

    def __reduce__(self):
        ring()
        return int, ()


class RingsThere:
    """A signal comes while it is unpickled, in the process that expects one."""

    def __reduce__(self):
        return ring, ()


@pytest.fixture
def alarm():
    """The handler of the next alarm raises."""
    global alarms

    def tell(*_):
        raise Alarm
    before, alarms = signal.signal(signal.SIGALRM, tell), 1
    yield
    signal.signal(signal.SIGALRM, before)
    alarms = 0


@pytest.mark.parametrize("call", [
    lambda p: p.apply(abs, (Rings(),)), lambda p: p.apply_async(abs, (Rings(),)), lambda p: p.map_async(abs, [Rings()]),
    lambda p: p.map_async(abs, [Rings()], 1), lambda p: p.imap(abs, [Rings()]),
])
def test_a_caller_gets_what_a_signal_handler_raises_while_an_input_is_pickled(alarm, call):
    with mp.Pool(1) as pool:
        assert pool.apply(abs, (-1,)) == 1
        with pytest.raises(Alarm):
            call(pool)
        assert pool.map(abs, [-1, Rings()]) == [1, 0]


def test_a_signal_while_a_result_is_unpickled_is_not_the_error_of_its_task(alarm):
    with mp.Pool(1) as pool:
        first, second = pool.apply_async(RingsThere), pool.apply_async(time.sleep, (5,))
        with pytest.raises(Alarm):
            second.get()
        assert first.get(LONG) is None


def test_a_join_raises_what_a_signal_handler_raises_while_workers_start(interrupt):
    with mp.Pool(1, time.sleep, (600,)) as pool:
        pool.close()
        interrupt(pool.join, lambda: None, TimeoutError)


def test_a_signal_handler_terminates_a_pool_whose_workers_start(program):
    """The handler runs between two looks of join() at the workers."""
    ran = program(script("""
    import signal

    if __name__ == "__main__":
        p = mp.Pool(1, time.sleep, (600,))
        signal.signal(signal.SIGALRM, lambda *_: p.terminate())
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        p.close()
        p.join()
        print("joined")
    """), env={"MALLOC_PERTURB_": "165"})
    assert (ran.code, ran.out, ran.err) == (0, "joined\n", ""), ran


def test_an_executor_is_shut_down_by_the_callback_of_a_call():
    from fiber.futures import Executor
    e = Executor(1)
    first, *others = [e.submit(time.sleep, 0.1), *(e.submit(work, i) for i in range(100))]
    first.add_done_callback(lambda f: e.shutdown())
    assert [f.result(LONG) for f in others] == list(range(100))
    with pytest.raises(RuntimeError, match="after shutdown"):
        e.submit(work, 1)


def test_a_signal_handler_submits_a_call_while_another_one_is_submitted():
    from fiber.futures import Executor

    class Waiting(collections.deque):
        def append(self, call):
            ring()
            super().append(call)

    global alarms
    with Executor(1) as e:
        e._waiting, others, alarms = Waiting(), [], 1
        before = signal.signal(signal.SIGALRM, lambda *_: others.append(e.submit(work, 2)))
        assert e.submit(work, 1).result(LONG) == 1 and others[0].result(LONG) == 2
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("chunksize", [1, 3])
@pytest.mark.parametrize("kind", ["imap", "imap_unordered"])
def test_a_signal_handler_asks_the_lazy_map_that_the_program_waits_for(program, kind, chunksize):
    ran = program("""
        import os
        import signal

        import fiber as mp

        def tell(x):
            if x == 0:
                os.kill(os.getppid(), signal.SIGUSR1)
                event.wait(60)
            return x

        def keep(shared):
            global event
            event = shared

        def take(*_):
            event.set()
            got.append(next(results))

        if __name__ == "__main__":
            event, got = mp.Event(), []
            signal.signal(signal.SIGUSR1, take)
            with mp.Pool(2, keep, (event,)) as pool:
                results = pool.%s(tell, range(20), %d)
                for x in results:
                    got.append(x)
            print(sorted(got))
        """ % (kind, chunksize))
    assert (ran.code, ran.out) == (0, "%s\n" % list(range(20))), ran


def test_a_result_goes_when_its_callback_has_returned():
    """Although another call keeps the thread that has called the callback."""
    gone, release = threading.Event(), mp.Event()
    with mp.Pool(2) as pool:
        pool.apply_async(release.wait, (LONG,), callback=bool)
        pool.apply_async(set, callback=lambda result: weakref.finalize(result, gone.set))
        assert gone.wait(LONG / 2)
        release.set()


def test_calls_of_an_executor_without_workers_fail_together():
    from fiber.futures import Executor
    with Executor(1, initializer=int, initargs=("no number",)) as e:
        futures = [e.submit(work, i) for i in range(200)]
        assert len({f.exception(LONG) for f in futures}) < 5
        with pytest.raises(mp.ProcessError, match="could not be started"):  # another try
            e.submit(work, 1).result(LONG)


def test_a_lazy_map_ends_when_the_thread_of_its_source_cannot_go_on(monkeypatch):
    def run(*args):
        if threading.current_thread().name == "fiber-imap":
            raise MemoryError
        return run_of_pool(*args)

    with mp.Pool(1) as pool:
        run_of_pool = pool._run
        monkeypatch.setattr(pool, "_run", run)
        it = pool.imap(work, map(int, range(2000)))
        with pytest.raises(MemoryError):
            for _ in range(2000):
                it.next(LONG)


def test_the_thread_of_a_pool_goes_on_when_memory_was_short(monkeypatch):
    def run(*args):
        if threading.current_thread().name.startswith("fiber-pool") and not seen:
            raise MemoryError
        return run_of_pool(*args)

    seen, done = [], threading.Event()
    monkeypatch.setattr(threading, "excepthook", seen.append)
    with mp.Pool(1) as pool:
        run_of_pool = pool._run
        monkeypatch.setattr(pool, "_run", run)
        pool.apply_async(work, (3,), callback=lambda x: done.set())
        assert done.wait(LONG) and seen[0].exc_type is MemoryError  # this thread does not look after the pool


def leave_a_handler():
    def tell(*_):
        raise Alarm
    signal.signal(signal.SIGALRM, tell)
    return os.getpid()


def test_a_signal_between_two_tasks_is_no_error_of_the_next_one():
    with mp.Pool(1) as pool:
        os.kill(pool.apply(leave_a_handler), signal.SIGALRM)
        assert pool.apply(work, (1,)) == 1


def test_control_c_leaves_calls_alone_that_have_a_result(program):
    ran = program(script("""
    import signal
    import traceback

    def wait_for_go(x):
        while not os.path.exists("go"):
            time.sleep(0.01)
        return x

    def interrupt():
        main = threading.main_thread().ident
        while "get" not in [f.name for f in traceback.extract_stack(sys._current_frames()[main])]:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    if __name__ == "__main__":
        p = mp.Pool(1)
        r = p.map_async(wait_for_go, [1, 2])
        threading.Thread(target=interrupt).start()
        try:
            r.get()
        except KeyboardInterrupt:
            open("go", "w").close()
            print(r.get())
    """))
    assert ran.code == 0 and ran.out == "[1, 2]\n", ran


def test_a_program_is_a_script_a_module_and_a_command_line(program, python, tmp_path):
    text = script("""
    if __name__ == "__main__":
        with mp.Pool(2) as p:
            print(p.map(wait, [0.01, 0.02]))
    """)
    assert program(text, name="prog.py").out == "[0.01, 0.02]\n"
    assert python("-m", "prog").out == "[0.01, 0.02]\n"
    assert python("-c", "import fiber as mp\nwith mp.Pool(2) as p: print(p.map(abs, [-1, 2]))").out == "[1, 2]\n"


def test_output_of_workers(program):
    ran = program("""
    import fiber as mp

    def say(x):
        print("task", x)

    if __name__ == "__main__":
        with mp.Pool(1, print, ("begins",)) as p:
            p.map(say, [1, 2], chunksize=1)
            p.close()
            p.join()
    """)
    assert ran.code == 0 and ran.out.split("\n")[:-1] == ["begins", "task 1", "task 2"], ran


def test_a_worker_that_leaves_slowly_has_the_grace_period(program):
    """Its data link is gone long before it is, which is its end only if nobody asked it to leave."""
    ran = program(script("""
    import atexit

    def leave():
        time.sleep(3)  # ten heartbeats
        print("left", flush=True)

    def enter(x):
        atexit.register(leave)

    if __name__ == "__main__":
        with mp.Pool(1) as p:
            p.apply(enter, (0,))
            p.close()
            p.join()
    """), env={"FIBER_BACKEND": "command", "FIBER_COMMAND_START": "{command}", "FIBER_COMMAND_HOSTS": "here",
               "FIBER_BIND": "lo", "FIBER_HEARTBEAT": "300ms", "FIBER_HEARTBEAT_MISSES": "100", "FIBER_GRACE": "60s"})
    assert (ran.code, ran.out, ran.err) == (0, "left\n", ""), ran


def test_a_worker_ends_its_interpreter_before_it_destroys_objects_of_modules(program):
    """C++ modules that a task has loaded have thread_local and static objects, which Python's end still uses."""
    ran = program("""
    import atexit
    import fiber as mp

    def work():
        import ctypes
        libc = ctypes.CDLL(None)
        libc.strdup.restype = ctypes.c_void_p
        say = ctypes.cast(libc.perror, ctypes.c_void_p)
        libc.__cxa_atexit(say, ctypes.c_void_p(libc.strdup(b"static")), None)
        libc.__cxa_thread_atexit_impl(say, ctypes.c_void_p(libc.strdup(b"thread_local")), say)
        atexit.register(libc.perror, b"python")

    if __name__ == "__main__":
        with mp.Pool(1) as pool:
            pool.apply(work)
            pool.close()
            pool.join()
    """)
    assert [line.split(":")[0] for line in ran.err.splitlines()] == ["python", "thread_local", "static"], ran


def test_a_lock_that_was_tried_is_free_after_an_interrupt():
    """A lock that is taken and released by calls is not: Ctrl-C comes behind the one or before the other."""
    def interrupt(*_):
        raise KeyboardInterrupt

    lock, interrupts = threading.Lock(), 0
    before = signal.signal(signal.SIGALRM, interrupt)
    gc.disable()  # nobody would hear of an interrupt in a finalizer
    try:
        while interrupts < 3000:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.00002)
                while True:
                    with TryLock(lock) as taken:
                        assert taken
            except KeyboardInterrupt:
                interrupts += 1
                assert not lock.locked()
    finally:
        gc.enable()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with lock, TryLock(lock) as taken:
        assert not taken
    assert not lock.locked()


def test_a_pool_without_descriptors_says_so_soon(program):
    ran = program("""
        import fiber as mp
        import resource
        import time

        if __name__ == "__main__":
            resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
            pool, before = mp.Pool(2), time.monotonic()
            try:
                pool.map(abs, [1, 2])
            except mp.ProcessError as error:
                print("file descriptors" in str(error), time.monotonic() - before < 10)
    """)
    assert (ran.code, ran.out) == (0, "True True\n"), ran
