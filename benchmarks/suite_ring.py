# suite_ring.py - the keys of `run ring`: starting ranks, what they print and what happens to them; README.md has each.
#
# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import subprocess
import sys

import beds
from harness import HERE, Failure, column, combine, judge, ratio, spread

TITLE = 'rings of ranks on one machine, beside mpirun, mpiexec.hydra, srun and torchrun'
REPS = 7
LAUNCH = [sys.executable, os.path.join(HERE, 'launch.py')]
AS_ROOT = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}
TORCH = os.path.join(HERE, 'peers', 'torch_init.py')
TORCHRUN = os.path.join(HERE, 'peers', 'torchrun.py')


def command(*names):
    for name in names:
        if shutil.which(name):
            return name
    raise Failure('no %s on this machine' % ' or '.join(names))


def fiber(suite, ranks, *more):
    path = os.path.join(suite.build, 'cli', 'fiber')
    if not os.access(path, os.X_OK):
        raise Failure('no program %s (build the project, or name its build folder with --build)' % path)
    return [path, 'run', '--oversubscribe', '-n', str(ranks), *more]


def mpi(suite, name):
    path = os.path.join(suite.build, 'benchmarks', 'mpi', name)
    if not os.access(path, os.X_OK):
        raise Failure('no program %s: built when its MPI is installed' % path)
    return path


def timed(ranks, argv):
    return LAUNCH + [str(ranks)] + argv


def mpirun(ranks):
    return [command('mpirun.openmpi', 'mpirun'), '--oversubscribe', '-n', str(ranks)]


def against_mpirun(suite, key, field, bars, env):
    program = mpi(suite, 'init_bench.openmpi')
    got = column(suite.sample(key, {
        str(n): {'fiber': (timed(n, fiber(suite, n, program)), env),
                 'mpirun': (timed(n, mpirun(n) + [program]), dict(AS_ROOT, **env))} for n in bars}), field)
    cases = {n: judge(ratio(group['fiber'], group['mpirun']), '<=', bars[int(n)], 'x mpirun')
             for n, group in got.items()}
    for n, group in got.items():
        cases[n + '_ms'] = spread(group['fiber'], 'ms', 1)
    return combine(str(max(bars)), cases, got)


def init_vs_mpirun(suite):
    return against_mpirun(suite, 'init_vs_mpirun', 'init_ms', {2: 0.75, 8: 0.55, 32: 0.60}, {'OMPI_MCA_pml': 'ob1'})


def wall_vs_mpirun(suite):
    return against_mpirun(suite, 'wall_vs_mpirun', 'wall_ms', {2: 0.5, 8: 0.45, 32: 0.6}, {})


