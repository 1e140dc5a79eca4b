"""_core.py - the extension, joined to Fiber at its first use; what every module of the package starts from.

    core = start()          # the extension _fiber; in a master the first call joins the process to Fiber
    work(kind, payload)     # bytes for a process that the extension starts; _child.run() reads them

SPDX-License-Identifier: Apache-2.0
"""
import os
import sys
import time

import _thread

from . import __version__, _fiber

INTERRUPT_S = 5  # for children that Ctrl-C has reached, after the end of the program

_lock = _thread.RLock()
_started = False
_program = None  # the command that the library knows
_forked = False  # this is a fork() child of a process that had joined


def start():
    """Joins this process to Fiber, unless it is joined, and returns the extension."""
    if not _started:
        with _lock:
            if not _started:
                _join()
    if _forked:
        _fiber.init()  # says why not
    return _fiber


def _join():
    global _started
    from . import config
    set_program()
    with config.without_foreign_variables():
        _fiber.init()
    _started = True
    os.register_at_fork(after_in_child=_note_fork)
    _end_with_interpreter()  # before what may raise: the process is joined
    config.apply()
    prepare_image()


def prepare_image():
    """Where a job is a container without an image, tells the library what an image of this program needs."""
    if "FIBER_JOB" not in os.environ and _fiber.config_get("backend") == "docker":
        from . import image
        image.add_program()


def set_program():
    """Says what starts this program again, when that has changed; OSError when something was started already."""
    global _program
    argv = command()
    if argv != _program:
        _fiber.program(argv)
        _program = argv
        set_template()


def set_executable():
    """Another interpreter was named: it counts from now on, or from the start of this process."""
    if _started:
        set_program()


_preloaded = []  # modules that the template imports, by set_forkserver_preload()


def set_template(modules=None):
    """Says what starts a template, of which processes of this host are copies; modules: what it imports besides."""
    global _preloaded
    if modules is not None:
        _preloaded = list(modules)
    if modules is None or _started:
        _fiber.template(command("template") + _preloaded)


def _note_fork():
    global _forked
    _forked = True


def _end_with_interpreter():
    """After multiprocessing's own handler has joined the children and ended the daemons, whatever is open ends: in a
    child at once, before its threads are joined, else in end()."""
    from multiprocessing import process, util
    util.Finalize(None, _fiber.leave, exitpriority=-50)  # before managers end, and with them what threads wait for
    if process.parent_process():
        util.Finalize(None, _fiber.fini, exitpriority=-200)
    else:
        util.Finalize(None, _pass_interrupt_on, exitpriority=0)  # before children are joined


def _pass_interrupt_on():
    """Ends the children of a program that an interrupt ends: they have got none, unless it came from the terminal."""
    from .process import Process, _mp
    if getattr(sys, "last_type", None) is not KeyboardInterrupt or hasattr(sys, "ps1"):
        return
    children = [child for child in _mp.active_children() if isinstance(child, Process)]
    end = time.monotonic() + (INTERRUPT_S if _fiber.ctrl_c_came() else 0)
    try:
        for child in children:
            if not child.daemon:
                child.join(max(end - time.monotonic(), 0))
    finally:
        for child in children:
            child.terminate()


def end():
    """The interpreter ends, and nothing of the program runs any more but daemon threads."""
    if _started and not _forked:
        from multiprocessing import util
        util._exit_function()
        _fiber.fini()


def package_folder():
    """The folder that has the package."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def command(function="main"):
    """Returns the argv that starts this interpreter again, to run this function of _child.

    sys.executable is not resolved: an interpreter finds its virtual environment by the link through which it was called.
    """
    from subprocess import _args_from_interpreter_flags

    from . import _child
    python = os.environ.get("FIBER_PYTHON") or _executable()
    return [python, *_args_from_interpreter_flags(), "-c", _child.line(function)]


def _executable():
    spawn = sys.modules.get("multiprocessing.spawn")
    python = spawn.get_executable() if spawn else sys.executable
    return os.fsdecode(python) if python else "python3"


def versions():
    """The versions that must be equal in a parent and its child: the interpreter's minor one, and the package's."""
    return "%d.%d %s" % (*sys.version_info[:2], __version__)


def work(kind, payload):
    """Returns bytes for a process: _child.run() checks the versions and dispatches by kind.

    What this process has printed is written before a child prints, as multiprocessing does.
    """
    from multiprocessing import util
    util._flush_std_streams()
    return b"%s\n%s\n%s" % (versions().encode(), kind.encode(), payload)


def future_of(get, when_done):
    """Returns a future of concurrent.futures with what get() returns or raises; when_done(function) has that called."""
    from concurrent.futures import Future
    future = Future()
    future.set_running_or_notify_cancel()

    def settle():
        try:
            future.set_result(get())
        except BaseException as exc:
            future.set_exception(exc)
    when_done(settle)
    return future


def is_importing_main():
    """Tells whether this is a child that imports its main module, or reads what it is to run."""
    from multiprocessing import process

    from . import _child
    return _child.importing_main or getattr(process.current_process(), "_inheriting", False)


def preparation(name, with_main=True):
    """Returns what a child needs to be like this process, as multiprocessing's spawn has it; see _child.prepare().

    Without the main module, a child may be started while this process imports its own.
    RuntimeError: this is a child that imports its main module, which has no `if __name__ == "__main__"`.
    """
    from multiprocessing import context, process, spawn

    from . import _child, config, util
    actual = context._default_context._actual_context
    this = process.current_process()
    inheriting = getattr(this, "_inheriting", False)
    this._inheriting = with_main and is_importing_main()  # spawn has the sentence
    vars(sys.modules["__main__"]).setdefault("__spec__", None)  # pdb makes a main module without it
    try:
        data = spawn.get_preparation_data(name)  # sets the program's start method, which is the program's to set
    finally:
        context._default_context._actual_context = actual
        this._inheriting = inheriting
    if not with_main or util.is_in_interactive_console():
        data.pop("init_main_from_path", None)  # "<stdin>" is not a file
        data.pop("init_main_from_name", None)  # nor is IPython the program
    main = getattr(sys.modules["__main__"], "__file__", None) if with_main else None
    data["main"] = main, _child.checksum(main)
    del data["start_method"]
    data["authkey"] = bytes(data["authkey"])
    data["settings"] = config.travelling()
    data["locks"] = _child.locks
    data["modules"] = [m for m in ("fiber.managers",) if m in sys.modules]  # proxies need its transport
    return data
