"""How jobs end that were started by ssh: a terminal's keys, signals, and whatever can be killed or cut in between. After the
grace of the workers nothing lives on any host."""
import os
import shlex
import signal
import time

import pytest

from harness import children, deadline, kill
from slurm import pause
from sshd import title_of
from terminal import Shell
from test_ssh import MUSTER, Here, cluster, four, here  # noqa: F401

GRACE_S = 2
GRACE = f"--shutdown-timeout={GRACE_S}"
# Quick recovery, where a host is lost.
QUICK = ("--lease=1", "--heartbeat-interval=0.2")
# Ends by nothing but SIGKILL.
STUBBORN = ('trap "" TERM INT HUP; echo start world=$WORLD_SIZE > $E2E_EVENTS; '
            'sh -c "while :; do sleep 100; done" & while :; do sleep 100; done')


def all_gone(here, begin, without=(), known_s=0):
    """Nothing lives 1 s after the grace, which begins so many seconds after `begin`."""
    here.cluster.wait_left(known_s + GRACE_S + 1, without, begin)


def ended_in_order(here, begin):
    """Each of two workers got one SIGTERM, and saves."""
    assert here.job.events.wait("saved", 1)
    all_gone(here, begin)
    for rank in range(2):
        assert len(here.job.events.all("got", name="SIGTERM", rank=rank)) == 1


# ---- signals to the starter ----

@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_job_in_order(here, signo):
    """Each worker gets one SIGTERM, and saves; the status says which signal it was."""
    agent = here.start("node1,node2", GRACE, worker=None)
    here.told(2)
    begin = time.monotonic()
    kill(here.head(agent), signo)
    code, _, err = agent.finish()
    assert code == 128 + signo, err
    ended_in_order(here, begin)


def test_workers_that_ignore_it(here):
    agent = here.start("node1,node2", GRACE, worker=STUBBORN)
    here.told(2)
    begin = time.monotonic()
    kill(here.head(agent), signal.SIGTERM)
    code, _, err = agent.finish()
    assert code == 143, err
    all_gone(here, begin)


def test_a_second_interrupt_kills(here):
    agent = here.start("node1,node2", "--shutdown-timeout=60", worker=STUBBORN)
    here.told(2)
    head = here.head(agent)
    kill(head, signal.SIGINT)
    agent.wait_said("stopping the job")
    begin = time.monotonic()
    kill(head, signal.SIGINT)
    code, _, err = agent.finish()
    assert code == 130, err
    here.cluster.wait_left(2, since=begin)


