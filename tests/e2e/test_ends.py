"""Ends from outside: each worker gets each signal once, whoever else has got it; the time that is left; the reason."""
import os
import pathlib
import re
import shlex
import signal
import time

import pytest

from harness import MUSTER, SLOWER, VALGRIND, alive, children, kill, muster, processes_with
from terminal import Shell

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

# Tells of each signal as often as it comes, until the test says go. Python's own handlers may merge two of them.
COUNTS = r"""
import os, select, signal, sys
def tell(what):
    fd = os.open(os.environ["E2E_EVENTS"], os.O_WRONLY)
    os.write(fd, (what + " rank=" + os.environ["RANK"] + "\n").encode())
    os.close(fd)
ours, theirs = os.pipe()
os.set_blocking(ours, False)
os.set_blocking(theirs, False)
signal.set_wakeup_fd(theirs)
for signo in signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2:
    signal.signal(signo, lambda signo, frame: None)
go = os.open(os.environ["E2E_GO"], os.O_RDONLY | os.O_NONBLOCK)
tell("start")
more = True
while more:
    if not select.select([ours], [], [], 0.05)[0]:
        try:
            os.read(go, 1)  # nothing, until the test writes: then EAGAIN
        except BlockingIOError:
            more = False
        continue
    for signo in os.read(ours, 4096):
        tell("got name=" + signal.Signals(signo).name)
sys.exit(int(os.environ.get("E2E_STATUS", 0)))
"""


@pytest.fixture
def counts(job, tmp_path):
    """Starts two workers that count, and waits for the witness."""
    path = tmp_path / "counts.py"
    path.write_text(COUNTS)

    def start(*words, **more):
        agent = job.agent("a", "--nproc-per-node=2", "-vv", *words, path, **more)
        job.events.wait("start", 2)
        agent.wait_said("witness of signals watches")
        return agent
    return start


def tree(pid):
    return [pid] + [p for child in children(pid) for p in tree(child)]


def names_muster(pid):
    return MUSTER.encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()


def send(agent, how, signo):
    """As a person, a scheduler or an init would send it."""
    pids = tree(agent.pid)
    if how == "guardian":
        kill(agent.pid, signo)
    elif how == "agent":
        kill(agent.agent_pid(), signo)
    elif how == "group":
        os.killpg(agent.pid, signo)
    elif how == "agent's group":
        os.killpg(os.getpgid(agent.agent_pid()), signo)
    else:
        chosen = {"all": pids, "all, backwards": pids[::-1], "by name": [p for p in pids if names_muster(p)]}[how]
        assert len(chosen) >= (2 if how == "by name" else 5), chosen
        for pid in chosen:
            kill(pid, signo)


def got(job):
    return sorted((e.fields["name"], e.fields["rank"]) for e in job.events.all("got"))


ALONE = ["guardian", "agent", "group", "agent's group", "by name"]
ALL = ["all", "all, backwards"]
KNOWN = {True: "was sent to all processes of this node, workers too",
         False: "was sent to muster alone|is passed on to 2"}


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("how", ALONE + ALL)
def test_workers_get_one_signal_to_end_however_it_is_sent(job, counts, how, name):
    agent = counts()
    send(agent, how, getattr(signal, name))
    job.events.wait("got", 2)
    agent.wait_said(name + " (" + KNOWN[how in ALL] + ")")
    job.go()
    code, _, err = agent.finish()
    assert code == 128 + getattr(signal, name), err
    assert got(job) == [(name, "0"), (name, "1")], err
    assert "FAILED" not in err and err.count("stopping 2 workers") == 1, err


@pytest.mark.parametrize("how", ALONE + ALL)
def test_workers_get_one_signal_that_does_not_end_the_job_however_it_is_sent(job, counts, how):
    agent = counts()
    for turn, name in enumerate(["SIGUSR1", "SIGUSR2", "SIGUSR1"], 1):
        send(agent, how, getattr(signal, name))
        job.events.wait("got", 2 * turn)
        assert agent.err.until(lambda: len(re.findall(KNOWN[how in ALL], agent.said())) >= turn, 30), agent.said()
    job.go()
    code, _, err = agent.finish()
    assert code == 0, err
    assert got(job) == sorted(2 * [("SIGUSR1", "0"), ("SIGUSR1", "1")] + [("SIGUSR2", "0"), ("SIGUSR2", "1")]), err


@pytest.mark.parametrize("contain", ["none", pytest.param("cgroup", marks=ROOT), pytest.param("pidns", marks=ROOT)])
def test_contained_workers_get_one_signal_too(job, counts, contain):
    agent = counts(f"--contain={contain}")
    send(agent, "all", signal.SIGTERM)
    job.events.wait("got", 2)
    agent.wait_said("SIGTERM (" + KNOWN[True] + ")")
    job.go()
    code, _, err = agent.finish()
    assert code == 128 + signal.SIGTERM and len(got(job)) == 2, err


