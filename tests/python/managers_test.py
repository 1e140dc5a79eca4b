"""managers_test.py - fiber's managers, by the documentation of multiprocessing.managers, and AsyncManager.

SPDX-License-Identifier: Apache-2.0
"""
import gc
import os
import queue
import select
import signal
import sys
import threading
import time

import pytest
from conftest import well

import fiber as mp
from fiber import managers
from fiber.connection import Client, Listener
from fiber.managers import AsyncManager, BaseManager, SyncManager

LONG = 60


@pytest.fixture
def manager():
    with mp.Manager() as m:
        yield m


# ---- Types ----


def change(d, items, n, lock):
    d[os.getpid()] = "here"
    d["nested"].append(1)
    items.reverse()
    n.seen = True
    for _ in range(20):
        with lock:
            n.count += 1


def test_children_change_objects(manager, start):
    d, items, n, lock = manager.dict(), manager.list(range(5)), manager.Namespace(count=0), manager.Lock()
    d["nested"] = manager.list()
    children = [start(change, d, items, n, lock) for _ in range(3)]
    assert all(well(c) for c in children)
    assert {c.pid for c in children} < set(d.keys())
    assert list(d["nested"]) == [1, 1, 1]
    assert list(items) == [4, 3, 2, 1, 0]
    assert n.seen and n.count == 60


def test_the_types_of_a_sync_manager(manager):
    value, array = manager.Value("i", 7), manager.Array("d", [1.5, 2.5])
    value.value += 1
    array[0] = 9
    assert value.value == 8 and list(array) == [9, 2.5]
    q, joinable = manager.Queue(1), manager.JoinableQueue()
    q.put(1)
    with pytest.raises(queue.Full):
        q.put(2, block=False)
    assert q.get() == 1
    with pytest.raises(queue.Empty):
        q.get_nowait()
    joinable.put(1)
    joinable.get()
    joinable.task_done()
    joinable.join()
    event = manager.Event()
    assert not event.wait(0.01)
    event.set()
    assert event.wait() and event.is_set()
    barrier = manager.Barrier(1)
    assert (barrier.wait(), barrier.parties, barrier.n_waiting, barrier.broken) == (0, 1, 0, False)


def test_proxies_look_like_their_objects(manager):
    items = manager.list([1, 2])
    assert str(items) == "[1, 2]" and repr(items).startswith("<ListProxy object")
    assert items._getvalue() == [1, 2]
    assert items + [3] == [1, 2, 3] and len(items) == 2 and 2 in items
    d = manager.dict(a=1)
    assert sorted(d.items()) == [("a", 1)] and d.pop("a") == 1 and not d.copy()
    assert "address" not in repr(manager.address) or bytes(manager.address).hex() not in repr(manager.address)


def test_nested_proxies(manager):
    outer = manager.list()
    inner = manager.list([1])
    outer.append(inner)
    inner.append(2)
    assert list(outer[0]) == [1, 2]
    outer[0].append(3)
    assert list(inner) == [1, 2, 3]


def test_exceptions_come_across(manager):
    with pytest.raises(KeyError, match="nope"):
        manager.dict()["nope"]
    with pytest.raises(IndexError):
        manager.list()[0]


class Strict(Exception):
    """It is unpickled with one argument, which fails."""

    def __init__(self, reason, place):
        super().__init__(reason)


class Engine:

    def stall(self):
        raise ValueError("no fuel")

    def break_down(self):
        raise Strict("no oil", "here")

    def leave(self, how):
        raise how


class Engines(BaseManager):
    pass


Engines.register("Engine", Engine)
Engines.register("Exit", sys.exit)


def test_an_exception_tells_where_in_the_manager_it_was_raised():
    with Engines() as engines:
        engine = engines.Engine()
        with pytest.raises(ValueError, match="no fuel") as caught:
            engine.stall()
        assert "in stall" in str(caught.value.__cause__)
        with pytest.raises(managers.RemoteError, match="in break_down"):
            engine.break_down()
        with pytest.raises(EOFError, match="or has closed the connection"):
            engines.Exit()


