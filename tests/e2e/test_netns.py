"""Several hosts, each a network namespace: addresses, orders of arrival, and a host that becomes silent."""
import itertools
import re
import signal
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


def test_workers_get_the_name_of_a_leader_that_has_only_an_ipv6_address(job):
    """An address without brackets breaks tcp://MASTER_ADDR:MASTER_PORT."""
    with hosts_or_skip(2, ipv4=False, names=True) as hosts:
        running = [job.agent(f"h{n}", "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=host1:29400", "--rdzv-id=net",
                             "--no-python", job.worker, "start", "env=MASTER_ADDR", "go", prefix=hosts.enter(n)) for n in (0, 1)]
        assert {e.fields["value"] for e in job.events.wait("env", 2)} == {"host1"}
        job.go()
        assert [a.wait() for a in running] == [0, 0]


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


NO_LOOPBACK = "the loopback interface is down, so this node cannot connect to itself; run: ip link set lo up"
# The rules of a network that forbids every connection to a host's own addresses.
FORBIDDEN = ("rule add pref 10 lookup local", "rule del pref 0", "rule add pref 5 prohibit")


@pytest.mark.parametrize("words", [[], ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=10.88.0.1:29400"],
                                   ["--nnodes=2", "--rdzv-endpoint=dir:meet"]])
def test_without_loopback_a_job_ends_at_once_with_the_remedy(job, words):
    with hosts_or_skip(1) as hosts:
        hosts._ip(hosts.pids[0], "link set lo down")
        agent = job.agent("h0", *words, "--rdzv-id=net", "--no-python", "/bin/true", prefix=hosts.enter(0))
        code, _, err = agent.finish(10)
        assert code == 1 and NO_LOOPBACK in err, err


def test_a_leader_that_may_not_connect_to_itself_ends_at_once_with_the_errno(job):
    with hosts_or_skip(1) as hosts:
        hosts._ip(hosts.pids[0], *FORBIDDEN)
        agent = job.agent("h0", "--no-python", "/bin/true", prefix=hosts.enter(0))
        code, _, err = agent.finish(10)
        assert code == 1 and re.search(r"cannot connect to itself: no leader at 127.0.0.1:\d+: Permission denied", err), err


@pytest.mark.parametrize("meeting", ["c10d", "static", "ports", "dir"])
@pytest.mark.parametrize("fault, errno", [("link set eth0 down", "Network is unreachable"),
                                          ("route add prohibit 10.88.0.1", "Permission denied"),
                                          ("route add unreachable 10.88.0.1", "No route to host")])
def test_why_a_node_cannot_connect_is_shown_soon_and_sigterm_ends_it(job, tmp_path, meeting, fault, errno):
    words = {"c10d": ["--rdzv-backend=c10d", "--rdzv-endpoint=10.88.0.1:29400"],
             "static": ["--node-rank=1", "--master-addr=10.88.0.1", "--master-port=29400"],
             "ports": ["--rdzv-endpoint=10.88.0.1:29400-29403"],
             "dir": [f"--rdzv-endpoint=dir:{tmp_path}/meet"]}[meeting]
    with hosts_or_skip(2, ipv6=False) as hosts:
        if meeting == "dir":  # somebody must lead
            leader = job.agent("h0", "--nnodes=2", *words, "--rdzv-id=net", "--no-python", "/bin/true", prefix=hosts.enter(0))
            leader.wait_said("1 of 2")
        hosts._ip(hosts.pids[1], fault)
        at = time.monotonic()
        agent = job.agent("h1", "--nnodes=2", *words, "--rdzv-id=net", "--no-python", "/bin/true", prefix=hosts.enter(1))
        agent.wait_said(errno, 5)
        assert time.monotonic() < at + 5 * SLOWER
        agent.signal(signal.SIGTERM)
        assert agent.wait(5) == 128 + signal.SIGTERM, agent.said()
        assert "not connected" not in agent.said(), agent.said()
        if meeting == "dir":
            leader.signal(signal.SIGTERM)
            leader.wait(10)


def test_sigterm_ends_a_leader_that_gets_no_answer_from_itself(job):
    with hosts_or_skip(1) as hosts:
        hosts._ip(hosts.pids[0], *FORBIDDEN[:2], "rule add pref 5 to 127.0.0.1 lookup 100", "route add 127.0.0.1 dev eth0 table 100",
                  "neigh add 127.0.0.1 lladdr 02:88:00:00:00:99 dev eth0 nud permanent")
        agent = job.agent("h0", "--no-python", "/bin/true", prefix=hosts.enter(0))
        agent.wait_said("no answer", 20)
        agent.signal(signal.SIGTERM)
        assert agent.wait(5) == 128 + signal.SIGTERM, agent.said()


# What a node finds that looks for its leader on host 0.
SEARCHES = {"nothing": None, "silent program": "import socket, sys; s = socket.create_server(('', 29400)); print(flush=True);"
            "c = [s.accept() for _ in range(99)]", "silent host": "cut", "stopped agent": "stop"}


@pytest.mark.parametrize("found", SEARCHES)
def test_sigterm_ends_every_search_for_the_leader_promptly(job, found):
    with hosts_or_skip(2) as hosts:
        if SEARCHES[found] == "cut":
            hosts.cut(0)
        elif SEARCHES[found] == "stop":
            leader = agents(job, hosts, [0], 2)[0]
            leader.wait_said("1 of 2")
            hosts.freeze(0)
        elif SEARCHES[found]:
            leader = subprocess.Popen([*hosts.enter(0), "python3", "-c", SEARCHES[found]], stdout=subprocess.PIPE)
            leader.stdout.readline()
        agent = agents(job, hosts, [1], 2)[1]
        agent.wait_said(r"no leader at 10.88.0.1", 20)
        agent.signal(signal.SIGTERM)
        assert agent.wait(5) == 128 + signal.SIGTERM, agent.said()
        if SEARCHES[found] == "stop":
            hosts.thaw(0)
            leader.signal(signal.SIGTERM)
            leader.wait(10)
        elif SEARCHES[found] not in (None, "cut"):
            leader.kill()
            leader.wait()
            leader.stdout.close()
