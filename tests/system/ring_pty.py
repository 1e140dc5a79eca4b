# ring_pty.py - a rank with a pseudo-terminal, seen from our terminal: a shell with a prompt, Ctrl-C that goes to what it
# runs, a window that changes, an end with a code, and our terminal as it was; also when the launcher is killed.
#
#   ring_pty.py FIBER [OPTION...]     options of fiber run, as -b docker
#
# SPDX-License-Identifier: Apache-2.0
import fcntl
import os
import pty
import signal
import struct
import sys
import termios

ours, theirs = pty.openpty()
fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
before = termios.tcgetattr(theirs)
text = b""


def launch():
    """The session's leader, as a person's shell is, and the launcher, whose exit code is the leader's."""
    said, says = os.pipe()
    leader = os.fork()
    if leader:
        os.close(says)
        with os.fdopen(said) as f:
            return leader, int(f.read())
    os.setsid()
    fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
    pid = os.fork()
    if pid:
        os.write(says, str(pid).encode())
        os.close(says)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.kill(os.getpid(), -code) if code < 0 else os._exit(code)
    for fd in range(3):
        os.dup2(theirs, fd)
    os.environ.update(TERM="vt100", PS1="")
    os.execv(sys.argv[1], ["fiber", "run", "--bind-to", "none", "-n", "1", "--pty", *sys.argv[2:], "sh", "-i"])


def until(what):
    global text
    while what not in text:
        text += os.read(ours, 1000)
    text = text[text.index(what) + len(what):]


def send(what):
    os.write(ours, what)


leader, pid = launch()
send(b"PS1=; echo at $(stty size) $TERM\n")  # typed before anybody reads it
until(b"at 33 101 vt100\r\n")
send(b"trap 'echo caught' INT; cat\n")
send(b"hello\n")
until(b"hello\r\n")
until(b"hello\r\n")  # by the terminal, and by cat, which is in the foreground
send(b"\x03")
until(b"caught\r\n")
send(b"echo re''ady; while [ \"$(stty size)\" = '33 101' ]; do sleep 0.1; done; echo now $(stty size)\n")
until(b"ready\r\n")
fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 44, 99, 0, 0))
os.kill(pid, signal.SIGWINCH)
until(b"now 44 99\r\n")
send(b"exit 5\n")
until(b"exited with code 5.\r\n")
code = os.waitstatus_to_exitcode(os.waitpid(leader, 0)[1])
assert code == 5, f"exit code {code}"
assert termios.tcgetattr(theirs) == before, "the terminal's mode is another"

leader, pid = launch()
send(b"echo re''ady\n")
until(b"ready\r\n")
assert termios.tcgetattr(theirs) != before, "the terminal is not raw"
os.kill(leader, signal.SIGSTOP)  # the terminal would end with it, before we have looked
os.kill(pid, signal.SIGKILL)
while termios.tcgetattr(theirs) != before:
    os.sched_yield()
os.kill(leader, signal.SIGCONT)
code = os.waitstatus_to_exitcode(os.waitpid(leader, 0)[1])
assert code == -signal.SIGKILL, f"exit code {code}"
