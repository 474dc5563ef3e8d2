"""`muster logs`: the logs of real runs, and of folders that are made up."""
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import tempfile

import pytest
from harness import MUSTER, Agent, free_port
from test_operate import ask

SH = ("--no-python", "/bin/sh", "-c")
NS = 10**9
T0 = 1_795_441_116 * NS


def put(run, generation, node, rank, stream, lines):
    """A log of (seconds or None, text); and its times, if any is given."""
    folder = run / generation / node / str(rank)
    folder.mkdir(parents=True, exist_ok=True)
    at, times = 0, b""
    for seconds, text in lines:
        if seconds is not None:
            times += struct.pack("<QQ", at, T0 + int(seconds * NS))
        at += len(text.encode())
    (folder / f"{stream}.log").write_bytes("".join(text for _, text in lines).encode())
    if times:
        (folder / f".{stream}.times").write_bytes(times)
    return folder


def shown(job, *words, code=0):
    got, out, err = ask(job, "logs", *words)
    assert got == code, (out, err)
    return out if code == 0 else err


# --- real runs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["-t3", "-r3"])
def test_lines_come_in_the_order_in_which_they_were_written(job, tmp_path, how):
    """Two ranks take turns: each waits until the time of the other's line is noted."""
    path = tmp_path / "turns.py"
    path.write_text("""
import glob, os, threading
rank = int(os.environ["RANK"])
for i in range(40):
    while sum(os.path.getsize(name) for name in glob.glob("logs/*/latest/*/*/.std*.times")) < 16 * i:
        threading.Event().wait(0.001)
    if i % 2 == rank:
        threading.Event().wait(0.003)
        os.write(1 + i // 2 % 2, f"line {i}\\n".encode())
""")
    code, _, err = job.run("--nproc-per-node=2", "--log-dir=logs", how, "--rdzv-id=turns", path)
    assert code == 0, err
    lines = shown(job).splitlines()
    assert lines == [f"[rank{i % 2}]: line {i}" for i in range(40)]
    assert shown(job, "turns", "--rank", "1", "--stdout") == "".join(f"line {i}\n" for i in range(1, 40, 4))
    assert shown(job, "-n", 3).splitlines() == lines[-3:]
    stamps = [line.split()[0] for line in shown(job, "--timestamps").splitlines()]
    assert len(stamps) == 40 and stamps == sorted(stamps), stamps
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", s) for s in stamps), stamps


def follow(job, *words, env=None):
    agent = Agent("logs", [MUSTER, "logs", "-f", *map(str, words)], job.env("logs", env), job.tmp)
    job.agents.append(agent)
    return agent


def test_it_follows_across_a_restart_until_the_run_ends(job):
    os.mkfifo(job.tmp / "first")
    a = job.agent("a", "--nproc-per-node=2", "--max-restarts=1", "--log-dir=logs", "-t3", "--rdzv-id=digits", "--no-python",
                  job.worker, "out=begin\\n", "start", "count=0", "gate=first", "count=0", "out=failing\\n", "count=0",
                  "exit=1", "go", "out=no newline")
    job.events.wait("start", 2)
    logs = follow(job)
    assert logs.out.until(lambda: len(logs.out.lines) >= 2, 30), logs.said()
    gate = os.open(job.tmp / "first", os.O_RDWR)
    job.events.wait("start", 4)
    assert logs.out.until(lambda: len(logs.out.lines) >= 6, 30), logs.output()
    assert logs.process.poll() is None
    os.close(gate)
    job.go()
    assert a.wait() == 0, a.said()
    code, out, err = logs.finish()
    assert (code, err) == (0, "")
    first, second = out.split("-- 1.2 --\n")
    assert set(first.splitlines()) >= {"[rank0]: begin", "[rank1]: begin"} and "failing" in first, out
    assert sorted(second.splitlines()) == ["[rank0]: begin", "[rank0]: no newline", "[rank1]: begin", "[rank1]: no newline"], out
    # what has ended is shown, and not waited for
    assert follow(job).finish()[:2] == (0, shown(job))


