"""A key's file that is replaced or removed while its job runs: the job keeps the key with which it began, commands on its
nodes need no key, and whoever comes with another one is refused.

Hosts are network namespaces, each with a home and a run directory of its own: 0 leads, 1 is a member, 2 is not in the job."""
import json
import subprocess

import pytest

import harness
from harness import MUSTER, kill
from hosts import hosts_or_skip
from test_attack_hosts import write_key
from test_attack_munge import key_id

PORT = 29400
KEEPS = "; a job keeps the key with which it began, even if the file has changed\n"


class Site:
    def __init__(self, job, hosts, source):
        self.job, self.hosts, self.source = job, hosts, source
        self.old, self.new = write_key(job.tmp / "old"), write_key(job.tmp / "new")
        for n in range(3):
            (job.tmp / f"home{n}/.config/muster").mkdir(parents=True, mode=0o700)
        self.put(self.old)

    def files(self):
        """Where the job's key is."""
        return {"file": [self.job.tmp / "given"], "home": [self.job.tmp / f"home{n}/.config/muster/key" for n in range(3)],
                "folder": [self.job.tmp / "shared/muster-net/key"], "environment": []}[self.source]

    def put(self, key):
        """None: away with it."""
        for file in self.files():
            file.unlink(missing_ok=True)
            if key is not None:
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                file.touch(0o600)
                file.write_text(key.read_text())

    def env(self, n):
        return {"HOME": str(self.job.tmp / f"home{n}"), "XDG_CONFIG_HOME": "\0unset", "MUSTER_MUNGE_SOCKET": "/nowhere",
                "MUSTER_RUN_DIR": str(self.job.tmp / f"run{n}")}

    def start(self, n, tag=None, key=None):
        place = ([f"--rdzv-endpoint=dir:{self.job.tmp}/shared"] if self.source == "folder"
                 else ["--rdzv-backend=c10d", f"--rdzv-endpoint={self.hosts.address(0)}:{PORT}"])
        given = {"file": [f"--key-file={self.job.tmp}/given"]}.get(self.source, [])
        env = self.env(n) | ({"MUSTER_KEY": (key or self.old).read_text().strip()} if self.source == "environment" else {})
        return self.job.agent(tag or f"h{n}", "--nnodes=1:3", "--nproc-per-node=1", *place, "--rdzv-id=net", *given, "--max-restarts=5",
                              "--lease=1", "--heartbeat-interval=0.2", "--grow=now", "--rdzv-conf=join_timeout=3,last_call_timeout=0.5",
                              "--no-python", self.job.worker, "family", "start", "go", prefix=self.hosts.enter(n), env=env)

    def begin(self):
        agents = [self.start(0)]
        agents[0].wait_said("waiting for nodes")
        agents.append(self.start(1))
        self.job.events.wait("start", 2, world=2)
        return agents

    def ask(self, n, *words):
        env = self.job.env("operator", self.env(n))
        done = subprocess.run([*self.hosts.enter(n), MUSTER, *map(str, words)], env=env, cwd=self.job.tmp, text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=30 * harness.SLOWER)
        return done.returncode, done.stdout, done.stderr

    def id(self, key):
        return key_id(key.read_text().strip()[-64:])


@pytest.fixture(params=["file", "environment", "home", "folder"])
def site(job, request):
    with hosts_or_skip(3, ipv6=False) as hosts:
        yield Site(job, hosts, request.param)


@pytest.mark.parametrize("how", ["replaced", "removed"])
@pytest.mark.parametrize("site", ["file", "home", "folder"], indirect=True)
def test_a_job_keeps_its_key(job, site, how):
    agents = site.begin()
    site.put(site.new if how == "replaced" else None)
    for n in (0, 1):  # the operator may even have another one
        for words in ([], [f"--key-file={site.new}"]):
            code, out, err = site.ask(n, "status", "--json", *words)
            assert code == 0 and json.loads(out)["members"] == 2 and err == "", (n, words, err)
        code, out, err = site.ask(n, "ps", "--json")
        assert code == 0 and '"running"' in out, (n, out, err)
    where = f"dir:{job.tmp}/shared" if site.source == "folder" else f"{site.hosts.address(0)}:{PORT}"
    code, _, err = site.ask(2, "status", where, "--rdzv-id=net", f"--key-file={site.new}")
    assert code == 1 and f"{site.id(site.old)} from" in err and f"{site.id(site.new)} from --key-file" in err, err
    kill(int(job.events.all("start")[0].fields["pid"]))
    job.events.wait("start", 4, world=2)
    site.hosts.cut(1)
    job.events.wait("start", 1, world=1)
    site.hosts.heal(1)  # its agent comes back by the key that it has
    job.events.wait("start", 6, world=2)
    code, _, err = site.ask(1, "stop")
    assert code == 0, err
    for agent in agents:
        assert "an operator" in agent.finish()[2]
    for n in (0, 1):
        assert not list((job.tmp / f"run{n}").glob("key-*")), "it goes with the agent"


def test_a_node_that_comes_back_with_another_key(job, site):
    agents = site.begin()
    code, _, err = site.ask(1, "leave")
    assert code == 0, err
    agents[1].finish()
    job.events.wait("start", 1, world=1)
    site.put(site.new)
    code, _, err = site.start(1, "other", site.new).finish()
    source = {"file": "--key-file", "environment": "MUSTER_KEY", "home": "~/.config/muster/key", "folder": "the job's folder"}[site.source]
    assert code == 75 and f"the key here is {site.id(site.new)} from {source}" in err, err
    assert f"admits only those who have its key ({site.id(site.old)} from {source})" in err, err
    assert err.endswith(KEEPS) == (site.source != "environment"), err
    assert bool(list((job.tmp / "run0").glob("key-*"))) == (site.source != "environment"), "it is in no file"
    agents[0].wait_said("refused a connection from 10.88.0.2: it left after it received the keys that are accepted here")
    site.put(site.old)
    agents[1] = site.start(1, "again")
    job.events.wait("start", 4, world=2)
    job.go()
    for agent in agents:
        code, _, err = agent.finish()
        assert code == 0, err
