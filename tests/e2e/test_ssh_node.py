"""The relay, `muster ssh-node`: the process that the head of an ssh job starts on each node. Here a head of a few lines
speaks to it over pipes, without ssh."""
import contextlib
import json
import os
import select
import signal
import struct
import subprocess
import threading
import time

import pytest

from eavesdrop import shown
from harness import Changing, Heard, alive, children, deadline, free_port, kill, muster, processes_with
from hosts import state

BEGIN = b"\nMUSTER-SSH 1\n"
GRACE = 3
KEY = "muster-key-1:" + "6b" * 32


class Node(Changing):
    """A relay and its head. Messages are read by a thread while `reading` is set."""

    def __init__(self, job, tag="a", env=None, **more):
        super().__init__()
        self.job, self.tag = job, tag
        in_r, self.to = os.pipe()
        self.out, out_w = os.pipe()
        err_r, err_w = os.pipe()
        # as sshd does: a session of its own
        self.process = subprocess.Popen([*muster(), "ssh-node"], stdin=in_r, stdout=out_w, stderr=err_w,
                                        env=job.env(tag, env), start_new_session=True, **more)
        for fd in in_r, out_w, err_w:
            os.close(fd)
        self.pid = self.process.pid
        self.err = Heard(err_r)
        self.frames = []
        self.reading = threading.Event()
        self.reading.set()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        bytes_, begun = b"", False
        while True:
            self.reading.wait()
            data = os.read(self.out, 1 << 16)
            bytes_ += data
            with self.changed:
                if not begun and BEGIN in bytes_:
                    begun, bytes_ = True, bytes_.split(BEGIN, 1)[1]
                while begun and len(bytes_) >= 4 and len(bytes_) >= 4 + struct.unpack("<I", bytes_[:4])[0]:
                    size = struct.unpack("<I", bytes_[:4])[0]
                    self.frames.append((chr(bytes_[4]), bytes_[5:4 + size]))
                    bytes_ = bytes_[4 + size:]
                self.ended = not data
                self.changed.notify_all()
            if not data:
                return

    def get(self, kind, seconds=30):
        """The first message of a kind, as an object; fails if it does not come."""
        found = self.until(lambda: [data for k, data in self.frames if k == kind], seconds)
        assert found, f"no {kind!r}: {self.kinds()}; {self.text('e')[-2000:]} {self.err.text()}"
        return json.loads(found[0])

    def kinds(self):
        with self.changed:
            return [k for k, _ in self.frames]

    def text(self, kind="o"):
        with self.changed:
            return b"".join(data for k, data in self.frames if k == kind).decode()

    def wait_text(self, text, kind="o", seconds=30):
        assert self.until(lambda: text in self.text(kind), seconds), f"no {text!r}: {self.kinds()} {self.text(kind)[-2000:]}"

    def send_bytes(self, data):
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self.to, data):]

    def send(self, kind, body=b"{}"):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_bytes(struct.pack("<I", 1 + len(body)) + kind.encode() + body)

    def boot(self, *words, env=(), key=KEY, cwd=None, grace=GRACE, piece=1 << 16):
        texts = ["c" + str(cwd or self.job.tmp), f"g{int(grace * 1e9)}"]
        env = [*env, *([f"MUSTER_HEAD_KEY={key}"] if key else [])]
        texts += ["a" + str(w) for w in words] + ["e" + e for e in env]
        data = b"".join(t.encode() + b"\0" for t in texts)
        while len(data) > piece:
            self.send("b", data[:piece])
            data = data[piece:]
        self.send("B", data)

    def shell(self, script, *options, **more):
        self.boot("--no-python", *options, "sh", "-c", script, **more)

    def stop(self, signo):
        self.send("S", {"signal": int(signo)})

    def close_to(self):
        if self.to >= 0:
            os.close(self.to)
            self.to = -1

    def wait(self, seconds=30):
        """The relay's exit status, after the last message has come."""
        code = self.process.wait(max(0.1, deadline(seconds) - time.monotonic()))
        self.until(lambda: self.ended)
        return code

    def guardian(self):
        return children(self.pid)[0]

    def finish(self):
        self.reading.set()
        self.close_to()
        if self.process.poll() is None:
            kill(self.pid, signal.SIGCONT)
            self.process.kill()
        self.process.wait()


@pytest.fixture
def start(job):
    """Starts relays; their processes are all found by the job's mark."""
    nodes = []

    def make(*words, **more):
        nodes.append(Node(job, *words, **more))
        return nodes[-1]

    yield make
    for node in nodes:
        node.finish()
    mark = job.mark.encode()
    end = deadline(20)
    while processes_with(mark) and time.monotonic() < end:
        for pid in processes_with(mark):
            kill(pid)
    for node in nodes:
        node.thread.join(10)
        os.close(node.out)
        node.err.join()


