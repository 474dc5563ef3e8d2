"""Workers of a launcher that runs on a terminal: their standard output and error are terminals too, as under torchrun."""
import fcntl
import os
import pathlib
import re
import signal
import struct
import sys
import termios
import time
import tty

import pytest

from harness import Heard, alive, children, deadline, kill

PYTHON = ("--no-python", sys.executable, "-u", "-c")
SH = ("--no-python", "/bin/sh", "-c")


class Terminal:
    """A terminal of 40 columns that changes no byte. `screen` hears what is written to it."""

    def __init__(self):
        controller, self.fd = os.openpty()
        tty.setraw(self.fd)
        self.controller = os.dup(controller)
        self.resize(40)
        self.screen = Heard(controller)

    def resize(self, columns):
        fcntl.ioctl(self.controller, termios.TIOCSWINSZ, struct.pack("HHHH", 10, columns, 0, 0))

    def text(self):
        """Everything that was written, once nobody can write any more."""
        self.close()
        self.screen.join()
        return bytes(self.screen.raw)

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


@pytest.fixture
def terminal():
    t = Terminal()
    yield t
    t.close()
    t.screen.join()
    os.close(t.controller)


def on(terminal, job, *words, **more):
    """Runs a job whose standard output and error are the terminal: (status, what the terminal shows)."""
    agent = job.agent("a", *words, **({"stdout": terminal.fd, "stderr": terminal.fd} | more), env={"TERM": "xterm"})
    code = agent.wait()
    return code, terminal.text().decode(errors="replace")


SAY = "import os; print(os.environ['RANK'], *[os.isatty(fd) for fd in (0, 1, 2)], *os.get_terminal_size(1), flush=True)"


def test_output_of_workers_is_a_terminal_with_its_size(job, terminal):
    """What the prefix takes of a line is left out, or progress bars would be wider than the line."""
    code, shown = on(terminal, job, "--nproc-per-node=2", *PYTHON, SAY)
    assert code == 0, shown
    assert sorted(shown.splitlines()) == ["[rank0]: 0 False True True 31 10", "[rank1]: 1 False True True 31 10"]


@pytest.mark.parametrize("when, one, two", [
    ("auto", "0", ["[rank0]: 0", "[rank1]: 1"]),
    ("always", "[rank0]: 0", ["[rank0]: 0", "[rank1]: 1"]),
    ("never", "0", ["0", "1"]),
])
def test_prefixes_on_a_terminal(job, terminal, when, one, two):
    """Each of the two streams by itself: standard error is no terminal here."""
    reader, pipe = os.pipe()
    code, shown = on(terminal, job, f"--prefix={when}", "--nproc-per-node=2", *SH, "echo $RANK; echo $RANK >&2", stderr=pipe)
    os.close(pipe)
    with open(reader) as lines:
        plain = sorted(line for line in lines.read().splitlines() if not line.startswith("muster:"))
    assert code == 0 and sorted(shown.splitlines()) == two, shown
    assert plain == (two if when == "always" else ["0", "1"])
    other = Terminal()
    code, shown = on(other, job, f"--prefix={when}", "--nproc-per-node=2", "--local-ranks-filter=0", *SH, "echo $RANK",
                     stderr=None)
    os.close(other.controller)
    assert code == 0 and shown.splitlines() == [one], shown


def test_a_prefix_that_a_line_has_is_not_repeated(job, terminal):
    """PyTorch begins the lines of a traceback like this."""
    code, shown = on(terminal, job, "--nproc-per-node=2", *SH, r"printf '[rank%d]: first\nsecond\n\n[rank%d]: last' $RANK $RANK",
                     stderr=None)
    lines = ["[rank0]: ", "[rank0]: first", "[rank0]: last", "[rank0]: second"]
    assert code == 0 and sorted(shown.splitlines()) == lines + [line.replace("0", "1") for line in lines], shown


def test_only_the_stream_that_is_a_terminal_is_one(job, terminal):
    reader, pipe = os.pipe()
    code, shown = on(terminal, job, *PYTHON, SAY, stderr=pipe)
    os.close(pipe)
    os.close(reader)
    assert code == 0 and shown == "0 False True False 40 10\n"


def test_a_stream_that_also_goes_to_a_file_is_none(job, terminal, tmp_path):
    code, shown = on(terminal, job, "--log-dir", tmp_path / "logs", "--tee=1", *PYTHON,
                     "import os; print(os.isatty(1), os.isatty(2))")
    assert code == 0 and shown == "[default0]:False True\n"


