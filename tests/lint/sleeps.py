# sleeps.py - no test synchronises by sleeping. A test that sleeps for another reason is in the list of exceptions.
#
# SPDX-License-Identifier: Apache-2.0
import re

import lint

SLEEPS = {
    "c": re.compile(r"\b(sleep|usleep|nanosleep|clock_nanosleep|thrd_sleep|uv_sleep|nn_sleep)\s*\(|\bpoll\(NULL, 0,"),
    "shell": re.compile(r"(^|[;&|(\s])sleep\s+[\d.$]"),
    "python": re.compile(r"\bsleep\("),
}


def without_comments(language, text):
    def blank(found):
        return re.sub(r"[^\n]", " ", found.group(0))

    if language == "c":
        return re.sub(r"/\*.*?\*/|//[^\n]*", blank, text, flags=re.DOTALL)
    return re.sub(r"(?m)^\s*#.*$", blank, text)


report = lint.Lint("sleeps")
for file in lint.files():
    if file.startswith("tests/") and lint.language(file) in SLEEPS:
        code = without_comments(lint.language(file), lint.read(file))
        for number, line in enumerate(code.split("\n"), 1):
            if SLEEPS[lint.language(file)].search(line):
                report.complain(file, "sleeps; wait for the event, or say why in tests/lint/exceptions", number)
report.finish()
