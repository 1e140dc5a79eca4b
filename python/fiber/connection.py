"""connection.py - Pipe, Connection, Listener and Client: multiprocessing's, across hosts.

A connection is an end of a pipe of the library. It travels as the end's address, in arguments of processes and in
messages, and everybody who gets it holds the end: the other one reads the end of file once the last holder has closed
the end or died. So a program closes its own copy of an end that it gave away, as with multiprocessing. An end that was
received may be passed on in a message, and its handle is kept until the next process has connected.

SPDX-License-Identifier: Apache-2.0
"""
import errno
import io
import multiprocessing.connection as _mp
from _pickle import loads as _loads
from multiprocessing import BufferTooShort
from multiprocessing.connection import answer_challenge, deliver_challenge, wait
from multiprocessing.context import get_spawning_popen, set_spawning_popen

from . import _core, _pickling

__all__ = ["Client", "Connection", "Listener", "Pipe", "wait"]


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

LOOK = 0.5  # seconds after which a caller that was not accepted looks whether the listener is still there


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
        self._calls, self._door = Pipe(duplex=False)
        self._address = Address(self._door._handle.address())

    def accept(self):
        """Waits for a caller and returns a connection to it."""
        if self._calls is None:
            raise OSError("listener is closed")
        connection = None
        while connection is None:  # a caller that only looks whether we are here
            connection = self._calls.recv()
        if self._authkey:
            try:
                deliver_challenge(connection, self._authkey)
                answer_challenge(connection, self._authkey)
            except BaseException:
                connection.close()
                raise
        return connection

    def close(self):
        """Ends the listener. Connections that it has accepted go on."""
        calls, self._calls = self._calls, None
        if calls is not None:
            calls.close()
            self._door.close()

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


def _send_end(door, end):
    """A process that is being started, whose pickling may have brought us here, does not hold this end."""
    popen = get_spawning_popen()
    set_spawning_popen(None)
    try:
        door.send(end)
    finally:
        set_spawning_popen(popen)


def Client(address, family=None, authkey=None):
    """Returns a connection to the Listener that has this address."""
    if not isinstance(address, Address):
        return _mp.Client(address, family, authkey)
    if authkey is not None and not isinstance(authkey, bytes):
        raise TypeError("authkey should be a byte string")
    try:
        door = _connect(bytes(address), False, True)
    except BrokenPipeError as e:
        raise ConnectionRefusedError(errno.ECONNREFUSED, e.strerror) from None
    mine, its = Pipe()
    try:
        with door:
            with its:
                _send_end(door, its)
            if authkey is not None:
                _wait_accepted(mine, door)
        if authkey is not None:
            answer_challenge(mine, authkey)
            deliver_challenge(mine, authkey)
    except BaseException:
        mine.close()
        raise
    return mine


def _wait_accepted(mine, door):
    """Nobody has the other end of `mine` before the listener takes it. Should its process die, its door tells."""
    while not mine.poll(LOOK):
        try:
            door.send(None)
        except BrokenPipeError as e:
            raise ConnectionResetError(errno.ECONNRESET, e.strerror) from None
