"""managers.py - managers: multiprocessing's own, whose connections are Fiber's.

A manager is a process that has objects; other processes of the run use them by proxies, wherever they run. BaseManager,
SyncManager and the proxies are those of the running CPython, to which one entry of their table of transports is added.
Unlike there, the end of a connection releases the locks that were taken through it, so a process that dies does not
leave them locked. A manager with an address of its own (a host and a port, a path) uses multiprocessing's sockets, so
programs outside of the run may connect to it.

    class Envs(fiber.AsyncManager):
        pass

    Envs.register("make", make_env)
    managers = [Envs() for _ in range(8)]             # a process each
    for manager in managers:
        manager.start()
    envs = [manager.make() for manager in managers]
    handles = [env.step(0) for env in envs]           # all work at the same time
    results = [handle.get() for handle in handles]

SPDX-License-Identifier: Apache-2.0
"""
import builtins
import collections
import contextlib
import itertools
import multiprocessing.managers as mpm
import queue
import threading
import time
import weakref
from _pickle import loads
from multiprocessing import TimeoutError, util
from multiprocessing.connection import wait
from multiprocessing.managers import (  # noqa: F401
    AcquirerProxy, ArrayProxy, AutoProxy, BarrierProxy, BaseProxy, ConditionProxy, DictProxy, EventProxy, IteratorProxy,
    ListProxy, MakeProxyType, Namespace, NamespaceProxy, PoolProxy, RemoteError, Token, Value, ValueProxy)
from multiprocessing.process import current_process

from . import _core, _pickling
from .connection import Address, Client, Connection, Listener, Pipe, answer_challenge, deliver_challenge

__all__ = ["AsyncManager", "BaseManager", "BaseProxy", "Handle", "Manager", "SharedMemoryManager", "SyncManager",
           "Token"]


