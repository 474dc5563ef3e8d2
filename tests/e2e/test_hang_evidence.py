"""What is said and kept of a job that hangs: where each rank is, and which one the others wait for."""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from harness import HERE, SLOWER, free_port
from test_run import on_small_disk

# Ranks compute and sleep by turns, so that they are seen to move; then one of them reads from a FIFO that nobody writes
# to, and the others wait. A file in the folder lets all of them end. Later groups end at once.
TRAIN = """
import os, select, socket, sys, threading, time
rank, folder = int(os.environ["RANK"]), sys.argv[1]
odd = [int(r) for r in sys.argv[2].split(",") if r]

def busy(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass

def load():
    with open(os.path.join(folder, "fifo"), "rb", 0) as f:
        f.read(1)

def debugged():
    import pydevd
    pydevd._do_wait_suspend(load)

def backward():
    with open(os.path.join(folder, "gate"), "rb", 0) as f:
        f.read(1)

def record():
    # As PyTorch's monitor thread, which looks once a second.
    pipe, dump = (os.environ[name] + str(rank) for name in ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DUMP_TEMP_FILE"))
    os.mkfifo(pipe + ".pipe")
    with open(pipe + ".pipe", "rb", 0) as f:
        f.read(1)
    select.select([], [], [], 1)
    with open(dump, "wb") as f:
        f.write(b"pickle")

def connect():
    if "store" not in sys.argv or rank in odd:
        return None
    return socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))

def train():
    store = connect()
    if os.environ["MUSTER_GENERATION"] != "1.1":
        return
    if "recorder" in sys.argv:
        threading.Thread(target=record, daemon=True).start()
    for _ in range(8):
        busy(0.02)
        select.select([], [], [], 0.4)
    print("waits now", flush=True)
    if rank in odd:
        (debugged if "debugger" in sys.argv else load)()
    else:
        backward()

train()
"""
LINES = {name: 1 + TRAIN[:TRAIN.index(f'"{where}"')].count("\n")
         for name, where in (("load", "fifo"), ("backward", "gate"))}


LINE = rf"ranks 0-1,3 wait in backward \(train.py:{LINES['backward']}\); rank 2 \(node \S+, pid (\d+)\): " \
       rf"[^;]* in load \(train.py:{LINES['load']}\)"


class Hung:
    """Two agents of two workers each; the first one leads."""

    def __init__(self, job, *options, odd="2", words=(), **more):
        self.folder, self.ends = job.tmp / "train", []
        self.folder.mkdir()
        for name in ("fifo", "gate"):
            os.mkfifo(self.folder / name)
        script = job.tmp / "train.py"
        script.write_text(TRAIN)
        self.log = job.tmp / "timeline"
        endpoint = f"127.0.0.1:{free_port()}"
        self.agents = [job.agent(tag, "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=e2e",
                                 f"--rdzv-endpoint={endpoint}", f"--rdzv-conf=is_host={int(tag == 'a')}",
                                 f"--event-log={self.log}", *options, script, self.folder, odd, *words, **more)
                       for tag in "ab"]

    def said(self):
        return "\n".join(a.said() for a in self.agents)

    def says(self, pattern):
        return self.agents[0].wait_said(pattern, 120 * SLOWER)

    def release(self):
        """The ranks of the first group go on, also those that come later."""
        for name in ("fifo", "gate"):
            self.ends.append(os.open(self.folder / name, os.O_RDWR))
            os.write(self.ends[-1], b"0123")

    def all_wait(self):
        for agent in self.agents:
            both = agent.out.until(lambda agent=agent: agent.output().count("waits now") == 2, 120 * SLOWER)
            assert both, self.said()

    def finish(self):
        statuses = [a.finish(120 * SLOWER)[0] for a in self.agents]
        for end in self.ends:
            os.close(end)
        assert statuses == [0, 0], self.said()

    def events(self):
        return [json.loads(line)["event"] for line in self.log.read_text().splitlines()]

    def hang(self):
        lines = map(json.loads, self.log.read_text().splitlines())
        [entry] = [entry for entry in lines if entry["event"] == "hang"]
        return entry


def keep(job):
    """Otherwise a report leaves a temporary folder."""
    return ["--log-dir", job.tmp / "logs"]


# A slow start can be quiet, too: it is the report with this line that counts.
REPORT = r"the job is quiet: [^\n]*" + LINE + r"[^\n]*\n[^\n]*what each rank did is in (\S+/hang.txt) \(node \S+\)\n"


