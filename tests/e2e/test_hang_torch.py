"""Real PyTorch jobs (gloo) that hang in many ways: the rank that the others wait for is named, and the job starts again.
And jobs that are well, though most of their ranks often wait: nothing is said against them.

    MUSTER_TEST_SCALE=slow …          all faults, with and without a thread that writes on
    MUSTER_TEST_HEALTHY=60 …          so many seconds of healthy jobs, not 15 minutes

How long it takes is measured by tests/bench/bench_hang_torch.py.
"""
import os
import re

import pytest

from hang_kinds import KINDS
from hang_trial import FAULTS, Trial
from harness import HERE, SLOWER, TORCH_PYTHON, Job, free_port

pytestmark = pytest.mark.torch

QUICK = {("sleep", False), ("stopped", True), ("exits", False)}
CASES = [pytest.param(name, logs, marks=() if (name, logs) in QUICK else pytest.mark.slow,
                      id=name + (" logs" if logs else "")) for name in FAULTS for logs in (False, True)]
HEALTHY_S = int(os.environ.get("MUSTER_TEST_HEALTHY", "900"))
HEALTHY = ["noisy", "first", "evaluates", "saves", "uploads", "sleeps", "loaders"]


def can_mount_fuse():
    return os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK)


@pytest.mark.parametrize("name, logs", CASES)
def test_a_hang_is_named_and_the_job_starts_again(job, name, logs):
    fault = FAULTS[name]
    if name == "fuse" and not can_mount_fuse():
        pytest.skip("only root can mount a FUSE file system, with /dev/fuse")
    trial = Trial(job, fault, logs)
    trial.start()
    at = trial.begins()
    if name != "exits":
        line, when = trial.line(fault.named, fault.limit + 60)
        assert line, f"no {fault.named!r} in: {trial.said()}"
        assert when - at >= 5 - 3, "it is quiet for so long before"
    begun, steps = trial.again(fault.limit + 60)
    assert begun and steps, trial.said()
    assert begun - at >= fault.limit - 3, "it is quiet for so long before"
    assert [a.finish(120)[0] for a in trial.agents] == [0, 0], trial.said()
    assert len(job.events.all("done", count=1)) == 4, trial.said()
    if name == "exits":
        assert trial.line(fault.named, 1)[0], trial.said()
    else:
        [hang] = trial.timeline("hang")
        assert re.search(rf"rank 2 \(node [^)]*\):? .*{fault.line}", hang["cause"]), hang
        assert hang["rank"] == 2 and os.path.isfile(f"{hang['evidence']}/hang.txt"), hang


QUICK_KINDS = {"prints", "c_thread", "queue"}


@pytest.mark.parametrize("kind", [pytest.param(k, marks=() if k in QUICK_KINDS else pytest.mark.slow) for k in KINDS])
def test_a_healthy_program_is_not_stopped(job, kind):
    agent = job.agent("a", f"--nproc-per-node={KINDS[kind].ranks}", "--max-restarts=3", "--hang-report=4", "--hang-still=8",
                      "--hang-timeout=15", HERE / "hang_kinds.py", kind, 25,
                      env={"PYTHON_EXEC": TORCH_PYTHON, "HANG_FOLDER": job.tmp})
    code, _, said = agent.finish(120)
    assert code == 0 and len(job.events.all("begun")) == KINDS[kind].ranks, said
    assert KINDS[kind].idles or "the job hangs" not in said, said


def healthy(job, kind, seconds):
    """The agents of a job of this kind, with muster's own limits."""
    meet = ["--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", f"--rdzv-id={kind}", "--max-restarts=3",
            f"--rdzv-endpoint=127.0.0.1:{free_port()}", f"--event-log={job.tmp / 'timeline'}"]
    env = {"PYTHON_EXEC": TORCH_PYTHON, "OMP_NUM_THREADS": "1", "HANG_FOLDER": job.tmp}
    return [job.agent(tag, *meet, HERE / "torch_healthy.py", kind, seconds, env=env) for tag in "ab"]


@pytest.mark.slow
def test_healthy_jobs_are_left_alone(tmp_path, worker):
    """Side by side, so that the machine is busy, too."""
    jobs = {kind: Job(tmp_path / kind, worker) for kind in HEALTHY}
    try:
        agents = {kind: healthy(job, kind, HEALTHY_S) for kind, job in jobs.items()}
        for kind, job in jobs.items():
            codes = [a.finish((HEALTHY_S + 600) / SLOWER + 120)[0] for a in agents[kind]]
            said = "\n".join(a.said() for a in agents[kind])
            steps = [int(e.fields["steps"]) for e in job.events.all("done")]
            print(kind, "steps:", steps, "said:", *re.findall(r"^muster: .*quiet.*$", said, re.M), sep="\n  ", flush=True)
            assert codes == [0, 0] and len(steps) == 4, f"{kind}: {said}"
            assert not re.search("the job hangs", said), f"{kind}: {said}"
            quiet = re.findall("the job is quiet: most workers have not moved for ([0-9]+) s", said)
            longest = max(map(int, quiet), default=0)
            assert longest < (30 if kind == "noisy" else 200), f"{kind}: beats were not seen: {said}"
            assert len(job.events.all("begun")) == 4, f"{kind}: nobody was started again: {said}"
    finally:
        for job in jobs.values():
            job.close()
