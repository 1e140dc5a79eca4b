# suite_backends.py - the keys of `run backends`: pools on the engines of clusters, beside their own tools; README.md has each.
#
# An engine is one table below: how it is brought up where there is none, and what its jobs need. A key names the engines
# that it measures; one that is not there is a case that did not run.
#
# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import subprocess
import sys
import tempfile

from harness import HERE, Failure, column, combine, judge, ratio, spread
from suite_ring import mpi, timed

TITLE = 'pools on the engines of clusters (beds of tests/beds where none is set), beside the engines\' own tools'
BEDS = os.path.join(HERE, '..', 'tests', 'beds')
IMAGE = 'fiber-benchmark:1'


def bed_environment(name, *words, **settings):
    """Brings the bed up; the variables that lead to it."""
    bed = os.path.join(BEDS, name, 'bed')
    done = subprocess.run([bed, 'try', *words], capture_output=True, text=True, env=dict(os.environ, **settings))
    if done.returncode:
        raise Failure('no %s: %s' % (name, (done.stdout + done.stderr).strip().splitlines()[-1]))
    text = subprocess.run([bed, 'env'], capture_output=True, text=True, check=True).stdout
    return dict(word.split('=', 1) for word in text.split() if '=' in word)


def docker(suite):
    env = {} if os.environ.get('DOCKER_HOST') else bed_environment('docker')
    fiber = os.path.join(suite.build, 'cli', 'fiber')
    made = subprocess.run([fiber, 'image', '--quiet', '--add', '/bin/sh', '--add', '/bin/sleep', 'build', IMAGE,
                           suite.program('pool_bench')], env=dict(os.environ, **env), capture_output=True, text=True)
    if made.returncode:
        raise Failure('fiber image build: ' + made.stderr.strip())
    return dict(env, FIBER_BACKEND='docker', FIBER_IMAGE=IMAGE)


def kubernetes(suite):
    env = {} if os.environ.get('KUBECONFIG') else bed_environment('kubernetes')
    archive = os.path.join(tempfile.gettempdir(), 'fiber-benchmark-%d.tar' % os.getpid())
    fiber = os.path.join(suite.build, 'cli', 'fiber')
    try:
        for argv in ([fiber, 'image', '--quiet', '--add', '/bin/sleep', 'export', '-o', archive, IMAGE,
                      suite.program('pool_bench')], [os.path.join(BEDS, 'kubernetes', 'bed'), 'import', IMAGE, archive]):
            done = subprocess.run(argv, capture_output=True, text=True)
            if done.returncode:
                raise Failure('%s: %s' % (os.path.basename(argv[0]), done.stderr.strip()))
    finally:
        if os.path.exists(archive):
            os.remove(archive)
    return dict(env, FIBER_BACKEND='kubernetes', FIBER_IMAGE=IMAGE)


def slurm(suite):
    return dict(bed_environment('slurm', '1', TEST_BED_SLURM_NODE='CPUs=16 RealMemory=4000'), FIBER_BACKEND='slurm')


ENGINES = {'docker': docker, 'kubernetes': kubernetes, 'slurm': slurm}


def on(suite, engine):
    """The environment of that engine, which is brought up once."""
    if engine not in suite.engines:
        suite.engines[engine] = ENGINES[engine](suite)
    return suite.engines[engine]


def start_against(suite, key, engine, peer, bar):
    """n workers of a pool joined, against what `peer` (name, command) does meanwhile."""
    n = 5 if suite.quick else 20
    name, command = peer
    group = {'fiber': ([suite.program('pool_bench'), 'start', str(n)], on(suite, engine)),
             name: (command(n), on(suite, engine))}
    got = column(suite.sample(key, {'start': group}), 'seconds')
    values = got['start']
    cases = {'start': judge(ratio(values['fiber'], values[name], 'x ' + name), '<=', bar),
             'seconds': spread(values['fiber'], 's', 3)}
    return combine('start', cases, got)


def docker_start_vs_cli(suite):
    if not shutil.which('docker'):
        raise Failure('no docker command (packages.txt, group cluster)')
    script = os.path.join(HERE, 'peers', 'docker_run.py')
    return start_against(suite, 'docker_start_vs_cli', 'docker',
                         ('docker run', lambda n: [sys.executable, script, str(n), IMAGE]), 1.1)


def k8s_start_vs_kubectl(suite):
    script = os.path.join(HERE, 'peers', 'kubectl_job.py')
    kubectl = [os.path.join(BEDS, 'kubernetes', 'bed'), 'kubectl', '-n', 'fiber']
    return start_against(suite, 'k8s_start_vs_kubectl', 'kubernetes',
                         ('kubectl', lambda n: [sys.executable, script, str(n), IMAGE, *kubectl]), 1.1)


def slurm_ring_vs_srun(suite):
    """8 ranks in an allocation, the whole command."""
    program, fiber = mpi(suite, 'init_bench.openmpi'), os.path.join(suite.build, 'cli', 'fiber')
    env = dict(on(suite, 'slurm'), OMPI_MCA_pml='ob1')
    inside = ['salloc', '-Q', '-N1', '-n8']
    got = column(suite.sample('slurm_ring_vs_srun', {'8': {
        'fiber': (timed(8, inside + [fiber, 'run', '--oversubscribe', '-n', '8', program]), env),
        'srun': (timed(8, inside + ['srun', '--mpi=pmix', '-n', '8', program]), env)}}), 'wall_ms')
    cases = {'8': judge(ratio(got['8']['fiber'], got['8']['srun'], 'x srun'), '<=', 0.7),
             'ms': spread(got['8']['fiber'], 'ms', 1)}
    return combine('8', cases, got)


def pool_overhead_backend(suite):
    contenders, missing = {}, []
    for engine in ENGINES:
        try:
            env = on(suite, engine)
        except Failure as e:
            missing.append(str(e))
            continue
        for case, n, ms in (('1ms', 1000 if suite.quick else 5000, 1), ('10ms', 100 if suite.quick else 500, 10)):
            contenders['%s_%s' % (engine, case)] = {
                'fiber': ([suite.program('pool_bench'), 'tasks', str(n), str(ms), '5'], env),
                'floor': ([suite.program('floor'), str(n), str(ms), '5'], None)}
    if not contenders:
        raise Failure('; '.join(missing))
    got = column(suite.sample('pool_overhead_backend', contenders), 'seconds')
    cases = {case: judge(ratio(group['fiber'], group['floor'], 'x floor'), '<=', 1.06) for case, group in got.items()}
    return combine(next(iter(cases)), cases, got)


KEYS = {key.__name__: key for key in (
    docker_start_vs_cli, k8s_start_vs_kubectl, slurm_ring_vs_srun, pool_overhead_backend)}


def prepare(suite):
    suite.engines = {}
    return {'peers': {}}