def test_both_nodes_of_a_shared_folder(job, tmp_path):
    agents = job.pair(f"--log-dir={tmp_path}/logs", "-t1", nnodes="2", worker=("out=hello\\n", "start", "go"))
    job.events.wait("start", 4)
    elsewhere = follow(job, tmp_path / "logs" / "e2e", env={"MUSTER_RUN_DIR": tmp_path / "other"})
    assert elsewhere.out.until(lambda: len(elsewhere.out.lines) == 4, 30), elsewhere.said()
    job.go()
    assert elsewhere.finish()[0] == 0  # a machine without an agent of the run
    for agent in agents:
        assert agent.wait() == 0, agent.said()
    assert len(list((tmp_path / "logs" / "e2e" / "1.1").iterdir())) == 2
    every = [f"[rank{rank}]: hello" for rank in range(4)]
    for words in ([], ["e2e"], ["--log-dir", tmp_path / "logs"], [tmp_path / "logs" / "e2e" / "latest"]):
        assert sorted(shown(job, *words).splitlines()) == every, words


def test_folders_of_nodes_with_disks_of_their_own(job, tmp_path):
    endpoint = f"127.0.0.1:{free_port()}"
    agents = [job.agent(tag, "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", "--rdzv-id=own",
                        f"--log-dir={tmp_path}/{tag}", "-t1", *SH, "echo $RANK") for tag in "ab"]
    assert [agent.wait() for agent in agents] == [0, 0]
    assert len(shown(job, tmp_path / "a").splitlines()) == 1
    both = ["[rank0]: 0", "[rank1]: 1"]
    assert sorted(shown(job, tmp_path / "a", tmp_path / "b" / "own").splitlines()) == both
    assert sorted(shown(job, "-f", tmp_path / "a", tmp_path / "b").splitlines()) == both


def completed(job):
    """The runs that a shell offers behind "muster logs"."""
    return subprocess.run([MUSTER, "completion", "offer", "bash", "muster", "logs", ""], env=job.env("x"),
                          capture_output=True, text=True, check=True).stdout.split()[1:]


def test_a_run_without_logs_says_what_to_do(job):
    assert "no job of yours is known" in shown(job, code=1)
    assert job.run("--rdzv-id=quiet", *SH, "echo hello")[0] == 0
    assert "'quiet' keeps no logs: start it with --log-dir=DIR and -r 3" in shown(job, code=1)
    assert completed(job) == ["quiet"]
    for name in "here.4711.0", "4711.0", "here.4711":  # as in a step or a batch script of Slurm
        assert job.run(f"--rdzv-id={name}", *SH, "echo hello")[0] == 0
        assert "its output is in slurm-4711.out" in shown(job, name, code=1)
    assert job.run("--rdzv-id=quiet", "--log-dir=logs", *SH, "echo hello")[0] == 0
    assert "it is written there with -r 3" in shown(job, code=1)
    assert "it is written there with -r 3" in shown(job, "-f", code=1)
    assert job.run("--rdzv-id=quiet", "-t3", *SH, "echo hello")[0] == 0  # in a private folder
    assert shown(job) == "[rank0]: hello\n"


def test_ids_and_their_beginnings(job):
    for name in ("train-a", "train-b", "other"):
        assert job.run(f"--rdzv-id={name}", "--log-dir=logs", "-t1", *SH, f"echo {name}")[0] == 0
    assert shown(job) == "[rank0]: other\n"
    assert shown(job, "train-a") == "[rank0]: train-a\n"
    assert shown(job, "oth") == "[rank0]: other\n"
    assert shown(job, "train", code=2).splitlines() == [
        "muster logs: several jobs have an id that begins with 'train'; choose one:",
        "  muster logs train-b", "  muster logs train-a"]
    assert "several jobs in logs begin" in shown(job, "--log-dir=logs", "train", code=2)
    assert "no job 'x' is known" in shown(job, "x", code=1)
    assert job.run("--rdzv-id=train-a", "--log-dir=logs", "-t1", *SH, "echo again")[0] == 0
    assert shown(job, "train-a") == "[rank0]: again\n"
    assert shown(job, "train-a.2") == "[rank0]: again\n"
    assert shown(job, "--log-dir=logs", "train-a") == "[rank0]: train-a\n"
    waits = job.agent("w", "--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=waits", *SH, "true")
    waits.wait_said("waiting for nodes")
    waits.signal(signal.SIGINT)
    assert waits.wait() == 128 + signal.SIGINT
    assert shown(job) == "[rank0]: again\n", "the newest run of which a worker ran"
    assert "no worker of the run 'waits' ran on this machine" in shown(job, "waits", code=1)
    assert "stopped by SIGINT" in ask(job, "status", "waits")[1]
    assert job.run("--rdzv-id=quiet", *SH, "true")[0] == 0
    assert completed(job) == ["train-a", "other", "train-b"]  # quiet has no logs


