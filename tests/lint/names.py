# names.py - one name, one thing: each base name is that of one file of the product (with its header beside it), and each
# struct, union or enum that a header shows, or that begins with fbr_, is defined once.
#
# HANDLES have no second meaning: each implementation of a table defines its own.
#
# SPDX-License-Identifier: Apache-2.0
import collections
import os
import re

import lint

HANDLES = {"fbr_backend", "fbr_bridge", "fbr_service", "fbr_service_conn"}
TAG = re.compile(r"\b(?:struct|union|enum)\s+([a-z_0-9]+)\s*\{")

report = lint.Lint("names")
folders, tags = collections.defaultdict(set), collections.defaultdict(set)
for file in lint.product() + [name for name in lint.files() if re.match(r"(python/source|include)/.*\.[ch]$", name)]:
    folders[os.path.splitext(os.path.basename(file))[0]].add(os.path.dirname(file))
    for tag in TAG.findall(lint.read(file)):
        tags[tag].add(file)
for base, where in sorted(folders.items()):
    if len(where) > 1:
        report.complain(base, f"is the name of files in {', '.join(sorted(where))}")
for tag, where in sorted(tags.items()):
    shown = tag.startswith("fbr_") or any(file.endswith(".h") for file in where)
    if len(where) > 1 and shown and tag not in HANDLES:
        report.complain(tag, f"is defined in {', '.join(sorted(where))}")
report.finish()
