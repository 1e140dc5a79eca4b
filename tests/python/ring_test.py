"""ring_test.py - fiber.Ring: ranks that run a function, and their failures.

SPDX-License-Identifier: Apache-2.0
"""
import array
import os
import select
import signal
import socket
import threading

import pytest

import fiber as mp
from fiber.experimental import Ring as ExperimentalRing

LONG = 100


def tell(rank, size):
    sink.put((rank, size, word))


def initialize(ring, q, text):
    global sink, word
    sink, word = q, (ring.rank, ring.size, text)
    ring.barrier(LONG)


def test_ranks_run_the_initializer_and_the_function():
    q = mp.Queue()
    ring = mp.Ring(3, tell, initialize, (q, "hi"))
    assert ring.rank is None and ring.size == 3 and not ring.is_alive()
    ring.run()
    assert ring.exitcode == 0 and ring.report == ""
    assert sorted(q.get(timeout=LONG) for _ in range(3)) == [(r, 3, (r, 3, "hi")) for r in range(3)]
    assert [m.rank for m in ring.members] == [0, 1, 2]
    assert {m.state for m in ring.members} == {"ended"}
    with pytest.raises(RuntimeError):
        ring.start()


def keep(ring, q):
    global here, sink
    here, sink = ring, q


def use_collectives(rank, size):
    out = [here.allreduce(rank), here.allreduce(rank + 0.5, "max"), here.allreduce([rank, -rank], op="min", timeout=LONG)]
    numbers = array.array("d", [rank, 1.5])
    out += [here.allreduce(numbers) is numbers, list(numbers)]
    word = bytearray(b"root" if rank == 1 else b"....")
    out += [here.broadcast(word, 1) is word, bytes(word), here.broadcast(b"bytes" if rank == 0 else None)]
    out += [mp.ring.broadcast(b"" if rank == 2 else None, root=2, timeout=LONG), mp.ring.allreduce([])]
    mp.ring.barrier(LONG)
    sink.put((rank, out))


def test_collectives_of_ranks():
    q = mp.Queue()
    mp.Ring(3, use_collectives, keep, (q,)).run()
    want = [3, 2.5, [-0, -2], True, [3.0, 4.5], True, b"root", b"bytes", b"", []]
    assert sorted(q.get(timeout=LONG) for _ in range(3)) == [(rank, want) for rank in range(3)]


def misuse_collectives(rank, size):
    for call in (lambda: here.allreduce(1, "product"), lambda: here.allreduce("text"), lambda: here.broadcast("text"),
                 lambda: here.allreduce(array.array("f", [1])), lambda: here.allreduce(bytes(8)),
                 lambda: here.allreduce(array.array("Q", [1])), lambda: here.allreduce(1 << 70),
                 lambda: here.allreduce(memoryview(bytes(8)).cast("q")), lambda: here.broadcast(None)):
        try:
            call()
        except (TypeError, ValueError, OverflowError) as error:
            sink.put((type(error).__name__, str(error)))
    try:
        here.broadcast(bytearray(3), root=1)  # there is no such rank
    except ValueError as error:
        sink.put(("ValueError", str(error)))


def test_collectives_refuse_what_they_do_not_have():
    q = mp.Queue()
    ring = mp.Ring(1, misuse_collectives, keep, (q,))
    ring.run()
    seen = [q.get(timeout=LONG) for _ in range(10)]
    assert [name for name, _ in seen] == ["ValueError", *["TypeError"] * 5, "OverflowError", *["TypeError"] * 2, "ValueError"]
    assert "sum, min, max" in seen[0][1] and "'f'" in seen[3][1] and "read-only" in seen[7][1]
    for call in ring.barrier, lambda: ring.broadcast(b""), lambda: ring.allreduce(1):
        with pytest.raises(ValueError, match="only a rank"):
            call()


def come_alone(rank, size):
    if rank == 0:
        try:
            here.allreduce(1, timeout=0.2)
        except mp.TimeoutError:
            sink.put("timed out")
    else:
        try:
            here.allreduce(1, timeout=LONG) if rank > 1 else signal.pause()
        except OSError as error:
            sink.put(type(error).__name__)