def __getattr__(name):
    """Gives names of multiprocessing that are not here: those that programs import, such as State."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(mpm, name)


class _Serializer(str):
    """The name of the transport. Proxies pickle it, so a process that gets one has imported this module before."""

    def __reduce__(self):
        return _serializer, ()


def _serializer():
    return SERIALIZER


SERIALIZER = _Serializer("fiber")
CANCEL = "cancel"  # a request: the caller was interrupted; also its answer
LEAVE = "leave"  # a request: the thread has no more proxies, and gives back what it has taken
ENDED = "ended"  # a request: the thread has ended, but not its process, which keeps what the thread has taken
AGAIN = b"again"  # a connection was kept: prove the key once more, and one more request comes

# ---- The client's side: calls that signals interrupt ----


class _Kept(dict):
    """Connections that wait for a next request -> what they lead to: (address, family, authkey). Each step is atomic."""

    MOST = 8  # the servers of some may be gone

    def take(self, to):
        """Returns a connection that leads there, or None."""
        for conn in reversed(list(self)):
            if self.get(conn) == to and self.pop(conn, None):
                return conn
        return None

    def add(self, conn, to):
        """Adds a connection, and closes the oldest when there are too many."""
        self[conn] = to
        for oldest in list(self)[:-self.MOST]:
            if self.pop(oldest, None):
                oldest.close()


_kept = _Kept()
_of_ended = set()  # connections of threads that have ended; the server ends each one by which nothing is taken
util.register_after_fork(_kept, _Kept.clear)
util.register_after_fork(_of_ended, set.clear)


def _connect(to):
    """Returns a connection to a server: one that was kept, unless the server has ended it, or a new one."""
    while conn := _kept.take(to):
        try:
            conn.send_bytes(AGAIN)
            answer_challenge(conn, to[2])
            deliver_challenge(conn, to[2])
            return conn
        except builtins.TimeoutError:  # of a handler of a signal
            conn.close()
            raise
        except (EOFError, OSError):
            conn.close()
    return Client(*to)


def _note_end(free):
    """A thread has ended that has these connections, or its process ends."""
    if util.is_exiting():
        return
    with contextlib.suppress(EOFError, OSError):
        for conn in free:
            conn.send(ENDED)
            _of_ended.add(conn)
        _of_ended.difference_update(wait(list(_of_ended), 0))  # poll() would ask each server, and one may be stopped


_started = weakref.WeakValueDictionary()  # the address of a manager -> its process, which this process has started


def _say_how_it_ended(error, address):
    """The error of a lost connection gets a text: how the process of the manager has ended, as far as it is known here."""
    if not isinstance(error, BrokenPipeError) and (type(error) is not EOFError or error.args):
        return
    process = _started.get(address)
    popen = process and process._popen
    known = popen and popen.wait(1) is not None
    text = popen._handle.report() if known else "the process of the manager is gone, or has closed the connection"
    if isinstance(error, OSError):
        error.strerror = text
    else:
        error.args = (text,)


class _Line:
    """The way of a thread's proxies to the server: a connection that has one call at a time.

    A call that a signal's handler ends by an exception is cancelled in the server, so its answer is not taken for that of
    the next call, and what it has taken is given back. If the server does not say so in time, for it runs a method of the
    program, the connection is dropped, and with it the locks that were taken by it. Calls of a handler that interrupts a
    call have a connection of their own.
    """

    PATIENCE_S = 1.0

    def __init__(self, address, family=None, authkey=None):
        self._to = address, family, authkey
        self._greeting = None  # of a connection for more than one call
        self._free = [_connect(self._to)]
        self._busy = []  # connections of calls that have no answer
        self.lost = False  # the last call's connection was dropped

    def keep_one(self):
        """Returns a connection that is used for nothing else."""
        self._busy.append(self._take())
        return self._busy[-1]

    def _take(self):
        if self._free:
            return self._free.pop()
        conn = _connect(self._to)
        if self._greeting:
            mpm.dispatch(conn, *self._greeting)
        return conn

    def send(self, request):
        """Sends a call."""
        if request[1] == "accept_connection":
            self._greeting = request
            # it has the list: where the collector finds the line, it would close the connections first
            weakref.finalize(self, _note_end, self._free).atexit = False
        data = _pickling.dumps(request)  # before a connection is taken: an error here leaves that and its locks alone
        self.lost = True
        conn = self._take()
        send = conn._handle.send if isinstance(conn, Connection) else conn._send_bytes  # else multiprocessing's
        try:
            send(data)
        except BrokenPipeError as error:
            _say_how_it_ended(error, self._to[0])
            raise
        except ValueError as error:
            # The call is longer than max_message, and no part of it was sent: unless a handler of a signal, which has a
            # frame of its own, has raised this.
            if self._greeting and error.__traceback__.tb_next is None:
                self._put_back(conn)
            raise
        self._busy.append(conn)

    def recv(self):
        """Receives the answer."""
        conn = self._busy.pop()
        try:
            answer = conn.recv_bytes()
        except BaseException as error:
            if self._greeting and self._cancel(conn):
                self._put_back(conn)
            _say_how_it_ended(error, self._to[0])
            raise
        self._put_back(conn)
        return loads(answer)

    def _put_back(self, conn):
        self.lost = False
        if self._greeting:
            self._free.append(conn)
        else:
            _kept.add(conn, self._to)

    def _cancel(self, conn):
        """Tells whether the server has cancelled the call."""
        end = time.monotonic() + self.PATIENCE_S
        try:
            conn.send(CANCEL)
            while conn.poll(max(0, end - time.monotonic())):
                if conn.recv_bytes() == _pickling.dumps(CANCEL):
                    return True
        except (EOFError, OSError):
            pass
        return False

    def close(self):
        """Ends the connections."""
        while self._free:
            self._leave(self._free.pop())
        while self._busy:
            self._busy.pop().close()

    def _leave(self, conn):
        try:
            if self._greeting:
                conn.send(LEAVE)
                return _kept.add(conn, self._to)
        except (EOFError, OSError):
            pass
        conn.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


mpm.listener_client[SERIALIZER] = (Listener, _Line)


# ---- The server's side: what a connection has taken ----


class _Connection:
    """A connection as the server's thread of it uses it, and the objects that were taken through it."""

    current = threading.local()  # .connection: the one that this thread serves

    def __init__(self, conn):
        self._conn = conn
        self.close = conn.close
        self.name = threading.current_thread().name
        self.taken = set()
        self.undo = None  # for an answer that does not arrive,
        self.undo_sent = None  # or that nobody takes
        self.undo_at_end = None  # for a caller that ends before its next request

    def recv(self):
        """Receives a request. If the caller was interrupted before it took the last answer, undoes the last call."""
        while (request := self._conn.recv()) == CANCEL:
            if self.undo_sent:
                self.undo_sent()
            self.undo = self.undo_sent = self.undo_at_end = None
            self._conn.send(CANCEL)
        if request == ENDED:
            while self.taken and not self._conn.poll(1):
                pass
            self.close()
        if request in (LEAVE, ENDED):
            raise EOFError
        self.undo_at_end = None
        return request

    def send(self, message):
        """Sends an answer. Once it was sent, what was done is undone only if the caller cancels the call."""
        self.undo_sent = self.undo
        self._conn.send(_with_traceback(message[1]) if message[0] == "#ERROR" else message)
        self.undo = None

    def is_given_up(self):
        """Tells whether the caller, whom this thread has not answered, has cancelled the call, or is gone."""
        return self._conn.poll()

    def end(self):
        """Gives back what was taken and not given back."""
        undo, self.undo = self.undo or self.undo_at_end, None
        if undo:
            undo()
        for thing in list(self.taken):
            thing.connection_ended(self)

    @classmethod
    def served(cls):
        """The connection of this thread, or None."""
        return getattr(cls.current, "connection", None)


