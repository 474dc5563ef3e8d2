"""Clients of the workers' store from other machines: whom --store-check admits, and what those see that it does not.

Host 0 leads, host 1 is a node of the job, host 2 has nothing to do with it. The store is host 0's."""
import contextlib
import os
import re
import signal
import subprocess

import pytest

import harness
from harness import HERE, MUSTER, TORCH_PYTHON
from hosts import hosts_or_skip
from test_attack import AS, as_other
from test_netns import endpoint
from test_one_port import listening

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or as_other(MUSTER, "--version")[0] != 0,
                                reason="needs root, and a muster that other users can run")

ENV = {"PYTHON_EXEC": TORCH_PYTHON, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
REFUSED = r"refused a connection to the workers' store from "
STRANGER, OTHER = "no node of this job has that address", "it belongs to uid 65534 there"


def key_file(job):
    """The job is authenticated: only then its store judges who comes from other machines."""
    path = job.tmp / "key"
    if not path.exists():
        path.touch(0o600)
        path.write_text(f"muster-key-1:{os.urandom(32).hex()}\n")
    return path


class Target:
    """A job of two nodes on the first two hosts, and what others do to its store."""

    def __init__(self, job, hosts, *words, nodes=(0, 1), enter=None):
        self.job, self.hosts, self.enter = job, hosts, enter or hosts.enter
        place = endpoint(hosts)
        if "--auth=none" not in words:
            words = [f"--key-file={key_file(job)}", *words]
        self.agents = [job.agent(f"h{n}", f"--nnodes={len(nodes)}", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=sc",
                                 f"--rdzv-endpoint={place}", "--rdzv-conf=join_timeout=30", "--lease=60", *words, "--no-python",
                                 job.worker, "start", "env=MASTER_PORT", "go", prefix=self.enter(n)) for n in nodes]
        self.port = int(job.events.wait("env", len(nodes))[0].fields["value"])

    def attack(self, n, what, *, other=False, port=None, host=0, source=""):
        """What somebody on that host gets from the store."""
        words = [*self.enter(n), *(AS if other else []), "/usr/bin/python3", "-c", (HERE / "attacker.py").read_text(),
                 self.hosts.address(host), port or self.port, what, source]
        done = subprocess.run([*map(str, words)], cwd="/", capture_output=True, text=True, timeout=60 * harness.SLOWER)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def counter(self):
        """What was written, as the leader's own machine reads it."""
        return self.attack(0, "look")

    def end(self):
        """The job does not notice; what the leader has said of its store."""
        self.job.go()
        said = []
        for agent in self.agents:
            code, _, err = agent.finish()
            assert code == 0, err
            said.append(re.findall("warning: (?:refused|addresses|the kernel).*", err))
        return said


# --- who gets in -----------------------------------------------------------------------------------------------------

WHO = {"ours": (1, False), "another user of a node": (1, True), "a stranger": (2, False)}
ADMITS = {"uid": {"ours"}, "member": {"ours", "another user of a node"}, "none": set(WHO)}


@pytest.mark.parametrize("check", ADMITS)
def test_who_is_admitted(job, check):
    with hosts_or_skip(3) as hosts:
        target = Target(job, hosts, *([] if check == "uid" else [f"--store-check={check}"]))
        got = {who for who, (n, other) in WHO.items() for _ in range(3) if target.attack(n, "write", other=other)}
        assert got == ADMITS[check]
        assert target.counter() == str(3 * len(got))
        lines, _ = target.end()
        expected = {"uid": [OTHER, STRANGER], "member": [STRANGER], "none": []}[check]
        assert len(lines) == len(expected) and all(re.search(REFUSED + ".*" + e, x) for x, e in zip(lines, expected)), lines


def test_who_has_no_part_in_an_open_job(job):
    """--auth=none: nobody is asked. (Without a key it is the same.)"""
    with hosts_or_skip(3) as hosts:
        target = Target(job, hosts, "--auth=none")
        assert all(target.attack(n, "write", other=other) for n, other in WHO.values())
        assert target.end() == [[], []]


@pytest.mark.parametrize("family", [{"ipv6": False}, {"ipv4": False}], ids=["ipv4", "ipv6"])
def test_reads_and_fills_are_refused_as_well(job, family):
    with hosts_or_skip(3, **family) as hosts:
        target = Target(job, hosts)
        for n, other in [(1, True), (2, False), (2, True)]:
            assert target.attack(n, "read", other=other) == target.attack(n, "fill", other=other) == ""
        assert target.attack(1, "fill") == "8"
        lines, _ = target.end()
        assert len(lines) == 2, lines


def test_by_the_endpoint_and_by_another_node(job):
    """Ports of muster's own lead to the store, too: whoever passes a client on has judged it."""
    with hosts_or_skip(3) as hosts:
        target = Target(job, hosts)
        through = listening(target.agents[1].agent_pid()).pop()
        ways = [(0, 29400), (1, through)]
        assert [target.attack(1, "write", host=h, port=p) for h, p in ways] == ["1", "2"]
        for h, p in ways:
            assert target.attack(1, "write", other=True, host=h, port=p) == ""
            assert target.attack(2, "write", host=h, port=p) == ""
        assert target.counter() == "2"
        leader, node = target.end()
        assert len(leader) == 2 and all(re.search(REFUSED, line) for line in leader), leader
        assert len(node) == 2 and sum("passes on only those of its own machine" in line for line in node) == 1, node


def test_by_another_interface_of_the_node(job):
    with hosts_or_skip(3) as hosts:
        for n in (1, 2):
            subprocess.run([*hosts.enter(n), "ip", "addr", "add", f"10.88.0.{100 + n}/24", "dev", "eth0"], check=True)
        target = Target(job, hosts)
        assert target.attack(1, "write", source="10.88.0.101") == "1"
        assert target.attack(1, "write", source="10.88.0.101", other=True) == ""
        assert target.attack(2, "write", source="10.88.0.102") == ""
        target.end()


@pytest.mark.parametrize("other", [True, False], ids=["another user", "root"])
@pytest.mark.parametrize("how", ["write_and_close", "write_and_reset"])
def test_who_writes_and_closes_is_refused(job, how, other):
    with hosts_or_skip(2) as hosts:
        target = Target(job, hosts)
        agent = target.agents[0].agent_pid()
        os.kill(agent, signal.SIGSTOP)
        try:
            target.attack(1, how, other=other)
        finally:
            os.kill(agent, signal.SIGCONT)
        target.agents[0].wait_said(REFUSED)
        assert target.counter() == "0"
        lines, _ = target.end()
        assert len(lines) == 1, lines


def test_several_agents_of_one_host(job):
    with hosts_or_skip(3) as hosts:
        target = Target(job, hosts, nodes=(0, 1, 1))
        assert [target.attack(1, "write", other=other) for other in (False, True, False)] == ["1", "", "2"]
        target.end()


# --- an agent that is silent, and translated addresses ---------------------------------------------------------------

RETRY = """
import datetime, sys
from torch.distributed import TCPStore
s = TCPStore(sys.argv[1], int(sys.argv[2]), is_master=False, wait_for_workers=False, timeout=datetime.timedelta(seconds=60))
print(s.add("attacked", 1))
"""


@pytest.mark.torch
def test_pytorch_comes_again_when_its_agent_was_silent(job):
    with hosts_or_skip(2) as hosts:
        target = Target(job, hosts)
        agent = target.agents[1].agent_pid()
        os.kill(agent, signal.SIGSTOP)
        words = [*hosts.enter(1), TORCH_PYTHON, "-c", RETRY, hosts.address(0), target.port]
        with subprocess.Popen([*map(str, words)], stdout=subprocess.PIPE, text=True) as client:
            try:
                target.agents[0].wait_said("the agent there did not report its owner within 3.0 s")
            finally:
                os.kill(agent, signal.SIGCONT)
            assert client.communicate(timeout=90 * harness.SLOWER)[0] == "1\n"
        target.end()


@contextlib.contextmanager
def behind(hosts, n):
    """A machine behind host n, which translates its addresses to its own."""
    inner = hosts._hold()
    rules = ("add table ip nat; add chain ip nat out { type nat hook postrouting priority 100; }; "
             "add rule ip nat out oifname eth0 masquerade")
    hosts._ip(hosts.pids[n], f"link add in0 type veth peer name eth0 netns {inner}", "addr add 10.99.0.1/24 dev in0", "link set in0 up")
    hosts._ip(inner, "link set lo up", "addr add 10.99.0.2/24 dev eth0", "link set eth0 up", "route add default via 10.99.0.1")
    hosts._in(hosts.pids[n], "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
    done = subprocess.run([*hosts.enter(n), "nft", rules], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"needs nft (Debian: nftables): {done.stderr.strip()}")
    yield ["nsenter", f"--target={inner}", "--net", "--uts", "--mount", "--"]


def test_translated_addresses(job):
    """The agent behind host 1 can't say anything of the connections that come from host 1's address."""
    with hosts_or_skip(3) as hosts, behind(hosts, 1) as inner:
        target = Target(job, hosts, enter=lambda n: inner if n == 1 else hosts.enter(n))
        assert [target.attack(1, "write", other=other) for other in (False, True)] == ["1", "2"]
        assert target.attack(2, "write") == ""
        lines, _ = target.end()
        assert len(lines) == 2 and "addresses are translated (NAT) on the way from 10.88.0.2" in lines[0] and STRANGER in lines[1], lines


def test_a_node_that_does_not_translate_is_not_taken_for_one(job):
    """An agent on host 1 itself, and a client behind it: its kernel does not know that socket."""
    with hosts_or_skip(2) as hosts, behind(hosts, 1) as inner:
        target = Target(job, hosts)
        done = subprocess.run([*inner, "/usr/bin/python3", "-c", (HERE / "attacker.py").read_text(), hosts.address(0),
                               str(target.port), "write"], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == ""
        lines, _ = target.end()
        assert len(lines) == 1 and "comes from a container or through a proxy" in lines[0], lines


# --- PyTorch ---------------------------------------------------------------------------------------------------------

def torch_pair(job, hosts, script, *words):
    words = [f"--key-file={key_file(job)}", *words]
    return [job.agent(f"h{n}", "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=sc",
                      f"--rdzv-endpoint={endpoint(hosts)}", *words, script, env=ENV, prefix=hosts.enter(n)) for n in (0, 1)]


@pytest.mark.torch
@pytest.mark.parametrize("check", ["uid", "member", "none"])
def test_gloo_over_two_hosts(job, check):
    with hosts_or_skip(2) as hosts:
        for agent in torch_pair(job, hosts, HERE / "store_worker.py", f"--store-check={check}"):
            code, out, err = agent.finish(120)
            assert code == 0 and "refused" not in err, err
            assert len(re.findall(r"rank \d of 4: ", out)) == 2, out


@pytest.mark.torch
def test_a_store_of_the_script_s_own_is_not_touched(job, tmp_path):
    """As in-process restarts do: rank 0 serves at MASTER_PORT + 1, for whoever comes."""
    script = tmp_path / "own.py"
    script.write_text("import os, datetime\nfrom torch.distributed import TCPStore\n"
                      "rank, world = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
                      "s = TCPStore(os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']) + 1, world, rank == 0,\n"
                      "             timeout=datetime.timedelta(seconds=60))\n"
                      "s.add('n', 1)\n"
                      "while s.add('n', 0) < world: pass\n"
                      "print('all here', flush=True)\n"
                      "s.add('end', 1)\n"
                      "while rank == 0 and s.add('end', 0) < world: pass\n")
    with hosts_or_skip(2) as hosts:
        for agent in torch_pair(job, hosts, script):
            code, out, err = agent.finish(120)
            assert code == 0 and out.count("all here") == 2, err
