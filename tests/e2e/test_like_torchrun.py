"""What torchrun 2.13 does and what muster does, beside each other: command lines (like_lines.py) and behaviours
(like_behaviours.py). They may differ only in what like_differences.py lists, each with its reason.

torchrun takes two seconds of CPU for each start. So its answers are recorded in like_torchrun.json, with which muster is
compared; a few, drawn at random, are asked of the real torchrun again, and all of them in the slow suite. After a change of
PyTorch's version: MUSTER_TEST_REWRITE=1 MUSTER_TEST_SCALE=slow python3 -m pytest tests/e2e/test_like_torchrun.py -k recorded
"""
import json
import os
import random
import subprocess
import sys

import pytest

import harness
import like
from like_behaviours import BEHAVIOURS
from like_differences import DIFFERENCES
from like_lines import LINES

SLOW = os.environ.get("MUSTER_TEST_SCALE") == "slow"
SAMPLE = 15
REWRITE = bool(os.environ.get("MUSTER_TEST_REWRITE"))
CASES = {line.name: line for line in LINES}
CASES.update({f"behaviour: {b.__name__}": b for b in BEHAVIOURS})
# Without an endpoint torchrun takes port 29400, which only one test at a time can have.
FIXED_PORT = ("--rdzv-backend=c10d probe.py", "--rdzv-backend=c10d --rdzv-endpoint=localhost probe.py")
SAMPLED = random.Random(int(os.environ.get("SEED", "0"))).sample(sorted({line.name for line in LINES} - set(FIXED_PORT)), SAMPLE)


@pytest.fixture(autouse=True)
def mask():
    """Workers tell the umask that they inherit."""
    old = os.umask(0o022)
    yield
    os.umask(old)


def see(job, launcher, name):
    case = CASES[name]
    if "[::1]" in name and not harness.has_ipv6():
        pytest.skip("no IPv6 here")
    if "./cpus 2" in name and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU")
    return like.behave(job, launcher, case) if callable(case) else like.observe_line(job, launcher, case)


def parameters():
    return [pytest.param(name, id=name, marks=[pytest.mark.torch] if getattr(case, "torch", False) else [])
            for name, case in CASES.items()]


def test_there_are_enough_of_them():
    assert len(LINES) >= 450 and len(BEHAVIOURS) >= 75
    assert json.loads(like.GOLDEN.read_text())["seen"].keys() == CASES.keys()


@pytest.mark.parametrize("name", parameters())
def test_muster_does_what_torchrun_did(job, name):
    theirs = like.recorded(name)
    assert theirs is not None, f"torchrun's answer is not recorded: {name}"
    ours = see(job, "muster", name)
    _, unknown = like.explained(name, theirs, ours)
    assert not unknown, "\n".join([f"muster differs from torchrun in {name}:", *unknown])


@pytest.mark.torch
@pytest.mark.parametrize("name", CASES if SLOW else SAMPLED)
def test_torchrun_still_does_what_is_recorded(job, name):
    theirs = see(job, "torchrun", name)
    if REWRITE:
        version = subprocess.run([harness.TORCH_PYTHON, "-c", "import importlib.metadata as m; print(m.version('torch'))"],
                                 capture_output=True, text=True, check=True).stdout.strip()
        like.record(name, theirs, version)
    assert like.compare(like.recorded(name), theirs) == [], "the recorded answer, and that of now"


@pytest.mark.parametrize("row", [pytest.param(d, id=d.what) for d in DIFFERENCES])
def test_each_difference_is_still_there(job, row):
    used, _ = like.explained(row.example, like.recorded(row.example), see(job, "muster", row.example))
    assert row in used, f"no longer different in {row.example}: take the row out of like_differences.py"


@pytest.mark.torch
def test_the_failures_side_by_side_are_those_of_the_page():
    tool, page = harness.HERE.parent / "tools" / "failures.py", harness.HERE.parents[1] / "docs" / "from-torchrun.md"
    done = subprocess.run([sys.executable, tool, "--check", page], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
