"""`muster run` at a terminal with job control: ^C, ^Z, fg, bg, kill. The terminal and the shell are real ones."""
import os
import pathlib
import re
import shlex
import signal

import pytest

from harness import VALGRIND, alive, children, kill, muster
from terminal import Shell

pytestmark = pytest.mark.skipif(VALGRIND, reason="the shell would name valgrind")
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
CONTAIN = ["none", pytest.param("cgroup", marks=ROOT), pytest.param("pidns", marks=ROOT)]
LEASE_S = 1  # with heartbeats of a quarter of it

# A line ten times a second, until the test says go.
TICKS = r"""
import os, select, time
def tell(what):
    fd = os.open(os.environ["E2E_EVENTS"], os.O_WRONLY)
    os.write(fd, (what + " rank=" + os.environ["RANK"] + " ns=%d\n" % time.monotonic_ns()).encode())
    os.close(fd)
go = os.open(os.environ["E2E_GO"], os.O_RDONLY | os.O_NONBLOCK)
started = False
while True:
    try:
        if not started:
            started = True  # from here on an interrupt is caught
            tell("start")
        os.read(go, 1)  # nothing, until the test writes: then EAGAIN
        tell("tick")
        print("tick", os.environ["RANK"], flush=True)
        select.select([], [], [], 0.1)
    except BlockingIOError:
        break
    except KeyboardInterrupt:
        tell("interrupted")
"""


