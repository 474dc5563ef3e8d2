"""A shell with job control on a terminal of its own, as a person has it.

    shell = Shell(job)
    shell.type("muster run … ; echo status=$?\\n")
    shell.wait_said("Stopped")
"""
import os
import pty
import re

from harness import Heard


class Shell:
    """bash -i on a pty. It ends with its job: what is left of it has the job's mark."""

    def __init__(self, job, tag="a"):
        env = job.env(tag, {"PS1": "", "TERM": "dumb", "LC_ALL": "C"})
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
