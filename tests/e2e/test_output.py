"""The log writer: when it writes much, hangs or dies, no lease and no worker is lost, and the end is not delayed for
long."""
import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from harness import MUSTER, SLOWER, Job, alive, children, deadline, kill

SHORT_LEASE = ["--lease=1", "--heartbeat-interval=0.2"]
SH = ("--no-python", "/bin/sh", "-c")


def writers(agent):
    """The log writers of a running agent, alive or not."""
    found = []
    for pid in children(agent.agent_pid()):
        with contextlib.suppress(OSError):
            if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "muster-logs":
                found.append(pid)
    return found


def state(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    return None


def log_files(root, name="stdout.log"):
    return sorted(p for p in root.rglob(name) if "latest" not in p.parts)


def test_eight_writers_beside_busy_loops_cost_no_lease(job, tmp_path):
    """They write as fast as they can, to files and to the console: no lease is lost, and no output is missing."""
    lines, line = 300000, "0123456789" * 8
    busy = [subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"]) for _ in range(2)]
    try:
        with open(tmp_path / "console", "wb") as console:
            agent = job.agent("a", "--nproc-per-node=8", *SHORT_LEASE, "--log-dir", tmp_path / "logs", "-t3", *SH,
                              f"yes {line} | head -n {lines}", stdout=console)
            code, _, err = agent.finish(300)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert code == 0, err
    assert "lease" not in err and "group" not in err, err
    assert [p.stat().st_size for p in log_files(tmp_path / "logs")] == [lines * (len(line) + 1)] * 8
    # A worker that gets no CPU for 0.2 s within a line counts as quiet: then that line can come in two pieces.
    shown, prefix = [0] * 8, "[default0]:"
    with open(tmp_path / "console", encoding="ascii") as console:
        for text in console:
            rank, piece = int(text[len(prefix) - 3]), text[len(prefix):-1]
            at = shown[rank] % len(line)
            assert len(piece) <= len(line) and (line + line)[at:at + len(piece)] == piece, text
            shown[rank] += len(piece)
    assert shown == [lines * len(line)] * 8


def test_a_killed_writer_is_replaced_and_no_worker_dies_of_it(job, tmp_path):
    os.mkfifo(job.tmp / "more")
    agent = job.agent("a", "--log-dir", tmp_path / "logs", "-t1", "--no-python", job.worker, "out=before\\n", "start",
                      "gate=more", "out=after\\n", "go")
    job.events.wait("start", 1)
    assert agent.out.until(lambda: b"before" in agent.out.raw, 10), agent.said()
    first, = writers(agent)
    kill(first)
    agent.wait_said("log writer died: a new one is started")
    (job.tmp / "more").write_text("")
    assert agent.out.until(lambda: b"after" in agent.out.raw, 10), agent.said()
    assert first not in writers(agent)
    job.go()
    code, out, err = agent.finish()
    assert code == 0, err
    assert out == "[default0]:before\n[default0]:after\n"
    assert [p.read_text() for p in log_files(tmp_path / "logs")] == ["before\nafter\n"]
    assert err.count("log writer") == 1, err


def test_a_frozen_writer_is_said_and_does_not_hold_up_the_end(job, tmp_path):
    agent = job.agent("a", *SHORT_LEASE, "--log-dir", tmp_path / "logs", "-t1", "--no-python", job.worker,
                      "out=before\\n", "start", "go")
    job.events.wait("start", 1)
    assert agent.out.until(lambda: b"before" in agent.out.raw, 10), agent.said()
    writer, = writers(agent)
    os.kill(writer, signal.SIGSTOP)
    agent.wait_said("the log writer does not answer", 30)
    os.kill(writer, signal.SIGCONT)
    agent.wait_said("the log writer answers again", 30)
    os.kill(writer, signal.SIGSTOP)
    job.go()
    code, _, err = agent.finish(30)
    assert code == 0, err
    assert "given up" in err and "lease" not in err, err
    assert not alive(writer)


def test_a_worker_that_says_nothing_has_no_writer(job):
    agent = job.agent("a", "--no-python", job.worker, "start", "go")
    job.events.wait("start", 1)
    assert writers(agent) == []
    job.go()
    assert agent.wait() == 0


@pytest.fixture
def disk(tmp_path):
    """A separate file system that can be frozen: a process that writes to it then waits in the kernel, and can't be
    killed."""
    image, path = tmp_path / "image", tmp_path / "disk"
    path.mkdir()
    with open(image, "wb") as f:
        f.truncate(32 << 20)
    for words in (["mkfs.ext4", "-q", "-F", image], ["mount", "-o", "loop", image, path]):
        try:
            if subprocess.run(words, capture_output=True).returncode != 0:
                pytest.skip(f"needs {words[0]}")
        except FileNotFoundError:
            pytest.skip(f"needs {words[0]}")
    frozen = []

    def freeze(on):
        if on != bool(frozen):
            subprocess.run(["fsfreeze", "--freeze" if on else "--unfreeze", path], check=True)
            frozen[:] = [1] * on
    yield path, freeze
    freeze(False)
    end = deadline(10)
    while subprocess.run(["umount", path], capture_output=True).returncode != 0 and time.monotonic() < end:
        subprocess.run(["umount", "--lazy", path], capture_output=True)


def wait_blocked(pid):
    """Waits until the process waits in the kernel."""
    end = deadline(20)
    while state(pid) != "D":
        assert time.monotonic() < end, state(pid)
        os.sched_yield()


def wait_dead(pid):
    end = deadline(20)
    while alive(pid):
        assert time.monotonic() < end
        os.sched_yield()


def test_a_disk_that_hangs_for_a_while_costs_nothing(job, tmp_path, disk):
    path, freeze = disk
    agent = job.agent("a", *SHORT_LEASE, "--log-dir", path / "logs", "-t1", *SH,
                      'echo before; echo "start x=1" > $E2E_EVENTS; read x < $E2E_GO; echo after')
    job.events.wait("start", 1)
    assert agent.out.until(lambda: b"before" in agent.out.raw, 10), agent.said()
    freeze(True)
    writer, = writers(agent)
    with open(job.tmp / "go", "w"):
        pass
    wait_blocked(writer)
    freeze(False)
    code, out, err = agent.finish(30)
    assert code == 0, err
    assert "after\n" in out and [p.read_text() for p in log_files(path)] == ["before\nafter\n"], err
    assert "lease" not in err and "given up" not in err, err


def test_a_disk_that_hangs_for_good_holds_up_neither_lease_nor_end(job, tmp_path, disk):
    """A process that is blocked in the kernel is left alone, and is gone when the disk comes back."""
    path, freeze = disk
    agent = job.agent("a", *SHORT_LEASE, "--log-dir", path / "logs", "-t1", *SH,
                      'echo before; echo "start x=1" > $E2E_EVENTS; read x < $E2E_GO; echo after; exit 3')
    job.events.wait("start", 1)
    assert agent.out.until(lambda: b"before" in agent.out.raw, 10), agent.said()
    writer, = writers(agent)
    freeze(True)
    at = time.monotonic()
    with open(job.tmp / "go", "w"):
        pass
    wait_blocked(writer)
    code = agent.wait(60)
    took = time.monotonic() - at
    assert took < 12 * SLOWER, took
    assert state(writer) == "D"
    freeze(False)  # only then our standard output and error reach their ends
    wait_dead(writer)
    _, _, err = agent.finish(10)
    assert code == 1 and "rank 0" in err and "exit code 3" in err, err
    assert "is given up" in err and "lease" not in err and "cannot be killed" not in err, err


def test_a_disk_that_hangs_at_the_start_costs_the_files(job, disk):
    path, freeze = disk
    freeze(True)
    agent = job.agent("a", *SHORT_LEASE, "--log-dir", path / "logs", "-r3", *SH, "echo word")
    code = agent.wait()
    freeze(False)  # until then the log writer can't die, and keeps the pipes open
    _, out, err = agent.finish()
    assert code == 0, err
    assert re.search("can't make the log folders below .*: its file system does not answer", err), err
    assert out == "[default0]:word\n"
    assert "lease" not in err, err


def test_the_verdict_is_seen_though_the_writer_is_blocked(job, tmp_path):
    agent = job.agent("a", "--log-dir", tmp_path / "logs", "-t1", "--no-python", job.worker, "out=x\\n", "start", "go",
                      "exit=7")
    job.events.wait("start", 1)
    assert agent.out.until(lambda: b"x" in agent.out.raw, 10), agent.said()
    os.kill(writers(agent)[0], signal.SIGSTOP)
    job.go()
    code, _, err = agent.finish(60)
    assert code == 1, err
    assert "ended with exit code 7" in err and "Root Cause" in err, err
    assert err.count("Root Cause") == 1, err


def full_pipe():
    """A full pipe that is not read, and whose size can't be increased: (its read end, its write end)."""
    ends = os.pipe()
    fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, 1 << 20)
    os.set_blocking(ends[1], False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(ends[1], b"x" * 4096)
    os.set_blocking(ends[1], True)
    return ends


def test_output_that_nobody_took_is_told_at_the_end(job):
    """The reader of standard output hangs: the job succeeds in time, and reports that output was not shown."""
    reader, pipe = full_pipe()
    try:
        agent = job.agent("a", *SH, "echo word", stdout=pipe)
        code, _, err = agent.finish(60)
    finally:
        os.close(reader)
        os.close(pipe)
    assert code == 0, err
    assert "the last 5 bytes of output were not shown" in err, err


def finishing(agent):
    """Whether it only waits for the writer: in poll(2) or ppoll(2), not in its loop."""
    for pid in children(agent.pid):
        with contextlib.suppress(OSError):
            return pathlib.Path(f"/proc/{pid}/syscall").read_text().split()[0] in ("7", "271", "73")
    return False


def test_a_writer_killed_at_the_very_end_is_told(job):
    """The writer has everything that the workers wrote, and has not shown it yet."""
    if not os.access("/proc/self/syscall", os.R_OK):
        pytest.skip("needs /proc/PID/syscall")
    reader, pipe = full_pipe()
    try:
        agent = job.agent("a", "--no-python", job.worker, "out=word\\n", "start", "go", stdout=pipe)
        job.events.wait("start", 1)
        end = deadline(30)
        while not writers(agent) and time.monotonic() < end:
            pass
        writer, = writers(agent)
        job.go()
        while not finishing(agent) and time.monotonic() < end:
            pass
        os.kill(writer, signal.SIGKILL)
        code, _, err = agent.finish(60)
    finally:
        os.close(reader)
        os.close(pipe)
    assert code == 0, err
    assert "the end of the workers' output may be lost" in err, err


def test_closed_standard_files_are_no_sockets(job):
    """Descriptors that the shell closed are not used for other files: no socket gets a number to which lines are
    written."""
    end = deadline(30)
    agent = job.agent("a", "--no-python", job.worker, "out=word\\n", "start", "go",
                      prefix=["/bin/sh", "-c", 'exec "$@" <&- >&-', "sh"])
    job.events.wait("start", 1)
    pids = [agent.pid, agent.agent_pid(), *writers(agent)]
    while len(pids) < 3 and time.monotonic() < end:
        pids = [agent.pid, agent.agent_pid(), *writers(agent)]
    assert {os.readlink(f"/proc/{pid}/fd/{fd}") for pid in pids for fd in (0, 1)} == {"/dev/null"}
    job.go()
    code, _, err = agent.finish()
    assert code == 0, err


def test_a_limit_of_file_sizes_ends_no_job(job, tmp_path):
    """Beyond it the kernel sends SIGXFSZ (setrlimit(2)): a part of the event log is missing, and that is reported."""
    code, _, err = job.run(f"--event-log={tmp_path / 'events.log'}", "--max-restarts=8", "--crash-loop=0", *SH, "exit 7",
                           prefix=["/bin/sh", "-c", 'ulimit -f 1; exec "$@"', "sh"])
    assert code == 1, err
    assert "no restart left of 8" in err, err


def test_a_writer_that_cannot_start_holds_up_nothing():
    """At the limit of processes: it is reported once, and the job continues to its end without a writer."""
    if os.getuid() != 0:
        pytest.skip("needs a user without processes")
    with tempfile.TemporaryDirectory() as folder, Job(f"{folder}/job") as job:
        for path in (folder, job.tmp):
            os.chmod(path, 0o777)
        binary = shutil.copy(MUSTER, folder)
        for most in range(2, 8):  # the first limit with which the agent can start, but no further process
            code, _, err = job.agent("a", f"--log-dir={folder}/job/logs", "-t3", "--no-python", "/bin/true",
                                     prefix=["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups",
                                             "prlimit", f"--nproc={most}"], program=[binary, "run"]).finish(60)
            if "cannot start the agent" not in err:
                break
    assert code == 1, err
    assert err.count("can't start the log writer") == 1, err
    assert "limit of processes" in err, err
