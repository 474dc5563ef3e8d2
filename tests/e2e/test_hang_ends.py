"""How hangs end: a worker fails while others wait, and what the others do is kept; workers of a job that hangs are ended
so that they say where they were.
"""
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import sys
import time

import pytest

import harness
from harness import SLOWER, TORCH_PYTHON, free_port
from test_operate import ask

# Ranks of one group wait for something that never comes; rank 2 waits elsewhere. Rank 1 fails when it is told to, as a
# rank does whose collective has a time-out. Later groups end at once.
WAIT = r"""
import os, select, signal, sys

rank, folder = int(os.environ["RANK"]), sys.argv[1]

def all_reduce():
    os.read(os.pipe()[0], 1)

def load():
    signal.pause()

def times_out():
    while not os.path.exists(folder + "/fail"):
        select.select([], [], [], 0.05)
    sys.exit(7)

if os.environ["MUSTER_GENERATION"] != "1.1":
    sys.exit(0)
if os.environ.get("DEAF"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
{1: times_out, 2: load}.get(rank, all_reduce)()
"""

# The same with PyTorch.
TORCH = r"""
import datetime, signal, torch
import torch.distributed as dist

def load():
    signal.pause()

def step():
    dist.all_reduce(torch.ones(4))

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
for n in range(3):
    step()
if dist.get_rank() == 2:
    load()
step()
"""


class Nodes:
    """A job of two nodes with two ranks each."""
    def __init__(self, job, program, *options, env=None, words=None):
        self.job, self.log, self.logs = job, job.tmp / "timeline", job.tmp / "logs"
        script = job.tmp / "train.py"
        script.write_text(program)
        endpoint = f"127.0.0.1:{free_port()}"
        self.agents = [job.agent(tag, "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=e2e",
                                 f"--rdzv-endpoint={endpoint}", f"--event-log={self.log}", f"--log-dir={self.logs}",
                                 "--evidence-timeout=60", *options, *(words or [script, job.tmp]), env=env) for tag in ("a", "b")]

    def said(self):
        return "\n".join(a.said() for a in self.agents)

    def says(self, pattern, seconds=120):
        """The first match in what the agents say; None: it does not come within this time."""
        heard = [a.err for a in self.agents]
        end = time.monotonic() + seconds * SLOWER

        def found():
            return re.search(pattern, "\n".join(h.text() for h in heard))
        while not found() and time.monotonic() < end:
            for h in heard:
                h.until(found, 0.2)
        return found()

    def timeline(self, event):
        return [e for e in map(json.loads, self.log.read_text().splitlines()) if e["event"] == event]

    def finish(self, seconds=120):
        return [a.finish(seconds)[0] for a in self.agents]

    def kept(self):
        """The folder of the newest evidence."""
        return max(self.logs.glob("**/hang.txt")).parent


LOAD = r"rank 2 \(node \S+, pid \d+\): \S+ in load \(train.py:\d+\), still for \d+ s"


@pytest.mark.parametrize("restarts", [0, 1])
def test_what_the_others_did_is_kept_when_one_fails(job, restarts):
    # The job may be quiet for 7 s while ranks that started late have waited for less than 5 s, which does not count as waiting.
    nodes = Nodes(job, WAIT, "--hang-report=10", "--hang-action=report", f"--max-restarts={restarts}")
    assert nodes.says("the job is quiet"), nodes.said()
    (job.tmp / "fail").touch()
    assert nodes.finish() == ([1, 1] if restarts == 0 else [0, 0]), nodes.said()
    line = rf"rank 1 failed while others waited; ranks 0,3 wait in all_reduce \(train.py:\d+\); {LOAD}"
    assert re.search(line, nodes.said()), nodes.said()
    text, kept = (nodes.kept() / "hang.txt").read_text(), json.loads((nodes.kept() / "hang.json").read_text())
    assert re.search(line, text) and re.search(r"rank 1 \(node \S+\) ended with exit code 7", text), text
    assert kept["failed_rank"] == 1 and [s["rank"] for s in kept["suspects"]] == [2], kept
    assert not nodes.timeline("hang") and len(nodes.timeline("worker_failed")) == 1, nodes.said()


def test_nothing_is_kept_of_a_failure_that_no_rank_waited_for(job):
    code, _, err = job.run("--standalone", "--nproc-per-node=3", f"--log-dir={job.tmp}/logs", "--no-python", "sh", "-c",
                           "test $RANK = 1 || exec sleep 60; sleep 8; exit 3")
    assert code == 1 and "waited" not in err and not re.search(r"warning: *$", err, re.M), err
    assert not list((job.tmp / "logs").glob("**/hang.txt")), err


def test_a_job_that_is_ended_meanwhile_ends(job):
    nodes = Nodes(job, WAIT, "--hang-report=7", "--max-restarts=1")
    assert nodes.says("the job is quiet"), nodes.said()
    (job.tmp / "fail").touch()
    for agent in nodes.agents:
        agent.signal(signal.SIGTERM)
    assert nodes.finish(30 * SLOWER) == [128 + signal.SIGTERM] * 2, nodes.said()


