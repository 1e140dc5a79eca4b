# backend_names.py - no code asks which backend it has: the tables of the registry answer (runtime/proc/backend.h), so a new
# backend changes nothing above it. A backend's name is a string in its room and in the registry alone.
#
# SPDX-License-Identifier: Apache-2.0
import re

import lint

REGISTRY = "backends/backends.c"
NAMES = re.findall(r"\bX\((\w+)\)\s", lint.read(REGISTRY)) + ["local", "mock"]
USE = r'(strn?cmp|_find|_about|open_with)\([^;]*"{name}"|backend = [^;]*"{name}"'

report = lint.Lint("backend_names")
for file in lint.product():
    room = file.split("/")[1]
    text = lint.without_comments(lint.read(file))
    for name in NAMES:
        if file == REGISTRY or room == name or (name == "mock" and room == "local"):
            continue
        for found in re.finditer(USE.format(name=name), text):
            line = text.count("\n", 0, found.end()) + 1
            report.complain(file, f'asks for the backend "{name}" by its name', line)
report.finish()