# --- folders that are made up ----------------------------------------------------------------------------------------


def test_generations_ranks_streams_and_tail(job, tmp_path):
    run = tmp_path / "logs" / "made"
    put(run, "1.9", "a", 0, "stdout", [(1, "one\n"), (3, "three\n")])
    put(run, "1.9", "b", 10, "stderr", [(2, "two\nstill two\n")])
    put(run, "1.9", "b", 2, "stdout", [(None, "no time\n")])
    put(run, "1.10", "a", 0, "stdout", [(0, "\x1b[31mred\x1b[0m\n"), (5, "rest")])
    whole = ["[rank2]: no time", "[rank0]: one", "[rank10]: two", "[rank10]: still two", "[rank0]: three", "-- 1.10 --", "[rank0]: \x1b[31mred\x1b[0m",
             "[rank0]: rest"]
    assert shown(job, run).splitlines() == whole
    assert shown(job, run, "-n", 4).splitlines() == whole[3:]
    assert shown(job, run, "-n0") == ""
    assert shown(job, run, "--tail=all", "--prefix=never").splitlines() == [
        re.sub(r"^\[rank\d+\]: ", "", line) for line in whole if not line.startswith("--")]
    assert shown(job, run, "--rank", "0") == "one\nthree\n\x1b[31mred\x1b[0m\nrest"
    assert shown(job, "--rank=2-9", run) == "[rank2]: no time\n"
    assert shown(job, run, "--stderr") == "[rank10]: two\n[rank10]: still two\n"
    assert shown(job, run, "--generation=latest").splitlines() == whole[6:]
    assert shown(job, run / "1.9").splitlines() == whole[:5]
    assert shown(job, run, "--timestamps", "--rank=2,10").splitlines()[:2] == [
        "-" + " " * 27 + "[rank2]: no time", "2026-11-23T13:38:38.000000Z [rank10]: two"]
    assert "ranks and streams" in shown(job, run, "--rank=7", code=1)
    assert "0-3,7" in shown(job, run, "--rank=x", code=2)
    for words in (["--tail=-1"], ["--generation=x"], ["--rank=1,x"], ["--prefix=x"]):
        assert shown(job, *words, code=2).startswith("muster logs: "), words


