"""No job restarts for ever without progress: groups that end soon, and without a worker's failure, are counted."""
import re
import signal
import time

import harness
from harness import kill

TIMES = ["--lease=0.5", "--heartbeat-interval=0.1"]
FAMILY = ["--no-python", "{worker}", "family", "start", "go"]
AT_MOST = 8  # groups


def start(job, *options):
    met = ["--nnodes=1", "--rdzv-id=endless", "--rdzv-backend=dir", f"--rdzv-endpoint={job.tmp}/rdzv"]  # else no lease is needed
    return job.agent("a", *TIMES, *met, *options, *(word.format(worker=job.worker) for word in FAMILY))


def group_runs(job, agent, nth):
    """Waits for the nth group's worker. False: the agent has ended before."""
    end = harness.deadline(30)
    while not job.events.until(lambda: len(job.events._all("start", {})) >= nth, 0.2):
        if agent.process.poll() is not None:
            return False
        assert time.monotonic() < end, agent.said()
    return True


def freeze_in_each_group(job, agent, at_most):
    """Stops the agent in each group until its guardian has killed the worker. Returns how many groups there were."""
    for nth in range(1, at_most + 1):
        if not group_runs(job, agent, nth):
            return nth - 1
        pid = agent.agent_pid()
        kill(pid, signal.SIGSTOP)
        job.wait_gone(agent.tag, 10)
        kill(pid, signal.SIGCONT)
    return at_most


def test_leases_that_run_out_again_and_again_end_the_job_with_the_reason(job):
    agent = start(job, "--crash-loop=0.4")
    groups = freeze_in_each_group(job, agent, AT_MOST + 4)
    code, _, err = agent.finish(30)
    assert groups == AT_MOST, err
    assert code == 75, err
    assert re.search(r"no group lasts: the last 8 ended before they had run for 1.9 s, although no worker failed", err), err
    assert re.search(r"the next one waits 3.2 s", err), "the pauses are told, and double"


def test_turned_off_it_goes_on(job):
    agent = start(job, "--crash-loop=0")
    assert freeze_in_each_group(job, agent, AT_MOST + 4) == AT_MOST + 4, agent.said()
    assert group_runs(job, agent, AT_MOST + 5)
    job.go()
    code, _, err = agent.finish(30)
    assert code == 0, err