def _with_traceback(error):
    """Returns an answer with an exception whose cause is its traceback, as that of a pool's task.

    There is nothing to see in one that a method in C has raised, and in that of an empty or a full queue.
    """
    if not error.__traceback__.tb_next or isinstance(error, (queue.Empty, queue.Full)):
        return "#ERROR", error
    from multiprocessing.pool import ExceptionWithTraceback, RemoteTraceback
    error = ExceptionWithTraceback(error, error.__traceback__)
    try:
        loads(_pickling.dumps(error))
    except Exception as problem:  # the caller gets these texts as a RemoteError
        raise problem from RemoteTraceback(error.tb)
    return "#ERROR", error


LOOK_S = 0.2  # how often a wait looks whether it is given up


def _wait(wait, timeout):
    """Calls wait(seconds) again and again, and tells whether it returned True before the timeout was over.

    InterruptedError: the caller waits no more.
    """
    connection = _Connection.served()
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = LOOK_S if end is None else max(0, end - time.monotonic())
        if wait(min(left, LOOK_S)):
            return True
        if left == 0:
            return False
        if connection and connection.is_given_up():
            raise InterruptedError


class Server(mpm.Server):
    """multiprocessing's server, which gives back what a connection took when it ends."""

    KEPT_S = 1.0  # how long a connection waits for a next request

    def accepter(self):
        """Accepts connections. One that gets no thread is closed, and the next one is accepted."""
        while True:
            with contextlib.suppress(RuntimeError, MemoryError):
                super().accepter()

    def handle_request(self, conn):
        """Answers the request of a connection, and those that come on it soon after."""
        again = True
        try:
            while again:
                with contextlib.suppress(SystemExit):  # the end of serve_client()
                    self._handle_request(conn)
                again = conn.poll(self.KEPT_S) and conn.recv_bytes() == AGAIN
        except (EOFError, OSError):
            pass
        finally:
            conn.close()

    def serve_client(self, conn):
        """Serves the proxies of one thread of one process until it goes."""
        served = _Connection.current.connection = _Connection(conn)
        try:
            while error := self._serve(served):
                served.send(("#ERROR", error))
        finally:
            served.end()
            _Connection.current.connection = None

    def _serve(self, served):
        """Serves until a method raises what is no Exception, such as SystemExit, and returns the error that answers it."""
        try:
            super().serve_client(served)
        except BaseException as error:
            at = error.__traceback__.tb_next
            if not at.tb_next:  # it has left by itself: the connection has ended
                raise
            return RuntimeError("a method raised %s: %s" % (type(error).__name__, error)).with_traceback(at)


