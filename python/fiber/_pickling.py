"""_pickling.py - pickles for other processes.

Objects are pickled by _pickle, which is fast. When it refuses one, multiprocessing's reducers are tried, and then
cloudpickle, if it is installed. A program without a file (a notebook, a console) has functions that no other process can
import, so cloudpickle comes first there.

SPDX-License-Identifier: Apache-2.0
"""
import copyreg
import functools
import os
from sys import modules

import _io  # io.py has more that each child would load
import _pickle

PROTOCOL = 5
PLAIN = frozenset((bytes, str, int, float, bool, type(None)))  # no function is in one


_util = None


def _load_util():
    """An import in dumps() would cost more than the pickle of a small object."""
    global _util
    from . import util as _util
    return _util


_connections_known = False


def _know_connections():
    """A plain pickle of a connection of multiprocessing has the number of its descriptor, which is another file in the
    process that gets it, and is closed there. Its reducer passes the descriptor on."""
    global _connections_known
    module = modules["multiprocessing.connection"]
    if hasattr(module, "reduce_connection"):  # else another thread is importing it
        copyreg.pickle(module.Connection, module.reduce_connection)
        _connections_known = True


def dumps(obj):
    """Pickles an object for another process of the run."""
    if not _connections_known and "multiprocessing.connection" in modules:
        _know_connections()
    if type(obj) not in PLAIN and (_util or _load_util()).is_in_interactive_console():
        cloud = cloudpickle()
        if cloud:
            return _dumps_by_value(cloud, obj)
    try:
        return _pickle.dumps(obj, PROTOCOL)
    except (TypeError, AttributeError, _pickle.PicklingError):
        pass  # the error that is raised in the end has no other one as its context
    return _dumps_by_others(obj)


def dumps_for_child(obj):
    """Pickles what a process is started with.

    Multiprocessing's reducers come first: they refuse memory of multiprocessing.Value, which the others would copy without
    a word.
    """
    from . import util
    if util.is_in_interactive_console() and cloudpickle():
        return _dumps_by_value(cloudpickle(), obj)
    return _dumps_by_others(obj)


class Spawning:
    """Shows to multiprocessing's objects that are pickled for a process that it is being started."""

    DupFd = int  # multiprocessing's reducers wrap what duplicate_for_child() returns in it

    def duplicate_for_child(self, fd):
        raise ValueError("cannot send a file descriptor to a job: send a socket to the started process, or as an argument of "
                         "a task, and use fiber's Value, Array and Pipe in place of multiprocessing's own")


class _Workers(Spawning):
    def __init__(self):
        self.kept = []  # as in process.Popen


def dumps_for_workers(obj):
    """Pickles what all workers of a pool are started with: as for a child, memory and locks may be in it.

    Returns the pickle, and what must live as long as workers start."""
    from multiprocessing import context
    before, workers = context.get_spawning_popen(), _Workers()
    context.set_spawning_popen(workers)
    try:
        return dumps_for_child(obj), workers.kept
    finally:
        context.set_spawning_popen(before)


def _reduce_torch(reducer, obj):
    """Copies tensors and storages, for torch's reducers send descriptors and files of this host; children share memory."""
    child = modules["multiprocessing.context"].get_spawning_popen()
    memory = getattr(obj, "_untyped_storage", obj)  # methods of a TypedStorage print warnings
    if (reducer.__name__ == "reduce_tensor" or not hasattr(child, "kept") or not hasattr(memory, "is_shared") or
            memory.is_cuda or not memory.is_shared() or not memory.nbytes()):
        return obj.__reduce_ex__(PROTOCOL)
    if reducer.__name__ != "reduce_storage":
        return reducer(obj)  # by its untyped storage
    # The strategy by which it was shared: for another one torch would move the memory, under views of numpy, too.
    if modules["torch.multiprocessing"].get_sharing_strategy() == "file_system":
        memory = obj._share_filename_cpu_()
        path = "/dev/shm" + os.fsdecode(memory[1])
    else:
        fd, size = obj._share_fd_cpu_()  # the storage keeps its descriptor
        memory, path = (size,), "/proc/%d/fd/%d" % (os.getpid(), fd)
    child.kept.append(obj)
    stat = os.stat(path)
    return _open_storage, (type(obj), path, (stat.st_dev, stat.st_ino), *memory)


