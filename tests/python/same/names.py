"""names.py - names that a program finds in the module, and what they are.

SPDX-License-Identifier: Apache-2.0
"""
import multiprocessing
import queue

import multiprocessing as mp


def main():
    for name in ("TimeoutError", "ProcessError", "BufferTooShort", "AuthenticationError"):
        print(name, getattr(mp, name) is getattr(multiprocessing, name), getattr(mp, name).__mro__)
    print(mp.cpu_count() == multiprocessing.cpu_count(), mp.current_process() is multiprocessing.current_process())
    print(mp.active_children(), mp.parent_process(), mp.freeze_support())
    print(mp.get_logger() is multiprocessing.get_logger(), mp.get_logger().name)
    context = mp.get_context("spawn")
    print(context.get_start_method(), context.get_context() is context, "spawn" in mp.get_all_start_methods())
    for what in ("nothing", 3):
        try:
            mp.get_context(what)
        except Exception as error:
            print(type(error).__name__)
    for name in ("Process", "Pool", "Manager", "Pipe", "Queue", "SimpleQueue", "JoinableQueue", "Lock", "RLock", "Event",
                 "Condition", "Semaphore", "BoundedSemaphore", "Barrier", "Value", "Array", "RawValue", "RawArray",
                 "log_to_stderr", "set_start_method", "get_start_method", "allow_connection_pickling",
                 "set_executable", "set_forkserver_preload"):
        print(name, callable(getattr(mp, name)), callable(getattr(context, name)))
    print(issubclass(mp.Process, multiprocessing.process.BaseProcess), queue.Empty)
    try:
        mp.no_such_name
    except AttributeError as error:
        print(type(error).__name__)


if __name__ == "__main__":
    main()
