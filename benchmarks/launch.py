# launch.py - runs a command that starts ranks, and says how long it took: launch.py RANKS COMMAND...
#
# The command finds the time of its start in START_NS. Of its output the line that is a JSON object is passed on, with
# `wall_ms`, the time from the start to the end, added. A command that started another number of ranks than RANKS is an
# error (a singleton is not a world); RANKS 0 does not look.
#
# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys
import time

ranks, argv = int(sys.argv[1]), sys.argv[2:]
start = time.time_ns()
done = subprocess.run(argv, stdout=subprocess.PIPE, env=dict(os.environ, START_NS=str(start)), check=False)
wall = (time.time_ns() - start) / 1e6
lines = [line for line in done.stdout.decode().splitlines() if line.startswith('{')]
if done.returncode or len(lines) > 1 or (ranks and not lines):
    sys.exit('%s: exit code %d, %d reports' % (argv[0], done.returncode, len(lines)))
report = json.loads(lines[0]) if lines else {}
if ranks and report.get('ranks') != ranks:
    sys.exit('%s: %s ranks, not %d' % (argv[0], report.get('ranks'), ranks))
print(json.dumps(dict(report, wall_ms=wall)))
