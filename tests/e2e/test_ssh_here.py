"""A start over ssh on this machine alone: its own name and localhost need no ssh, and a script stands for ssh where a
host must have a login of its own. (Real ones: test_ssh.py.)"""
import os
import pathlib
import select
import shlex
import signal
import socket
import struct
import time

import pytest

from harness import alive, children, command, deadline, kill, processes_with
from terminal import Shell

# Takes ssh's options, and runs the command as sshd does: by a shell, with an environment of its own.
SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
host=$2; shift 2
exec env -i PATH=/usr/bin:/bin HOME=/home/$host USER=trainer LANG=C.UTF-8 SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22' \\
    MUSTER_RUN_DIR="$RUN_DIR/$host" sh -c "$*"
"""


@pytest.fixture
def ssh(job):
    path = job.tmp / "ssh"
    path.write_text(SSH)
    path.chmod(0o755)
    return f"--ssh={path}"


def env(job, **more):
    return {"RUN_DIR": str(job.tmp / "run-of"), **more}


def shell(script):
    return ["--no-python", "sh", "-c", script]


def test_this_machine_needs_no_ssh(job):
    """Also where Slurm's variables are around, which say nothing of an agent that Slurm has not started."""
    slurm = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "3", "SLURM_NODEID": "3"}
    code, out, err = job.run("-H", f"localhost:2,{socket.gethostname()}:1", "--ssh=/bin/false", "--export=A,B=2", *shell(
        "echo $RANK of $WORLD_SIZE in $PWD: $A $B; env | grep -c ^SLURM; true"), env={"A": "1", **slurm}, seconds=100)
    assert sorted(out.splitlines()) == sorted(f"[rank{r}]: {text}" for r in range(3)
                                              for text in (f"{r} of 3 in {job.tmp}: 1 2", "0")), out + err


@pytest.mark.parametrize("where", ["a file", "/dev/null"])
def test_output_to_what_no_loop_can_watch(job, where):
    path = job.tmp / "out" if where == "a file" else where
    with open(path, "w") as out:
        agent = job.agent("a", "-H", "localhost", *shell("seq 1 100000"), stdout=out.fileno(), stderr=out.fileno())
        assert agent.wait(60) == 0
    if where == "a file":
        got = [line for line in (job.tmp / "out").read_text().splitlines() if not line.startswith("muster")]
        assert got == [str(i) for i in range(1, 100001)]


SHOW = "for n in A B HOME USER TERM DISPLAY NCCL_X NCCL_Y; do echo $n=$(printenv $n); done"


@pytest.mark.parametrize("options, seen", [
    ((), {"A": "1", "NCCL_X": "x", "NCCL_Y": "y", "TERM": "vt100"}),
    (("--export=ALL,B=3,USER",), {"A": "1", "B": "3", "USER": "me", "NCCL_X": "x", "NCCL_Y": "y", "TERM": "vt100"}),
    (("--export=NCCL_*",), {"NCCL_X": "x", "NCCL_Y": "y"}),
    (("--export=NONE",), {}),
])
def test_what_is_exported(job, ssh, options, seen):
    mine = {"A": "1", "USER": "me", "TERM": "vt100", "DISPLAY": ":0", "NCCL_X": "x", "NCCL_Y": "y"}
    code, out, err = job.run("-H", "n1", ssh, *options, *shell(SHOW), env=env(job, **mine))
    want = {"A": "", "B": "", "HOME": "/home/n1", "USER": "trainer", "TERM": "", "DISPLAY": "", "NCCL_X": "", "NCCL_Y": "", **seen}
    assert code == 0, err
    assert out.splitlines() == [f"{name}={value}" for name, value in want.items()]


def test_a_bad_export_is_an_error_of_usage(job, ssh):
    code, _, err = job.run("-H", "n1,n2", ssh, "--export=A;B", *shell("true"), env=env(job))
    assert code == 2 and '"A;B" is not a variable' in err, err


