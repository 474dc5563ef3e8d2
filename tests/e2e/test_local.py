"""--starter=local: a job of several nodes on this machine, started by one muster."""
import re
import signal

import pytest

from harness import children, processes_with


def shell(script):
    return ["--no-python", "sh", "-c", script]


def wait_ready(agent):
    """Both workers have written "ready"."""
    assert agent.out.until(lambda: agent.out.raw.count(b"ready") == 2), agent.said()


def test_as_many_agents_as_nodes(job):
    code, out, err = job.run("--starter=local", "--nnodes=3", "--nproc-per-node=2", *shell("echo $RANK of $WORLD_SIZE $GROUP_RANK"))
    assert code == 0, err
    assert sorted(out.splitlines()) == [f"[rank{r}]: {r} of 6 {r // 2}" for r in range(6)], out + err
    assert "warning" not in err, err


def test_the_status_and_the_failure_are_those_of_the_job(job):
    code, _, err = job.run("--starter=local", "--nnodes=2", "--exit-code=worker", *shell("test $RANK = 0 || exit 7; sleep 100"))
    assert code == 7 and re.search(r"rank 1 .*7", err), err


def test_a_signal_ends_the_job_once(job):
    agent = job.agent("a", "--starter=local", "--nnodes=2", *shell("trap 'echo TERM; exit 0' TERM; echo ready; while :; do sleep 0.1; done"))
    wait_ready(agent)
    agent.signal(signal.SIGTERM)
    code, out, err = agent.finish()
    assert code == 143 and out.count("TERM") == 2, out + err


def test_agents_end_if_the_starter_is_killed(job):
    agent = job.agent("a", "--starter=local", "--nnodes=2", *shell("echo ready; sleep 100"))
    wait_ready(agent)
    assert len(children(agent.pid)) >= 2
    agent.signal(signal.SIGKILL)
    job.all_gone(60)
    assert not processes_with(job.mark.encode())


@pytest.mark.parametrize("words, variables", [
    (["--rdzv-endpoint=dir:meet", "--rdzv-backend=dir", "--rdzv-id=e2e"], {}),
    (["--rdzv-endpoint=dir:meet"], {}),
    ([], {"PET_RDZV_ENDPOINT": "dir:meet"}),
])
def test_where_they_meet_can_be_given(job, words, variables):
    code, out, err = job.run("--starter=local", "--nnodes=2", *words, *shell("echo $RANK"), env=variables)
    assert code == 0 and sorted(out.split()) == ["0", "1", "[rank0]:", "[rank1]:"], out + err
    assert (job.tmp / "meet").is_dir(), err
