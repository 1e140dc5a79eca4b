# suite_python.py - the figures of the Python package: what each key measures, against whom, and its bar.
#
# SPDX-License-Identifier: Apache-2.0
import ctypes
import os
import statistics
import sys

import chart
import suite_pool
from harness import HERE, Failure, column, combine, execute, judge, ratio, spread

TITLE = 'the Python package on one machine, beside multiprocessing'
REPS = 5
POOL_CALLS = os.path.join(HERE, 'python', 'pool_calls.py')
OBJECT_CALLS = os.path.join(HERE, 'python', 'object_calls.py')
PPO_FRAMES = os.path.join(HERE, 'python', 'ppo_frames.py')
PIPE_CALLS = os.path.join(HERE, 'python', 'pipe_calls.py')
METHODS = ('spawn', 'fork')
PR_SET_TIMERSLACK = 29  # linux/prctl.h


def environment(suite):
    return {'PYTHONPATH': os.path.join(suite.build, 'python')}


def call(suite, lib, operation):
    return [sys.executable, POOL_CALLS, lib, operation], environment(suite)


def beside(suite, operation, methods=METHODS):
    return {lib: call(suite, lib, operation) for lib in ('fiber', *methods)}


def objects_beside(suite, operation):
    return {lib: ([sys.executable, OBJECT_CALLS, lib, operation], environment(suite)) for lib in ('fiber', *METHODS)}


def median(values):
    return statistics.median(values)


def python_overhead_1ms(suite):
    """5 workers, 5,000 tasks of 1 ms; the floor is five Python processes that only sleep."""
    contenders = {how: dict(beside(suite, 'tasks:' + how), floor=call(suite, 'floor', 'naps:5000:1'))
                  for how in ('default', 'chunk1', 'unordered')}
    got = column(suite.sample('python_overhead_1ms', contenders), 'seconds')
    cases = {how: judge(ratio(group['fiber'], group['floor'], 'x floor'), '<=', 1.05) for how, group in got.items()}
    return combine('chunk1', cases, got)


