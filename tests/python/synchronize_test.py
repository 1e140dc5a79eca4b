"""synchronize_test.py - fiber's locks, semaphores, conditions, events and barriers, by multiprocessing's documentation.

SPDX-License-Identifier: Apache-2.0
"""
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import well

import fiber.managers
import fiber as mp
from fiber import synchronize

LONG = 60


def test_a_lock():
    lock = mp.Lock()
    assert lock.acquire() is True
    assert lock.acquire(False) is False
    assert lock.acquire(block=True, timeout=0.01) is False
    assert lock.acquire(timeout=-1) is False
    assert repr(lock) == "<Lock(owner=MainProcess)>"
    lock.release()
    assert repr(lock) == "<Lock(owner=None)>"
    with pytest.raises(ValueError):
        lock.release()
    with lock as taken:
        assert taken is True


def derived(base):
    """A class of the program's own, which processes find in this module."""
    return type("Own" + base.__name__, (base,), {"__module__": __name__})


OwnLock, OwnRLock, OwnEvent = map(derived, (synchronize.Lock, synchronize.RLock, synchronize.Event))
OwnSemaphore, OwnBoundedSemaphore = map(derived, (synchronize.Semaphore, synchronize.BoundedSemaphore))
OwnCondition, OwnBarrier = map(derived, (synchronize.Condition, synchronize.Barrier))


def use_own(lock, barrier, event):
    with lock:
        event.set()
    barrier.wait(LONG)


def test_classes_of_the_program(start):
    barrier, event = OwnBarrier(2), OwnEvent()
    for lock in OwnLock(), OwnRLock(), OwnSemaphore(), OwnBoundedSemaphore(), OwnCondition():
        event.clear()
        child = start(use_own, lock, barrier, event)
        barrier.wait(LONG)
        assert well(child) and event.is_set()


def test_what_is_locked():
    for lock in mp.Lock(), mp.RLock(), mp.Semaphore(1), mp.BoundedSemaphore(1):
        assert lock.locked() is False
        with lock:
            assert lock.locked() is True
        assert lock.locked() is False


def test_a_condition_asks_its_lock_whether_it_is_locked():  # threading's own has locked() from Python 3.14 on
    lock = fiber.managers.RLock()
    assert lock.locked() is False
    with lock:
        assert lock.locked() is True
    assert lock.locked() is False


def test_a_recursive_lock():
    lock = mp.RLock()
    with lock:
        assert lock.acquire(False)
        assert repr(lock) == "<RLock(MainProcess, 2)>"
        lock.release()
    assert repr(lock) == "<RLock(None, 0)>"
    with pytest.raises(AssertionError):
        lock.release()


def try_lock(lock, sink):
    sink.put((lock.acquire(timeout=0.01), repr(lock)))


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_another_process_does_not_get_it(start, kind):
    lock, sink = getattr(mp, kind)(), mp.Queue()
    with lock:
        assert well(start(try_lock, lock, sink))
        got, text = sink.get(timeout=LONG)
    assert not got and "SomeOtherProcess" in text


def release(lock):
    lock.release()


def test_another_process_may_release_a_lock(start):
    lock = mp.Lock()
    lock.acquire()
    assert well(start(release, lock))
    assert lock.acquire(timeout=LONG)


def add(lock, path, times):
    for _ in range(times):
        with lock:
            with open(path) as f:
                n = int(f.read())
            with open(path, "w") as f:
                f.write(str(n + 1))


def test_a_lock_excludes(start, tmp_path):
    path = str(tmp_path / "count")
    with open(path, "w") as f:
        f.write("0")
    lock = mp.Lock()
    children = [start(add, lock, path, 50) for _ in range(3)]
    assert all(well(c) for c in children)
    with open(path) as f:
        assert f.read() == "150"


def test_semaphores():
    semaphore = mp.Semaphore(2)
    assert semaphore.get_value() == 2 and repr(semaphore) == "<Semaphore(value=2)>"
    assert semaphore.acquire() and semaphore.acquire() and not semaphore.acquire(False)
    for _ in range(3):
        semaphore.release()
    assert semaphore.get_value() == 3
    bounded = mp.BoundedSemaphore(1)
    assert repr(bounded) == "<BoundedSemaphore(value=1, maxvalue=1)>"
    with bounded:
        assert bounded.get_value() == 0
    with pytest.raises(ValueError, match="semaphore or lock released too many times"):
        bounded.release()
    for kind in (mp.Semaphore, mp.BoundedSemaphore):
        for error in (ValueError, OSError):  # of threading's and of multiprocessing's
            with pytest.raises(error, match="semaphore initial value must be >= 0"):
                kind(-1)


def post(semaphore, times):
    for _ in range(times):
        semaphore.release()


def take(semaphore):
    semaphore.acquire()


