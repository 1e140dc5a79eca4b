# words.py - words that a finished tree has no use for, openings that hide the subject, long lines, tabs.
#
# SPDX-License-Identifier: Apache-2.0
import os
import re

import lint

# Written so that this file does not contain them.
WORDS = re.compile(r"\b(TO[D]O|FIX[M]E|X[X]X|HA[C]K)\b|\bnot[ ]implemented\b", re.IGNORECASE)
PATHS = re.compile(r"""(^|[\s"'`=(,:<>|])/(work|root|farm)(/|\b)""")
PASSED_OVER = {"LICENSE"}
LINE, TABLE, PROSE = 100, 120, 120

# Folders whose C is in plain English. There no comment, nor a sentence in one, begins with a bare relative clause,
# and no line is longer than LINE; elsewhere tables and lists in comments may be as wide as TABLE.
PLAIN = ("include/", "runtime/", "share/", "pool/", "ring/", "mpi_bridge/", "backends/", "cli/", "examples/",
         "python/")
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'', re.DOTALL)
OPENING = re.compile(r"(What|Whoever|Whose|Who|Of)\b")
SENTENCE = re.compile(r"[.;:] (What|Whoever|Whose|Who|Of)\b")
PYTHON = re.compile(r'(?:^ *|  )(?:#|""") ?(What|Whoever|Whose|Who|Of)\b')  # a comment, or a docstring
STILTED = re.compile(r"\b(sha[l]l|who[e]ver)\b", re.IGNORECASE)


def check(report, name):
    code = lint.language(name) == "c"
    for number, line in enumerate(lint.read(name).split("\n"), 1):
        word = WORDS.search(line)
        if word:
            report.complain(name, f'forbidden word "{word.group(0)}"', number)
        if PATHS.search(line):
            report.complain(name, "absolute path of somebody's machine", number)
        if code and "\t" in line:
            report.complain(name, "tab", number)
        found = PYTHON.search(line) if name.startswith("python/fiber/") else None
        if found:
            report.complain(name, f'a sentence begins with "{found.group(1)}": say what it is about', number)
        table = not name.startswith(PLAIN) and line.lstrip().startswith(("*", "/*", "#define"))
        limit = TABLE if table else LINE
        if code and len(line) > limit:
            report.complain(name, f"{len(line)} columns, {limit} at most", number)
        if lint.language(name) and line != line.rstrip():
            report.complain(name, "space at the end of the line", number)


def check_comments(report, name):
    """That each comment of a C file begins with its subject."""
    text = lint.read(name)
    for found in COMMENT.finditer(text):
        if not found.group(0).startswith("/"):
            continue
        number = text.count("\n", 0, found.start()) + 1
        words = " ".join(line.strip(" */") for line in found.group(0).split("\n")).strip()
        for pattern, at in ((OPENING, OPENING.match(words)), (SENTENCE, SENTENCE.search(words))):
            if at:
                report.complain(name, f'a sentence begins with "{at.group(1)}": say what it is about', number)
        if STILTED.search(words):
            report.complain(name, f'"{STILTED.search(words).group(0)}" in a comment', number)


def check_prose(report, name):
    """That sentences of a page begin with their subject, and that its lines fit: not in code, tables and headings."""
    fenced, before = False, ""
    for number, line in enumerate(lint.read(name).split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and len(line) > PROSE and not line.startswith(("|", "#", "    ")):
            report.complain(name, f"{len(line)} columns, {PROSE} at most", number)
        if fenced or line.startswith(("|", "#", "    ")):
            before = ""
            continue
        words = re.sub(r"^([*-]|\d+\.) ", "", line.strip())
        begins = OPENING.match(words) if not before or words != line.strip() or before.endswith((".", ";", ":")) else None
        found = begins or SENTENCE.search(words)
        if found:
            report.complain(name, f'a sentence begins with "{found.group(1)}": say what it is about', number)
        before = line.strip()


report = lint.Lint("words")
for file in lint.files():
    if os.path.basename(file) not in PASSED_OVER and not lint.is_binary(file):
        check(report, file)
        if file.startswith(PLAIN) and file.endswith((".c", ".h")):
            check_comments(report, file)
        if file.endswith(".md"):
            check_prose(report, file)
report.finish()