def test_a_job_of_one_node(start, job):
    node = start(env={"SSH_CONNECTION": "10.9.8.7 50000 127.0.0.9 22", "HOME": "/there", "WHO": "node"})
    hello = node.get("H")
    assert hello["pid"] == node.pid and hello["addrs"].split(",")[0] == "127.0.0.9", hello
    node.shell("echo out $WHO $HOME $NEW $PWD; env | grep -c MUSTER_HEAD; echo err >&2; exit 3",
               env=["WHO=head", "NEW=x=y"])
    assert node.wait() == 1
    assert node.text() == f"out head /there x=y {job.tmp}\n0\n", node.text()
    assert "err\n" in node.text("e")
    assert node.get("X") == {"signalled": False, "code": 1}
    assert node.kinds()[-1] == "X"
    lead, verdict = node.get("L"), node.get("V")
    assert lead["host"] and verdict["status"] == 1 and "exit" in verdict["text"], verdict
    job.all_gone(5)


# Prints how it ends: at the first SIGTERM it needs a moment, so a second one would be seen.
ORDERLY = "trap 'echo got TERM; exit 0' TERM; echo ready; while :; do sleep 0.1 & wait $!; done"
STUBBORN = "trap '' HUP TERM; echo ready; while :; do sleep 1; done"


def group(start, *words, script, n=2, **more):
    """Relays whose agents form one group."""
    endpoint = f"127.0.0.1:{free_port()}"
    nodes = [start(tag) for tag in "abcdef"[:n]]
    for rank, node in enumerate(nodes):
        node.shell(script, "--starter=none", f"--nnodes={n}", f"--node-rank={rank}", "--rdzv-backend=c10d",
                   f"--rdzv-endpoint={endpoint}", "--rdzv-id=e2e", *words, **more)
    return nodes


def test_two_nodes_form_a_group_and_all_of_their_output_comes(start, job):
    lines = 500_000
    script = f"seq -f '%.0f {'x' * 20}' 1 {lines}; echo $RANK of $WORLD_SIZE >&2"
    nodes = group(start, script=script)
    assert [node.wait(200) for node in nodes] == [0, 0]
    for node in nodes:
        got = node.text().splitlines()
        assert len(got) == lines
        prefix = got[0].split("]")[0] + "]: "
        assert got == [f"{prefix}{i} {'x' * 20}" for i in range(1, lines + 1)]
        assert max(len(data) for k, data in node.frames if k == "o") <= 1 << 16
        assert node.get("X") == {"signalled": False, "code": 0}
    leaders = [node for node in nodes if "L" in node.kinds()]
    assert len(leaders) == 1 and leaders[0].get("V")["status"] == 0
    job.all_gone(5)


def test_stop_ends_the_group_in_one_order(start, job):
    """STOP goes to the leader, which ends all nodes; each worker gets one signal."""
    nodes = group(start, script=ORDERLY)
    for node in nodes:
        node.wait_text("ready")
    leader = next(node for node in nodes if "L" in node.kinds())
    leader.stop(signal.SIGINT)
    codes = [node.wait() for node in nodes]
    assert all(node.text().count("got TERM") == 1 for node in nodes), [node.text() for node in nodes]
    assert leader.get("V")["status"] == codes[nodes.index(leader)]
    job.all_gone(5)


def end_of_file(node):
    node.close_to()


def sigterm(node):
    node.process.terminate()


def sighup(node):
    node.process.send_signal(signal.SIGHUP)


def stop(node):
    node.stop(signal.SIGTERM)


def kill_relay(node):
    kill(node.pid)


def kill_relay_of_a_stopped_guardian(node):
    guardian, end = node.guardian(), deadline(10)
    kill(guardian, signal.SIGSTOP)
    while state(guardian) != "T":  # the kernel resumes what is stopped as the relay ends
        assert time.monotonic() < end
        select.select([], [], [], 0.002)
    kill(node.pid)


def close_all(node):
    """As when sshd is killed: nobody has the other ends any more."""
    kill(node.pid, signal.SIGSTOP)
    node.close_to()
    kill(node.pid, signal.SIGCONT)


@pytest.mark.parametrize("way", [end_of_file, sigterm, sighup, stop, kill_relay, kill_relay_of_a_stopped_guardian, close_all])
def test_an_end_in_order(start, job, way):
    """The worker gets one SIGTERM, and has time to write what it must."""
    node = start()
    # the kernel's SIGHUP comes first, if the guardian was stopped
    node.shell(f"trap 'echo got it >> {job.tmp}/seen; exit 0' HUP TERM; echo ready; while :; do sleep 0.1 & wait $!; done")
    node.wait_text("ready")
    way(node)
    job.all_gone(7)  # a verdict for a relay that is gone is not waited for, which would last 8 s
    assert (job.tmp / "seen").read_text() == "got it\n"
    if not way.__name__.startswith("kill_relay"):
        assert node.wait() in (0, 75, 143)
        assert node.kinds()[-1] == "X"


