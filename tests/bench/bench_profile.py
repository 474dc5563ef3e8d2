#!/usr/bin/python3
"""What samples cost, of 8 gloo ranks: the CPU time of the agent and its helpers for `muster profile` (20 Hz) and for the record of
the job's time (1 Hz), each less that of the same job without it; that of py-spy --nonblocking at 20 Hz, if it is on PATH; and
the time of a step with and without samples, in pairs by turns. Needs MUSTER_TEST_PYTHON with PyTorch."""
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import tempfile
import time

import bench
from harness import HERE, Job

RANKS = 8
SECONDS = float(os.environ.get("BENCH_SECONDS", "20"))
PAIRS = int(os.environ.get("BENCH_PAIRS", "20"))
PYTHON = os.environ.get("MUSTER_TEST_PYTHON") or str(HERE.parent.parent / ".venv" / "bin" / "python")


def used(pid):
    """CPU seconds of a process and of its children that have ended."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


class Trial:
    """A job of RANKS ranks that trains."""

    def __init__(self, folder, name, *words):
        self.job = Job(pathlib.Path(folder) / name)
        self.steps = self.job.tmp / "steps"
        env = {"PYTHON_EXEC": PYTHON, "OMP_NUM_THREADS": "1", "STOP": self.job.tmp / "stop", "STEPS": self.steps}
        self.agent = self.job.agent("a", "--nnodes=1", f"--nproc-per-node={RANKS}", "--rdzv-backend=c10d",
                                    "--rdzv-endpoint=127.0.0.1:0", f"--rdzv-id={name}", *words, HERE / "profile_train.py", env=env)
        self.pids = [int(e.fields["pid"]) for e in self.job.events.wait("trains", RANKS, 300)]
        self.pid = self.agent.agent_pid()

    def percent(self, seconds, profile=False):
        """Of a core, that the agent and its helpers use until these seconds have passed; the job must not end meanwhile."""
        begun, before = time.monotonic(), used(self.pid)
        if profile:
            subprocess.run([bench.muster(), "profile", f"--seconds={seconds}"], env=self.job.env("operator"), check=True,
                           capture_output=True)
        try:
            raise SystemExit(f"the job has ended: {self.agent.process.wait(max(0, begun + seconds - time.monotonic()))}")
        except subprocess.TimeoutExpired:
            return 100 * (used(self.pid) - before) / (time.monotonic() - begun)

    def step_s(self, since):
        at = [t for (t,) in struct.iter_unpack("=d", self.steps.read_bytes()) if t >= since]
        return (at[-1] - at[0]) / (len(at) - 1)

    def close(self):
        (self.job.tmp / "stop").touch()
        self.agent.finish(120)
        self.job.close()


def py_spy(trial):
    """Percent of a core of a py-spy for each rank."""
    program = shutil.which("py-spy")
    if program is None:
        return None
    before = os.times()
    spies = [subprocess.Popen([program, "record", "--nonblocking", "-r", "20", "-d", str(int(SECONDS)), "-o", os.devnull, "-f", "raw",
                               "-p", str(pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for pid in trial.pids]
    for spy in spies:
        spy.wait()
    after = os.times()
    return 100 * (after.children_user + after.children_system - before.children_user - before.children_system) / SECONDS


def pairs(trial):
    """Differences of the mean step with and without samples, in percent."""
    found = []
    for n in range(PAIRS):
        both = {}
        for on in (n % 2 == 0, n % 2 == 1):
            since = time.time()
            trial.percent(SECONDS / 4, profile=on)
            both[on] = trial.step_s(since)
        found.append(100 * (both[True] / both[False] - 1))
    return found


def main():
    with tempfile.TemporaryDirectory() as folder:
        off = Trial(folder, "off", "--profile=off")
        rest = off.percent(SECONDS)
        fast = off.percent(SECONDS, profile=True) - rest
        spied = py_spy(off)
        differences = pairs(off)
        rest = off.percent(3 * SECONDS)
        off.close()
        on = Trial(folder, "on")
        on.percent(SECONDS / 2)  # the first window has begun
        slow = on.percent(6 * SECONDS) - rest
        on.close()
    middle, error = statistics.mean(differences), statistics.stdev(differences) / len(differences) ** 0.5
    print(f"20 Hz: {fast:.2f} % of a core; 1 Hz: {slow:.3f} %; a step with samples: {middle:+.2f} +- {error:.2f} % ({PAIRS} pairs)")
    bench.target("20 Hz of 8 ranks: at most 2 % of a core", fast <= 2)
    bench.target("1 Hz of 8 ranks: at most 0.2 % of a core", slow <= 0.2)
    bench.target("a step takes as long (three standard errors)", abs(middle) <= 3 * error)
    bench.row("samples of 8 ranks, 20 Hz, of a core", None if spied is None else f"py-spy --nonblocking: {spied:.1f} %", f"{fast:.2f} %")
    bench.row("record of the job's time, 1 Hz, of a core", "none", f"{slow:.3f} %")
    bench.row(f"a step with samples, {PAIRS} pairs", "none", f"{middle:+.2f} +- {error:.2f} %")
    bench.end()


if __name__ == "__main__":
    main()
