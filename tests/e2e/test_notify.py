"""What workers announce: `muster notify`, and the examples in C, Python and shell."""
import os
import shlex
import socket
import subprocess
import sys

import pytest
from harness import MUSTER, SLOWER
from test_examples import EXAMPLES

HEARTBEAT = EXAMPLES / "heartbeat"


class Agent:
    """Stands where the agent stands: hears datagrams, and closes what is passed with them."""

    def __init__(self):
        self.name = f"@muster-notify-test-{os.getpid()}-{id(self)}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + self.name[1:])
        self.socket.settimeout(30 * SLOWER)
        self.env = {**os.environ, "MUSTER_NOTIFY_SOCKET": self.name, "NOTIFY_SOCKET": self.name,
                    "PATH": f"{os.path.dirname(os.path.abspath(MUSTER))}:{os.environ['PATH']}"}

    def hear(self, last):
        """Lines, until this one."""
        said = []
        while last not in said:
            data, fds, _, _ = socket.recv_fds(self.socket, 4096, 4)
            said += data.decode().split()
            for fd in fds:
                os.close(fd)
        return said


@pytest.fixture
def agent():
    made = Agent()
    yield made
    made.socket.close()


@pytest.fixture(scope="module")
def heartbeat(tmp_path_factory):
    program = tmp_path_factory.mktemp("heartbeat") / "heartbeat"
    subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-Wall", "-Wextra", "-Werror", "-o", program, HEARTBEAT / "heartbeat.c"],
                   check=True)
    return {"c": [program], "py": [sys.executable, HEARTBEAT / "heartbeat.py"], "sh": [HEARTBEAT / "heartbeat.sh"]}


@pytest.mark.parametrize("kind, steps", [("c", 10), ("py", 10), ("sh", 3)])
def test_the_examples_tell_steps_and_a_longer_limit(heartbeat, agent, kind, steps):
    with subprocess.Popen(heartbeat[kind], env=agent.env, stdout=subprocess.PIPE, text=True) as run:
        said = agent.hear("WATCHDOG_USEC=0")
        out, _ = run.communicate(timeout=60 * SLOWER)
    assert run.returncode == 0 and out.startswith(f"{steps} steps")
    assert [line for line in said if line.startswith("MUSTER_STEP=")] == [f"MUSTER_STEP={n}" for n in range(1, steps + 1)]
    assert said[-3:] == ["WATCHDOG_USEC=600000000", "MUSTER_SAFE_POINT=1", "WATCHDOG_USEC=0"]


@pytest.mark.parametrize("kind", ["c", "py", "sh"])
def test_the_examples_tell_muster_not_the_service_in_which_it_runs(heartbeat, agent, kind):
    service = Agent()  # for systemd, WATCHDOG_USEC= is the deadline of the whole service
    try:
        with subprocess.Popen(heartbeat[kind], env={**agent.env, "NOTIFY_SOCKET": service.name},
                              stdout=subprocess.DEVNULL) as run:
            agent.hear("WATCHDOG_USEC=0")
            assert run.wait(60 * SLOWER) == 0
        service.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            print(service.socket.recv(4096))
    finally:
        service.socket.close()


@pytest.mark.parametrize("kind", ["c", "py", "sh"])
def test_the_examples_run_under_muster_and_alone(job, heartbeat, kind):
    env = {k: v for k, v in os.environ.items() if not k.endswith("NOTIFY_SOCKET")}
    alone = subprocess.run(heartbeat[kind], env=env, capture_output=True, text=True, timeout=60 * SLOWER)
    assert (alone.returncode, alone.stderr) == (0, ""), alone.stderr
    path = f"{os.path.dirname(os.path.abspath(MUSTER))}:{os.environ['PATH']}"
    code, out, err = job.run("--nproc-per-node=2", "--no-python", *heartbeat[kind], env={"PATH": path})
    assert code == 0 and sorted(out.splitlines()) == [alone.stdout.strip()] * 2, err


def notify(*words, env=None):
    clean = {k: v for k, v in os.environ.items() if not k.endswith("NOTIFY_SOCKET")}
    run = subprocess.run([MUSTER, "notify", *words], env={**clean, **(env or {})}, capture_output=True, text=True,
                         timeout=60 * SLOWER)
    assert run.stdout == ""
    return run.returncode, run.stderr


def test_one_that_has_told_knows_that_it_was_heard(job):
    code, out, err = job.run("--no-python", "/bin/sh", "-c", f'"{MUSTER}" notify MUSTER_STEP=1 "STATUS=a b" && echo heard')
    assert (code, out) == (0, "heard\n"), err


def test_nobody_to_tell():
    assert notify("WATCHDOG=1") == (1, "muster: error: MUSTER_NOTIFY_SOCKET is not set: no muster run has started this\n")
    code, err = notify("WATCHDOG=1", env={"MUSTER_NOTIFY_SOCKET": "@muster-notify-nobody"})
    assert code == 1 and err == "muster: error: no process listens on @muster-notify-nobody: has the job ended?\n"
    code, err = notify("WATCHDOG=1", env={"MUSTER_NOTIFY_SOCKET": "nonsense"})
    assert code == 1 and "\"nonsense\" is not the name of a notify socket" in err
    code, err = notify("WATCHDOG=1", env={"NOTIFY_SOCKET": "/no/such/file"})
    assert code == 1 and "no process listens on /no/such/file" in err


def test_an_agent_that_does_not_read_is_not_waited_for_for_ever(agent):
    code, err = notify("WATCHDOG=1", env={"MUSTER_NOTIFY_SOCKET": agent.name})
    assert code == 1 and err == "muster: error: the agent has not read the message within 5 s\n"


@pytest.mark.parametrize("words, said", [
    ([], "missing argument, for example MUSTER_STEP=1234"), (["WATCHDOG"], '"WATCHDOG": must be VARIABLE=VALUE, in one line'),
    (["A=1\nB=2"], "must be VARIABLE=VALUE, in one line"), (["A=" + "x" * 4096], "are too many for one message"),
    (["--nonsense"], "--nonsense")])
def test_mistakes(words, said):
    code, err = notify(*words, env={"MUSTER_NOTIFY_SOCKET": "@muster-notify-nobody"})
    assert code == 2 and err.startswith("muster notify: ") and said in err and err.count("\n") == 1