@pytest.mark.parametrize("way", [end_of_file, sigterm, stop, kill_relay, kill_relay_of_a_stopped_guardian])
def test_nothing_lives_a_second_after_the_grace(start, job, way):
    node = start()
    node.shell(STUBBORN, f"--shutdown-timeout={GRACE}")
    node.wait_text("ready")
    began = time.monotonic()
    way(node)
    job.all_gone(GRACE + 20)
    took = time.monotonic() - began
    assert GRACE - 0.5 < took < (GRACE + 1) * (1 if float(os.environ.get("MUSTER_TEST_SLOWER", "1")) == 1 else 4), took


def agent_of(guardian):
    return children(guardian)[0]


def test_a_stopped_agent_is_killed_after_the_grace(start, job):
    node = start()
    node.shell(ORDERLY, f"--shutdown-timeout={GRACE}")
    node.wait_text("ready")
    guardian = node.guardian()
    agent = agent_of(guardian)
    node.close_to()
    # SIGCONT reaches it, but it is stopped again and again, as by a debugger
    end = deadline(30)
    while alive(guardian) and time.monotonic() < end:
        kill(agent, signal.SIGSTOP)
        select.select([], [], [], 0.002)
    job.all_gone(10)


@pytest.mark.parametrize("victims", ["guardian", "agent", "guardian agent", "agent guardian", "relay agent", "relay guardian",
                                     "guardian relay", "agent relay"])
def test_no_orphan_in_any_order_of_kills(start, job, victims):
    """One after the other as fast as signals are sent. (Relay, guardian and agent at once is what only --contain
    helps against.)"""
    node = start()
    node.shell(f"sh -c 'trap \"\" TERM HUP; sleep 1000' & {STUBBORN}", f"--shutdown-timeout={GRACE}")
    node.wait_text("ready")
    pids = {"relay": node.pid, "guardian": node.guardian()}
    pids["agent"] = agent_of(pids["guardian"])
    for name in victims.split():
        kill(pids[name])
    job.all_gone(30)
    if "relay" not in victims:
        assert node.wait() == 128 + signal.SIGKILL
        assert node.get("X") == {"signalled": True, "code": signal.SIGKILL}


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_the_relay_kills_the_agent_last(start, job, stopped):
    """The guardian is killed, and then the relay as soon as the agent has ended: nothing is left of many processes."""
    node = start()
    node.shell(f"for i in $(seq 400); do sleep 1000 & done; {STUBBORN}")
    node.wait_text("ready")
    guardian = node.guardian()
    agent = agent_of(guardian)
    ended = os.pidfd_open(agent)
    if stopped:
        kill(agent, signal.SIGSTOP)
    kill(guardian)
    assert select.select([ended], [], [], 30)[0]
    kill(node.pid)
    os.close(ended)
    job.all_gone(30)