def python_empty(suite):
    """Tasks that do nothing, in a second."""
    scale = 10 if suite.quick else 1
    wanted = {'chunk1': (100000, 10), 'default': (1000000, 1), 'unordered': (50000, 4), 'async': (20000, 6)}
    contenders = {how: beside(suite, 'empty:%s:%d' % (how, n // scale)) for how, (n, _) in wanted.items()}
    got = column(suite.sample('python_empty', contenders), 'tasks_per_s')
    cases = {}
    for how, group in got.items():
        best = max(METHODS, key=lambda lib: median(group[lib]))
        cases[how] = judge(ratio(group['fiber'], group[best], 'x ' + best), '>=', wanted[how][1])
        cases[how + '_tasks_per_s'] = spread(group['fiber'], 'tasks/s', 0)
    return combine('chunk1', cases, got)


def python_apply(suite):
    """One call and its result; p50 beside multiprocessing's, p99 beside our p50."""
    got = suite.sample('python_apply', {'apply': beside(suite, 'apply:%d' % (300 if suite.quick else 3000), ('spawn',))})
    p50, p99 = column(got, 'p50_us'), column(got, 'p99_us')
    ours, theirs = p50['apply']['fiber'], p50['apply']['spawn']
    cases = {'p50': judge(ratio(ours, theirs, 'x spawn'), '<=', 0.6),
             'p99': judge(ratio(p99['apply']['fiber'], ours, 'x p50'), '<=', 3), 'p50_us': spread(ours, 'us', 1)}
    return combine('p50', cases, {'p50_us': p50['apply'], 'p99_us': p99['apply']})


def half_at_most(got):
    """Judges microseconds: at most half of those of the better start method."""
    cases = {}
    for what, group in got.items():
        best = min(METHODS, key=lambda lib: median(group[lib]))
        cases[what] = judge(ratio(group['fiber'], group[best], 'x ' + best), '<=', 0.5)
        cases[what + '_us'] = spread(group['fiber'], 'us', 1)
    return cases


def python_pipe(suite):
    """An object there and back through a Pipe; p50 beside multiprocessing's."""
    scale = 10 if suite.quick else 1
    contenders = {what: {lib: ([sys.executable, PIPE_CALLS, lib, str(size), str(rounds // scale)], environment(suite))
                         for lib in ('fiber', *METHODS)}
                  for what, size, rounds in (('object', 0, 10000), ('64KiB', 65536, 4000), ('1MiB', 1 << 20, 500))}
    got = column(suite.sample('python_pipe', contenders), 'p50_us')
    return combine('object', half_at_most(got), got)


def python_state(suite):
    """200 calls of an object with 1 MiB of state, each a task of its own."""
    contenders = {how: beside(suite, 'state:' + how, ('spawn',)) for how in ('chunk1', 'default')}
    got = column(suite.sample('python_state', contenders), 'seconds')
    cases = {'chunk1': judge(ratio(got['chunk1']['fiber'], got['chunk1']['spawn'], 'x spawn'), '<=', 0.1),
             'default': ratio(got['default']['fiber'], got['default']['spawn'], 'x spawn')}
    return combine('chunk1', cases, got)


def python_start(suite):
    """A pool from nothing to a result of each worker."""
    contenders = {n: beside(suite, 'start:' + n) for n in ('5', '64')}
    got = column(suite.sample('python_start', contenders), 'seconds')
    cases = {n + '_workers': judge(ratio(got[n]['fiber'], got[n]['spawn'], 'x spawn'), '<=', bar)
             for n, bar in (('5', 0.8), ('64', 0.7))}
    cases['64_seconds'] = spread(got['64']['fiber'], 's', 3)
    return combine('64_workers', cases, got)


def python_memory(suite):
    """Memory of an idle worker (PSS)."""
    got = column(suite.sample('python_memory', {'pss_mib': beside(suite, 'memory:5')}), 'pss_mib')
    group = got['pss_mib']
    cases = {'pss': judge(ratio(group['fiber'], group['spawn'], 'x spawn'), '<=', 1), 'pss_mib': spread(group['fiber'],
                                                                                                       'MiB', 2)}
    return combine('pss', cases, got)


def python_proxy(suite):
    """A call of a manager's object; an object that is made, called and dropped; one that a task gets and calls."""
    n = 300 if suite.quick else 3000
    operations = {'call': 'proxy:%d' % n, 'made': 'made:%d' % (n // 10), 'in_a_task': 'travels:%d' % (n // 10)}
    contenders = {what: objects_beside(suite, operation) for what, operation in operations.items()}
    got = column(suite.sample('python_proxy', contenders), 'p50_us')
    return combine('call', half_at_most(got), got)


def python_environments(suite):
    """Steps in a second of 4 environments in processes, which take no time themselves."""
    got = suite.sample('python_environments',
                       {'steps': objects_beside(suite, 'environments:%d' % (300 if suite.quick else 12000))})
    group = column(got, 'steps_per_s')['steps']
    best = max(METHODS, key=lambda lib: median(group[lib]))
    cases = {'steps': judge(ratio(group['fiber'], group[best], 'x ' + best), '>=', 2),
             'steps_per_s': spread(group['fiber'], 'steps/s', 0)}
    return combine('steps', cases, {'steps_per_s': group})


def python_queue(suite):
    """Messages in a second of a process to the owner of a Queue."""
    scale = 10 if suite.quick else 1
    contenders = {what: objects_beside(suite, 'queue:%d:%d' % (size, n // scale))
                  for what, size, n in (('64B', 64, 100000), ('64KiB', 65536, 10000))}
    got = column(suite.sample('python_queue', contenders), 'messages_per_s')
    cases = {}
    for what, bar in (('64B', 3), ('64KiB', 1.2)):
        best = max(METHODS, key=lambda lib: median(got[what][lib]))
        cases[what] = judge(ratio(got[what]['fiber'], got[what][best], 'x ' + best), '>=', bar)
    return combine('64B', cases, got)


def python_process(suite):
    """One process, from start to joined."""
    got = suite.sample('python_process', {'one': beside(suite, 'process:%d' % (5 if suite.quick else 20), ('spawn',))})
    group = column(got, 'p50_ms')['one']
    cases = {'one': judge(ratio(group['fiber'], group['spawn'], 'x spawn'), '<=', 1.05),
             'one_ms': spread(group['fiber'], 'ms', 1)}
    return combine('one', cases, {'p50_ms': group})


def python_arrays(suite):
    """Tasks that answer their 1 MiB: MiB in a second, in and out added."""
    got = suite.sample('python_arrays', {'1MiB': beside(suite, 'arrays:%d' % (32 if suite.quick else 256))})
    group = column(got, 'mib_s')['1MiB']
    best = max(METHODS, key=lambda lib: median(group[lib]))
    cases = {'1MiB': judge(ratio(group['fiber'], group[best], 'x ' + best), '>=', 3),
             'mib_s': spread(group['fiber'], 'MiB/s', 0)}
    return combine('1MiB', cases, {'mib_s': group})


def es_iteration(suite):
    """An iteration of an evolution strategy with a policy of 1 MiB; multiprocessing with the chunk size that suits it."""
    got = suite.sample('es_iteration', {how: beside(suite, 'es:%s:%d' % (how, 50 if suite.quick else 500),
                                                    (*METHODS, 'floor')) for how in ('naps', 'work')})
    cases, got = {}, column(got, 'seconds')
    for how, group in got.items():
        best = min(METHODS, key=lambda lib: median(group[lib]))
        faster = ratio(group[best], group['fiber'], 'x as fast as ' + best)
        cases[how] = judge(faster, '>=', 1.2) if how == 'naps' else faster  # work leaves nothing to gain on few cores
        cases[how + '_of_floor'] = ratio(group['fiber'], group['floor'], 'x floor')
        cases[how + '_seconds'] = spread(group['fiber'], 's', 4)
    return combine('naps', cases, got)


def learner_python():
    """An interpreter that has Stable-Baselines3 and Breakout: ours, or the one that `./demo --python` has made."""
    cache = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
    for python in (sys.executable, os.path.join(cache, 'fiber', 'python', 'bin', 'python3')):
        try:
            execute([python, PPO_FRAMES, 'list'])
            return python
        except (Failure, OSError):
            continue
    raise Failure('no stable-baselines3 with ale-py: `./demo --python` installs it for itself')


def ppo_frames(suite):
    """Frames that PPO plays and learns from in a second, with 8 Breakout environments in processes."""
    python, frames = learner_python(), 4000 if suite.quick else 20000
    contenders = {lib: ([python, PPO_FRAMES, lib, str(frames)], environment(suite), 600)
                  for lib in ('fiber', 'multiprocessing')}
    group = column(suite.sample('ppo_frames', {'frames': contenders}), 'frames_per_s')['frames']
    cases = {'frames': judge(ratio(group['fiber'], group['multiprocessing'], 'x multiprocessing'), '>=', 0.95),
             'frames_per_s': spread(group['fiber'], 'frames/s', 0)}
    return combine('frames', cases, {'frames_per_s': group})


def paper_overhead(suite):
    """Tasks of 1 ms to 1 s on 5 workers, each ideally 1 s; every peer that is installed. Draws it, too."""
    sizes = {'1ms': (5000, 1), '10ms': (500, 10), '100ms': (50, 100), '1s': (5, 1000)}
    contenders, operations = {}, {}
    for case, (n, ms) in sizes.items():
        operations[case] = 'tasks:%d:%d' % (n, ms)
        contenders[case] = {'fiber': call(suite, 'fiber', 'naps:%d:%d' % (n, ms)),
                            'floor': call(suite, 'floor', 'naps:%d:%d' % (n, ms))}
        suite_pool.with_peers(contenders[case], 5, operations[case])
    got = column(suite.sample('paper_overhead', contenders, suite_pool.slow_peers(suite, 5, operations)), 'seconds')
    cases = {case: ratio(group['fiber'], group['floor'], 'x floor') for case, group in got.items()}
    for case in ('1ms', '10ms'):
        peers = {name: values for name, values in got[case].items() if name not in ('fiber', 'floor') and values}
        best = min(peers, key=lambda name: median(peers[name]))
        cases[case + '_vs_fastest_peer'] = judge(ratio(got[case]['fiber'], peers[best], 'x ' + best), '<', 1)
    figure = combine('1ms', cases, got)
    figure['svg'] = os.path.join(suite.build, 'benchmarks', 'paper_overhead.svg')
    os.makedirs(os.path.dirname(figure['svg']), exist_ok=True)
    with open(figure['svg'], 'w') as f:
        series, cases = chart.summary(figure['samples'])
        f.write(chart.lines(chart.PAPER_OVERHEAD, cases, series))
    return figure


KEYS = {key.__name__: key for key in (
    python_overhead_1ms, python_empty, python_apply, python_pipe, python_proxy, python_environments, python_queue,
    python_process, python_start, python_memory, python_state, python_arrays, ppo_frames, es_iteration, paper_overhead)}


def prepare(suite):
    """Sets exact sleeps for all alike, and tells the version."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    line = 'import fiber, json; print(json.dumps({"version": fiber.__version__}))'
    facts = suite_pool.prepare_peers(suite)
    try:
        facts['fiber'] = execute([sys.executable, '-c', line], environment(suite))[0]['version']
    except Failure as e:
        facts['fiber'] = 'does not run: %s' % e
    return facts
