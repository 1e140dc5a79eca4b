# top.py - looks at what `fiber top` draws on a terminal of ours: all ranks, on any size of screen; keys, ^Z, and that
# it leaves the terminal as it was.
#
# SPDX-License-Identifier: Apache-2.0
import os
import signal
import subprocess

from terminal import ENTER, LEAVE, Terminal


def begin(ranks):
    run = subprocess.Popen(["fiber", "run", "-n", str(ranks), "--name", "demo", "--oversubscribe", "tail", "-f",
                            "/dev/null"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while b'"running":%d' % ranks not in subprocess.run(["fiber", "ps", "--json"], capture_output=True).stdout:
        assert run.poll() is None, "the run has ended"
    return run


def watch(rows, columns):
    return Terminal(rows, columns, "fiber", "top", "demo", "--interval", "100ms")


def all_ranks_on_any_size():
    top = watch(30, 100)
    top.shows("^run .* 12 of 12 ranks run", "RANK STATE +CPU% +MEMORY",
              *[f"^ +{rank} running +[0-9]" for rank in range(12)])
    assert top.text.count(ENTER) == 1 and top.scrolled == 0
    for rows in (16, 15, 10, 5, 4):  # 15 has room for three lines and all ranks but one
        top.resize(rows, 50)
        here = min(12, rows - 4) if rows >= 16 else rows - 5
        top.shows("^run ", "RANK STATE", *[f"^ +{rank} running" for rank in range(here)],
                  *([] if here == 12 or rows < 5 else [f"^1 to {here} of 12 by number; q"]))
        assert max(map(len, top.lines)) <= 50 and top.scrolled == 0, "\n".join(top.lines)
    os.write(top.master, b"q")
    top.ends(0)


def scrolls_and_sorts():
    top = watch(9, 100)  # four ranks
    top.shows("RANK STATE", "^ +0 running", "^ +3 running", "^1 to 4 of 12 by number; q quits; arrows scroll")
    for keys, first in ((b"\x1b[B", 1), (b"\x1b[6~", 5), (b"\x1b[F", 8), (b"\x1b[A", 7), (b"\x1b[5~", 3), (b"\x1b[H", 0)):
        os.write(top.master, keys)
        top.shows(f"^ +{first} running", f"^ +{first + 3} running", f"^{first + 1} to {first + 4} of 12 by")
    os.write(top.master, b"m")
    top.shows("^1 to 4 of 12 by memory;")
    memory = [float(line.split()[3]) for line in top.lines[3:7]]
    assert memory == sorted(memory, reverse=True), top.lines
    os.write(top.master, b"q")
    top.ends(0)


def leaves_the_terminal_as_it_was():
    top = watch(30, 100)
    top.shows("^run ")
    os.write(top.master, b"\x1a")  # ^Z
    assert os.WIFSTOPPED(os.waitpid(top.process.pid, os.WUNTRACED)[1])
    top.has_said(LEAVE)
    top.is_as_before()
    top.text = ""
    top.process.send_signal(signal.SIGCONT)
    top.has_said(ENTER)
    top.shows("12 of 12 ranks run")
    os.write(top.master, b"\x03")  # ^C
    top.has_said(LEAVE)
    top.is_as_before()
    top.ends(0)


def prints_tables_on_a_dumb_terminal():
    top = Terminal(30, 100, "env", "TERM=dumb", "fiber", "top", "demo", "--interval", "100ms")
    top.shows("^run .* 12 of 12 ranks run", "^ +11 running")
    assert "\x1b" not in top.text
    os.write(top.master, b"\x03")  # ^C
    top.ends(-signal.SIGINT)


def goes_on_while_the_launcher_is_silent(run):
    top, other = watch(30, 100), watch(30, 100)
    for each in (top, other):
        each.shows("12 of 12 ranks run")
    run.send_signal(signal.SIGSTOP)
    for each in (top, other):
        each.shows(f"^no answer for [0-9]+ s: its launcher, process {run.pid},", *[f"^ +{rank} running" for rank in range(12)])
    os.write(other.master, b"\x03")  # ^C
    other.ends(0)
    run.send_signal(signal.SIGCONT)
    top.shows("12 of 12 ranks run", "^ +11 running +[0-9]")  # it answers again: new figures, no silence
    assert not any("silent" in line for line in top.lines)
    os.write(top.master, b"q")
    top.ends(0)


def says_that_the_run_has_ended(run):
    top = watch(30, 100)
    top.shows("12 of 12 ranks run")
    run.send_signal(signal.SIGTERM)
    top.has_said("has ended\r\n")
    assert top.text.rindex("has ended") > top.text.rindex(LEAVE)
    top.is_as_before()
    top.ends(0)


launched = begin(12)
try:
    all_ranks_on_any_size()
    scrolls_and_sorts()
    leaves_the_terminal_as_it_was()
    prints_tables_on_a_dumb_terminal()
    goes_on_while_the_launcher_is_silent(launched)
    says_that_the_run_has_ended(launched)
finally:
    launched.kill()
    launched.wait()
