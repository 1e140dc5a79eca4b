"""queues_test.py - fiber's queues, by the documentation of multiprocessing's: Queue, SimpleQueue, JoinableQueue.

SPDX-License-Identifier: Apache-2.0
"""
import logging.config
import multiprocessing.queues
import os
import queue
import signal
import sys
import threading
import time

import pytest
from conftest import well

import fiber as mp
from fiber import connection

LONG = 60


def test_objects_come_in_order():
    q = mp.Queue()
    for i in range(100):
        q.put((i, str(i)))
    assert [q.get() for _ in range(100)] == [(i, str(i)) for i in range(100)]


def test_sizes():
    q = mp.Queue(maxsize=2)
    assert q.empty() and not q.full() and q.qsize() == 0
    q.put(None)
    assert not q.empty() and not q.full() and q.qsize() == 1
    q.put_nowait(None)
    assert q.full() and q.qsize() == 2
    assert q.get_nowait() is None
    assert not q.full()


def log_into(q, what):
    config = {"version": 1, "handlers": {"q": {"class": "logging.handlers.QueueHandler", "queue": q}},
              "root": {"handlers": ["q"]}}
    logging.config.dictConfig(config)
    logging.warning(what)


def test_queues_for_logging(start):
    """From Python 3.12 on logging.config asks whether a queue is one of multiprocessing."""
    class Own(mp.queues.Queue):
        pass
    for q in mp.Queue(), mp.JoinableQueue():
        assert isinstance(q, multiprocessing.queues.Queue) and isinstance(q, type(q))
        if sys.version_info[:2] != (3, 12):  # whose first releases take none of multiprocessing
            assert well(start(log_into, q, "what")) and q.get(timeout=LONG).getMessage() == "what"
    assert Own().__class__ is Own and not isinstance(mp.Queue(), multiprocessing.queues.JoinableQueue)


def test_full_and_empty():
    q = mp.Queue(1)
    with pytest.raises(queue.Empty):
        q.get_nowait()
    with pytest.raises(queue.Empty):
        q.get(block=False)
    begin = time.monotonic()
    with pytest.raises(queue.Empty):
        q.get(timeout=0.2)
    assert time.monotonic() - begin >= 0.2
    with pytest.raises(queue.Empty):
        q.get(timeout=-1)
    q.put(1)
    with pytest.raises(queue.Full):
        q.put_nowait(2)
    with pytest.raises(queue.Full):
        q.put(2, True, 0.01)
    with pytest.raises(queue.Full):
        q.put(2, False)
    assert q.get() == 1 and q.empty()


def test_a_put_that_waits_goes_on_when_there_is_room():
    q = mp.Queue(1)
    q.put(1)
    thread = threading.Thread(target=q.put, args=(2,))
    thread.start()
    assert q.get() == 1
    assert q.get() == 2
    thread.join(LONG)


def test_nothing_goes_after_close():
    q = mp.Queue()
    q.put(1)
    q.close()
    q.join_thread()
    with pytest.raises(ValueError, match="is closed"):
        q.put(2)
    with pytest.raises(ValueError, match="is closed"):
        q.get()


def test_join_thread_needs_close():
    q = mp.Queue()
    with pytest.raises(AssertionError):
        q.join_thread()
    q.cancel_join_thread()


def test_an_object_that_cannot_be_pickled_is_an_error_of_put():
    q = mp.Queue()
    with pytest.raises(Exception, match="pickle"):
        q.put(threading.Lock())
    q.put(1)
    assert q.get() == 1


def produce(q, base, count):
    for i in range(count):
        q.put(base + i)


def double(source, sink):
    for x in iter(source.get, None):
        sink.put(2 * x)


@pytest.mark.parametrize("workers", (1, 2))
def test_a_queue_is_empty_as_soon_as_all_is_known_to_be_taken(start, workers):
    source, sink = mp.Queue(), mp.Queue()
    workers = [start(double, source, sink) for _ in range(workers)]
    for n in range(100):
        for x in range(n % 7 + 1):
            source.put(x)
        for x in range(n % 7 + 1):
            sink.get(timeout=LONG)
        assert source.empty() and source.qsize() == 0 and not source.reader.poll()
    for _ in workers:
        source.put(None)
    assert all(well(p) for p in workers)