@pytest.mark.parametrize("how", [SystemExit(0), SystemExit("no more"), KeyboardInterrupt()])
def test_a_method_that_leaves_the_interpreter_is_an_error_of_its_call(how):
    with Engines() as engines:
        engine = engines.Engine()
        with pytest.raises(RuntimeError, match="a method raised %s: %s" % (type(how).__name__, how)) as caught:
            engine.leave(how)
        assert "in leave" in str(caught.value.__cause__)
        with pytest.raises(ValueError, match="no fuel"):
            engine.stall()


def test_locks_of_a_manager_have_the_rules_of_threading(manager):
    lock, rlock = manager.Lock(), manager.RLock()
    assert lock.acquire() and not lock.acquire(False) and not lock.acquire(True, 0.01)
    lock.release()
    with pytest.raises(RuntimeError):
        lock.release()
    with rlock, rlock:
        pass
    with pytest.raises(RuntimeError):
        rlock.release()
    bounded = manager.BoundedSemaphore(1)
    with bounded:
        assert not bounded.acquire(False)
    with pytest.raises(ValueError):
        bounded.release()
    semaphore = manager.Semaphore(0)
    semaphore.release()
    assert semaphore.acquire()


def test_arguments_that_cannot_be_pickled_give_no_lock_back(manager):
    locks, d = (manager.Lock(), manager.BoundedSemaphore(1)), manager.dict()
    assert all(lock.acquire() for lock in locks)
    with pytest.raises(TypeError):
        d["x"] = threading.Lock()
    d.clear()
    assert not any(lock.acquire(True, 0.5) for lock in locks)


def test_calls_go_over_a_connection_of_multiprocessing():
    with SyncManager(address=("127.0.0.1", 0), authkey=b"key", serializer="fiber") as m:
        items = m.list([1])
        items.append(2)
        assert items[:] == [1, 2]


def test_a_call_that_is_too_long_gives_no_lock_back(program):
    ran = program("""
        import fiber as mp

        def refused(call, *args):
            try:
                return not call(*args)
            except ValueError as error:
                return "too long" in str(error)

        if __name__ == "__main__":
            with mp.Manager() as manager:
                lock, d = manager.Lock(), manager.dict()
                lock.acquire()
                print(refused(d.update, {"x": bytes(2 << 20)}), refused(manager.list, [bytes(2 << 20)]))
                print(d.copy(), manager.list([1])[:], lock.acquire(True, 0.5))
                lock.release()
        """, env={"FIBER_MAX_MESSAGE": "1Mi"})
    assert ran.code == 0 and ran.out == "True True\n{} [1] False\n" and not ran.err, ran


def notify(condition, state):
    with condition:
        state["ready"] = True
        condition.notify()


@pytest.mark.parametrize("kind", [None, "Lock", "RLock"])
def test_a_condition(manager, start, kind):
    lock = getattr(manager, kind)() if kind else None
    condition, state = manager.Condition(lock) if lock else manager.Condition(), manager.dict(ready=False)
    with condition:
        child = start(notify, condition, state)
        assert condition.wait_for(lambda: state["ready"], LONG)
        assert not condition.wait(0.01)
    assert well(child)


# ---- BaseManager ----


class Counter:
    def __init__(self, value=0):
        self.value = value

    def add(self, n=1):
        self.value += n
        return self.value

    def _hidden(self):
        return "hidden"

    def numbers(self):
        return iter(range(self.value))

    def fail(self):
        raise ZeroDivisionError("on purpose")

    def pid(self):
        return os.getpid()


class MyManager(BaseManager):
    pass


MyManager.register("Counter", Counter)
MyManager.register("Hidden", Counter, exposed=("_hidden", "add"))
MyManager.register("Numbers", Counter, method_to_typeid={"numbers": "Iterator"})
MyManager.register("Iterator", proxytype=mp.managers.IteratorProxy, create_method=False)


