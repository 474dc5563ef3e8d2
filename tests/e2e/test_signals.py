"""Signals to `muster run`: which reach the workers, which end the job, which do nothing."""
import os
import signal
import time

import pytest

from harness import deadline, free_port

# Tells which signals come, to it and to a child of its own, until the test says go; then what Python's `finally` tells.
TELLS = r"""
import os, signal, sys
def tell(what):
    fd = os.open(os.environ["E2E_EVENTS"], os.O_WRONLY)
    os.write(fd, (what + " rank=" + os.environ["RANK"] + "\n").encode())
    os.close(fd)
for signo in signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH:
    if signal.getsignal(signo) != signal.SIG_IGN:
        signal.signal(signo, lambda signo, frame: tell("got name=" + signal.Signals(signo).name))
started = False
try:
    while True:
        try:
            if not started:
                started = True
                tell("start ignored=" + "+".join(n for n in ("SIGHUP", "SIGINT", "SIGQUIT")
                                                 if signal.getsignal(getattr(signal, n)) == signal.SIG_IGN))
            os.close(os.open(os.environ["E2E_GO"], os.O_RDONLY))
            break
        except KeyboardInterrupt:
            tell("got name=SIGINT")
finally:
    tell("finally")
"""


@pytest.fixture
def tells(job, tmp_path):
    path = tmp_path / "tells.py"
    path.write_text(TELLS)

    def start(*words, **more):
        return job.agent("a", "--nproc-per-node=2", *words, path, **more)
    return start


def got(job):
    return sorted((e.fields["name"], e.fields["rank"]) for e in job.events.all("got"))


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"])
def test_workers_get_the_signal_that_ends_the_job_once(job, tells, name):
    agent = tells("--signals-to-handle=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGUSR2")
    job.events.wait("start", 2)
    agent.signal(getattr(signal, name))
    job.events.wait("got", 2)
    job.go()
    code, _, err = agent.finish()
    assert code == 128 + getattr(signal, name), err
    assert got(job) == [(name, "0"), (name, "1")]
    assert len(job.events.all("finally")) == 2


def test_after_the_grace_workers_are_killed_whatever_the_signal(job, tells):
    agent = tells("--shutdown-timeout=1")
    job.events.wait("start", 2)
    agent.signal(signal.SIGHUP)
    code, _, err = agent.finish()
    assert code == 128 + signal.SIGHUP, err
    assert got(job) == [("SIGHUP", "0"), ("SIGHUP", "1")] and not job.events.all("finally")


def test_other_signals_reach_the_workers_and_the_job_goes_on(job, tells):
    agent = tells()
    job.events.wait("start", 2)
    for number, name in enumerate(["SIGUSR1", "SIGUSR2", "SIGWINCH"], 1):
        agent.signal(getattr(signal, name))
        job.events.wait("got", 2, name=name)
        assert len(got(job)) == 2 * number
    job.go()
    code, _, err = agent.finish()
    assert code == 0, err


def test_a_signal_that_is_passed_on_reaches_no_process_below_a_worker(job, tmp_path):
    """A data loader's processes have no handler for the signal that means: save a checkpoint."""
    agent = job.agent("a", "--no-python", "/bin/bash", "-c",
                      'sleep 300 & trap "kill -0 $! && echo alive=$?; kill $!; exit 0" USR1; '
                      'echo start >$E2E_EVENTS; wait')
    job.events.wait("start", 1)
    agent.signal(signal.SIGUSR1)
    code, out, err = agent.finish()
    assert code == 0 and out == "alive=0\n", err


def test_a_worker_that_dies_of_a_signal_that_was_passed_on_has_failed(job, worker):
    agent = job.agent("a", "--no-python", worker, "start", "wait")
    job.events.wait("start", 1)
    agent.signal(signal.SIGUSR2)
    code, _, err = agent.finish()
    assert code == 1 and "SIGUSR2" in err, err


