# harness.py - samples of programs, taken in turn, and the figures made of them.
#
# Every sample is a process of its own: a command that prints JSON lines. In each repetition all contenders of a case
# run one after the other (A B A B ...), so that a machine that gets slower or busier meanwhile does so for all.
# A figure that compares is the ratio of the contenders' medians; its min and max are those of the ratios within one
# repetition.
#
# SPDX-License-Identifier: Apache-2.0
import json
import os
import platform
import resource
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
QUIET_CORES = 0.3  # a repetition waits until fewer cores than this are busy, or its patience is over


class Failure(Exception):
    """A program that a figure needs did not run; the text says which and why."""


def machine_ticks():
    """(busy, stolen) seconds of all cores since boot."""
    with open('/proc/stat') as stat:
        v = [int(x) for x in stat.readline().split()[1:]]
    hz = os.sysconf('SC_CLK_TCK')
    return (v[0] + v[1] + v[2] + v[5] + v[6]) / hz, v[7] / hz


def wait_quiet(patience):
    end = time.time() + patience
    while True:
        busy = machine_ticks()[0]
        time.sleep(0.1)
        if (machine_ticks()[0] - busy) / 0.1 < QUIET_CORES or time.time() > end:
            return


def children_cpu():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def execute(argv, env=None, limit=60):
    """Runs a program of this suite; returns its JSON lines."""
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=dict(os.environ, **(env or {})), start_new_session=True)
    name = ' '.join([os.path.basename(a) for a in argv[:2]] + argv[2:])
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Failure('%s: no answer in %d s' % (name, limit)) from None
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    if process.returncode:
        last = err.decode(errors='replace').strip().splitlines()[-3:]
        raise Failure('%s: exit code %d: %s' % (name, process.returncode, ' / '.join(last) or 'no message'))
    try:
        return [json.loads(line) for line in out.decode().splitlines() if line.startswith('{')]
    except ValueError as e:
        raise Failure('%s: %s' % (name, e)) from None


class Suite:
    """What the figures of a suite share: programs, repetitions, peers, progress."""

    def __init__(self, build, reps, quick):
        self.build, self.reps, self.quick = build, reps, quick
        self.peers_absent, self.errors, self.others = [], [], []

    def program(self, name):
        path = os.path.join(self.build, 'benchmarks', name)
        if not os.access(path, os.X_OK):
            raise Failure('no program %s (build the project, or name its build folder with --build)' % path)
        return path

    def progress(self, text):
        """What is running now, on a terminal: one line that the next one overwrites; '' clears it."""
        if sys.stderr.isatty():
            sys.stderr.write('\r\033[K' + text)
            sys.stderr.flush()

    def run_one(self, argv, env=None, limit=60):
        start, busy, own = time.perf_counter(), machine_ticks()[0], children_cpu()
        lines = execute(argv, env, limit)
        seconds = time.perf_counter() - start
        used = machine_ticks()[0] - busy - (children_cpu() - own)
        self.others.append(max(0.0, used / seconds))
        return lines

    def sample(self, key, contenders, wholes=None):
        """contenders: {case: {name: (argv, env)}}, each a process that prints one line; (argv, env, seconds) when it
        may take longer than a minute. wholes: {name: (argv, [case, ...])}, slow starters that run once in a repetition
        and print a line for each case. Returns {case: {name: [line, ...]}}. Only `wholes` may fail."""
        got = {case: {name: [] for name in group} for case, group in contenders.items()}
        for rep in range(self.reps):
            wait_quiet(0.3 if self.quick else 1.0)
            for case, group in contenders.items():
                for name, command in group.items():
                    self.progress('%s %s: %s, %d of %d' % (key, case, name, rep + 1, self.reps))
                    got[case][name].append(self.run_one(*command)[-1])
            for name, (argv, cases) in (wholes or {}).items():
                self.progress('%s: %s, %d of %d' % (key, name, rep + 1, self.reps))
                self.sample_whole(key, name, argv, cases, got)
        return got

    def sample_whole(self, key, name, argv, cases, got):
        if any(error.startswith('%s: %s: ' % (key, name)) for error in self.errors):
            return
        try:
            for case, line in zip(cases, self.run_one(argv, limit=180)):
                got[case].setdefault(name, []).append(line)
        except Failure as e:
            self.errors.append('%s: %s: %s' % (key, name, e))