def read(path, logs):
    """What is in the files of a report."""
    path = pathlib.Path(path)
    assert path.is_relative_to(logs), path
    return path.read_text(), json.loads((path.parent / "hang.json").read_text())


def test_a_hang_says_where_each_rank_is_and_starts_again(job):
    logs = job.tmp / "logs"
    hung = Hung(job, "--max-restarts=1", "--hang-action=restart", "--hang-report=3", "--hang-still=8",
                "--evidence-timeout=60", "--log-dir", logs)
    report = hung.says(REPORT)
    pid, (text, doc) = report[1], read(report[2], logs)
    hung.finish()
    assert re.search(LINE, hung.hang()["cause"]), hung.hang()
    assert re.search(r"the job hangs: [^\n]*" + LINE + r"[^\n]*restart 1 of 1", hung.said()), hung.said()
    assert len(list(logs.glob("e2e/hangs/*-1.1/hang.json"))) >= 2, "the report, and the verdict"
    # The files have it all.
    [suspect] = doc["suspects"]
    assert (suspect["rank"], suspect["pid"], suspect["reason"]) == (2, int(pid), "elsewhere")
    assert doc["generation"] == "1.1" and doc["job"] == "e2e"
    assert {w["rank"] for n in doc["nodes"] for w in n["evidence"]["workers"]} == {0, 1, 2, 3}
    assert "job e2e, 20" in text and f"suspect: rank 2 (node {suspect['node']}, pid {pid})" in text
    assert re.search(r"load +/\S+/train.py:" + str(LINES["load"]), text), text


def test_ranks_that_go_on_are_left_alone(job):
    hung = Hung(job, *keep(job), "--hang-action=report", "--hang-report=3", "--hang-still=6",
                "--evidence-timeout=60")
    hung.says(r"the job hangs: [^\n]*--hang-still[^\n]*" + LINE + r"[^\n]*; nothing is stopped [(]--hang-action=report[)]\n")
    hung.release()
    hung.finish()
    assert re.search(LINE, hung.hang()["cause"]), hung.hang()
    assert hung.events().count("started") == 1, "nobody was stopped for it"


def test_a_rank_in_a_debugger_is_left_alone(job):
    """As one that debugpy has stopped."""
    (job.tmp / "pydevd.py").write_text("def _do_wait_suspend(wait):\n    wait()\n")
    hung = Hung(job, *keep(job), "--max-restarts=1", "--hang-action=restart", "--hang-report=0", "--hang-still=6", "--evidence-timeout=60",
                words=["debugger"])
    hung.says(r"the job hangs: [^\n]*--hang-still[^\n]*rank 2 is in a debugger, so nothing is stopped")
    hung.release()
    hung.finish()
    assert "rank 2 is in a debugger" in hung.hang()["cause"], hung.hang()
    assert hung.events().count("started") == 1, "nobody was stopped for it"


def test_the_files_of_nccls_recorder_are_there_before_the_job_is_stopped(job):
    logs = job.tmp / "logs"
    hung = Hung(job, "--max-restarts=1", "--hang-action=restart", "--hang-report=0", "--hang-still=6", "--evidence-timeout=60", "--log-dir", logs,
                words=["recorder"], env={"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{job.tmp}/pipe_",
                                         "TORCH_FR_DUMP_TEMP_FILE": f"{job.tmp}/trace_"})
    hung.finish()
    kept = sorted(logs.glob("e2e/1.1/*/nccl_trace_rank_*"), key=lambda path: path.name)
    assert [path.name[-1] for path in kept] == list("0123"), hung.said()
    assert {path.read_bytes() for path in kept} == {b"pickle"}
    [text] = [path.read_text() for path in logs.glob("e2e/hangs/*/hang.txt")]
    assert f"NCCL's recorder has written {job.tmp}/trace_2, 6 bytes" in text, text


def test_without_a_log_folder_it_is_kept_in_a_temporary_one(job):
    temp = job.tmp / "temp"
    temp.mkdir()
    hung = Hung(job, "--hang-report=3", "--hang-still=0", "--evidence-timeout=60", env={"TMPDIR": str(temp)})
    report = hung.says(REPORT)
    hung.release()
    hung.finish()
    _, doc = read(report[2], temp)
    assert [s["rank"] for s in doc["suspects"]] == [2]