def test_children_put_and_get(start):
    source, sink = mp.Queue(), mp.Queue()
    workers = [start(double, source, sink) for _ in range(2)]
    producers = [start(produce, source, base, 500) for base in (0, 500)]
    assert all(well(p) for p in producers)
    assert sorted(sink.get(timeout=LONG) for _ in range(1000)) == list(range(0, 2000, 2))
    for _ in workers:
        source.put(None)
    assert all(well(p) for p in workers)


def check_bounds(q, done):
    assert q.full() and q.qsize() == 2
    with_full = False
    try:
        q.put_nowait(3)
    except queue.Full:
        with_full = True
    done.put(with_full)
    q.put(3, timeout=LONG)
    q.close()
    q.join_thread()


def test_a_bound_holds_in_a_child(start):
    q, done = mp.Queue(2), mp.SimpleQueue()
    q.put(1)
    q.put(2)
    child = start(check_bounds, q, done)
    assert done.get() is True
    assert [q.get(timeout=LONG) for _ in range(3)] == [1, 2, 3]
    assert well(child)


def pass_on(carrier, sink):
    carrier.get().put("through")
    sink.put(carrier.get)  # a method of a queue pickles with it


def test_queues_travel_through_queues(start):
    carrier, q, sink = mp.Queue(), mp.Queue(), mp.Queue()
    child = start(pass_on, carrier, sink)
    carrier.put(q)
    assert q.get(timeout=LONG) == "through"
    carrier.put("again")
    assert sink.get(timeout=LONG)() == "again"
    assert well(child)


def get_one(q):
    q.get(timeout=LONG)


def give_a_queue_of_mine_away(start):
    q = mp.Queue()
    q.put("kept")
    child = start(get_one, q)
    q.close()
    return child


def test_a_queue_outlives_its_last_use_by_its_maker(start):
    assert well(give_a_queue_of_mine_away(start))


def put_one_for_each(queues):
    while (q := queues.get()) is not None:
        q.put(1)


def test_the_descriptor_of_a_queue_that_was_given_away_goes_with_its_last_use(start):
    queues = mp.SimpleQueue()
    child = start(put_one_for_each, queues)
    counts = []
    for _ in range(5):
        q = mp.SimpleQueue()
        queues.put(q)
        assert connection.wait([q._reader], LONG) and q.get() == 1
        del q
        counts.append(len(os.listdir("/proc/self/fd")))
    queues.put(None)
    assert well(child)
    assert counts[1:] == counts[:1] * 4


def wait_for_end(q, up):
    up.put(1)
    try:
        q.get()
    except EOFError:
        os._exit(3)


def make_queue(sink, stop):
    sink.put(mp.Queue())
    stop.get()


def test_the_death_of_a_maker_ends_the_gets(start):
    sink, up, stop = mp.Queue(), mp.Queue(), mp.Queue()
    maker = start(make_queue, sink, stop)
    q = sink.get(timeout=LONG)
    waiter = start(wait_for_end, q, up)
    up.get(timeout=LONG)
    begin = time.monotonic()
    maker.kill()
    with pytest.raises(EOFError):
        q.get()
    waiter.join(LONG)
    assert waiter.exitcode == 3
    assert time.monotonic() - begin < 30
    with pytest.raises(OSError):
        q.put(1)
        q.qsize()


def put_bytes(q, up, size):
    data = bytes(size)
    up.put(None)
    q.put(data)


def switches(process):
    """How often the threads of a process have waited."""
    folder, count = "/proc/%d/task/" % process.pid, 0
    for thread in os.listdir(folder):
        with open(folder + thread + "/status") as f:
            count += sum(int(line.split()[1]) for line in f if line.startswith("voluntary_ctxt_switches"))
    return count


def test_a_long_object_that_waits_for_room_is_not_sent_again_and_again(start):
    q, up = mp.Queue(1), mp.Queue()
    q.put(None)
    putters = [start(put_bytes, q, up, size) for size in (1, 1 << 20)]
    for _ in putters:
        up.get(timeout=LONG)
    threading.Event().wait(0.2)
    before = [switches(p) for p in putters]
    threading.Event().wait(1.5)
    short, long = (switches(p) - count for p, count in zip(putters, before))
    assert long < short / 2
    assert sorted(len(q.get() or b"") for _ in range(3)) == [0, 1, 1 << 20]
    assert all(map(well, putters))


