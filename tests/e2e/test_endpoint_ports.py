"""An endpoint of several ports: the leader takes the first that is free, and nodes find it whatever is at the others."""
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from harness import MUSTER, SLOWER, free_port, kill
from hosts import hosts_or_skip
from test_containers import name_server
from test_one_port import listening
from test_slurm_place import Step

LEASE = ("--lease=1", "--heartbeat-interval=0.2")
# What a silent program at the first port may cost a node, in seconds, beside the time that a start takes anyway.
PASSED_OVER = 0.5


def free_ports(count):
    found = []
    while len(found) < count:
        port = free_port()
        found += [port] if port not in found else []
    return found


def start(job, tag, ports, *words, run="e2e", host="127.0.0.1", nodes=2, worker=("start", "go"), **more):
    listed = ",".join(map(str, ports)) if not isinstance(ports, str) else ports
    return job.agent(tag, f"--nnodes={nodes}", "--nproc-per-node=1", f"--rdzv-endpoint={host}:{listed}", f"--rdzv-id={run}",
                     *(() if len(listed.split(",")) > 1 or "-" in listed else ("--rdzv-backend=c10d",)), *words,
                     "--no-python", job.worker, *worker, **more)


def end(job, *agents):
    job.go()
    for agent in agents:
        code, _, err = agent.finish()
        assert code == 0, err


