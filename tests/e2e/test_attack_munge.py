"""Jobs whose key is carried by munge: who may read it, what strangers offer, and a munged that hangs or ends.

Hosts are network namespaces: 0 leads, 1 is a member, 2 is the stranger's. Each has a munged of its own, of one realm."""
import contextlib
import hmac
import json
import os
import signal
import subprocess

import pytest

import etcd
import harness
from hosts import hosts_or_skip
from munge import Munged
from test_attack_hosts import PORT, Field
from test_key_memory import look

OTHER = 65534
RUN = "net"


@pytest.fixture
def site(job):
    """Hosts and their munged, and the jobs on them."""
    with hosts_or_skip(3, ipv6=False) as hosts, contextlib.ExitStack() as stack:
        yield Site(job, hosts, [stack.enter_context(Munged()) for _ in range(2)])


class Site(Field):
    def __init__(self, job, hosts, munged):
        self.job, self.hosts, self.munged, self.agents = job, hosts, munged, []
        self.place = f"{hosts.address(0)}:{PORT}"

    def start(self, n, *words, meeting=None, munged=True, nnodes="2", slurm=False):
        meeting = meeting or ["--rdzv-backend=c10d", f"--rdzv-endpoint={self.place}"]
        env = {"HOME": self.job.tmp, "XDG_CONFIG_HOME": "\0unset",
               "MUSTER_MUNGE_SOCKET": self.munged[n].socket if munged else "/nowhere"}
        if slurm:
            conf = self.job.tmp / f"slurm.conf.{n}"
            conf.write_text(f"AuthType=auth/munge\nAuthInfo=socket={env.pop('MUSTER_MUNGE_SOCKET')}\n")
            env["SLURM_CONF"] = conf
        agent = self.job.agent(f"h{n}", f"--nnodes={nnodes}", "--nproc-per-node=1", *meeting, f"--rdzv-id={RUN}", "--max-restarts=3",
                               "--rdzv-conf=join_timeout=20,last_call_timeout=0.2,read_timeout=3", *words, "--no-python",
                               self.job.worker, "start", "go", prefix=self.hosts.enter(n), env=env)
        self.agents.append(agent)
        return agent

    def begin(self, **more):
        for n in (0, 1):
            self.start(n, **more)
        self.job.events.wait("start", 2, world=2)
        return self.status()

    def end(self):
        self.job.go()
        for agent in self.agents:
            code, _, err = agent.finish()
            assert code == 0, err

    def greeting(self):
        return self.rogue("hello", self.hosts.address(0), PORT)[0]


def key_id(secret):
    """As greetings and status write it."""
    return hmac.digest(bytes.fromhex(secret), b"muster key id v1", "sha256")[:8][::-1].hex()


# --- who may read it -------------------------------------------------------------------------------------------------


def test_munge_gives_all_nodes_one_key_and_nobody_else(job, site):
    seen = site.begin()
    assert seen["auth"] == "keys" and [k["source"] for k in seen["auth_keys"]] == ["munge"], seen
    heard = site.greeting()
    key, run = site.munged[0].decode(heard["munge"]).rstrip("\n").split("\n")[-2:]
    assert run == RUN and key.startswith("muster-key-1:")
    assert key_id(key.removeprefix("muster-key-1:")) == seen["auth_keys"][0]["id"] == heard["keys"][0]["id"]
    with Munged("other realm") as other:
        assert "muster-key" not in other.decode(heard["munge"])
    assert "agent" in look(job, key)
    site.end()


def test_munge_is_found_by_the_settings_of_slurm(site):
    seen = site.begin(slurm=True)
    assert seen["auth"] == "keys" and [k["source"] for k in seen["auth_keys"]] == ["munge"], seen
    site.end()


def test_a_node_without_munge_or_of_another_realm_is_refused(job, site):
    site.start(0)
    site.agents[0].wait_said("waiting for nodes")
    with Munged("other realm") as other:
        site.munged[1] = other
        late = site.start(1, "--rdzv-conf=join_timeout=3,read_timeout=2")
        code, _, err = late.finish()
        assert code == 75 and "that node has a different munge.key" in err, err
        late = site.start(1, "--rdzv-conf=join_timeout=3,read_timeout=2", munged=False)
        code, _, err = late.finish()
        assert code == 75 and "munged does not run here: start munged here" in err, err
    assert "refused a connection from 10.88.0.2" in site.agents[0].said()
    site.agents[0].signal(signal.SIGTERM)
    site.agents[0].finish()


def test_a_node_of_another_realm_is_told_why_also_where_the_ports_are_several(job, site):
    """As in a step of Slurm, and over ssh."""
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint={site.place},{PORT + 1}"]
    site.start(0, meeting=meeting)
    site.agents[0].wait_said("waiting for nodes")
    with Munged("other realm") as other:
        site.munged[1] = other
        code, _, err = site.start(1, "--rdzv-conf=join_timeout=3,read_timeout=2", meeting=meeting).finish()
    assert code == 75 and f"port {PORT}: the agent there admits only those who have its key (" in err, err
    assert "that node has a different munge.key: start munged here with the munge.key of that node; or " in err, err
    site.agents[0].signal(signal.SIGTERM)
    site.agents[0].finish()


# --- what a stranger offers ------------------------------------------------------------------------------------------


def node_of(site):
    """A node that looks for its leader at the stranger's."""
    return site.start(1, "--rdzv-conf=join_timeout=3,read_timeout=2",
                      meeting=["--rdzv-backend=c10d", f"--rdzv-endpoint={site.hosts.address(2)}:{PORT}"])