def count_up(counter, times):
    for _ in range(times):
        counter.add()


def test_registered_types(start):
    with MyManager() as m:
        counter = m.Counter(value=5)
        assert counter.add() == 6
        children = [start(count_up, counter, 10) for _ in range(2)]
        assert all(well(c) for c in children)
        assert counter.add(0) == 26
        assert not hasattr(counter, "_hidden")
        assert m.Hidden()._hidden() == "hidden"
        assert list(m.Numbers(3).numbers()) == [0, 1, 2]
        with pytest.raises(ZeroDivisionError, match="on purpose"):
            counter.fail()
        assert counter.pid() not in (os.getpid(), *(c.pid for c in children))
    with pytest.raises(Exception):
        counter.add()


def note(path):
    with open(path, "w") as f:
        f.write(str(os.getpid()))


def test_start_and_shutdown(tmp_path):
    m = SyncManager()
    assert m.address is None
    m.start(note, (str(tmp_path / "pid"),))
    pid = int((tmp_path / "pid").read_text())
    assert pid == m._process.pid
    with pytest.raises(mp.ProcessError):
        m.start()
    m.shutdown()
    m.shutdown()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(mp.ProcessError):
        m.start()
    with pytest.raises(TypeError):
        SyncManager().start(5)


def connect(address, counter):
    m = MyManager(address=address)
    m.connect()
    counter.put(m.Counter(3).add())


def test_connect_by_the_address(start):
    answer = mp.Queue()
    with MyManager() as m:
        assert well(start(connect, m.address, answer))
        assert answer.get(timeout=LONG) == 4
        stranger = MyManager(address=m.address, authkey=b"wrong")
        with pytest.raises(mp.AuthenticationError):
            stranger.connect()


def test_an_address_of_sockets_is_open_to_others():
    import multiprocessing.managers as mpm

    class Other(mpm.BaseManager):
        pass

    Other.register("Counter")
    with MyManager(address=("127.0.0.1", 0), authkey=b"key") as m:
        other = Other(address=m.address, authkey=b"key")
        other.connect()
        assert other.Counter().add(2) == 2


def fail():
    raise OSError("no start")


def test_a_manager_that_cannot_start(capfd):
    with pytest.raises(EOFError, match="exit code 1"):
        SyncManager().start(fail)
    for child in mp.active_children():
        child.join()
    assert "no start" in capfd.readouterr().err


def interrupt_and_sleep(pid):
    os.kill(pid, signal.SIGINT)
    signal.pause()


def test_a_start_that_is_interrupted_leaves_no_process():
    m = SyncManager()
    with pytest.raises(KeyboardInterrupt):
        m.start(interrupt_and_sleep, (os.getpid(),))
    try:
        m._process.join(LONG)
        assert m._process.exitcode == -signal.SIGTERM
    finally:
        m._process.kill()


