"""Racks of NVLink: the domain of a node. NVML is a fake one whose script each host has for itself."""
import json
import os
import pathlib
import signal
import socket
import threading

import pytest

from cluster import DEFAULTS, cluster
from harness import nvml_env
from test_operate import status, until

GPU = ('driver 570.1\ncount 1\ngpu 0 name "NVIDIA GB200" cc 10.0 busid 00000008:01:00.0 uuid GPU-g\n'
       "gpu 0 fabric {0}{0}{0}{0} clique 7 state {1} status 0 health 0xaa summary 1\n")
WORDS = ("--bind=none", "--preflight=off", "--nccl-env=off")


def domain_of(rack):
    uuid = rack * 4
    return f"nvl-{uuid[:8]}-{uuid[8:12]}-{uuid[12:16]}-{uuid[16:20]}-{uuid[20:]}.7"


def rack_env(folder, rack, state=3):
    """A host of this rack: eight hexadecimal digits."""
    return nvml_env(folder, GPU.format(rack, state))


def domains(job, agent):
    found = status(job, next(w.split("=", 1)[1] for w in agent.words if w.startswith("--rdzv-endpoint=")))
    return {node["pid"]: node["domain"] for node in found["nodes"]}


def test_the_domain_is_that_of_nvml_else_the_block_of_slurm(job, tmp_path):
    conf, log = tmp_path / "topology.conf", tmp_path / "log"
    a, = job.pair(*WORDS, f"--event-log={log}", nnodes="5", tags="a", env=rack_env(tmp_path, "3f8e2a10"))
    a.wait_said("1 of 5")  # it leads, so it writes the log
    meet = next(w for w in a.words if w.startswith("--rdzv-endpoint="))
    conf.write_text(f"BlockName=b7 Nodes=rack[1-9],{socket.gethostname()}\n")

    def more(tag, *words, env=None):
        return job.agent(tag, "--nnodes=5", "--nproc-per-node=2", "--rdzv-backend=c10d", meet, "--rdzv-id=e2e", *WORDS, *words,
                         "--no-python", job.worker, "start", "go", env=env)

    slurm = {"SLURM_TOPOLOGY_ADDR": "b8.tux1", "SLURM_TOPOLOGY_ADDR_PATTERN": "block.node"}
    b = more("b", env={**slurm, **rack_env(tmp_path, "4c5d4b6e")})
    c = more("c", f"--topology-file={conf}", env=slurm)
    d = more("d", f"--topology-file={conf}")
    two = GPU.format("3f8e2a10", 3).replace("count 1", "count 2") + "gpu 1 busid 00000009:01:00.0 uuid GPU-h\n" \
        f"gpu 1 fabric {'3f8e2a10' * 4} clique 8 state 3 status 0\n"
    e = more("e", env={**slurm, **nvml_env(tmp_path, two)})  # two cliques: none
    job.events.wait("start", 10, world=10)
    assert domains(job, a) == {a.agent_pid(): domain_of("3f8e2a10"), b.agent_pid(): domain_of("4c5d4b6e"),
                               c.agent_pid(): "b8", d.agent_pid(): "b7", e.agent_pid(): None}
    notes = [json.loads(line) for line in log.read_text().splitlines()]
    health = "healthy, IMEX channel none"  # only where NVML gave the domain
    assert [n.get("fabric") for n in sorted(notes, key=lambda n: n.get("domain", "")) if n["event"] == "node_joined"] == \
        [None, None, None, health, health], notes
    assert [n["fabric"] for n in status(job, meet.split("=", 1)[1])["nodes"]].count(health) == 2
    assert sorted(n.get("domain", "") for n in notes if n["event"] == "node_joined") == \
        ["", "b7", "b8", domain_of("3f8e2a10"), domain_of("4c5d4b6e")]
    job.go()
    for agent in (a, b, c, d, e):
        assert agent.finish()[0] == 0, agent.said()


def test_a_fabric_that_completes_after_the_join_is_the_domain(job, tmp_path):
    env = rack_env(tmp_path, "3f8e2a10", state=2)
    a, b = job.pair(*WORDS, nnodes="2", env=env)
    job.events.wait("start", 4, world=4)
    assert set(domains(job, a).values()) == {None}
    pathlib.Path(env["FAKE_NVML_SCRIPT"]).write_text(GPU.format("3f8e2a10", 3))
    seen = until(job, lambda s: all(n["domain"] for n in s["nodes"]),
                 next(w.split("=", 1)[1] for w in a.words if w.startswith("--rdzv-endpoint=")))
    assert seen["domains"] == [{"domain": domain_of("3f8e2a10"), "members": 2, "available": 0}]
    job.go()
    for agent in (a, b):
        assert agent.finish()[0] == 0, agent.said()


