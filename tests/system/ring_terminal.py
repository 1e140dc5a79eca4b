# ring_terminal.py - a run that a shell began in the background of a terminal, and that comes to the foreground later: only
# then does rank 0 read what is typed. We are the shell.
#
# SPDX-License-Identifier: Apache-2.0
import os
import pty
import signal
import sys


def shell():
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    ours, out, into = os.getpgrp(), *os.pipe()
    run = os.fork()
    if run == 0:
        os.setpgid(0, 0)
        os.dup2(into, 1)
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execv(sys.argv[1], ["fiber", "run", "-n", "1", "bash", "-c",
                               "echo up; if read -r line; then echo read $line; else echo end of input; fi"])
    os.close(into)
    said = os.fdopen(out)
    assert said.readline() == "up\n"
    os.write(2, b"type\n")  # what is typed now is typed while another group has the terminal
    assert os.read(0, 100) == b"for the shell\n"
    os.tcsetpgrp(0, run)
    line = said.readline()
    os.tcsetpgrp(0, ours)
    _, status = os.waitpid(run, 0)
    os.write(2, ("%s, code %d\n" % (line.strip(), os.waitstatus_to_exitcode(status))).encode())
    os._exit(0)


pid, terminal = pty.fork()
if pid == 0:
    shell()
text = b""
while b"type\r\n" not in text:
    text += os.read(terminal, 1000)
os.write(terminal, b"for the shell\n")
os.write(terminal, b"for the rank\n")
while b", code " not in text:
    text += os.read(terminal, 1000)
os.waitpid(pid, 0)
assert b"read for the rank, code 0" in text, text.decode()