def test_a_shutdown_that_is_interrupted_leaves_no_process(monkeypatch):
    m = SyncManager()
    m.start()

    def interrupted():
        monkeypatch.undo()
        raise KeyboardInterrupt
    monkeypatch.setattr(m._process, "is_alive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        m.shutdown()
    try:
        m._process.join(LONG)
        assert m._process.exitcode == -signal.SIGTERM
    finally:
        m._process.kill()


def test_a_program_ends_whose_manager_was_not_shut_down(program):
    """As after an interrupt between the end of the finalizer and the begin of what it calls."""
    ran = program("""
        import fiber

        if __name__ == "__main__":
            manager = fiber.Manager()
            manager.shutdown.cancel()
            print(len(fiber.active_children()))
    """)
    assert (ran.code, ran.out) == (0, "1\n"), ran


def make_list(sink):
    m = mp.Manager()
    sink.put(list(m.list([1, 2])))


def test_a_child_may_have_managers(start):
    sink = mp.Queue()
    assert well(start(make_list, sink))
    assert sink.get(timeout=LONG) == [1, 2]


def test_threads_have_connections_of_their_own(manager):
    event, seen = manager.Event(), manager.list()

    def wait():
        event.wait()
        seen.append(1)

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for t in threads:
        t.start()
    assert not event.is_set()  # answered while the others wait
    event.set()
    for t in threads:
        t.join(LONG)
    assert len(seen) == 4


class Calling:
    def __init__(self, items):
        self.items = items

    def __reduce__(self):
        self.items._manager.list()  # a new connection, which is not an end that the child holds
        return list, ()


def nothing(*_):
    pass


def test_a_pickle_may_call_a_manager(manager, start):
    assert well(start(nothing, Calling(manager.list())))


# ---- Connections ----


@pytest.fixture
def connections(monkeypatch):
    """The connections that this process makes to managers."""
    made = []

    def connect(*to):
        made.append(Client(*to))
        return made[-1]
    monkeypatch.setattr(managers, "Client", connect)
    return made


def test_a_connection_is_kept_for_the_next_request(manager, connections):
    for i in range(20):
        items = manager.list([i])
        items.append(i)
        assert items[:] == [i, i]
        del items
    assert len(connections) < 20


def test_a_connection_that_the_manager_kept_no_longer(manager, connections):
    manager.list()
    assert connections[-1].poll(LONG)  # its end
    made = len(connections)
    assert manager.list([1])[:] == [1]
    assert len(connections) > made


def acquire_and_leave_a_cycle(lock):
    lock.acquire()
    local = lock._tls.__dict__
    local["itself"] = local


def test_the_connection_of_a_thread_that_has_ended_ends_with_what_it_has_taken(manager):
    lock, before = manager.Lock(), managers._of_ended.copy()
    thread = threading.Thread(target=acquire_and_leave_a_cycle, args=(lock,))
    thread.start()
    thread.join()
    gc.collect()
    conn, = managers._of_ended - before
    assert not conn.poll(0.2)
    lock.release()
    assert conn.poll(LONG)  # its end


def test_a_thread_ends_while_the_manager_of_one_that_has_ended_is_stopped(program):
    ran = program("""
        import os, signal, threading
        import fiber as mp

        def call(function):
            thread = threading.Thread(target=function, daemon=True)
            thread.start()
            thread.join(30)
            return not thread.is_alive()

        if __name__ == "__main__":
            stopped, other = mp.Manager(), mp.Manager()
            lock, d = stopped.Lock(), other.dict()
            assert call(lock.acquire)
            os.kill(stopped._process.pid, signal.SIGSTOP)
            print(call(d.clear))
            os.kill(stopped._process.pid, signal.SIGCONT)
        """, env={"FIBER_TRANSPORT": "tcp", "FIBER_HEARTBEAT": "60s"})
    assert ran.out == "True\n", ran


def test_a_connection_that_was_kept_to_a_dead_manager():
    m = mp.Manager()
    m.list()
    m._process.kill()
    m._process.join(LONG)
    with pytest.raises(ConnectionRefusedError):
        m.list()
    m.shutdown()


class ShortManager(SyncManager):
    """Can be told to be short of threads."""


def lose_a_thread():
    start = threading.Thread.start

    def fail(_thread):
        threading.Thread.start = start
        raise RuntimeError("can't start new thread")
    threading.Thread.start = fail
    return []


ShortManager.register("lose_a_thread", lose_a_thread)


def test_a_manager_that_gets_no_thread_for_a_connection_closes_it_and_serves_the_next():
    m, outcome = ShortManager(), queue.Queue()

    def connect():
        try:
            Client(m.address, authkey=mp.current_process().authkey).close()
            outcome.put("connected")
        except EOFError:
            outcome.put("closed")
    m.start()
    m.lose_a_thread()
    for want in "closed", "connected":
        threading.Thread(target=connect, daemon=True).start()
        assert outcome.get(timeout=30) == want
    m.shutdown()


def test_a_connection_is_kept_for_the_right_key_alone(manager):
    manager.list()
    other = SyncManager(address=manager.address, authkey=b"another")
    with pytest.raises(mp.AuthenticationError):
        other.connect()


def take(lock):
    return lock.acquire(True, LONG)


def test_a_lock_is_free_when_its_last_proxy_is_dropped(manager):
    lock = manager.Lock()
    with mp.Pool(1) as pool:
        for _ in range(3):
            assert pool.apply(take, (lock,))


# ---- Deaths ----


def hold(lock, up):
    lock.acquire()
    up.put(os.getpid())
    signal.pause()


@pytest.mark.parametrize("kind", ["Lock", "RLock", "BoundedSemaphore", "Condition"])
def test_what_a_dead_process_had_is_free(manager, start, kind):
    thing, up = getattr(manager, kind)(), mp.Queue()
    child = start(hold, thing, up)
    up.get(timeout=LONG)
    assert not thing.acquire(True, 0.05)
    child.kill()
    assert thing.acquire(True, LONG)
    thing.release()


def wait_for_notice(condition, up):
    with condition:
        up.put(1)
        condition.wait()
    up.put(2)


def test_a_notice_for_the_dead_goes_to_the_next(manager, start):
    condition, up = manager.Condition(), mp.Queue()
    first = start(wait_for_notice, condition, up)
    assert up.get(timeout=LONG) == 1
    second = start(wait_for_notice, condition, up)
    assert up.get(timeout=LONG) == 1
    with condition:  # both wait
        first.kill()
        first.join(LONG)
    with condition:
        condition.notify()
    assert up.get(timeout=LONG) == 2
    assert well(second)


def test_a_notice_that_was_on_its_way_to_the_dead_goes_to_the_next(manager, start):
    condition, up = manager.Condition(), mp.Queue()
    first = start(wait_for_notice, condition, up)
    assert up.get(timeout=LONG) == 1
    second = start(wait_for_notice, condition, up)
    assert up.get(timeout=LONG) == 1
    with condition:  # both wait, the first one longer
        os.kill(first.pid, signal.SIGSTOP)
        condition.notify()
    while condition.acquire(False):  # until the first one has it
        condition.release()
    first.kill()
    assert up.get(timeout=LONG) == 2
    assert well(second)


def test_the_death_of_the_manager_is_the_end_of_file():
    m = mp.Manager()
    items, event = m.list(), m.Event()
    threading.Timer(0.2, m._process.kill).start()
    begin = time.monotonic()
    with pytest.raises(EOFError, match="killed by signal 9"):
        event.wait()
    assert time.monotonic() - begin < 30
    with pytest.raises((EOFError, OSError)):
        items.append(1)
    m.shutdown()


def listen_and_accept_nobody(sink):
    listener = Listener()
    sink.put(listener.address)
    signal.pause()


def test_a_listener_that_dies_before_it_accepts(start):
    sink = mp.Queue()
    child = start(listen_and_accept_nobody, sink)
    address = sink.get(timeout=LONG)
    threading.Timer(0.2, child.kill).start()
    with pytest.raises((EOFError, OSError)):
        Client(address, authkey=b"key")


def test_no_process_is_left(program):
    ran = program("""
        import os, signal
        import fiber

        def main():
            m = fiber.Manager()
            print(m._process.pid, flush=True)
            with fiber.Lock():
                os.kill(os.getpid(), signal.SIGKILL)

        if __name__ == "__main__":
            main()
    """)
    try:
        fd = os.pidfd_open(int(ran.out))
    except ProcessLookupError:
        return
    assert select.select([fd], [], [], LONG)[0], "the manager outlived its program"
    os.close(fd)


def test_a_get_that_a_signal_ends_loses_no_item(manager, interrupt):
    q = manager.Queue()

    interrupt(q.get, lambda: q.put(1))
    q.put(2)

    assert [q.get(timeout=LONG), q.get(timeout=LONG)] == [1, 2]


def test_a_signal_ends_the_begin_of_a_call(manager, monkeypatch):
    """As while a manager is frozen, and a connection to it was kept."""
    def time_out(*_):
        raise TimeoutError
    manager.dict()
    with monkeypatch.context() as patch:
        patch.setattr(managers, "answer_challenge", time_out)
        with pytest.raises(TimeoutError):
            manager.list()
    assert manager.list([1])[0] == 1


def test_an_error_of_a_handler_after_a_call_was_sent_gives_the_next_call_no_answer_of_it(manager):
    items = manager.list([1])
    items.append(2)  # which connects
    conn, = items._tls.connection._free

    class Interrupted:
        handle = conn._handle

        def send(self, data):
            conn._handle = self.handle
            conn._handle.send(data)
            raise ValueError("as the handler of a signal does")
    conn._handle = Interrupted()
    with pytest.raises(ValueError):
        items.pop()
    assert items.count(1) == 1


def test_calls_work_after_one_that_a_signal_has_ended(manager):
    """It waits in the server for ever."""
    class Told(Exception):
        pass

    def tell(*_):
        raise Told
    items, empty = manager.dict(a=1), manager.JoinableQueue()
    before = signal.signal(signal.SIGALRM, tell)
    try:
        with pytest.raises(Told):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            empty.get()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert items.copy() == {"a": 1}
    empty.put(5)
    assert empty.get(timeout=LONG) == 5


# ---- AsyncManager ----


class Refuses:
    def __reduce__(self):
        return _refuse, ()


def _refuse():
    raise ValueError("not here")


class Interrupts:
    """An object that the program is interrupted at when it unpickles it for the first time."""

    by = None

    def __reduce__(self):
        return _interrupt_once, ()


def _interrupt_once():
    by, Interrupts.by = Interrupts.by, None
    if by:
        raise by
    return "again"


class Env:
    def __init__(self, base=0):
        self.base = base
        self.gate = threading.Event()

    def step(self, action):
        return self.base + action

    def big(self, size):
        return b"x" * size

    def fail(self):
        raise KeyError("no such action")

    def interrupt(self):
        return Interrupts()

    def refuse(self):
        return Refuses()

    def hang(self, timeout=None):
        return self.gate.wait(timeout)

    def open(self):
        self.gate.set()

    def die(self):
        os._exit(1)

    def copy(self):
        return Env(self.base + 1)

    def __repr__(self):
        return "an Env from %d" % self.base


class Envs(AsyncManager):
    pass


Envs.register("Env", Env, method_to_typeid={"copy": "Copy"})
Envs.register("Copy", create_method=False)


@pytest.fixture
def envs():
    with Envs() as m:
        yield m


def test_handles_may_be_read_in_any_order(envs):
    a, b = envs.Env(10), envs.Env(20)
    handles = [env.step(i) for i in range(5) for env in (a, b)]
    assert [h.get() for h in reversed(handles)] == [24, 14, 23, 13, 22, 12, 21, 11, 20, 10]
    assert handles[0].get() == 10  # again
    assert handles[0].ready()


def test_an_exception_is_raised_by_get(envs):
    env = envs.Env()
    bad, good = env.fail(), env.step(1)
    assert good.get() == 1
    with pytest.raises(KeyError, match="no such action") as caught:
        bad.get()
    assert "in fail" in str(caught.value.__cause__)  # the traceback in the manager


@pytest.mark.parametrize("by", [KeyboardInterrupt, TimeoutError])
def test_answers_are_not_confused_after_an_interrupt(envs, monkeypatch, by):
    monkeypatch.setattr(Interrupts, "by", by)
    env = envs.Env()
    first, second = env.interrupt(), env.step(2)
    with pytest.raises(by):
        first.get(LONG)
    assert second.get(LONG) == 2
    assert first.get(LONG) == "again"


def test_a_handle_goes_on_after_a_signal_whose_handler_raises_an_error_of_the_system(envs, interrupt):
    env = envs.Env()
    handle = env.hang()

    interrupt(handle.get, lambda: None, OSError)
    threading.Thread(target=lambda: env.open().get()).start()

    assert handle.get(LONG) is True


def test_a_handler_of_a_signal_calls_while_its_thread_waits(envs):
    env, seen = envs.Env(), []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(env.step(1).get()))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)  # it comes before the answer, however slow this process is
        assert env.hang(0.2).get() is False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert seen == [1]


