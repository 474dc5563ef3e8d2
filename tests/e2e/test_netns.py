"""Several hosts, each a network namespace: addresses, orders of arrival, and a host that becomes silent."""
import itertools
import re
import subprocess
import time

import pytest

from harness import SLOWER, kill
from hosts import hosts_or_skip

LEASE, HEARTBEAT = 1.0, 0.2
# From the fault to the smaller group: the lease, plus the leader's margin, plus the time to stop and start workers.
MARGIN = 1.0


def endpoint(hosts, n=0, port=29400):
    address = hosts.address(n)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def agents(job, hosts, order, nnodes, *words, worker=("start", "env=MASTER_ADDR", "go"), leader=0):
    return {n: job.agent(f"h{n}", f"--nnodes={nnodes}", "--nproc-per-node=2", "--rdzv-backend=c10d",
                         f"--rdzv-endpoint={endpoint(hosts, leader)}", "--rdzv-id=net", f"--lease={LEASE}",
                         f"--heartbeat-interval={HEARTBEAT}", "--rdzv-conf=read_timeout=2,join_timeout=20", *words,
                         "--no-python", job.worker, *worker,
                         prefix=hosts.enter(n)) for n in order}


@pytest.mark.parametrize("family", [{"ipv6": False}, {"ipv4": False}, {}], ids=["ipv4", "ipv6", "both"])
def test_two_hosts_without_a_name_service(job, family):
    with hosts_or_skip(2, **family) as hosts:
        running = agents(job, hosts, [0, 1], 2)
        job.events.wait("start", 4, world=4)
        told = {e.fields["value"] for e in job.events.wait("env", 4)}
        assert told == {hosts.address(0)}, told
        job.go()
        for agent in running.values():
            code, _, err = agent.finish()
            assert code == 0, err


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_agents_come_in_any_order(job, order):
    with hosts_or_skip(3) as hosts:
        running = agents(job, hosts, order, 3)
        starts = job.events.wait("start", 6, world=6)
        assert sorted(int(e.fields["rank"]) for e in starts) == list(range(6))
        job.go()
        for agent in running.values():
            assert agent.wait() == 0, agent.said()


def test_ranks_are_contiguous_on_each_host_and_hosts_in_natural_order(job):
    with hosts_or_skip(3) as hosts:
        running = agents(job, hosts, [2, 0, 1], 3)
        starts = job.events.wait("start", 6, world=6)
        place = {int(e.fields["rank"]): e.fields["tag"] for e in starts}
        groups = [tag for tag, _ in itertools.groupby(place[r] for r in sorted(place))]
        assert len(groups) == 3, place
        job.go()
        assert [a.wait() for a in running.values()] == [0, 0, 0]


def test_agents_that_came_first_show_who_is_missing(job):
    with hosts_or_skip(3) as hosts:
        running = agents(job, hosts, [0, 1], 3)
        running[0].wait_said(r"2 of 3|1 more|missing")
        running.update(agents(job, hosts, [2], 3))
        job.events.wait("start", 6, world=6)
        job.go()
        assert [a.wait() for a in running.values()] == [0, 0, 0]


@pytest.mark.parametrize("leader", [0, 1])
def test_the_host_of_the_endpoint_leads_wherever_it_is(job, leader):
    with hosts_or_skip(2) as hosts:
        running = agents(job, hosts, [0, 1], 2, leader=leader)
        job.events.wait("start", 4, world=4)
        assert {e.fields["value"] for e in job.events.wait("env", 4)} == {hosts.address(leader)}
        job.go()
        assert [a.wait() for a in running.values()] == [0, 0]


@pytest.mark.parametrize("silent", [1, 2])
def test_a_host_that_falls_silent_is_left_out(job, silent):
    """Its link is cut: it ends its own workers when its lease is over; the others continue without it."""
    with hosts_or_skip(3) as hosts:
        running = agents(job, hosts, [0, 1, 2], "2:3", worker=("family", "start", "go"))
        job.events.wait("start", 6, world=6)
        at = time.monotonic()
        hosts.cut(silent)
        again = job.events.wait("start", 4, 30, world=4)
        took = max(int(e.fields["ns"]) for e in again) / 1e9 - at
        assert job.held(f"h{silent}") == [], "its workers are dead before others start"
        job.no_overlap()
        assert {e.fields["tag"] for e in again} == {f"h{n}" for n in range(3) if n != silent}
        assert took <= (LEASE + MARGIN + 0.5) * SLOWER, f"{took:.3f} s"
        job.go()
        for n, agent in running.items():
            if n != silent:
                assert agent.wait() == 0, agent.said()
        assert running[silent].wait() not in (None, 0), running[silent].said()


def test_without_enough_hosts_a_silent_one_ends_the_job_with_the_reason(job):
    with hosts_or_skip(2) as hosts:
        running = agents(job, hosts, [0, 1], 2, worker=("family", "start", "go"))
        job.events.wait("start", 4, world=4)
        hosts.cut(1)
        for agent in running.values():
            code, _, err = agent.finish(60)
            assert code == 75, err
            assert re.search(r"lost|lease|silent|reach|news|gone", err), err
        assert job.held("h0") == [] and job.held("h1") == []


