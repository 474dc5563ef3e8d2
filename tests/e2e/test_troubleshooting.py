"""docs/troubleshooting.md has what muster prints for ordinary mistakes: each of its error and warning lines is found there."""
import re
import socket
import sys

import pytest

import harness
from harness import HERE, free_port, nvml_env

sys.path.insert(0, str(HERE.parent / "lint"))

from pages_check import messages  # noqa: E402

PAGE = HERE.parents[1] / "docs" / "troubleshooting.md"
FAILS = 'import os, signal\nif os.environ["RANK"] == "1":\n    {}\nsignal.pause()\n'
DIES = FAILS.format("os.kill(os.getpid(), signal.SIGKILL)")
RAISES = FAILS.format('raise ValueError("loss is nan")')
# {port} is free, {busy} is not; the words of a shell, the text of train.py, further variables.
MISTAKES = [
    ("run nowhere.py", "", {}),
    ("run ./program", "", {}),
    ("run --no-python ./train.py", "", {}),
    ("run train.py", "", {"PYTHON_EXEC": "/nowhere/python"}),
    ("run --nproc-per-node=gpu train.py", "", {}),
    ("run --nproc-per-node=2 train.py", RAISES, {}),
    ("run --nproc-per-node=2 train.py", DIES, {}),
    ("run --nproc-per-node=2 --max-restarts=3 train.py", RAISES, {}),
    ("run --master-port={busy} train.py", "", {}),
    ("run --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=localhost:{busy} --rdzv-conf=join_timeout=1 train.py", "", {}),
    ("run --nnodes=2 --rdzv-backend=c10d --rdzv-conf=join_timeout=1 train.py", "", {}),
    ("run --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=no.such.host.invalid:{port} --rdzv-conf=join_timeout=1 train.py", "", {}),
    ("run --nnodes=2 --node-rank=1 --master-addr=127.0.0.1 --master-port={port} --rdzv-conf=join_timeout=1 train.py", "", {}),
    ("status", "", {}),
    ("stop", "", {}),
    ("logs", "", {}),
    ("stacks job7", "", {}),
]


def known():
    """A pattern for each message of the page."""
    for message in messages(PAGE.read_text()):
        yield re.compile(".*".join(re.escape(part.strip()) for part in message.split("...")))


@pytest.mark.parametrize("words, script, env", [pytest.param(*mistake, id=f"{mistake[0][:60]} {n}") for n, mistake in enumerate(MISTAKES)])
def test_a_mistake_is_explained(job, words, script, env):
    (job.tmp / "train.py").write_text(script)
    (job.tmp / "program").write_bytes(b"\x7fELF" + bytes(60))
    with socket.create_server(("127.0.0.1", 0)) as other:
        words = words.format(port=free_port(), busy=other.getsockname()[1])
        more = {"PYTHON_EXEC": "\0unset", **nvml_env(job.tmp, "not-loaded"), **env}
        code, _, err = job.agent("a", *words.split(), program=harness.muster(), env=more).finish()
    lines = re.findall(r"^muster(?: \w+)?: (?!waiting|restart|attempt|cannot look up).*$", err, re.M)
    assert code != 0 and lines, err
    patterns = list(known())
    assert [line for line in lines if not any(pattern.search(line) for pattern in patterns)] == []