def test_answers_are_not_confused_when_one_cannot_be_unpickled(envs):
    env = envs.Env()
    first, second = env.refuse(), env.step(2)
    assert second.get(LONG) == 2
    with pytest.raises(ValueError, match="not here"):
        first.get(LONG)


def test_an_object_lives_as_long_as_the_handle_that_gave_it(envs):
    handle = envs.Env(10).copy()
    first = handle.get()
    assert handle.get() is first
    del first
    assert handle.get().step(1).get() == 12


def test_the_text_of_an_async_proxy_is_that_of_its_object(envs):
    env = envs.Env(10)
    assert str(env) == "an Env from 10"
    envs.shutdown()
    assert str(env).endswith("'__str__()' failed>")


def test_a_handle_is_no_argument(envs):
    env = envs.Env()
    with pytest.raises(TypeError, match=r"get\(\)"):
        env.step(env.step(1))
    assert env.step(env.step(1).get()).get() == 1


def test_a_handle_has_a_timeout(envs):
    env = envs.Env()
    handle = env.hang()
    assert not handle.ready()
    handle.wait(0.01)
    with pytest.raises(mp.TimeoutError):
        handle.get(timeout=0.05)


def test_many_calls_with_large_answers(envs):
    env = envs.Env()
    handles = [env.big(1 << 20) for _ in range(100)]
    assert all(len(h.get(LONG)) == 1 << 20 for h in handles)