def _acquire(inner, blocking, timeout):
    if not blocking or timeout is not None and timeout < 0 and timeout != -1:
        return inner.acquire(blocking, timeout)  # which may refuse the timeout
    return inner.acquire(False) or _wait(lambda s: inner.acquire(True, s), None if timeout == -1 else timeout)


class _Taken:
    """Something that is taken and given back, and who has it."""

    _inherits = True  # others may give it back

    def __init__(self, inner):
        self._inner = inner
        self._takers = []
        self._left = 0  # how often processes ended that had it

    def acquire(self, blocking=True, timeout=-1):
        """Takes it, as threading's do."""
        if not _acquire(self._inner, blocking, timeout):
            return False
        self._note_taken()
        connection = _Connection.served()
        if connection:
            connection.undo = self.release
        return True

    def release(self):
        """Gives it back, as threading's do; also for a process that has ended, whose it was until then."""
        taker = self._taker()
        try:
            self._inner.release()
        except (RuntimeError, ValueError):
            if not self._left:
                raise
            self._left -= 1
        self._forget(taker)

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *error):
        self.release()

    def _note_taken(self):
        connection = _Connection.served()
        self._takers.append(connection)
        if connection:
            connection.taken.add(self)

    def _taker(self):
        connection = _Connection.served()
        return connection if connection in self._takers or not self._takers else self._takers[0]

    def _forget(self, taker):
        if taker in self._takers:
            self._takers.remove(taker)
        if taker and taker not in self._takers:
            taker.taken.discard(self)

    def connection_ended(self, connection):
        """Gives back what that connection has. Called in the thread of the connection."""
        while connection in self._takers:
            self._takers.remove(connection)
            try:
                self._inner.release()
                self._left += self._inherits
            except (RuntimeError, ValueError):
                pass
        connection.taken.discard(self)

    def __repr__(self):
        return repr(self._inner)

    def owner(self):
        """The name of the process that has it (with its thread, when that is not the main one) and how often."""
        takers = list(self._takers)
        return (takers[0].name if takers and takers[0] else None), len(takers)


class Lock(_Taken):
    """A lock of a server."""

    def __init__(self):
        super().__init__(threading.Lock())

    def locked(self):
        """Tells whether somebody has it."""
        return self._inner.locked()

    # For threading.Condition.
    def _is_owned(self):
        return self._inner.locked()

    def _release_save(self):
        self.release()

    def _acquire_restore(self, saved):
        self._inner.acquire()
        self._note_taken()


class RLock(_Taken):
    """A lock of a server that its holder, a thread of a process, may take again."""

    _inherits = False

    def __init__(self):
        super().__init__(threading.RLock())

    def locked(self):
        """Tells whether somebody has it."""
        return bool(self._takers)

    # For threading.Condition, which gives it back wholly while it waits.
    def _is_owned(self):
        return self._inner._is_owned()

    def _release_save(self):
        taker, takers = self._taker(), len(self._takers)
        state = self._inner._release_save()
        for _ in range(takers):
            self._forget(taker)
        return state, takers

    def _acquire_restore(self, saved):
        state, takers = saved
        self._inner._acquire_restore(state)
        for _ in range(takers):
            self._note_taken()


class Semaphore(threading.Semaphore):
    """A semaphore of a server. It may count events, which nobody gives back: so the end of a process changes nothing."""

    def acquire(self, blocking=True, timeout=None):
        """Takes one, as threading's do."""
        taken = _acquire(super(), blocking, timeout)
        connection = _Connection.served()
        if taken and connection:
            connection.undo = self.release
        return taken

    __enter__ = acquire

    def get_value(self):
        """How many may be taken."""
        return self._value


class BoundedSemaphore(_Taken):
    """A semaphore of a server that counts things of which there are so many."""

    def __init__(self, value=1):
        super().__init__(threading.BoundedSemaphore(value))
        self._bound = value

    def acquire(self, blocking=True, timeout=None):
        """Takes one, as threading's do."""
        return super().acquire(blocking, timeout)

    def get_value(self):
        """How many may be taken, and how many there are."""
        return self._inner._value, self._bound