def test_a_semaphore_counts_events_of_processes_that_end(start):
    semaphore = mp.Semaphore(0)
    assert not semaphore.acquire(timeout=0.01)
    assert well(start(post, semaphore, 2))
    assert well(start(take, semaphore))
    assert semaphore.get_value() == 1


def set_and_notify(condition, event):
    event.set()
    with condition:
        condition.notify_all()


def test_a_condition_and_an_event(start):
    condition, event = mp.Condition(), mp.Event()
    assert repr(condition) == "<Condition(<RLock(None, 0)>, 0)>"
    assert not event.is_set() and "unset" in repr(event)
    with condition:
        child = start(set_and_notify, condition, event)
        assert condition.wait_for(event.is_set, timeout=LONG) is True
    assert well(child)
    with condition:  # after the child's notify_all(), which wait_for() need not have waited for
        assert condition.wait(0.01) is False
        assert condition.wait_for(lambda: 0, timeout=0.01) == 0
    assert event.wait() is True
    event.clear()
    assert event.wait(0.01) is False
    with pytest.raises(AssertionError, match="lock is not owned"):
        condition.notify()
    with pytest.raises(AssertionError, match="lock is not owned"):
        condition.notify_all()
    with pytest.raises(AssertionError, match="must acquire"):
        condition.wait(0)
    with pytest.raises(AssertionError, match="not owned by thread"):
        condition.release()


def test_a_condition_needs_a_lock_of_its_manager():
    with pytest.raises(TypeError, match="not fiber.sharedctypes.RLock"):
        mp.Condition(mp.Value("i").get_lock())


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_a_condition_of_a_lock(start, kind):
    lock, event = getattr(mp, kind)(), mp.Event()
    condition = mp.Condition(lock)
    with lock:
        child = start(set_and_notify, condition, event)
        assert condition.wait(LONG) is True
    assert well(child)


def meet(barrier, sink):
    sink.put(barrier.wait())
    sink.put(barrier.wait(LONG))


def note():
    with open(os.environ["NOTE"], "a") as f:
        f.write("x")


def test_a_barrier(start, tmp_path, monkeypatch):
    monkeypatch.setenv("NOTE", str(tmp_path / "note"))
    barrier, sink = mp.Barrier(3, note, LONG), mp.Queue()
    assert barrier.parties == 3 and barrier.n_waiting == 0 and not barrier.broken
    children = [start(meet, barrier, sink) for _ in range(2)]
    meet(barrier, sink)
    assert all(well(c) for c in children)
    assert sorted(sink.get(timeout=LONG) for _ in range(6)) == [0, 0, 1, 1, 2, 2]
    assert (tmp_path / "note").read_text() == "xx"
    with pytest.raises(threading.BrokenBarrierError):
        barrier.wait(0.01)
    assert barrier.broken
    barrier.reset()
    assert not barrier.broken


def hold(lock, up):
    lock.acquire()
    up.put(1)
    signal.pause()


@pytest.mark.parametrize("kind", ["Lock", "RLock", "Condition", "BoundedSemaphore"])
def test_what_a_killed_process_had_is_free(start, kind):
    lock, up = getattr(mp, kind)(), mp.Queue()
    child = start(hold, lock, up)
    up.get(timeout=LONG)
    assert not lock.acquire(timeout=0.01)
    child.kill()
    assert lock.acquire(timeout=LONG)


def make_lock(sink, stop):
    lock = mp.Lock()
    sink.put((lock, mp.Event()))
    stop.wait()


def make_lock_alone(sink):
    lock = mp.Lock()
    lock.acquire()
    sink.put(lock)
    sink.close()
    sink.join_thread()


def test_a_lock_outlives_the_child_that_made_it(start):
    first, sink = mp.Lock(), mp.Queue()  # the manager is here
    child = start(make_lock_alone, sink)
    lock = sink.get(timeout=LONG)
    assert well(child)
    assert lock.acquire(timeout=LONG)  # its holder has gone
    assert first.acquire(False)


def test_a_child_makes_its_own_where_those_of_its_parent_are(start):
    stop, sink = mp.Event(), mp.Queue()
    child = start(make_lock, sink, stop)
    lock, event = sink.get(timeout=LONG)
    stop.set()
    assert well(child)
    with lock:
        assert lock.acquire(False) is False
    event.set()
    assert event.is_set()


def test_the_manager_is_no_child_of_the_program():
    lock = mp.Lock()
    assert mp.active_children() == []
    with lock:
        pass


class Told(Exception):
    pass


@pytest.fixture
def alarm():
    """Returns a function that has a signal come soon, whose handler calls a function; that raises Told by default."""
    def tell():
        raise Told

    def come(handler=tell):
        signal.signal(signal.SIGALRM, lambda *_: handler())
        signal.setitimer(signal.ITIMER_REAL, 0.05)
    before = signal.getsignal(signal.SIGALRM)
    yield come
    signal.signal(signal.SIGALRM, before)


