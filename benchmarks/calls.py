# calls.py - runs a program of the suite on Kubernetes, and adds to its JSON object how many requests the program sent:
# calls.py PROGRAM ARGS. What it counts itself, it says at its end (FIBER_LOG_LEVEL=info).
#
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import subprocess
import sys

SAID = re.compile(r'kubernetes: (\d+) requests \((\d+) of them watches and logs, (\d+) repeated\), '
                  r'(\d+) bytes sent, (\d+) received')
FIELDS = ('requests', 'streams', 'repeated', 'sent', 'received')

done = subprocess.run(sys.argv[1:], capture_output=True, text=True, env=dict(os.environ, FIBER_LOG_LEVEL='info'),
                      check=False)
said = SAID.findall(done.stderr)
if done.returncode or len(said) != 1:
    sys.stderr.write(done.stderr[-4000:])
    sys.exit('%s: exit code %d, and %d times it said what it sent' % (sys.argv[1], done.returncode, len(said)))
line = json.loads([line for line in done.stdout.splitlines() if line.startswith('{')][-1])
line.update(zip(FIELDS, map(int, said[0])))
print(json.dumps(line))
