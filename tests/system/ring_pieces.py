# ring_pieces.py - what a person sees on a terminal of what ranks have not ended with a newline: a prompt at once, a bar that
# moves and keeps its tag, other ranks' lines on fresh ones, and nothing that steers the terminal.
#
# SPDX-License-Identifier: Apache-2.0
import os
import pty
import sys


class Run:
    def __init__(self, *arguments):
        self.text = b""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execv(sys.argv[1], ["fiber", "run", "--quiet", "--bind-to", "none", *arguments])

    def read(self):
        try:
            more = os.read(self.terminal, 1000)
        except OSError:  # EIO: nobody has it any more
            more = b""
        self.text += more
        return more

    def until(self, what):
        while what not in self.text:
            assert self.read(), f"it ends without {what!r}: {self.text!r}"

    def ends(self, code=0):
        while self.read():
            pass
        got = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        assert got == code, f"exit code {got}: {self.text!r}"
        return self.text


ask = Run("-n", "2", "bash", "-c", '[ $FIBER_RANK = 1 ] || { printf "how many? "; read -r n; echo got $n; }')
ask.until(b"how many? ")
os.write(ask.terminal, b"10\n")
text = ask.ends()
assert text == b"how many? 10\r\ngot 10\r\n", text

gate = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"gate-{os.getpid()}")
os.mkfifo(gate)
bar = Run("-n", "2", "--tag", "bash", "-c",
          f'if [ $FIBER_RANK = 0 ]; then printf "\\r 10%%"; read -r x <{gate}; printf "\\r 99%%\\n"; '
          f'else read -r x <{gate}; echo other; fi')
bar.until(b"[0] \r[0]  10%")
hold = os.open(gate, os.O_RDWR)
os.write(hold, b"go\ngo\n")
text = bar.ends()
os.unlink(gate)
assert b"[0]  99%\r\n" in text and b"\r\n[1] other\r\n" in b"\r\n" + text.replace(b"10%\r\r\n", b"10%\r\n"), text

steer = Run("-n", "1", "printf", "a\\033]0;pwned\\007b\\033[2Jc\\033[31mred\\n")
text = steer.ends()
assert text == b"abc\x1b[31mred\x1b[0m\r\n", text