@contextlib.contextmanager
def silent(*ports):
    """A program, not muster, that listens at these ports, and takes connections without a word: this one."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.create_server(("127.0.0.1", port))) for port in ports]


@contextlib.contextmanager
def talks(port, words=b"220 mail.example.org ESMTP\r\n"):
    """A program that greets, and hears nobody out; without words it hangs up."""
    def serve():
        with contextlib.suppress(OSError):  # until the socket is shut down
            while True:
                connection, _ = server.accept()
                with connection, contextlib.suppress(OSError):
                    connection.sendall(words)
                    if words:
                        connection.recv(1)

    with socket.create_server(("127.0.0.1", port)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def leads_at(agents, ports):
    """The port at which exactly one of the agents leads."""
    found = [(agent, port) for agent in agents for port in listening(agent.agent_pid()) if port in ports]
    assert len(found) == 1, found
    return found[0]


def test_the_first_port_is_taken_if_it_is_free(job):
    ports = free_ports(3)
    agents = [start(job, tag, ports, "-v") for tag in "ab"]
    job.events.wait("start", 2, world=2)
    leader, port = leads_at(agents, ports)
    assert port == ports[0]
    leader.wait_said(rf"run 'e2e' is led at 127\.0\.0\.1, port {port}\n")
    end(job, *agents)


@pytest.mark.parametrize("who", ["silent", "talks", "hangs up"])
def test_a_port_that_a_stranger_has_is_passed_over(job, who):
    ports = free_ports(2)
    with silent(ports[0]) if who == "silent" else talks(ports[0], *([] if who == "talks" else [b""])):
        agents = [start(job, tag, ports, "-v", nodes=3) for tag in "abc"]
        starts = job.events.wait("start", 3, world=3)
        assert sorted(int(e.fields["rank"]) for e in starts) == [0, 1, 2]
        leader, port = leads_at(agents, ports)
        assert port == ports[1]
        # Its pid is not always ours: a child that was forked for the next agent may still hold the socket.
        leader.wait_said(rf"led at 127\.0\.0\.1, port {port}, as ports are taken \({ports[0]}: \S+, pid \d+\)")
        end(job, *agents)


def test_two_runs_share_a_list_of_ports(job):
    """Both agents of a machine that come first lead, each its own run."""
    ports = free_ports(4)
    agents = [start(job, f"{run}{n}", ports, "-v", run=run) for n in range(2) for run in ("one", "two")]
    job.events.wait("start", 4, world=2)
    ranks = {(e.fields["tag"][:3], e.fields["rank"]) for e in job.events.all("start")}
    assert ranks == {("one", "0"), ("one", "1"), ("two", "0"), ("two", "1")}
    taken = {port for a in agents for port in listening(a.agent_pid()) if port in ports}
    assert taken == set(ports[:2])
    end(job, *agents)


def test_the_leader_keeps_its_port_when_a_better_one_becomes_free(job):
    """A node that comes later, on the machine of the leader or not, finds it there, and leads no group of its own."""
    ports = free_ports(3)
    with silent(ports[0]):
        agents = [start(job, "a", ports, nodes=4)]
        agents[0].wait_said("1 of 4")
    agents.append(start(job, "b", ports, nodes=4))
    agents[0].wait_said("2 of 4")
    with talks(ports[0]), silent(ports[2]):
        agents.append(start(job, "c", ports, "--rdzv-conf=is_host=0", nodes=4))
        agents[0].wait_said("3 of 4")
    agents.append(start(job, "d", ports, "--rdzv-conf=is_host=0", nodes=4))
    job.events.wait("start", 4, world=4)
    assert leads_at(agents, ports) == (agents[0], ports[1])
    end(job, *agents)


def test_a_node_that_comes_back_joins_the_same_group(job):
    ports = free_ports(2)
    words = ("--max-restarts=3", "--grow=now", *LEASE)
    more = {"nodes": "1:2", "worker": ("family", "start", "go")}
    with silent(ports[0]):
        leader = start(job, "a", ports, *words, **more)
        leader.wait_said("1 of 2")
        node = start(job, "b", ports, *words, "--rdzv-conf=is_host=0", **more)
        job.events.wait("start", 2, world=2)
    kill(node.agent_pid())
    job.events.wait("start", 1, world=1)
    node.finish()
    again = start(job, "c", ports, *words, **more)
    starts = job.events.wait("start", 4, world=2)
    job.no_overlap()
    assert {e.fields["epoch"] for e in starts} == {"1"}, "there is one leader"
    end(job, leader, again)


@pytest.mark.parametrize("turn", range(3))
def test_of_many_that_start_at_once_one_leads(job, turn):
    """The first port becomes free while they look."""
    ports, count = free_ports(3), 6
    with silent(ports[0]):
        agents = [start(job, f"n{i}", ports, nodes=count) for i in range(count // 2)]
    agents += [start(job, f"n{i}", ports, nodes=count) for i in range(count // 2, count)]
    job.events.wait("start", count, 60, world=count)
    assert leads_at(agents, ports)
    end(job, *agents)


def test_who_found_a_leader_at_its_end_leads(job):
    """The agents wait for one that has the name of the leader, and does not answer; then it is gone."""
    ports = free_ports(2)
    old = start(job, "old", ports)
    old.wait_said("1 of 2")
    old_agent = old.agent_pid()
    os.kill(old_agent, signal.SIGSTOP)
    agents = [start(job, tag, ports) for tag in "ab"]
    for agent in agents:
        agent.wait_said(f"no leader at 127.0.0.1: port {ports[0]}: no answer .*nothing listens at port {ports[1]} yet")
    os.kill(old_agent, signal.SIGKILL)
    old.finish()
    job.events.wait("start", 2, world=2)
    end(job, *agents)


def test_a_leader_that_comes_late(job):
    ports = free_ports(3)
    with silent(ports[1]):
        node = start(job, "b", ports, "--rdzv-conf=is_host=0")
        node.wait_said(rf"no leader at 127.0.0.1: port {ports[1]}: no answer .*; nothing listens at ports? .* yet")
        leader = start(job, "a", ports)
        job.events.wait("start", 2, world=2)
        assert leads_at([leader, node], ports) == (leader, ports[0])
        end(job, leader, node)


def test_a_leader_started_again_may_have_another_port_and_waits_for_the_old_group(job):
    ports = free_ports(2)
    words = ("--rdzv-conf=last_call_timeout=0.5", *LEASE)
    first = [start(job, tag, ports, *words, worker=("family", "ignore", "start", "go")) for tag in "ab"]
    job.events.wait("start", 2, world=2)
    leader, port = leads_at(first, ports)
    assert port == ports[0]
    kill(leader.agent_pid())
    leader.finish()
    with silent(ports[0]):
        again = [start(job, tag, ports, *words, worker=("family", "start", "go")) for tag in "cd"]
        starts = job.events.wait("start", 4, world=2)[2:]
        job.no_overlap()
        assert {e.fields["epoch"] for e in starts} == {"2"}
        assert leads_at(again, ports)[1] == ports[1]
        assert any("nothing starts here for" in a.said() for a in again), [a.said() for a in again]
        end(job, *again)
    assert next(a for a in first if a is not leader).wait() == 75


def free_row(count):
    """The first of so many free ports in a row."""
    while True:
        low = free_port()
        with contextlib.suppress(OSError), silent(*range(low, low + count)):
            return low


def test_all_ports_are_taken(job):
    low = free_row(16)
    with silent(*range(low, low + 16)):
        code, _, err = start(job, "a", f"{low}-{low + 15}").finish()
    assert code == 2, err
    assert f"run 'e2e' can't be led at 127.0.0.1, ports {low}-{low + 15}: all are taken (" in err, err
    assert len(re.findall(rf"\d+: [^;]+, pid {os.getpid()}[;)]", err)) == 16, err
    assert "--rdzv-endpoint=HOST:LOW-HIGH" in err, err
    assert not job.events.all("start")


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("words", [[], ["--rdzv-conf=is_host=1"]], ids=["guessed", "by order"])
def test_the_host_by_order_joins_an_agent_that_was_first(job, words, count):
    ports = free_ports(count)
    first = start(job, "a", ports, *words)
    first.wait_said("1 of 2")
    second = start(job, "b", ports, "--rdzv-conf=is_host=1")
    job.events.wait("start", 2, world=2)
    end(job, first, second)
    assert "another agent of this machine already leads at the endpoint of the run 'e2e'; joining it" in second.said()


def test_the_host_by_order_joins_no_agent_of_another_run(job):
    port = free_ports(1)
    first = start(job, "a", port, run="other")
    first.wait_said("1 of 2")
    code, _, err = start(job, "b", port, "--rdzv-conf=is_host=1").finish()
    assert code not in (None, 0) and "belongs to the run 'other'" in err, err
    first.signal(signal.SIGTERM)
    first.finish()


def test_the_last_line_tells_what_was_found_at_each_port(job):
    ports = free_ports(5)
    with silent(ports[0]), talks(ports[1], b""), talks(ports[2]):
        other = start(job, "o", [ports[3], free_port()], run="other")
        other.wait_said("1 of 2")
        code, _, err = start(job, "a", ports, "--rdzv-conf=is_host=0,join_timeout=5").finish()
        other.signal(signal.SIGTERM)
        other.finish()
    assert code == 75
    assert err.endswith(
        f"the last attempt: no leader at 127.0.0.1: port {ports[0]}: no answer (not muster, or a firewall); "
        f"port {ports[1]}: hung up (not muster?); port {ports[2]}: not muster; "
        f"port {ports[3]}: an agent of the run 'other'; nothing listens at port {ports[4]} yet\n"), err


def test_no_listener_of_a_node_has_one_of_the_ports(job):
    """Of the range from which muster chooses its ports, the list leaves three."""
    low = free_row(19)
    agents = [start(job, tag, f"{low}-{low + 15}", f"--port-range={low}-{low + 18}", nodes=3) for tag in "abc"]
    job.events.wait("start", 3, world=3)
    nodes = [ports for ports in (listening(a.agent_pid()) for a in agents) if low not in ports]
    assert len(nodes) == 2, "the other leads"
    assert all(port > low + 15 for ports in nodes for port in ports), (low, nodes)
    end(job, *agents)


def test_a_range_that_is_no_larger_than_the_list(job):
    low = free_row(8)
    agents = [start(job, tag, f"{low}-{low + 7}", f"--port-range={low}-{low + 7}", nodes=3) for tag in "abc"]
    job.events.wait("start", 3, world=3)
    assert all(low <= port < low + 8 for a in agents for port in listening(a.agent_pid()))
    end(job, *agents)


STRANGER = ("import socket, sys\n"
            "servers = [socket.create_server(('', int(port))) for port in sys.argv[1:]]\n"
            "print('up', flush=True); sys.stdin.read()\n")


@contextlib.contextmanager
def silent_on(hosts, n, *ports):
    with subprocess.Popen([*hosts.enter(n), sys.executable, "-c", STRANGER, *map(str, ports)], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as stranger:
        assert stranger.stdout.readline() == b"up\n"
        try:
            yield stranger
        finally:
            stranger.stdin.close()
            stranger.wait(30)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)], ids=["leader first", "leader last"])
def test_three_hosts_and_a_stranger_at_the_first_port(job, order):
    with hosts_or_skip(3) as hosts, silent_on(hosts, 0, 29400):
        agents = [start(job, f"h{n}", "29400-29415", host=hosts.address(0), nodes=3, prefix=hosts.enter(n)) for n in order]
        job.events.wait("start", 3, world=3)
        end(job, *agents)


def test_a_port_that_a_firewall_drops(job):
    """Between the hosts, SYNs to the first port are lost: the leader, which does not know that, must not be there."""
    with hosts_or_skip(2, ipv6=False) as hosts, silent_on(hosts, 0, 29400):
        done = subprocess.run([*hosts.enter(0), "nft", "add table inet wall; add chain inet wall in { type filter hook input "
                               "priority 0; }; add rule inet wall in iifname != lo tcp dport 29400 drop"],
                              capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"needs nft (Debian: nftables): {done.stderr.strip()}")
        agents = [start(job, f"h{n}", "29400,29401", host=hosts.address(0), prefix=hosts.enter(n)) for n in range(2)]
        job.events.wait("start", 2, world=2)
        end(job, *agents)


def test_a_host_that_learns_its_own_name_late_leads_at_a_free_port(job):
    """The name server does not know the endpoint's host when the agents start; a silent program has the first port."""
    with hosts_or_skip(3, ipv6=False) as hosts, name_server(hosts, 2, "train-0.mesh", 2, hosts.address(0)), \
            silent_on(hosts, 0, 29400):
        agents = [start(job, f"h{n}", "29400-29402", host="train-0.mesh", prefix=hosts.enter(n)) for n in range(2)]
        job.events.wait("start", 2, 45, world=2)
        end(job, *agents)


