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
import tty

import pytest

from harness import MUSTER, SLOWER, Job, alive, children, command, deadline, kill

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
    path, = log_files(tmp_path / "logs")
    assert code == 1 and f"output of this attempt is no longer written to {path}\n" in err, err
    assert "given up" in err and "lease" not in err, err
    assert not alive(writer)


def test_files_of_a_writer_that_was_given_up_are_named_and_make_the_status_1(job, tmp_path):
    """The next group has files again."""
    os.mkfifo(job.tmp / "more")
    agent = job.agent("a", *SHORT_LEASE, "--log-dir", tmp_path / "logs", "-t1", "--nproc-per-node=2", "--max-restarts=1",
                      "--crash-loop=0", "--no-python", job.worker, "out=before\\n", "start", "count=0", "go", "rank=0",
                      "exit=0", "count=0", "gate=more", "count=0", "out=after\\n", "count=0", "exit=3")
    job.events.wait("start", 2)
    writer, = writers(agent)
    assert agent.out.until(lambda: agent.out.raw.count(b"before") == 2, 10), agent.said()
    os.kill(writer, signal.SIGSTOP)
    job.go()
    agent.wait_said("output of this attempt is no longer written to 2 log files: ", 30)
    (job.tmp / "more").write_text("")
    code, out, err = agent.finish(30)
    assert code == 1 and err.count("is given up") == 1, err
    assert out.count("before") == 4 and out.count("after") == 1, out
    assert sorted(p.read_text() for p in log_files(tmp_path / "logs")) == ["before\n"] * 4


def test_a_worker_that_writes_nothing_has_a_writer(job):
    agent = job.agent("a", "--no-python", job.worker, "start", "go")
    job.events.wait("start", 1)
    assert len(writers(agent)) == 1
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


def writing(agent):
    """Waits until the job is over and the agent waits for a reader: its workers are gone, the writer is there."""
    end = deadline(60)
    while not (finishing(agent) and writers(agent)):
        assert agent.process.poll() is None and time.monotonic() < end, agent.said()


def read_bytes(pid):
    """How many bytes the process has read so far."""
    return int(re.search(r"rchar: (\d+)", pathlib.Path(f"/proc/{pid}/io").read_text())[1])


def memory(pid):
    """Its resident bytes."""
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def numbered(rank_count, lines):
    """A shell's words for workers that write numbered lines."""
    return f"--nproc-per-node={rank_count}", *SH, f'seq -f "$RANK %.0f of the lines that a worker writes" {lines}'


def check_numbered(text, rank_count, lines):
    """Each rank's lines are all there, whole and in order."""
    last = [0] * rank_count
    for line in text.splitlines():
        words = line.split()
        assert words[2:] == "of the lines that a worker writes".split(), line
        rank = int(words[0])
        last[rank] += 1
        assert int(words[1]) == last[rank], line
    assert last == [lines] * rank_count


def test_a_reader_that_pauses_at_the_end_gets_all(job):
    """It reads nothing before the workers have ended and the launcher only waits for it."""
    reader, pipe = os.pipe()
    agent = job.agent("a", *numbered(8, 5000), stdout=pipe)
    os.close(pipe)
    writing(agent)
    with pytest.raises(subprocess.TimeoutExpired):
        agent.process.wait(7)  # it waits for its reader
    with os.fdopen(reader) as out:
        text = out.read()
    code, _, err = agent.finish()
    assert code == 0 and "lost" not in err, err
    check_numbered(text, 8, 5000)


def test_more_than_fits_into_memory_waits_in_a_file(job, tmp_path):
    """The file has no name, is in TMPDIR, and has what is above 8 MiB. Leases are kept."""
    spools = tmp_path / "spools"
    spools.mkdir()
    reader, pipe = os.pipe()
    agent = job.agent("a", *SHORT_LEASE, *numbered(4, 200000), stdout=pipe, env={"TMPDIR": str(spools)})
    os.close(pipe)
    writing(agent)
    writer, = writers(agent)
    found = {fd: os.readlink(f"/proc/{writer}/fd/{fd}") for fd in os.listdir(f"/proc/{writer}/fd")}
    spool, = [fd for fd, name in found.items() if name.startswith(f"{spools}/") and name.endswith("(deleted)")]
    assert os.stat(f"/proc/{writer}/fd/{spool}").st_size > 10 << 20
    assert list(spools.glob("muster-output*")) == []
    with os.fdopen(reader) as out:
        text = out.read()
    code, _, err = agent.finish()
    assert code == 0 and "lease" not in err and "lost" not in err, err
    check_numbered(text, 4, 200000)


