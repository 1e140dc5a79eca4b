# code.py - compiles each complete C program of README.md and docs/*.md, and runs it where its output stands behind it.
#
# A complete program is a block marked ```c that has a main(). Its output is the next block, with at most a sentence
# between them, when that is marked ```output.
#
# SPDX-License-Identifier: Apache-2.0
import difflib
import glob
import os
import re
import shlex
import subprocess
import sys
import tempfile

SOURCE, BUILD = os.environ["TEST_SOURCE_DIR"], os.environ["TEST_BINARY_DIR"]
OPTIONS = shlex.split(os.environ.get("TEST_SANITIZER_OPTIONS", ""))
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
BETWEEN = 120  # characters from a program to its output


def programs(text):
    """(line number, program, expected output or None) of each complete program."""
    blocks = list(BLOCK.finditer(text))
    for block, following in zip(blocks, blocks[1:] + [None]):
        if block.group(1) != "c" or not re.search(r"\bmain\s*\(", block.group(2)):
            continue
        expected = None
        if following and following.group(1) == "output" and following.start() - block.end() <= BETWEEN:
            expected = following.group(2)
        yield text.count("\n", 0, block.start()) + 1, block.group(2), expected


def build(code, folder):
    """The program's path, or None and what the compiler said."""
    source, program = os.path.join(folder, "program.c"), os.path.join(folder, "program")
    with open(source, "w", encoding="utf-8") as f:
        f.write(code)
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-Wall", "-Wextra", "-Werror", *OPTIONS, f"-I{SOURCE}/include"]
    command += [source, "-o", program, f"-L{BUILD}", "-lfiber", f"-Wl,-rpath,{BUILD}", "-Wl,--build-id", "-pthread"]
    done = subprocess.run(command, capture_output=True, text=True)
    return (None, done.stderr) if done.returncode else (program, "")


def check(code, expected):
    """What is wrong with it, or None."""
    with tempfile.TemporaryDirectory() as folder:
        program, said = build(code, folder)
        if not program:
            return said
        if expected is None:
            return None
        done = subprocess.run([program], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500)
        if done.returncode:
            return f"ended with {done.returncode}: {done.stderr}"
        lines = [text.splitlines(keepends=True) for text in (expected, done.stdout)]
        return "".join(difflib.unified_diff(*lines, "the page", "the program")) or None


bad = tried = 0
for path in [os.path.join(SOURCE, "README.md"), *sorted(glob.glob(os.path.join(SOURCE, "docs", "*.md")))]:
    with open(path, encoding="utf-8") as page:
        for line, code, expected in programs(page.read()):
            wrong = check(code, expected)
            tried += 1
            bad += wrong is not None
            print(f"{os.path.relpath(path, SOURCE)}:{line}: {wrong or 'fine'}")
print(f"{tried} programs")
sys.exit(1 if bad or not tried else 0)