def test_a_step_of_slurms_whose_port_is_taken(job):
    """Its ports come from the step's name; a stranger has the first two."""
    step = Step(job, 2)
    done = subprocess.run([MUSTER, "run", "--print-config", "--no-python", "true"], env=job.env("a", step.env(0)),
                          cwd=job.tmp, capture_output=True, text=True)
    ports = json.loads(done.stdout)["endpoint_ports"]
    assert len(ports) == 16, done
    with silent(*ports[:2]):
        agents = [step.agent(tag, n, options=["-v"]) for n, tag in enumerate("ab")]
        job.events.wait("start", 2, world=2)
        leader, port = leads_at(agents, ports)
        assert leader is agents[0] and port == ports[2]
        end(job, *agents)


def first_start(job, tag, ports, *words):
    """Seconds from the start of a node, whose leader waits for it, to its first worker."""
    leader = start(job, f"{tag}-leads", ports, *words, run=tag)
    leader.wait_said("1 of 2")
    at = time.monotonic()
    node = start(job, f"{tag}-joins", ports, *words, "--rdzv-conf=is_host=0", run=tag)
    found, = job.events.wait("start", 1, tag=f"{tag}-joins")
    return int(found.fields["ns"]) / 1e9 - at, [leader, node]


def test_what_several_ports_cost(job):
    """Nothing if the first works, and some hundred milliseconds if a silent program has it."""
    took = {"one": [], "list": [], "silent": []}
    for turn in range(5):
        ports = free_ports(2)
        for kind, given in (("one", ports[:1]), ("list", ports[:1] + [free_port()]), ("silent", ports)):
            with silent(ports[0]) if kind == "silent" else contextlib.nullcontext():
                seconds, both = first_start(job, f"{kind}{turn}", given)
                took[kind].append(seconds)
                job.go()
                for agent in both:
                    code, _, err = agent.finish()
                    assert code == 0, err
    best = {kind: min(times) for kind, times in took.items()}
    print("seconds from the start of a node to its first worker, best of 5:", best)
    assert best["list"] <= best["one"] + 0.1 * SLOWER, took
    assert best["silent"] <= best["one"] + PASSED_OVER * SLOWER, took


