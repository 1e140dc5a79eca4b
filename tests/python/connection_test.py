"""connection_test.py - Pipe and Connection: objects and bytes, poll, wait, the end of file, ends that travel.

SPDX-License-Identifier: Apache-2.0
"""
import array
import functools
import multiprocessing
import os
import pickle
import signal
import threading

import pytest

import fiber as mp
from fiber.connection import Client, Connection, Listener, wait

LONG = 60
MIB = 1 << 20


def echo(conn):
    try:
        while True:
            conn.send(conn.recv())
    except EOFError:
        conn.close()


def echo_and_keep(conn):
    kept = []
    try:
        while True:
            kept.append(conn.recv())
            conn.send(kept[-1])
    except EOFError:
        pass


def echo_bytes(conn):
    try:
        while True:
            conn.send_bytes(conn.recv_bytes())
    except EOFError:
        conn.close()


def send_all(conn, things):
    for thing in things:
        conn.send(thing)


def send_and_wait(conn, thing):
    conn.send(thing)
    signal.pause()


def die_at_once(conn):
    os._exit(3)


def give_to_another(conn, depth):
    conn.send(depth)
    if depth:
        p = mp.Process(target=give_to_another, args=(conn, depth - 1))
        p.start()
        p.join()
        conn.send(-depth)


def pass_on(conn, to):
    to.send(conn)
    conn.close()
    signal.pause()


def start(target, *args):
    p = mp.Process(target=target, args=args)
    p.start()
    return p


def finish(p):
    p.join(LONG)
    assert p.exitcode == 0
    p.close()


def test_an_end_that_was_received_is_passed_on_and_closed():
    mine, its = mp.Pipe()
    reader, writer = mp.Pipe(duplex=False)
    p = start(pass_on, its, writer)
    its.close()
    again = reader.recv()
    q = start(pass_on, again, writer)
    again.close()
    assert not mine.poll(0)
    last = reader.recv()
    p.kill()
    q.kill()
    last.send("well")
    assert mine.recv() == "well"
    with pytest.raises(TypeError):
        start(echo, last, threading.Lock())
    last.close()
    with pytest.raises(EOFError):
        mine.recv()
    p.join(LONG)
    q.join(LONG)


def test_objects_there_and_back():
    mine, its = mp.Pipe()
    p = start(echo, its)
    its.close()
    for thing in (None, 1, "text", [1, {2: (3,)}], b"", b"x" * (3 * MIB), array.array("d", range(1000))):
        mine.send(thing)
        assert mine.recv() == thing
    mine.close()
    finish(p)


def test_bytes_of_any_length():
    mine, its = mp.Pipe()
    p = start(echo_bytes, its)
    its.close()
    for size in (0, 1, 4096, 4097, 65536, 5 * MIB):
        data = os.urandom(size)
        mine.send_bytes(data)
        assert mine.recv_bytes() == data
    mine.send_bytes(memoryview(b"0123456789"), 3, 4)
    assert mine.recv_bytes(4) == b"3456"
    with pytest.raises(ValueError):
        mine.send_bytes(b"123", 4)
    with pytest.raises(ValueError):
        mine.send_bytes(b"123", 1, 3)
    mine.close()
    finish(p)


def test_bytes_into_a_buffer():
    a, b = mp.Pipe()
    buffer = bytearray(10)
    a.send_bytes(b"abc")
    assert b.recv_bytes_into(buffer, 2) == 3
    assert buffer == b"\0\0abc\0\0\0\0\0"
    numbers = array.array("i", [0] * 10)
    a.send_bytes(array.array("i", [1, 2, 3]))
    assert b.recv_bytes_into(numbers) == 12
    assert list(numbers[:4]) == [1, 2, 3, 0]
    a.send_bytes(b"0123456789ab")
    with pytest.raises(mp.BufferTooShort) as e:
        b.recv_bytes_into(buffer)
    assert e.value.args == (b"0123456789ab",)
    with pytest.raises(ValueError):
        b.recv_bytes_into(buffer, 11)
    with pytest.raises(ValueError):
        b.recv_bytes_into(buffer, -1)


