# budgets.py - no function over 100 lines or a complexity of 20, no file over 1,200 lines, no folder over 60 files, no room
# of the runtime or the backends over 35, and few lines of the product that go on only `if (rc == 0)`.
#
# The complexity is McCabe's as pmccabe counts it, a switch as one decision. A ladder of `if (rc == 0)` makes its reader
# carry rc through the whole function. Some such lines are good: a failure that is one of two normal outcomes. So their
# number is bounded, and no single line is wrong. Loops are not counted: most of them wait for a condition.
#
# SPDX-License-Identifier: Apache-2.0
import collections
import os
import re
import shutil
import subprocess
import sys

import lint

FUNCTION_LINES, COMPLEXITY, FILE_LINES, FOLDER_FILES, ROOM_FILES = 100, 20, 1200, 60, 35
LADDER_LINES = 85
LADDER = re.compile(r"if \(!?\(?(rc|err|error|rv|status|[a-z_]+(->|\.)rc) ?(==|>=) 0\b")


def check_functions(report, sources):
    out = subprocess.run(["pmccabe", *sources], cwd=lint.ROOT, capture_output=True, text=True, check=True).stdout
    for row in out.splitlines():
        complexity, _, _, first, lines, place = row.split("\t")
        file, function = place.split("(")[0], place.rsplit(" ", 1)[1]
        where = f"{file}:{function}"
        if int(lines) > FUNCTION_LINES:
            report.complain(where, f"{lines} lines, {FUNCTION_LINES} at most (line {first})")
        if int(complexity) > COMPLEXITY:
            report.complain(where, f"complexity {complexity}, {COMPLEXITY} at most (line {first})")


def check_ladders(report):
    lines = collections.Counter()
    for file in lint.product():
        lines[file] = sum(bool(LADDER.search(line)) for line in lint.without_comments(lint.read(file)).splitlines())
    total = sum(lines.values())
    if total > LADDER_LINES:
        most = ", ".join(f"{file} ({count})" for file, count in lines.most_common(5))
        report.complain("product", f"{total} lines go on only if rc is 0, {LADDER_LINES} at most: return at the "
                        "first failure, go to a label that releases, or join steps in one condition, "
                        f"if ((rc = a()) < 0 || (rc = b()) < 0); most of the lines are in {most}")


if not shutil.which("pmccabe"):
    print("pmccabe is missing")
    sys.exit(lint.SKIPPED)
report = lint.Lint("budgets")
for file in lint.files():
    if lint.language(file):
        count = lint.read(file).count("\n")
        if count > FILE_LINES:
            report.complain(file, f"{count} lines, {FILE_LINES} at most")
for folder, count in collections.Counter(os.path.dirname(file) for file in lint.files()).items():
    most = ROOM_FILES if folder.startswith(("runtime/", "backends/")) else FOLDER_FILES
    if count > most:
        report.complain(folder, f"{count} files, {most} at most")
check_ladders(report)
check_functions(report, [file for file in lint.files() if file.endswith(".c")])
report.finish()
