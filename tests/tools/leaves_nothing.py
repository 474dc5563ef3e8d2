#!/usr/bin/env python3
"""leaves_nothing.py PROGRAM: runs a test program where no recordings are beside it, and where it is not root, so some of
its tests are skipped. Fails if it leaves anything in its temporary folder."""
import os
import shlex
import subprocess
import sys
import tempfile

# As nobody, but still the owner of root's files.
nobody = ["unshare", "--user"] if os.geteuid() == 0 else []
if nobody and subprocess.run([*nobody, "true"], capture_output=True).returncode != 0:
    nobody = []
with tempfile.TemporaryDirectory(prefix="muster-left-") as tmp:
    done = subprocess.run([*nobody, *shlex.split(os.environ.get("MESON_EXE_WRAPPER", "")), sys.argv[1]], env={**os.environ, "TMPDIR": tmp, "MUSTER_SHARED": tmp},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50)
    left = os.listdir(tmp)
if done.returncode != 0 or left:
    sys.exit(f"{sys.argv[1]}: status {done.returncode}, left: {left}\n{done.stdout}{done.stderr}")