@pytest.mark.skipif(VALGRIND, reason="the shell would name valgrind")
def test_a_key_at_the_terminal_reaches_each_worker_once_and_at_once(job, tmp_path):
    path = tmp_path / "counts.py"
    path.write_text(COUNTS)
    shell = Shell(job)
    try:
        shell.type(shlex.join([*muster(), "run", "--nproc-per-node=2", "-vv", str(path)]) + "; echo status=$?\n")
        job.events.wait("start", 2)
        shell.wait_said("witness of signals watches")
        shell.type("\x03")
        job.events.wait("got", 2)
        shell.wait_said("SIGINT was sent to muster alone")
        job.go()
        shell.wait_said(r"status=130\b")
        assert got(job) == [("SIGINT", "0"), ("SIGINT", "1")], shell.said()
    finally:
        shell.close()


@pytest.mark.parametrize("how", ALL)
def test_workers_that_die_of_a_signal_to_all_have_not_failed(job, worker, how):
    agent = job.agent("a", "--nproc-per-node=2", "--max-restarts=3", "-vv", "--no-python", worker, "start", "wait")
    job.events.wait("start", 2)
    agent.wait_said("witness of signals watches")
    send(agent, how, signal.SIGTERM)
    code, _, err = agent.finish()
    assert code == 128 + signal.SIGTERM, err
    assert "FAILED" not in err and "died" not in err and len(job.events.all("start")) == 2, err


def test_an_early_interrupt_to_all_is_one_interrupt(job):
    """As Slurm with proctrack/linuxproc sends it: before there is a witness, the agent's two copies come alone."""
    agent = job.agent("a", "--no-python", job.worker, "start", "wait")
    job.events.wait("start", 1)
    for pid in (agent.agent_pid(), agent.pid):
        kill(pid, signal.SIGINT)
    code, _, err = agent.finish()
    assert code == 128 + signal.SIGINT and "again" not in err, err


def test_sigtstp_without_a_terminal_is_not_reported(job, counts):
    """`scontrol suspend` sends it to each process."""
    agent = counts()
    for pid in agent.agent_pid(), agent.pid:
        kill(pid, signal.SIGTSTP)
    kill(children(agent.pid)[0], signal.SIGUSR1)
    job.events.wait("got", 2)  # the agent got SIGTSTP before
    job.go()
    code, _, err = agent.finish()
    assert code == 0 and "suspended" not in err, err


def test_a_worker_that_alone_dies_of_such_a_signal_has_failed(job, worker):
    agent = job.agent("a", "--nproc-per-node=2", "-vv", "--no-python", worker, "start", "wait")
    pid = int(job.events.wait("start", 2)[0].fields["pid"])
    agent.wait_said("witness of signals watches")
    kill(pid, signal.SIGTERM)
    code, _, err = agent.finish()
    assert code == 1 and "died of SIGTERM" in err and f"(pid: {pid})" in err, err


def test_nothing_of_the_witness_is_left_when_the_agent_is_killed(job, counts):
    agent = counts()
    witness = int(agent.wait_said(r"witness of signals watches \(process (\d+)\)")[1])
    assert alive(witness)
    kill(agent.agent_pid())
    agent.finish()
    assert processes_with(job.mark.encode()) == []


# --- what is around ---------------------------------------------------------------------------------------------------


def slurm(tmp_path, config="KillWait                = 8 sec", job=" JobState=RUNNING Reason=None PreemptTime=None "):
    """The environment of a Slurm job, whose scontrol says this."""
    tools = tmp_path / "bin"
    tools.mkdir()
    path = tools / "scontrol"
    path.write_text(f'#!/bin/sh\ncase "$2" in config) echo "{config}";; job) echo "JobId=$4{job}";; esac\n')
    path.chmod(0o755)
    return {"SLURM_JOB_ID": "17", "PATH": f"{tools}:{os.environ['PATH']}"}


def test_the_grace_is_three_seconds_shorter_than_slurms(job, counts, tmp_path):
    agent = counts(env=slurm(tmp_path))
    agent.wait_said(r"Slurm kills 8 s after SIGTERM \(KillWait\)")
    agent.signal(signal.SIGTERM)
    agent.wait_said(r"stopping 2 workers \(up to 5 s\)")
    job.events.wait("got", 2)
    code, _, err = agent.finish()  # nobody says go
    assert code == 128 + signal.SIGTERM, err


@pytest.mark.parametrize("words, said", [([], 27), (["--shutdown-timeout=29"], 29)])
def test_before_slurm_has_answered_its_default_counts_and_an_option_wins(job, counts, tmp_path, words, said):
    agent = counts(*words, env=slurm(tmp_path, config=""))
    agent.signal(signal.SIGTERM)
    agent.wait_said(rf"stopping 2 workers \(up to {said} s\)")
    job.go()
    assert agent.finish()[0] == 128 + signal.SIGTERM