def test_a_message_above_the_maximum_ends_reading():
    a, b = mp.Pipe()
    a.send_bytes(b"12345")
    with pytest.raises(OSError, match="bad message length"):
        b.recv_bytes(4)
    assert not b.readable
    with pytest.raises(ValueError):
        a.recv_bytes(-1)


def test_one_way():
    reader, writer = mp.Pipe(duplex=False)
    assert (reader.readable, reader.writable) == (True, False)
    assert (writer.readable, writer.writable) == (False, True)
    writer.send(1)
    assert reader.recv() == 1
    for call in (lambda: reader.send(1), lambda: reader.send_bytes(b""), writer.recv, writer.poll, writer.recv_bytes):
        with pytest.raises(OSError):
            call()


def test_poll_before_and_after_the_other_end_is_given_away():
    mine, its = mp.Pipe()
    assert mine.poll() is False
    assert mine.poll(0.01) is False
    mine.send("before")
    p = start(echo, its)
    its.close()
    assert mine.poll(LONG) is True
    assert mine.recv() == "before"
    assert not mine.poll()
    mine.send(2)
    assert mine.poll(None)
    assert mine.poll()
    assert mine.recv() == 2
    mine.close()
    finish(p)


def test_a_closed_connection_says_so():
    a, b = mp.Pipe()
    assert not a.closed
    with a:
        a.send(1)
    assert a.closed
    a.close()
    for call in (lambda: a.send(1), a.recv, a.poll, a.fileno, lambda: pickle.dumps(a)):
        with pytest.raises(OSError, match="closed"):
            call()
    assert b.recv() == 1
    with pytest.raises(EOFError):
        b.recv()
    with pytest.raises(EOFError):
        b.recv_bytes()
    with pytest.raises(BrokenPipeError):
        b.send(1)
    assert b.poll()


def test_the_end_of_file_comes_when_the_last_holder_has_gone():
    reader, writer = mp.Pipe(duplex=False)
    children = [start(send_all, writer, [i] * 3) for i in range(3)]
    for p in children:
        finish(p)
    writer.send("mine")
    writer.close()
    got = []
    with pytest.raises(EOFError):
        while True:
            got.append(reader.recv())
    assert sorted(got[:-1]) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert got[-1] == "mine"


def test_an_end_travels_down_the_generations():
    reader, writer = mp.Pipe(duplex=False)
    p = start(give_to_another, writer, 2)
    writer.close()
    got = []
    with pytest.raises(EOFError):
        while True:
            got.append(reader.recv())
    assert got == [2, 1, 0, -1, -2]
    finish(p)


def test_a_child_that_dies_before_it_uses_its_end():
    mine, its = mp.Pipe()
    p = start(die_at_once, its)
    its.close()
    with pytest.raises(EOFError):
        mine.recv()
    p.join(LONG)
    assert p.exitcode == 3


def test_a_child_that_cannot_import_what_it_needs_ends_its_end(program):
    ran = program("""
        import sys
        import fiber as mp

        class Thorn:
            def __reduce__(self):
                return __import__, ("module_that_is_not_there",)

        def f(conn, thorn):
            pass

        if __name__ == "__main__":
            mine, its = mp.Pipe()
            p = mp.Process(target=f, args=(its, Thorn()))
            p.start()
            its.close()
            try:
                mine.recv()
            except EOFError:
                print("end of file")
            p.join()
    """)
    assert ran.out == "end of file\n"


@pytest.mark.parametrize("target, argument", [
    (print, threading.Lock()),  # cannot be pickled
    (mp.meta(gpu=1 << 31)(functools.partial(print)), None),  # all is pickled, and then refused
])
def test_a_child_that_cannot_be_started_holds_no_end(target, argument):
    reader, writer = mp.Pipe(duplex=False)
    with pytest.raises((TypeError, OverflowError)):
        mp.Process(target=target, args=(writer, argument)).start()
    writer.close()
    assert reader.poll(LONG)
    with pytest.raises(EOFError):
        reader.recv()


def test_the_death_of_a_child_is_the_end_of_file():
    mine, its = mp.Pipe()
    p = start(send_and_wait, its, "here")
    its.close()
    assert mine.recv() == "here"
    p.kill()
    with pytest.raises(EOFError):
        mine.recv()
    p.join(LONG)


