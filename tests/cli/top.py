# top.py - looks at what `fiber top` draws on a terminal of ours: all ranks, on any size of screen; keys, ^Z, and that
# it leaves the terminal as it was.
#
# SPDX-License-Identifier: Apache-2.0
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

LIMIT = 120  # seconds until a screen that does not come is a failure
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
SEQUENCE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\r|\n|[^\x1b]", re.DOTALL)


class Terminal:
    """A terminal that a program runs on, and its screen: as much of one as top needs."""

    def __init__(self, rows, columns, *command):
        self.master, slave = pty.openpty()
        self.rows, self.columns = rows, columns
        self.set_size(rows, columns)
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.text, self.left, self.pictures = "", "", 0
        self.clear()
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def set_size(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, rows, columns):
        """Returns when a whole picture of that size has been drawn; what was on its way is of the old one."""
        self.process.send_signal(signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(self.process.pid, os.WUNTRACED)[1])
        while select.select([self.master], [], [], 0)[0]:
            self.read(0)
        self.set_size(rows, columns)
        self.rows, self.columns, self.pictures = rows, columns, 0
        self.clear()
        self.process.send_signal(signal.SIGCONT)
        last = time.monotonic() + LIMIT
        while self.pictures < 3:
            assert time.monotonic() < last, "it does not draw"
            self.read(1)

    def clear(self):
        self.lines, self.row, self.column, self.scrolled = [""] * self.rows, 0, 0, 0

    def put(self, character):
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[:self.column] + character + line[self.column + 1:]
        self.column += 1

    def down(self):
        if self.row + 1 < self.rows:
            self.row += 1
        else:
            self.lines = self.lines[1:] + [""]
            self.scrolled += 1

    def control(self, what, letter):
        if letter == "H":
            self.row = self.column = 0
            self.pictures += 1
            if self.pictures == 2:  # the first one after a new size may still be of the old one
                self.clear()
        elif letter == "K":
            self.lines[self.row] = self.lines[self.row][:self.column]
        elif letter == "J":
            self.lines[self.row] = self.lines[self.row][:self.column]
            self.lines[self.row + 1:] = [""] * (self.rows - self.row - 1)
        else:
            assert what in ("?1049", "?25"), f"an unknown sequence: {what}{letter}"

    def draw(self, text):
        at = 0
        while found := SEQUENCE.match(text, at):
            at = found.end()
            if found[2]:
                self.control(found[1], found[2])
            elif found[0] == "\r":
                self.column = 0
            elif found[0] == "\n":
                self.down()
            else:
                self.put(found[0])
        return text[at:]

    def read(self, seconds):
        if select.select([self.master], [], [], seconds)[0]:
            more = os.read(self.master, 65536).decode()
            self.text += more
            self.left = self.draw(self.left + more)

    def shows(self, *patterns):
        """Waits until all of them are on the screen."""
        last = time.monotonic() + LIMIT
        while not all(any(re.search(p, line) for line in self.lines) for p in patterns):
            assert time.monotonic() < last, f"{patterns} are not on the screen:\n" + "\n".join(self.lines)
            self.read(1)

    def has_said(self, text):
        last = time.monotonic() + LIMIT
        while text not in self.text:
            assert time.monotonic() < last, f"it should have written {text!r}"
            self.read(1)

    def is_as_before(self):
        assert self.text.count(ENTER) == self.text.count(LEAVE), "the alternate screen is still there"
        assert self.text.rindex("\x1b[?25h") > self.text.rindex("\x1b[?25l"), "the cursor is still hidden"
        assert termios.tcgetattr(self.slave) == self.before, "the terminal's mode is another"

    def ends(self, code):
        last = time.monotonic() + LIMIT
        while self.process.poll() is None:
            assert time.monotonic() < last, "it does not end"
            self.read(0.1)
        while select.select([self.master], [], [], 0)[0]:
            self.read(0)
        assert self.process.returncode == code, f"exit code {self.process.returncode}: {self.text[-500:]!r}"
        os.close(self.slave)
        os.close(self.master)


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
                  *([] if here == 12 or rows < 5 else [f"^and {12 - here} more; q quits"]))
        assert max(map(len, top.lines)) <= 50 and top.scrolled == 0, "\n".join(top.lines)
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
    leaves_the_terminal_as_it_was()
    says_that_the_run_has_ended(launched)
finally:
    launched.kill()
    launched.wait()