def test_slurm_is_asked_with_the_signal_if_that_comes_early(job, counts, tmp_path):
    """The workers don't wait for the answer, but their grace is shorter when it has come."""
    env = slurm(tmp_path)
    slow = pathlib.Path(env["PATH"].split(":")[0], "scontrol")
    text = slow.read_text()
    slow.write_text(text.replace("\n", f"\n[ $2 = config ] && until [ -e {tmp_path}/answer ]; do sleep 0.1; done\n", 1))
    agent = counts(env=env)
    agent.signal(signal.SIGTERM)
    begin = time.monotonic()
    agent.wait_said(r"stopping 2 workers \(up to 27 s\)")
    job.events.wait("got", 2)
    (tmp_path / "answer").touch()
    agent.wait_said(r"Slurm kills 8 s after SIGTERM \(KillWait\): workers have 5 s, not 27 s")
    code, _, err = agent.finish()  # nobody says go
    assert code == 128 + signal.SIGTERM and 4.5 < time.monotonic() - begin < 15, err
    assert len(job.events.all("got")) == 2, err


def test_a_pod_has_three_seconds_less_than_kubernetes(job, tmp_path):
    path = tmp_path / "counts.py"
    path.write_text(COUNTS)
    agent = job.agent("a", "--nproc-per-node=2", path, env={"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
                      prefix=("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"))
    if not job.events.until(lambda: len(job.events._all("start", {})) == 2 or agent.wait(0) is not None, 30):
        pytest.fail(agent.said())
    if agent.wait(0) is not None:
        pytest.skip("no user namespaces here: " + agent.said())
    kill(children(agent.pid)[0], signal.SIGTERM)
    agent.wait_said(r"stopping 2 workers \(up to 27 s\)")
    job.go()
    agent.finish()


@pytest.mark.parametrize("state, said", [
    ("COMPLETING Reason=TimeLimit", "the job has reached its time limit"),
    ("COMPLETING Reason=None", "the job is cancelled"),
    ("COMPLETING Reason=None Requeue=1 Restarts=1 BatchFlag=1", "the job is requeued"),
    ("COMPLETING Reason=JobLaunchFailure ExitCode=0:10", "the allocation has ended"),
    ("RUNNING Reason=None PreemptTime=2026-01-01T00:00:00", "the job is preempted"),
])
def test_slurms_reason_is_told_once(job, counts, tmp_path, state, said):
    agent = counts(env=slurm(tmp_path, job=f" JobState={state} "))
    agent.signal(signal.SIGTERM)
    job.events.wait("got", 2)
    job.go()  # the workers end at once, and the answer still comes
    code, _, err = agent.finish()
    assert code == 128 + signal.SIGTERM, err
    assert err.count(f"muster: Slurm: {said} (job 17)\n") == 1, err


def test_a_slurm_that_does_not_answer_holds_nothing_up(job, counts, tmp_path):
    env = slurm(tmp_path)
    pathlib.Path(env["PATH"].split(":")[0], "scontrol").write_text("#!/bin/sh\nexec sleep 300\n")
    agent = counts(env=env)
    agent.signal(signal.SIGTERM)
    job.events.wait("got", 2)
    job.go()
    code, _, err = agent.finish(10 * SLOWER)
    assert code == 128 + signal.SIGTERM and "Slurm:" not in err, err
    assert processes_with(job.mark.encode()) == []


# --- exit status ------------------------------------------------------------------------------------------------------


def test_status_75_says_that_the_program_is_not_to_blame(job, worker):
    agents = job.pair("--rdzv-conf=join_timeout=1", "--max-restarts=3", worker=("start", "wait"), nnodes="2")
    job.events.wait("start", 4)
    agents[1].signal(signal.SIGTERM)
    assert [a.wait() for a in agents] == [75, 128 + signal.SIGTERM], [a.said() for a in agents]


def test_a_leader_that_is_told_to_end_is_no_fault_of_the_program(job, worker):
    agents = job.pair(worker=("start", "wait"), nnodes="2")
    starts = job.events.wait("start", 4)
    leader = next(e.fields["tag"] for e in starts if e.fields["node"] == "0")
    at = ["a", "b"].index(leader)
    agents[at].signal(signal.SIGTERM)
    assert agents[at].wait() == 128 + signal.SIGTERM and agents[1 - at].wait() == 75, [a.said() for a in agents]


def test_a_worker_that_fails_is_to_blame_whatever_follows(job, worker):
    agents = job.pair(worker=("start", "rank=0", "exit=3", "wait"), nnodes="2")
    assert [a.wait() for a in agents] == [1, 1], [a.said() for a in agents]
