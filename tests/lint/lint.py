# lint.py - what the lints share: the files of the tree, the list of exceptions, the report.
#
# SPDX-License-Identifier: Apache-2.0
import os
import re
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SKIPPED = 77
# The folders of the product that are C.
PRODUCT = ("runtime/", "share/", "pool/", "ring/", "mpi_bridge/", "backends/", "cli/")


def files():
    """The files of the tree as paths from its root: what git knows or would add, else all that is not built."""
    git = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        out = subprocess.run(git, capture_output=True, check=True).stdout.decode()
        names = [name for name in out.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = []
        for folder, folders, plain in os.walk(ROOT):
            folders[:] = [f for f in folders if f != "build" and not f.startswith(".git")]
            names += [os.path.relpath(os.path.join(folder, name), ROOT) for name in plain]
    return sorted(name for name in set(names) if os.path.isfile(os.path.join(ROOT, name)))


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8", errors="replace") as f:
        return f.read()


def is_binary(name):
    with open(os.path.join(ROOT, name), "rb") as f:
        return b"\0" in f.read(4096)


def language(name):
    """"c", "shell", "python", "cmake" or None."""
    base = os.path.basename(name)
    suffixes = {".c": "c", ".h": "c", ".sh": "shell", ".py": "python", ".cmake": "cmake"}
    if base == "CMakeLists.txt":
        return "cmake"
    if os.path.splitext(base)[1] in suffixes:
        return suffixes[os.path.splitext(base)[1]]
    if "." not in base and not is_binary(name):
        first = read(name).split("\n", 1)[0]
        if first.startswith("#!"):
            return "python" if "python" in first else "shell"
    return None


def product():
    """The product's C files and headers, without the public one."""
    return [name for name in files() if name.startswith(PRODUCT) and name.endswith((".c", ".h"))]


TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"((?:[^"\\\n]|\\.)*)"|\'(?:[^\'\\\n]|\\.)*\'', re.DOTALL)


def literals(text):
    """The string literals of C, each with its line: comments and includes are passed over."""
    for found in TOKEN.finditer(text):
        before = text[text.rfind("\n", 0, found.start()) + 1:found.start()]
        if found.group(1) is not None and not before.lstrip().startswith("#include"):
            yield text.count("\n", 0, found.start()) + 1, found.group(1)


def without_comments(text):
    """The text of C with blanks in place of comments: lines stay where they are."""
    return TOKEN.sub(lambda t: re.sub(r"[^\n]", " ", t.group()) if t.group().startswith("/") else t.group(), text)


class Lint:
    """Collects complaints about `where` (a file or file:function), less those that the list of exceptions lets pass."""

    def __init__(self, name):
        self.name, self.bad = name, 0
        self.excused, self.used = set(), set()
        for line in read("tests/lint/exceptions").splitlines():
            fields = line.split(None, 2)
            if not fields or line.startswith("#"):
                continue
            if len(fields) < 3:
                self.bad += 1
                print(f"tests/lint/exceptions: no reason given: {line}")
            elif fields[0] == name:
                self.excused.add(fields[1])

    def complain(self, where, text, line=None):
        if where in self.excused:
            self.used.add(where)
            return
        self.bad += 1
        at = where if line is None else f"{where}:{line}"
        print(f"{at}: {text}")

    def finish(self):
        for where in sorted(self.excused - self.used):
            self.bad += 1
            print(f"tests/lint/exceptions: {self.name} {where}: not needed any more")
        sys.exit(1 if self.bad else 0)
