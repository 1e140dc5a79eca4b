# parameters.py - a function uses each of its parameters, unless another place decides which parameters there are: it is a
# callback (its name stands somewhere without a call), public, or defined in several files, of which a program has one.
#
# SPDX-License-Identifier: Apache-2.0
import collections
import re

import lint

FUNCTION = re.compile(r"^(?:[a-z][\w ]*[ *]+)(\w+)\(([^;{}]*)\)\n\{\n(.*?)^\}", re.M | re.S)
VALUE = re.compile(r"\b(\w+)\b(?!\s*\()")


def parameters(text):
    """The names in a list of parameters."""
    depth, parts = 0, [""]
    for c in text:
        depth += (c in "([") - (c in ")]")
        parts = parts + [""] if c == "," and depth == 0 else parts[:-1] + [parts[-1] + c]
    for part in parts:
        name = re.search(r"\(\*(\w+)", part) or re.search(r"(\w+)(?:\[[^\]]*\])*$", part.strip())
        if name and part.strip() != "void" and "..." not in part:
            yield name.group(1)


report = lint.Lint("parameters")
files = lint.product() + [name for name in lint.files() if re.match(r"python/source/.*\.[ch]$", name)]
texts = {file: lint.TOKEN.sub(" ", lint.read(file)) for file in files}
values = {word for text in texts.values() for word in VALUE.findall(text)}
functions = [(file, *found) for file in files for found in FUNCTION.findall(texts[file])]
defined = collections.Counter(name for _, name, _, _ in functions if name.startswith("fbr_"))
for file, name, listed, body in functions:
    if name in values or name.startswith("fiber_") or defined[name] > 1:
        continue
    for parameter in parameters(listed):
        if not re.search(rf"\b{parameter}\b", body):
            report.complain(file, f"{name}() does not use its parameter {parameter}")
report.finish()