def test_no_files_are_made_where_none_are_wanted(job):
    hung = Hung(job, "--hang-report=3", "--hang-still=0", "--evidence-timeout=60", "--log-dir=/dev/null")
    hung.says(r"the job is quiet: [^\n]*" + LINE)
    hung.release()
    hung.finish()
    assert "what each rank did" not in hung.said(), hung.said()


def test_a_full_disk_costs_the_files_only(job):
    logs = job.tmp / "logs"
    full = on_small_disk(logs, "size=8k")
    hung = Hung(job, "--max-restarts=1", "--hang-action=restart", "--hang-report=3", "--hang-still=8", "--evidence-timeout=60",
                "--log-dir", logs, program=full)
    hung.says(r"the job is quiet: [^\n]*" + LINE)
    hung.finish()
    assert re.search(LINE, hung.hang()["cause"]), hung.hang()
    assert len(re.findall("cannot save what each rank did: .*No space left on device", hung.said())) == 1, hung.said()


@contextlib.contextmanager
def dead_disk(agent, folder):
    """Of this agent, and all that it starts: it has a mount namespace of its own."""
    words = ["nsenter", f"--target={agent.pid}", "--mount", "--", sys.executable, HERE / "dead_disk.py", folder]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout.readline() == b"dead\n"
            yield
        finally:
            server.stdin.close()


needs_fuse = pytest.mark.skipif(os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK),
                                reason="only root can mount a FUSE file system, with /dev/fuse")


@needs_fuse
def test_a_dead_disk_costs_the_files_only(job):
    """Who writes there can't even be killed."""
    logs = job.tmp / "logs"
    hung = Hung(job, "--max-restarts=1", "--hang-action=restart", "--hang-report=3", "--hang-still=8", "--evidence-timeout=20", "--log-dir",
                logs, prefix=["unshare", "--mount"])
    hung.all_wait()
    folder = logs / "e2e" / "hangs"
    folder.mkdir(exist_ok=True)
    before = set(folder.iterdir())  # a slow start can be quiet, too
    with dead_disk(hung.agents[0], folder):
        hung.finish()  # nobody waits for who writes there
    assert re.search(LINE, hung.hang()["cause"]), hung.hang()
    assert hung.events().count("started") == 2, hung.said()
    assert len(re.findall("cannot save what each rank did: the disk does not answer", hung.said())) == 1, hung.said()
    assert set(folder.iterdir()) == before, "no part of a file"


@needs_fuse
@pytest.mark.slow
def test_a_dead_log_folder_does_not_hold_up_the_end(job):
    """Who reads logs there, for a report, can't be killed either; only one does."""
    logs = job.tmp / "logs"
    hung = Hung(job, "--max-restarts=1", "--hang-action=restart", "--hang-report=3", "--hang-still=8", "--evidence-timeout=5", "--log-dir", logs,
                prefix=["unshare", "--mount"])
    hung.all_wait()
    with dead_disk(hung.agents[0], logs):
        hung.finish()
    assert re.search(LINE, hung.hang()["cause"]), hung.hang()
    assert hung.events().count("started") == 2 and "cannot be killed" not in hung.said(), hung.said()


def test_an_agent_that_does_not_answer_costs_its_time_only(job):
    """It is stopped before it has said that its workers wait: so they count as moving, and are not more than half."""
    hung = Hung(job, *keep(job), "--hang-report=2", "--hang-still=0", "--evidence-timeout=1", "--lease=300",
                "--heartbeat-interval=60")
    hung.all_wait()
    agent = hung.agents[1].agent_pid()
    os.kill(agent, signal.SIGSTOP)
    try:
        hung.says(r"the job is quiet: [^\n]*no evidence from ranks 2-3 \(node \S+: it did not answer in time\)")
    finally:
        os.kill(agent, signal.SIGCONT)
    hung.release()
    hung.finish()


def test_without_time_for_evidence_the_signs_are_said(job):
    hung = Hung(job, "--hang-action=report", "--hang-report=3", "--hang-still=0", "--evidence-timeout=0")
    said = hung.says(r"the job is quiet: [^\n]*")[0]
    hung.release()
    hung.finish()
    assert "train.py" not in said and "what each rank did" not in hung.said(), hung.said()


def test_a_rank_that_is_not_at_the_store_is_named(job):
    hung = Hung(job, *keep(job), "--hang-report=3", "--hang-still=0", "--evidence-timeout=60", words=["store"])
    hung.says(r"the job is quiet: [^\n]*rank 2 \(node \S+, pid \d+\): has no connection to the store")
    hung.release()
    hung.finish()