@pytest.mark.parametrize("signo", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_users_signal(here, signo):
    """It reaches each worker once, and ends nothing."""
    agent = here.start("node1,node2", worker=None)
    here.told(2)
    kill(here.head(agent), signo)
    here.job.events.wait("got", 2, name=signal.Signals(signo).name)
    here.ends_well(agent)
    assert len(here.job.events.all("got", name=signal.Signals(signo).name)) == 2


# ---- a terminal ----

@pytest.fixture
def shell(here):
    """A person's shell on the login host."""
    shell = Shell(here.job)
    own = here.cluster.client("setsid", "-c", "env", *(f"{k}={v}" for k, v in here.env().items()), "bash", "--norc",
                              "--noprofile", "--noediting", "-i", folder=here.job.tmp)
    shell.type(f"exec {shlex.join(own)}\n")
    shell.type("PS1=; stty -echo; set -o notify; echo log''ged in\n")
    shell.wait_said("logged in")
    yield shell
    shell.close()


def type_run(here, shell, *words, worker=None):
    shell.type(shlex.join(here.line("node1,node2", *words, worker=worker)) + "; echo status=$?\n")
    here.told(2)


def test_an_interrupt_of_the_terminal(here, shell):
    type_run(here, shell, GRACE)
    begin = time.monotonic()
    shell.type("\x03")
    shell.wait_said("status=130")
    assert here.job.events.wait("saved", 1)
    all_gone(here, begin, without=("bash --norc",))
    assert "Killed by signal" not in shell.said()


def test_two_interrupts_of_the_terminal(here, shell):
    type_run(here, shell, "--shutdown-timeout=60", worker=STUBBORN)
    shell.type("\x03")
    shell.wait_said("stopping the job")
    shell.type("\x03")
    shell.wait_said("status=130")
    here.cluster.wait_left(2, without=("bash --norc",))


def test_a_stopped_starter(here, shell):
    """^Z stops the starter alone: the job goes on, and `fg` takes it up again."""
    type_run(here, shell)
    shell.type("\x1a")
    shell.wait_said("Stopped")
    pause(2)
    assert not here.job.events.all("got"), "a worker got a signal"
    shell.type("fg; echo after=$?\n")
    here.job.go()
    shell.wait_said("after=0")


@pytest.mark.slow
def test_a_starter_that_is_stopped_for_long(here, shell):
    """Longer than a relay waits for a starter that says nothing."""
    type_run(here, shell)
    shell.type("\x1a")
    shell.wait_said("Stopped")
    pause(70)
    assert not here.job.events.all("got"), "a worker got a signal"
    shell.type("fg; echo after=$?\n")
    here.job.go()
    shell.wait_said("after=0")


# ---- whatever can be killed ----

def test_a_killed_starter(here):
    """The job ends in good order: its workers save first."""
    agent = here.start("node1,node2", GRACE, worker=None)
    here.told(2)
    begin = time.monotonic()
    kill(here.head(agent))
    ended_in_order(here, begin)


def test_a_killed_starter_of_workers_that_ignore_it(here):
    agent = here.start("node[1-4]", GRACE, worker=STUBBORN)
    here.told(4)
    begin = time.monotonic()
    kill(here.head(agent))
    all_gone(here, begin)


def kill_ssh(here, agent):
    kill(here.ssh(agent)["node2"])


def kill_login(here, agent):
    here.cluster.kill_sshd(1)


def kill_relay(here, agent):
    kill(here.find(1, "ssh-node$"))


def guardian(here):
    return next(pid for pid in children(here.find(1, "ssh-node$")) if MUSTER in title_of(pid))


def kill_guardian(here, agent):
    kill(guardian(here))


def kill_agent(here, agent):
    kill(next(pid for pid in children(guardian(here)) if MUSTER in title_of(pid)))


def lose_host(here, agent):
    here.cluster.cut(1)
    here.cluster.crash(1)


def cut_host(here, agent):
    here.cluster.cut(1)


# What may be there for a minute on a host that is cut off, until its relay gives up: no worker.
CUT_OFF = ("sshd:", MUSTER, "signal-witness")
KILLS = [kill_ssh, kill_login, kill_relay, kill_guardian, kill_agent, lose_host, cut_host]


@pytest.mark.parametrize("what", KILLS)
def test_a_job_that_needs_what_is_lost(here, what):
    """It ends with 75, whatever was lost of it, and nothing lives after the grace, also where nobody could be told."""
    agent = here.start("node1,node2", GRACE, *QUICK, worker=STUBBORN)
    here.told(2)
    begin = time.monotonic()
    what(here, agent)
    code, _, err = agent.finish(60)
    assert code == 75 and "node2" in err, f"{code} {err}"
    if what is cut_host:
        here.cluster.wait_left(20, without=CUT_OFF)
    else:
        all_gone(here, begin, known_s=20 if what is lose_host else 1)  # it is known lost when its lease has run out


@pytest.mark.parametrize("what", KILLS)
def test_a_job_that_recovers(here, what):
    """It goes on with the hosts that are left, and ends with 0; what is lost is said."""
    agent = here.start("node[1-3]", "--nnodes=2:3", GRACE, *QUICK, "--rdzv-conf=last_call_timeout=1", worker=None)
    here.job.events.wait("start", 3, world=3)
    what(here, agent)
    here.job.events.wait("start", 2, 60, world=2)
    here.job.go()
    code, _, err = agent.finish(60)
    assert code == 0 and "node2" in err, f"{code} {err}"
    here.cluster.wait_left(20, without=CUT_OFF if what is cut_host else ())


@pytest.mark.slow
def test_nothing_stays_on_a_host_that_is_cut_off(here):
    """Its relay hears nothing for a minute, and ends the agent. Its sshd may wait longer for the connection."""
    agent = here.start("node[1-3]", "--nnodes=2:3", GRACE, *QUICK, worker=STUBBORN)
    here.told(3)
    cut_host(here, agent)
    end = deadline(60 + GRACE_S + 10)
    while left := [title for title in here.cluster.left().get("node2", []) if not title.startswith("sshd:")]:
        assert time.monotonic() < end, left
        pause(0.2)
    kill(here.head(agent), signal.SIGTERM)
    agent.finish()


@pytest.mark.slow
def test_a_starter_that_stands_still(here):
    """A relay that hears nothing from it for a minute ends the job there, as if it had been killed."""
    agent = here.start("node1,node2", GRACE, worker=None)
    here.told(2)
    head = here.head(agent)
    os.kill(head, signal.SIGSTOP)
    try:
        here.cluster.wait_left(80, without=(MUSTER + " run", "ssh "))
        assert here.job.events.all("got", name="SIGTERM")
    finally:
        for pid in (head, agent.pid):  # nsenter has stopped as its child had
            os.kill(pid, signal.SIGCONT)
    agent.finish()


def test_a_killed_relay_whose_agent_is_stopped(here):
    """Also a guardian that is stopped just then does not keep its workers alive."""
    agent = here.start("node1,node2", GRACE, *QUICK, worker=STUBBORN)
    here.told(2)
    pid = guardian(here)
    os.kill(pid, signal.SIGSTOP)
    try:
        kill_relay(here, agent)
        agent.finish(60)
        pause(0.1)
    finally:
        kill(pid, signal.SIGCONT)
    here.gone(GRACE_S + 2)


