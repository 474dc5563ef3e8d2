"""A PyTorch job of four ranks on two agents in which rank 2 hangs, and what was seen of it. For the tests and for
tests/bench/bench_hang_torch.py.

    trial = Trial(job, FAULTS["sleep"])
    trial.start()
    at = trial.begins()
    line, when = trial.line(trial.fault.named, 60)
    begun, steps = trial.again(60)
"""
import collections
import json
import os
import re
import sys
import time

import harness
from harness import HERE, TORCH_PYTHON, free_port


# what, sign: for people. limit: the limit of quiet, s. options: those that set it. line: what a report says of rank 2.
class Fault(collections.namedtuple("Fault", "name what sign limit options line")):
    @property
    def named(self):
        """The line that names rank 2."""
        if self.name == "exits":
            return r"rank 2 had already exited with status 0 when rank \d failed"
        return rf"the job is quiet: .*rank 2 \(node [^)]*\):? .*{self.line}"


STILL, BUSY, STOPPED = (15, ["--hang-still=15"]), (20, ["--hang-timeout=20"]), (10, [])


def fault(name, what, sign, kind, line):
    return Fault(name, what, sign, *kind, line)


AT = r" \(torch_hang\.py:\d+\)"
FAULTS = {f.name: f for f in (
    fault("stopped", "is stopped (SIGSTOP)", "state T", STOPPED, "stopped"),
    fault("loop", "loops for ever in Python", "busy", BUSY, "loop" + AT),
    fault("sleep", "sleeps", "nothing moves", STILL, "sleep" + AT),
    fault("fifo", "opens a FIFO that no process writes to", "nothing moves", STILL, "fifo" + AT + r", /\S+/fifo"),
    fault("fuse", "opens a file of a dead FUSE server", "nothing moves", STILL, "fuse" + AT + r", /\S+/data"),
    fault("loader", "has a data loader's child that is stuck", "nothing moves", STILL, r"its child \S+ \d+"),
    fault("elsewhere", "waits in the barrier of another group", "nothing moves", STILL, "elsewhere" + AT),
    fault("key", "waits for a key that is never set", "nothing moves", STILL, "key" + AT),
    fault("other", "is in another collective", "nothing moves", STILL, "other" + AT),
    fault("locks", "takes two locks, and a thread takes them in the other order", "nothing moves", STILL, "take" + AT),
    fault("gil_asleep", "sleeps in C with the GIL", "nothing moves", STILL, "gil_asleep" + AT),
    fault("gil_spins", "computes for ever in C with the GIL", "busy", BUSY, "gil_spins" + AT),
    fault("exits", "exits 0 too early", "its exit", (0, []), "0"),
    fault("exits_waited", "exits 0, and the others wait for a key of it", "its exit", STILL, "has ended with 0"),
    fault("polls", "polls for a lock, with filelock", "nothing moves", STILL, "polls" + AT),
    fault("baton", "polls for a file, with FileBaton", "nothing moves", STILL, "baton" + AT),
    fault("polls_fast", "polls for a file, fifty times a second", "nothing moves", STILL, "polls_fast" + AT),
    fault("timed", "waits in a queue, with a time-out, again and again", "nothing moves", STILL, "timed" + AT),
    fault("at_exit", "hangs in atexit, others have ended", "nothing moves", STILL, "still runs"),
    fault("at_exit_hook", "hangs in a function of its own at exit, others have ended", "nothing moves", STILL,
          "still runs"),
    fault("at_exit_thread", "waits for a thread at its exit, others have ended", "nothing moves", STILL,
          "still runs"),
    fault("at_exit_group", "hangs in destroy_process_group, others have ended", "nothing moves", STILL,
          "still runs"),
    fault("no_init", "does not come to init_process_group", "nothing moves", STILL, r"<module>" + AT),
)}


class Trial:
    def __init__(self, job, which, logs=False, launcher=None, restarts=1):
        self.job, self.fault, self.logs, self.launcher, self.restarts = job, which, logs, launcher, restarts
        self.events, self.log = job.events, job.tmp / "timeline"

    def start(self, *options):
        meet = ["--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=hang",
                f"--rdzv-endpoint=127.0.0.1:{free_port()}", f"--max-restarts={self.restarts}"]
        if not self.launcher:
            meet += ["--hang-report=5", f"--log-dir={self.job.tmp}/logs", *self.fault.options,
                     f"--event-log={self.log}", *options]
        env = {"PYTHON_EXEC": TORCH_PYTHON, "OMP_NUM_THREADS": "1", "HANG_FOLDER": self.job.tmp}
        words = [HERE / "torch_hang.py", self.fault.name, *(["logs"] if self.logs else [])]
        self.agents = [self.job.agent(tag, *meet, *words, env=env, program=self.launcher) for tag in "ab"]

    def said(self):
        return "\n".join(a.said()[-6000:] for a in self.agents)

    def wait(self, kind, number, seconds, **fields):
        """The events, or None."""
        def enough():
            found = self.events._all(kind, fields)
            return found if len(found) >= number else None
        return self.events.until(enough, seconds)

    def begins(self):
        """Waits for the fault; the time at which the job became quiet: the last step of any rank, or the fault."""
        found = self.wait("fault", 1, 120)
        assert found, f"no fault: {self.said()}"
        self.pid = int(found[0].fields["pid"])
        return int(found[0].fields["ns"]) / 1e9

    def line(self, pattern, seconds):
        """The first line of any agent that matches, and when it came; (None, None)."""
        end = harness.deadline(seconds)
        while True:
            for agent in self.agents:
                with agent.err.changed:
                    lines = list(zip(agent.err.lines, agent.err.times))
                for i, (text, when) in enumerate(lines):
                    for more, _ in lines[i + 1:]:  # of a message in several lines
                        if not more.startswith(" " * 8):
                            break
                        text += " " + more.strip()
                    if re.search(pattern, text):
                        return text, when
            if time.monotonic() > end:
                return None, None
            self.agents[0].err.until(lambda: False, 0.1 / harness.SLOWER)

    def timeline(self, event):
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [entry for entry in map(json.loads, lines) if entry["event"] == event]

    def last_step(self):
        return max([int(e.fields["ns"]) / 1e9 for e in self.events._all("step", {"count": "0"})], default=0.0)

    def again(self, seconds):
        """When the first instruction of each new worker ran, and when they had made a step; None: not in this time."""
        begun = self.wait("begun", 4, seconds, count=1)
        steps = self.wait("step", 4, 120, count=1) if begun else None
        return [max(int(e.fields["ns"]) for e in found) / 1e9 if found else None for found in (begun, steps)]


def main():
    """By hand: hang_trial.py FAULT [logs]"""
    import pathlib
    import tempfile
    with tempfile.TemporaryDirectory() as tmp, harness.Job(pathlib.Path(tmp) / "job") as job:
        launcher = os.environ.get("LAUNCHER", "").split() or None
        t = Trial(job, FAULTS[sys.argv[1]], "logs" in sys.argv, launcher)
        t.start()
        at = t.begins()
        print(f"pid {t.pid}; fault at {at}")
        begun, steps = t.again(float(os.environ.get("SECONDS_MAX", "60")))
        print(f"last step +{t.last_step() - at:.2f}; begun {begun and begun - at}, steps {steps and steps - at}")
        print(t.said())
        for a in t.agents:
            print(a.wait(30 if begun else 0))
        print([e["cause"] for e in t.timeline("hang")])


if __name__ == "__main__":
    main()
