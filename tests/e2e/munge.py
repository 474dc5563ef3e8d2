"""A munged of a test's own, which other users reach, too.

    with Munged("site") as site:
        job.agent(…, env={"MUSTER_MUNGE_SOCKET": site.socket})
        site.signal(signal.SIGSTOP)
        credential = site.encode("text", uid=65534, to=0)
"""
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import pytest

import harness


class Munged:
    def __init__(self, key="one", env=None):
        if os.geteuid() != 0 or shutil.which("munged") is None:
            pytest.skip("needs root and munged (Debian: munge)")
        self.env = {**os.environ, **{k: str(v) for k, v in (env or {}).items()}}
        self.key = hashlib.sha256(key.encode()).digest()  # the same name: the same realm

    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-munge."))
        self.folder.chmod(0o755)
        self.socket = self.folder / "socket"
        (self.folder / "key").touch(0o600)
        (self.folder / "key").write_bytes(self.key)
        self.run()
        return self

    def run(self):
        names = {"key": "key", "socket": "socket", "pid": "pid", "log": "log", "seed": "seed"}
        subprocess.run(["munged", "--force", "--num-threads=2", *(f"--{k}-file={self.folder}/{v}" for k, v in names.items() if k != "socket"),
                        f"--socket={self.socket}"], check=True, capture_output=True, stdin=subprocess.DEVNULL, env=self.env)

    def pid(self):
        return int((self.folder / "pid").read_text())

    def signal(self, signo):
        harness.kill(self.pid(), signo)

    def stop(self):
        if (self.folder / "pid").exists():
            pid = self.pid()
            self.signal(signal.SIGCONT)
            fd = os.pidfd_open(pid)
            try:
                self.signal(signal.SIGTERM)
                harness.select.select([fd], [], [], 10)
            finally:
                os.close(fd)

    def __exit__(self, *what):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def encode(self, text, uid=0, to=0):
        done = subprocess.run(["setpriv", f"--reuid={uid}", "--clear-groups", "munge", f"--socket={self.socket}", f"--restrict-uid={to}",
                               f"--string={text}"], check=True, capture_output=True, text=True, cwd="/")
        return done.stdout.strip()

    def decode(self, credential):
        """The payload, also of one that was read before."""
        done = subprocess.run(["unmunge", f"--socket={self.socket}", "--metadata=/dev/null"], input=credential, capture_output=True, text=True)
        return done.stdout
