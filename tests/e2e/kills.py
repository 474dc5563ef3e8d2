#!/usr/bin/env python3
"""Random kills and stops of every process of a job with three nodes: one command, one summary line.

    MUSTER=build/src/cli/muster python3 tests/e2e/kills.py --rounds 500
    MUSTER=build/src/cli/muster python3 tests/e2e/kills.py --rounds 500 --warm --seed 7

In each round one process is drawn: a guardian, an agent, a worker, a child of a worker, the log writer, or a helper. It
is killed (SIGKILL, SIGSEGV, SIGTERM), or stopped for a random time around the lease. Sometimes a whole node or the whole
job is stopped, or an agent while its workers are killed. Then the job must run again with all ranks within a bound. Counted are:

    lost      a worker ended and was not reported, or the newest group lacks a rank
    orphans   a process of an older group lives (each holds a FIFO open, so no process table is asked)
    causes    the death of a worker was reported and none was killed, or another signal was reported

The status is 0 if all three are 0.
"""
import argparse
import collections
import contextlib
import os
import pathlib
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from harness import MUSTER, SLOWER, alive, children, deadline  # noqa: E402

LEASE = 1.0
BOUND = 30  # s until the job runs again, with a node that was started again
SCRIPT = """
import os, select, subprocess, email, decimal
group, rank = os.environ["MUSTER_GENERATION"], os.environ["RANK"]
path = f"{os.environ['KILLS_DIR']}/life/{group}.{rank}.{os.getpid()}"
os.mkfifo(path)
os.set_inheritable(os.open(path, os.O_RDWR), True)
subprocess.Popen(["sleep", "1000"], close_fds=False)
subprocess.Popen(["sleep", "1000"], close_fds=False, start_new_session=True)
log = os.open(f"{os.environ['KILLS_DIR']}/begun", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(log, f"{group} {rank} {os.environ['WORLD_SIZE']} {os.getpid()}\\n".encode())
while True:
    print("step", flush=True)
    select.select([], [], [], 0.2)
"""


def below(pid):
    return [pid, *(p for child in children(pid) for p in below(child))]


class Job:
    def __init__(self, folder, options):
        self.dir = pathlib.Path(folder)
        (self.dir / "life").mkdir()
        (self.dir / "begun").touch()
        (self.dir / "train.py").write_text(SCRIPT)
        self.options, self.nodes, self.last = options, {}, (None, 0)
        self.fenced = None  # an agent that was stopped while its workers were killed
        for node in "abc":
            self.start(node)

    def start(self, node):
        words = [MUSTER, "run", f"--lease={LEASE}", "--heartbeat-interval=0.2", "--nproc-per-node=2", "--nnodes=2:3",
                 "--rdzv-backend=dir", f"--rdzv-endpoint={self.dir}/rdzv", "--rdzv-id=kills", "--grow=now",
                 "--rdzv-conf=last_call_timeout=0.5", "--preflight=off", "--max-restarts=100000", "--crash-loop=0",
                 "--exclude-after=0", "--shutdown-timeout=2", "--hang-action=off", f"--log-dir={self.dir}/log-{node}",
                 "--tee=3", *self.options, str(self.dir / "train.py")]
        with open(self.dir / f"err-{node}", "ab") as err:
            self.nodes[node] = subprocess.Popen(words, env={**os.environ, "KILLS_DIR": str(self.dir)}, cwd=self.dir,
                                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err,
                                                start_new_session=True)

    def said(self):
        text = "".join((self.dir / f"err-{n}").read_text(errors="replace") for n in "abc")
        return "\n".join(line for line in text.splitlines() if line.startswith("muster"))

    def newest(self):
        """The newest group that has begun: its name, the number of its ranks, {rank: pid}."""
        rows = [line.split() for line in (self.dir / "begun").read_text().splitlines()]
        if not rows:
            return None, 0, {}
        group = max((r[0] for r in rows), key=lambda g: tuple(map(int, g.split("."))))
        mine = [r for r in rows if r[0] == group]
        return group, int(mine[0][2]), {r[1]: int(r[3]) for r in mine}

    def runs(self):
        group, world, ranks = self.newest()
        return group is not None and world == 6 and len(ranks) == 6 and all(map(alive, ranks.values()))

    def settled(self):
        """It runs, and has done so for a moment: the end of a process is noticed only then."""
        group = self.newest()[0] if self.runs() else None
        if group != self.last[0] or group is None:
            self.last = group, time.monotonic()
        return group is not None and time.monotonic() - self.last[1] > 0.5 * SLOWER

    def until(self, condition, seconds):
        end = deadline(seconds)
        while not condition():
            if time.monotonic() > end:
                return False
            for node, process in self.nodes.items():
                if process.poll() is not None:
                    self.start(node)
            select.select([], [], [], 0.02)
        return True

    def held(self, but):
        found = []
        for path in (self.dir / "life").iterdir():
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                if os.read(fd, 1) == b"":
                    path.unlink()
            except BlockingIOError:
                if not path.name.startswith(f"{but}."):
                    found.append(path.name)
            finally:
                os.close(fd)
        return found

    def end(self):
        for process in self.nodes.values():
            for pid in below(process.pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGCONT)
            process.terminate()
        for process in self.nodes.values():
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()


