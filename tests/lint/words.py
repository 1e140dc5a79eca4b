# words.py - words that a finished tree has no use for, paths of somebody's machine, tabs and long lines.
#
# SPDX-License-Identifier: Apache-2.0
import os
import re

import lint

# Written so that this file does not contain them.
WORDS = re.compile(r"\b(TO[D]O|FIX[M]E|X[X]X|HA[C]K)\b|\bnot[ ]implemented\b", re.IGNORECASE)
PATHS = re.compile(r"""(^|[\s"'`=(,:<>|])/(work|root|farm)(/|\b)""")
PASSED_OVER = {"LICENSE"}
LINE, TABLE = 100, 120  # tables and lists in comments may be wider


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
        limit = TABLE if line.lstrip().startswith(("*", "/*", "#define")) else LINE
        if code and len(line) > limit:
            report.complain(name, f"{len(line)} columns, {limit} at most", number)
        if lint.language(name) and line != line.rstrip():
            report.complain(name, "space at the end of the line", number)


report = lint.Lint("words")
for file in lint.files():
    if os.path.basename(file) not in PASSED_OVER and not lint.is_binary(file):
        check(report, file)
report.finish()
