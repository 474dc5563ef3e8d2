"""The arbiter's data is lost while a job needs it: every agent soon ends with that reason. A stall does not count as a
loss.

Three agents on this machine, each with a listener of its own.
"""
import pathlib
import shutil
import time

import pytest

import etcd
from harness import SLOWER, kill

NODES = 3
LEASE, MARGIN, HEARTBEAT = 2.0, 1.0, 0.2
BOUND = LEASE + MARGIN + 10
QUICK = (f"--lease={LEASE:g}", f"--heartbeat-interval={HEARTBEAT:g}")
FAMILY = ("family", "start", "go")  # workers that ignore SIGTERM, with children
SENTENCE = "the arbiter's data of this job is gone"


def agents_of(job, meeting, tags="abc", nnodes="1:3", words=()):
    return [job.agent(tag, f"--nnodes={nnodes}", "--nproc-per-node=1", *meeting, "--rdzv-id=lost", *QUICK, *words,
                      "--no-python", job.worker, *FAMILY) for tag in tags]


def in_dir(tmp_path):
    return ["--rdzv-backend=dir", f"--rdzv-endpoint={tmp_path / 'arbiter'}"]


def in_etcd(cluster):
    return [f"--rdzv-endpoint=etcd://{','.join(cluster.endpoints)}/muster"]


def started(job, agents):
    """All run. Returns the agents, the leader's first."""
    first = {e.fields["tag"]: e.fields["node"] for e in job.events.wait("start", NODES, 30, world=NODES)}
    return sorted(agents, key=lambda a: int(first[a.tag]))


def all_end(job, agents, since, said=SENTENCE):
    """All agents end with that sentence, none with 0, and none of their processes is left."""
    for agent in agents:
        code, _, err = agent.finish(BOUND + 30)
        assert code not in (None, 0) and said in err, f"{agent.tag}: {code}\n{err}"
        assert job.held(agent.tag) == [], job.culprits()
    took = time.monotonic() - since
    assert took <= BOUND * SLOWER, f"{took:.1f} s until the last agent had ended"
    print(f"{took:.2f} s until the last agent had ended")


@pytest.mark.parametrize("what", ["folder removed", "folder emptied", "directory gone",
                                  "directory replaced by a file"])
def test_a_running_job_whose_directory_is_lost_ends(job, tmp_path, what):
    agents = started(job, agents_of(job, in_dir(tmp_path)))
    folder = tmp_path / "arbiter" / "muster-lost"
    since = time.monotonic()
    if what == "folder emptied":
        for path in folder.iterdir():
            path.unlink(missing_ok=True)
    else:
        lost = folder if what == "folder removed" else folder.parent
        lost.rename(tmp_path / "away")
        shutil.rmtree(tmp_path / "away")
    if what == "directory replaced by a file":
        lost.touch()
    all_end(job, agents, since)
    assert len(job.events.all("start")) == NODES, "nothing was started again"
    assert what == "folder emptied" or not folder.exists(), "nobody makes anew what was removed"


@pytest.mark.parametrize("how", ["started anew", "keys removed"])
def test_a_running_job_whose_etcd_has_lost_everything_ends(job, how):
    with etcd.EtcdCluster(1) as cluster:
        agents = started(job, agents_of(job, in_etcd(cluster)))
        since = time.monotonic()
        if how == "keys removed":
            cluster.ctl("del", "--prefix", "/muster/lost/")
        else:
            cluster.kill(0)
            shutil.rmtree(cluster.folder / "0.data")
            cluster.restart(0)
        all_end(job, agents, since)
        assert len(job.events.all("start")) == NODES, "nothing was started again"


def test_nodes_that_lose_their_leader_too_find_out_by_themselves(job, tmp_path):
    leader, *others = started(job, agents_of(job, in_dir(tmp_path), nnodes="2:3"))
    (tmp_path / "arbiter").rename(tmp_path / "away")
    since = time.monotonic()
    kill(leader.agent_pid())
    assert leader.wait() not in (None, 0)
    all_end(job, others, since)


def test_a_job_that_gathers_ends_too(job, tmp_path):
    agents = agents_of(job, in_dir(tmp_path), tags="ab", nnodes="3")
    for agent in agents:
        agent.wait_said("2 of 3")
    since = time.monotonic()
    shutil.rmtree(tmp_path / "arbiter" / "muster-lost")
    all_end(job, agents, since)


def test_a_directory_that_is_away_for_a_moment_costs_nothing(job, tmp_path):
    agents = started(job, agents_of(job, in_dir(tmp_path)))
    directory, away = tmp_path / "arbiter", tmp_path / "away"
    directory.rename(away)
    job.events.until(lambda: False, LEASE / 2 / SLOWER)
    away.rename(directory)
    beat = max(directory.glob("*/beat-*"))
    before = beat.read_text()
    end = time.monotonic() + 30
    while beat.read_text() == before:
        assert time.monotonic() < end, agents[0].said()
        job.events.until(lambda: False, 0.05)
    job.go()
    for agent in agents:
        code, _, err = agent.finish()
        assert code == 0, err
    assert len(job.events.all("start")) == NODES


def test_another_file_system_at_its_place_is_no_proof(job, tmp_path):
    """As if the real file system is no longer mounted: it counts as unreachable, and the job continues for the
    arbiter's lease."""
    other = pathlib.Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second file system: /dev/shm")
    place = tmp_path / "place"
    (tmp_path / "real").mkdir()
    place.symlink_to(tmp_path / "real")
    agents = started(job, agents_of(job, ["--rdzv-backend=dir", f"--rdzv-endpoint={place}"]))
    empty = other / f"muster-{tmp_path.name}-{time.monotonic_ns()}"
    empty.mkdir(mode=0o700)
    try:
        place.unlink()
        place.symlink_to(empty)
        agents[0].wait_said(r"the job continues for up to \d+ s without it")
        job.events.until(lambda: any(a.process.poll() is not None for a in agents), (LEASE + MARGIN + 1) / SLOWER)
        assert all(a.process.poll() is None for a in agents), [a.said() for a in agents]
        assert list(empty.iterdir()) == [], "nothing is made there"
        place.unlink()
        place.symlink_to(tmp_path / "real")
        job.go()
        for agent in agents:
            code, _, err = agent.finish()
            assert code == 0, err
    finally:
        shutil.rmtree(empty)


def test_a_record_that_nobody_can_read_ends_the_job(job, tmp_path):
    agents = started(job, agents_of(job, in_dir(tmp_path)))
    since = time.monotonic()
    for path in (tmp_path / "arbiter" / "muster-lost").glob("epoch-*"):
        path.write_text("not a record\n")
    all_end(job, agents, since, "epoch-2 is damaged")


def test_a_file_of_another_origin_is_ignored(job, tmp_path):
    folder = tmp_path / "arbiter" / "muster-lost"
    folder.mkdir(0o700, parents=True)
    (folder / "epoch-99").write_text("not a record\n")
    code, _, err = job.run("--nnodes=1", *in_dir(tmp_path), "--rdzv-id=lost", "--no-python", "true")
    assert code == 0, err
    assert err.count("epoch-99 is ignored, because it is not a record of muster\n") == 1, err