def draw(dice, job):
    """What is done to which processes: (words, pids, signal or None, seconds)."""
    guardian = dice.choice(list(job.nodes.values())).pid
    workers = job.newest()[2]
    agent = job.fenced or (children(guardian) or [guardian])[0]
    own = [p for p in children(agent) if p in workers.values()]
    again, job.fenced = agent == job.fenced, None
    if own and again:  # the guardian's last fence must not explain this
        return "worker", [dice.choice(own)], signal.SIGKILL, 0
    others = [p for p in children(agent) if p not in workers.values()]
    kind = dice.choice(["guardian", "agent", "worker", "worker", "worker", "child", "helper", "helper", "node", "job",
                        "both"])
    pids = {"guardian": [guardian], "agent": [agent], "worker": [dice.choice(list(workers.values()))],
            "child": [dice.choice(children(dice.choice(list(workers.values()))) or [agent])],
            "helper": [dice.choice(others or [agent])], "node": below(guardian), "both": [agent],
            "job": [p for process in job.nodes.values() for p in below(process.pid)]}[kind]
    stop = kind in ("node", "job", "both") or dice.random() < 0.4
    signo = None if stop else dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
    return kind, pids, signo, dice.choice([0.3, 0.9, 1.1, 1.3, 2, 4]) * LEASE + dice.random() * 0.3 if stop else 0


def send(pids, signo):
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signo)


def deaths(job):
    """The lines that report the death of a worker, with their numbers."""
    return collections.Counter(re.findall(r".*rank \d+ .*(?:died of|exited with).*", job.said()))


def one_round(dice, job, bad):
    kind, pids, signo, seconds = draw(dice, job)
    group, _, ranks = job.newest()
    before = deaths(job)
    is_worker = pids[0] in ranks.values()
    what = f"{kind} {pids[0]}, {'stopped for %.1f s' % seconds if signo is None else signo.name}, group {group}"
    if signo is None:
        send(pids, signal.SIGSTOP)
        if kind == "both":  # the workers end while their agent can't notice it
            send([p for p in children(pids[0]) if p in ranks.values()], signal.SIGSEGV)
            job.fenced = pids[0]
        select.select([], [], [], seconds)
        send(pids, signal.SIGCONT)
    else:
        send(pids, signo)
    reported, job.last = True, (None, 0)
    if is_worker and signo is not None:
        reported = job.until(lambda: deaths(job) - before, 10)
    ends = signo is not None and kind in ("guardian", "agent", "worker")
    again = job.until(lambda: job.settled() and (not ends or job.newest()[0] != group), BOUND)
    if not (again and reported):
        bad["lost"].append(f"{what}: {'not reported' if not reported else 'does not run: %s' % (job.newest(),)}")
    new = list(deaths(job) - before)
    if is_worker and signo is not None and new and not any(f"died of {signo.name}" in line for line in new):
        bad["causes"].append(f"{what}: {new[0][:160]}")
    if not is_worker and kind not in ("child", "both") and new:
        bad["causes"].append(f"{what}: {new[0][:160]}")
    now = job.newest()[0]
    if not job.until(lambda: not job.held(now), 10):
        bad["orphans"].append(f"{what}: {job.held(now)}")
    return what


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("MUSTER_KILLS", "60")))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED", time.time())))
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("-v", action="store_true", help="print each round")
    args = parser.parse_args()
    dice, bad, n = random.Random(args.seed), {"lost": [], "orphans": [], "causes": []}, 0
    with tempfile.TemporaryDirectory() as folder:
        job = Job(folder, ["--warm"] if args.warm else [])
        try:
            if not job.until(job.runs, BOUND):
                sys.exit(f"the job does not begin:\n{job.said()}")
            for n in range(1, args.rounds + 1):
                what, counted = one_round(dice, job, bad), sum(map(len, bad.values()))
                if args.v:
                    print(f"round {n}: {what}; {counted} bad", flush=True)
                if bad["lost"] and not job.runs():
                    break
        finally:
            job.end()
        if any(bad.values()):
            print(job.said()[-6000:])
    for kind, found in bad.items():
        for line in found:
            print(f"{kind}: {line}")
    print(f"{n} rounds{' with --warm' if args.warm else ''}, seed {args.seed}: {len(bad['lost'])} lost workers, "
          f"{len(bad['orphans'])} orphans, {len(bad['causes'])} wrong causes", flush=True)
    return 1 if any(bad.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
