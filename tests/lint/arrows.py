# arrows.py - who may include whom: between the folders of the project, and which file knows which foreign library.
#
# SPDX-License-Identifier: Apache-2.0
import fnmatch
import os
import re

import lint

# room or folder -> headers of the project that it may include, besides its own and fiber.h, which is everybody's. The
# rooms of the runtime stand on each other in this order; a lower one knows nothing of a higher one.
MAY = {
    "include": [],
    "runtime": [],
    "runtime/base": [],
    "runtime/program": ["runtime/base/*"],
    "runtime/net": ["runtime/base/*", "runtime/program/*"],
    "runtime/pin": ["runtime/base/*", "runtime/program/*"],
    "runtime/proc": ["runtime/base/*", "runtime/program/*", "runtime/net/*", "runtime/pin/*"],
    "runtime/inspect": ["runtime/base/*", "runtime/program/*", "runtime/net/*", "runtime/proc/*"],
    "share": ["runtime/*"],
    "pool": ["runtime/*"],
    "mpi_bridge": ["runtime/base/*", "runtime/program/*", "runtime/net/loop.h", "runtime/net/tcp.h"],
    "ring": ["mpi_bridge/bridge.h", "mpi_bridge/env.h", "mpi_bridge/host_env.h", "mpi_bridge/service.h", "runtime/*",
             "share/rpc.h"],
    "backends/http": ["runtime/base/*", "runtime/net/loop.h"],
    "backends/image": ["runtime/base/*", "runtime/program/*", "backends/http/*"],
    "backends/tool": ["runtime/base/*", "runtime/program/*", "runtime/net/loop.h", "runtime/proc/backend.h"],
    "backends/local": ["runtime/base/*", "runtime/program/*", "runtime/net/loop.h", "runtime/pin/pin.h",
                       "runtime/proc/backend.h", "backends/tool/kept_job.h"],
    "backends/command": ["runtime/base/*", "runtime/program/args.h", "runtime/net/*", "runtime/proc/backend.h",
                         "backends/tool/*"],
    "backends/docker": ["runtime/base/*", "runtime/program/*", "runtime/net/*", "runtime/proc/backend.h",
                        "backends/http/*", "backends/image/*"],
    "backends/kubernetes": ["runtime/base/*", "runtime/program/*", "runtime/net/*", "runtime/proc/backend.h",
                            "backends/http/*", "backends/image/*"],
    "backends/slurm": ["runtime/base/*", "runtime/program/args.h", "runtime/net/*", "runtime/proc/backend.h",
                       "backends/tool/*"],
    "backends": ["runtime/base/*", "runtime/program/*", "runtime/proc/backend.h", "backends/*"],
    "cli": ["ring/*", "backends/*", "mpi_bridge/*", "runtime/*"],
    "python": [],
    "examples": [],
    "benchmarks": [],
}

# header of a foreign library -> files that may include it.
FOREIGN = {
    "nanomsg/*": ["runtime/net/sock.c"],
    "hwloc.h": ["runtime/pin/topology*.[ch]"],
    "hwloc/*": ["runtime/pin/topology*.[ch]"],
    "curl/*": ["backends/http/http_attempt.c", "backends/http/http_priv.h"],
    "elfutils/*": ["runtime/inspect/stack_frames.c"],
    "pmix*": ["mpi_bridge/pmix*.[ch]", "benchmarks/ranks/pmix*.c"],
    "jansson.h": ["backends/http/json.c"],
    "yaml.h": ["backends/kubernetes/yaml.c"],
    "archive*.h": ["backends/image/bundle.c", "backends/image/image.c"],
    "openssl/*": ["backends/http/base64.c", "backends/http/http.c", "backends/image/image.c", "runtime/net/aead.c",
                  "runtime/net/tls.c"],
    "ini.h": ["runtime/base/config.c"],
    "uv.h": ["runtime/*", "backends/*"],
}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def room(name):
    """The key of MAY for a file: its room where its folder has rooms, else its folder."""
    folders = os.path.dirname(name)
    while folders and folders not in MAY:
        folders = os.path.dirname(folders)
    return folders


def check(report, name, text):
    folder = room(name)
    may = MAY[folder] + [f"{folder}/*"]
    for found in INCLUDE.finditer(text):
        kind, header = found.groups()
        line = text.count("\n", 0, found.start()) + 1
        for foreign, users in FOREIGN.items():
            if matches(header, [foreign]) and not matches(name, users):
                report.complain(name, f"may not know <{header}>, only {', '.join(users)} may", line)
        if kind == '"' and os.path.exists(os.path.join(lint.ROOT, os.path.dirname(name), header)):
            header = os.path.normpath(os.path.join(os.path.dirname(name), header))
        if room(header) or (kind == '"' and "/" not in header):
            if header != "fiber.h" and not matches(header, may):
                report.complain(name, f'{folder}/ may not include "{header}"', line)


report = lint.Lint("arrows")
for file in lint.files():
    if lint.language(file) == "c" and room(file):
        check(report, file, lint.read(file))
report.finish()
