"""tests/run.sh itself, with a program that waits in place of pytest."""
import os
import pathlib
import signal
import subprocess
import time

import pytest

from harness import alive, deadline
from slurm import pause

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "run.sh"


@pytest.mark.parametrize("signo, status", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_tests_that_run(tmp_path, signo, status):
    text = SCRIPT.read_text()
    functions = text[text.index("# A shell that waits"):text.index('rm -rf "$results"')]
    stub = tmp_path / "timeout"
    stub.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid.new\nmv {tmp_path}/pid.new {tmp_path}/pid\nexec sleep 600\n")
    stub.chmod(0o755)
    script = f"set -u\nresults={tmp_path} work={tmp_path} scale=normal expr=\n{functions}\ne2e e2e muster\n"
    shell = subprocess.Popen(["bash", "-c", script], env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
                             start_new_session=True)
    pid = None
    try:
        end = deadline(20)
        while not (tmp_path / "pid").exists():
            assert time.monotonic() < end
            pause(0.02)
        pid = int((tmp_path / "pid").read_text())
        shell.send_signal(signo)
        assert shell.wait(20) == status
        while alive(pid):
            assert time.monotonic() < end, "the tests go on"
            pause(0.02)
    finally:
        shell.kill()
        shell.wait()
        if pid and alive(pid):
            os.kill(pid, signal.SIGKILL)
