"""A wall clock that is set while a job runs, by an hour, as when a time server is reached at last: it moves no deadline.

Each host has a clock of its own, of its processes (stepped.c); the kernel's times of files stay."""
import os
import shlex
import struct
import subprocess

import pytest

import harness
from harness import kill
from hosts import hosts_or_skip
from munge import Munged
from test_operate import status

pytestmark = pytest.mark.skipif(bool(harness.TOOL_LOGS), reason="sanitizers want to be loaded first")
HOUR = 3600
LEASE = ("--lease=1", "--heartbeat-interval=0.2")


@pytest.fixture(scope="session")
def stepped(tmp_path_factory):
    out = tmp_path_factory.mktemp("stepped") / "stepped.so"
    subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-std=gnu11", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", str(out),
                    str(harness.HERE / "stepped.c")], check=True)
    return out


class Clock:
    def __init__(self, folder, name, stepped):
        self.path = folder / f"clock-{name}"
        self.path.write_bytes(bytes(8))
        self.env = {"LD_PRELOAD": stepped, "E2E_CLOCK": self.path}

    def set(self, seconds):
        with self.path.open("r+b") as file:  # in place: it is mapped
            file.write(struct.pack("=q", int(seconds * 1e9)))


class Site:
    """Hosts with clocks, and agents on them."""

    def __init__(self, job, hosts, stepped, words):
        self.job, self.hosts, self.words = job, hosts, words
        self.clocks = [Clock(job.tmp, n, stepped) for n in range(hosts.count)]

    def start(self, n, *words, tag=None, worker=("family", "start", "go")):
        return self.job.agent(tag or f"h{n}", *self.words, *words, "--nproc-per-node=1", "--rdzv-id=clock", "--no-python",
                              self.job.worker, *worker, prefix=self.hosts.enter(n), env=self.clocks[n].env)


@pytest.fixture
def hosts():
    with hosts_or_skip(3, ipv6=False, names=True) as found:
        yield found


def end(job, agents):
    job.go()
    for agent in agents:
        code, _, err = agent.finish()
        assert code == 0, err


@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_a_node_that_comes_after_the_clocks_were_set(job, hosts, stepped, by):
    """The nodes that were there have sent their clocks before; all are right now, so none differs."""
    site = Site(job, hosts, stepped, ["--nnodes=2:3", f"--rdzv-endpoint={hosts.address(0)}:29400", "--rdzv-backend=c10d", "-v",
                                      "--rdzv-conf=last_call_timeout=0.5", "--grow=now", "--max-restarts=3", *LEASE])
    agents = [site.start(n) for n in range(2)]
    job.events.wait("start", 2, world=2)
    for clock in site.clocks:
        clock.set(by)
    for agent in agents:
        agent.wait_said(rf"the wall clock was set by \{by:+}\.0 s\n")
    agents.append(site.start(2))
    started = job.events.wait("start", 3, world=3)
    kill(int(started[0].fields["pid"]))
    job.events.wait("start", 6, world=3)
    end(job, agents)
    assert "CLOCK-OFFSET" not in agents[0].said()


@pytest.mark.parametrize("by", [HOUR, -HOUR])
@pytest.mark.parametrize("arbiter", ["endpoint", "dir"])
def test_clocks_that_are_set_end_no_lease(job, hosts, stepped, arbiter, by):
    """Steps on the leader, on the other node and on both; after each of them the group loses a worker or a node, and goes on."""
    where = (["--rdzv-backend=c10d", f"--rdzv-endpoint={hosts.address(0)}:29400"] if arbiter == "endpoint"
             else [f"--rdzv-endpoint=dir:{job.tmp}/arbiter"])
    site = Site(job, hosts, stepped, ["--nnodes=1:2", *where, "--rdzv-conf=last_call_timeout=0.5", "--preflight=warn", "--grow=now",
                                      "--max-restarts=5", *LEASE])
    agents = [site.start(0)]
    agents[0].wait_said("waiting for nodes")
    agents.append(site.start(1))
    first = job.events.wait("start", 2, world=2)
    site.clocks[0].set(by)
    kill(int(first[0].fields["pid"]))
    second = job.events.wait("start", 4, world=2)
    site.clocks[1].set(by)
    kill(int(second[-1].fields["pid"]))
    job.events.wait("start", 6, world=2)
    site.clocks[0].set(-by)
    kill(agents[1].agent_pid())
    job.events.wait("start", 1, world=1)
    agents[1].finish()
    site.clocks[1].set(0)
    agents[1] = site.start(1, tag="again")
    job.events.wait("start", 8, world=2)
    job.no_overlap()
    assert len(job.events.all("start")) == 9, "nothing else has ended a group"
    end(job, agents)


@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_munge_where_the_clocks_of_nodes_differ(job, hosts, stepped, by):
    """A credential that is too old there, or of the future, is taken: it only names the key. Then both clocks are set."""
    site = Site(job, hosts, stepped, ["--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-endpoint={hosts.address(0)}:29400",
                                      "--rdzv-conf=last_call_timeout=0.5", "--grow=now", "--max-restarts=3", *LEASE])
    site.clocks[1].set(by)
    with Munged(env=site.clocks[0].env) as one, Munged(env=site.clocks[1].env) as two:
        for clock, munged in zip(site.clocks, (one, two)):
            clock.env |= {"MUSTER_MUNGE_SOCKET": munged.socket, "HOME": job.tmp, "XDG_CONFIG_HOME": "\0unset"}
        agents = [site.start(0)]
        agents[0].wait_said("waiting for nodes")
        agents.append(site.start(1))
        job.events.wait("start", 2, world=2)
        seen = status(job, f"{hosts.address(0)}:29400", prefix=hosts.enter(0))
        assert seen["auth"] == "keys" and [k["source"] for k in seen["auth_keys"]] == ["munge"], seen
        site.clocks[0].set(-by)
        site.clocks[1].set(0)
        kill(agents[1].agent_pid())
        job.events.wait("start", 1, world=1)
        agents[1].finish()
        agents[1] = site.start(1, tag="again")
        job.events.wait("start", 4, world=2)
        end(job, agents)
