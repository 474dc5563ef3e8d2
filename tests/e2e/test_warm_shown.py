"""`muster run --warm`: what `muster status` and the event log show, on one node and on two."""
import json
import os
import signal

import pytest

from harness import VALGRIND, Job, free_port, kill
from test_operate import ask, listener, until

# Says who it is, and idles.
IDLE = """import json, decimal, os, signal
os.write(1, f"begin {os.environ['RANK']} {os.environ['TORCHELASTIC_RESTART_COUNT']} {os.getpid()}\\n".encode())
signal.pause()
"""
COLD = "its imports are not known yet"
pytestmark = pytest.mark.skipif(VALGRIND, reason="the agent's own second for an answer is not enough there")


@pytest.fixture
def job(tmp_path):
    with Job(tmp_path) as job:
        (tmp_path / "the_script.py").write_text(IDLE)
        yield job
        for agent in job.agents:
            if agent.process.poll() is None:
                agent.signal(signal.SIGTERM)
        for agent in job.agents:
            agent.wait()
        job.all_gone(20)


def pids(agent, generation, n, seconds=25):
    """Of the workers of this generation of one agent."""
    def found():
        lines = [line.split() for line in agent.output().splitlines()]
        seen = [int(w[3]) for w in lines if w[:1] == ["begin"] and w[2] == str(generation) and len(w) == 4]
        return seen if len(seen) == n else None

    seen = agent.out.until(found, seconds)
    assert seen, f"no {n} of generation {generation}: {agent.output()} {agent.said()}"
    return seen


def started(log, n):
    """The lines of so many starts, from the event log."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines = [line for line in lines if line["event"] == "started"]
    return lines if len(lines) >= n else None


def warm_of(node):
    return node["warm"], node["cold"], node["warm_waiting"], node["cold_because"]


def pair(job, *words):
    """Two agents that run the script."""
    endpoint = f"127.0.0.1:{free_port()}"
    return [job.agent(tag, "-v", "--nnodes=2", "--rdzv-id=e2e", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}",
                      "--warm-after=0.3", *words, job.tmp / "the_script.py") for tag in "ab"]


def test_status_and_event_log_say_who_was_warm_and_why_not(job):
    log = job.tmp / "timeline"
    words = ["--warm", "--nproc-per-node=2", "--max-restarts=9", "--crash-loop=0", f"--event-log={log}"]
    a, b = pair(job, *words)
    first = pids(a, 0, 2)
    asked = [listener(job, agent) for agent in (a, b)]
    seen = until(job, lambda s: all(warm_of(n) == (0, 2, 2, COLD) for n in s["nodes"]), asked[1])
    assert len(seen["nodes"]) == 2
    code, out, err = ask(job, "status", asked[0])
    assert "  warm       0 of 4 workers started warm; 4 processes wait for the next start;\n" \
           f"             cold because {COLD} (" in out, out
    kill(first[0])
    pids(a, 1, 2)
    pids(b, 1, 2)
    seen = until(job, lambda s: all(warm_of(n)[:2] == (2, 0) for n in s["nodes"]), asked[1])
    assert [n["cold_because"] for n in seen["nodes"]] == [None, None]
    until(job, lambda s: started(log, 2), asked[0])
    cold, warm = started(log, 2)
    assert (cold["warm"], cold["cold_because"], cold["world_size"]) == (0, COLD, 4)
    assert warm["warm"] == 4 and "cold_because" not in warm and warm["generation"] == "1.2"


def test_without_warm_nothing_is_said(job):
    log = job.tmp / "timeline"
    agent = job.agent("a", "-v", "--standalone", f"--event-log={log}", job.tmp / "the_script.py")
    pids(agent, 0, 1)
    seen = until(job, lambda s: s["state"] == "running", listener(job, agent))
    assert warm_of(seen["nodes"][0]) == (None, None, None, None)
    until(job, lambda s: started(log, 1), listener(job, agent))
    assert "warm" not in started(log, 1)[0]
    code, out, err = ask(job, "status", listener(job, agent))
    assert "warm" not in out, out


def test_a_cold_restart_is_reported_also_without_v(job):
    """The worker fails before its imports are known: --warm did nothing, once at the restart."""
    (job.tmp / "fails.py").write_text("import os, sys\nsys.exit(os.environ['TORCHELASTIC_RESTART_COUNT'] == '0')\n")
    code, _, said = job.run("--warm", "--standalone", "--max-restarts=1", job.tmp / "fails.py")
    line = "muster: 0 of 1 workers start warm; cold because its imports are not known yet"
    assert code == 0 and said.count(line) == 1 and said.index("restart 1 of 1") < said.index(line), said


def test_a_job_that_can_t_be_warm_says_why(job):
    agent = job.agent("a", "-v", "--warm", "--standalone", "--no-python", "/bin/sleep", "1000")
    agent.wait_said("0 of 1 workers start warm")
    seen = until(job, lambda s: s["nodes"] and s["nodes"][0]["cold"] == 1, listener(job, agent))
    assert warm_of(seen["nodes"][0]) == (0, 1, 0, "--no-python starts no Python")
