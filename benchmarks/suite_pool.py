# suite_pool.py - the pool's figures: what each key measures, against whom, and its bar (README.md tells it in prose).
#
# SPDX-License-Identifier: Apache-2.0
import ctypes
import os
import statistics
import sys

from harness import HERE, Failure, column, combine, execute, judge, ratio, spread

TITLE = 'the pool, queues and processes on one machine, beside what one would use instead'
REPS = 5
PER_JOB = 64  # workers of a job that holds several
ALWAYS = ('multiprocessing', 'concurrent.futures')  # part of Python; the other peers are slow to start
POOL_PEERS = os.path.join(HERE, 'peers', 'pool_peers.py')
QUEUE_PEERS = os.path.join(HERE, 'peers', 'queue_peers.py')
PYTHONS = list(dict.fromkeys((sys.executable, '/usr/bin/python3')))  # a distribution's packages are its own python's
PR_SET_TIMERSLACK = 29  # linux/prctl.h
python_of = {}  # of a peer: who can import it


def peer_command(name, workers, *operations):
    return [python_of.get(name, sys.executable), POOL_PEERS, name, str(workers), *operations]


def bench(suite, *args, env=None):
    return [suite.program('pool_bench'), *map(str, args)], env


def slow_peers(suite, workers, operations):
    """The installed peers beside Python's own: {name: (command, cases)} for {case: operation}."""
    if suite.quick:
        return {}
    return {name: (peer_command(name, workers, *operations.values()), list(operations))
            for name in suite.peers if name not in ALWAYS}


def with_peers(group, workers, operation, names=ALWAYS):
    for name in names:
        group[name] = (peer_command(name, workers, operation), None)
    return group


def overhead_1ms_vs_floor(suite):
    scale = 0.2 if suite.quick else 1.0
    sizes = {'1ms': (5000, 1), '10ms': (500, 10), '100ms': (50, 100), '1s': (5, 1000)}
    if suite.quick:
        del sizes['1s']
    contenders, operations = {}, {}
    for case, (n, ms) in sizes.items():
        n = max(5, int(n * scale))
        contenders[case] = {'fiber': bench(suite, 'tasks', n, ms, 5),
                            'floor': ([suite.program('floor'), str(n), str(ms), '5'], None)}
        if ms <= 10:  # with longer tasks the peers differ by less than they vary
            operations[case] = 'tasks:%d:%d' % (n, ms)
            with_peers(contenders[case], 5, operations[case])
    got = column(suite.sample('overhead_1ms_vs_floor', contenders, slow_peers(suite, 5, operations)), 'seconds')
    cases = {case: judge(ratio(group['fiber'], group['floor'], 'x floor'), '<=', 1.03) for case, group in got.items()}
    for case in ('1ms', '10ms'):
        peers = {name: values for name, values in got[case].items() if name not in ('fiber', 'floor') and values}
        best = min(peers, key=lambda name: statistics.median(peers[name]))
        cases[case + '_vs_fastest_peer'] = judge(ratio(got[case]['fiber'], peers[best], 'x ' + best), '<', 1)
    return combine('1ms', cases, got)


