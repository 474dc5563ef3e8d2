"""PyTorch's store at muster's own ports: at the port that the user chose, at the endpoint, and at any node."""
import os
import pathlib
import socket
import struct

import pytest
from harness import HERE, TORCH_PYTHON, free_port, kill

VALIDATE = b"\0" + struct.pack("<I", 0x3C85F7CE)
SET, GET, CHECK = 1, 3, 5


def text(s):
    return struct.pack("<Q", len(s)) + s


class Client:
    """The little of PyTorch's client that is needed here."""

    def __init__(self, port, host="127.0.0.1"):
        self.socket = socket.create_connection((host, port), timeout=30)
        self.socket.sendall(VALIDATE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def read(self, n):
        got = b""
        while len(got) < n:
            piece = self.socket.recv(n - len(got))
            if not piece:
                raise EOFError
            got += piece
        return got

    def set(self, key, value):
        self.socket.sendall(bytes([SET]) + text(key) + text(value))

    def get(self, key):
        self.socket.sendall(bytes([GET]) + text(key))
        return self.read(struct.unpack("<Q", self.read(8))[0])

    def has(self, *keys):
        self.socket.sendall(bytes([CHECK]) + struct.pack("<Q", len(keys)) + b"".join(map(text, keys)))
        return self.read(1) == b"\0"


def listening(pid):
    """The ports at which this process listens."""
    own = set()
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            own.add(os.readlink(fd))
        except FileNotFoundError:
            pass
    rows = [line.split() for name in ("tcp", "tcp6")
            for line in pathlib.Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]]
    return {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own}


def static(job, tag, port, rank, nodes, *words):
    return job.agent(tag, f"--nnodes={nodes}", f"--node-rank={rank}", "--master-addr=localhost",
                     f"--master-port={port}", "--max-restarts=1", "--nproc-per-node=2", "--no-python", job.worker, "start", "env=MASTER_ADDR",
                     "env=MASTER_PORT", *words, "go")


def env_of_all(job, name, count):
    return [e.fields["value"] for e in job.events.wait("env", count, 60, name=name)]


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_static_job_has_one_port(job, nodes):
    port = free_port()
    agents = [static(job, tag, port, n, nodes) for n, tag in enumerate("ab"[:nodes])]
    assert set(env_of_all(job, "MASTER_PORT", 2 * nodes)) == {str(port)}
    assert set(env_of_all(job, "MASTER_ADDR", 2 * nodes)) == {"localhost"}
    with Client(port) as one, Client(port) as other:
        one.set(b"key", b"value")
        assert one.has(b"key")
        assert other.get(b"key") == b"value"
    job.go()
    assert [a.wait() for a in agents] == [0] * nodes


def test_the_next_generation_has_a_store_of_its_own(job):
    port = free_port()
    agent = static(job, "a", port, 0, 1)
    first = job.events.wait("start", 2, 60)
    with Client(port) as client:
        client.set(b"old", b"1")
        assert client.has(b"old")
        kill(int(first[1].fields["pid"]))
        with pytest.raises((EOFError, ConnectionError)):
            client.read(1)
    job.events.wait("start", 4, 60)
    with Client(port) as client:
        assert not client.has(b"old")
    job.go()
    assert agent.wait() == 0


def test_a_client_waits_for_the_first_generation(job):
    port = free_port()
    agents = [static(job, "a", port, 0, 2)]
    agents[0].wait_said("1 of 2")
    with Client(port) as early, Client(port) as gone:
        early.set(b"early", b"bird")
        gone.socket.close()
        agents.append(static(job, "b", port, 1, 2))
        job.events.wait("start", 4, 60)
        assert early.get(b"early") == b"bird"
    job.go()
    assert [a.wait() for a in agents] == [0, 0]


def test_every_node_leads_to_the_store(job):
    """c10d: the store has a port of its own; the endpoint and the ports of both agents lead to it, too."""
    agents = job.pair(worker=("start", "env=MASTER_PORT", "go"), nnodes="2")
    store = int(env_of_all(job, "MASTER_PORT", 4)[0])
    endpoint = next(int(w.rpartition(":")[2]) for w in agents[0].words if w.startswith("--rdzv-endpoint"))
    ports = {port for a in agents for port in listening(a.agent_pid())}
    assert store != endpoint and len(ports) == 4 and {store, endpoint} < ports
    with Client(store) as client:
        client.set(b"where", b"x" * 3_000_000)
        assert client.has(b"where")  # a set has no answer: now it is there
    for port in ports:
        with Client(port) as client:
            assert client.get(b"where") == b"x" * 3_000_000
            client.set(b"by %d" % port, b"1")
            assert client.has(b"by %d" % port)
    with Client(store) as client:
        assert client.has(*(b"by %d" % port for port in ports))
    job.go()
    assert [a.wait() for a in agents] == [0, 0]


@pytest.mark.torch
@pytest.mark.parametrize("how", ["tcp", "env"])
def test_pytorch_at_the_port_that_the_user_chose(job, how):
    port = free_port()
    env = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHON_EXEC": TORCH_PYTHON}
    agents = [job.agent(tag, "--nnodes=2", f"--node-rank={n}", "--master-addr=127.0.0.1", f"--master-port={port}",
                        "--nproc-per-node=2", HERE / "torch_port.py", how, port, env=env) for n, tag in enumerate("ab")]
    for agent in agents:
        code, out, err = agent.finish(120)
        assert code == 0, err
        assert out.count("sum 10") == 2