@pytest.mark.parametrize("option, folder", [("--output-spool=0", "/tmp"), ("--output-spool=1G", "/nonexistent")])
def test_without_a_file_workers_wait_for_the_reader(job, option, folder):
    """Without room for a file, or a place, a worker can't end before its output is read, as under torchrun."""
    reader, pipe = os.pipe()
    agent = job.agent("a", *SHORT_LEASE, option, "--no-python", "/bin/sh", "-c",
                      'echo "start x=1" > $E2E_EVENTS; seq -f "0 %.0f of the lines that a worker writes" 1000000;'
                      'echo "end x=1" > $E2E_EVENTS', stdout=pipe, env={"TMPDIR": folder})
    os.close(pipe)
    job.events.wait("start", 1)
    writer = None
    end = deadline(60)
    while writer is None or memory(writer) < 8 << 20:
        writer = next(iter(writers(agent)), None)
        assert time.monotonic() < end
    taken, since = 0, time.monotonic()
    while time.monotonic() < since + 1:  # until it takes no more
        assert time.monotonic() < end
        if read_bytes(writer) > taken + (64 << 10):  # besides its timers
            taken, since = read_bytes(writer), time.monotonic()
    with os.fdopen(reader) as out:
        text = out.read(100000)
        assert job.events.all("end") == []
        text += out.read()
    code, _, err = agent.finish()
    assert code == 0 and "lease" not in err, err
    check_numbered(text, 1, 1000000)


def test_what_waits_for_a_reader_that_stands_still_is_bounded(job, tmp_path):
    """Eight workers that write without end fill the file up to its size, and then they wait; memory stays small."""
    size = 16 << 20
    reader, pipe = full_pipe()
    agent = job.agent("a", *SHORT_LEASE, "--nproc-per-node=8", "--output-spool=16M", *SH,
                      'echo "start x=1" > $E2E_EVENTS; yes "$RANK of the lines that a worker writes"',
                      stdout=pipe, env={"TMPDIR": str(tmp_path)})
    job.events.wait("start", 8)
    writer, spool, end = None, None, deadline(60)
    while spool is None or os.stat(spool).st_size < size - (256 << 10) or read_bytes(writer) != read_bytes(writer):
        assert agent.process.poll() is None and time.monotonic() < end, agent.said()
        writer = next(iter(writers(agent)), None)
        files = pathlib.Path(f"/proc/{writer}/fd").iterdir() if writer else []
        spool = next((f for f in files if os.readlink(f).startswith(f"{tmp_path}/")), None)
    assert os.stat(spool).st_size <= size
    most, = re.findall(r"VmHWM:\s*(\d+) kB", pathlib.Path(f"/proc/{writer}/status").read_text())
    assert int(most) < 64 << 10, "it is about 20 MiB"
    os.close(reader)  # its end sets the workers free
    before = read_bytes(writer)
    while read_bytes(writer) < before + (100 << 20):
        assert agent.process.poll() is None and time.monotonic() < end, agent.said()
    os.kill(agent.pid, signal.SIGTERM)
    code, _, err = agent.finish(60)
    os.close(pipe)
    assert code == 128 + signal.SIGTERM and "lease" not in err and "bytes of output lost" not in err, err


def test_a_terminal_that_stands_still_gets_all(job):
    controller, terminal = os.openpty()
    tty.setraw(terminal)
    agent = job.agent("a", *numbered(2, 10000), stdout=terminal, stderr=terminal)
    os.close(terminal)
    writing(agent)
    with pytest.raises(subprocess.TimeoutExpired):
        agent.process.wait(7)
    text = bytearray()
    with contextlib.suppress(OSError):  # EIO: the other end is closed
        while data := os.read(controller, 65536):
            text += data
    os.close(controller)
    assert agent.wait() == 0
    check_numbered(re.sub(r"^\[rank[01]\]: ", "", text.decode(), flags=re.M), 2, 10000)


def test_a_reader_that_leaves_is_no_failure(job):
    code, out, err = job.run(*SH, "seq 100000", program=["/bin/sh", "-c", '"$@" | head -n 1; exit 0', "sh", *command()])
    assert (code, out, err) == (0, "1\n", "")
    reader, pipe = os.pipe()
    agent = job.agent("a", *numbered(1, 50000), stdout=pipe)
    os.close(pipe)
    writing(agent)
    os.close(reader)  # it is on purpose also at the end: | less
    code, _, err = agent.finish()
    assert code == 0 and "muster" not in err, err


