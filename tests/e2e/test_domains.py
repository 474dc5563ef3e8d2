"""Racks of NVLink: the domain of a node. NVML is a fake one whose script each host has for itself."""
import json
import pathlib
import socket

from harness import nvml_env
from test_operate import status, until

GPU = ('driver 570.1\ncount 1\ngpu 0 name "NVIDIA GB200" cc 10.0 busid 00000008:01:00.0 uuid GPU-g\n'
       "gpu 0 fabric {0}{0}{0}{0} clique 7 state {1} status 0\n")
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
    a, = job.pair(*WORDS, f"--event-log={log}", nnodes="4", tags="a", env=rack_env(tmp_path, "3f8e2a10"))
    meet = next(w for w in a.words if w.startswith("--rdzv-endpoint="))
    conf.write_text(f"BlockName=b7 Nodes=rack[1-9],{socket.gethostname()}\n")

    def more(tag, *words, env=None):
        return job.agent(tag, "--nnodes=4", "--nproc-per-node=2", "--rdzv-backend=c10d", meet, "--rdzv-id=e2e", *WORDS, *words,
                         "--no-python", job.worker, "start", "go", env=env)

    slurm = {"SLURM_TOPOLOGY_ADDR": "b8.tux1", "SLURM_TOPOLOGY_ADDR_PATTERN": "block.node"}
    b = more("b", env={**slurm, **rack_env(tmp_path, "4c5d4b6e")})
    c = more("c", f"--topology-file={conf}", env=slurm)
    d = more("d", f"--topology-file={conf}")
    job.events.wait("start", 8, world=8)
    assert domains(job, a) == {a.agent_pid(): domain_of("3f8e2a10"), b.agent_pid(): domain_of("4c5d4b6e"),
                               c.agent_pid(): "b8", d.agent_pid(): "b7"}
    notes = [json.loads(line) for line in log.read_text().splitlines()]
    assert sorted(n["domain"] for n in notes if n["event"] == "node_joined") == \
        ["b7", "b8", domain_of("3f8e2a10"), domain_of("4c5d4b6e")]
    job.go()
    for agent in (a, b, c, d):
        assert agent.finish()[0] == 0, agent.said()


def test_a_fabric_that_completes_after_the_join_is_the_domain(job, tmp_path):
    env = rack_env(tmp_path, "3f8e2a10", state=2)
    a, b = job.pair(*WORDS, nnodes="2", env=env)
    job.events.wait("start", 4, world=4)
    assert set(domains(job, a).values()) == {None}
    pathlib.Path(env["FAKE_NVML_SCRIPT"]).write_text(GPU.format("3f8e2a10", 3))
    seen = until(job, lambda s: all(n["domain"] for n in s["nodes"]),
                 next(w.split("=", 1)[1] for w in a.words if w.startswith("--rdzv-endpoint=")))
    assert seen["domains"] == [{"domain": domain_of("3f8e2a10"), "members": 2, "spares": 0}]
    job.go()
    for agent in (a, b):
        assert agent.finish()[0] == 0, agent.said()


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
