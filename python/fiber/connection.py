"""connection.py - Pipe, Connection, Listener and Client: multiprocessing's, across hosts.

A connection is an end of a pipe of the library. It travels as the end's address, in arguments of processes and in
messages, and everybody who gets it holds the end: the other one reads the end of file once the last holder has closed
the end or died. So a program closes its own copy of an end that it gave away, as with multiprocessing. An end that a
process has sent in a message stays open until another one has connected, or until the process that sent it ends.

SPDX-License-Identifier: Apache-2.0
"""
import errno
import io
import multiprocessing.connection as _mp
from _pickle import loads as _loads
from multiprocessing import BufferTooShort
from multiprocessing.connection import answer_challenge, deliver_challenge, wait
from multiprocessing.context import get_spawning_popen

from . import _core, _pickling

__all__ = ["Client", "Connection", "Listener", "Pipe", "wait"]


def __getattr__(name):
    """Gives names of multiprocessing that are not here: those that programs import, such as families."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_mp, name)


def Pipe(duplex=True):
    """Returns two connections, the ends of a pipe. With duplex=False, the first one only receives and the second sends."""
    ends = _core.start().Pipe.pair(not duplex)
    return Connection(ends[0], True, bool(duplex)), Connection(ends[1], bool(duplex), True)


class Connection(_mp._ConnectionBase):
    """An end of a pipe. Any thread may call; a process that gets it as an argument or a message has the same end.

    Of a file descriptor the class makes a connection of multiprocessing's, which stays on this host.
    """

    def __new__(cls, handle, readable=True, writable=True):
        if isinstance(handle, int):
            return _mp.Connection(handle, readable, writable)
        return super().__new__(cls)

    def __init__(self, handle, readable=True, writable=True):
        if not readable and not writable:
            raise ValueError("at least one of `readable` and `writable` must be True")
        self._handle = handle
        self._readable = readable
        self._writable = writable

    def __reduce__(self):
        self._check_closed()
        popen = get_spawning_popen()
        if popen is not None and hasattr(popen, "pipes"):
            popen.pipes.append(self._handle)  # the process holds the end from its start on
        return _connect, (self._handle.address(), self._readable, self._writable)

    def _close(self):
        self._handle.close()

    def fileno(self):
        """A descriptor that polls readable while recv() need not wait. Do not read it."""
        self._check_closed()
        return self._handle.fileno()

    def send(self, obj):
        """Sends an object, which is pickled."""
        self._check_closed()
        self._check_writable()
        self._handle.send(_pickling.dumps(obj))

    def recv(self):
        """Receives an object. EOFError: the other end is gone, and all that it sent has been received."""
        self._check_closed()
        self._check_readable()
        return _loads(self._handle.recv())

    def recv_bytes(self, maxlength=None):
        """Receives a message as bytes. One that is longer than maxlength ends the connection, with an OSError."""
        if maxlength is not None:
            return super().recv_bytes(maxlength)
        self._check_closed()
        self._check_readable()
        return bytes(self._handle.recv())

    def recv_bytes_into(self, buf, offset=0):
        """Receives a message into a buffer and returns its length. BufferTooShort has the message when it is longer."""
        self._check_closed()
        self._check_readable()
        with memoryview(buf) as m, m.cast("B") as to:
            if offset < 0:
                raise ValueError("negative offset")
            if offset > to.nbytes:
                raise ValueError("offset too large")
            message = self._handle.recv()
            if offset + len(message) > to.nbytes:
                raise BufferTooShort(bytes(message))
            to[offset:offset + len(message)] = message
            return len(message)

    def _send_bytes(self, buf):
        self._handle.send(buf)

    def _recv_bytes(self, maxsize=None):
        message = self._handle.recv()
        if maxsize is not None and len(message) > maxsize:
            return None
        buf = io.BytesIO()
        buf.write(message)
        return buf

    def _poll(self, timeout):
        return self._handle.poll(timeout)


def _connect(address, readable, writable):
    return Connection(_core.start().Pipe(address), readable, writable)


# ---- Listener and Client ----
#
# A listener has the pipes of its connections, so that what a caller has sent is there when the caller has ended before
# accept(), and a listener that ends ends all calls. Callers take the address of a pipe from a queue, and put it into
# another one when they have connected. Before they connect, the listener knows that they have it: otherwise, when a caller
# is killed, the queue would give the address of its pipe to the next caller, too. A caller that ends meanwhile leaves a
# pipe by which nobody calls; so each caller first asks for one more, by an empty message.

SPARE = 8  # pipes that wait for callers; as many calls need not wait for accept()


class Address(bytes):
    """The address of a Listener. It is a secret, which no repr shows."""

    def __repr__(self):
        return "<address of a fiber.connection.Listener>"

    __str__ = __repr__

    def __reduce__(self):
        return Address, (bytes(self),)


class Listener:
    """Accepts connections of processes on any host that know its address: an object that travels in arguments.

    A host and port, or a path, as `address`, or a family of multiprocessing's, gives a listener of multiprocessing's, for
    programs that are not of the run.
    """

    def __new__(cls, address=None, family=None, backlog=1, authkey=None):
        if address is not None or family is not None:
            return _mp.Listener(address, family, backlog, authkey)
        return super().__new__(cls)

    def __init__(self, address=None, family=None, backlog=1, authkey=None):
        if authkey is not None and not isinstance(authkey, bytes):
            raise TypeError("authkey should be a byte string")
        self._authkey = authkey
        queue = _core.start().Queue
        self._calls, self._spare = queue(0, None), queue(0, None)
        self._address = Address(self._calls.address() + self._spare.address())
        self._ends = {}  # address of the other end -> end
        for _ in range(max(backlog, SPARE)):
            self._offer(self._spare)

    def _offer(self, spare):
        mine, its = Pipe()
        with its:
            address = its._handle.address()
        self._ends[address] = mine
        spare.put(address, None)

    def accept(self):
        """Waits for a caller and returns a connection to it."""
        spare, calls = self._spare, self._calls  # another thread may close the listener meanwhile
        if calls is None:
            raise OSError("listener is closed")
        try:
            while not (end := calls.get(None)):
                self._offer(spare)
            connection = self._ends.pop(end)
        except (EOFError, KeyError):
            raise OSError("listener is closed") from None
        if self._authkey is not None:
            try:
                deliver_challenge(connection, self._authkey)
                answer_challenge(connection, self._authkey)
            except BaseException:
                connection.close()
                raise
        return connection

    def close(self):
        """Ends the listener. Connections that it has accepted go on."""
        if self._calls is not None:
            self._calls.shut()
            self._spare.shut()
            self._calls = self._spare = None
        while self._ends:
            self._ends.popitem()[1].close()

    @property
    def address(self):
        """The address for Client()."""
        return self._address

    @property
    def last_accepted(self):
        """The address of the last caller: not known."""
        return None

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc_value, exc_tb):
        self.close()


def Client(address, family=None, authkey=None):
    """Returns a connection to the Listener that has this address."""
    if not isinstance(address, Address):
        return _mp.Client(address, family, authkey)
    if authkey is not None and not isinstance(authkey, bytes):
        raise TypeError("authkey should be a byte string")
    connection = _call(address)
    if authkey is not None:
        try:
            answer_challenge(connection, authkey)
            deliver_challenge(connection, authkey)
        except BaseException:
            connection.close()
            raise
    return connection


def _call(address):
    queue, half = _core.start().Queue, len(address) // 2
    try:
        calls, spare = queue(address=bytes(address[:half])), queue(address=bytes(address[half:]))
        calls.put(b"", None)
        end = spare.get(None)
        spare.size()  # the owner answers when it knows that the end is taken
        connection = _connect(end, True, True)
        calls.put(end, None)
        return connection
    except (BrokenPipeError, EOFError) as e:
        raise ConnectionRefusedError(errno.ECONNREFUSED, str(e)) from None