def test_a_collective_that_not_all_ranks_call_is_over():
    q = mp.Queue()
    with mp.Ring(3, come_alone, keep, (q,), quiet=True, grace=0.5):
        assert {q.get(timeout=LONG) for _ in range(2)} == {"timed out", "ConnectionAbortedError"}


def use_memory(ring, q, value, name):
    with value:
        value.value += 1
    block = mp.shared_memory.SharedMemory(name)
    q.put((bytes(block.buf[:4]), bytes(mp.shared("of-ranks", lambda: b"%d" % ring.rank))))
    block.close()


def test_ranks_of_this_host_share_its_memory():
    q, value, block = mp.Queue(), mp.Value("i", 40), mp.shared_memory.SharedMemory(create=True, size=4)
    block.buf[:4] = b"memo"
    mp.Ring(2, nothing, use_memory, (q, value, block.name)).run()
    built = bytes(mp.shared("of-ranks", lambda: b"none"))
    assert value.value == 42 and built in (b"0", b"1")
    assert [q.get(timeout=LONG) for _ in range(2)] == [(b"memo", built)] * 2
    block.unlink()


def look_at_nodes(ring, q):
    q.put([(n.rank, n.connected, n.ip is not None) for n in ring.members])
    q.put(ring.members[0].port > 0)


def nothing(rank, size):
    pass


def test_the_names_of_the_first_fiber():
    q = mp.Queue()
    ExperimentalRing(1, nothing, look_at_nodes, [q]).run()
    assert q.get(timeout=LONG) == [(0, True, True)] and q.get(timeout=LONG)


def fail_at_one(rank, size):
    if rank == 1:
        raise ValueError("no such luck")
    signal.pause()


def test_a_rank_that_raises_ends_the_ring():
    ring = mp.Ring(2, fail_at_one, quiet=True, grace=0.5)
    with pytest.raises(mp.RingError, match=r"(?s)rank 1.*no such luck\Z"):
        ring.run()
    assert ring.exitcode == 1
    assert issubclass(mp.RingError, mp.ProcessError)


def pause(rank, size):
    sink.put(os.getpid())
    signal.pause()


def test_a_rank_that_is_killed_ends_the_ring():
    q = mp.Queue()
    with mp.Ring(2, pause, initialize, (q, ""), quiet=True, grace=0.5) as ring:
        pids = {q.get(timeout=LONG) for _ in range(2)}
        assert not ring.join(0.01) and ring.is_alive()
        assert {m.pid for m in ring.members} == pids
        ring.signal(signal.SIGKILL, rank=1)
        with pytest.raises(mp.RingError, match="(?s)rank 1.*signal 9"):
            ring.join(LONG)
        assert ring.exitcode == 128 + signal.SIGKILL


def test_the_end_of_a_with_block_ends_the_ring():
    q = mp.Queue()
    with mp.Ring(1, pause, initialize, (q, ""), quiet=True, grace=0.5) as ring:
        fd = os.pidfd_open(q.get(timeout=LONG))
    assert not ring.is_alive()
    assert select.select([fd], [], [], LONG)[0], "the rank outlived its ring"
    os.close(fd)


def die_once(rank, size):
    if not os.path.exists(path):
        with open(path, "w"):
            pass
        os._exit(3)


def note_path(ring, where):
    global path
    path = where


def test_options_have_the_names_of_the_structure(tmp_path):
    flag = str(tmp_path / "flag")
    ring = mp.Ring(1, die_once, note_path, (flag,), on_failure="restart", max_restarts=1, timeout=LONG, quiet=True)
    ring.run()
    assert ring.exitcode == 0
    with pytest.raises(ValueError, match="on_failure"):
        mp.Ring(1, nothing, on_failure="pray")
    with pytest.raises(TypeError):
        mp.Ring(1, nothing, no_such_option=1).start()


def test_arguments_that_cannot_be():
    with pytest.raises(ValueError):
        mp.Ring(0, nothing)
    with pytest.raises(TypeError):
        mp.Ring(1, None)
    with pytest.raises(ValueError, match="not started"):
        mp.Ring(1, nothing).join()
    with pytest.raises(Exception, match="pickle"):
        mp.Ring(1, nothing, initialize, (threading.Lock(),)).start()
    with socket.socket() as sock, pytest.raises(ValueError, match="cannot send a file descriptor"):
        mp.Ring(1, nothing, initialize, (sock,)).start()
