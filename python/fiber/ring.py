"""ring.py - Ring: a function that runs in several processes as equals, for torch.distributed, MPI or neither.

    def train(rank, size):
        torch.distributed.init_process_group("gloo")      # the environment has all that it needs
        ...

    fiber.Ring(4, train).run()

Ranks are placed, pinned and booted by the library. A rank that fails ends the others, and run() raises RingError with
the report. In a rank, `initializer` gets the ring itself, with its rank.

Ranks that have neither torch nor MPI meet in barrier(), broadcast() and allreduce(), functions of this module and methods
of the ring. Every rank calls the same ones in the same order. They go through the launcher, so they are for what is said
now and then, not for gradients. A call that fails (TimeoutError: not all ranks came; OSError: another rank has ended;
ValueError: the ranks do not call the same) is the last one that can succeed in this ring.

SPDX-License-Identifier: Apache-2.0
"""
import os
from array import array
from collections import namedtuple
from multiprocessing import context as _mp_context
from numbers import Integral, Real

from . import _core, _pickling, backend, meta
from ._errors import RingError

__all__ = ["Member", "Ring", "RingError", "allreduce", "barrier", "broadcast"]

POLICIES = {"abort": 0, "restart": 1, "shrink": 2, "replace": 3}
FLAGS = {"tag": 1, "timestamp": 2, "report": 4, "stdin": 8, "quiet": 16, "oversubscribe": 32}
STATES = ("starting", "running", "ended")
INT64, DOUBLE = 1, 2  # enum fiber_ring_type
OPERATIONS = {"sum": 1, "min": 2, "max": 3}  # enum fiber_ring_op

Member = namedtuple("Member", "rank state code restarts pid host cpus bootstrap")
Member.__doc__ = """A rank as its launcher sees it. `state` is "starting", "running" or "ended"; `code` its exit code or
-signal; `pid` its process on `host`, bound to `cpus`; `bootstrap` how its program found the others."""

RingNode = namedtuple("RingNode", "rank connected ip port")
RingNode.__doc__ = """A member as ranks see it, as in Fiber 0.2.1: `ip` and `port` of rank 0 lead to the rendezvous of
torch.distributed."""


# ---- Collectives ----


def barrier(timeout=None):
    """In a rank: waits until every rank is in this call, at most `timeout` seconds."""
    _core.start().ring_barrier(timeout)


def broadcast(data, root=0, timeout=None):
    """In a rank: gives every rank the bytes of rank `root`, and returns them.

    `data` is a bytes-like object in rank `root`. In the others it is a writable one of the same length, such as a bytearray
    or an array of numpy, which is filled and returned; or None, for the bytes as a new object. All ranks wait for each
    other, at most `timeout` seconds for each of the two messages that it takes.
    """
    core, is_root = _core.start(), int(os.environ.get("FIBER_RANK", -1)) == root
    view = None if data is None else _bytes_of(data)
    if is_root and view is None:
        raise TypeError("the root of a broadcast needs data to send")
    length = array("q", [view.nbytes if is_root else 0])
    core.ring_broadcast(length, root, timeout)
    if view is None or is_root and view.readonly:
        whole = bytearray(length[0] if view is None else view)
        core.ring_broadcast(whole, root, timeout)
        return bytes(whole) if view is None else data
    if view.nbytes != length[0]:
        raise ValueError("a broadcast of %d bytes does not fit into %d" % (length[0], view.nbytes))
    core.ring_broadcast(view, root, timeout)
    return data


def allreduce(data, op="sum", timeout=None):
    """In a rank: returns the sum, the minimum ("min") or the maximum ("max") of what all ranks give, element by element.

    `data` is a number, or a list of numbers; or a writable buffer of 8-byte integers or floats, such as an array of numpy,
    which is changed and returned. All ranks give the same kind and number of elements. Sums are built in the order of the
    ranks, and sums of integers wrap around at 64 bits. The ranks wait for each other, at most `timeout` seconds.
    """
    if op not in OPERATIONS:
        raise ValueError("op must be one of %s, not %r" % (", ".join(OPERATIONS), op))
    if isinstance(data, (list, tuple)):
        return _reduce(_array_of(data), op, timeout).tolist()
    if isinstance(data, Real):
        return _reduce(_array_of([data]), op, timeout)[0]
    return _reduce(data, op, timeout)


def _bytes_of(data):
    view = memoryview(data)
    return view.cast("B") if view.nbytes else memoryview(bytearray())


def _array_of(numbers):
    whole = all(isinstance(n, Integral) for n in numbers)
    return array("q" if whole else "d", numbers)


def _reduce(data, op, timeout):
    view = memoryview(data)
    kind = view.format.lstrip("@=<")
    if view.itemsize != 8 or kind not in ("q", "l", "d"):
        raise TypeError("allreduce() needs 8-byte integers or floats, not elements of format %r" % view.format)
    if view.readonly:
        raise TypeError("allreduce() changes its array, and this one is read-only")
    _core.start().ring_allreduce(_bytes_of(data), DOUBLE if kind == "d" else INT64, OPERATIONS[op], timeout)
    return data


# ---- Rings ----


