"""`muster store` from outside: with our own bytes, and with genuine torch.distributed.TCPStore clients
(store_torch.py)."""
import contextlib
import json
import os
import pathlib
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

import harness

HERE = pathlib.Path(__file__).resolve().parent
CHECKS = re.findall(r"^def check_(\w+)", (HERE / "store_torch.py").read_text(), re.M)
VALIDATE = bytes.fromhex("00cef7853c")
SET, COMPARE_SET, GET, ADD, CHECK, WAIT, GETNUMKEYS, DELETE_KEY, APPEND, MULTI_GET, MULTI_SET, CANCEL_WAIT, PING, \
    QUEUE_PUSH, QUEUE_POP, QUEUE_LEN, LIST_KEYS, BARRIER = range(1, 19)


class Store:
    """A running `muster store`."""

    def __init__(self, listen="localhost:0", **more):
        words = harness.command()[:-1] + ["store"] if not os.environ.get("MUSTER_TEST_COMMAND") else [harness.MUSTER, "store"]
        self.process = subprocess.Popen(words + ["--listen", listen], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, **more)
        self.lines, self.heard = [], threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        ready, _, _ = select.select([self.process.stdout], [], [], 30 * harness.SLOWER)
        line = self.process.stdout.readline() if ready else ""
        assert line.startswith("listening on "), (line, self.lines)
        self.where = line.split()[2]
        self.port = int(self.where.rpartition(":")[2])

    def read(self):
        for line in self.process.stderr:
            with self.heard:
                self.lines.append(line.rstrip("\n"))
                self.heard.notify_all()

    def line(self, pattern):
        """Waits for the first line on standard error that has the pattern."""
        def found():
            return [x for x in self.lines if re.search(pattern, x)]
        with self.heard:
            assert self.heard.wait_for(found, 10 * harness.SLOWER), (pattern, self.lines)
            return found()[0]

    def connect(self, host="127.0.0.1", validate=True):
        s = socket.create_connection((host, self.port), 20 * harness.SLOWER)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if validate:
            s.sendall(VALIDATE)
        return s

    def end(self, signo=signal.SIGTERM):
        self.process.send_signal(signo)
        status = self.process.wait(30 * harness.SLOWER)
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return status


@pytest.fixture
def store():
    s = Store()
    try:
        yield s
    finally:
        status = s.end()
    assert status == 0, s.lines
    said = harness.tool_logs()
    assert not said, said


def u64(n):
    return struct.pack("<Q", n)


def text(s):
    s = s.encode() if isinstance(s, str) else s
    return u64(len(s)) + s


def op(number, *strings, count=None):
    return bytes([number]) + (u64(count) if count is not None else b"") + b"".join(map(text, strings))


def take(s, n):
    got = b""
    while len(got) < n:
        piece = s.recv(n - len(got))
        if not piece:
            return got
        got += piece
    return got


def take_value(s):
    return take(s, struct.unpack("<Q", take(s, 8))[0])


def take_i64(s):
    return struct.unpack("<q", take(s, 8))[0]


def ended(s):
    try:
        return s.recv(1) == b""
    except ConnectionResetError:
        return True


# --- the command --------------------------------------------------------------------------------------------------------

def muster(*words):
    return subprocess.run([harness.MUSTER, *words], capture_output=True, text=True, timeout=30 * harness.SLOWER)


@pytest.mark.parametrize("words", [
    [], ["--listen"], ["--listen", "nonsense"], ["--listen", "127.0.0.1"], ["--listen", "127.0.0.1:65536"],
    ["--listen", "example.org:1"], ["--listen", "::1:80"], ["--listen", ":0", "more"], ["--lisen", ":0"]])
def test_usage_errors_are_one_line_and_status_2(words):
    done = muster("store", *words)
    assert done.returncode == 2 and done.stdout == ""
    assert re.fullmatch(r"muster store: [^\n]+\n", done.stderr)


def test_a_port_that_is_taken_is_one_line_and_status_1(store):
    done = muster("store", "--listen", f"127.0.0.1:{store.port}")
    assert done.returncode == 1 and done.stdout == ""
    assert re.fullmatch(r"muster: error: cannot listen on 127\.0\.0\.1:\d+: [^\n]+\n", done.stderr)


@pytest.mark.parametrize("listen,hosts,refused", [
    ("127.0.0.1:0", ["127.0.0.1"], ["::1"]), ("[::1]:0", ["::1"], ["127.0.0.1"]),
    ("localhost:0", ["127.0.0.1", "::1"], []), (":0", ["127.0.0.1", "::1"], []), ("*:0", ["127.0.0.1", "::1"], [])])
