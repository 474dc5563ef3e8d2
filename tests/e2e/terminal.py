"""A shell with job control on a terminal of its own, as a person has it.

    shell = Shell(job)
    shell.type("muster run … ; echo status=$?\\n")
    shell.wait_said("Stopped")
"""
import fcntl
import os
import pty
import re
import struct
import termios

from harness import Heard


def last_frame(raw):
    """The rows of the last whole picture of a screen that is drawn from its home position; None: there is none."""
    parts = raw.rpartition(b"\033[J")[0].rpartition(b"\033[H")
    return re.split(r"\r+\n", re.sub(rb"\033\[\d?[Km]", b"", parts[2]).decode()) if parts[1] else None


class Shell:
    """bash -i on a pty. It ends with its job: what is left of it has the job's mark."""

    def __init__(self, job, tag="a", term="dumb"):
        env = job.env(tag, {"PS1": "", "TERM": term, "LC_ALL": "C"})
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(job.tmp)
                os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], env)
            finally:
                os._exit(127)
        self.heard = Heard(os.dup(self.fd))
        self.type("PS1=; stty -echo; set -o notify; echo re''ady\n")
        self.wait_said("ready")

    def type(self, text):
        os.write(self.fd, text.encode())

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_frame(self, check, seconds=30):
        """The first picture, of those that come last, for which check(rows) is true."""
        def found():
            rows = last_frame(bytes(self.heard.raw))
            return rows if rows is not None and check(rows) else None
        rows = self.heard.until(found, seconds)
        assert rows, self.said()
        return rows

    def said(self):
        return self.heard.text()

    def wait_said(self, pattern, seconds=30, times=1):
        """Waits until the terminal has shown this so often; fails with all that it has shown."""
        found = self.heard.until(lambda: len(re.findall(pattern, bytes(self.heard.raw).decode(errors="replace"))) >= times,
                                 seconds)
        assert found, f"no {pattern!r} ({times} times) in: {self.said()}"

    def close(self):
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.fd)
