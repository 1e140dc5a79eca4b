# suite_backends.py - the keys of `run backends`: pools on the engines of clusters, beside their own tools; README.md has
# each.
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

import beds
from harness import HERE, Failure, column, combine, judge, ratio, spread
from suite_ring import mpi, timed

TITLE = 'pools on the engines of clusters (beds of tests/beds where none is set), beside the engines\' own tools'
REPS = 5
IMAGE = 'fiber-benchmark:1'


def docker(suite):
    env = {} if os.environ.get('DOCKER_HOST') else beds.environment('docker')
    fiber = os.path.join(suite.build, 'cli', 'fiber')
    made = subprocess.run([fiber, 'image', '--quiet', '--add', '/bin/sh', '--add', '/bin/sleep', 'build', IMAGE,
                           suite.program('pool_bench')], env=dict(os.environ, **env), capture_output=True, text=True)
    if made.returncode:
        raise Failure('fiber image build: ' + made.stderr.strip())
    return dict(env, FIBER_BACKEND='docker', FIBER_IMAGE=IMAGE)


def kubernetes(suite):
    env = {} if os.environ.get('KUBECONFIG') else beds.environment('kubernetes')
    archive = os.path.join(tempfile.gettempdir(), 'fiber-benchmark-%d.tar' % os.getpid())
    fiber = os.path.join(suite.build, 'cli', 'fiber')
    try:
        for argv in ([fiber, 'image', '--quiet', '--add', '/bin/sleep', 'export', '-o', archive, IMAGE,
                      suite.program('pool_bench')], [beds.path('kubernetes'), 'import', IMAGE, archive]):
            done = subprocess.run(argv, capture_output=True, text=True)
            if done.returncode:
                raise Failure('%s: %s' % (os.path.basename(argv[0]), done.stderr.strip()))
    finally:
        if os.path.exists(archive):
            os.remove(archive)
    return dict(env, FIBER_BACKEND='kubernetes', FIBER_IMAGE=IMAGE)


def slurm(suite):
    return dict(beds.slurm(), FIBER_BACKEND='slurm')


ENGINES = {'docker': docker, 'kubernetes': kubernetes, 'slurm': slurm}


def on(suite, engine):
    """The environment of that engine, which is brought up once."""
    if engine not in suite.engines:
        suite.engines[engine] = ENGINES[engine](suite)
    return suite.engines[engine]


def start_against(suite, key, engine, peer, bar, *more):
    """20 workers of a pool joined, against what `peer` (name, command) does meanwhile; and as many as `more` says."""
    name, command = peer
    sizes = {'start': 5} if suite.quick else {'start': 20, **{'start_%d' % n: n for n in more}}
    groups = {case: {'fiber': ([suite.program('pool_bench'), 'start', str(n)], on(suite, engine)),
                     name: (command(n), on(suite, engine))} for case, n in sizes.items()}
    got = column(suite.sample(key, groups), 'seconds')
    cases = {case: judge(ratio(values['fiber'], values[name], 'x ' + name), '<=', bar) for case, values in got.items()}
    cases.update({case.replace('start', 'seconds'): spread(values['fiber'], 's', 3) for case, values in got.items()})
    return combine('start', cases, got)


def docker_start_vs_cli(suite):
    if not shutil.which('docker'):
        raise Failure('no docker command (packages.txt, group cluster)')
    script = os.path.join(HERE, 'peers', 'docker_run.py')
    return start_against(suite, 'docker_start_vs_cli', 'docker',
                         ('docker run', lambda n: [sys.executable, script, str(n), IMAGE]), 1.1)


def k8s_start_vs_kubectl(suite):
    script = os.path.join(HERE, 'peers', 'kubectl_job.py')
    kubectl = [beds.path('kubernetes'), 'kubectl', '-n', 'fiber']
    return start_against(suite, 'k8s_start_vs_kubectl', 'kubernetes',
                         ('kubectl', lambda n: [sys.executable, script, str(n), IMAGE, *kubectl]), 1.1, 100)


def k8s_calls_per_pod(suite):
    """What the API server is asked for a job of which nothing is known before, over its life: on simulated nodes."""
    if os.environ.get('KUBECONFIG'):
        raise Failure('it needs simulated nodes, as the bed has them: not with KUBECONFIG set')
    n = 100 if suite.quick else 1000
    env = dict(beds.environment('kubernetes', '--fake-nodes', str(max(1, n // 200))), FIBER_BACKEND='kubernetes',
               FIBER_IMAGE=IMAGE, FIBER_KUBERNETES_POD_TEMPLATE=os.path.join(HERE, 'simulated_pod.yaml'))
    argv = [sys.executable, os.path.join(HERE, 'calls.py'), suite.program('pods_bench'), str(n)]
    lines = suite.sample('k8s_calls_per_pod', {'pods': {'fiber': (argv, env, 600)}})['pods']['fiber']
    samples = {field: [line[field] / line['pods'] for line in lines]
               for field in ('requests', 'streams', 'repeated', 'sent', 'received')}
    cases = {'calls': judge(spread(samples['requests'], 'requests a pod', 3), '<=', 3),
             'master_mib': judge(spread([line['mib'] for line in lines], 'MiB', 1), '<=', 100),
             'master_cpu_ms': spread([line['cpu_s'] * 1e3 / line['pods'] for line in lines], 'ms a pod', 3),
             'seconds': spread([line['seconds'] for line in lines], 's, all', 2)}
    return combine('calls', cases, {field: {'fiber': values} for field, values in samples.items()})


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
            suite.errors.append('pool_overhead_backend: %s: %s' % (engine, e))
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


def seal_cost(suite):
    """What TLS 1.3 and sealed messages over TCP cost a pool on one machine, against a unix socket and ipc."""
    sizes = {'1ms': ('tasks', 1000 if suite.quick else 5000, 1), '10ms': ('tasks', 100 if suite.quick else 500, 10),
             'empty': ('empty', 100000 if suite.quick else 1000000), 'apply': ('apply', 500 if suite.quick else 4000)}
    fields = {'empty': 'seconds', 'apply': 'p50_us'}
    contenders = {}
    for case, work in sizes.items():
        argv = [suite.program('pool_bench'), *map(str, work), '5']
        contenders[case] = {name: (argv, {'FIBER_TRANSPORT': transport, 'FIBER_BACKEND': 'local'})
                            for name, transport in (('ipc', 'unix'), ('tcp', 'tcp'))}
        if len(work) == 3:
            contenders[case]['floor'] = ([suite.program('floor'), *map(str, work[1:]), '5'], None)
    lines = suite.sample('seal_cost', contenders)
    got = {case: {name: [line[fields.get(case, 'seconds')] for line in group] for name, group in lines[case].items()}
           for case in lines}
    cases = {case: ratio(group['tcp'], group['ipc'], 'x ipc') for case, group in got.items()}
    for case in ('1ms', '10ms'):
        cases[case + '_vs_floor'] = ratio(got[case]['tcp'], got[case]['floor'], 'x floor')
    cpu = {kind: [line['master_us_per_task'] for line in lines['empty'][kind]] for kind in ('ipc', 'tcp')}
    cases['master_cpu'] = ratio(cpu['tcp'], cpu['ipc'], 'x ipc')
    return combine('1ms', cases, dict(got, master_us=cpu))


KEYS = {key.__name__: key for key in (
    docker_start_vs_cli, k8s_start_vs_kubectl, k8s_calls_per_pod, slurm_ring_vs_srun, pool_overhead_backend, seal_cost)}


def prepare(suite):
    suite.engines = {}
    return {'peers': {}}
