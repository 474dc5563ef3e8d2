"""The head: muster in a batch script, below salloc or in an interactive step starts its own step of Slurm, stays as its
parent, and hears from the agent that leads how the job ended. On emulated hosts with a real Slurm (slurm.py)."""
import contextlib
import os
import pathlib
import re
import shlex
import shutil
import signal
import time

import pytest

from eavesdrop import Wire, shown
from harness import alive, children, deadline, kill
from slurm import pause, slurm_or_skip
from test_slurm import QUICK, RUN, SHOW, settled

# Speaks to the head's port as a stranger: bytes that are nothing, a verdict without a greeting, a wrong token, the right one
# without the key, and many connections that say nothing.
STRANGER = r"""
import json, socket, struct, sys
addrs, _, port = sys.argv[1].rpartition(":")
def connect():
    return socket.create_connection((addrs.split(",")[0], int(port)), 10)
def frame(kind, **fields):
    text = kind + json.dumps(fields).encode()
    return struct.pack("<I", len(text)) + text
verdict = frame(b"V", status=3, lost=0, text="", safe=False, lost_nodes="")
lead = frame(b"L", version=3, token="0" * 32, host="x", step="1.0")
known = frame(b"L", version=3, token=sys.argv[2], host="x", step="1.0")
for said in b"GET / HTTP/1.1\r\n\r\n", verdict, lead + verdict, known + verdict, b"\x16\x03\x01\x00\x02xx", \
        b"\xff\xff\xff\xff", frame(b"S", signal=15):
    s = connect()
    s.sendall(said)
    assert s.recv(100)[:1] in (b"", b"\x15"), said  # TLS says in an alert why
silent = [connect() for _ in range(40)]
assert silent[0].recv(1) == b""
print("done")
"""


@pytest.fixture(scope="module")
def linuxproc():
    with slurm_or_skip(3, gpus=2) as slurm:
        yield slurm


@pytest.fixture(scope="module")
def cgroup():
    with slurm_or_skip(2, cgroup=True) as slurm:
        yield slurm


@pytest.fixture
def here(linuxproc, job):
    return settled(linuxproc, job)


@pytest.fixture(params=["linuxproc", "cgroup"])
def either(request, job):
    return settled(request.getfixturevalue(request.param), job)


def in_batch(here, nodes, *words, worker=SHOW, options=(), after="echo status $?"):
    return here.batch(f"{here.shell(*words, worker=worker)}\n{after}", f"-N{nodes}", "--ntasks-per-node=1", *options)