def test_a_signal_interrupts_a_get():
    q = mp.Queue()

    class Told(Exception):
        pass

    def tell(*_):
        raise Told

    before = signal.signal(signal.SIGALRM, tell)
    try:
        with pytest.raises(Told):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            q.get()
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("make", [mp.Queue, mp.SimpleQueue])
def test_a_get_that_a_signal_ends_loses_no_message(interrupt, make):
    q = make()

    interrupt(q.get, lambda: q.put(1))
    assert not q.empty()
    q.__getstate__()  # it is given away: another handle takes the place of the one that has the message
    assert not q.empty()
    q.put(2)

    assert [q.get(), q.get()] == [1, 2]
    assert q.empty()


def test_join_thread_raises_what_a_handler_raises():
    class Interrupted:
        def flush(self, timeout):
            raise TimeoutError
    q = mp.Queue()
    q.close()
    q._handle = Interrupted()
    with pytest.raises(TimeoutError):
        q.join_thread()


def test_another_thread_gets_what_a_signal_ended_the_get_of(interrupt):
    q, got = mp.Queue(), []
    thread = threading.Thread(target=lambda: got.append(q.get()))

    def put_and_wait():
        q.put(1)
        thread.start()

    interrupt(q.get, put_and_wait)
    thread.join(LONG)

    assert got == [1]


# ---- JoinableQueue ----


def finish(q, count):
    for _ in range(count):
        q.get()
        q.task_done()


def test_join_waits_for_task_done(start):
    q = mp.JoinableQueue()
    q.join()
    for i in range(20):
        q.put(i)
    children = [start(finish, q, 10) for _ in range(2)]
    q.join()
    assert q.empty()
    assert all(well(c) for c in children)
    with pytest.raises(ValueError, match="too many"):
        q.task_done()


def take_and_hang(q, up):
    q.get()
    q.qsize()  # once it is answered, the owner knows that the object was taken
    up.put(1)
    threading.Event().wait()


def test_join_does_not_wait_for_the_dead(start):
    q, up = mp.JoinableQueue(), mp.SimpleQueue()
    q.put("lost")
    child = start(take_and_hang, q, up)
    up.get()
    child.kill()
    with pytest.raises(mp.ProcessError, match="ended before"):
        q.join()


# ---- SimpleQueue, and names of Fiber 0.2.1 ----


def test_a_simple_queue():
    q = mp.SimpleQueue()
    assert q.empty()
    q.put([1])
    assert not q.empty()
    assert q.get() == [1]
    q.close()
    with pytest.raises(OSError):
        q.get()
    with pytest.raises(OSError):
        q.put(1)


def test_reader_and_writer():
    q = mp.SimpleQueue()
    q.writer.send({"a": 1})
    assert q.reader.poll(LONG)
    assert q.reader.recv() == {"a": 1}
    assert not q.reader.poll(0.01)


def test_wait_for_several_queues():
    from multiprocessing.connection import wait
    a, b = mp.SimpleQueue(), mp.Queue()
    b.put(1)
    assert wait([a._reader, b._reader], LONG) == [b._reader]
    assert wait([a._reader], 0.01) == []


def count(q, up):
    n = 0
    for x in iter(q.get, None):
        if x == "who":
            up.put(os.getpid())
        else:
            n += 1
    up.put(n)


def test_a_push_queue_gives_equal_shares(start):
    from fiber.queues import SimpleQueuePush
    q, up, known = SimpleQueuePush(), mp.SimpleQueue(), set()
    children = [start(count, q, up) for _ in range(3)]
    while len(known) < len(children):  # a receiver has its turn from its first get() on
        q.put("who")
        known.add(up.get())
    for i in range(300):
        q.put(i)
    for _ in children:
        q.put(None)
    assert [up.get() for _ in children] == [100, 100, 100]
    assert all(well(c) for c in children)


def test_no_repr_shows_an_address(start):
    q = mp.Queue()
    state = q.__reduce__()[1][1]
    for text in (repr(q), repr(q._reader), repr(q._handle)):
        assert repr(state[0])[2:40] not in text
