"""PyTorch's store at muster's own ports: at the port that the user chose, at the endpoint, and at any node."""
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys

import pytest
from harness import HERE, TORCH_PYTHON, free_port, kill
from hosts import hosts_or_skip

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


def test_who_starts_torchrun_on_another_node_is_told(job):
    """Its agent waits for an answer of the leader's, and says nothing; the leader sees whom it speaks to."""
    with hosts_or_skip(2) as hosts:
        agent = job.agent("a", "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={hosts.address(0)}:29400",
                          "--no-python", "true", prefix=hosts.enter(0))
        agent.wait_said("waiting for nodes")
        come = f"import socket; s = socket.create_connection(({hosts.address(0)!r}, 29400)); s.sendall({VALIDATE!r}); s.recv(1)"
        clients = [subprocess.Popen([*hosts.enter(n), sys.executable, "-c", come]) for n in (0, 1, 1)]
        for n in (0, 1):
            agent.wait_said(f"at {hosts.address(n)} asks .* start muster run there instead", 5)
        agent.signal(signal.SIGTERM)
        agent.wait()
        for client in clients:
            client.wait(20)
        for n in (0, 1):
            words = f"a program at {hosts.address(n)} asks for PyTorch's store before the workers have started"
            assert agent.said().count(words) == 1, agent.said()
        assert agent.said().count("before the workers have started") == 2, agent.said()


def test_torchrun_that_joins_a_running_job_is_reported_once(job):
    port = free_port()
    agent = job.agent("a", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=e2e", "--no-python", job.worker,
                      "start", "go")
    job.events.wait("start", 1)
    for _ in range(2):
        with Client(port) as client:  # what PyTorch's C10dRendezvousBackend sends first
            client.socket.sendall(b"\2" + text(b"/torch.rendezvous.e2e") + text(b"") + text(b"state"))
            assert client.read(8)
    agent.wait_said("torchrun was started at 127.0.0.1 with the endpoint of this job", 5)
    job.go()
    assert agent.wait() == 0 and agent.said().count("torchrun was started") == 1, agent.said()