def head_of(here, node=0):
    """The pids of the head and of its srun, both of the first host's batch script."""
    end = deadline(20)
    while time.monotonic() < end:
        for pid in here.slurm.nodes[node].processes():
            with contextlib.suppress(OSError):
                if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"srun\0--nodes="):
                    parent = int(re.search(r"^PPid:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1])
                    if pathlib.Path(f"/proc/{parent}/cmdline").read_bytes().startswith(RUN[0].encode() + b"\0run\0"):
                        return parent, pid
        pause(0.05)
    raise AssertionError("no srun with a head")


def variable(pid, name):
    """None also of a process that has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for word in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if word.startswith(name.encode() + b"="):
                return word.partition(b"=")[2].decode()
    return None


def test_what_is_seen_of_a_job(here):
    """The group's lines once, workers' with their rank, and nothing of the head's secret in a worker."""
    script = "echo in $SLURMD_NODENAME; env | grep -c MUSTER_HEAD; exit 0"
    line = shlex.join([*RUN, "--nproc-per-node=2", "--no-python", "sh", "-c", script])
    number = here.batch(f"{line} && exec echo took $SECONDS", "-N3", "--ntasks-per-node=1")
    assert here.slurm.end(number)["JobState"] == "COMPLETED"
    lines = here.output(number).splitlines()
    shown = sorted(x for x in lines if x.startswith("["))
    hosts = here.on(2, 2, 2)
    assert shown == sorted([f"[rank{rank}]: in {hosts[rank]}" for rank in range(6)] + [f"[rank{rank}]: 0" for rank in range(6)])
    assert len([x for x in lines if re.match(r"muster: attempt 1: 3 nodes, 6 workers", x)]) == 1, lines
    assert not [x for x in lines if x.startswith("srun:")], lines
    others = [x for x in lines if x.startswith("muster:") and not x.startswith("muster: attempt ")]
    slow = int(lines[-1].removeprefix("took ")) >= 2
    assert not others or slow and all(x.startswith("muster: waiting for nodes: ") for x in others), lines


def test_a_node_that_is_late_is_waited_for_in_words(here):
    """srun starts all nodes at once, so nothing is said of a short wait."""
    late = here.job.tmp / "late"
    os.mkfifo(late)
    script = f"[ $SLURM_PROCID = 0 ] || read -r _ < {late}; exec {here.shell()}"
    agent = here.client("srun", "-N2", "bash", "-c", script)
    agent.wait_said("waiting for nodes: 1 of 2 here")
    late.write_text("\n")
    assert here.workers(2) == here.on(1, 1)
    _, err = here.ends_well(agent)
    assert err.count("waiting for nodes") == 1 and "SLURM_OVERLAP" not in err, err


@pytest.mark.parametrize("words", [(), ("--shutdown-timeout=9",)])
def test_two_in_one_allocation_wait_in_words(here, words):
    line = here.shell(*words, worker=("start", "go"))
    number = here.batch(f"{line} & {line} & wait", "-N2", "--ntasks-per-node=1")
    end = deadline(30)
    while "to run both at once: export SLURM_OVERLAP=1" not in here.output(number):
        assert time.monotonic() < end, here.output(number)
        pause(0.1)
    here.job.go()
    assert here.slurm.end(number)["JobState"] == "COMPLETED"
    assert here.output(number).count("SLURM_OVERLAP") == 1


def test_two_that_overlap_run_at_once(here):
    line = here.shell(worker=("start", "go"))
    number = here.batch(f"export SLURM_OVERLAP=1; {line} & {line} & wait", "-N2", "--ntasks-per-node=1")
    here.job.events.wait("start", 4, 30)
    here.job.go()
    assert here.slurm.end(number)["JobState"] == "COMPLETED"


def test_an_srun_that_can_not_start_the_step(here):
    """As while munge is down. What srun itself says does not name muster's part in it."""
    tools = here.job.tmp / "bin"
    tools.mkdir()
    (tools / "srun").write_text("#!/bin/sh\necho 'srun: error: Munge encode failed' >&2\nexit 1\n")
    (tools / "srun").chmod(0o755)
    number = here.batch(f"PATH={tools}:$PATH {here.shell()}; echo status $?", "-N2", "--ntasks-per-node=1")
    here.slurm.end(number)
    said = here.output(number)
    assert "status 1" in said and said.count("srun ended with status 1 before muster began on the nodes") == 1, said
    assert "try srun hostname here" in said, said
    here.gone()


def test_a_users_own_prefix_stays(here):
    line = shlex.join([*RUN, "--tee=3", "--log-line-prefix-template=<${rank}> ", "--no-python", "echo", "hello"])
    number = here.batch(line, "-N2", "--ntasks-per-node=1")
    assert here.slurm.end(number)["JobState"] == "COMPLETED"
    assert sorted(x for x in here.output(number).splitlines() if "hello" in x) == ["<0> hello", "<1> hello"]


def test_the_rest_of_a_script_is_not_read(here):
    """Neither the lines of a loop around muster, nor those of a script that comes by a pipe."""
    run = shlex.join([*RUN, "--no-python", "echo", "ran"])
    number = here.batch(f"printf 'a\\nb\\n' | while read -r x; do echo loop $x; {run}; done", "-N2", "--ntasks-per-node=1")
    assert here.slurm.end(number)["JobState"] == "COMPLETED"
    lines = here.output(number).splitlines()
    assert [x for x in lines if x.startswith("loop")] == ["loop a", "loop b"]
    assert len([x for x in lines if x.endswith("ran")]) == 4


def test_another_starter_than_srun(here):
    """none: the agent of this host alone, as without Slurm's other nodes."""
    number = in_batch(here, 2, "--starter=none")
    starts = here.job.events.wait("start", 1)
    assert [e.fields["world"] for e in starts] == ["1"]
    assert "status 0" in here.completes(number)
    done = here.slurm.run(*RUN, "--starter=srun", "--no-python", "true", check=False)
    assert done.returncode == 2 and "there is no job of Slurm here" in done.stderr


def test_the_number_of_nodes(here):
    number = in_batch(here, 3, "--nnodes=2")
    assert here.workers(2) == here.on(1, 1)
    here.completes(number)
    number = in_batch(here, 2, "--nnodes=4")
    here.slurm.end(number)
    assert re.search(r"4 nodes are asked for, but Slurm's job \d+ has 2.*\nstatus 2", here.output(number))


def test_tasks_of_the_job_without_gpus_are_workers(here):
    number = here.batch(here.shell(), "-N2", "--ntasks-per-node=3", "--cpus-per-task=2")
    assert here.workers(6) == here.on(3, 3)
    here.completes(number)


@pytest.mark.parametrize("options, world", [(["--ntasks-per-node=2", "--gpus-per-task=1"], 4),
                                            (["--ntasks-per-node=1", "--gpus=3"], 3),
                                            (["--ntasks-per-node=1", "--gpus-per-node=2"], 4)])
def test_all_gpus_of_the_job_are_used(here, options, world):
    """Also where the job has asked for them for each task, and where nodes have different numbers."""
    number = here.batch(here.shell(), "-N2", *options)
    here.workers(world)
    here.completes(number)


def test_several_tasks_of_a_host_are_one_agent(here):
    """The others hold, else --wait would end the step."""
    agent = here.srun(["-N2", "--ntasks-per-node=4", "--wait=1"])
    assert here.workers(8) == here.on(4, 4)
    pause(3)
    assert agent.process.poll() is None, agent.output()
    out, err = here.ends_well(agent)
    assert len(here.job.events.all("start")) == 8
    assert err.count("attempt ") == 1, err


def test_the_tasks_that_hold_end_with_the_status(here):
    agent = here.srun(["-N2", "--ntasks-per-node=3", "--wait=1"], "--exit-code=worker",
                      worker=("start", "rank=1", "exit=3", "go"))
    code, _, err = agent.finish()
    assert code == 3, err
    assert len(re.findall(r"tasks? [\d,-]+: Exited with exit code 3", err)) == 2, err
    here.gone()


def test_tasks_whose_agent_is_killed(here):
    agent = here.srun(["-N1", "--ntasks-per-node=2", "--wait=30"])
    here.workers(2)
    for pid in [p for p in here.slurm.nodes[0].processes() if is_head(p)]:
        if variable(pid, "SLURM_LOCALID") == "0":
            kill(pid)
    code, _, err = agent.finish()
    assert code != 0 and "muster's agent on this node, the first task, was killed" in err, err
    here.gone()


def test_one_agent_has_the_cpus_of_all_tasks(cgroup, job):
    here = settled(cgroup, job)
    if here.slurm.cpus < 2:
        pytest.skip("one CPU")
    line = [*RUN, "--nproc-per-node=cpu", "--bind=none", "--no-python", "sh", "-c", "echo $WORLD_SIZE $(grep Cpus_allowed_list /proc/self/status)"]
    done = here.slurm.run("srun", "-N1", "-n2", *line, env=job.env("a", here.env()))
    assert len(re.findall(r"2 Cpus_allowed_list:\s*\d+[-,]\d+\n", done.stdout)) == 2, done.stdout + done.stderr


def test_the_users_cpus_per_task_reach_workers(here):
    line = shlex.join([*RUN, "--no-python", "sh", "-c", "echo cpus $SLURM_CPUS_PER_TASK."])
    number = here.batch(line, "-N2", "--ntasks-per-node=1", "--cpus-per-task=2")
    here.slurm.end(number)
    assert here.output(number).count("cpus 2.") == 2, here.output(number)


def test_a_worker_that_starts_a_job(here):
    """It is one of its own, on its host."""
    inner = shlex.join([*RUN, "--nproc-per-node=2", "--no-python", "sh", "-c", "echo inner $RANK of $WORLD_SIZE"])
    number = here.batch(shlex.join([*RUN, "--no-python", "sh", "-c", inner]) + "; echo status $?", "-N2",
                        "--ntasks-per-node=1")
    here.slurm.end(number)
    said = here.output(number)
    assert said.count("inner 0 of 2") == said.count("inner 1 of 2") == 2 and "status 0" in said, said


def test_no_agent_starts(here):
    number = here.batch(shlex.join([*RUN, "/nowhere/train.py"]) + "\necho status $?", "-N2", "--ntasks-per-node=1")
    here.slurm.end(number)
    assert "status 2" in here.output(number), here.output(number)


def test_the_first_failures_status(here):
    number = in_batch(here, 2, "--exit-code=worker", worker=("start", "rank=1", "exit=3", "go"))
    here.slurm.end(number)
    assert "status 3" in here.output(number), here.output(number)
    assert here.output(number).count("ChildFailedError") == 1
    here.gone()


def test_a_stranger_at_the_port_changes_nothing(here):
    number = in_batch(here, 2)
    here.workers(2)
    _, srun = head_of(here)
    token = variable(srun, "MUSTER_HEAD_TOKEN")
    assert token not in pathlib.Path(f"/proc/{srun}/cmdline").read_text()
    said = here.slurm.run("python3", "-c", STRANGER, variable(srun, "MUSTER_HEAD"), token, on=1)
    assert said.stdout == "done\n"
    assert "status 0" in here.completes(number)


def test_the_jobs_key_is_not_shown(here):
    """Of all processes only srun has it, in its environment."""
    number = in_batch(here, 2, "-r3", "--log-dir=logs", "--event-log=events.json", "-vv")
    here.workers(2)
    head, srun = head_of(here)
    key = variable(srun, "MUSTER_HEAD_KEY").removeprefix("muster-key-1:")
    assert len(key) == 64
    pids = [pid for n in range(2) for pid in here.slurm.nodes[n].processes()]
    assert head in pids and srun in pids and len(pids) > 10
    assert {where.split()[0:3:2] == ["environ", "srun"] for where in shown(key, pids)} == {True}
    assert key not in here.completes(number)
    written = [path for path in here.job.tmp.rglob("*") if path.is_file()]
    assert len(written) > 4 and not [path for path in written if key.encode() in path.read_bytes()]


def test_what_head_and_agent_say_can_not_be_heard(here):
    with Wire(here.slurm, 0, inside=True) as wire:
        number = in_batch(here, 2)
        here.workers(2)
        _, srun = head_of(here)
        token, port = variable(srun, "MUSTER_HEAD_TOKEN"), int(variable(srun, "MUSTER_HEAD").rpartition(":")[2])
        assert "status 0" in here.completes(number)
    said = wire.said(port)
    assert said[:2] == b"\x16\x03", said
    assert token.encode() not in said and b"version" not in said and b"lost_nodes" not in said


def test_with_auth_none_there_is_no_key(here):
    """And all is in clear: so is the link to the head, where there is one."""
    with Wire(here.slurm, 0, inside=True) as wire:
        number = in_batch(here, 2, "--auth=none")
        here.workers(2)
        _, srun = head_of(here)
        assert variable(srun, "MUSTER_HEAD_KEY") == "none"
        port = int(variable(srun, "MUSTER_HEAD").rpartition(":")[2])
        assert "status 0" in here.completes(number)
    assert b"version" in wire.said(port) and b"lost_nodes" in wire.said(port)


def test_a_key_that_does_not_arrive(here):
    """A job that should have a key does not begin without it."""
    (here.job.tmp / "srun").write_text(f"#!/bin/sh\nunset MUSTER_HEAD_KEY\nexec {shutil.which('srun')} \"$@\"\n")
    (here.job.tmp / "srun").chmod(0o755)
    number = here.batch(f"PATH={here.job.tmp}:$PATH {here.shell()}\necho status $?", "-N2", "--ntasks-per-node=1")
    here.slurm.end(number)
    said = here.output(number)
    assert "status 2" in said and "MUSTER_HEAD_KEY has not arrived here" in said, said


@pytest.mark.parametrize("way", ["MUSTER_KEY", "MUSTER_KEY_FILE", "--key-file"])
def test_the_users_own_key_is_passed_on(here, way):
    """Nodes need no file, and have no other key."""
    key = "muster-key-1:" + "07" * 32
    path = here.job.tmp / "key"
    path.write_text(key + "\n")
    path.chmod(0o600)
    value = key if way == "MUSTER_KEY" else path
    run = here.shell(f"{way}={value}") if way[0] == "-" else f"{way}={value} {here.shell()}"
    number = here.batch(f"{run}\necho status $?", "-N2", "--ntasks-per-node=1")
    here.workers(2)
    head, srun = head_of(here)
    path.unlink()
    assert variable(srun, "MUSTER_HEAD_KEY") == key
    assert variable(srun, "MUSTER_KEY") is None and variable(srun, "MUSTER_KEY_FILE") is None
    assert not variable(head, "MUSTER_KEY")
    assert "status 0" in here.completes(number)


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_head_ends_the_job_in_order(either, signo):
    number = in_batch(either, 2, worker=None)
    either.job.events.wait("start", 2)
    kill(head_of(either)[0], signo)
    assert either.job.events.wait("saved", 1)
    either.slurm.end(number)
    either.gone()
    assert f"status {128 + signo}" in either.output(number), either.output(number)


def test_each_worker_gets_one_sigterm_by_the_head(either):
    number = in_batch(either, 2, worker=None)
    either.told(2)
    kill(head_of(either)[0], signal.SIGTERM)
    either.slurm.end(number)
    either.got_once("SIGTERM", 2)


def test_a_users_signal_to_the_head(either):
    number = in_batch(either, 2, worker=None)
    either.told(2)
    kill(head_of(either)[0], signal.SIGUSR1)
    either.job.events.wait("got", 2, name="SIGUSR1")
    assert "status 0" in either.completes(number)
    either.got_once("SIGUSR1", 2)


def test_a_killed_head(either):
    """The job ends in good order: its workers save first. (A batch script that has ended would end them, too.)"""
    number = in_batch(either, 2, worker=None, after="echo status $?; sleep 9")
    either.told(2)
    kill(head_of(either)[0])
    assert either.job.events.wait("saved", 1)
    either.slurm.end(number)
    either.gone()
    either.got_once("SIGTERM", 2)


def until_said(here, number, what, count=1):
    end = deadline(20)
    while here.output(number).count(what) < count:
        assert time.monotonic() < end, here.output(number)
        pause(0.05)


def test_a_head_that_is_killed_before_an_agent_has_come(either):
    """Here none ever comes, because the head's machine refuses every connection: its step ends in order, too."""
    (either.job.tmp / "srun").write_text(
        f"#!/bin/bash\nMUSTER_HEAD=127.0.0.1:1 exec -a srun {shutil.which('srun')} \"$@\"\n")
    (either.job.tmp / "srun").chmod(0o755)
    saves = "trap 'echo saved; exit 1' INT TERM; echo begun; while :; do sleep 0.1; done"
    line = shlex.join([*RUN, "--no-python", "sh", "-c", saves])
    number = either.batch(f"PATH={either.job.tmp}:$PATH {line}\necho status $?; sleep 9", "-N2", "--ntasks-per-node=1")
    until_said(either, number, "begun", 2)
    kill(head_of(either)[0])
    until_said(either, number, "saved", 2)
    either.slurm.end(number)
    either.gone()
    assert "status 137\n" in either.output(number)


def test_a_head_that_is_killed_while_its_step_waits_for_nodes(here):
    """Another step has them: srun does not go on to wait, and no step begins later."""
    other = "srun --exclusive -N2 -n2 -c8 sleep 600"
    number = here.batch(f"{other} & until squeue -s -h -j $SLURM_JOB_ID | grep -q sleep; do :; done\n"
                        f"{here.shell(worker=('start',))}\necho status $?; wait", "-N2", "--exclusive")
    head, srun = head_of(here)
    end = deadline(20)
    while not any(pathlib.Path(f"/proc/{pid}/comm").read_text() == "muster-lifeline\n" for pid in children(head)):
        assert time.monotonic() < end, "nobody watches"
        pause(0.05)
    kill(head)
    end = deadline(5)
    while alive(srun):
        assert time.monotonic() < end, here.output(number)
        pause(0.05)
    here.slurm.run("scancel", number)
    here.slurm.end(number)
    here.gone()
    assert not here.job.events.all("start")


def test_a_killed_srun(either):
    """A process that srun leaves for that kills the step at once. The job is not said to have succeeded."""
    number = in_batch(either, 2, worker=None)
    either.job.events.wait("start", 2)
    kill(head_of(either)[1])
    either.slurm.end(number)
    either.gone()
    assert re.search("status (75|143)\n", either.output(number)), either.output(number)


STUBBORN = r"""
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(os.open(os.environ["E2E_EVENTS"], os.O_WRONLY), b"start\n")
while True:
    signal.pause()
"""


def interrupted_twice(here, before="", after=""):
    """The number of a batch job of two stubborn workers, whose head gets ^C again."""
    path = here.job.tmp / "stubborn.py"
    path.write_text(STUBBORN)
    number = here.batch(f"{before}{shlex.join([*RUN, str(path)])}\necho status $?\n{after}", "-N2", "--ntasks-per-node=1")
    here.job.events.wait("start", 2)
    head, _ = head_of(here)
    kill(head, signal.SIGINT)
    end = deadline(10)
    while "stopping the job" not in here.output(number):
        assert time.monotonic() < end
        pause(0.05)
    kill(head, signal.SIGINT)
    return number


def test_a_second_interrupt_kills(either):
    number = interrupted_twice(either)
    either.slurm.end(number, 20)
    assert "status 130" in either.output(number)
    either.gone()


def test_a_scancel_that_hangs_ends_with_the_head(here):
    """Both it and what it has started."""
    tools, pids = here.job.tmp / "tools", here.job.tmp / "pids"
    tools.mkdir()
    (tools / "scancel").write_text(f"#!/bin/sh\nsleep 1000 &\necho $! $$ > {pids}\nwait\n")
    (tools / "scancel").chmod(0o755)
    number = interrupted_twice(here, f"PATH={tools}:$PATH ",
                               f"for pid in $(cat {pids}); do timeout 5 tail --pid=$pid -s 0.05 -f /dev/null; echo waited $?; done")
    here.slurm.end(number, 40)
    said = here.output(number)
    assert "status 130" in said and re.findall(r"waited (\d+)", said) == ["0", "0"], said
    here.gone()


def test_a_lost_node_and_a_recovered_job(here):
    """Whatever srun says, the status is the job's; and nobody waits until Slurm has noticed the loss."""
    number = in_batch(here, 3, "--nnodes=2:3", *QUICK, options=["--no-kill"])
    here.workers(3)
    here.slurm.power_off(2)
    here.job.events.wait("start", 2, 30, world=2)
    here.job.go()
    here.slurm.end(number, 60)
    assert "status 0" in here.output(number), here.output(number)


def test_salloc_and_its_terminal(here):
    """^C reaches the head alone: srun is in a session of its own."""
    agent = here.client("salloc", "--quiet", "-N2", "--ntasks-per-node=1", *here.line(worker=None))
    here.job.events.wait("start", 2)
    heads = [pid for pid in children_below(agent.pid) if is_head(pid)]
    assert len(heads) == 1, heads
    srun = [pid for pid in children(heads[0]) if b"srun" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert os.getsid(srun[0]) != os.getsid(heads[0])
    shown = here.slurm.run(RUN[0], "ps", env=here.job.env("a", here.env())).stdout
    mine = [line for line in shown.splitlines() if line.startswith("emu.")]  # root also sees jobs of other tests
    assert len(mine) == 1 and re.match(r"emu\.\d+ +starter +head +- +2 nodes ", mine[0]), shown
    done = here.slurm.run(RUN[0], "status", env=here.job.env("a", here.env()), check=False)
    assert done.returncode == 1 and re.search(r"was started here by process \d+, .*\n  srun --jobid=\d+ --overlap -N1 -n1 "
                                              rf"{RUN[0]} status\n", done.stderr), done.stderr
    there = here.slurm.run("sh", "-c", done.stderr.splitlines()[-1], env=here.job.env("a", here.env()))
    assert "2 nodes, 2 workers" in there.stdout, there
    kill(heads[0], signal.SIGINT)
    here.job.events.wait("got", 1, name="SIGTERM", rank=1)
    code, _, err = agent.finish()
    assert code == 130, err
    assert err.count("SIGINT") == 1 and "srun: error" not in err, err
    here.gone()


def test_a_login_node_knows_the_users_jobs(here):
    def status(*words, command="status"):
        return here.slurm.run(RUN[0], command, *words, env=here.job.env("a", here.env()), check=False)

    def line(number):
        return f"muster: error: Slurm's job {number} runs on other machines; ask on one of its nodes:\n" \
               f"  srun --jobid={number} --overlap -N1 -n1 muster "

    assert "no job" in status().stderr and "no job '4711'" in status("4711").stderr
    first = in_batch(here, 1)
    here.workers(1)
    assert [status(*w).stderr for w in ((), (first,), ("--rdzv-id", first))] == [line(first) + "status\n"] * 3
    assert status(first, command="stop").stderr == line(first) + "stop\n"
    asked = line(first).splitlines()[-1].replace(" muster ", f" {RUN[0]} status")
    there = here.slurm.run("sh", "-c", asked, env=here.job.env("a", here.env()))
    assert "1 node, 1 worker" in there.stdout, there
    second = in_batch(here, 2)
    here.job.events.wait("start", 3)
    there = here.slurm.run(RUN[0], "status", second, on=1, env=here.job.env("a", here.env()))
    assert f"job emu.{second}.0: running" in there.stdout, there
    done = status()
    assert done.returncode == 1 and {f"  muster status {n}" for n in (first, second)} == {*done.stderr.splitlines()[1:]}, done.stderr
    assert status(second).stderr == line(second) + "status\n"
    here.job.go()
    for number in (first, second):
        here.slurm.end(number)


def test_a_job_is_asked_in_its_batch_script(here):
    """The head there is no second job beside its own agent."""
    number = in_batch(here, 2)
    here.workers(2)
    head_of(here)
    env = here.job.env("a", here.env())
    stacks = here.slurm.run(RUN[0], "stacks", on=0, env=env)
    assert re.match(r"job emu\.\d+\.0: 2 workers on 2 nodes\n", stacks.stdout), stacks
    stopped = here.slurm.run(RUN[0], "stop", on=0, env=env)
    assert "the job is being stopped\n" in stopped.stdout, stopped
    here.slurm.end(number)
    assert "an operator stopped the job" in here.output(number), here.output(number)
    here.gone()
    ended = here.slurm.run(RUN[0], "status", str(number), on=0, env=env).stdout
    assert re.match(rf"job emu\.{number}\.0: failed .* ago\n  ran for  .*\n  reason  ", ended), ended


VENV = """\
mkdir -p {0}/bin && touch {0}/pyvenv.cfg && ln -s /usr/bin/python3 {0}/bin/python3 || exit 9
(unset PYTHON_EXEC; PATH={0}/bin:$PATH; {1}); status=$?
rm -r {0}
exit $status
"""


def test_an_environment_that_one_node_lacks(here):
    """There the workers run with another python, so that is told."""
    script = here.job.tmp / "train.py"
    script.write_text("import sys; print(sys.executable)\n")
    number = here.batch(VENV.format("/dev/shm/venv", shlex.join([*RUN, str(script)])), "-N2", "--ntasks-per-node=1")
    said = here.output(number) if here.slurm.end(number)["JobState"] == "COMPLETED" else ""
    told = [line for line in said.splitlines() if "warning" in line]
    assert len(told) == 1 and re.fullmatch(r"muster: warning: node2: there is no /dev/shm/venv/bin/python3 here, as where the job "
                                           r"was started: /\S+ runs the workers", told[0]), said or here.output(number)
    assert "[rank0]: /dev/shm/venv/bin/python3" in said, said


def test_an_environment_that_no_node_has(here):
    """As one of the login host, for srun without a head."""
    (here.job.tmp / "train.py").write_text("")
    done = here.slurm.run("srun", "-N2", "env", "-u", "PYTHON_EXEC", "VIRTUAL_ENV=/no/such/venv", *RUN, here.job.tmp / "train.py",
                          env=here.job.env("a", here.env()))
    told = sorted(line for line in done.stderr.splitlines() if "warning" in line and "this job is open" not in line)
    assert [re.sub(r": /\S+ runs", ": PYTHON runs", line) for line in told] == [
        f"muster: warning: {host}: there is no /no/such/venv/bin/python here, as where the job was started: PYTHON runs the workers"
        for host in here.on(1, 1)], done


def children_below(pid):
    for child in children(pid):
        yield child
        yield from children_below(child)


def is_head(pid):
    with contextlib.suppress(OSError):
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return alive(pid) and words[0] == RUN[0].encode() and words[1] == b"run"
    return False