def test_a_second_interrupt_leaves_the_reader_and_tells_how_much_is_lost(job):
    reader, pipe = full_pipe()
    agent = job.agent("a", *numbered(1, 50000), stdout=pipe)
    writing(agent)
    os.kill(agent.pid, signal.SIGINT)
    agent.wait_said("waiting until the rest of the output is read")
    assert agent.process.poll() is None
    os.kill(agent.pid, signal.SIGINT)
    code, _, err = agent.finish(60)
    os.close(reader)
    os.close(pipe)
    assert code == 1, err
    lost = sum(len(f"0 {i} of the lines that a worker writes\n") for i in range(1, 50001))
    assert f"{lost} bytes of output lost" in err, err


def test_two_interrupts_end_workers_and_leave_the_reader(job):
    reader, pipe = full_pipe()
    agent = job.agent("a", "--no-python", job.worker, "out=word\n", "ignore", "start", "go", stdout=pipe)
    job.events.wait("start", 1)
    os.kill(agent.pid, signal.SIGINT)
    agent.wait_said("stopping 1 worker")
    os.kill(agent.pid, signal.SIGINT)
    code, _, err = agent.finish(60)
    os.close(reader)
    os.close(pipe)
    assert code == 1, err
    assert "5 bytes of output lost" in err, err


def test_a_job_ended_by_a_signal_waits_for_no_reader_that_stands_still(job):
    """A scheduler that sends SIGTERM sends SIGKILL next: until then it is told how much is lost."""
    reader, pipe = full_pipe()
    agent = job.agent("a", "--no-python", job.worker, "out=word\\n", "start", "go", stdout=pipe)
    job.events.wait("start", 1)
    os.kill(agent.pid, signal.SIGTERM)
    code, _, err = agent.finish(60)
    os.close(reader)
    os.close(pipe)
    assert code == 128 + signal.SIGTERM, err
    assert "5 bytes of output lost: their reader had not taken them" in err, err


def test_a_signal_ends_a_job_whose_restart_waits_for_its_reader(job):
    """What killed workers left has filled memory, so the next restart waits until some of it is read."""
    reader, pipe = full_pipe()
    agent = job.agent("a", "--nproc-per-node=8", "--output-spool=0", "--max-restarts=100", "--crash-loop=0", *SH,
                      '[ $RANK = 0 ] && sleep 0.2 && exit 1; exec yes "a line that a worker writes"', stdout=pipe)
    agent.wait_said("attempt 2: ")
    writer, end = None, deadline(60)
    while writer is None or memory(writer) < 64 << 20:
        assert agent.process.poll() is None and time.monotonic() < end, agent.said()
        writer = next(iter(writers(agent)), None)
    os.kill(agent.pid, signal.SIGTERM)
    code, _, err = agent.finish(60)
    os.close(reader)
    os.close(pipe)
    assert code == 128 + signal.SIGTERM, err
    assert "bytes of output lost: their reader had not taken them" in err, err


def test_a_job_ended_by_a_signal_waits_for_a_reader_that_reads(job):
    reader, pipe = os.pipe()
    agent = job.agent("a", "--no-python", "/bin/sh", "-c", "seq -f '0 %.0f of the lines that a worker writes' 500000;"
                      'echo "start x=1" > $E2E_EVENTS; exec sleep 1000', stdout=pipe)
    os.close(pipe)
    job.events.wait("start", 1)
    os.kill(agent.pid, signal.SIGTERM)
    writing(agent)
    with os.fdopen(reader) as out:
        text = out.read()
    code, _, err = agent.finish()
    assert code == 128 + signal.SIGTERM and "lost" not in err, err
    check_numbered(text, 1, 500000)


def test_a_guardian_that_dies_while_a_reader_is_awaited_leaves_nothing(job):
    reader, pipe = full_pipe()
    agent = job.agent("a", *numbered(1, 1000), stdout=pipe)
    writing(agent)
    writer, = writers(agent)
    pids = [agent.agent_pid(), writer]
    kill(agent.pid)
    for pid in pids:
        wait_dead(pid)
    os.close(reader)
    os.close(pipe)


@pytest.mark.parametrize("to, why", [("> /dev/full", "No space left on device"), (">&-", "it is closed")])
def test_output_that_cannot_be_written_is_a_failure(job, to, why):
    code, _, err = job.run(*SH, "echo word; echo again", prefix=["/bin/sh", "-c", f'exec "$@" {to}', "sh"])
    assert code == 1, err
    assert err.count("can't write to standard output") == 1 and f"can't write to standard output: {why};" in err, err
    code, _, err = job.run("--no-python", "/bin/true", prefix=["/bin/sh", "-c", f'exec "$@" {to}', "sh"])
    assert code == 0 and err == "", "nothing was written there"