def test_before_there_are_workers_other_signals_do_nothing(job, worker):
    agent = job.agent("a", "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}",
                      "--no-python", worker, "start", "wait")
    agent.wait_said("wait")
    for signo in signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGALRM, signal.SIGIO:
        agent.signal(signo)
    agent.signal(signal.SIGTERM)
    code, _, err = agent.finish()
    assert code == 128 + signal.SIGTERM, err


IGNORES_ALL = ("/bin/sh", "-c", 'trap "" HUP INT QUIT USR1 USR2 TERM PIPE CHLD TSTP TTIN TTOU CONT; exec "$@"', "sh")


def test_only_sighup_remains_ignored(job, tells):
    """As with nohup."""
    agent = tells(prefix=IGNORES_ALL)
    assert {e.fields["ignored"] for e in job.events.wait("start", 2)} == {"SIGHUP"}
    agent.signal(signal.SIGHUP)
    agent.signal(signal.SIGUSR1)  # comes after it
    job.events.wait("got", 2)
    agent.signal(signal.SIGTERM)
    job.events.wait("got", 4)
    agent.signal(signal.SIGHUP)
    agent.signal(signal.SIGUSR2)
    job.events.wait("got", 6)
    job.go()
    code, _, err = agent.finish()
    assert code == 128 + signal.SIGTERM, err
    assert {name for name, _ in got(job)} == {"SIGUSR1", "SIGTERM", "SIGUSR2"}


def test_no_worker_inherits_an_ignored_signal(job):
    """A cold worker and one that was warm."""
    script = job.tmp / "mask.py"
    script.write_text(r"""
import os, re
restart = os.environ["TORCHELASTIC_RESTART_COUNT"]
mask = int(re.search("SigIgn:\t(.*)", open("/proc/self/status").read())[1], 16)
fd = os.open(os.environ["E2E_EVENTS"], os.O_WRONLY)
os.write(fd, f"start restart={restart} mask={mask & ~(1 << 12 | 1 << 24):x}\n".encode())  # Python ignores SIGPIPE, SIGXFSZ
if restart == "0":
    os.close(os.open(os.environ["E2E_GO"], os.O_RDONLY))
    raise SystemExit(3)
""")
    agent = job.agent("a", "--warm", "--warm-after=0", "--max-restarts=1", "--event-log=events.jsonl", script,
                      prefix=IGNORES_ALL)
    job.events.wait("start", 1)
    job.go()
    code, _, err = agent.finish()
    assert code == 0, err
    assert {e.fields["restart"]: e.fields["mask"] for e in job.events.all("start")} == {"0": "1", "1": "1"}


@pytest.mark.parametrize("name", ["SIGINT", "SIGQUIT"])
def test_a_background_job_of_a_script_can_be_interrupted(job, tells, name):
    agent = tells(prefix=("/bin/bash", "-c", 'trap "" INT QUIT; exec "$@"', "sh"))
    job.events.wait("start", 2)
    agent.signal(getattr(signal, name))
    job.events.wait("got", 2)
    job.go()
    assert agent.finish()[0] == 128 + getattr(signal, name)
    assert got(job) == [(name, "0"), (name, "1")]


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_last_output_is_written_does_not_end_the_job(job, signo):
    """All workers have ended with 0, and the reader is slow. ^C once is only answered; SIGTERM can cost output, and then
    the status is 1. The signal is never the status."""
    out_r, out_w = os.pipe()
    log = job.tmp / "log"
    agent = job.agent("a", f"--event-log={log}", "--no-python", "/bin/sh", "-c", "yes | head -c 2500000", stdout=out_w)
    os.close(out_w)
    end = deadline(30)
    while not (log.exists() and '"closed"' in log.read_text()) and time.monotonic() < end:
        assert agent.wait(0.01) is None
    agent.signal(signo)
    agent.signal(signal.SIGUSR1)
    with open(out_r, "rb") as f:
        complete = len(f.read()) == 2500000
    code, _, err = agent.finish()
    assert complete or (signo == signal.SIGTERM and "bytes of output lost" in err), err
    assert code == (0 if complete else 1), err