def test_listens_where_it_is_told(listen, hosts, refused):
    s = Store(listen)
    try:
        for host in hosts:
            c = s.connect(host)
            c.sendall(op(GETNUMKEYS))
            assert take_i64(c) == 0
            c.close()
        for host in refused:
            with pytest.raises(ConnectionRefusedError):
                s.connect(host)
    finally:
        assert s.end(signal.SIGINT) == 0


def test_the_port_file_is_there_when_it_says_so_and_whole(tmp_path):
    path = tmp_path / "port"
    process = subprocess.Popen([harness.MUSTER, "store", "--listen", "localhost:0", "--port-file", path],
                               stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert path.read_text() == line.rpartition(":")[2]
        assert os.listdir(tmp_path) == ["port"]
    finally:
        process.terminate()
        assert process.wait(30 * harness.SLOWER) == 0
        process.stdout.close()
    done = muster("store", "--listen", "localhost:0", "--port-file", str(tmp_path / "no" / "port"))
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1


# --- bytes --------------------------------------------------------------------------------------------------------------

def test_every_byte_in_a_segment_of_its_own(store):
    s = store.connect(validate=False)
    for b in VALIDATE + op(SET, "k", "v") + op(GET, "k") + op(WAIT, "k", count=1):
        s.sendall(bytes([b]))
    assert take_value(s) == b"v" and take(s, 1) == b"\0"
    s.close()


def test_requests_in_one_segment_are_answered_in_order(store):
    s = store.connect()
    s.sendall(op(SET, "k", "v") + op(GET, "k") + op(ADD, "n") + struct.pack("<q", 7) + bytes([PING]) + b"abcd" +
              op(MULTI_GET, "k", "missing", count=2) + op(CHECK, count=0))
    assert take_value(s) == b"v" and take_i64(s) == 7 and take(s, 4) == b"abcd"
    assert take_value(s) == b"v" and take_value(s) == b"" and take(s, 1) == b"\0"
    s.close()


def test_ping_and_cancel_while_waiting(store):
    s, other = store.connect(), store.connect()
    s.sendall(op(CANCEL_WAIT))
    assert take(s, 1) == b"\1"
    s.sendall(op(WAIT, "k", count=1) + bytes([PING]) + b"1234")
    assert take(s, 4) == b"1234"
    s.sendall(op(CANCEL_WAIT))
    assert take(s, 1) == b"\1"
    s.sendall(op(WAIT, "k", "k", count=2) + bytes([PING]) + b"1234")
    assert take(s, 4) == b"1234"
    other.sendall(op(SET, "k", ""))
    assert take(s, 1) == b"\0"
    s.sendall(op(CANCEL_WAIT) + bytes([PING]) + b"last")
    assert take(s, 5) == b"\1last"
    s.close()
    other.close()


def test_who_goes_away_while_waiting_is_forgotten(store):
    other = store.connect()
    for _ in range(20):
        s = store.connect()
        s.sendall(op(WAIT, "k", count=1))
        s.close()
    other.sendall(op(SET, "k", "") + op(GETNUMKEYS))
    assert take_i64(other) == 1
    other.close()


@pytest.mark.parametrize("bytes_", [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc", b"\r\n\r\n", b"\0\0\0\0\0", b"\x0d1234",
    VALIDATE + VALIDATE, VALIDATE + b"\x13", VALIDATE + b"\xff",
    VALIDATE + bytes([SET]) + b"\xff" * 8, VALIDATE + bytes([GET]) + u64(1 << 63), VALIDATE + bytes([WAIT]) + u64(1 << 62),
    VALIDATE + bytes([MULTI_SET]) + u64(131073), VALIDATE + op(SET, "k", "x") + op(ADD, "k") + b"\0" * 8,
    VALIDATE + op(SET, "k" * 8193, ""), VALIDATE + op(SET, "k") + u64((8 << 20) + 1)])
def test_what_is_not_the_protocol_ends_that_connection_only(store, bytes_):
    good, bad = store.connect(), store.connect(validate=False)
    with contextlib.suppress(OSError):
        bad.sendall(bytes_)
    assert ended(bad)
    good.sendall(op(GETNUMKEYS))
    take_i64(good)
    if bytes_.startswith(VALIDATE):
        assert "127.0.0.1:%d" % bad.getsockname()[1] in store.line("closed the connection of")
    else:
        assert store.lines == []
    bad.close()
    good.close()


def test_an_empty_value_is_not_late(store):
    s = store.connect()
    s.sendall(op(SET, "k", "") + op(GET, "k"))
    take_value(s)
    took = []
    for _ in range(20):
        begin = time.monotonic()
        s.sendall(op(GET, "k"))
        assert take_value(s) == b""
        took.append(time.monotonic() - begin)
    assert sorted(took)[10] < 0.005 * harness.SLOWER
    s.close()


def test_who_says_nothing_is_closed_after_ten_seconds_and_who_did_is_not(store):
    mute, good = store.connect(validate=False), store.connect()
    begin = time.monotonic()
    assert ended(mute)
    assert 9.5 < time.monotonic() - begin < 12 * harness.SLOWER
    good.sendall(op(GETNUMKEYS))
    assert take_i64(good) == 0
    mute.close()
    good.close()


def raise_descriptors(wanted):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"RLIMIT_NOFILE is {hard}")
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def test_ten_thousand_idle_connections_are_cheap(store):
    raise_descriptors(10500)
    status = pathlib.Path(f"/proc/{store.process.pid}/status")

    def memory():
        return int(re.search(r"VmRSS:\s+(\d+)", status.read_text())[1])
    before = memory()
    idle = [store.connect() for _ in range(10000)]
    for s in idle:
        s.sendall(bytes([PING]) + b"1234")
    for s in idle:
        assert take(s, 4) == b"1234"
    if not harness.TOOL_LOGS:  # a sanitizer has memory of its own
        assert memory() - before < 20000, "more than 2 kB for each"
    for s in idle[::100]:
        s.sendall(op(WAIT, "k", count=1))
    idle[1].sendall(op(SET, "k", ""))
    for s in idle[::100]:
        assert take(s, 1) == b"\0"
    for s in idle:
        s.close()


