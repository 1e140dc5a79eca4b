# opening.py - every source file opens with a line that says what it is ("name - ...") and names its licence.
#
# SPDX-License-Identifier: Apache-2.0
import os
import re

import lint

OPENING = {
    "c": r"/\* {name} - \S.*",
    "shell": r"# {name} - \S.*",
    "cmake": r"# {name} - \S.*",
    "python": r'(# |"""){name} - \S.*',
}
LICENCE = re.compile(r"SPDX-License-Identifier: Apache-2\.0\b")
LICENCE_WITHIN = 120  # lines; a header's design may be long


def check(report, name, opening):
    lines = lint.read(name).split("\n")
    first = 1 if lines[0].startswith("#!") else 0
    if not re.fullmatch(opening.format(name=re.escape(os.path.basename(name))), lines[first]):
        report.complain(name, f'does not open with "{os.path.basename(name)} - what it is"', first + 1)
    if not LICENCE.search("\n".join(lines[:LICENCE_WITHIN])):
        report.complain(name, "has no SPDX line")


report = lint.Lint("opening")
for file in lint.files():
    if lint.language(file):
        check(report, file, OPENING[lint.language(file)])
report.finish()