def test_a_killed_agent_on_another_host_is_noticed_at_once(job):
    with hosts_or_skip(2) as hosts:
        running = agents(job, hosts, [0, 1], "1:2", "--lease=300", worker=("family", "start", "go"))
        job.events.wait("start", 4, world=4)
        at = time.monotonic()
        kill(running[1].agent_pid())
        again = job.events.wait("start", 2, 30, world=2, tag="h0")
        took = max(int(e.fields["ns"]) for e in again) / 1e9 - at
        assert job.held("h1") == []
        assert took <= 1.0 * SLOWER, f"{took:.3f} s"
        job.go()
        assert running[0].wait() == 0, running[0].said()


@pytest.mark.parametrize("port", range(40000, 40006))
def test_a_nodes_own_listener_leaves_the_endpoints_port_alone(job, port):
    """The endpoint's port is in the range from which the kernel chooses ports; here the range has only ten."""
    with hosts_or_skip(1) as hosts:
        few = "echo 40000 40009 > /proc/sys/net/ipv4/ip_local_port_range"
        subprocess.run([*hosts.enter(0), "sh", "-c", few], check=True)
        both = [job.agent(tag, "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=port",
                          f"--rdzv-endpoint=127.0.0.1:{port}", "--no-python", "true", prefix=hosts.enter(0))
                for tag in "ab"]
        for agent in both:
            code, _, err = agent.finish()
            assert code == 0, err


def listeners(hosts, n):
    """The ports at which somebody listens on host n: of all addresses, and of one."""
    text = subprocess.run([*hosts.enter(n), "cat", "/proc/net/tcp", "/proc/net/tcp6"], check=True, capture_output=True,
                          text=True).stdout
    ends = [row.split()[1].split(":") for row in text.splitlines() if row.split()[3] == "0A"]
    return [{int(port, 16) for address, port in ends if (set(address) == {"0"}) == every} for every in (True, False)]


def is_served(hosts, n, at, port):
    """Whether a connection from host n stays open before it has sent anything; None: it is refused."""
    code = ("import socket, sys\n"
            f"try: s = socket.create_connection(({at!r}, {port}), 5)\n"
            "except ConnectionRefusedError: sys.exit(2)\n"
            "s.settimeout(1)\n"
            "try: s.recv(1)\n"
            "except TimeoutError: sys.exit(0)\n"
            "sys.exit(1)\n")
    return {0: True, 1: False, 2: None}[subprocess.run([*hosts.enter(n), "/usr/bin/python3", "-c", code]).returncode]


@pytest.mark.parametrize("named", [False, True], ids=["address", "name"])
def test_agents_talk_only_at_the_addresses_that_the_job_uses(job, named):
    """Two hosts and a stranger have a second network. An endpoint that is a name can be any address of its host."""
    with hosts_or_skip(3, names=named) as hosts:
        for n in range(3):
            subprocess.run([*hosts.enter(n), "ip", "addr", "add", f"10.99.0.{n + 1}/24", "dev", "eth0"], check=True)
        where = "host1:29400" if named else endpoint(hosts)
        running = [job.agent(f"h{n}", "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={where}", "--rdzv-id=net",
                             "--no-python", job.worker, "start", "env=MASTER_ADDR", "go", prefix=hosts.enter(n)) for n in (0, 1)]
        job.events.wait("start", 2, world=2)
        (leads, leads_one), (joins, joins_one) = listeners(hosts, 0), listeners(hosts, 1)
        assert (29400 in leads, 29400 in leads_one) == (named, not named)
        port, = leads - {29400}
        assert len(joins) == 1 and not joins_one and len(leads_one - {29400}) == 1, "the store is at one address"
        assert is_served(hosts, 2, hosts.address(0), port) and is_served(hosts, 2, hosts.address(1), *joins)
        assert is_served(hosts, 2, "fd88::2", *joins), "its neighbour may try this one, too"
        assert not is_served(hosts, 2, "10.99.0.2", *joins)
        assert is_served(hosts, 2, "10.99.0.1", port) == named
        assert is_served(hosts, 2, "10.99.0.1", 29400) == (named or None)
        for address in ("127.0.0.1", "10.99.0.2", hosts.address(1)):
            assert is_served(hosts, 1, address, *joins), "from its own machine"
        job.go()
        for agent in running:
            assert agent.wait() == 0, agent.said()


@pytest.mark.parametrize("words", [["--standalone"], [], ["--nnodes=1", "--master-port=29555"],
                                   ["--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:29400"]])
def test_a_job_of_one_node_listens_on_loopback_only(job, words):
    with hosts_or_skip(1) as hosts:
        agent = job.agent("h0", *words, "--no-python", job.worker, "start", "go", prefix=hosts.enter(0))
        job.events.wait("start", 1)
        anywhere, _ = listeners(hosts, 0)
        assert not anywhere
        text = subprocess.run([*hosts.enter(0), "cat", "/proc/net/tcp", "/proc/net/tcp6"], check=True, capture_output=True,
                              text=True).stdout
        ends = {row.split()[1].split(":")[0] for row in text.splitlines() if row.split()[3] == "0A"}
        assert ends <= {"0100007F", "00000000000000000000000001000000"}, ends
        job.go()
        assert agent.wait() == 0, agent.said()