def test_out_of_descriptors_it_waits_for_one_to_go():
    limit = 120
    s = Store(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
    try:
        many = [s.connect() for _ in range(200)]  # the kernel's queue holds those that are not accepted
        for c in many:
            c.sendall(bytes([PING]) + b"1234")
        answered = [c for c in many if select.select([c], [], [], 0)[0] or select.select([c], [], [], 0.002)[0]]
        assert 0 < len(answered) < limit
        for c in many:
            assert take(c, 4) == b"1234"
            c.close()
    finally:
        assert s.end() == 0


# --- torch --------------------------------------------------------------------------------------------------------------

class Torch:
    """One Python with torch for all checks: importing it takes seconds."""

    def __init__(self):
        self.process = subprocess.Popen([harness.TORCH_PYTHON, str(HERE / "store_torch.py")], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.hear(120)

    def hear(self, seconds):
        ready, _, _ = select.select([self.process.stdout], [], [], seconds * harness.SLOWER)
        assert ready, "nothing from torch"
        return json.loads(self.process.stdout.readline())

    def check(self, name, port):
        self.process.stdin.write(f"{name} {port}\n")
        self.process.stdin.flush()
        said = self.hear(90)
        assert said is None, said

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def torch():
    t = Torch()
    yield t
    t.end()


@pytest.mark.torch
@pytest.mark.parametrize("name", CHECKS)
def test_torch(torch, store, name):
    torch.check(name, store.port)


def run_all(words, environments, seconds):
    processes = [subprocess.Popen(words, env=e, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  start_new_session=True) for e in environments]
    try:
        said = [p.communicate(timeout=seconds * harness.SLOWER)[0] for p in processes]
    finally:
        for p in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(p.pid, signal.SIGKILL)
            p.wait()
    assert [p.returncode for p in processes] == [0] * len(processes), said
    return "".join(said)


@pytest.mark.torch
def test_a_gloo_job_meets_through_it(store):
    base = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(store.port), WORLD_SIZE="4", OMP_NUM_THREADS="1",
                TORCHELASTIC_USE_AGENT_STORE="True")
    said = run_all([harness.TORCH_PYTHON, str(HERE / "store_worker.py")], [dict(base, RANK=str(r)) for r in range(4)], 120)
    assert sorted(re.findall(r"rank \d of 4: 10", said)) == [f"rank {r} of 4: 10" for r in range(4)]


@pytest.mark.torch
def test_genuine_torchrun_agents_meet_through_it(store):
    torchrun = pathlib.Path(harness.TORCH_PYTHON).parent / "torchrun"
    words = [str(torchrun), "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=job",
             f"--rdzv-endpoint=127.0.0.1:{store.port}", "--rdzv-conf=is_host=false", str(HERE / "store_worker.py")]
    said = run_all(words, [dict(os.environ, OMP_NUM_THREADS="1")] * 2, 150)
    assert sorted(re.findall(r"rank \d of 4: 10", said)) == [f"rank {r} of 4: 10" for r in range(4)]
