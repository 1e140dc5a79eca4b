# code.py - tries each complete program of README.md and docs/*.md: compiles those in C, and runs those in Python and all
# whose output stands behind them.
#
# A complete program is a block marked ```c that has a main(), or one marked ```python that has an `if __name__`. Its
# output is the next block, with at most a sentence between them, when that is marked ```output.
#
# SPDX-License-Identifier: Apache-2.0
import difflib
import glob
import importlib.util
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
MAIN = {"c": re.compile(r"\bmain\s*\("), "python": re.compile(r"^if __name__", re.MULTILINE)}


def programs(text):
    """(line number, language, program, expected output or None) of each complete program."""
    blocks = list(BLOCK.finditer(text))
    for block, following in zip(blocks, blocks[1:] + [None]):
        language, code = block.groups()
        if language not in MAIN or not MAIN[language].search(code):
            continue
        expected = None
        if following and following.group(1) == "output" and following.start() - block.end() <= BETWEEN:
            expected = following.group(2)
        yield text.count("\n", 0, block.start()) + 1, language, code, expected


def build(language, code, folder):
    """The command that runs the program, or None and what the compiler said."""
    source, program = os.path.join(folder, "program." + language[:2]), os.path.join(folder, "program")
    with open(source, "w", encoding="utf-8") as f:
        f.write(code)
    if language == "python":
        return [sys.executable, source], ""
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-Wall", "-Wextra", "-Werror", *OPTIONS, f"-I{SOURCE}/include"]
    command += [source, "-o", program, f"-L{BUILD}", "-lfiber", f"-Wl,-rpath,{BUILD}", "-Wl,--build-id", "-pthread"]
    done = subprocess.run(command, capture_output=True, text=True)
    return (None, done.stderr) if done.returncode else ([program], "")


def check(language, code, expected):
    """What is wrong with it, or None."""
    with tempfile.TemporaryDirectory() as folder:
        command, said = build(language, code, folder)
        if not command:
            return said
        if expected is None and language == "c":
            return None
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500,
                              env={**os.environ, "PYTHONPATH": os.path.join(BUILD, "python")})
        if done.returncode:
            return f"ended with {done.returncode}: {done.stderr}"
        lines = [text.splitlines(keepends=True) for text in (expected or done.stdout, done.stdout)]
        return "".join(difflib.unified_diff(*lines, "the page", "the program")) or None


def cannot_run(language, code):
    """Why a program cannot run here, or None."""
    if language == "c":
        return None
    if OPTIONS or not os.path.exists(os.path.join(BUILD, "python", "fiber")):
        return "this build has no Python package, or a sanitizer"
    modules = dict.fromkeys(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE))
    missing = [module for module in modules if module != "fiber" and not importlib.util.find_spec(module)]
    return missing and "needs " + ", ".join(missing)


bad = tried = 0
for path in [os.path.join(SOURCE, "README.md"), *sorted(glob.glob(os.path.join(SOURCE, "docs", "*.md")))]:
    with open(path, encoding="utf-8") as page:
        for line, language, code, expected in programs(page.read()):
            where = f"{os.path.relpath(path, SOURCE)}:{line}"
            why = cannot_run(language, code)
            if why:
                print(f"{where}: not run: {why}")
                continue
            wrong = check(language, code, expected)
            tried += 1
            bad += wrong is not None
            print(f"{where}: {wrong or 'fine'}")
print(f"{tried} programs")
sys.exit(1 if bad or not tried else 0)
