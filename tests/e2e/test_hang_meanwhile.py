"""A job is ended while its nodes look at what the others did when a worker failed: nobody waits for that any more."""
import signal
import socket
import struct
import time

import pytest

from harness import SLOWER, kill
from test_hang_ends import WAIT, Nodes
from test_operate import ask
from test_ssh_head import Hosts

LOOKS = 60  # seconds that the nodes may look: the longest time that they get
SOON = LOOKS / 2
OPTIONS = ["--hang-report=7", "--max-restarts=1", f"--evidence-timeout={LOOKS}"]


class Recorder:
    """At the socket of PyTorch's flight recorder: whoever asks is stopped, and finds out nothing before its time is over."""

    def __init__(self, job):
        self.path, self.stopped = str(job.tmp / "recorder"), []
        self.socket = socket.socket(socket.AF_UNIX)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for pid in self.stopped:
            kill(pid, signal.SIGCONT)
        self.socket.close()

    def stop_who_asks(self, number):
        self.socket.bind(self.path)
        self.socket.listen()
        self.socket.settimeout(120 * SLOWER)
        for _ in range(number):
            asks, _ = self.socket.accept()
            pid, _, _ = struct.unpack("3i", asks.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            self.stopped.append(pid)
            kill(pid, signal.SIGSTOP)
            asks.close()


class OverSsh(Nodes):
    """The same with a head."""

    def __init__(self, job, program, *options, env=None):
        self.job, self.log, self.logs = job, job.tmp / "timeline", job.tmp / "logs"
        script = job.tmp / "train.py"
        script.write_text(program)
        self.agents = [Hosts(job).start("a:2,b:2", f"--event-log={self.log}", f"--log-dir={self.logs}", *options, script, job.tmp,
                                        env=env)]


def by_operator(job, nodes):
    code, _, err = ask(job, "stop", "--rdzv-id=e2e")
    assert code == 0, err


def by_signal_to_another(job, nodes):
    [silent] = [agent for agent in nodes.agents if "the job is quiet" not in agent.said()]
    silent.signal(signal.SIGTERM)


def by_signal(job, nodes):
    """To the node that leads, or to the head."""
    [speaks] = [agent for agent in nodes.agents if "the job is quiet" in agent.said()]
    speaks.signal(signal.SIGTERM)


@pytest.mark.parametrize("kind, end", [(Nodes, by_operator), (Nodes, by_signal), (Nodes, by_signal_to_another), (OverSsh, by_signal)],
                         ids=["operator", "signal", "signal elsewhere", "head"])
def test_who_ends_the_job_does_not_wait_for_evidence(job, kind, end):
    with Recorder(job) as recorder:
        nodes = kind(job, WAIT, *OPTIONS, env={"TORCH_WORKER_SERVER_SOCKET": recorder.path})
        assert nodes.says("the job is quiet"), nodes.said()
        (job.tmp / "fail").touch()
        recorder.stop_who_asks(2)
        began = time.monotonic()
        end(job, nodes)
        assert 0 not in nodes.finish(), nodes.said()
        [stopped] = nodes.timeline("stopped")
        took = int(stopped["monotonic_ns"]) / 1e9 - began
        assert took < SOON, (took, nodes.said())
    assert not [path for path in nodes.logs.glob("**/hang.txt") if "rank 1 failed" in path.read_text()], nodes.said()
    assert len(nodes.timeline("worker_failed")) == 1 and nodes.timeline("stopping")[-1]["cause"], nodes.said()