class _Condition(threading.Condition):
    """threading's, whose waits end when the caller waits no more."""

    def wait(self, timeout=None):
        """Waits for a notice, as threading's do."""
        if not self._is_owned():
            raise RuntimeError("cannot wait on un-acquired lock")
        waiter, error = threading.Lock(), None
        waiter.acquire()
        self._waiters.append(waiter)
        saved = self._release_save()
        try:
            _wait(lambda seconds: waiter.acquire(True, seconds), timeout)
        except Exception as e:
            error = e
        self._acquire_restore(saved)
        told = waiter not in self._waiters
        if not told:
            self._waiters.remove(waiter)
        if error:
            if told:
                self.notify()
            raise error
        return told


class Event(threading.Event):
    """An event of a server."""

    def __init__(self):
        super().__init__()
        self._cond = _Condition(threading.Lock())


class Queue(queue.Queue):
    """A queue of a server: a get() that is given up takes nothing later."""

    def __init__(self, maxsize=0):
        super().__init__(maxsize)
        self.not_empty, self.not_full = _Condition(self.mutex), _Condition(self.mutex)
        self.all_tasks_done = _Condition(self.mutex)

    def get(self, block=True, timeout=None):
        """Takes an item, as queue.Queue does. If a signal ends the call of a proxy, the item is the next one again."""
        item = super().get(block, timeout)
        connection = _Connection.served()
        if connection:
            connection.undo = lambda: self._put_back(item)
        return item

    def _put_back(self, item):
        with self.mutex:
            self.queue.appendleft(item)
            self.not_empty.notify()


class Condition(_Condition):
    """A condition of a server. A notice for a process that dies with the lock goes to the next that waits."""

    def __init__(self, lock=None):
        super().__init__(RLock() if lock is None else _local_object(lock))

    def wait(self, timeout=None):
        """Waits for a notice, as threading's do."""
        told = super().wait(timeout)
        connection = _Connection.served()
        if connection:
            connection.undo = connection.undo_at_end = self.notify if told else None
        return told

    def owner(self):
        """The owner of its lock, and how many wait."""
        return self._lock.owner(), len(self._waiters)


def _local_object(lock):
    """A proxy of an object of this server is replaced by the object."""
    server = getattr(current_process(), "_manager_server", None)
    if isinstance(lock, BaseProxy) and server and lock._token.address == server.address:
        return server.id_to_obj[lock._id][0]
    return lock


# ---- Managers ----


class BaseManager(mpm.BaseManager):
    """multiprocessing's BaseManager, whose server is a process of Fiber."""

    _Server = Server

    def __init__(self, address=None, authkey=None, serializer=None, ctx=None, **options):
        if serializer is None:
            serializer = SERIALIZER if address is None or isinstance(address, Address) else "pickle"
        if ctx is None:
            from .context import default as ctx
        super().__init__(address, authkey, SERIALIZER if serializer == SERIALIZER else serializer, ctx, **options)

    def get_server(self):
        """Returns the server, which serves in this process with serve_forever()."""
        self._check_initial()
        return self._Server(self._registry, self._address, self._authkey, self._serializer)

    def start(self, initializer=None, initargs=()):
        """Starts the process of the manager, which runs initializer(*initargs) first."""
        self._check_initial()
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        reader, writer = Pipe(duplex=False)
        self._process = self._new_process(
            target=type(self)._run_server,
            args=(self._registry, self._address, self._authkey, self._serializer, writer, initializer, initargs))
        self._process.name = "%s-%s" % (type(self).__name__, ":".join(str(i) for i in self._process._identity))
        try:
            self._process.start()
            writer.close()
            self._address = _first_message(reader, self._process)
        except BaseException:  # nobody else knows the process
            if self._process._popen:
                self._process.terminate()
            raise
        finally:
            reader.close()
        self._process._config["daemon"] = True  # for our end: if its shutdown was lost, it is terminated, not waited for
        _started[self._address] = self._process
        self._state.value = mpm.State.STARTED
        arguments = [self._process, self._address, self._authkey, self._state, self._Client]
        if hasattr(self, "_shutdown_timeout"):  # not in the first releases of 3.11
            arguments.append(self._shutdown_timeout)
        self.shutdown = util.Finalize(self, type(self)._finalize_manager, args=arguments, exitpriority=0)

    def _new_process(self, **options):
        return self._ctx.Process(**options)

    @staticmethod
    def _finalize_manager(process, *args):
        try:
            mpm.BaseManager._finalize_manager(process, *args)
        except BaseException:  # an interrupt: nobody else ends the process
            process.terminate()
            raise

    def _check_initial(self):
        if self._state.value == mpm.State.STARTED:
            raise mpm.ProcessError("Already started server")
        if self._state.value == mpm.State.SHUTDOWN:
            raise mpm.ProcessError("Manager has shut down")