class Ring:
    """`processes` ranks, each of which runs initializer(ring, *initargs) and then func(rank, size).

    Options are those of struct fiber_ring_options in fiber.h: per_node, nodes, on_failure ("abort", "restart", "shrink",
    "replace"), max_restarts, timeout and grace (seconds), bind_to, map_by, cpus_per_rank, gpus_per_rank, output_dir,
    backend; of its job: name, image, cpus, gpus, memory, workdir; and its flags as booleans: tag, timestamp, report,
    stdin, quiet, oversubscribe.
    """

    def __init__(self, processes, func, initializer=None, initargs=(), **options):
        if processes < 1:
            raise ValueError("a ring has at least one rank")
        if not callable(func):
            raise TypeError("func is not callable")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer is not callable")
        self._size, self._func, self._rank = processes, func, None
        self._initializer, self._initargs = initializer, tuple(initargs or ())
        self._options = _translate(options)
        self._handle = None

    @property
    def size(self):
        """How many ranks there are."""
        return self._size

    @property
    def rank(self):
        """The number of the calling rank, from 0; None where the ring was made."""
        return self._rank

    @property
    def members(self):
        """The ranks in their order: Member tuples where the ring was started, RingNode tuples in a rank."""
        if self._rank is not None:
            return _nodes(self._size)
        return [Member(rank, STATES[state], *rest) for rank, state, *rest in self._started().members()]

    def start(self):
        """Starts the ranks and returns."""
        if self._handle is not None:
            raise RuntimeError("cannot start a ring twice")
        core = _core.start()
        self._handle = core.Ring(self._work(), self._size, **{**_needs_of(self._func), **self._options})

    def join(self, timeout=None):
        """Waits until the ring has ended, and tells whether it has. RingError: a rank has failed."""
        ring = self._started()
        if not ring.join(timeout):
            return False
        if ring.exitcode() != 0:
            raise RingError(ring.report().rstrip() or "the ring ended with code %d" % ring.exitcode())
        return True

    def run(self):
        """Starts the ranks and waits for their end. RingError: a rank has failed."""
        self.start()
        try:
            self.join()
        except BaseException:
            self._handle.stop()
            raise

    def is_alive(self):
        """Tells whether the ring was started and has not ended."""
        return self._handle is not None and self._handle.exitcode() is None

    @property
    def exitcode(self):
        """0 when all ranks ended well, the code of the one that failed first, or None while the ring runs."""
        return self._started().exitcode()

    @property
    def report(self):
        """Tells in several lines which rank failed first, where and why; "" when none has."""
        return self._started().report()

    @property
    def sentinel(self):
        """A descriptor that polls readable once the ring has ended."""
        return self._started().sentinel()

    def signal(self, number, rank=None):
        """Sends a signal to every rank, or to one."""
        self._started().signal(number, *(() if rank is None else (rank,)))

    def terminate(self):
        """Ends the ring: the ranks get SIGTERM, have the grace to end, and are killed then."""
        self._started().stop()

    def barrier(self, timeout=None):
        """In a rank: waits until every rank is in this call, at most `timeout` seconds."""
        self._check_rank()
        barrier(timeout)

    def broadcast(self, data, root=0, timeout=None):
        """In a rank: gives every rank the bytes of rank `root`, and returns them; see fiber.ring.broadcast()."""
        self._check_rank()
        return broadcast(data, root, timeout)

    def allreduce(self, data, op="sum", timeout=None):
        """In a rank: returns the "sum", "min" or "max" of what all ranks give; see fiber.ring.allreduce()."""
        self._check_rank()
        return allreduce(data, op, timeout)

    def __enter__(self):
        if self._handle is None:
            self.start()
        return self

    def __exit__(self, *error):
        if self.is_alive():
            self.terminate()
        self._handle.join(None)

    def __repr__(self):
        return "<Ring of %d%s>" % (self._size, "" if self._rank is None else ", rank %d" % self._rank)

    def __getstate__(self):
        return {**self.__dict__, "_handle": None}

    def _check_rank(self):
        if self._rank is None:
            raise ValueError("only a rank can call barrier(), broadcast() or allreduce()")

    def _started(self):
        if self._handle is None:
            raise ValueError("the ring was not started")
        return self._handle

    def _work(self):
        _mp_context.set_spawning_popen(_pickling.Spawning())  # keys refuse to be pickled for anything but a child
        try:
            data = (_core.preparation("Ring"), _pickling.dumps(self))
        finally:
            _mp_context.set_spawning_popen(None)
        return _core.work("rank", _pickling.dumps(data))

    def _run_rank(self):
        self._rank, self._size = int(os.environ["FIBER_RANK"]), int(os.environ["FIBER_SIZE"])
        if self._initializer is not None:
            self._initializer(self, *self._initargs)
        self._func(self._rank, self._size)


def _needs_of(func):
    """The needs of each rank by @fiber.meta: of a cluster, for on this machine ranks take what there is."""
    needs = meta.job_of(func) if backend.get_backend().name != "local" else {}
    options = {"cpus_per_rank": int(needs.get("cpus", 0)), "gpus_per_rank": needs.get("gpus", 0)}
    return {key: value for key, value in options.items() if value}


def _translate(options):
    flags = sum(bit for name, bit in FLAGS.items() if options.pop(name, False))
    policy = options.pop("on_failure", "abort")
    if policy not in POLICIES:
        raise ValueError("on_failure must be one of %s, not %r" % (", ".join(POLICIES), policy))
    for name in ("timeout", "grace"):
        seconds = options.pop(name, None)
        if seconds is not None:
            options[name + "_ms"] = max(1, round(seconds * 1000))
    return {**options, "on_failure": POLICIES[policy], "flags": flags}


def _nodes(size):
    ip, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    first = RingNode(0, True, ip, int(port) if port else None)
    return [first, *(RingNode(rank, True, None, None) for rank in range(1, size))]


def run_rank(payload):
    """Runs in a rank; returns its exit code."""
    from .process import Process, bootstrap, receive
    ring = receive(payload)
    return bootstrap(Process(target=ring._run_rank, name="rank-" + os.environ["FIBER_RANK"]))
