# links.py - every file that a page of the tree links to, or that the design page names by its path, is there.
#
# SPDX-License-Identifier: Apache-2.0
import os
import re

import lint

LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
NAMED = re.compile(r"`([a-z_]+/[a-z0-9_/]+\.[ch])`")
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

report = lint.Lint("links")
for file in lint.files():
    if not file.endswith(".md"):
        continue
    text = CODE.sub(lambda found: "\n" * found.group(0).count("\n"), lint.read(file))
    for found in LINK.finditer(text):
        target = found.group(1)
        if "://" not in target and not os.path.exists(os.path.join(lint.ROOT, os.path.dirname(file), target)):
            report.complain(file, f"links to {target}, which is not there", text.count("\n", 0, found.start()) + 1)
    for found in NAMED.finditer(text) if file == "docs/design.md" else ():
        if not os.path.exists(os.path.join(lint.ROOT, found.group(1))):
            report.complain(file, f"names {found.group(1)}, which is not there", text.count("\n", 0, found.start()) + 1)
report.finish()