def test_many_calls_with_large_arguments_and_large_answers(program):
    ran = program("""
        import fiber

        class Echo:
            def echo(self, data):
                return data

        class Echoes(fiber.AsyncManager):
            pass

        Echoes.register("Echo", Echo)

        if __name__ == "__main__":
            with Echoes() as m:
                echo = m.Echo()
                handles = [echo.echo(bytes(4 << 20)) for _ in range(20)]
                print(all(len(h.get()) == 4 << 20 for h in handles))
    """)
    assert (ran.code, ran.out) == (0, "True\n"), ran


def use_env(env, sink):
    sink.put(env.step(1).get())


def test_async_proxies_travel(envs, start):
    sink = mp.Queue()
    assert well(start(use_env, envs.Env(100), sink))
    assert sink.get(timeout=LONG) == 101


@pytest.mark.parametrize("kind", [Engines, Envs])
def test_a_call_after_the_death_of_the_manager_says_how_it_died(kind):
    manager = kind()
    manager.start()
    thing = (manager.Engine if kind is Engines else manager.Env)()
    assert str(thing)  # there is a connection
    manager._process.kill()
    manager._process.join()
    with pytest.raises((EOFError, OSError), match="killed by signal 9"):
        print(thing._callmethod("step", (1,)).get(LONG))


def test_the_death_of_the_manager_ends_all_handles(envs):
    env = envs.Env()
    assert env.step(1).get(LONG) == 1  # an answer may be under way when its process ends
    calls = [env.die()]
    try:
        calls.append(env.step(2))
    except OSError:  # it is dead already
        pass
    for handle in calls:
        with pytest.raises((EOFError, OSError)):
            handle.get(LONG)
    with pytest.raises(EOFError, match="exited with code 1"):
        calls[0].get()
