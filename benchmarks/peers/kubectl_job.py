#!/usr/bin/env python3
# kubectl_job.py - what one would type instead: `kubectl_job.py N IMAGE KUBECTL...` applies one Job of N pods, and takes the
# time until all of them run. Output: one JSON object.
#
# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys
import time

NAME = 'fiber-benchmark'


def main(n, image, kubectl):
    job = {'apiVersion': 'batch/v1', 'kind': 'Job', 'metadata': {'name': NAME},
           'spec': {'parallelism': n, 'completions': n, 'backoffLimit': 0, 'template': {'spec': {
               'restartPolicy': 'Never', 'terminationGracePeriodSeconds': 0, 'containers': [
                   {'name': 'main', 'image': image, 'imagePullPolicy': 'Never', 'command': ['/bin/sleep', '120']}]}}}}
    start = time.perf_counter()
    subprocess.run([*kubectl, 'apply', '-f', '-'], input=json.dumps(job).encode(), stdout=subprocess.DEVNULL, check=True)
    running = 0
    while running < n and time.perf_counter() - start < 120:
        phases = subprocess.run([*kubectl, 'get', 'pods', '-l', 'job-name=' + NAME, '-o', 'jsonpath={.items[*].status.phase}'],
                                capture_output=True, check=True).stdout.decode().split()
        running = phases.count('Running')
    seconds = time.perf_counter() - start
    subprocess.run([*kubectl, 'delete', 'job', NAME, '--wait', '--cascade=foreground'], stdout=subprocess.DEVNULL, check=True)
    if running < n:
        sys.exit('kubectl: only %d of %d pods run' % (running, n))
    print(json.dumps({'bench': 'kubectl', 'pods': n, 'seconds': round(seconds, 6)}))


if __name__ == '__main__':
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
