#!/usr/bin/env python3
# docker_run.py - what one would type instead: `docker_run.py N IMAGE` runs `docker run` N times in parallel, and takes the
# time until each container has said a word. Output: one JSON object.
#
# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys
import time

OPTIONS = ['--rm', '--init', '--label', 'fiber.run=benchmark']


def main(n, image):
    start = time.perf_counter()
    argv = ['docker', 'run', *OPTIONS, image, '/bin/sh', '-c', 'echo here; exec /bin/sleep 60']
    clients = [subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) for _ in range(n)]
    words = [client.stdout.readline() for client in clients]
    seconds = time.perf_counter() - start
    for client in clients:
        client.terminate()  # which the client passes on
    for client in clients:
        client.wait()
    if words != [b'here\n'] * n:
        sys.exit('docker run: only %d of %d containers came up' % (words.count(b'here\n'), n))
    print(json.dumps({'bench': 'docker run', 'containers': n, 'seconds': round(seconds, 6)}))


if __name__ == '__main__':
    main(int(sys.argv[1]), sys.argv[2])
