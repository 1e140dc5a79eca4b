# progress.py - looks at how `fiber run` says on a terminal what it waits for: in one line, always the newest, which is gone
# when anything else is written, and at ^Z.
#
# SPDX-License-Identifier: Apache-2.0
import os
import signal
from concurrent.futures import ThreadPoolExecutor

from terminal import Terminal

LINE = "fiber: waiting for [0-9]+ s: 2 of 2 jobs pending: the mock engine"


def run(columns, *command):
    return Terminal(10, columns, "fiber", "run", "--backend", "mock", "--nodes", "2", "-n", "2", "--bind-to", "none",
                    *command)


def nothing_waits(screen):
    assert not any("waiting" in line for line in screen.lines), "\n".join(screen.lines)


def one_line_of_the_newest():
    screen = run(100, "echo", "x")
    screen.shows("^" + LINE + " takes its time$")
    screen.shows("^fiber: waiting for ([3-9]|[1-9][0-9]+) s: ")
    assert "\n" not in screen.text, repr(screen.text)
    screen.ends(0)
    assert screen.lines[:3] == ["x", "x", ""], "\n".join(screen.lines)


def never_wider_than_the_screen():
    screen = run(30, "echo", "x")
    screen.shows("^fiber: waiting for [3-9] s: ")
    assert max(map(len, screen.lines)) == 29, "\n".join(screen.lines)
    screen.ends(0)
    nothing_waits(screen)


def gone_while_it_is_stopped():
    screen = run(100, "echo", "x")
    screen.shows("^" + LINE)
    os.write(screen.master, b"\x1a")  # ^Z
    assert os.WIFSTOPPED(os.waitpid(screen.process.pid, os.WUNTRACED)[1])
    while "\r\x1b[K" not in screen.text[-40:]:
        screen.read(1)
    screen.process.send_signal(signal.SIGCONT)
    screen.ends(0)
    nothing_waits(screen)


def lines_in_the_background():
    """Of a terminal that is somebody else's just now."""
    screen = Terminal(10, 100, "sh", "-mc", "fiber run --backend mock --nodes 2 -n 2 --bind-to none echo x & wait")
    screen.has_said("takes its time\r\n")
    screen.ends(0)
    assert "\x1b" not in screen.text, repr(screen.text)


os.environ.update(FIBER_MOCK="slow_start=6000", TERM="xterm")
with ThreadPoolExecutor() as pool: # each waits for six seconds
    for done in [pool.submit(look) for look in (one_line_of_the_newest, never_wider_than_the_screen,
                                                gone_while_it_is_stopped, lines_in_the_background)]:
        done.result()
