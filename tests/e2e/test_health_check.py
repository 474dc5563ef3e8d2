"""--health-check: a command decides whether a node is fit, before it joins and after one of its workers failed."""
import os
import pathlib
import re
import signal

import pytest

from harness import alive, free_port
from test_ends import slurm
from test_hang import Ring
from test_operate import status, until

FAILS_ONCE = ("sh", "-c", '[ -e once ] || { : >once; exit 3; }; echo worked')


def alone(job, check, *words, restarts=1):
    """A job of one node whose worker fails once."""
    return job.agent("a", f"--max-restarts={restarts}", f"--health-check={check}", *words, "--no-python", *FAILS_ONCE)


def test_it_runs_before_the_join_and_after_a_failure(job):
    a = alone(job, 'echo "$MUSTER_HEALTH_WHEN" >>when; cat >>when')  # its standard input is empty
    code, out, err = a.finish()
    assert code == 0 and "worked" in out, err
    assert (job.tmp / "when").read_text() == "join\nfailure\n"
    assert "health-check" not in err


def test_while_it_runs_the_leader_is_not_missed(job):
    """Nothing is asked of the leader before the check has ended, so no answer is late."""
    code, out, err = alone(job, "[ $MUSTER_HEALTH_WHEN != join ] || sleep 3").finish()
    assert code == 0 and "worked" in out and "no leader" not in err, err


@pytest.mark.parametrize("check, said", [
    ("exit 2", "it ended with status 2; whether this node is fit is not known, so it takes part"),
    ("no-such-program", "it ended with status 127: .*no-such-program.*; whether"),
    ("echo CRITICAL; kill -SEGV $$", "it died of signal 11: CRITICAL; whether"),
])
def test_another_status_is_no_verdict_and_is_logged_once(job, check, said):
    a = alone(job, check)
    a.wait_said("--health-check: " + said)
    code, out, err = a.finish()
    assert code == 0 and "worked" in out, err
    assert err.count("--health-check") == 1, err


def test_after_no_verdict_the_last_one_counts(job):
    code, _, err = alone(job, f"[ $MUSTER_HEALTH_WHEN = failure ] && exit 2; {BAD}").finish()
    assert code == 0 and "it ended with status 2; whether this node is fit is not known, so the last result counts" in err, err


def test_at_the_limit_it_is_killed_with_what_it_left_in_the_background(job):
    a = alone(job, "sleep 3600 & echo $! >>left; sleep 3600", "--health-timeout=1")
    code, out, err = a.finish()
    assert code == 0 and "worked" in out, err
    assert err.count("--health-check: it did not end within 1 s; whether this node is fit is not known") == 1, err
    pids = [int(pid) for pid in pathlib.Path(job.tmp / "left").read_text().split()]
    assert len(pids) == 2 and not any(map(alive, pids))


def test_a_job_that_ends_does_not_wait_for_it(job):
    """No restart is left: the check that follows the failure would never end."""
    a = alone(job, '[ $MUSTER_HEALTH_WHEN = join ] || exec sleep 3600', "--health-timeout=3600", restarts=0)
    code, _, err = a.finish()
    assert code == 3 or code == 1, err
    assert "exit code 3" in err


def test_a_signal_while_it_runs_ends_the_node(job, tmp_path):
    """Before the join; also in a job of Slurm, which is asked for the time that is left."""
    a = job.agent("a", '--health-check=echo begun >"$E2E_EVENTS"; exec sleep 3600', "--health-timeout=3600", "--no-python", "true",
                  env=slurm(tmp_path))
    job.events.wait("begun", 1)
    a.signal(signal.SIGTERM)
    code, _, err = a.finish()
    assert code == 128 + signal.SIGTERM, err


# --- sick nodes ------------------------------------------------------------------------------------------------------

# The worker of the agent with this tag dies at its first start, when die() lets it.
DIES_ON = 'if [ $E2E_TAG = {0} ] && mkdir once 2>/dev/null; then read go <die; kill -ABRT 0; fi; exec "$0" start go'
BAD = "echo GPU 3 is bad; exit 1"


def start(job, tags, check, dies_on="-", nnodes="2", words=()):
    """Agents that join one after the other; the first one leads. Returns the endpoint and the agents, when the group runs."""
    at, agents = f"127.0.0.1:{free_port()}", []
    os.mkfifo(job.tmp / "die")
    for i, tag in enumerate(tags):
        agents.append(job.agent(tag, f"--nnodes={nnodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint={at}", "--rdzv-id=e2e",
                                "--max-restarts=3", f"--health-check={check}", *words, "--no-python", "sh", "-c",
                                DIES_ON.format(dies_on), job.worker))
        if i == 0:
            agents[0].wait_said("waiting for nodes|attempt 1")  # it listens
        until(job, lambda s, n=i + 1: len(s["nodes"]) == n, at)
    until(job, lambda s: s["state"] == "running", at)
    return at, agents


def die(job):
    with open(job.tmp / "die", "w") as f:
        f.write("\n")