def _first_message(reader, process):
    """Returns what a child says first. EOFError: it ended before."""
    with contextlib.suppress(EOFError):
        if reader in wait([reader, process.sentinel]):
            return reader.recv()
    process.join(2)  # the end of the pipe may come before that of the process
    raise EOFError("the process of the manager ended before it was ready, with exit code %s" % process.exitcode)


def _pool(*args, **kwargs):
    from .pool import Pool
    return Pool(*args, **kwargs)


class SyncManager(BaseManager, mpm.SyncManager):
    """A manager with the types of multiprocessing's SyncManager: dict, list, Namespace, Queue, Lock, ..."""

    _registry = mpm.SyncManager._registry.copy()


for _type in (Lock, RLock, Semaphore, BoundedSemaphore):
    SyncManager.register(_type.__name__, _type, AcquirerProxy)
SyncManager.register("Event", Event, EventProxy)
SyncManager.register("Queue", Queue)
SyncManager.register("JoinableQueue", Queue)
SyncManager.register("Condition", Condition, ConditionProxy)
SyncManager.register("Pool", _pool, PoolProxy)


def Manager():
    """Returns a SyncManager that was started."""
    manager = SyncManager()
    manager.start()
    return manager


# ---- SharedMemoryManager ----


class SharedMemoryServer(Server):
    """A server that knows the blocks of shared memory of its manager."""

    public = [*Server.public, "track_segment", "release_segment", "list_segments"]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.segments = []

    def track_segment(self, c, name):
        """Adds a block, by its name."""
        self.segments.append(name)

    def release_segment(self, c, name):
        """Takes one out that was removed."""
        self.segments.remove(name)

    def list_segments(self, c):
        """Returns the names of all blocks."""
        return self.segments


class SharedMemoryManager(BaseManager):
    """A manager whose blocks of shared memory are removed when it is shut down. They are on the host that made them."""

    _Server = SharedMemoryServer

    def start(self, initializer=None, initargs=()):
        """Starts the process of the manager, which runs initializer(*initargs) first."""
        super().start(initializer, initargs)
        end = self.shutdown
        self.shutdown = util.Finalize(self, type(self)._remove_blocks, exitpriority=1,
                                      args=(self._address, self._authkey, self._Client, end))

    def SharedMemory(self, size):
        """Returns a new block of so many bytes."""
        from .shared_memory import SharedMemory
        return self._track(SharedMemory(create=True, size=size), lambda block: block)

    def ShareableList(self, sequence):
        """Returns a new ShareableList with the elements of the sequence."""
        from .shared_memory import ShareableList
        return self._track(ShareableList(sequence), lambda made: made.shm)

    def _track(self, made, block_of):
        try:
            with self._Client(self._address, authkey=self._authkey) as conn:
                mpm.dispatch(conn, None, "track_segment", (block_of(made).name,))
        except BaseException:
            block_of(made).unlink()
            raise
        return made

    @staticmethod
    def _remove_blocks(address, authkey, client, end):
        from .shared_memory import SharedMemory
        try:
            with client(address, authkey=authkey) as conn:
                names = mpm.dispatch(conn, None, "list_segments")
        except (EOFError, OSError):  # the run removes them at its end
            names = []
        for name in names:
            try:
                block = SharedMemory(name)
                block.unlink()
                block.close()
            except FileNotFoundError:  # of another host, or removed
                pass
        end()