def _open_storage(kind, path, file, *memory):
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            stat = os.fstat(fd)
            if (stat.st_dev, stat.st_ino) == file:
                return kind._new_shared_filename_cpu(*memory) if memory[1:] else kind._new_shared_fd_cpu(fd, *memory)
        finally:
            os.close(fd)
    except OSError:
        pass
    raise OSError("a tensor that share_memory_() has shared is memory of one host, and this process runs on another host "
                  "or in a container; send tensor.clone() to have it copied")


def _reduce_socket(reducer, obj):
    """Makes a process that is started fetch the socket from this one. A socket is fetched once, so several workers or
    ranks cannot share one pickle: theirs is refused."""
    context = modules["multiprocessing.context"]
    child = context.get_spawning_popen()
    if hasattr(child, "pipes"):
        context.set_spawning_popen(None)
    try:
        return _fetch_socket, reducer(obj)
    finally:
        context.set_spawning_popen(child)


def _fetch_socket(rebuild, args):
    try:
        return rebuild(*args)
    except (OSError, EOFError) as error:
        raise OSError("cannot fetch a socket from the process that sent it: it is gone, or it runs on another host or in a "
                      "container") from error


def _reduce_ctype(obj):
    if hasattr(obj, "_wrapper"):
        from multiprocessing.sharedctypes import reduce_ctype
        return reduce_ctype(obj)
    return obj.__reduce_ex__(PROTOCOL)


def _reducer_instead(reducer):
    module = getattr(reducer, "__module__", None)
    if module == "torch.multiprocessing.reductions":
        return functools.partial(_reduce_torch, reducer)
    if getattr(reducer, "__name__", None) == "_reduce_socket":
        return functools.partial(_reduce_socket, reducer)
    # That of multiprocessing's Value is for its type, which one of ours may have, too.
    return _reduce_ctype if module == "multiprocessing.sharedctypes" else reducer


def _dumps_by_reducers(obj):
    """Pickles by multiprocessing's reducers, and by those that the program has registered."""
    from multiprocessing.reduction import ForkingPickler
    data = _io.BytesIO()
    pickler = ForkingPickler(data, PROTOCOL)
    for kind, reducer in pickler.dispatch_table.items():
        pickler.dispatch_table[kind] = _reducer_instead(reducer)
    pickler.dump(obj)
    return data.getvalue()


def _dumps_by_others(obj):
    cloud = cloudpickle()
    try:
        return _dumps_by_reducers(obj)
    except (TypeError, AttributeError, _pickle.PicklingError):
        if not cloud:
            raise
    return _dumps_by_value(cloud, obj)


def advise(error):
    """Adds to the error of a function that a job cannot import how functions of a program without a file travel."""
    if str(error).startswith("Can't get attribute") and _load_util().is_in_interactive_console() and not cloudpickle():
        error.add_note("functions of a console, of standard input and of `python -c` travel if cloudpickle is installed")


_pickler_by_value = None


def _dumps_by_value(cloud, obj):
    """Pickles functions by value, and what cloudpickle does not know by multiprocessing's reducers."""
    global _pickler_by_value
    if _pickler_by_value is None:
        from multiprocessing.reduction import ForkingPickler

        class Pickler(cloud.Pickler):
            def reducer_override(self, obj):
                reducer = ForkingPickler._extra_reducers.get(type(obj))
                if reducer and type(obj) not in self.dispatch_table:
                    return _reducer_instead(reducer)(obj)
                return super().reducer_override(obj)
        _pickler_by_value = Pickler
    data = _io.BytesIO()
    _pickler_by_value(data, PROTOCOL).dump(obj)
    return data.getvalue()


def cloudpickle():
    """Returns the module, or None where it is not installed."""
    try:
        import cloudpickle as module
    except ImportError:
        return None
    return module