def empty_vs_multiprocessing(suite):
    n, peer_n = (200000, 4000) if suite.quick else (1000000, 10000)
    group = with_peers({'fiber': bench(suite, 'empty', n, 5)}, 5, 'empty:%d' % peer_n)
    got = column(suite.sample('empty_vs_multiprocessing', {'tasks_per_s': group},
                              slow_peers(suite, 5, {'tasks_per_s': 'empty:%d' % (peer_n // 10)})), 'tasks_per_s')
    values = got['tasks_per_s']
    cases = {'ratio': judge(ratio(values['fiber'], values['multiprocessing'], 'x'), '>=', 50, 'x multiprocessing'),
             'tasks_per_s': spread(values['fiber'], 'tasks/s', 0)}
    return combine('ratio', cases, got)


def apply_p50_vs_multiprocessing(suite):
    n = 1000 if suite.quick else 4000
    group = with_peers({'fiber': bench(suite, 'apply', n, 5)}, 5, 'apply:%d' % (n // 2))
    lines = suite.sample('apply_p50_vs_multiprocessing', {'us': group},
                         slow_peers(suite, 5, {'us': 'apply:%d' % (n // 8)}))
    p50, p99 = column(lines, 'p50_us')['us'], column(lines, 'p99_us')['us']
    cases = {'p50': judge(ratio(p50['fiber'], p50['multiprocessing'], 'x'), '<=', 0.4, 'x multiprocessing'),
             'p99_vs_own_p50': judge(ratio(p99['fiber'], p50['fiber'], 'x own p50'), '<=', 3),
             'p50_us': spread(p50['fiber'], 'us', 2), 'p99_us': spread(p99['fiber'], 'us', 2),
             'p99_vs_multiprocessing': ratio(p99['fiber'], p99['multiprocessing'], 'x')}
    return combine('p50', cases, {'p50_us': p50, 'p99_us': p99})


def barrier5_vs_floor(suite):
    batches = 100 if suite.quick else 600
    group = {'fiber': bench(suite, 'barrier', batches, 1, 5),
             'floor': ([suite.program('floor'), str(5 * batches), '1', '5'], None)}
    with_peers(group, 5, 'barrier:%d:1' % batches)
    got = column(suite.sample('barrier5_vs_floor', {'batches': group},
                              slow_peers(suite, 5, {'batches': 'barrier:%d:1' % batches})), 'seconds')
    values = got['batches']
    cases = {'fiber': judge(ratio(values['fiber'], values['floor'], 'x floor'), '<=', 1.4)}
    for name, seconds in values.items():
        if name not in cases and name != 'floor' and seconds:
            cases[name] = ratio(seconds, values['floor'], 'x floor')
    return combine('fiber', cases, got)


def payload_mib_s(suite):
    n, peer_n = (128, 16) if suite.quick else (256, 64)
    contenders = {'local': {'fiber': bench(suite, 'payload', n, 1 << 20, 2),
                            'multiprocessing': (peer_command('multiprocessing', 2, 'payload:%d:1048576' % peer_n), None)},
                  'sealed_tcp': {'fiber': bench(suite, 'payload', n, 1 << 20, 2, env={'FIBER_TRANSPORT': 'tcp'})}}
    got = column(suite.sample('payload_mib_s', contenders), 'mib_s')
    cases = {'local': judge(spread(got['local']['fiber'], 'MiB/s', 1), '>=', 1500),
             'sealed_tcp': judge(spread(got['sealed_tcp']['fiber'], 'MiB/s', 1), '>=', 500),
             'local_vs_multiprocessing': ratio(got['local']['fiber'], got['local']['multiprocessing'])}
    return combine('local', cases, got)


def straggler_s(suite):
    got = column(suite.sample('straggler_s', {'straggler': {'fiber': bench(suite, 'straggler', 4)}}), 'seconds')
    return combine('straggler', {'straggler': judge(spread(got['straggler']['fiber'], 's', 4), '<=', 2.06)}, got)


def scale_1024(suite):
    tasks, sizes = (512, (128,)) if suite.quick else (2048, (32, 128, 512, 1024))
    ms, top = 50, sizes[-1]
    contenders = {str(w): {'fiber': bench(suite, 'scale', w, tasks, ms, 1 if w == 32 else 3),
                           'floor': ([suite.program('floor'), str(tasks), str(ms), str(w)], None)} for w in sizes}
    shared = [w for w in sizes if w >= 512]
    for w in shared:
        contenders[str(w)]['shared'] = bench(suite, 'scale', w, tasks, ms, 3, PER_JOB)
    lines = suite.sample('scale_1024', contenders)
    largest = lines[str(top)]['fiber']
    first, pss = ([line[field] for line in largest] for field in ('all_answered_s', 'pss_kib'))
    cases = {'first_map_s': judge(spread(first, 's', 3), '<=', 3),
             'pss_mib_per_idle_worker': judge(spread([kib / 1024 for kib in pss], 'MiB', 3), '<=', 2)}
    samples = {'first_map_s': {'fiber': first}, 'pss_kib': {'fiber': pss}}
    for w in sizes:
        ideal = tasks * ms / 1e3 / w
        floor = [ideal / line['seconds'] for line in lines[str(w)]['floor']]
        fiber = [ideal / statistics.median(line['generation_s']) for line in lines[str(w)]['fiber']]
        cases['efficiency_%d' % w] = judge(spread(fiber, 'of ideal', 4), '>=', 0.85)
        cases['efficiency_%d_of_floor' % w] = ratio(fiber, floor, "x the floor's")
        samples['efficiency_%d' % w] = {'fiber': fiber, 'floor': floor}
        if w not in shared:
            continue
        by_host = [ideal / statistics.median(line['generation_s']) for line in lines[str(w)]['shared']]
        case = 'efficiency_%d_in_jobs_of_%d' % (w, PER_JOB)
        cases[case] = spread(by_host, 'of ideal', 4)
        cases[case + '_vs_jobs_of_1'] = ratio(by_host, fiber, 'x jobs of 1')
        cases['first_map_%d_in_jobs_of_%d_s' % (w, PER_JOB)] = spread(
            [line['all_answered_s'] for line in lines[str(w)]['shared']], 's', 3)
        samples['efficiency_%d' % w]['shared'] = by_host
    return combine('first_map_s', cases, samples)


def queue_vs_multiprocessing(suite):
    n, peer_n = (50000, 10000) if suite.quick else (300000, 60000)
    program = suite.program('queue_bench')
    group = {'fiber': ([program, str(n), '64', 'direct'], None)}
    for kind in ('Queue', 'SimpleQueue'):
        group[kind] = ([sys.executable, QUEUE_PEERS, kind, str(peer_n), '64'], None)
    contenders = {'direct': group, 'relayed': {'fiber': ([program, str(n), '64', 'relayed'], None)}}
    got = column(suite.sample('queue_vs_multiprocessing', contenders), 'messages_per_s')
    direct = got['direct']
    better = max(('Queue', 'SimpleQueue'), key=lambda kind: statistics.median(direct[kind]))
    cases = {'direct': judge(ratio(direct['fiber'], direct[better], 'x ' + better), '>=', 4),
             'relayed': ratio(got['relayed']['fiber'], direct[better], 'x ' + better),
             'messages_per_s': spread(direct['fiber'], 'messages/s', 0)}
    return combine('direct', cases, got)


def master_us_per_task(suite):
    n = 200000 if suite.quick else 1000000
    got = column(suite.sample('master_us_per_task', {'cpu': {'fiber': bench(suite, 'master', n, 5)}}),
                 'master_us_per_task')
    return combine('cpu', {'cpu': judge(spread(got['cpu']['fiber'], 'us', 4), '<=', 0.5)}, got)


def spawn_ms(suite):
    program, contenders = suite.program('spawn_bench'), {}
    for case, at_once, rounds in (('one', 1, 20 if suite.quick else 50), ('64_at_once', 64, 2 if suite.quick else 4)):
        contenders[case] = {kind: ([program, kind, str(at_once), str(rounds)], None)
                            for kind in ('fiber', 'self', 'true')}
    got = column(suite.sample('spawn_ms', contenders), 'median_ms')
    cases = {}
    for case, group in got.items():
        cases[case] = judge(ratio(group['fiber'], group['self']), '<=', 3, 'x posix_spawn')
    for case, group in got.items():
        cases[case + '_ms'] = spread(group['fiber'], 'ms', 3)
        cases[case + '_vs_bin_true'] = ratio(group['fiber'], group['true'])
    return combine('one', cases, got)


KEYS = {key.__name__: key for key in (
    overhead_1ms_vs_floor, empty_vs_multiprocessing, apply_p50_vs_multiprocessing, barrier5_vs_floor, payload_mib_s,
    straggler_s, scale_1024, queue_vs_multiprocessing, master_us_per_task, spawn_ms)}


def prepare_peers(suite):
    """Finds the peers; returns them as facts."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)  # exact sleeps for all alike; children inherit it
    versions = {}
    for python in PYTHONS:
        for name, version in execute([python, POOL_PEERS, 'list'])[0].items() if os.path.exists(python) else ():
            if version and not versions.get(name):
                python_of[name] = python
            versions[name] = versions.get(name) or version
    suite.peers = [name for name, version in versions.items() if version]
    return {'peers': versions}


def prepare(suite):
    """Finds the peers and the library's version; returns them as facts."""
    facts = prepare_peers(suite)
    try:
        facts['fiber'] = execute([suite.program('pool_bench'), 'version'])[0]['version']
    except Failure as e:
        facts['fiber'] = 'does not run: %s' % e
    return facts