# ---- AsyncManager ----


class Handle:
    """A call that was sent and is answered later; it can be awaited."""

    def __init__(self, proxy, calls):
        self._proxy, self._calls = proxy, calls  # the proxy keeps its connection open
        self._answer = self._error = None
        self._message = None  # the answer, once get() has unpickled it, and raised what that raises
        self._object = None  # a proxy that get() has made: its object counts one user for the answer

    def _is_done(self):
        return self._answer is not None or self._error is not None

    def ready(self):
        """Tells whether the answer is here."""
        self._calls.receive_until(self._is_done, 0)
        return self._is_done()

    def wait(self, timeout=None):
        """Waits until the answer is here, at most `timeout` seconds."""
        self._calls.receive_until(self._is_done, timeout)

    def get(self, timeout=None):
        """Waits for the answer and returns it, or raises the exception of the call. TimeoutError: it has not come."""
        self.wait(timeout)
        if self._error is not None:
            _say_how_it_ended(self._error, self._proxy._token.address)
            raise self._error
        if self._answer is None:
            raise TimeoutError("the call was not answered within %s seconds" % timeout)
        with self._calls.making:
            if self._message is None:
                self._message = loads(self._answer)
                self._answer = b""
            kind, result = self._message
            if kind != "#PROXY":
                return self._proxy._answer(kind, result)
            if self._object is None:
                self._object = self._proxy._answer(kind, result)
        return self._object

    def future(self):
        """Returns the answer as a future of concurrent.futures, for its wait() and as_completed(). A thread waits for it."""
        return _core.future_of(self.get, lambda settle: threading.Thread(target=settle, daemon=True).start())

    def __await__(self):
        import asyncio
        return asyncio.wrap_future(self.future()).__await__()

    def __reduce__(self):
        raise TypeError("a handle cannot be sent to another process: send what its get() returns")


class _Calls:
    """The calls on one connection that were not answered yet, in their order.

    One operation of C sends a call and notes its handle, and another one receives an answer and finds its handle. No
    signal divides them: an interrupt between the two steps would give each later call the answer of another one.
    """

    MANY = 32
    LOOK_S = 0.01  # how often a call that waits for room looks for answers

    def __init__(self, line):
        self.line = line
        self._conn = line.keep_one() if isinstance(line, _Line) else line
        self._lock = threading.RLock()  # a signal's handler may call while its thread waits for an answer
        self.making = threading.RLock()  # of proxies
        self._handles = collections.deque()
        self._answers = collections.deque()  # and their handles, until those have them

    def send(self, proxy, request):
        """Sends a call. A server that has many answers to send must not wait for us while we wait for it."""
        while len(self._handles) > self.MANY and self._conn.poll():
            self._receive_one(0)
        handle = Handle(proxy, self)
        with self._lock:
            self._send(request, handle)
        return handle

    def _send(self, request, handle):
        """With the lock. While there is no room, the server may wait until we have received its answers."""
        if not isinstance(self._conn, Connection):
            self._conn.send(request)
            self._handles.append(handle)
            return
        data = _pickling.dumps(request)
        while True:
            sent = map(self._conn._handle.try_send, (data,), (self.LOOK_S,))
            self._handles.extend(itertools.compress((handle,), sent))
            if self._has_sent(handle):
                return
            while self._handles and self._receive(0):
                pass

    def _has_sent(self, handle):
        """A handler of a signal may have sent others since, and received the answer."""
        handles = self._handles
        return bool(handles and handles[-1] is handle or handle._is_done() or handle in handles
                    or any(h is handle for _, h in self._answers))

    def receive_until(self, is_done, timeout):
        """Receives answers, for all handles of the connection."""
        end = None if timeout is None else time.monotonic() + timeout
        while not is_done():
            left = LOOK_S if end is None else max(0, end - time.monotonic())
            if not self._receive_one(min(left, LOOK_S), is_done) and left == 0:  # a handler may have received ours
                return

    def _receive_one(self, timeout, is_done=lambda: False):
        if not self._lock.acquire(timeout=timeout):
            return False
        try:
            self._deliver()
            return not is_done() and bool(self._handles) and self._receive(timeout)
        finally:
            self._lock.release()

    def _receive(self, timeout):
        """With the lock: receives an answer, or the end of all. False: none has come."""
        if not self._conn.poll(timeout):  # what is raised here comes from a handler of a signal
            return False
        try:
            receive = self._conn._handle.try_recv if isinstance(self._conn, Connection) else self._conn.recv_bytes
            answers = zip(iter(receive, None), iter(self._handles.popleft, None))
            self._answers.extend(itertools.islice(answers, 1))
        except (EOFError, OSError) as error:
            self.line = None  # the next call has another connection
            while self._handles:
                self._handles.popleft()._error = error
        self._deliver()
        return True

    def _deliver(self):
        """With the lock. When a signal interrupts this, it goes on at the next call."""
        while self._answers:
            answer, handle = self._answers[0]
            handle._answer = answer
            if self._answers and self._answers[0][1] is handle:  # else a handler of a signal has gone on
                self._answers.popleft()


