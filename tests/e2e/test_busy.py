"""Nothing that workers do keeps their node from its own lease: `stalls` of muster status stays 0."""
import json
import subprocess

import pytest

import harness
from harness import HERE
from hosts import hosts_or_skip
from test_operate import ask

# A lease of a second, renewed four times in it: what holds up the agent for long ends the workers.
SHORT_LEASE = ["--lease=1", "--heartbeat-interval=0.25"]


def stalls_until_the_end(job, agent, seconds):
    """What the nodes' agents said last of themselves, asked for until the job ends."""
    end, worst = harness.deadline(seconds), {}
    while agent.process.poll() is None and harness.deadline(0) < end:
        code, out, _ = ask(job, "status", "--json")
        for node in json.loads(out)["nodes"] if code == 0 and out else []:
            worst[node["node"]] = (node["stalls"], node["longest_stall_seconds"])
    return worst


def check_one_group(agent, worst, seconds=60):
    code, _, said = agent.finish(seconds)
    assert code == 0, said
    assert "within the lease" not in said, said
    assert "group 1.2" not in said, said
    assert worst, "nobody answered while the job ran"
    if not harness.TOOL_LOGS:  # sanitizers and valgrind make the agent itself slow
        assert all(n == 0 for n, _ in worst.values()), worst


@pytest.mark.parametrize("mode", ["same", "many", "large", "ask"])
def test_workers_that_hammer_their_store_keep_their_lease(job, mode):
    a = job.agent("a", "--standalone", "--nproc-per-node=8", *SHORT_LEASE, HERE / "hammer.py", mode, "4")
    check_one_group(a, stalls_until_the_end(job, a, 60))


MANY_NETIFS = 200


def test_hosts_of_many_interfaces_keep_their_lease(job):
    """What the kernel tells of so many takes it 50 ms and more; another process asks."""
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
