# beds.py - the engines of tests/beds for the suites: what leads to one, and what is brought up where there is none.
#
# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import subprocess

from harness import HERE, Failure

BEDS = os.path.join(HERE, '..', 'tests', 'beds')
SLURM_NODE = 'CPUs=32 RealMemory=8000 Gres=gpu:1'  # more than the machine has: more ranks than processors


def path(name):
    return os.path.join(BEDS, name, 'bed')


def environment(name, *words, **settings):
    """Brings the bed up; the variables that lead to it."""
    done = subprocess.run([path(name), 'try', *words], capture_output=True, text=True, env=dict(os.environ, **settings))
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise Failure('no %s: %s' % (name, said[-1] if said else 'exit code %d' % done.returncode))
    text = subprocess.run([path(name), 'env'], capture_output=True, text=True, check=True).stdout
    return dict(word.split('=', 1) for word in text.split() if '=' in word)


def slurm():
    return environment('slurm', '1', TEST_BED_SLURM_NODE=SLURM_NODE)


def answers(argv):
    try:
        return subprocess.run(argv, capture_output=True, check=False, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@contextlib.contextmanager
def some_slurm():
    """What leads to a Slurm: nothing where srun finds one, else to the bed, which is only up for as long as this."""
    if answers(['srun', '-n1', 'true']):
        yield {}
        return
    was_up = answers([path('slurm'), 'status'])
    try:
        yield slurm()
    finally:
        if not was_up:
            subprocess.run([path('slurm'), 'down'], check=False)