def test_a_handler_of_a_signal_makes_one_while_the_first_is_made(program):
    ran = program("""\
        import signal
        import fiber
        from fiber import synchronize

        def start():
            signal.raise_signal(signal.SIGALRM)
            return start_manager()

        def make(*_):
            global event
            synchronize._start_manager = start_manager
            event = fiber.Event()

        if __name__ == "__main__":
            start_manager, synchronize._start_manager = synchronize._start_manager, start
            signal.signal(signal.SIGALRM, make)
            with fiber.Lock():
                event.set()
            print(event.is_set())
        """)
    assert ran.code == 0 and ran.out == "True\n", ran


@pytest.mark.parametrize("kind", [mp.RLock, mp.Condition])
def test_the_loss_of_a_lock_with_its_connection_does_not_hide_why(kind):
    lock = kind()
    with pytest.raises(EOFError, match="cut off"), lock:
        free = lock._proxy._tls.connection._free
        free.pop().close()
        raise EOFError("cut off")
    with pytest.raises(AssertionError, match="not owned"), lock:
        lock.release()
        raise KeyError


def elsewhere(function):
    """What a thread of its own gets, which has connections of its own."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(function).result()


def test_a_signal_interrupts_a_wait(alarm):
    event = mp.Event()
    with pytest.raises(Told):
        alarm()
        event.wait()
    assert event.is_set() is False  # and not the answer of the wait


@pytest.mark.parametrize("kind", [mp.Lock, mp.RLock, mp.BoundedSemaphore, mp.Semaphore])
def test_a_signal_interrupts_acquire(alarm, kind):
    """What was not taken when it came is not taken later."""
    lock, up = kind(), threading.Event()

    def hold():
        with lock:
            up.set()
            interrupted.wait(LONG)
    interrupted = threading.Event()
    holder = threading.Thread(target=hold)
    holder.start()
    assert up.wait(LONG)
    with pytest.raises(Told):
        alarm()
        lock.acquire()
    interrupted.set()
    holder.join()
    assert lock.acquire(timeout=LONG)
    lock.release()
    assert not lock.locked()


def test_an_interrupted_wait_gives_no_lock_back(alarm):
    lock, rlock, event = mp.Lock(), mp.RLock(), mp.Event()
    with lock, rlock:
        with pytest.raises(Told):
            alarm()
            event.wait()
        event.set()
        assert not elsewhere(lambda: lock.acquire(False) or rlock.acquire(False))
    assert elsewhere(lambda: lock.acquire(False))


def test_a_wait_raises_what_a_handler_raises(alarm):
    def tell():
        raise RuntimeError("told")
    condition = mp.Condition()
    with condition, pytest.raises(RuntimeError, match="told"):
        alarm(tell)
        condition.wait()


def test_an_interrupted_wait_for_a_notice_keeps_the_lock(alarm):
    condition = mp.Condition()
    with condition, condition:
        with pytest.raises(Told):
            alarm()
            condition.wait()
        assert not elsewhere(lambda: condition.acquire(False))
    assert elsewhere(lambda: condition.acquire(False))


def set_and_tell(event, told):
    told.put(event.is_set())
    event.set()
    told.put(event.is_set())


def test_the_state_of_an_event_is_seen_in_memory():
    event, told = mp.Event(), mp.SimpleQueue()
    assert not event.is_set()
    event._until = float("inf")
    process = mp.Process(target=set_and_tell, args=(event, told))
    process.start()
    ask, event._call = event._call, None  # from now on nobody is asked
    assert (told.get(), told.get(), event.is_set()) == (False, True, True)
    process.join()
    ask("clear")
    assert not event.is_set()
    event._seen, event._call = b"", ask  # as on another host
    event.set()
    assert event.is_set()


def test_a_handler_may_end_the_wait_that_it_interrupts(alarm):
    event = mp.Event()
    alarm(event.set)
    assert event.wait(LONG)


def test_children_that_outlive_the_main_module_use_locks(program):
    ran = program("""
        import time
        import fiber

        def late(lock, event):
            event.wait()
            with lock:
                print("late", flush=True)

        if __name__ == "__main__":
            lock, event = fiber.Lock(), fiber.Event()
            fiber.Process(target=late, args=(lock, event)).start()
            event.set()
    """)
    assert (ran.code, ran.out, ran.err) == (0, "late\n", "")


@pytest.mark.parametrize("waits", ["event.wait()", "while not event.is_set(): pass"])
def test_the_end_of_the_manager_is_the_end_of_file(program, waits):
    ran = program(f"""
        import threading
        import time
        import fiber
        from fiber import synchronize

        if __name__ == "__main__":
            event = fiber.Event()
            threading.Timer(0.1, synchronize._manager._process.kill).start()
            begin = time.monotonic()
            try:
                {waits}
            except (EOFError, OSError):
                print("ended", time.monotonic() - begin < 30)
    """)
    assert (ran.code, ran.out) == (0, "ended True\n"), ran