def spread(values, unit, digits=6):
    return {'value': round(statistics.median(values), digits), 'min': round(min(values), digits),
            'max': round(max(values), digits), 'unit': unit, 'n': len(values)}


def ratio(above, below, unit='x'):
    """Of medians; min and max are of the pairs that were measured one after the other."""
    pairs = [a / b for a, b in zip(above, below)]
    return {'value': round(statistics.median(above) / statistics.median(below), 4), 'min': round(min(pairs), 4),
            'max': round(max(pairs), 4), 'unit': unit, 'n': len(pairs)}


def judge(figure, sign, bar, of=''):
    """Adds the bar and whether the figure meets it; sign is '<=', '>=' or '<'."""
    value = figure['value']
    figure['bar'] = '%s %g %s' % (sign, bar, of or figure['unit'])
    figure['met'] = {'<=': value <= bar, '>=': value >= bar, '<': value < bar}[sign]
    return figure


def combine(main, cases, samples):
    """The figure of a key: the case `main` of its cases; met when all its cases with a bar are. samples: {case: {name:
    [number, ...]}}."""
    figure = dict(cases[main])
    judged = [case['met'] for case in cases.values() if 'met' in case]
    if judged:
        figure['met'] = all(judged)
    if len(cases) > 1:
        figure['cases'] = cases
    figure['samples'] = {'%s/%s' % (case, name): [round(v, 6) for v in values]
                         for case, group in samples.items() for name, values in group.items()}
    return figure


def column(got, field):
    """{case: {name: [line, ...]}} -> the same with one field of each line."""
    return {case: {name: [line[field] for line in lines] for name, lines in group.items()}
            for case, group in got.items()}


def machine_facts():
    facts = {'cores': os.cpu_count(), 'usable_cores': len(os.sched_getaffinity(0)), 'kernel': platform.release(),
             'arch': platform.machine(), 'python': platform.python_version(), 'libc': ' '.join(platform.libc_ver())}
    with open('/proc/cpuinfo') as info:
        models = [line.split(':', 1)[1].strip() for line in info if line.startswith('model name')]
    with open('/proc/meminfo') as info:
        facts['memory_gib'] = round(int(info.readline().split()[1]) / 1048576, 1)
    facts['cpu'] = models[0] if models else 'unknown'
    return facts


# ---- On a terminal ---------------------------------------------------------------------------------------------

def number(value):
    if value is None:
        return '-'
    if abs(value) >= 1000:
        return '{:,.0f}'.format(value)
    return '%.4g' % value


def verdict(figure, colours):
    if 'met' not in figure:
        return ''
    word, colour = ('met', '32') if figure['met'] else ('NOT met', '31')
    return '\033[%sm%s\033[0m' % (colour, word) if colours else word


def print_row(name, figure, colours):
    band = '%s .. %s' % (number(figure['min']), number(figure['max']))
    print('%-30s %11s %-20s %-24s %-26s %s' % (name, number(figure['value']), figure['unit'], band,
                                              figure.get('bar', ''), verdict(figure, colours)))


def print_key(key, figure, colours):
    if figure.get('error'):
        print('%-30s did not run: %s' % (key, figure['error']))
        return
    if 'cases' not in figure:
        print_row(key, figure, colours)
    else:
        print('%-30s %s' % (key, verdict(figure, colours)))
        for name, case in figure['cases'].items():
            print_row('  ' + name, case, colours)
    groups = {}
    for label, values in figure['samples'].items():
        case, name = label.rsplit('/', 1)
        groups.setdefault(case, []).append('%s %s' % (name, number(statistics.median(values))))
    for case, texts in groups.items():
        print('    medians, %s: %s' % (case, ', '.join(texts)))


def print_table(report, colours):
    print('%-30s %11s %-20s %-24s %s' % ('key', 'value', '', 'min .. max', 'bar'))
    for key, figure in report.items():
        if key != 'machine':
            print_key(key, figure, colours)
    facts = report['machine']
    print('\n' + ', '.join('%s %s' % (k.replace('_', ' '), v) for k, v in facts.items()
                           if not isinstance(v, (dict, list))))
    absent = [name for name, version in facts['peers'].items() if version is None]
    if absent:
        print('peers not installed: ' + ', '.join(absent))
    for error in facts['peer_errors']:
        print('peer without a figure: ' + error)
