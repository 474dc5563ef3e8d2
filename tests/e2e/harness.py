"""Starts real `muster run` processes, waits for events instead of sleeping, and leaves nothing behind.

    with Job(tmp_path, worker) as job:
        a = job.agent("a", "--nnodes=2", …)
        starts = job.events.wait("start", 4)
        job.go()
        assert a.wait() == 0, a.output()

Nothing here waits by sleeping: output and events come through threads that notify one condition, the end of processes
through poll() on FIFOs and pidfds. Each agent is in a session of its own. Every process of a job has E2E_JOB=<unique>
in its environment; at the end, processes that are left are found by it and killed by pid.
"""
import collections
import contextlib
import os
import pathlib
import random
import re
import select
import shlex
import signal
import socket
import subprocess
import threading
import time
import uuid

MUSTER = os.environ.get("MUSTER", "")
# A Python with torch, or empty: then the tests that need it are skipped by name.
TORCH_PYTHON = os.environ.get("MUSTER_TEST_PYTHON", "")
# Where valgrind and the sanitizers write reports about muster's own processes: any report fails the current test.
TOOL_LOGS = os.environ.get("MUSTER_TEST_TOOL_LOGS", "")
VALGRIND = bool(os.environ.get("MUSTER_TEST_VALGRIND"))
# Sanitizers and valgrind make everything slower; deadlines of the tests are longer, and measured times are not
# asserted.
SLOWER = float(os.environ.get("MUSTER_TEST_SLOWER", "1"))
KILLS = int(os.environ.get("MUSTER_KILLS", "10"))
HERE = pathlib.Path(__file__).resolve().parent


# Tests that were started in the background, or under nohup, send these signals, too.
for _signo in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_signo) == signal.SIG_IGN:
        signal.signal(_signo, signal.SIG_DFL)


def deadline(seconds):
    """The monotonic time at which this many seconds are over."""
    return time.monotonic() + seconds * SLOWER


def unfolded(text):
    return re.sub(r"\n {8}(?=\S)", " ", text)


def command():
    """The command line that starts `muster run`. MUSTER_TEST_COMMAND (such as "torchrun") replaces it, to check the
    tests."""
    if os.environ.get("MUSTER_TEST_COMMAND"):
        return shlex.split(os.environ["MUSTER_TEST_COMMAND"])
    return [*muster(), "run"]


def muster():
    """The command line that starts muster itself, under valgrind if that is wanted."""
    if not VALGRIND:
        return [MUSTER]
    return ["valgrind", "-q", "--trace-children=no", "--leak-check=full", "--show-leak-kinds=definite,indirect",
            "--errors-for-leak-kinds=definite,indirect", f"--suppressions={HERE.parent}/tools/vg.supp",
            f"--log-file={TOOL_LOGS}/%p", MUSTER]


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
        return True
    except OSError:
        return False


def own_ports(first=10000, last=32000, count=500):
    """Yields ports in turn, of a range that no other test process of this machine has: agents of two tests that use the
    same port would meet, since all are of one user and most use the same run id. The range is held by a unix socket's
    name, and is one from which the kernel does not choose (ip_local_port_range)."""
    firsts = list(range(first, last, count))
    random.shuffle(firsts)
    for begin in firsts:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as name, contextlib.suppress(OSError):
            name.bind(f"\0muster-e2e-ports-{begin}")
            while True:
                yield from range(begin, begin + count)
    raise AssertionError("all ranges of ports are in use")


OWN_PORTS = own_ports()


def free_port(host="127.0.0.1"):
    """A port that is free now, and that no other test uses."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in OWN_PORTS:
        with socket.socket(family) as s, contextlib.suppress(OSError):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind((host, port))
            return port


def children(pid):
    """The direct children of all threads."""
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                found += map(int, pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def alive(pid):
    """True unless it is gone or a zombie."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"


