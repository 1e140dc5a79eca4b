# terminal.py - a terminal of ours for a program, and what is on its screen; for tests of the command line.
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
        os.close(self.slave)
        try:
            while True:  # what it wrote last may still be on its way
                self.read(LIMIT)
        except OSError:  # EIO: nobody has the terminal any more
            pass
        assert self.process.returncode == code, f"exit code {self.process.returncode}: {self.text[-2000:]!r}"
        os.close(self.master)