def test_nvml_that_hangs_meanwhile_is_asked_again(job, tmp_path):
    env = rack_env(tmp_path, "3f8e2a10")
    script = pathlib.Path(env["FAKE_NVML_SCRIPT"])
    script.unlink()
    os.mkfifo(script)

    def answer():  # each process that asks gets the next one
        for text in (GPU.format("3f8e2a10", 2), "hang nvmlInit_v2\n", GPU.format("3f8e2a10", 3)):
            with script.open("w") as f:
                script.unlink()
                os.mkfifo(script)
                f.write(text)

    threading.Thread(target=answer, daemon=True).start()
    a, = job.pair(*WORDS, nnodes="2", tags="a", env=env)
    a.wait_said("1 of 2")  # it listens
    until(job, lambda s: [n["domain"] for n in s["nodes"]] == [domain_of("3f8e2a10")],
          next(w.split("=", 1)[1] for w in a.words if w.startswith("--rdzv-endpoint=")))
    a.signal(signal.SIGTERM)
    assert a.finish()[0] == 143, a.said()


def test_domains_that_do_not_count_are_not_waited_for(job, tmp_path):
    """NVML hangs."""
    a, b = job.pair("--node-unit-of=any", "--rank-order=topology", *WORDS, nnodes="2",
                    env=nvml_env(tmp_path, "hang nvmlInit_v2\n"))
    job.events.wait("start", 4, world=4)
    assert "did not answer" not in a.said() and set(domains(job, a).values()) == {None}
    a.wait_said("--rank-order=topology: this node has no NVLink domain, SLURM_TOPOLOGY_ADDR or --topology-file; it is ordered by")
    job.go()
    for agent in (a, b):
        assert agent.finish()[0] == 0, agent.said()


# --- two racks: nodes of rack 0 first --------------------------------------------------------------------------------


def racks_of(group, size):
    """The racks of the group's nodes, by rank."""
    return [int(tag[1:]) // size for tag in group.ranks.values()]


def start_racks(c, size, unit, *words):
    for n in range(2 * size):
        c.start(n, nnodes=f"{unit}:{2 * unit}", env=rack_env(c.job.tmp, ["3f8e2a10", "4c5d4b6e"][n // size]), words=("start", "go"),
                options=(f"--node-unit={unit}", *WORDS, *words))
    first = c.group(nodes=2 * unit, seconds=120)
    c.come(2 * size, seconds=120)
    return first


def lose_a_node(c, group, rank):
    """The node of this rank dies. Returns the next group, and after how many seconds its workers had started."""
    at = c.now()
    c.hosts.crash(c.host_of[group.ranks[rank]])
    again = c.group(nodes=len(group.ranks), after=group, seconds=120)
    return again, again.began - at


def racks(job, size, unit):
    with cluster(job, "c10d", 2 * size, DEFAULTS, names=True) as c:
        first = start_racks(c, size, unit)
        assert racks_of(first, size) == [0] * unit + [1] * unit
        again, took = lose_a_node(c, first, unit + 1)
        print(f"\ntwo racks of {size}: a killed node's workers ran again on a spare of its rack after {took:.2f} s")
        assert racks_of(again, size) == racks_of(first, size)
        assert [r for r in first.ranks if first.ranks[r] != again.ranks[r]] == [unit + 1]
        for rank in range(unit, size):  # so many that less than a unit is left
            c.hosts.crash(c.host_of[again.ranks[rank]])
        last = c.group(nodes=unit, after=again, seconds=120)
        assert racks_of(last, size) == [0] * unit, "not a mixed unit, although there is a spare"
        c.finish(lost=[first.ranks[unit + 1], *(again.ranks[rank] for rank in range(unit, size))])


def test_a_lost_node_is_replaced_in_its_rack_or_its_unit_leaves(job):
    racks(job, 3, 2)


@pytest.mark.slow
def test_two_racks_of_eighteen_trays(job):
    racks(job, 18, 16)


@pytest.mark.slow
def test_flat_nodes_for_comparison(job):
    with cluster(job, "c10d", 36, DEFAULTS, names=True) as c:
        first = start_racks(c, 18, 16, "--node-unit-of=any")
        _, took = lose_a_node(c, first, 17)
        print(f"\n36 flat nodes: a killed node's workers ran again on a spare after {took:.2f} s")
        c.finish(lost=[first.ranks[17]])