def ignores(pid, signo):
    """True if the process ignores this signal: then the kernel drops it."""
    mask = re.search(r"^SigIgn:\s*(\w+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1]
    return bool(int(mask, 16) >> (signo - 1) & 1)


def processes_with(mark):
    """Pids whose environment holds this text."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if mark in pathlib.Path(f"/proc/{name}/environ").read_bytes() and alive(int(name)):
                    found.append(int(name))
    return [pid for pid in found if pid != os.getpid()]


def kill(pid, signo=signal.SIGKILL):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signo)


class Changing:
    """What a thread reads, which holds `changed` while it adds to it and sets `ended` after the last of it."""

    def __init__(self):
        self.ended, self.changed = False, threading.Condition()

    def until(self, what, seconds=30):
        """Returns the result of what() as soon as that is true, or its last result when the time is over."""
        end = deadline(seconds)
        with self.changed:
            while True:
                answer = what()
                left = end - time.monotonic()
                if answer or self.ended or left <= 0:
                    return answer
                self.changed.wait(left)


class Heard(Changing):
    """Lines that a thread reads from a descriptor. The thread owns the descriptor."""

    def __init__(self, fd):
        super().__init__()
        self.lines, self.times, self.raw, self.synced = [], [], bytearray(), 0
        self._fd, self._rest = fd, b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        while True:
            try:
                data = os.read(self._fd, 65536)
            except OSError:
                data = b""
            with self.changed:
                now = time.monotonic()
                self.raw += data
                *lines, self._rest = (self._rest + data).split(b"\n")
                if not data and self._rest:
                    lines, self._rest = [self._rest], b""
                for line in lines:
                    if line.startswith(b"\0"):  # our own words, see Events
                        self.synced += line == b"\0sync"
                        data = b"" if line == b"\0stop" else data
                        continue
                    self.lines.append(line.decode(errors="replace"))
                    self.times.append(now)
                self.ended = not data
                self.changed.notify_all()
            if not data:
                os.close(self._fd)
                return

    def text(self):
        """A message that muster has broken into several lines is one."""
        with self.changed:
            return unfolded(self.raw.decode(errors="replace"))

    def join(self):
        self._thread.join(30)


Event = collections.namedtuple("Event", "kind time fields")


class Events(Heard):
    """The lines of all the workers of a job, which these agents start."""

    def __init__(self, path, agents):
        os.mkfifo(path)
        self.agents = agents
        self._own = os.open(path, os.O_RDWR)  # so that the reader sees no end of file while workers come and go
        super().__init__(os.open(path, os.O_RDONLY))

    def all(self, kind=None, /, **fields):
        """Returns everything that was written before this call."""
        with self.changed:
            seen = self.synced
        os.write(self._own, b"\0sync\n")  # it is read after everything that was written before
        assert self.until(lambda: self.synced > seen, 30), "the events' FIFO is stuck"
        return self._all(kind, fields)

    def _all(self, kind, fields):
        with self.changed:
            found = []
            for line, when in zip(self.lines, self.times):
                first, *rest = line.split(" ")
                event = Event(first, when, dict(word.split("=", 1) for word in rest if "=" in word))
                if kind in (None, first) and all(event.fields.get(k) == str(v) for k, v in fields.items()):
                    found.append(event)
            return found

    def wait(self, kind, number, seconds=30, /, **fields):
        """Waits for at least this number of events of this kind; fails if they do not come."""
        def enough():
            found = self._all(kind, fields)
            return found if len(found) >= number else None

        found = self.until(enough, seconds)
        assert found, (f"{len(self.all(kind, **fields))} of {number} events {kind} {fields} in {seconds} s; "
                       f"heard: {self.lines}; " + "; ".join(f"{a.tag}: {a.said()[-600:]}" for a in self.agents))
        return found

    def stop(self):
        os.write(self._own, b"\0stop\n")
        self.join()
        os.close(self._own)


class Agent:
    """One `muster run` process: the guardian, whose child is the agent, whose children are workers."""

    def __init__(self, tag, words, env, cwd, prefix=(), stdin=subprocess.DEVNULL, stdout=None, stderr=None):
        self.tag, self.words = tag, list(prefix) + words
        out_r, out_w = os.pipe()
        err_r, err_w = os.pipe()
        try:
            self.process = subprocess.Popen(self.words, env=env, cwd=cwd, stdin=stdin, stdout=out_w if stdout is None else stdout,
                                            stderr=err_w if stderr is None else stderr, start_new_session=True)
        finally:
            os.close(out_w)
            os.close(err_w)
        self.out, self.err = Heard(out_r), Heard(err_r)
        self.pid = self.process.pid

    def wait(self, seconds=60):
        """The exit status as in a shell: 128+n for a signal; None if it still runs."""
        try:
            code = self.process.wait(max(0.0, deadline(seconds) - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None
        return code if code >= 0 else 128 - code

    def signal(self, signo):
        self.process.send_signal(signo)

    def agent_pid(self):
        """The guardian's child that is also muster."""
        found = children(self.pid)
        assert found, f"the guardian {self.pid} has no child; {self.said()}"
        return found[0]

    def wait_said(self, pattern, seconds=30):
        """Waits until standard error matches; fails with the actual output."""
        found = self.err.until(lambda: re.search(pattern, self.err.text(), re.S), seconds)
        assert found, f"{self.tag}: no {pattern!r} in: {self.said()}"
        return found

    def output(self):
        return self.out.text()

    def said(self):
        return self.err.text()

    def finish(self, seconds=60):
        """Waits for the end and for all of the output. Returns (status, stdout, stderr)."""
        code = self.wait(seconds)
        assert code is not None, f"{self.tag} still runs after {seconds} s: {self.words}\n{self.said()}"
        for heard in (self.out, self.err):
            heard.until(lambda heard=heard: heard.ended, 10)
        return code, self.output(), self.said()


class Job:
    """The agents of one job, their workers' events, and the end of all of them."""

    def __init__(self, tmp_path, worker=None):
        self.tmp = pathlib.Path(tmp_path)
        self.tmp.mkdir(parents=True, exist_ok=True)
        self.worker = str(worker) if worker else None
        self.mark = f"E2E_JOB={uuid.uuid4().hex}"
        self.life = self.tmp / "life"
        self.life.mkdir()
        (self.tmp / "life.own").mkdir()
        self.agents = []
        self.events = Events(self.tmp / "events", self.agents)
        os.mkfifo(self.tmp / "go")
        self._go = None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def env(self, tag, extra=None):
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(("PET_", "TORCHELASTIC_", "MUSTER_", "SLURM_", "KUBERNETES_", "JOB_COMPLETION_INDEX", "RANK",
                                    "LOCAL_RANK", "MASTER_"))}
        name, value = self.mark.split("=")
        env["MUSTER_RUN_DIR"] = str(self.tmp / "run")  # leader files and entries only of this job
        env.update({name: value, "E2E_TAG": tag, "E2E_EVENTS": str(self.tmp / "events"),
                    "E2E_GO": str(self.tmp / "go"), "E2E_LIFE": str(self.life), "E2E_RECORD": str(self.tmp / "record")})
        env.update({k: str(v) for k, v in (extra or {}).items()})
        return {k: v for k, v in env.items() if v != "\0unset"}

    def agent(self, tag, *words, env=None, prefix=(), program=None, **more):
        if "family" in words:  # it uses up the grace
            env = {"PET_SHUTDOWN_TIMEOUT": 1, **(env or {})}
        if "--preflight=strict" in words and os.geteuid() == 0:  # it refuses a node whose GPUs are held, also by other tests
            prefix = [*prefix, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        agent = Agent(tag, (program or command()) + [str(w) for w in words], self.env(tag, env), self.tmp, prefix,
                      **more)
        self.agents.append(agent)
        return agent

    def run(self, *words, seconds=60, **more):
        """Runs one agent to its end: (status, stdout, stderr)."""
        return self.agent("a", *words, **more).finish(seconds)

    def pair(self, *words, worker=("start", "go"), nproc=2, nnodes="1:2", tags="ab", **more):
        """Agents that meet at one endpoint on loopback, each with C workers."""
        endpoint = f"127.0.0.1:{free_port()}"
        return [self.agent(tag, f"--nnodes={nnodes}", f"--nproc-per-node={nproc}", "--rdzv-backend=c10d",
                           f"--rdzv-endpoint={endpoint}", "--rdzv-id=e2e", *words, "--no-python", self.worker, *worker,
                           **more) for tag in tags]

    def go(self):
        """Lets the workers end, now and later."""
        if self._go is None:
            self._go = os.open(self.tmp / "go", os.O_RDWR)

    def lifelines(self, tag):
        return sorted(p for p in self.life.iterdir() if p.name.endswith("." + tag))

    def held(self, tag):
        """The generations of this agent of which a process lives now."""
        found = []
        for path in self.lifelines(tag):
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                os.read(fd, 1)
            except BlockingIOError:
                found.append(path.name)
            finally:
                os.close(fd)
        return found

    def wait_gone(self, tag, seconds):
        """The time at which no process of this agent's workers was left; fails with the names of processes that
        remain."""
        end = deadline(seconds)
        for path in self.lifelines(tag):
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                poll = select.poll()
                poll.register(fd, 0)  # POLLHUP alone: the last holder has gone
                while path.name in self.held(tag):
                    left = end - time.monotonic()
                    assert left > 0, f"{path.name} is held by {self.culprits()} after {seconds} s"
                    poll.poll(left * 1000)
            finally:
                os.close(fd)
        return time.monotonic()

    def all_gone(self, seconds):
        """Waits until no process of the job is left; fails with those that are."""
        end = deadline(seconds)
        while left := processes_with(self.mark.encode()):
            assert time.monotonic() < end, self.culprits()
            with contextlib.suppress(OSError):
                fd = os.pidfd_open(left[0])
                select.select([fd], [], [], max(0.0, end - time.monotonic()))
                os.close(fd)

    def culprits(self):
        names = []
        for pid in processes_with(self.mark.encode()):
            with contextlib.suppress(OSError):
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                names.append(f"{pid}: {words[:120]}")
        return names

    def no_overlap(self):
        """Fails if a worker saw a worker of another generation alive as it started."""
        seen = [e.fields for e in self.events.all("start") if e.fields["overlap"]]
        assert not seen, f"alive together: {seen}"

    def close(self):
        left = []
        for agent in self.agents:
            if agent.process.poll() is None:
                kill(agent.pid, signal.SIGCONT)
                agent.signal(signal.SIGKILL)
        for _ in range(50):  # each round kills the processes that were created since the last one
            left = processes_with(self.mark.encode())
            if not left:
                break
            for pid in left:
                kill(pid)
            for pid in left:
                with contextlib.suppress(OSError):
                    fd = os.pidfd_open(pid)
                    select.select([fd], [], [], 1)
                    os.close(fd)
        for agent in self.agents:
            agent.process.wait()
            agent.out.join()
            agent.err.join()
        self.events.stop()
        if self._go is not None:
            os.close(self._go)
        assert not left, f"could not be killed: {left}"


def nvml_env(folder, script):
    """The environment in which muster uses a fake library as NVML. It answers as the script says
    (tests/tools/fake_nvml.c), or as the script of that name in tests/tools/nvml."""
    folder, tools = pathlib.Path(folder), HERE.parent / "tools"
    library = folder / "libnvidia-ml.so.1"
    if not library.exists():
        subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", str(library),
                        str(tools / "fake_nvml.c")], check=True)
    path = tools / "nvml" / f"{script}.txt"
    if "\n" in script:
        path = folder / f"script-{uuid.uuid4().hex}"
        path.write_text(script)
    return {"MUSTER_NVML_LIBRARY": str(library), "FAKE_NVML_SCRIPT": str(path)}


def tool_logs():
    """The reports of valgrind or a sanitizer about muster's processes since the last call; empty if there are none."""
    said = []
    for path in sorted(pathlib.Path(TOOL_LOGS).iterdir()) if TOOL_LOGS else []:
        # --PID-- lines of valgrind are about itself (a system call it lacks); ==PID== ones about us.
        text = re.sub(r"^--\d+-- .*\n", "", path.read_text(errors="replace"), flags=re.M)
        if text.strip():
            said.append(f"{path.name}:\n{text}")
        path.unlink()
    return "\n".join(said)
