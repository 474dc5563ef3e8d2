"""examples/drill/drill.py: faults on purpose in real jobs, and those that it refuses to touch."""
import re
import subprocess

import pytest

import harness
import test_attack
from harness import HERE, MUSTER, SLOWER
from test_operate import endpoint, status, until

DRILL = HERE.parents[1] / "examples/drill/drill.py"
FAULTS = {"worker-kill", "worker-term", "worker-stop", "agent-kill", "leader-kill", "exclude"}
ALLOW = {"MUSTER_ALLOW_DRILL": 1}
HOME = {"MUSTER_RUN_DIR": "\0unset", "HOME": "/"}  # agents of all users are found
SEEDS = [*range(1, 4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 21))]


def drill(job, *words, env=None):
    """(status, lines of stdout, stderr) of a drill without pauses, with limits that a loaded machine keeps."""
    done = subprocess.run(["/usr/bin/python3", str(DRILL), f"--muster={MUSTER}", f"--stretch={10 * SLOWER}", "--every=0", *words],
                          env=job.env("drill", env), cwd=job.tmp, capture_output=True, text=True, timeout=600 * SLOWER)
    return done.returncode, done.stdout.splitlines(), done.stderr


def is_running(s):
    return s["state"] == "running" and all(n["state"] == "running" for n in s["nodes"])


def counts(s):
    return [s[key] for key in ("generation", "restarts_used", "losses", "excluded", "members")]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_recovers_from_each_fault(job, seed):
    for tag in "abcde":
        job.agent(tag, "--nnodes=2:5", "--nproc-per-node=1", f"--rdzv-endpoint=dir:{job.tmp}/shared", "--rdzv-id=e2e",
                  "--rdzv-conf=last_call_timeout=60", "--max-restarts=9", "--exclude-after=0", "--crash-loop=0", "--preflight=off",
                  "--no-python", job.worker, "start", "go", env=ALLOW)
    job.events.wait("start", 5, world=5)
    before = until(job, is_running, "--rdzv-id=e2e")
    code, planned, err = drill(job, f"--seed={seed}", "--dry-run")
    assert (code, err, len(planned)) == (0, "", 7), (planned, err)
    assert counts(status(job, "--rdzv-id=e2e")) == counts(before)
    code, lines, err = drill(job, f"--seed={seed}")
    assert (code, err) == (0, ""), "\n".join([*lines, err])
    assert lines[:2] == planned[:2], "a seed chooses the same order and the same first victim"
    rows = [re.split(r"  +", line) for line in lines[8:]]
    assert {row[0] for row in rows} == FAULTS and all(row[-1] == "ok" for row in rows), lines
    after = status(job, "--rdzv-id=e2e")
    assert counts(after)[1:] == [3, 2, 1, 2], after
    job.no_overlap()


@pytest.mark.parametrize("env, words, code, said", [
    ({}, [], 2, "was not started with MUSTER_ALLOW_DRILL=1"),
    ({"MUSTER_ALLOW_DRILL": 0}, ["--max-restarts=3"], 2, "was not started with MUSTER_ALLOW_DRILL=1"),
    (ALLOW, ["--hang-action=off"], 1, "no restart remains"),
    (ALLOW, ["--hang-action=off", "--max-restarts=3"], 1, "not watched"),
])
def test_nothing_happens_to_a_job_that_must_not_be_touched(job, env, words, code, said):
    a, _ = job.pair(*words, nnodes="2", nproc=1, env=env)
    job.events.wait("start", 2)
    before = until(job, is_running, endpoint(a))
    faults = "worker-stop,agent-kill,leader-kill,exclude"
    got, lines, err = drill(job, f"--faults={faults}", env=ALLOW)
    assert got == code and said in err + "\n".join(lines), (got, lines, err)
    if code == 1:
        assert sum("is left out: " in line for line in lines) == 4, lines
    assert counts(status(job, endpoint(a))) == counts(before)


@test_attack.pytestmark
def test_nothing_happens_to_the_job_of_another_user(job):
    def start(tag, **more):
        agent = job.agent(tag, f"--rdzv-id=drill-{tag}", "--nproc-per-node=1", "--max-restarts=3", "--auth=none", "--no-python",
                          "/bin/sh", "-c", "echo runs; exec sleep 1000", env={**ALLOW, **HOME}, **more)
        assert agent.out.until(lambda: "runs" in agent.output()), agent.said()
        return agent, harness.children(agent.agent_pid())

    other, others_worker = start("other", prefix=test_attack.AS)
    code, _, err = drill(job, "--rdzv-id=drill-other", env=HOME)
    assert code == 2 and "belongs to another user" in err, err
    mine, my_worker = start("mine")
    code, _, err = test_attack.as_other("/usr/bin/python3", "-c", DRILL.read_text(), f"--muster={MUSTER}", "--rdzv-id=drill-mine")
    assert code == 2 and "no agent of job drill-mine" in err, err
    for agent, worker in (other, others_worker), (mine, my_worker):
        assert set(worker) <= set(harness.children(agent.agent_pid())) and agent.output().count("runs") == 1