@pytest.mark.parametrize("own", [True, False], ids=["own", "other user"])
def test_a_key_that_another_user_offers_is_not_taken(job, site, own):
    """The stranger has an account, and so munge. Of one's own uid it is taken: that is the proof that it would work."""
    secret = os.urandom(32).hex()
    credential = site.munged[0].encode(f"muster-key-1:{secret}\n{RUN}", uid=0 if own else OTHER)
    with site.rogue_runs("offer", PORT, key_id(secret), credential) as rogue:
        node = node_of(site)
        code, _, err = node.finish()
        heard = [json.loads(line) for line in rogue.heard.lines if '"up"' not in line]
        if own:
            assert 22 in heard, (heard, err)
        else:
            assert code == 75 and "another user" in err, err
            assert ": run this as the user of that job, who must have the same uid on all nodes; or with another endpoint" in err, err
            assert "start munged" not in err, err
            assert 22 not in heard and {m["kind"] for m in heard if isinstance(m, dict)} == {"CALL"}, heard


def test_an_offer_that_was_taken_away_leads_to_nothing_in_plain(job, site):
    site.start(0)
    site.agents[0].wait_said("waiting for nodes")
    with site.rogue_runs("strip", PORT, site.hosts.address(0), PORT) as strip:
        code, _, err = node_of(site).finish()
        assert code == 75 and "has no key and admits anybody, but the key here is " in err and " from munge: start munged on that node" in err, err
        assert strip.heard.until(lambda: [line for line in strip.heard.lines if "sent" in line], 30)
        assert b"JOIN" not in b"".join(bytes.fromhex(json.loads(line)["sent"]) for line in strip.heard.lines if "sent" in line)
    site.agents[0].signal(signal.SIGTERM)
    site.agents[0].finish()


def test_an_offer_of_another_time_is_of_no_use_without_its_key(job, site):
    """Recorded from the greeting of this very job, and said again by a stranger: the handshake proves nothing."""
    site.begin()
    heard = site.greeting()
    with site.rogue_runs("offer", PORT, heard["keys"][0]["id"], heard["munge"]) as rogue:
        code, _, err = node_of(site).finish()
        assert code == 75 and "JOIN" not in "".join(rogue.heard.lines), (err, rogue.heard.lines)
    site.agents.pop()
    site.end()


# --- a munged that hangs, ends, and comes back -----------------------------------------------------------------------


@pytest.mark.parametrize("place", ["endpoint", "etcd"])
def test_a_node_whose_munged_hangs_says_so(job, site, place):
    """Also where it looks for a leader that an arbiter has named, which takes more than one attempt."""
    with contextlib.ExitStack() as stack:
        meeting = None
        if place == "etcd":
            cluster = stack.enter_context(etcd.EtcdCluster(1, where=[(site.hosts.address(2), site.hosts.enter(2))]))
            meeting = [f"--rdzv-endpoint=etcd://{cluster.endpoints[0]}"]
        site.start(0, meeting=meeting)
        site.agents[0].wait_said("waiting for nodes|leads")
        site.munged[1].signal(signal.SIGSTOP)
        late = site.start(1, "--rdzv-conf=join_timeout=8,read_timeout=2", meeting=meeting)
        code, _, err = late.finish()
        assert code == 75 and "there is no key here; munged here does not answer" in err, err
        site.agents[0].signal(signal.SIGTERM)
        site.agents[0].finish()


def test_with_auth_on_a_munged_that_hangs_at_the_leader_is_told_there(job, site):
    """Nobody can come before it answers; the job waits for that."""
    site.munged[0].signal(signal.SIGSTOP)
    site.start(0, "--auth=on")
    site.agents[0].wait_said(r"warning: with --auth=on no other node is admitted, because this one has no key \(munge here: munged "
                             r"here does not answer\): start munged again, or ")
    site.agents[0].signal(signal.SIGTERM)
    site.agents[0].finish()


def test_a_munged_that_comes_back_is_asked_again(job, site):
    site.start(0)
    site.agents[0].wait_said("waiting for nodes")
    site.munged[1].signal(signal.SIGSTOP)
    late = site.start(1)
    late.wait_said("munged here does not answer")
    site.munged[1].signal(signal.SIGCONT)
    job.events.wait("start", 2, world=2)
    site.end()


def test_a_job_outlives_its_munged(job, site):
    """Who has the key needs munge no more: neither status nor a restart, nor a node that comes back."""
    site.begin()
    for munged in site.munged:
        munged.stop()
    for n in (0, 1):  # where the leader is, and where operators need its key
        words = [*site.hosts.enter(n), harness.MUSTER, "status", "--json", f"--rdzv-id={RUN}"]
        env = {**job.env("operator"), "HOME": str(job.tmp), "MUSTER_MUNGE_SOCKET": str(site.munged[n].socket)}
        asked = subprocess.run(words, env=env, cwd=job.tmp, capture_output=True, text=True)
        assert asked.returncode == 0, (n, asked.stderr)
        seen = json.loads(asked.stdout)
        assert seen["auth"] == "keys" and seen["members"] == 2
    run = job.tmp / "run"
    assert {path.stat().st_mode & 0o777 for path in run.glob("key-*")} == {0o600}
    first = {e.fields["pid"] for e in job.events.all("start")}
    harness.kill(int(sorted(first)[0]))
    job.events.wait("start", 4, world=2)
    assert site.status()["auth"] == "keys"
    site.end()
    assert not list(run.glob("key-*"))
