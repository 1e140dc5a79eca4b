# budgets.py - no function over 100 lines or a complexity of 20, no file over 1,200 lines, no folder over 60 files, no room
# of the runtime or the backends over 35.
#
# The complexity is McCabe's as pmccabe counts it, a switch as one decision.
#
# SPDX-License-Identifier: Apache-2.0
import collections
import os
import shutil
import subprocess
import sys

import lint

FUNCTION_LINES, COMPLEXITY, FILE_LINES, FOLDER_FILES, ROOM_FILES = 100, 20, 1200, 60, 35


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
check_functions(report, [file for file in lint.files() if file.endswith(".c")])
report.finish()