@pytest.mark.parametrize("to, why", [("2> /dev/full", "No space left on device"), ("2>&-", "it is closed")])
def test_error_output_that_cannot_be_written_is_told_where_it_can_be(job, to, why):
    code, out, _ = job.run(*SH, "echo word >&2; echo again >&2", prefix=["/bin/sh", "-c", f'exec "$@" {to}', "sh"])
    assert code == 1, out
    assert out == f"muster: can't write to standard error: {why}; the job continues; its output is dropped\n"
    code, out, _ = job.run(*SH, "echo word", prefix=["/bin/sh", "-c", f'exec "$@" {to}', "sh"])
    assert code == 0 and out == "word\n", "nothing was written there"


def test_a_file_that_takes_no_more_ends_no_job(job, tmp_path):
    """As on a broken disk: all that follows is lost, which is told, and nothing waits for it."""
    code, _, err = job.run("--nproc-per-node=2", *SH, "seq 300000; seq 300000", prefix=[
        "/bin/sh", "-c", f'ulimit -f 100; exec "$@" > {tmp_path / "out"}', "sh"])
    assert code == 1, err
    assert err.count("can't write to standard output") == 1 and "File too large" in err, err


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
    assert code == 1 and "can't write to standard output: it is closed" in err, err


def test_lines_that_contain_a_text_are_written_once_more(job, tmp_path):
    """As under torchrun: whole lines with their prefix, of all shown workers, in a file for each stream."""
    logs = tmp_path / "logs"
    code, _, err = job.run("--nproc-per-node=3", "-t3", "--local-ranks-filter=0,2", f"--log-dir={logs}",
                           "--duplicate-stdout-filters=apple,x", "--duplicate-stderr-filters=a,,b", "--logs-specs=default",
                           *SH, """echo pineapples $RANK; echo pear $RANK; echo a,b; printf "$(printf %070000d)x"
                           echo "a,b $RANK" >&2; echo "a b" >&2; printf apple""")
    assert code == 0, err
    out, = log_files(logs, "filtered_stdout.log")
    assert sorted(out.read_text().splitlines()) == sorted(
        f"[default{rank}]:{text}" for rank in (0, 2) for text in (f"pineapples {rank}", "0" * 70000 + "xapple"))
    errors, = log_files(logs, "filtered_stderr.log")
    assert sorted(errors.read_text().splitlines()) == ["[default0]:a,b 0", "[default2]:a,b 2"]
    assert out.parent == errors.parent == log_files(logs)[0].parent.parent
    code, _, err = job.run("-t1", f"--log-dir={tmp_path / 'none'}", "--duplicate-stdout-filters=apple", *SH, "echo pear")
    assert code == 0, err
    out, = log_files(tmp_path / "none", "filtered_stdout.log")
    assert out.read_text() == "", "the file is there, though no line matches"


@pytest.mark.parametrize("nproc", [1, 2])
def test_output_and_errors_that_go_to_one_file_keep_their_order(job, tmp_path, nproc):
    """As with `> log 2>&1` without a launcher: an exception stands behind the last line that was printed before it."""
    script = "for n in $(seq 200); do echo $RANK out $n; echo $RANK err $n >&2; printf '%s' $RANK; echo ' end' >&2; done"
    with open(tmp_path / "log", "w") as log:
        code = job.agent("a", f"--nproc-per-node={nproc}", *SH, script, stdout=log, stderr=log).wait(120)
    text = (tmp_path / "log").read_text()
    lines = [line for line in text.splitlines() if re.fullmatch(r"\d (out \d+|err \d+|end)", line)]
    assert code == 0, text
    for rank in range(nproc):
        expected = [f"{rank} {word}" for n in range(1, 201) for word in (f"out {n}", f"err {n}", "end")]
        assert [line for line in lines if line[0] == str(rank)] == expected
    code, out, _ = job.run("-t3", "--log-dir", tmp_path / "logs", *SH, script)
    assert code == 0 and log_files(tmp_path / "logs")[0].read_text().count("out") == 200, out
    assert log_files(tmp_path / "logs", "stderr.log")[0].read_text().count("err") == 200


def test_a_limit_of_file_sizes_ends_no_job(job, tmp_path):
    """Beyond it the kernel sends SIGXFSZ (setrlimit(2)): a part of the event log is missing, and that is reported."""
    code, _, err = job.run(f"--event-log={tmp_path / 'events.log'}", "--max-restarts=8", "--crash-loop=0", *SH, "exit 7",
                           prefix=["/bin/sh", "-c", 'ulimit -f 1; exec "$@"', "sh"])
    assert code == 1, err
    assert "no restarts left (8 used)" in err, err


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
