"""__init__.py - Fiber: programs written for multiprocessing, run on a cluster.

    import fiber as mp

    if __name__ == "__main__":
        with mp.Pool(8) as pool:
            print(pool.map(f, range(100)))

The module has the API of multiprocessing (start method "spawn"): Process, Pool, Pipe, queues, locks, managers. Processes
are jobs of the configured backend: this machine, Docker, Kubernetes, Slurm or others. Every name is loaded when it is
first used, so that a worker imports little; a name of _NAMES comes from the module that it stands beside, and every name
of _CONTEXT is bound to the default context.

SPDX-License-Identifier: Apache-2.0
"""
import atexit
import sys

__version__ = "0.1.0"

if "t" in sys.abiflags:  # the extension is made for other objects, but such an interpreter loads it
    raise ImportError("fiber needs an interpreter with the GIL, and this one is free-threaded (python%d.%dt)"
                      % sys.version_info[:2])

_MODULES = frozenset((
    "backend", "cli", "config", "connection", "context", "dummy", "experimental", "futures", "image", "managers", "meta",
    "objects", "pool", "process", "queues", "reduction", "resource_tracker", "ring", "shared_memory", "sharedctypes", "spawn",
    "synchronize", "util",
))

_NAMES = {
    "Process": "process",
    "Ring": "ring",
    "WorkerLost": "_errors",
    "RingError": "_errors",
    "AsyncManager": "managers",
    "init": "config",
    "reset": "config",
    "Connection": "connection",
    "shared": "shared_memory",
    "put": "objects",
}

_CONTEXT = (
    "Array", "AuthenticationError", "Barrier", "BoundedSemaphore", "BufferTooShort", "Condition", "Event",
    "JoinableQueue", "Lock", "Manager", "Pipe", "Pool", "ProcessError", "Queue", "RLock", "RawArray", "RawValue",
    "Semaphore", "SimpleQueue", "TimeoutError", "Value", "active_children", "allow_connection_pickling", "cpu_count",
    "current_process", "freeze_support", "get_all_start_methods", "get_context", "get_logger", "get_start_method",
    "log_to_stderr", "parent_process", "reducer", "set_executable", "set_forkserver_preload", "set_start_method",
)

SUBDEBUG, SUBWARNING = 5, 25  # levels of the logger

__all__ = sorted({"meta", *_NAMES, *_CONTEXT})


def __getattr__(name):
    if name.startswith("_"):  # a module of ours that is being imported, often in a worker, which need not have importlib
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib
    if name in _NAMES:
        value = getattr(importlib.import_module("." + _NAMES[name], __name__), name)
    elif name in _CONTEXT:
        from .context import default
        value = getattr(default, name)
    elif name in _MODULES:
        return importlib.import_module("." + name, __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


@atexit.register
def _end():
    """Runs after the functions that the program registers after the import, which may use its queues."""
    core = sys.modules.get("fiber._core")
    if core:
        core.end()


def __dir__():
    return sorted({*globals(), *_MODULES, *__all__})