def test_connections_travel_in_messages():
    mine, its = mp.Pipe()
    p = start(echo_and_keep, its)
    its.close()
    a, b = mp.Pipe()
    mine.send(b)
    b.close()
    c = mine.recv()
    assert isinstance(c, Connection)
    a.send("hello")
    assert c.recv() == "hello"
    mine.close()
    finish(p)
    c.close()
    with pytest.raises(EOFError):
        a.recv()


def test_an_end_travels_again_when_its_first_receiver_has_gone():
    reader, writer = mp.Pipe(duplex=False)
    there, here = mp.Pipe()
    for n in range(3):
        there.send(writer)
        if n == 2:
            writer.close()
        with here.recv() as received:
            received.send(n)
        assert reader.recv() == n
    with pytest.raises(EOFError):
        reader.recv()


def test_no_repr_shows_an_address():
    a, b = mp.Pipe()
    address = a._handle.address()
    shown = repr(a) + str(a) + repr(a._handle) + repr(vars(a))
    assert address.hex() not in shown and repr(address)[2:-1][:40] not in shown
    with Listener() as listener:
        assert repr(listener.address) == str(listener.address) == "<address of a fiber.connection.Listener>"


def test_wait_for_several():
    pairs = [mp.Pipe() for _ in range(3)]
    readers = [a for a, _ in pairs]
    assert wait(readers, 0) == []
    pairs[1][1].send(1)
    assert wait(readers, LONG) == [readers[1]]
    for _ in range(3):
        pairs[2][1].send(2)
    for _ in range(3):  # all that has come is shown, message by message
        assert readers[2] in wait(readers, 0)
        assert readers[2].recv() == 2
    assert wait(readers, 0) == [readers[1]]
    assert readers[1].recv() == 1
    assert wait(readers, 0) == []
    pairs[0][1].close()
    assert wait(readers, LONG) == [readers[0]]
    p = start(echo, pairs[1][1])
    pairs[1][1].close()
    assert wait([p.sentinel, readers[1]], 0) == []
    for i in range(100):
        readers[1].send(i)
        assert wait([p.sentinel, readers[1]], LONG) == [readers[1]]
        assert readers[1].recv() == i
    readers[1].close()
    assert wait([p.sentinel], LONG) == [p.sentinel]
    finish(p)


def test_a_close_wakes_a_thread_that_waits():
    a, b = mp.Pipe()
    seen = []
    ready = threading.Event()

    def receive():
        ready.set()
        try:
            a.recv()
        except OSError as e:
            seen.append(str(e))

    thread = threading.Thread(target=receive)
    thread.start()
    ready.wait(LONG)
    a.close()
    thread.join(LONG)
    assert seen == ["handle is closed"]


def test_ctrl_c_ends_a_recv(program):
    ran = program("""
        import os, signal, threading
        import fiber as mp

        if __name__ == "__main__":
            a, b = mp.Pipe()

            interrupt = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT))
            try:
                interrupt.start()
                a.recv()
            except KeyboardInterrupt:
                print("interrupted")
            b.send(1)
            print(a.recv())
    """)
    assert ran.out == "interrupted\n1\n"


def test_a_recv_that_a_signal_ends_loses_no_message(interrupt):
    a, b = mp.Pipe()

    interrupt(a.recv, lambda: b.send(1))
    b.send(2)
    b.close()

    assert [a.recv(), a.recv()] == [1, 2]


def test_an_object_that_cannot_be_pickled_sends_nothing():
    a, b = mp.Pipe()
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        a.send(threading.Lock())
    assert not b.poll()
    a.send(1)
    assert b.recv() == 1


def test_bytes_that_are_no_address():
    with pytest.raises(ValueError):
        mp.connection._connect(b"x" * 192, True, True)
    with pytest.raises(ValueError):
        mp.connection._connect(b"", True, True)


# ---- Listener and Client ----

def call(address, authkey, what):
    with Client(address, authkey=authkey) as conn:
        conn.send(what)
        assert conn.recv() == -what


