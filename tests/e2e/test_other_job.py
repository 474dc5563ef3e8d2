"""Another job with the same run id and endpoint is refused at once, and no node that ran nothing ends without a
message."""
import re

import pytest

import harness


class Meeting:
    """Agents at one endpoint, with one run id."""

    def __init__(self, job):
        self.job, self.port = job, harness.free_port()

    def agent(self, tag, *words, nnodes="1", options=(), run_dir=None):
        env = {"MUSTER_RUN_DIR": self.job.tmp / f"run-{run_dir or tag}"}
        return self.job.agent(tag, f"--nnodes={nnodes}", "--rdzv-backend=c10d", "--rdzv-id=same",
                              f"--rdzv-endpoint=127.0.0.1:{self.port}", *options, "--no-python", *words, env=env)

    def refused(self, tag, *words, **more):
        """It soon ends with 1. Returns its output in one line."""
        code, _, err = self.agent(tag, *words, **more).finish(20)
        assert code == 1, err
        assert not self.job.events.all("start", tag=tag), err
        found = re.search("the leader refused this node: (.*)", err)
        assert found, err
        return found.group(1)


@pytest.fixture
def meeting(job):
    return Meeting(job)


def test_another_program_is_refused_at_once_with_both_named(job, meeting):
    first = meeting.agent("a", job.worker, "start", "go")
    job.events.wait("start", 1)
    why = meeting.refused("b", "/bin/true")
    assert "'true'" in why and f"'{job.worker.rsplit('/', 1)[1]} ...'" in why and "another program" in why, why
    why = meeting.refused("c", job.worker, "start", "--token=hunter2")
    assert "other arguments" in why and "--token=..." in why and "hunter2" not in why, why
    why = meeting.refused("d", job.worker, "start", "go", options=["--max-restarts=3"])
    assert "--max-restarts=3" in why and "--max-restarts=0" in why, why
    first.wait_said(r"a node at 127\.0\.0\.1 was refused: it was started with .* and --max-restarts=3")
    why = meeting.refused("e", job.worker, "start", "stop")
    assert "other arguments" in why and "stop" not in why, why
    job.go()
    code, _, err = first.finish()
    assert code == 0, err


def test_it_is_refused_while_nodes_are_waited_for_too(job, meeting):
    first = meeting.agent("a", job.worker, "start", "go", nnodes="2")
    first.wait_said("1 of 2")
    meeting.refused("b", "/bin/true", nnodes="2")
    second = meeting.agent("c", job.worker, "start", "go", nnodes="2")
    job.events.wait("start", 2, world=2)
    job.go()
    assert first.wait() == 0 and second.wait() == 0, first.said() + second.said()
    assert re.search(r"this is node 0 with rank 0$", first.said(), re.M), first.said()


def test_the_end_repeats_who_was_refused_and_why(job, meeting):
    first = meeting.agent("a", job.worker, "start", "go", nnodes="2", options=["--rdzv-conf=join_timeout=3"])
    first.wait_said("1 of 2")
    meeting.refused("b", job.worker, "start", "go", nnodes="2", options=["--max-restarts=3"])
    code, _, err = first.finish()
    assert code == 75, err
    assert re.search(r"\nmuster: error: the job ended: only 1 of at least 2 nodes came within 3 s .*; node \S+ was "
                     r"refused: it was started with '.*' and --max-restarts=3, and the job there runs .*\n$", err), err


def test_other_numbers_of_nodes_are_reported_on_both(job, meeting):
    first = meeting.agent("a", job.worker, "start", "go", nnodes="2")
    first.wait_said("1 of 2")
    second = meeting.agent("b", job.worker, "start", "go", nnodes="1:3")
    first.wait_said("was started with --nnodes 1:3, the leader with 2:2; the leader's numbers count")
    second.wait_said("this node was started with --nnodes 1:3, the leader with 2:2; the leader's numbers count")
    job.go()
    assert [first.wait(), second.wait()] == [0, 0]
    assert "this node was started" not in first.said()


def test_a_surplus_node_says_that_it_never_ran(job, meeting):
    first = meeting.agent("a", job.worker, "start", "go")
    job.events.wait("start", 1)
    surplus = meeting.agent("b", job.worker, "start", "go")
    surplus.wait_said("the job runs without this node")
    job.go()
    code, _, err = surplus.finish()
    assert code == 0 and re.search(r"this node never ran '.*worker.*': the job succeeded without it", err), err
    code, _, err = first.finish()
    assert code == 0 and "never ran" not in err, err


@pytest.mark.parametrize("how", ["option", "folder", "role"])
def test_nodes_that_differ_are_one_job(job, meeting, how, tmp_path):
    """The nodes have a value of their own, a script in another place, another role's program."""
    words = {tag: [job.worker, "start", f"out={tag}", "go"] for tag in "ab"}
    options = {tag: [] for tag in "ab"}
    if how == "folder":
        other = tmp_path / "elsewhere"
        other.mkdir()
        (other / job.worker.rsplit("/", 1)[1]).symlink_to(job.worker)
        words = {"a": [job.worker, "start", "go"], "b": [other / job.worker.rsplit("/", 1)[1], "start", "go"]}
    elif how == "role":
        words["b"] = [job.worker, "start", "rank=9", "out=x", "go"]
        options["b"] = ["--role=reader"]
    agents = [meeting.agent(tag, *words[tag], nnodes="2", options=options[tag]) for tag in "ab"]
    job.events.wait("start", 2, world=2)
    job.go()
    ends = [agent.finish() for agent in agents]
    assert [code for code, _, _ in ends] == [0, 0], ends
    told = sum("was started with other arguments than this job's first node" in err for _, _, err in ends)
    assert told == (how == "option"), ends