class AsyncProxy(BaseProxy):
    """A proxy whose methods return a Handle at once. The calls of a thread on a manager are done in their order."""

    def _callmethod(self, methodname, args=(), kwds={}):
        if not hasattr(self._tls, "connection"):
            self._connect()
        calls = getattr(self._tls, "calls", None)
        if calls is None or calls.line is not self._tls.connection:
            calls = self._tls.calls = _Calls(self._tls.connection)
        try:
            return calls.send(self, (self._id, methodname, args, kwds))
        except BrokenPipeError as error:
            _say_how_it_ended(error, self._token.address)
            raise

    def _getvalue(self):
        return self._callmethod("#GETVALUE").get()

    def __str__(self):
        try:
            return self._callmethod("__repr__").get()
        except Exception:
            return repr(self)[:-1] + "; '__str__()' failed>"

    def _answer(self, kind, result):
        if kind == "#RETURN":
            return result
        if kind != "#PROXY":
            raise mpm.convert_to_error(kind, result)
        exposed, token = result
        token.address = self._token.address
        proxy = self._manager._registry[token.typeid][-1](
            token, self._serializer, manager=self._manager, authkey=self._authkey, exposed=exposed)
        conn = self._Client(token.address, authkey=self._authkey)
        mpm.dispatch(conn, None, "decref", (token.id,))
        conn.close()
        return proxy

    def __reduce__(self):
        rebuild, (kind, *rest) = super().__reduce__()
        return rebuild, (AsyncAutoProxy if getattr(self, "_isauto", False) else kind, *rest)


def AsyncAutoProxy(token, serializer, manager=None, authkey=None, exposed=None, incref=True, manager_owned=False):
    """Makes a proxy with the methods that are exposed."""
    auto = AutoProxy(token, serializer, manager=manager, authkey=authkey, exposed=exposed, incref=False)
    methods = {name: value for name, value in vars(type(auto)).items() if name in auto._exposed_}
    cls = type("AsyncAutoProxy[%s]" % token.typeid, (AsyncProxy,), {**methods, "_exposed_": auto._exposed_})
    proxy = cls(token, serializer, manager=manager, authkey=auto._authkey, incref=incref, manager_owned=manager_owned)
    proxy._isauto = True
    return proxy


def MakeAsyncProxyType(name, exposed):
    """Makes a type of proxy with these methods, which return a Handle."""
    sync = MakeProxyType(name, tuple(exposed))
    return type(name, (AsyncProxy,), {**{method: getattr(sync, method) for method in exposed}, "_exposed_": tuple(exposed)})


AsyncBaseProxy, AsyncProxyResult = AsyncProxy, Handle  # names of Fiber 0.2


class AsyncManager(BaseManager):
    """A manager whose objects answer later: a call of a method returns a Handle at once."""

    @classmethod
    def register(cls, typeid, callable=None, proxytype=None, *args, **kwargs):
        """Registers a type; its default proxy is one whose methods return a Handle."""
        super().register(typeid, callable, proxytype or AsyncAutoProxy, *args, **kwargs)
