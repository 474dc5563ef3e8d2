"""Nothing that workers do makes their node miss its lease: `stalls` in muster status stays 0."""
import json
import subprocess
import time

import pytest

import harness
import stalls
from harness import HERE
from hosts import hosts_or_skip
from test_operate import ask

pytestmark = pytest.mark.alone

# If the agent is blocked for longer than this, the workers end.
SHORT_LEASE = ["--lease=1", "--heartbeat-interval=0.25"]
# A virtual machine that waits for its host, or an overloaded one, also stops the agent, without any sign of it. A stall
# that muster causes happens again.
TRIES = 3


def stalls_until_the_end(job, agent, seconds):
    """The last stalls that the nodes' agents reported, asked for until the job ends."""
    end, worst = harness.deadline(seconds), {}
    while agent.process.poll() is None and harness.deadline(0) < end:
        code, out, _ = ask(job, "status", "--json")
        for node in json.loads(out)["nodes"] if code == 0 and out else []:
            worst[node["node"]] = (node["stalls"], node["longest_stall_seconds"])
    return worst


def keeps_its_lease(job, *words, seconds=60):
    """One group, no lease lost, and no stall, unless the host stopped a CPU of this machine for as long. Sanitizers and
    valgrind make the agent itself slow."""
    worst = {}
    for _ in range(TRIES):
        begin = time.monotonic()
        agent = job.agent("a", "--standalone", *SHORT_LEASE, *words, stdout=subprocess.DEVNULL)
        worst = stalls_until_the_end(job, agent, seconds)
        code, _, said = agent.finish(seconds)
        assert code == 0, said
        assert "within the lease" not in said and "attempt 2" not in said, said
        stopped = stalls.longest_of_a_cpu(begin, time.monotonic()) + stalls.INTERVAL
        assert worst, "nobody answered while the job ran"
        if harness.TOOL_LOGS or all(n == 0 or longest <= stopped for n, longest in worst.values()):
            return
    raise AssertionError(f"{TRIES} times in a row: {worst}")


@pytest.mark.parametrize("mode", ["same", "many", "large", "ask"])
def test_workers_that_hammer_their_store_keep_their_lease(job, mode):
    keeps_its_lease(job, "--nproc-per-node=8", HERE / "hammer.py", mode, "4")


def test_workers_that_write_without_pause_keep_their_lease(job, tmp_path):
    keeps_its_lease(job, "--nproc-per-node=8", "--log-dir", tmp_path / "logs", "--tee=3", "--no-python", "/bin/sh", "-c",
                    f"timeout 4 yes {'0123456789' * 8} | head -c 60000000")


def test_a_thousand_workers_hold_up_nothing(job, tmp_path):
    """The workers start, write one line each into a log of their own, and end some seconds later."""
    keeps_its_lease(job, "--nproc-per-node=1000", "--log-dir", tmp_path / "logs", "--tee=3", "--no-python", "/bin/sh",
                    "-c", "echo line; exec sleep 3", seconds=120)


MANY_NETIFS = 200


def test_hosts_of_many_interfaces_keep_their_lease(job):
    """The kernel needs 50 ms and more to list so many interfaces; another process asks for them."""
    with hosts_or_skip(2) as hosts:
        for n in range(2):
            subprocess.run([*hosts.enter(n), "mount", "-t", "sysfs", "none", "/sys"], check=True)
            subprocess.run([*hosts.enter(n), "ip", "-batch", "-"], check=True, text=True, input="".join(
                f"link add many{i} type veth peer name more{i}\n" for i in range(MANY_NETIFS // 2)))
        place = f"{hosts.address(0)}:29400"
        agents = [job.agent(f"h{n}", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d",
                            f"--rdzv-endpoint={place}", "--rdzv-id=many", "--rdzv-conf=join_timeout=30", "-vv", *SHORT_LEASE,
                            "--no-python", job.worker, "start", "env=GLOO_SOCKET_IFNAME", "go",
                            prefix=hosts.enter(n)) for n in range(2)]
        job.events.wait("start", 2, world=2)
        assert {e.fields["value"] for e in job.events.wait("env", 2)} == {"eth0"}
        job.go()
        for agent in agents:
            code, _, said = agent.finish(60)
            assert code == 0, said
            if not harness.TOOL_LOGS:  # as above
                assert "held up" not in said, said
