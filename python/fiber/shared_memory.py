"""shared_memory.py - SharedMemory and ShareableList of multiprocessing, and shared(): memory of one host.

The names are those of the run. The memory ends with the run, also when the program is killed: no process has to watch
over it, and none removes it too early.

SPDX-License-Identifier: Apache-2.0
"""
import errno
import os
import re
import types
from _pickle import dumps, loads
from multiprocessing import shared_memory as _mp

from . import _core
from ._pickling import PROTOCOL

__all__ = ["ShareableList", "SharedMemory", "shared"]

CREATE_NEW = 2
NAME_MAX = 95  # bytes; the library's names are twice as long, and theirs may have to be written as digits
SHARED_NAME_MAX = 194  # the library's names are longer by "about."
PLAIN = re.compile(r"[a-zA-Z0-9_.-]+")


def _segment_name(name):
    """Returns the library's name for one that may have any characters."""
    name = name.lstrip("/")
    return "shm." + name if PLAIN.fullmatch(name) else "shm-" + name.encode().hex()


def _about(error, name):
    """The same error as multiprocessing has it."""
    return type(error)(error.errno, os.strerror(error.errno), "/" + name)


def _open_segment(name, size, flags):
    if "\0" in name:
        raise ValueError("embedded null character")
    if not name.strip("/") or "/" in name.lstrip("/"):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), "/" + name)
    if len(name.encode()) > NAME_MAX:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), "/" + name)
    try:
        return _core.start().Shared(_segment_name(name), size, flags)
    except (FileNotFoundError, FileExistsError) as error:
        raise _about(error, name) from None


class SharedMemory:
    """A block of memory that processes of this host attach to by its name."""

    def __init__(self, name=None, create=False, size=0, *, track=True):
        if not size >= 0:
            raise ValueError("'size' must be a positive integer")
        if create and size == 0:
            raise ValueError("'size' must be a positive number different from zero")
        if name is None and not create:
            raise ValueError("'name' can only be None if create=True")
        self._name = "psm_" + os.urandom(8).hex() if name is None else name
        self._memory = _open_segment(self._name, size if create else 0, CREATE_NEW if create else 0)
        self._buf = memoryview(self._memory)
        self._size = self._buf.nbytes

    @property
    def name(self):
        """The name by which other processes of the host attach."""
        return self._name

    @property
    def size(self):
        """The size in bytes."""
        return self._size

    @property
    def buf(self):
        """A memoryview of the block; None after close()."""
        return self._buf

    def close(self):
        """Ends the use of the block by this process. BufferError: an array or a slice is still made of `buf`."""
        if self._buf is not None:
            self._buf.release()
            self._buf = None
        if self._memory is not None:
            if self._memory.exports:
                raise BufferError("cannot close exported pointers exist")
            self._memory = None

    def unlink(self):
        """Removes the name. The block ends once no process uses it."""
        try:
            _core.start().Shared.delete(_segment_name(self._name))
        except FileNotFoundError as error:
            raise _about(error, self._name) from None

    def __reduce__(self):
        return type(self), (self._name,)

    def __repr__(self):
        return f"{type(self).__name__}({self.name!r}, size={self.size})"


def _with_our_memory(function):
    """The same function, for which SharedMemory is ours."""
    ours = types.FunctionType(function.__code__, {**function.__globals__, "SharedMemory": SharedMemory},
                              function.__name__, function.__defaults__, function.__closure__)
    ours.__kwdefaults__ = function.__kwdefaults__
    return ours


class ShareableList(_mp.ShareableList):
    """A list of fixed length with numbers, texts, bytes and None, in a block of shared memory."""

    __init__ = _with_our_memory(_mp.ShareableList.__init__)


# ---- Read-only, built once ----

_arrays = {}


def shared(name, build=None):
    """Returns a read-only object that exists once per host; the first process there that asks for `name` builds it.

    build() returns an array of numpy, or bytes or another object with a buffer; it runs in one process, and the others
    wait. An array comes back as an array of the same type and shape, anything else as a memoryview of its bytes. Without
    build: FileNotFoundError where nobody has built it.
    """
    if name not in _arrays:
        _arrays[name] = _open(name, build)
    return _arrays[name]


def _open(name, build):
    if not PLAIN.fullmatch(name) or len(name) > SHARED_NAME_MAX:
        raise ValueError(f"shared array {name!r}: a name has 1 to {SHARED_NAME_MAX} of the characters "
                         "a-z A-Z 0-9 - _ .")
    Shared = _core.start().Shared
    if build is None:
        try:
            about = Shared("about." + name, ABOUT_BYTES, writable=False)
        except FileNotFoundError as error:
            raise FileNotFoundError(error.errno, "no process of this host has built the shared array", name) from None
    else:
        about = Shared("about." + name, ABOUT_BYTES, build=lambda view: _build(Shared, name, build, view))
    length, dtype, shape = loads(about)
    memory = memoryview(Shared("data." + name, length, writable=False) if length else b"")
    if dtype is None:
        return memory
    import numpy
    return numpy.frombuffer(memory, dtype=dtype).reshape(shape)


ABOUT_BYTES = 1 << 16  # of the pickle of length, type and shape


def _build(Shared, name, build, about_view):
    """Fills the description of what build() returns, behind that itself."""
    made = build()
    dtype = shape = None
    if hasattr(made, "dtype") and hasattr(made, "shape"):
        import numpy
        made = numpy.asarray(made, order="C")
        if made.dtype.hasobject:
            raise TypeError("an array of Python objects cannot be shared")
        dtype, shape = made.dtype, made.shape
        made = made.reshape(-1).view("u1") if made.size else b""
    data = memoryview(made).cast("B")

    def fill(view):
        view[:] = data

    if data.nbytes:
        try:
            Shared.delete("data." + name)  # of a process that died before it had described it
        except FileNotFoundError:
            pass
        Shared("data." + name, data.nbytes, build=fill)
    about = dumps((data.nbytes, dtype, shape), PROTOCOL)
    about_view[:len(about)] = about