def init2_vs_mpirun(suite):
    """The same on two hosts of the bed (network namespaces), half of the ranks on each."""
    program, bed = mpi(suite, 'init_bench.openmpi'), os.path.join(HERE, '..', 'tests', 'beds', 'hosts', 'bed')
    bars = {2: 0.65, 8: 0.70, 32: 0.70}
    if subprocess.run([bed, 'try', '4'], stdout=subprocess.DEVNULL, check=False).returncode:
        raise Failure('no hosts here (tests/beds/hosts/bed check says why)')
    try:
        hosts = [subprocess.run([bed, 'address', host], capture_output=True, check=True).stdout.decode().strip()
                 for host in ('h1', 'h2')]
        ours = {'FIBER_BACKEND': 'command', 'FIBER_COMMAND_START': bed + ' exec {host}',
                'FIBER_COMMAND_HOSTS': ','.join(hosts), 'OMPI_MCA_pml': 'ob1'}
        theirs = dict(AS_ROOT, OMPI_MCA_plm_rsh_agent=os.path.join(os.path.dirname(bed), 'rsh'), OMPI_MCA_pml='ob1',
                      OMPI_MCA_btl='self,vader,tcp')
        got = column(suite.sample('init2_vs_mpirun', {str(n): {
            'fiber': (timed(n, fiber(suite, n, '--per-node', str(n // 2), program)), ours),
            'mpirun': (timed(n, mpirun(n) + ['--host', ','.join('%s:%d' % (host, n // 2) for host in hosts), program]),
                       theirs)} for n in bars}), 'init_ms')
    finally:
        subprocess.run([bed, 'down'], check=False)
    cases = {n: judge(ratio(group['fiber'], group['mpirun']), '<=', bars[int(n)], 'x mpirun')
             for n, group in got.items()}
    for n, group in got.items():
        cases[n + '_ms'] = spread(group['fiber'], 'ms', 1)
    return combine(str(max(bars)), cases, got)


def vs_hydra(suite):
    program, hydra = mpi(suite, 'init_bench.mpich'), command('mpiexec.hydra')
    got = column(suite.sample('vs_hydra', {
        str(n): {'fiber': (timed(n, fiber(suite, n, program)), None),
                 'hydra': (timed(n, [hydra, '-n', str(n), program]), None)} for n in (2, 8, 32)}), 'init_ms')
    cases = {n: judge(ratio(group['fiber'], group['hydra']), '<=', 0.95, 'x hydra') for n, group in got.items()}
    return combine('32', cases, got)


def vs_srun(suite):
    program, srun = mpi(suite, 'init_bench.openmpi'), command('srun')
    with beds.some_slurm() as env:
        env['OMPI_MCA_pml'] = 'ob1'
        got = column(suite.sample('vs_srun', {
            str(n): {'fiber': (timed(n, fiber(suite, n, '--backend', 'local', program)), env),
                     'srun': (timed(n, [srun, '--mpi=pmix', '-O', '-n', str(n), program]), env)} for n in (2, 8, 32)}),
                     'wall_ms')
    cases = {n: judge(ratio(group['fiber'], group['srun']), '<=', 0.6, 'x srun') for n, group in got.items()}
    for n, group in got.items():
        cases[n + '_ms'] = spread(group['fiber'], 'ms', 1)
    return combine('8', cases, got)


def vs_torchrun(suite):
    pythons = [name for name in ('python3', '/usr/bin/python3') if shutil.which(name) and not subprocess.run(
        [name, '-c', 'import torch.distributed'], capture_output=True, check=False).returncode]
    if not pythons:
        raise Failure('no python3 here has torch')
    python = pythons[0]
    peer = [python, TORCHRUN, '--nproc_per_node']
    got = column(suite.sample('vs_torchrun', {
        str(n): {'fiber': (timed(n, fiber(suite, n, python, TORCH)), None),
                 'torchrun': (timed(n, peer + [str(n), TORCH]), None)} for n in (2, 8)}), 'wall_ms')
    return combine('8', {n: judge(ratio(group['fiber'], group['torchrun']), '<=', 0.9, 'x torchrun')
                         for n, group in got.items()}, got)


def io_mb_s(suite):
    """4 ranks x 500,000 lines of 100 bytes through a pipe, tagged."""
    program, each = suite.program('lines'), 50000 if suite.quick else 500000
    count = [program, 'count', '4', str(each), '--']
    emit = [program, 'emit', str(each)]
    group = {'fiber': (count + fiber(suite, 4, '--tag', *emit), None)}
    if shutil.which('mpirun.openmpi'):
        group['mpirun'] = (count + mpirun(4) + ['--tag-output', *emit], AS_ROOT)
    lines = suite.sample('io_mb_s', {'tagged': group})['tagged']
    speed = {name: [line['bytes'] / line['seconds'] / 1e6 for line in got] for name, got in lines.items()}
    cases = {'mb_s': judge(spread(speed['fiber'], 'MB/s', 1), '>=', 300),
             'torn': judge(spread([line['torn'] + abs(line['missing']) for line in lines['fiber']], 'lines', 0), '<=', 0)}
    if 'mpirun' in speed:
        cases['mpirun_mb_s'] = spread(speed['mpirun'], 'MB/s', 1)
        cases['mpirun_torn'] = spread([line['torn'] for line in lines['mpirun']], 'lines', 0)
    return combine('mb_s', cases, {'mb_s': speed})


def one(suite, key, args, bar):
    got = column(suite.sample(key, {'ms': {'fiber': ([suite.program('ring_bench'), *args], None)}}), 'ms')
    return combine('ms', {'ms': judge(spread(got['ms']['fiber'], 'ms', 1), '<=', bar)}, got)


def kill_to_dead_ms(suite):
    return one(suite, 'kill_to_dead_ms', ['kill', '8'], 150)


def replace_ms(suite):
    return one(suite, 'replace_ms', ['replace', '4'], 600)


def pmix_rank(suite):
    return suite.program('ranks/pmix_rank')  # built when libpmix is installed


def kill_to_shrunk_ms(suite):
    return one(suite, 'kill_to_shrunk_ms', ['shrink', '8', pmix_rank(suite)], 100)


def agents_64(suite):
    """From the start to the end; and a fence over all of them, by either protocol."""
    program = suite.program('ring_bench')
    fences = {'fence_ms': pmix_rank(suite), 'pmi_fence_ms': suite.program('ranks/pmi_rank')}
    lines = suite.sample('agents_64', {'ms': {'fiber': ([program, 'agents', '64'], None)},
                                       **{key: {'fiber': ([program, 'fence', '64', rank], None)}
                                          for key, rank in fences.items()}})
    got = column(lines, 'ms')
    cases = {'ms': judge(spread(got['ms']['fiber'], 'ms', 1), '<=', 1500)}
    for key in fences:
        cases[key] = judge(spread(got[key]['fiber'], 'ms', 3), '<=', 5)
        cases['longest_of_20_' + key] = spread([line['longest_ms'] for line in lines[key]['fiber']], 'ms', 3)
    return combine('ms', cases, got)


def plan_65536(suite):
    """The whole command: the plan, checked and printed as JSON; and what a PMIx server takes to know such a job."""
    server = os.path.join(suite.build, 'tests', 'mpi_bridge', 'pmix_large_test')
    if not os.access(server, os.X_OK):
        raise Failure('no program %s (built with the tests when libpmix is installed)' % server)
    argv = [os.path.join(suite.build, 'cli', 'fiber'), 'run', '-n', '65536', '--nodes', '1024', '--dry-run', '--json',
            '/bin/true']
    quiet = timed(0, ['sh', '-c', '"$@" | tail -c 0', 'sh', *argv])
    lines = suite.sample('plan_65536', {'ms': {'fiber': (quiet, None)}, 'server': {'fiber': ([server, 'figures'], None)}})
    told = lines.pop('server')
    got = column(lines, 'wall_ms')
    cases = {'ms': judge(spread(got['ms']['fiber'], 'ms', 1), '<=', 50)}
    for key, field, unit, bar in (('server_s', 'seconds', 's', 0.3), ('server_mib', 'mib', 'MiB', 150)):
        got[key] = {'fiber': [line[field] for line in told['fiber']]}
        cases[key] = judge(spread(got[key]['fiber'], unit, 4), '<=', bar)
    return combine('ms', cases, got)


KEYS = {key.__name__: key for key in (
    init_vs_mpirun, wall_vs_mpirun, init2_vs_mpirun, vs_hydra, vs_srun, vs_torchrun, io_mb_s, kill_to_dead_ms,
    kill_to_shrunk_ms, replace_ms, agents_64, plan_65536)}


def prepare(suite):
    """What the machine has, for the report."""
    facts = {'peers': {}}
    for name, argv in (('mpirun', ['mpirun.openmpi', '--version']), ('hydra', ['mpiexec.hydra', '--version']),
                       ('srun', ['srun', '--version'])):
        found = shutil.which(argv[0])
        text = subprocess.run(argv, capture_output=True, check=False).stdout.decode() if found else ''
        facts['peers'][name] = ' '.join(text.split()[:4]) or ('installed' if found else None)
    suite.peers_absent = [name for name, version in facts['peers'].items() if not version]
    return facts