def test_exactly_the_bytes_of_a_single_worker_are_shown(job, terminal):
    """Nothing is collapsed, completed or translated."""
    code, shown = on(terminal, job, *PYTHON, "import os; os.write(1, bytes(range(256)) + b'\\r 50%\\r100%')",
                     stderr=None)
    assert code == 0
    assert bytes(terminal.screen.raw) == bytes(range(256)) + b"\r 50%\r100%", shown


def test_a_single_worker_of_several_that_is_shown_too(job, terminal):
    code, shown = on(terminal, job, "--nproc-per-node=3", "--local-ranks-filter=1", *SH, r"printf '%s\r1\r2' $RANK",
                     stderr=None)
    assert code == 0 and shown == "1\r1\r2"


def test_bars_of_several_ranks_do_not_destroy_each_other(job, terminal):
    """Each line belongs to one rank, and the last state of each bar is there. Only one bar moves at a time."""
    code, shown = on(terminal, job, "--nproc-per-node=4", *PYTHON, """
import os, select, sys
for i in range(101):
    sys.stderr.write(f"\\rrank {os.environ['RANK']}: {i:3}%")
    select.select([], [], [], 0.02)
sys.stderr.write("\\n")
""", stdout=None)
    assert code == 0, shown
    states = re.split(r"\r\x1b\[K|\n", shown)
    assert [s for s in states if s and not re.fullmatch(r"\[rank([0-3])\]: rank \1: +\d+%", s)] == [], shown
    assert sorted(re.findall(r"rank ([0-3]): 100%\n", shown)) == ["0", "1", "2", "3"], shown
    assert shown.count("\n") <= 12, shown


def test_a_line_of_a_c_program_appears_at_once(job, terminal):
    """The C library writes each line to a terminal, but keeps it for a pipe (and python -u changes that)."""
    agent = job.agent("a", "--no-python", sys.executable, "-c", "import ctypes, os; c = ctypes.CDLL(None); c.puts(b'at once');"
                      "open(os.environ['E2E_GO']).close()", stdout=terminal.fd)
    assert terminal.screen.until(lambda: b"at once\n" in terminal.screen.raw, 30), agent.said()
    assert agent.process.poll() is None
    job.go()
    assert agent.wait() == 0


def test_workers_are_told_of_a_new_size(job, terminal):
    """The terminal's driver tells the foreground process group, muster; the worker sees the new size by then."""
    agent = job.agent("a", "--nproc-per-node=2", *PYTHON, """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})
print("ready", flush=True)
signal.sigwait({signal.SIGWINCH})
print("columns", os.get_terminal_size(1).columns, flush=True)
""", stdout=terminal.fd)
    assert terminal.screen.until(lambda: terminal.screen.raw.count(b"ready") == 2, 30), agent.said()
    terminal.resize(77)
    agent.signal(signal.SIGWINCH)
    assert agent.wait() == 0, agent.said()
    assert terminal.text().count(b"columns 68\n") == 2


def log_writer(agent):
    found = [pid for pid in children(agent.agent_pid())
             if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "muster-logs"]
    return found[0]


def test_a_killed_log_writer_hangs_nobody_up(job, terminal):
    """The agent has the workers' terminals, too: no SIGHUP, and what they write later is shown."""
    os.mkfifo(job.tmp / "more")
    agent = job.agent("a", "--nproc-per-node=2", "--no-python", job.worker, "out=before\\n", "start", "gate=more",
                      "out=after\\n", stdout=terminal.fd)
    job.events.wait("start", 2)
    assert terminal.screen.until(lambda: terminal.screen.raw.count(b"before\n") == 2, 30), agent.said()
    writer = log_writer(agent)
    kill(writer)
    end = deadline(30)
    while alive(writer):
        assert time.monotonic() < end
    gate = os.open(job.tmp / "more", os.O_RDWR)  # both workers pass, whenever they come to it
    assert agent.wait() == 0, agent.said()
    os.close(gate)
    assert sorted(terminal.text().decode().splitlines()) == [
        f"[rank{rank}]: {word}" for rank in (0, 1) for word in ("after", "before")]


def test_a_worker_has_no_controlling_terminal(job, terminal):
    code, shown = on(terminal, job, *SH, "echo word > /dev/stdout; ps -o tty= -p $$$$")
    assert code == 0 and [line.strip() for line in shown.splitlines()] == ["word", "?"], shown
