"""_child.py - the side of a child: joins its parent, becomes like it, runs its work. It imports as little as it can.

SPDX-License-Identifier: Apache-2.0
"""
import os
import sys

# kind of work -> module and function, which is called with the payload and returns the exit code
KINDS = {
    "process": ("fiber.process", "run_child"),
    "rank": ("fiber.ring", "run_rank"),
    "worker": ("fiber._worker", "start"),
}

importing_main = False  # nothing can be started meanwhile: each child would start children
locks = None  # the address of the manager of the locks, which is known while the main module is imported


def main():
    """Runs in an interpreter that _core.command() started; does not return in a child."""
    from . import _fiber
    print_by_lines()
    _fiber.program(sys.orig_argv)  # what a child starts is started as it was
    _fiber.template([*sys.orig_argv[:-1], line("template")])
    _fiber.init()
    sys.exit("fiber: this process was not started by another one")


def line(function):
    """Returns the program of an interpreter that runs this function of ours."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return "import sys; sys.path.insert(0, %r); from fiber._child import %s; %s()" % (folder, function, function)


# The modules that processes and workers import, and that do not depend on the program. A module of multiprocessing says
# nothing about the process before it is asked.
LOADED = ("fiber._core", "fiber._worker", "fiber.config", "fiber.process", "fiber.connection", "multiprocessing.spawn",
          "importlib.util", "pkgutil", "runpy")


def template():
    """Runs in an interpreter that the library starts to have copies of it; does not return, but in a copy.

    Nothing of the program is loaded, but the modules that set_forkserver_preload() has named, our arguments.
    """
    import gc

    from . import _fiber
    for name in (*LOADED, *sys.argv[1:]):
        try:
            __import__(name)
        except Exception:  # the processes that need it will tell
            pass
    del sys.argv[1:]
    sys.orig_argv[sys.orig_argv.index("-c") + 1:] = [line("main")]
    gc.collect()
    gc.freeze()  # a collection in a copy leaves alone what all share
    environment = _fiber.template_serve()
    for variable in environment:
        name, _, value = variable.partition("=")
        if os.environ.get(name) != value:
            os.environ[name] = value
    main()


def start_frozen():
    """Does as the interpreter's option -c would, in a frozen program whose arguments are those of _core.command()."""
    if getattr(sys, "frozen", False) and "-c" in sys.argv:
        at = sys.argv.index("-c")
        for function in (main, template):
            if sys.argv[at + 1:at + 2] == [line(function.__name__)]:
                del sys.argv[at + 1], sys.argv[:at]
                function()


def run(work):
    """Runs the work of _core.work() and returns the exit code."""
    from ._core import versions
    parent, kind, payload = work.split(b"\n", 2)
    if parent.decode() != versions():
        sys.stderr.write("fiber: this process has Python and fiber %s, its parent has %s: they must be the same "
                         "(set FIBER_PYTHON to the interpreter for jobs)\n" % (versions(), parent.decode()))
        return 1
    module, function = KINDS[kind.decode()]
    __import__(module)
    return getattr(sys.modules[module], function)(payload)


def print_by_lines():
    """Output goes into pipes, which Python fills in blocks by default."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.reconfigure(line_buffering=True)
        except AttributeError:  # None, or a stream of somebody else
            pass


def prepare(data):
    """Becomes like the parent, by the data of _core.preparation(): for workers, without multiprocessing and runpy."""
    global importing_main
    sys.path[:] = data["sys_path"]
    sys.argv[:] = data["sys_argv"]
    enter(data["dir"])
    take_over(data)
    importing_main = True
    try:
        name, path = data.get("init_main_from_name"), data.get("init_main_from_path")
        if name:
            import_main_by_name(name)
        elif path:
            import_main_by_path(path)
    finally:
        importing_main = False


def checksum(path):
    """Returns a checksum of a file, or None if there is none."""
    from _imp import source_hash  # the import system has it already
    try:
        with open(path, "rb") as f:
            return source_hash(0, f.read())
    except (OSError, TypeError):
        return None


def take_over(data):
    """Takes what multiprocessing's own preparation does not have."""
    global locks
    locks = data["locks"]
    path, theirs = data["main"]
    if theirs and checksum(path) not in (theirs, None):
        sys.stderr.write("fiber: warning: %s is not the file that its parent has: if it is in an image, make the image "
                         "again\n" % path)
    name = data.get("init_main_from_name", "")
    if name.endswith("__main__"):  # it is not imported again; a main module without a name is a console's
        sys.modules["__main__"].__spec__ = type(sys.__spec__)(name, None)
    if data["settings"]:
        from . import config
        config.adopt(data["settings"])
    for module in data["modules"]:
        __import__(module)


def enter(folder):
    """A job on another host may not have the folder."""
    try:
        os.chdir(folder)
    except OSError:
        pass


def import_main_by_name(name):
    if name == "__main__" or name.endswith(".__main__"):  # python -m package: it would run the whole program
        return
    import runpy
    main = type(sys)("__mp_main__")
    main.__dict__.update(runpy.run_module(name, run_name="__mp_main__", alter_sys=True))
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main


def import_main_by_path(path):
    if os.path.splitext(os.path.basename(path))[0] == "ipython":  # its script runs a shell without a guard
        return
    main = sys.modules["__main__"]
    if getattr(sys, "frozen", False) and getattr(main, "__file__", None) == path:  # it runs up to freeze_support()
        sys.modules["__mp_main__"] = main
        return
    main = type(sys)("__mp_main__")
    main.__file__ = path
    code = code_of(path)
    # both: multiprocessing makes __mp_main__ an alias of __main__ when the program imports it
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main
    exec(code, main.__dict__)


def code_of(path):
    """The code of a program, which is its text, or compiled as `python -m compileall` does."""
    with open(path, "rb") as f:
        data = f.read()
    if data[2:4] == b"\r\n":  # so end the numbers of all versions; the import takes time
        from importlib.util import MAGIC_NUMBER
        if data[:4] == MAGIC_NUMBER:
            import marshal
            return marshal.loads(data[16:])
    return compile(data, path, "exec")
