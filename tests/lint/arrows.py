# arrows.py - who may include whom: between the folders of the project, and which file knows which foreign library.
#
# SPDX-License-Identifier: Apache-2.0
import fnmatch
import os
import re

import lint

# folder -> headers of the project that it may include, besides its own and fiber.h, which is everybody's.
MAY = {
    "include": [],
    "runtime": [],
    "share": ["runtime/*"],
    "pool": ["runtime/*"],
    "mpi_bridge": [f"runtime/{name}.h" for name in ("buf", "environ", "error", "log", "loop", "module", "tcp")],
    "ring": ["mpi_bridge/bridge.h", "mpi_bridge/env.h", "mpi_bridge/service.h", "runtime/*", "share/rpc.h"],
    "backends": [f"runtime/{name}.h" for name in ("backend", "bind", "environ", "error", "log", "buf", "spawn", "config", "loop", "module", "elf", "master", "pin")],
    "cli": ["ring/*", "backends/*", "mpi_bridge/*", "runtime/*"],
    "python": [],
    "examples": [],
    "benchmarks": [],
}

# header of a foreign library -> files that may include it.
FOREIGN = {
    "nanomsg/*": ["runtime/sock.c"],
    "hwloc.h": ["runtime/topology*.c", "runtime/topology.h"],
    "hwloc/*": ["runtime/topology*.c", "runtime/topology.h"],
    "curl/*": ["backends/http_attempt.c", "backends/http_priv.h"],
    "elfutils/*": ["runtime/stack_frames.c"],
    "pmix*": ["mpi_bridge/pmix*.[ch]", "benchmarks/ranks/pmix*.c"],
    "jansson.h": ["backends/json.c"],
    "yaml.h": ["backends/kube_yaml.c"],
    "archive*.h": ["backends/image.c"],
    "openssl/*": ["backends/image.c", "runtime/crypto.c", "runtime/seal.c", "runtime/tls.c", "backends/http.c"],
    "ini.h": ["runtime/config.c"],
    "uv.h": ["runtime/*", "backends/*"],
}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def check(report, name, text):
    folder = name.split("/")[0]
    for found in INCLUDE.finditer(text):
        kind, header = found.groups()
        line = text.count("\n", 0, found.start()) + 1
        for foreign, users in FOREIGN.items():
            if matches(header, [foreign]) and not matches(name, users):
                report.complain(name, f"may not know <{header}>, only {', '.join(users)} may", line)
        if kind == '"' and os.path.exists(os.path.join(lint.ROOT, os.path.dirname(name), header)):
            header = os.path.normpath(os.path.join(os.path.dirname(name), header))
        if header.split("/")[0] in MAY or (kind == '"' and "/" not in header):
            if header != "fiber.h" and not matches(header, MAY[folder] + [f"{folder}/*"]):
                report.complain(name, f'{folder}/ may not include "{header}"', line)


report = lint.Lint("arrows")
for file in lint.files():
    if lint.language(file) == "c" and file.split("/")[0] in MAY:
        check(report, file, lint.read(file))
report.finish()