def test_nothing_is_said_of_a_quiet_job_that_ends_while_its_nodes_look(job):
    """A recorder that accepts and never answers holds them up; the stop lasts long enough for a line."""
    path = str(job.tmp / "recorder")
    with socket.socket(socket.AF_UNIX) as recorder:
        recorder.bind(path)
        recorder.listen()
        recorder.settimeout(120 * SLOWER)
        nodes = Nodes(job, WAIT, "--hang-report=7", "--shutdown-timeout=5",
                      env={"TORCH_WORKER_SERVER_SOCKET": path, "DEAF": "1"})
        looks, _ = recorder.accept()
        with looks:
            code, _, err = ask(job, "stop")
            assert code == 0, err
            nodes.finish()
    for text in ("the job is quiet", "no evidence", "what each rank did"):
        assert text not in nodes.said(), nodes.said()
    assert not list(nodes.logs.glob("**/hang.txt")), nodes.said()


@pytest.mark.torch
def test_a_collectives_own_time_out_leaves_the_stack_of_the_rank_that_hung(job):
    nodes = Nodes(job, TORCH, env={"PYTHON_EXEC": TORCH_PYTHON, "OMP_NUM_THREADS": "1"})
    assert nodes.finish(300) == [1, 1], nodes.said()
    assert re.search(rf"rank [013] failed while .* waited; .*{LOAD}", nodes.said()), nodes.said()
    text = (nodes.kept() / "hang.txt").read_text()
    assert re.search(r"suspect: rank 2 .*\n.*\n +load  \S+/train.py:\d+\n", text), text


# Rank 2 of the first group hangs in one of several ways; the others wait for it.
HANG = r"""
import ctypes, os, signal, struct, sys

rank, folder, how = int(os.environ["RANK"]), sys.argv[1], os.environ["HOW"]

def all_reduce():
    os.read(os.pipe()[0], 1)

def on_abort(signo, frame):
    open(folder + "/aborted", "w").close()

def fuse_mount():
    # As that of torch_hang.py: its server is this process, and answers only the greeting.
    libc, fd, where = ctypes.CDLL(None), os.open("/dev/fuse", os.O_RDWR), folder + "/dead"
    os.mkdir(where)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
    if (libc.unshare(0x20000) or libc.mount(b"none", b"/", None, 0x44000, None)
            or libc.mount(b"dead", where.encode(), b"fuse.dead", 0, options)):
        raise OSError("a FUSE file system cannot be mounted")
    unique = struct.unpack_from("=IIQ", os.read(fd, 1 << 17))[2]
    answer = struct.pack("=4I2H2I2H8I", 7, 31, 65536, 0, 16, 12, 65536, 1, 0, 0, *[0] * 8)
    os.write(fd, struct.pack("=IiQ", 16 + len(answer), 0, unique) + answer)
    return where

def hold():
    with open(folder + "/pid.new", "w") as f:
        f.write(str(os.getpid()))
    os.rename(f.name, folder + "/pid")
    if how == "fuse":
        open(fuse_mount() + "/data")
    if how == "gil":
        ctypes.PyDLL(None).sleep(1000)
    elif how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "program":
        os.execvp("sleep", ["sleep", "1000"])
    signal.signal(signal.SIGABRT, on_abort)
    while True:
        signal.pause()

if os.environ["MUSTER_GENERATION"] != "1.1":
    sys.exit(0)
hold() if rank == 2 else all_reduce()
"""


NO_EU_STACK = "native stack: eu-stack is not installed (elfutils)"


def may_trace_all():
    """Also processes that a worker has started: Yama lets only root do that."""
    scope = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")
    return os.geteuid() == 0 or not scope.exists() or scope.read_text().strip() == "0"


def hangs(job, how, meanwhile=None, **env):
    nodes = Nodes(job, HANG, "--max-restarts=1", "--hang-action=restart", "--hang-timeout=6", "--hang-still=6", "--hang-report=0",
                  env={"HOW": how, "PYTHONFAULTHANDLER": "1", **env})
    if meanwhile:
        meanwhile(nodes)
    assert nodes.finish(180) == [0, 0], nodes.said()
    [hang] = nodes.timeline("hang")
    assert "rank 2" in hang["cause"], hang
    return nodes


def native_stack(nodes):
    """What hang.json has of rank 2: its native stack, and what is missing."""
    [native] = json.loads((nodes.kept() / "hang.json").read_text())["native_stacks"]
    text = (nodes.kept() / "hang.txt").read_text()
    assert native["rank"] == 2 and re.search(r"^native stacks, .*\n\nrank 2 \(node ", text, re.M), text
    return native["stack"], native["gaps"]