def places(seen, agents):
    """The place of each agent's node, and the reason."""
    of = {n["pid"]: (n["place"], n["why"]) for n in seen["nodes"]}
    return [of[agent.agent_pid()] for agent in agents]


def end(job, agents):
    job.go()
    for agent in agents:
        assert agent.finish()[0] == 0, agent.said()


def second(s):
    return s["state"] == "running" and s["generation"] == "1.2"


def on(tags, when):
    """A check that fails on these nodes."""
    return f"case $E2E_TAG in [{tags}]) [ $MUSTER_HEALTH_WHEN != {when} ] || {{ {BAD}; }};; esac"


def test_a_spare_takes_the_place_of_a_node_that_is_not_fit_after_a_failure(job):
    at, agents = start(job, "abc", on("b", "failure"), "b")
    a, b, _ = agents
    die(job)
    a.wait_said(r"rank 1 \(node \S+\) died of SIGABRT, and the node is not fit: GPU 3 is bad; node \S+ is left out, \S+ takes its place")
    seen = until(job, second, at)
    assert places(seen, agents) == [("member", None), ("sick", "GPU 3 is bad"), ("member", None)]
    assert re.search("died of SIGABRT, and the node is not fit: GPU 3 is bad; node .* takes its place", seen["incident"])
    b.wait_said("the job runs without this node.*: it is sick: GPU 3 is bad")
    end(job, agents)


def test_without_a_spare_it_takes_part_with_a_warning(job):
    at, agents = start(job, "ab", on("b", "failure"), "b")
    die(job)
    agents[0].wait_said(r"warning: rank 1 \(node \S+\) died of SIGABRT, and the node is not fit: GPU 3 is bad; node \S+ is sick and takes part, as there "
                        "are too few other nodes")
    assert places(until(job, second, at), agents) == [("member", None), ("member", "GPU 3 is bad")]
    end(job, agents)


def test_a_group_may_shrink_but_not_below_its_minimum(job):
    """b and c are not fit: one fit node is enough for 1:3."""
    at, agents = start(job, "abc", on("bc", "join"), nnodes="1:3", words=("--rdzv-conf=last_call_timeout=1",))
    seen = status(job, at)
    assert sorted(place for place, _ in places(seen, agents)) == ["member", "sick", "sick"] and seen["members"] == 1, seen
    end(job, agents)


def test_a_sick_node_that_joins_never_stops_a_group(job):
    at, agents = start(job, "ab", on("b", "join"), nnodes="1:2", words=("--rdzv-conf=last_call_timeout=1",))
    assert places(status(job, at), agents) == [("member", None), ("sick", "GPU 3 is bad")]
    job.go()
    assert [agent.finish()[0] for agent in agents] == [0, 0]
    assert "attempt 2" not in agents[0].said() + agents[1].said()


def test_a_check_that_fails_on_all_nodes_stops_no_job(job):
    _, agents = start(job, "ab", BAD, words=("--rdzv-conf=last_call_timeout=1",))
    agents[0].wait_said(2 * "warning: node [^;]* is sick and takes part, as there are too few other nodes: GPU 3 is bad.*")
    end(job, agents)


def test_report_only_logs_it(job):
    at, agents = start(job, "abc", on("b", "failure"), "b", words=("--sick-nodes=report",))
    die(job)
    agents[0].wait_said(r"GPU 3 is bad; node \S+ is sick and takes part \(--sick-nodes=report\)")
    assert places(until(job, second, at), agents) == [("member", None), ("member", "GPU 3 is bad"), ("spare", None)]
    end(job, agents)


def test_a_node_that_is_fit_again_takes_part_again(job):
    """The check of b fails once, without a spare; then b is no longer sick."""
    once = f"[ $E2E_TAG$MUSTER_HEALTH_WHEN != bjoin ] || {{ {BAD}; }}"
    at, agents = start(job, "ab", once, "b", words=("--rdzv-conf=last_call_timeout=1",))
    assert places(status(job, at), agents) == [("member", None), ("member", "GPU 3 is bad")]
    die(job)
    assert places(until(job, second, at), agents) == [("member", None), ("member", None)]
    end(job, agents)


def test_a_node_that_a_hang_names_is_checked(job):
    """Rank 2 is stopped: only its node checks again."""
    ring = Ring(job, "--max-restarts=1", "--hang-action=restart", "--bind=none",  # a stopped worker: after 10 s
                f"--health-check=echo $E2E_TAG$MUSTER_HEALTH_WHEN >>{job.tmp}/checks; [ $MUSTER_HEALTH_WHEN = join ] || {{ {BAD}; }}",
                what="stop", ranks=[2])
    assert ring.says(r"warning: the job hangs: rank 2 .*: GPU 3 is bad; .*is sick and takes part, as there are too few other nodes", 60)
    assert ring.finish() == [0, 0], ring.said()
    second = next(tag for tag, agent in zip("ab", ring.agents) if "this is node 1 " in agent.said())
    assert sorted((job.tmp / "checks").read_text().split()) == sorted(["ajoin", "bjoin", f"{second}failure"])