@pytest.mark.torch
@pytest.mark.parametrize("how", ["c10d", "static"])
def test_the_real_torchrun_at_a_running_job_is_reported(job, how):
    port = free_port()
    agent = job.agent("a", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=e2e", "--no-python", job.worker,
                      "start", "go")
    job.events.wait("start", 1)
    place = [f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-backend=c10d", "--rdzv-id=e2e"] if how == "c10d" else \
        ["--node-rank=1", "--master-addr=127.0.0.1", f"--master-port={port}"]
    with subprocess.Popen([TORCH_PYTHON, "-m", "torch.distributed.run", "--nnodes=2", *place, "--no-python", "/bin/true"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as torchrun:
        agent.wait_said("torchrun was started at 127.0.0.1 with the endpoint of this job", 30)  # its imports take most of it
        torchrun.kill()
    job.go()
    assert agent.wait() == 0 and agent.said().count("torchrun was started") == 1, agent.said()


@pytest.mark.torch
def test_the_real_torchrun_on_another_node_is_reported_within_5_s(job):
    port = free_port()
    line = ("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=e2e", "--no-python", "/bin/true")
    agent = job.agent("a", *line)
    agent.wait_said("waiting for nodes")
    torchrun = subprocess.Popen([TORCH_PYTHON, "-m", "torch.distributed.run", *line], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)
    agent.wait_said("start muster run there instead", 30)  # its imports take most of it
    torchrun.kill()
    torchrun.wait()
    agent.signal(signal.SIGTERM)
    agent.wait()


def test_the_kernel_makes_no_room_for_a_client_that_waits(job):
    """Of one that sends without end, it keeps as much as of any socket that nobody reads."""
    port = free_port()
    agent = static(job, "a", port, 0, 2)
    agent.wait_said("1 of 2")
    with Client(port) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        client.socket.settimeout(2)
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 64_000_000:
                sent += client.socket.send(b"x" * 65536)
        default = int(pathlib.Path("/proc/sys/net/ipv4/tcp_rmem").read_text().split()[1])
        assert sent < 8 * default, (sent, default)
    agent.signal(signal.SIGTERM)
    assert agent.wait() is not None


def test_clients_that_are_passed_on_take_a_share_of_the_descriptors(job):
    """The rest is for the node's workers: here, of 100, one half at most is taken."""
    port = free_port()
    few = ["sh", "-c", 'ulimit -n 100 && exec "$@"', "sh"]
    words = ("--nnodes=2", "--master-addr=localhost", f"--master-port={port}", "--max-restarts=1", "--nproc-per-node=2",
             "--no-python", job.worker, "start", "go")
    agents = [job.agent("a", "--node-rank=0", *words)]
    agents[0].wait_said("1 of 2")  # on one machine, whoever comes first leads
    agents.append(job.agent("b", "--node-rank=1", *words, prefix=few))
    first = job.events.wait("start", 4, 60)
    pid = agents[1].agent_pid()
    before = len(os.listdir(f"/proc/{pid}/fd"))
    through = listening(pid).pop()
    clients = []
    for _ in range(60):  # one after the other, so that none waits to be recognised
        clients.append(Client(through))
        try:
            clients[-1].has(b"key")
        except (EOFError, ConnectionError):
            pass
    assert len(os.listdir(f"/proc/{pid}/fd")) < before + 50
    kill(int(first[3].fields["pid"]))
    job.events.wait("start", 8, 60)
    for client in clients:
        client.socket.close()
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


def chosen(job, tag, port, endpoint, n, *words, nodes=2):
    """An agent with c10d, and a port for the workers' store."""
    return job.agent(tag, f"--nnodes={nodes}", f"--node-rank={n}", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{endpoint}",
                     "--rdzv-id=chosen", "--master-addr=localhost", f"--master-port={port}", "--max-restarts=1",
                     "--nproc-per-node=2", *words)


@pytest.mark.parametrize("same", [True, False], ids=["the endpoint's", "another"])
def test_c10d_with_a_port_for_the_store(job, same):
    endpoint = free_port()
    port = endpoint if same else free_port()
    words = ("--no-python", job.worker, "start", "env=MASTER_ADDR", "env=MASTER_PORT", "go")
    agents = [chosen(job, tag, port, endpoint, n, *words) for n, tag in enumerate("ab")]
    first = job.events.wait("start", 4, 60)
    assert set(env_of_all(job, "MASTER_PORT", 4)) == {str(port)}
    assert set(env_of_all(job, "MASTER_ADDR", 4)) == {"localhost"}
    with Client(port) as client:
        client.set(b"old", b"1")
        assert client.has(b"old")
    kill(int(first[1].fields["pid"]))
    job.events.wait("start", 8, 60)  # the port is the next generation's, too
    with Client(port) as client:
        assert not client.has(b"old")
    job.go()
    assert [a.wait() for a in agents] == [0, 0]


@pytest.mark.torch
def test_pytorch_with_c10d_and_a_port_for_the_store(job):
    port, endpoint = free_port(), free_port()
    env = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHON_EXEC": TORCH_PYTHON}
    agents = [job.agent(tag, "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{endpoint}", "--rdzv-id=chosen",
                        f"--master-port={port}", "--nproc-per-node=2", HERE / "torch_port.py", "tcp", port, env=env)
              for tag in "ab"]
    for agent in agents:
        code, out, err = agent.finish(120)
        assert code == 0, err
        assert out.count("sum 10") == 2


@pytest.fixture
def stranger():
    """A program, not muster, that listens, and takes connections without a word: this one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize("words", [("--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", "--master-port={}"),
                                   ("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=x", "--rdzv-endpoint=127.0.0.1:{}"),
                                   ("--standalone", "--master-port={}")], ids=["static", "c10d", "standalone"])
def test_the_node_that_should_own_a_port_names_who_has_it(job, stranger, words):
    agent = job.agent("a", *(w.format(stranger) for w in words), "--no-python", job.worker, "start")
    code, _, err = agent.finish()
    option = words[-1].format(stranger)
    assert code == 2
    assert f"{option}: another program, not muster, listens on " in err, err
    assert re.search(rf"127.0.0.1:{stranger}: \S+, pid {os.getpid()}; stop it, or give the job another port", err), err
    assert not job.events.all("start")


def test_the_name_of_who_has_a_port_stays_in_its_line(job):
    code = ("import ctypes, socket, sys; ctypes.CDLL(None).prctl(15, b'a)\\nmuster: b', 0, 0, 0);"
            "s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); sys.stdin.read()")
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        port = int(owner.stdout.readline())
        status, _, err = job.agent("a", "--standalone", f"--master-port={port}", "--no-python", job.worker, "start").finish()
        owner.stdin.close()
    assert status == 2 and f"127.0.0.1:{port}: a)?muster: b, pid {owner.pid};" in err, err


def guest(job, port):
    """A node that takes the endpoint for another machine's."""
    return job.agent("b", "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=x", f"--rdzv-endpoint=127.0.0.1:{port}",
                     "--rdzv-conf=is_host=0", "--no-python", job.worker, "start")


def test_a_node_that_looks_there_names_a_silent_program(job, stranger):
    agent = guest(job, stranger)
    agent.wait_said(f"no leader at 127.0.0.1:{stranger}: no answer; what listens there may not be muster")
    agent.signal(signal.SIGTERM)
    assert agent.wait() is not None


def test_a_node_that_looks_there_names_a_program_that_hangs_up(job):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        agent = guest(job, listener.getsockname()[1])
        listener.settimeout(30)
        connection, _ = listener.accept()
        connection.recv(1)
        connection.close()
        agent.wait_said("it may not be muster")
        agent.signal(signal.SIGTERM)
        assert agent.wait() is not None


def test_all_ports_are_in_the_range(job):
    """20 ports in a row, of which the endpoint is none."""
    low = 21000 + os.getpid() % 500 * 20
    agents = job.pair(f"--port-range={low}-{low + 19}", worker=("start", "env=MASTER_PORT", "env=NCCL_RAS_ADDR", "go"),
                      nnodes="2")
    store = int(env_of_all(job, "MASTER_PORT", 4)[0])
    endpoint = next(int(w.rpartition(":")[2]) for w in agents[0].words if w.startswith("--rdzv-endpoint"))
    ports = {port for a in agents for port in listening(a.agent_pid())} - {endpoint}
    assert store in ports and len(ports) == 3 and all(low <= port < low + 20 for port in ports), (low, ports)
    job.go()
    assert [a.wait() for a in agents] == [0, 0]


def test_a_range_without_a_free_port(job, stranger):
    code, _, err = job.agent("a", "--standalone", f"--port-range={stranger}-{stranger}", "--no-python", job.worker, "start").finish()
    assert code == 1 and f"no port from {stranger} to {stranger} is free on this machine" in err, err


def test_a_firewall_with_one_open_port(job):
    """Between the hosts, nothing but the port that the user chose."""
    port = 29517
    with hosts_or_skip(2, ipv6=False) as hosts:
        for n in range(2):
            rules = (f"add table inet wall; add chain inet wall in {{ type filter hook input priority 0; }}; add rule inet wall in "
                     f"iifname != lo tcp flags & (syn | ack) == syn tcp dport != {port} drop")
            done = subprocess.run([*hosts.enter(n), "nft", rules], capture_output=True, text=True)
            if done.returncode != 0:
                pytest.skip(f"needs nft (Debian: nftables): {done.stderr.strip()}")
        agents = [job.agent(f"h{n}", "--nnodes=2", f"--node-rank={n}", f"--master-addr={hosts.address(0)}", f"--master-port={port}",
                            "--nproc-per-node=2", "--no-python", job.worker, "start", "env=MASTER_PORT", "go", prefix=hosts.enter(n))
                  for n in range(2)]
        assert set(env_of_all(job, "MASTER_PORT", 4)) == {str(port)}
        here = pathlib.Path(__file__).parent
        client = (f"import sys; sys.path.insert(0, '{here}'); from test_one_port import Client\n"
                  f"with Client({port}, '{hosts.address(0)}') as c: c.set(b'k', b'v'); print(c.get(b'k').decode())")
        done = subprocess.run([*hosts.enter(1), sys.executable, "-c", client], capture_output=True, text=True, timeout=60)
        assert done.stdout == "v\n", done.stderr
        job.go()
        for agent in agents:
            code, _, err = agent.finish()
            assert code == 0, err