@pytest.mark.parametrize("how", ["gil", "stopped", "program", "handler"])
def test_who_hangs_says_where_and_has_not_failed(job, how):
    nodes = hangs(job, how)
    assert not nodes.timeline("worker_failed") and "ended with" not in nodes.said(), nodes.said()
    wrote = nodes.said() + "".join(p.read_text() for p in nodes.logs.glob("**/stderr.log"))
    if how in ("gil", "stopped"):
        assert re.search(r"Fatal Python error: Aborted(.*\n)*.*line \d+ in hold", wrote), wrote
    assert (job.tmp / "aborted").exists() == (how == "handler")
    assert not list(job.tmp.glob("core*")), "no core is written"
    stack, gaps = native_stack(nodes)
    if shutil.which("eu-stack") is None:
        assert gaps == [NO_EU_STACK], gaps
        return
    assert re.search(r"thread \d+:\n(  .*\n)*  .*(sleep|pause|kill)", stack or ""), (stack, gaps)


def test_an_eu_stack_that_hangs_costs_its_time(job):
    """It is killed then."""
    (job.tmp / "bin").mkdir()
    tool = job.tmp / "bin" / "eu-stack"
    tool.write_text(f"#!/bin/sh\necho $$ > {job.tmp}/tool\nexec {shutil.which('sleep')} 1000\n")
    tool.chmod(0o755)
    stack, gaps = native_stack(hangs(job, "gil", PATH=str(tool.parent), PYTHON_EXEC=sys.executable))
    assert stack is None and gaps == ["native stack: eu-stack did not end in time"], gaps
    tool = pathlib.Path("/proc", (job.tmp / "tool").read_text().strip(), "cmdline")
    assert not tool.exists() or b"1000" not in tool.read_bytes()


BELOW = {"shell": "{python} {tmp}/train.py {tmp}; code=$?; echo went on >> {tmp}/$MUSTER_GENERATION.$RANK; exit $code\n",
         "python": """
import os, subprocess, sys
code = subprocess.call([sys.executable, "{tmp}/train.py", "{tmp}"])
open("{tmp}/" + os.environ["MUSTER_GENERATION"] + "." + os.environ["RANK"], "a").close()
sys.exit(code)
"""}


@pytest.mark.parametrize("launcher", BELOW)
def test_the_program_below_a_launcher_says_where(job, launcher):
    """The launcher would go on behind it."""
    script = job.tmp / "launch"
    script.write_text(BELOW[launcher].format(python=sys.executable, tmp=job.tmp))
    nodes = Nodes(job, HANG, "--max-restarts=1", "--hang-action=restart", "--hang-timeout=6", "--hang-still=6", "--hang-report=0", "--no-python",
                  env={"HOW": "gil", "PYTHONFAULTHANDLER": "1"},
                  words=[sys.executable if launcher == "python" else "/bin/sh", script])
    assert nodes.finish(180) == [0, 0], nodes.said()
    assert not nodes.timeline("worker_failed"), nodes.said()
    wrote = nodes.said() + "".join(p.read_text() for p in nodes.logs.glob("**/stderr.log"))
    assert re.search(r"Fatal Python error: Aborted(.*\n)*.*line \d+ in hold", wrote), wrote
    assert not (job.tmp / "1.1.2").exists() and (job.tmp / "1.2.2").exists(), "the launcher went on"
    stack, gaps = native_stack(nodes)
    if shutil.which("eu-stack") is not None and may_trace_all():
        assert "sleep" in stack, (stack, gaps)
    else:
        assert stack is None and len(gaps) == 1, (stack, gaps)


def test_who_waits_for_a_dead_file_system_is_not_attached_to(job):
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("only root can mount a FUSE file system, with /dev/fuse")
    signals = set()

    def watch(nodes):
        """Which signals wait for rank 2, until it has gone."""
        end = harness.deadline(60)
        while not (job.tmp / "pid").exists():
            assert time.monotonic() < end, nodes.said()
            select.select([], [], [], 0.02)
        pid = int((job.tmp / "pid").read_text())
        while True:
            try:
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                return
            if re.search(r"^State:\s+[ZX]", status, re.M):
                return
            pending = int(re.search(r"^ShdPnd:\s+(\w+)", status, re.M)[1], 16)
            signals.update(s for s in signal.valid_signals() if pending >> (s - 1) & 1)
            select.select([], [], [], 0.02)

    stack, gaps = native_stack(hangs(job, "fuse", watch))
    assert stack is None and len(gaps) == 1 and "which must not be disturbed" in gaps[0], gaps
    assert signal.SIGABRT not in signals, "it would only wait for it: in a wait that none but SIGKILL ends"


def test_without_eu_stack_the_file_says_so(job):
    (job.tmp / "bin").mkdir()
    stack, gaps = native_stack(hangs(job, "gil", PATH=str(job.tmp / "bin"), PYTHON_EXEC=sys.executable))
    assert stack is None and gaps == [NO_EU_STACK], gaps
