"""image.py - an image of a Python program, for containers that have none.

With the backend docker and no image named, the library makes an image of the running executable, which is an
interpreter here. This module tells it what else the program needs: the standard library, the packages on sys.path, the
virtual environment and the script's folder. For registries and Kubernetes there is a command:

    python3 -m fiber.image build NAME prog.py [OPTION...]       # into the Docker engine
    python3 -m fiber.image export NAME prog.py [OPTION...]      # into a file, with -o FILE

Options are those of `fiber image`.

SPDX-License-Identifier: Apache-2.0
"""
import importlib.util
import os
import shutil
import sys
import sysconfig

from . import _core

__all__ = ["add_program", "program_files", "tree"]

MOST_BYTES, MOST_FILES = 64 << 20, 5000  # of a folder that nobody has named
LEFT = frozenset(("test", "tests", "idlelib", "turtledemo", "ensurepip", "site-packages", "dist-packages", "__pycache__"))

_added = None  # the descriptor of the list that image_add names


def tree(folder):
    """Returns the files of a folder, without version control, environments and links to folders.

    ValueError: it is too large to be taken without being named.
    """
    found, size = [], 0
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders
                            if name not in (".git", ".hg", ".svn", "__pycache__", "node_modules")
                            and not os.path.exists(os.path.join(here, name, "pyvenv.cfg")))
        for name in sorted(names):
            path = os.path.join(here, name)
            if os.path.isfile(path) and os.access(path, os.R_OK):  # others are of no use to the program here, either
                found.append(path)
                size += os.path.getsize(path)
        if size > MOST_BYTES or len(found) > MOST_FILES:
            raise ValueError(
                "%s has more than %d MiB or %d files, which is too large for an automatic image: start the program "
                "in a folder of its own, or name the files that it needs in image_add "
                "(FIBER_IMAGE_ADD=\"prog.py data\")"
                % (folder, MOST_BYTES >> 20, MOST_FILES))
    return found


def _script_folder():
    """Returns the folder (or archive) of the main module, or None for a console and for `python -c`."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.dirname(os.path.abspath(main)) if main else None


def _library():
    """Returns what is in the standard library, without its tests, and the bytecode of its modules."""
    folders = sorted({os.path.realpath(sysconfig.get_paths()[key]) for key in ("stdlib", "platstdlib")})
    found = [os.path.join(folder, name) for folder in folders for name in sorted(os.listdir(folder))
             if name not in LEFT and not name.startswith("config-")]
    return folders, found + [importlib.util.cache_from_source(path) for path in found if path.endswith(".py")]


def _editable():
    """Returns the files of packages that `pip install -e` has left where they are, outside of sys.path.

    The finder that setuptools installs for them has a MAPPING of names to places.
    """
    found = []
    for finder in sys.meta_path:
        module = sys.modules.get(getattr(finder, "__module__", None))
        for name in getattr(module, "MAPPING", ()):
            spec = importlib.util.find_spec(name)
            for folder in spec and spec.submodule_search_locations or ():
                found += tree(folder)
            if spec and not spec.submodule_search_locations:
                found.append(spec.origin)
    return found


def program_files(named=False):
    """Returns the paths that an image of this program needs beside the interpreter itself.

    With `named` the script's folder is left out, because the user has said what goes along.
    """
    library, found = _library()
    script = _script_folder()
    found.append(os.path.join(sys.prefix, "pyvenv.cfg"))
    for folder in dict.fromkeys((_core.package_folder(), *map(os.path.abspath, filter(None, sys.path)))):
        real = os.path.realpath(folder)
        if real not in library and (real != (script and os.path.realpath(script)) or os.path.isfile(real)):
            found.append(folder)
    found += _editable()
    if script and not named and os.path.realpath(script) not in map(os.path.realpath, found):
        found += tree(script)
    return [path for path in found if os.path.exists(path) and "\n" not in path]


def _quoted(path):
    """Returns a path as a word of image_add."""
    return path.replace("\\", "\\\\").replace(" ", "\\ ")


def add_program():
    """Tells the library what an image of this program needs, if it is going to make one."""
    global _added
    core = _core.start()
    if _added is not None or core.config_get("backend") != "docker" or core.config_get("image"):
        return
    before = core.config_get("image_add")
    try:
        files = program_files(named=bool(before))
    except ValueError:
        if not os.path.exists("/.dockerenv"):
            raise
        files = program_files(named=True)  # the library may take the image that this process is in
    lines = "".join(path + "\n" for path in files)
    _added = os.memfd_create("fiber-image", os.MFD_CLOEXEC)
    with open(_added, "wb", closefd=False) as file:
        file.write(os.fsencode(lines))
    words = [before, _quoted(_core.command()[0]), "@/proc/self/fd/%d" % _added]
    core.config_set("image_add", " ".join(filter(None, words)))


def _program():
    """Returns the path of the command `fiber`: the one of this package, else the one on the path."""
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_lib", "bin", "fiber")
    return own if os.path.exists(own) else shutil.which("fiber")


def main(argv):
    """Becomes `fiber image`; returns an exit code when it cannot."""
    if len(argv) < 3 or argv[0] not in ("build", "export"):
        print("usage: python3 -m fiber.image build|export NAME PROG.py [OPTION...]", file=sys.stderr)
        return 2
    command = _program()
    if command is None:
        print("fiber.image: there is no command fiber in PATH", file=sys.stderr)
        return 125
    verb, name, script, *options = argv
    if not os.path.isfile(script):
        print("fiber.image: there is no file %s" % script, file=sys.stderr)
        return 2
    paths = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    folders = list(dict.fromkeys([_core.package_folder(), *paths]))
    if "--cluster" not in options:  # the program starts jobs wherever it runs
        options.append("--cluster")
    if paths:
        options += ["-e", "PYTHONPATH=" + os.pathsep.join(paths)]
    try:
        files = [*folders, *tree(os.path.dirname(os.path.abspath(script)))]
    except ValueError as error:
        print("fiber.image: %s" % error, file=sys.stderr)
        return 2
    added = [word for path in files for word in ("-a", path)]
    os.execv(command, ["fiber", "image", verb, name, sys.executable, *added, *options])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