def test_operators_and_the_event_log_are_told_the_leaders_port(job):
    ports = free_ports(2)
    with silent(ports[0]):
        agents = [start(job, tag, ports, "--event-log", job.tmp / "log", host="localhost") for tag in "ab"]
        job.events.wait("start", 2, world=2)
    where = f"localhost:{ports[1]}"

    def told(*words):
        done = subprocess.run([MUSTER, *words], env=job.env("operator"), cwd=job.tmp, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert f" at {where}, epoch 1" in told("status")
    assert f" at {where}, epoch 1" in told("status", f"localhost:{ports[0]},{ports[1]}")
    assert json.loads(told("status", "--json"))["endpoint"] == where
    assert {a["endpoint"] for a in json.loads(told("ps", "--json"))["agents"]} == {where}
    log = [json.loads(line) for line in (job.tmp / "log").read_text().splitlines()]
    assert [line["endpoint"] for line in log if line["event"] == "leads"] == [where], log
    end(job, *agents)


def test_operators_name_all_ports_of_the_endpoint(job):
    """Another run has one of them: the id says which job is meant, and what changes something needs it."""
    low = free_row(3)
    other = start(job, "o", [low], run="other", nodes=1)
    job.events.wait("start", 1)
    agents = [start(job, tag, f"{low}-{low + 2}") for tag in "ab"]
    job.events.wait("start", 3)
    listed = f"127.0.0.1:{low}-{low + 2}"

    def told(*words):
        return subprocess.run([MUSTER, *words], env=job.env("operator"), cwd=job.tmp, capture_output=True, text=True)

    said = told("status", "--json", "--rdzv-id=e2e", listed)
    assert json.loads(said.stdout)["endpoint"] == f"127.0.0.1:{low + 1}", said
    for words, why in ((["stop", listed], "select the job with --rdzv-id"), (["leave", listed], "not a single agent"),
                       (["status", f"127.0.0.1:{low + 1}-{low}"], "LOW-HIGH")):
        said = told(*words)
        assert said.returncode == 2 and why in said.stderr, said
    assert told("stop", "--rdzv-id=e2e", listed).returncode == 0
    assert None not in [a.wait() for a in agents]
    end(job, other)