def test_a_listener_accepts_callers():
    with Listener(authkey=b"key") as listener:
        assert listener.last_accepted is None
        children = [start(call, listener.address, b"key", i) for i in range(1, 4)]
        seen = set()
        for _ in children:
            with listener.accept() as conn:
                what = conn.recv()
                conn.send(-what)
                seen.add(what)
        for p in children:
            finish(p)
    assert seen == {1, 2, 3}
    with pytest.raises(OSError, match="closed"):
        listener.accept()
    with pytest.raises(ConnectionRefusedError):
        Client(listener.address)


def die_in_a_call(address, connects):
    real = mp.connection._connect

    def die(*end):
        held = real(*end) if connects else None
        os.kill(os.getpid(), signal.SIGKILL)
        return held
    mp.connection._connect = die
    Client(address)


@pytest.mark.parametrize("connects", [False, True], ids=["before it connects", "when it has connected"])
def test_a_caller_that_is_killed_takes_no_pipe_from_others(connects):
    with Listener() as listener:
        for i in range(1, mp.connection.SPARE + 4):
            killed = start(die_in_a_call, listener.address, connects)
            killed.join()
            assert killed.exitcode == -signal.SIGKILL
            if i % 2:
                continue
            caller = start(call, listener.address, None, i)
            with listener.accept() as conn:
                assert conn.recv() == i
                conn.send(-i)
            finish(caller)


def answer_with_order(address):
    """Answers some messages of each caller, and tells it in which order those behind them have come."""
    with Listener() as listener:
        address.send(listener.address)
        while (conn := listener.accept()).recv():
            for _ in range(conn.recv()):
                conn.send(conn.recv())
            conn.send([conn.recv()[0] for _ in range(4)])


def test_long_messages_keep_their_order_behind_a_conversation():
    reader, writer = mp.Pipe(duplex=False)
    p = mp.Process(target=answer_with_order, args=(writer,), daemon=True)
    p.start()
    address = reader.recv()
    for exchanges in 5 * [*range(6)]:
        with Client(address) as conn:
            conn.send(True)
            conn.send(exchanges)
            for i in range(exchanges):
                conn.send(i)
                assert conn.recv() == i
            for i in range(4):
                conn.send((i, bytes(4 * MIB)))
            assert conn.recv() == [0, 1, 2, 3], exchanges
    with Client(address) as conn:
        conn.send(False)
    p.join(LONG)
    assert p.exitcode == 0


@pytest.mark.parametrize("offers", [False, True])
def test_a_listener_that_is_closed_while_it_accepts_says_so(offers):
    """Another thread closes it between two steps of accept()."""
    listener = Listener()
    calls, end = listener._calls, next(iter(listener._ends))

    class Calls:
        def get(self, timeout):
            listener.close()
            return b"" if offers else end
        shut = calls.shut
    listener._calls = Calls()
    with pytest.raises(OSError):
        listener.accept()


def test_a_listener_refuses_a_wrong_key():
    def serve():
        with pytest.raises(mp.AuthenticationError):
            listener.accept()

    with Listener(authkey=b"right") as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(mp.AuthenticationError):
            Client(listener.address, authkey=b"wrong")
        thread.join(LONG)
        assert not thread.is_alive()
    with pytest.raises(TypeError):
        Listener(authkey="text")


def answer_by(conn):
    conn.send("from a worker")
    return os.getpid()


def send_through(queue, conn):
    mine, its = multiprocessing.Pipe()
    queue.put(its)
    its.close()
    mine.send("from a process")
    assert conn.recv() == "well"


def test_connections_of_multiprocessing_travel_on_this_host():
    queue, (mine, its) = mp.Queue(), mp.Pipe()
    p = start(send_through, queue, its)
    its.close()
    with queue.get() as other:
        assert other.recv() == "from a process"
    mine.send("well")
    finish(p)
    mine, its = multiprocessing.Pipe()
    with mine, its, mp.Pool(1) as pool:
        assert pool.map(answer_by, [its]) == [pool.apply(os.getpid)]
        assert mine.recv() == "from a worker"


def test_other_addresses_are_multiprocessings():
    with Listener(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: listener.accept().send(7))
        thread.start()
        with Client(listener.address) as conn:
            assert conn.recv() == 7
        thread.join(LONG)