def state(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def name(pid):
    return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()


class Terminal:
    """A job of one node in a shell's foreground."""

    def __init__(self, job, tmp_path, *words, program=None):
        self.job, self.shell = job, Shell(job)
        ticks = tmp_path / "ticks.py"
        ticks.write_text(TICKS)
        program = program or [str(ticks)]
        grace = ["--shutdown-timeout=1"] if "family" in program else []  # it uses up the grace
        self.shell.type(shlex.join([*muster(), "run", "--nproc-per-node=2", f"--lease={LEASE_S}",
                                     "--heartbeat-interval=0.25", *grace, *words, *program]) +
                        "; echo status=$?\n")
        job.events.wait("start", 2)
        self.guardian = next(pid for pid in children(self.shell.pid) if name(pid) == "muster")
        self.agent = children(self.guardian)[0]

    def suspend(self):
        self.shell.type("\x1a")
        self.shell.wait_said(r"Stopped +\S*muster")
        self.shell.wait_said("the job continues")
        assert state(self.guardian) == "T" and state(self.agent) != "T"

    def outlive(self, leases):
        """Waits until workers have lived for so long, from now on."""
        begin = int(self.job.events.all("tick")[-1].fields["ns"])

        def lived():
            return int(self.job.events.all("tick")[-1].fields["ns"]) - begin >= leases * LEASE_S * 1e9
        while not lived():
            self.job.events.wait("tick", len(self.job.events.all("tick")) + 1)

    def deputies(self):
        return [pid for pid in children(self.guardian) if name(pid) == "muster-deputy"]

    def end(self, status):
        self.job.go()
        self.shell.wait_said(f"status={status}\\b")


@pytest.fixture
def terminal(job, tmp_path):
    made = []

    def start(*words, **more):
        made.append(Terminal(job, tmp_path, *words, **more))
        return made[-1]
    yield start
    for t in made:
        t.shell.close()


def test_an_interrupt_at_the_terminal_reaches_each_worker_once(job, terminal):
    t = terminal()
    t.shell.type("\x03")
    job.events.wait("interrupted", 2)
    t.outlive(0.5)
    t.end(128 + signal.SIGINT)
    assert sorted(e.fields["rank"] for e in job.events.all("interrupted")) == ["0", "1"]


@pytest.mark.parametrize("word", ["fg", "bg"])
def test_a_job_goes_on_while_it_is_suspended_for_longer_than_a_lease(job, terminal, word):
    t = terminal()
    pid = t.agent
    t.suspend()
    t.outlive(3)
    assert len(t.deputies()) == 1
    t.shell.type(word + "; echo status=$?\n" if word == "fg" else "bg\n")
    t.shell.wait_said(r"run --nproc-per-node=2 [^\n]*\n", times=2)  # the command, as the shell shows it
    t.outlive(0.5)
    assert t.deputies() == [] and alive(pid)
    if word == "bg":
        t.shell.type("wait $!; echo status=$?\n")
    t.end(0)
    assert not re.search("muster: .*(lease|lost|killed)", t.shell.said())
    assert len(job.events.all("start")) == 2


def test_it_can_be_suspended_again_and_again(job, terminal):
    t = terminal()
    for _ in range(3):
        t.suspend()
        t.shell.type("fg; echo status=$?\n")
        t.outlive(0.3)
        assert state(t.guardian) != "T"
        with t.shell.heard.changed:
            t.shell.heard.raw.clear()
    t.end(0)


def test_output_reaches_the_terminal_from_the_background_even_with_tostop(terminal):
    t = terminal()
    t.shell.type("\x1a")
    t.shell.wait_said("the job continues")
    t.shell.type("stty tostop; bg; echo stty\n")
    t.shell.wait_said("stty\r\n")
    seen = t.shell.said().count("tick")
    t.shell.wait_said("tick", times=seen + 20)
    t.shell.type("wait $!; echo status=$?\n")
    t.end(0)


def test_a_suspended_job_can_be_killed(job, terminal):
    t = terminal(program=["--no-python", job.worker, "family", "start", "wait"])
    t.suspend()
    t.shell.type("kill %1\n")
    t.shell.wait_said(f"Exit {128 + signal.SIGTERM}\\b")
    assert job.held("a") == []


def test_when_the_job_ends_while_suspended_the_shell_hears_of_it(job, terminal):
    t = terminal()
    t.suspend()
    t.job.go()
    t.shell.wait_said(r"\[1\]\+ +Done")
    assert not alive(t.guardian)


@pytest.mark.parametrize("contain", CONTAIN)
def test_no_orphan_when_the_agent_dies_while_suspended(job, terminal, contain):
    t = terminal(f"--contain={contain}", program=["--no-python", job.worker, "family", "start", "wait"])
    t.suspend()
    kill(t.agent)
    job.wait_gone("a", 10)
    t.shell.wait_said("Killed")


@pytest.mark.parametrize("contain", CONTAIN)
def test_no_orphan_when_the_guardian_dies_while_suspended(job, terminal, contain):
    t = terminal(f"--contain={contain}", program=["--no-python", job.worker, "family", "start", "wait"])
    t.suspend()
    deputy, = t.deputies()
    fd = os.pidfd_open(deputy)
    kill(t.guardian)
    job.wait_gone("a", 10)
    assert job.events.until(lambda: not alive(deputy), 10)
    os.close(fd)


@pytest.mark.parametrize("contain", CONTAIN)
def test_workers_of_a_frozen_agent_end_with_the_lease_while_suspended(job, terminal, contain):
    met = ["--nnodes=1", "--rdzv-id=frozen", "--rdzv-backend=dir", f"--rdzv-endpoint={job.tmp}/rdzv"]  # else no lease is needed
    t = terminal(f"--contain={contain}", *met, program=["--no-python", job.worker, "family", "start", "wait"])
    t.suspend()
    kill(t.agent, signal.SIGSTOP)
    job.wait_gone("a", 10)
    assert state(t.guardian) == "T" and alive(t.agent)
    kill(t.agent, signal.SIGCONT)


@pytest.mark.parametrize("how", ["running", "suspended", "background"])
def test_no_orphan_when_the_terminal_is_closed(job, terminal, how):
    """The kernel tells the shell, which passes SIGHUP on; a suspended job is continued then."""
    t = terminal(program=["--no-python", job.worker, "family", "start", "wait"])
    if how != "running":
        t.suspend()
    if how == "background":
        t.shell.type("bg\n")
        t.shell.wait_said(r"\[1\]\+ [^\n]* &")
    kill(t.shell.pid, signal.SIGHUP)
    job.wait_gone("a", 20)


@pytest.mark.parametrize("how", ["running", "suspended"])
def test_no_orphan_when_the_shell_is_killed(job, terminal, how):
    """The kernel tells the foreground process group, and process groups that have become orphans while stopped."""
    t = terminal(program=["--no-python", job.worker, "family", "start", "wait"])
    if how == "suspended":
        t.suspend()
    kill(t.shell.pid)
    job.wait_gone("a", 20)


def test_a_shell_that_is_left_twice_ends_a_suspended_job(job, terminal):
    t = terminal(program=["--no-python", job.worker, "family", "start", "wait"])
    t.suspend()
    t.shell.type("exit\n")
    t.shell.wait_said("stopped jobs")
    t.shell.type("exit\n")
    job.wait_gone("a", 20)


@pytest.mark.parametrize("keys", ["\x1c", "\x03\x03", "\x03\x1c\x03", "\x1c\x03\x03"])
def test_keys_that_end_a_job_in_every_order(job, terminal, keys):
    """The status is that of a key that was typed. A ^C after the first key kills workers that ignore it."""
    ignore = ["ignore"] if len(keys) > 1 else []
    grace = ["--shutdown-timeout=60"] if ignore else []
    t = terminal(*grace, program=["--no-python", job.worker, "family", *ignore, "start", "wait"])
    t.shell.type(keys)
    t.shell.wait_said("got SIG")
    if len(keys) > 1:
        t.shell.type("\x03")  # the kernel keeps one of each of those that came at once
    t.shell.wait_said("status=" + ("131" if keys == "\x1c" else "130" if "\x1c" not in keys else "13[01]") + "\\b")
    job.wait_gone("a", 1)


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_a_suspended_job_waits_until_it_is_resumed(job, terminal, signo):
    t = terminal(program=["--no-python", job.worker, "family", "start", "wait"])
    t.suspend()
    kill(t.guardian, signo)
    assert job.held("a") and state(t.guardian) == "T"
    t.shell.type("fg; echo status=$?\n")
    t.shell.wait_said(f"status={128 + signo}\\b")
    job.wait_gone("a", 1)


def test_it_is_suspended_while_its_terminal_is_paused(job, terminal):
    """^S, then ^Z: the line that says so waits for ^Q, but nothing else does."""
    t = terminal()
    t.shell.type("\x13")
    t.shell.type("\x1a")
    assert job.events.until(lambda: state(t.guardian) == "T", 10)
    t.outlive(3)
    t.shell.type("\x11")
    t.shell.wait_said("the job continues")
    t.shell.type("fg; echo status=$?\n")
    t.outlive(0.3)
    t.end(0)


@pytest.mark.parametrize("contain", CONTAIN[1:])
def test_no_orphan_when_both_are_killed_while_suspended(job, terminal, contain):
    t = terminal(f"--contain={contain}", program=["--no-python", job.worker, "family", "start", "wait"])
    t.suspend()
    for pid in [*t.deputies(), t.agent, t.guardian]:
        kill(pid)
    job.wait_gone("a", 10)
    t.shell.wait_said("Killed")