def test_a_reader_that_leaves_and_a_full_disk(job, tmp_path):
    run = tmp_path / "run"
    put(run, "1.1", "a", 0, "stdout", [(None, "line\n" * 1_000_000)])
    done = subprocess.run(["/bin/bash", "-c", '"$0" logs "$1" | head -n 1; echo "${PIPESTATUS[0]}"', MUSTER, run],
                          env=job.env("x"), capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[rank0]: line\n0\n", "")
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run([MUSTER, "logs", run], env=job.env("x"), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1 and "No space left on device" in done.stderr


@pytest.mark.parametrize("name", ["stdout.log", ".stdout.times"])
def test_a_device_in_a_folder_is_not_read_for_ever(job, tmp_path, name):
    folder = put(tmp_path / "run", "1.1", "a", 0, "stdout", [(1, "line\n")])
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    put(tmp_path / "run", "1.1", "a", 1, "stdout", [(2, "other\n")])
    lines = shown(job, tmp_path / "run").splitlines()
    assert sorted(lines) == (["[rank1]: other"] if name == "stdout.log" else ["[rank0]: line", "[rank1]: other"])


def test_what_happens_to_files_while_it_follows(job, tmp_path):
    run = tmp_path / "run"
    a = put(run, "1.1", "a", 0, "stdout", [(1, "a long first line\n")])
    b = put(run, "1.1", "b", 1, "stdout", [(1, "b1\n")])
    logs = follow(job, run, "-n1")
    lines = logs.out.lines

    def expect(*texts):
        assert logs.out.until(lambda: lines == list(texts), 30), lines

    expect("[rank1]: b1")
    (a / "stdout.log").write_text("new\n")  # it was emptied: begin again
    expect("[rank1]: b1", "[rank0]: new")
    (b / "stdout.log").unlink()
    with open(a / "stdout.log", "a", encoding="ascii") as f:
        f.write("50%\r")
        f.flush()
        assert logs.out.until(lambda: bytes(logs.out.raw).endswith(b"[rank0]: 50%\r"), 30), logs.out.raw
        f.write("100%\nunfini")
        f.flush()
        expect("[rank1]: b1", "[rank0]: new", "[rank0]: 50%\r100%")
        put(run, "1.2", "c", 2, "stdout", [(1, "c1\n")])
        expect("[rank1]: b1", "[rank0]: new", "[rank0]: 50%\r100%", "[rank0]: unfini", "-- 1.2 --", "[rank2]: c1")
    logs.signal(signal.SIGINT)
    assert logs.wait() == 130


def test_a_log_is_emptied_in_the_middle_of_a_line(job, tmp_path):
    run = tmp_path / "run"
    a = put(run, "1.1", "a", 0, "stdout", [(1, "a1\n")])
    b = put(run, "1.1", "b", 1, "stdout", [(2, "b1\n")])
    logs = follow(job, run)
    lines = logs.out.lines
    assert logs.out.until(lambda: lines == ["[rank0]: a1", "[rank1]: b1"], 30), lines
    with open(a / "stdout.log", "a", encoding="ascii") as f:
        f.write("x" * 60000)
    with open(b / "stdout.log", "a", encoding="ascii") as f:
        f.write("b2\n")
    assert logs.out.until(lambda: "[rank1]: b2" in lines, 30), lines
    (a / "stdout.log").write_text("")
    put(run, "1.2", "c", 2, "stdout", [(3, "c1\n")])  # so the rest of 1.1 is shown
    assert logs.out.until(lambda: lines[-1] == "[rank2]: c1", 30), lines[-1][:200]
    logs.signal(signal.SIGINT)
    assert logs.wait() == 130


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run muster as another user")
def test_logs_that_another_user_may_not_read(job):
    """They are there, and what would let others read them is said."""
    with tempfile.TemporaryDirectory(prefix="muster-logs-") as place:  # pytest's own folders are closed to others
        logs = pathlib.Path(place, "logs")
        os.chmod(place, 0o755)
        logs.mkdir()
        shutil.copy(MUSTER, f"{place}/muster")
        for name, mode in (("mine", 0o700), ("open", 0o755)):
            put(logs / name, "1.1", "h", 0, "stdout", [(None, "hello\n")])
            (logs / name / ".muster-run").touch()
            (logs / name).chmod(mode)
        def other(*words):
            stranger = ["setpriv", "--reuid=4321", "--regid=4321", "--clear-groups"]
            done = subprocess.run([*stranger, f"{place}/muster", "logs", f"--log-dir={logs}", *words], capture_output=True,
                                  text=True, env={"MUSTER_RUN_DIR": f"{place}/run"})
            return done.returncode, done.stdout + done.stderr
        assert other("open")[0] == 0 and "hello" in other("open")[1]
        assert other("mine") == (1, f'muster: error: {logs} holds no logs of a run "mine" that you may read; muster run '
                                    "--log-mode=0644 lets other users read them\n")
        assert other("x") == (1, f'muster: error: {logs} holds no logs of a run "x"\n')