def resident_kib(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


def test_a_head_that_stops_reading_holds_the_output_up(start, job):
    """The relay does not grow, and all comes when the head reads again."""
    lines = 3_000_000  # 23 MB
    node = start()
    node.get("H")
    before = resident_kib(node.pid)
    node.reading.clear()
    node.shell(f"seq 1 {lines}; echo done > {job.tmp}/done; exec sleep 1000")
    end = deadline(60)
    while not (job.tmp / "done").exists():  # the agent's log writer spools it
        assert time.monotonic() < end, job.culprits()
        select.select([], [], [], 0.05)
    assert resident_kib(node.pid) < before + 4_000
    node.send("P")
    node.reading.set()
    assert node.until(lambda: node.frames[-1][1].endswith(f"\n{lines}\n".encode()))
    assert node.text().splitlines() == [str(i) for i in range(1, lines + 1)]
    node.stop(signal.SIGTERM)
    node.wait()
    job.all_gone(5)


def test_a_head_that_stops_reading_and_goes_ends_the_job(start, job):
    node = start()
    node.get("H")
    node.reading.clear()
    node.shell(f"echo x > {job.tmp}/began; exec yes", f"--shutdown-timeout={GRACE}")
    end = deadline(60)
    while not (job.tmp / "began").exists():
        assert time.monotonic() < end, job.culprits()
        select.select([], [], [], 0.05)
    node.close_to()
    job.all_gone(30)


def test_a_boot_in_small_pieces_and_torn_frames(start, job):
    node = start()
    data = b"c" + str(job.tmp).encode() + b"\0eMUSTER_HEAD_KEY=" + KEY.encode() + b"\0a--no-python\0aecho\0awhole\0"
    pieces = b"".join(struct.pack("<I", 2) + b"b" + data[i:i + 1] for i in range(len(data) - 1))
    pieces += struct.pack("<I", 2) + b"B" + data[-1:]
    for i in range(0, len(pieces), 3):
        node.send_bytes(pieces[i:i + 3])
    assert node.wait() == 0
    assert node.text() == "whole\n"


@pytest.mark.parametrize("what, text", [
    (b"GET / HTTP/1.1\r\n\r\n", "not of muster's protocol"),
    (struct.pack("<I", 5) + b"S{\"x\"", "not of muster's protocol"),
    (struct.pack("<I", 1) + b"B", "BOOT"),
    (struct.pack("<I", 5) + b"Bcxy\0", "folder"),
    (struct.pack("<I", 9) + b"B/\0e=x\0a\0", "BOOT"),
    (struct.pack("<I", 3) + b"X{}", "not of muster's protocol"),
])
def test_garbage_is_refused_with_a_sentence(start, job, what, text):
    node = start()
    node.send_bytes(what)
    assert text in node.get("F")["text"]
    assert node.wait() == 1
    assert node.kinds() == ["H", "F"]
    job.all_gone(5)


def test_a_huge_boot_is_refused_before_it_is_stored(start, job):
    node = start()
    part = b"e" + b"x" * ((1 << 16) - 2) + b"\0"
    for _ in range(200):
        if node.kinds()[-1:] == ["F"]:
            break
        node.send("b", part)
    assert "BOOT" in node.get("F")["text"]
    assert node.wait() == 1


def test_what_cannot_be_started_is_said(start, job):
    node = start()
    node.shell("true", cwd="/no/such/folder")
    said = node.get("F")["text"]
    assert "/no/such/folder" in said and "No such file" in said and os.uname().nodename in said
    assert node.wait() == 1
    node = start()
    node.boot("--no-python", "true", env=["BIG=" + "x" * 200_000])  # more than execve(2) takes of one
    assert "too long" in node.get("F")["text"]
    assert node.wait() == 1


def test_nothing_secret_is_on_the_relays_command_line_or_in_its_environment(start, job):
    node = start()
    node.shell(ORDERLY, env=["MUSTER_TEST_SECRET=s3cr3t"])
    node.wait_text("ready")
    assert not shown("s3cr3t", [node.pid]) and not shown("MUSTER_HEAD", [node.pid])
    pids = [node.pid, *below(node.pid)]
    assert len(pids) >= 4 and not shown(KEY.partition(":")[2], pids)
    node.close_to()
    job.all_gone(20)


def below(pid):
    for child in children(pid):
        yield child
        yield from below(child)


@pytest.mark.parametrize("key,status,said", [
    (None, 2, "MUSTER_HEAD_KEY has not arrived here"), ("muster-key-1:07", 2, "MUSTER_HEAD_KEY"), ("none", 0, "")])
def test_a_key_that_does_not_arrive(start, job, key, status, said):
    node = start()
    node.shell("true", key=key)
    assert node.wait() == status and said in node.text("e"), node.text("e")


def test_an_end_before_boot(start, job):
    for way in sigterm, stop:
        node = start()
        node.get("H")
        way(node)
        assert node.wait() == 143
        assert node.kinds() == ["H", "X"]
    job.all_gone(5)


def test_an_ssh_that_passes_nothing_on_is_told(start, job):
    node = start()
    node.get("H")
    end_of_file(node)
    assert node.wait() == 1
    assert node.kinds() == ["H", "F"] and "let ssh pass it on (no -n," in node.get("F")["text"]
    job.all_gone(5)


def test_signals_for_workers(start, job):
    node = start()
    node.shell("trap 'echo usr1' USR1; trap 'exit 7' USR2; echo ready; while :; do sleep 0.1 & wait $!; done")
    node.wait_text("ready")
    node.send("U", {"signal": int(signal.SIGUSR1)})
    node.wait_text("usr1")
    node.send("U", {"signal": int(signal.SIGUSR2)})
    assert node.wait() == 1
    assert "7" in node.get("V")["text"]


def test_it_is_not_for_people(job):
    run = subprocess.run([*muster(), "ssh-node", "x"], capture_output=True, text=True, check=False)
    assert run.returncode == 2 and "takes none" in run.stderr
    with open("/dev/null") as null:
        run = subprocess.run([*muster(), "ssh-node"], stdin=null, capture_output=True, text=True, check=False)
    assert run.returncode != 0 and "must be pipes" in run.stderr
    helped = subprocess.run([*muster(), "help"], capture_output=True, text=True, check=False)
    assert "ssh-node" not in helped.stdout
