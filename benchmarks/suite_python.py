# suite_python.py - the figures of the Python package: what each key measures, against whom, and its bar.
#
# SPDX-License-Identifier: Apache-2.0
import ctypes
import os
import platform
import statistics
import sys

from harness import HERE, Failure, column, combine, execute, judge, ratio, spread

TITLE = 'the Python package on one machine, beside multiprocessing'
REPS = 5
POOL_CALLS = os.path.join(HERE, 'python', 'pool_calls.py')
PIPE_CALLS = os.path.join(HERE, 'python', 'pipe_calls.py')
METHODS = ('spawn', 'fork')
PR_SET_TIMERSLACK = 29  # linux/prctl.h


def environment(suite):
    return {'PYTHONPATH': os.path.join(suite.build, 'python')}


def call(suite, lib, operation):
    return [sys.executable, POOL_CALLS, lib, operation], environment(suite)


def beside(suite, operation, methods=METHODS):
    return {lib: call(suite, lib, operation) for lib in ('fiber', *methods)}


def median(values):
    return statistics.median(values)


def python_overhead_1ms(suite):
    """5 workers, 5,000 tasks of 1 ms; the floor is five Python processes that only sleep."""
    contenders = {how: dict(beside(suite, 'tasks:' + how), floor=call(suite, 'floor', ''))
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


def python_pipe(suite):
    """An object there and back through a Pipe; p50 beside multiprocessing's."""
    scale = 10 if suite.quick else 1
    contenders = {what: {lib: ([sys.executable, PIPE_CALLS, lib, str(size), str(rounds // scale)], environment(suite))
                         for lib in ('fiber', *METHODS)}
                  for what, size, rounds in (('object', 0, 3000), ('64KiB', 65536, 500), ('1MiB', 1 << 20, 300))}
    got = column(suite.sample('python_pipe', contenders), 'p50_us')
    cases = {}
    for what, group in got.items():
        best = min(METHODS, key=lambda lib: median(group[lib]))
        cases[what] = judge(ratio(group['fiber'], group[best], 'x ' + best), '<=', 0.5)
        cases[what + '_us'] = spread(group['fiber'], 'us', 1)
    return combine('object', cases, got)


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


KEYS = {key.__name__: key for key in (python_overhead_1ms, python_empty, python_apply, python_pipe, python_state,
                                      python_start, python_memory)}


def prepare(suite):
    """Sets exact sleeps for all alike, and tells the version."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    line = 'import fiber, json; print(json.dumps({"version": fiber.__version__}))'
    facts = {'peers': {'multiprocessing': platform.python_version()}}
    try:
        facts['fiber'] = execute([sys.executable, '-c', line], environment(suite))[0]['version']
    except Failure as e:
        facts['fiber'] = 'does not run: %s' % e
    return facts