STUBBORN = "trap '' TERM HUP INT; echo ready; while :; do sleep 1; done"
GRACE = 3


def three(job, ssh, script, *options):
    agent = job.agent("a", "-H", "n1,n2,n3", ssh, f"--shutdown-timeout={GRACE}", *options, *shell(script), env=env(job))
    assert agent.out.until(lambda: agent.output().count("ready") == 3, 60), agent.said()
    return agent


@pytest.mark.parametrize("way", ["killed", "its process group killed", "SIGTERM", "SIGINT twice"])
def test_nothing_lives_a_second_after_the_grace(job, ssh, way):
    agent = three(job, ssh, STUBBORN)
    began = time.monotonic()
    if way == "killed":
        agent.signal(signal.SIGKILL)
    elif way == "its process group killed":
        os.killpg(agent.pid, signal.SIGKILL)
    elif way == "SIGTERM":
        agent.signal(signal.SIGTERM)
    else:
        agent.signal(signal.SIGINT)
        agent.wait_said("stopping the job")
        agent.signal(signal.SIGINT)
    job.all_gone(30)
    took = time.monotonic() - began
    slower = float(os.environ.get("MUSTER_TEST_SLOWER", "1"))
    assert took < (GRACE + 1 if way != "SIGINT twice" else 1) * (1 if slower == 1 else 4), took


def test_the_end_of_one_ssh_ends_its_node_in_order(job, ssh):
    """As when a connection drops: that node's job ends by itself, and the others as without a node."""
    agent = three(job, ssh, f"trap 'echo $RANK >> {job.tmp}/seen; exit 0' TERM; echo ready; while :; do sleep 0.1; done")
    relays = children(agent.pid)
    assert len(relays) == 3
    kill(relays[1])
    assert agent.wait(60) not in (None, 0)
    job.all_gone(30)
    assert not alive(agent.pid)


def name(pid):
    return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()


def state(pid):
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rsplit(")", 1)[1].split()[0]


def test_a_suspended_head_says_so_before_it_stops(job):
    """^Z stops what the shell sees. Without SUSPENDED each node would end the job after a minute."""
    said, ssh = job.tmp / "said", job.tmp / "ssh"
    # cat: the relay makes its output non-blocking, which is here the same socket as tee's input
    ssh.write_text(SSH.replace("exec env", f"tee {said} | env").replace('"$*"', '"$*" | cat'))
    ssh.chmod(0o755)
    line = [*command(), "-H", "n1", f"--ssh={ssh}", "--no-python", job.worker, "start", "go"]
    shell = Shell(job)
    shell.type(shlex.join(line) + "\n")
    job.events.wait("start", 1)
    head = next(pid for pid in children(shell.pid) if name(pid) == "muster")
    shell.type("\x1a")
    shell.wait_said(r"Stopped +\S*muster")
    shell.wait_said("the job continues")
    assert state(head) == "T"
    end = deadline(30)
    while not said.read_bytes().endswith(struct.pack("<I", 3) + b"Z{}"):
        assert time.monotonic() < end and state(head) == "T"
        select.select([], [], [], 0.1)
    shell.type("fg; echo status=$?\n")
    job.go()
    shell.wait_said("status=0")


def test_a_suspended_head_that_is_killed_ends_the_job(job, ssh):
    shell = Shell(job)
    shell.type(shlex.join([*command(), "-H", "n1,n2", ssh, "--no-python", job.worker, "start", "go"]) + "\n")
    job.events.wait("start", 2)
    head = next(pid for pid in children(shell.pid) if name(pid) == "muster")
    shell.type("\x1a")
    shell.wait_said(r"Stopped +\S*muster")
    kill(head)
    end = deadline(30)
    while [pid for pid in processes_with(job.mark.encode()) if pid != shell.pid]:
        assert time.monotonic() < end, job.culprits()
        select.select([], [], [], 0.1)
