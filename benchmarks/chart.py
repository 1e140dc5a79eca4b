#!/usr/bin/env python3
# chart.py - figures as SVG: lines over a few cases, on a logarithmic scale.
#
#     benchmarks/run python --only paper_overhead --json > result.json
#     benchmarks/chart.py result.json docs/paper_overhead.svg
#
# draws that figure again from its result, and prints its table as Markdown: medians in seconds, the fastest first. With
# --best the smallest of the repetitions stands there instead, for a machine that others use.
#
# SPDX-License-Identifier: Apache-2.0
import html
import json
import math
import statistics
import sys

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 420, 60, 40, 170, 40
COLOURS = ('#d62728', '#7f7f7f', '#1f77b4', '#2ca02c', '#ff7f0e', '#9467bd', '#8c564b', '#17becf', '#bcbd22', '#e377c2')
PAPER_OVERHEAD = '5 workers, tasks of 1 ms to 1 s: seconds, ideally 1'


def text(x, y, words, **attributes):
    more = ''.join(' %s="%s"' % (name.replace('_', '-'), value) for name, value in attributes.items())
    return '<text x="%.1f" y="%.1f"%s>%s</text>' % (x, y, more, html.escape(words))


def scale_of(series):
    """The powers of ten around all values."""
    values = [v for line in series.values() for v in line]
    return math.floor(math.log10(min(values))), math.ceil(math.log10(max(values) * 1.001))


def lines(title, cases, series):
    """An SVG with a line for each of series: {name: [a value above 0 for each case]}."""
    low, high = scale_of(series)
    across = (WIDTH - LEFT - RIGHT) / max(1, len(cases) - 1)
    down = (HEIGHT - TOP - BOTTOM) / (high - low)

    def place(i, value):
        return LEFT + i * across, HEIGHT - BOTTOM - (math.log10(value) - low) * down
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">'
           % (WIDTH, HEIGHT), '<rect width="100%" height="100%" fill="white"/>',
           text(WIDTH / 2, 20, title, text_anchor='middle', font_size=14)]
    for power in range(low, high + 1):
        _, y = place(0, 10.0 ** power)
        out.append('<path d="M%d %.1fH%d" stroke="#ddd"/>' % (LEFT, y, WIDTH - RIGHT))
        out.append(text(LEFT - 6, y + 4, '%g' % 10.0 ** power, text_anchor='end'))
    for i, case in enumerate(cases):
        out.append(text(LEFT + i * across, HEIGHT - BOTTOM + 20, case, text_anchor='middle'))
    ends = sorted(series, key=lambda name: -series[name][0])
    for k, (name, values) in enumerate(series.items()):
        colour = COLOURS[k % len(COLOURS)]
        points = ' '.join('%.1f,%.1f' % place(i, v) for i, v in enumerate(values))
        out.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>' % (points, colour))
        out.append(text(WIDTH - RIGHT + 12, TOP + 10 + 18 * ends.index(name), name, fill=colour))
    return '\n'.join(out) + '\n</svg>\n'


def summary(samples, best=False):
    """({name: [the median of each case, or the smallest]}, cases) of the samples of a key; of those with all cases."""
    reduce = min if best else statistics.median
    cases = list(dict.fromkeys(label.rsplit('/', 1)[0] for label in samples))
    names = dict.fromkeys(label.rsplit('/', 1)[1] for label in samples)
    return {name: [reduce(samples['%s/%s' % (case, name)]) for case in cases]
            for name in names if all(samples.get('%s/%s' % (case, name)) for case in cases)}, cases


def main(argv):
    best = argv[:1] == ['--best']
    argv = argv[best:]
    if len(argv) != 2:
        sys.exit('usage: chart.py [--best] RESULT.json PICTURE.svg')
    with open(argv[0]) as f:
        report = json.load(f)
    series, cases = summary(report['paper_overhead']['samples'], best)
    with open(argv[1], 'w') as f:
        f.write(lines(PAPER_OVERHEAD, cases, series))
    versions = report['machine'].get('peers', {})
    print('| seconds | %s |\n|%s' % (' | '.join(cases), '---|' * (len(cases) + 1)))
    for name in sorted(series, key=lambda name: series[name]):
        version = versions.get(name) or ''
        print('| %s | %s |' % (('%s %s' % (name, version)).strip(), ' | '.join('%.3f' % v for v in series[name])))


if __name__ == '__main__':
    main(sys.argv[1:])
