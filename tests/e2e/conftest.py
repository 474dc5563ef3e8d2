"""Fixtures of the end-to-end tests. `MUSTER=build/src/cli/muster pytest-3 tests/e2e`, or simply tests/run.sh."""
import os
import pathlib
import random
import shlex
import subprocess
import sys
import time

import pytest
from _pytest.runner import runtestprotocol

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))

# pytest rewrites every file of tests in each of its processes, which takes seconds, unless it may keep the result.
if os.environ.get("MUSTER_TEST_REWRITTEN"):
    sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["MUSTER_TEST_REWRITTEN"]

# Tests that run at the same time each check a tool's reports about their own processes.
if os.environ.get("PYTEST_XDIST_WORKER") and os.environ.get("MUSTER_TEST_TOOL_LOGS"):
    shared = os.environ["MUSTER_TEST_TOOL_LOGS"]
    own = pathlib.Path(shared, os.environ["PYTEST_XDIST_WORKER"])
    own.mkdir(exist_ok=True)
    for name in ("MUSTER_TEST_TOOL_LOGS", "ASAN_OPTIONS", "UBSAN_OPTIONS"):
        os.environ[name] = os.environ.get(name, "").replace(shared, str(own))

import harness  # noqa: E402
import stalls   # noqa: E402


def pytest_configure(config):
    # One for all processes of a run: they must collect the same tests.
    os.environ.setdefault("SEED", str(random.SystemRandom().randrange(10**9)))
    config.addinivalue_line("markers", "slow: only with MUSTER_TEST_SCALE=slow")
    config.addinivalue_line("markers", "alone: its limits of time need a machine that does nothing else")
    config.addinivalue_line("markers", "torch: needs MUSTER_TEST_PYTHON with PyTorch")
    if not os.access(harness.MUSTER, os.X_OK) and not os.environ.get("MUSTER_TEST_COMMAND"):
        raise pytest.UsageError("MUSTER must name the muster program to test")


def pytest_report_header():
    return f"SEED={os.environ['SEED']}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Importing PyTorch takes seconds of CPU: only where a test that needs it was selected."""
    torch = harness.TORCH_PYTHON and any(item.get_closest_marker("torch") for item in items) and subprocess.run(
        [harness.TORCH_PYTHON, "-c", "import torch.distributed"], capture_output=True).returncode == 0
    for item in items:
        if item.get_closest_marker("slow") and os.environ.get("MUSTER_TEST_SCALE") != "slow":
            item.add_marker(pytest.mark.skip(reason="large numbers: tests/run.sh --slow"))
        if item.get_closest_marker("torch") and not torch:
            item.add_marker(pytest.mark.skip(reason="no Python with PyTorch in MUSTER_TEST_PYTHON"))


def reason(reports):
    """The first line of the first failure."""
    crash = next(getattr(r.longrepr, "reprcrash", None) for r in reports if r.failed)
    return crash.message.partition("\n")[0][:200] if crash else ""


def pytest_runtest_protocol(item, nextitem):
    """Repeats a test that failed while the machine stood still; says so in MUSTER_TEST_REPEATED."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for turn in range(stalls.TRIES):
        begin = time.monotonic()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        seconds = stalls.total(begin - 1, time.monotonic()) if any(r.failed for r in reports) else 0.0
        if seconds < stalls.STOOD_STILL_S or turn == stalls.TRIES - 1:
            break
        stalls.record_repeat(item.nodeid, seconds, reason(reports))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.fixture(scope="session")
def worker(tmp_path_factory):
    """The C worker of worker.c, compiled once."""
    out = tmp_path_factory.mktemp("worker") / "e2e-worker"
    subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-std=gnu11", "-O1", "-Wall", "-Wextra", "-o", str(out),
                    str(harness.HERE / "worker.c")], check=True)
    return out


@pytest.fixture(autouse=True)
def tools():
    """A test fails if a tool reports anything about muster's processes, whatever their exit status is."""
    yield
    said = harness.tool_logs()
    assert not said, said


@pytest.fixture
def job(tmp_path, worker):
    """A job in a folder of its own; all processes that it started are dead afterwards."""
    with harness.Job(tmp_path / "job", worker) as job:
        yield job
