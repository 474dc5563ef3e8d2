#!/usr/bin/python3
"""One of four nodes is lost, or the leader: how long until the others run again, compared with torchrun 2.13.

Emulated hosts (network namespaces; needs root), muster's default lease of 5 s. Measured from the fault to the first
instruction of the last new worker, with this machine's CLOCK_MONOTONIC; with PyTorch, until training continues from the
last checkpoint. A peer's trial gets BENCH_PEER_PATIENCE (180 s); if it takes longer, it counts as never. BENCH_RUNS (5)
and BENCH_PEER_RUNS (1) are the numbers of runs; MUSTER_TEST_PYTHON adds the rows with PyTorch.
"""
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

os.environ.setdefault("MUSTER_TEST_SCALE", "slow")
os.environ.setdefault("BENCH_RUNS", "5")
os.environ.setdefault("BENCH_PEER_RUNS", "1")

import bench  # noqa: E402
import harness  # noqa: E402
from cluster import DEFAULTS, Cluster  # noqa: E402
from hosts import Hosts, NoNamespaces  # noqa: E402

PEER_RUNS = int(os.environ["BENCH_PEER_RUNS"])
PATIENCE = float(os.environ.get("BENCH_PEER_PATIENCE", "180"))
NODES = 4
LATE, ENDED = f"not within {PATIENCE:.0f} s", "the job ended"
TRAIN = harness.HERE.parent.parent / "examples" / "pytorch-ddp" / "train.py"


class Bench:
    def __init__(self, tmp, torchrun):
        self.tmp, self.torchrun, self.turn = tmp, torchrun, 0
        self.worker = tmp / "worker"
        subprocess.run(["cc", "-std=gnu11", "-O1", "-o", self.worker, harness.HERE / "worker.c"], check=True)

    def trial(self, body, place, launcher=None):
        """A fresh job on fresh hosts."""
        self.turn += 1
        with Hosts(NODES, names=True) as hosts, harness.Job(self.tmp / f"job{self.turn}", self.worker) as job:
            c = Cluster(job, hosts, place, NODES, DEFAULTS)
            c.directory.mkdir()
            took = body(c, launcher)
            if launcher is None and took in (LATE, ENDED):
                print(c.said(), flush=True)
            return took

    def start(self, c, launcher, env=None, **more):
        """Node 0 first: it has rank 0, and with torchrun the store."""
        for n in range(NODES):
            options = ["--max-restarts=3", f"--local-addr={c.hosts.address(n)}"]
            c.start(n, nnodes="3:4", options=options, launcher=launcher, env=env, **more)
            if n == 0 and launcher is None:
                c.agents["h0"].wait_said("1 of 3")

    # ---- C workers ----

    def c_workers(self, who, how):
        def body(c, launcher):
            self.start(c, launcher)
            c.job.events.wait("start", NODES, 120, world=NODES)
            tag = {"follower": "h3", "leader": "h0"}[who]
            at = self.fault(c, tag, how, launcher)
            return self.again(c, at)

        return body

    @staticmethod
    def fault(c, tag, how, launcher):
        if how == "killed":
            pid = c.agents[tag].pid if launcher else c.agent_child(tag)
            at = c.now()
            harness.kill(pid)
            return at
        at = c.now()
        {"cut": c.hosts.cut, "crash": c.hosts.crash}[how](c.host_of[tag])
        return at

    @staticmethod
    def again(c, at):
        """Seconds until the last of three new workers ran; a text if that takes too long, or others have ended."""
        def three():
            seen = {e.fields["rank"]: int(e.fields["ns"]) / 1e9
                    for e in c.job.events._all("start", {"world": str(NODES - 1)})}
            return seen if len(seen) == NODES - 1 else None

        end = harness.deadline(PATIENCE)
        while c.now() < end:
            seen = c.job.events.until(three, 1)
            if seen:
                return max(seen.values()) - at
            if Bench.has_ended(c):
                return ENDED
        return LATE

    @staticmethod
    def has_ended(c):
        return sum(a.process.poll() is None for a in c.agents.values()) < NODES - 1

    # ---- PyTorch ----

    def trainer(self, who, how):
        def body(c, launcher):
            env = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", "PYTHON_EXEC": harness.TORCH_PYTHON}
            program = [TRAIN, "--epochs=100000", "--checkpoint", c.job.tmp / "saved.pt"]
            self.start(c, launcher, env=env, program=program)
            heard = c.agents["h0"].out
            if not heard.until(lambda: b"epoch 2 of" in heard.raw, 240):
                raise SystemExit(f"no training\n{c.said()}")
            tag = {"follower": "h3", "leader": "h0"}[who]
            at = self.fault(c, tag, how, launcher)
            return self.trains_again(c, at, launcher)

        return body

    @staticmethod
    def trains_again(c, at, launcher):
        """(seconds until it continued from a checkpoint, how much of that the trainer's own stop and start took)."""
        end = harness.deadline(PATIENCE)
        while c.now() < end:
            for agent in c.agents.values():
                for line, when in zip(agent.out.lines, agent.out.times):
                    if when > at and "continuing from the checkpoint" in line:
                        seen = {n["event"]: int(n["monotonic_ns"]) / 1e9 for n in c.notes()}
                        own = None
                        # the last ones belong to the group that trains now; a lost leader logs no stop
                        if not launcher:
                            own = when - seen["started"] + seen.get("stopped", 0) - seen.get("stopping", 0)
                        return when - at, own
            if Bench.has_ended(c):
                return ENDED
            c.pause(0.2)
        return LATE


ROWS = [  # name, kind, who, how, place, target in seconds
    ("agent killed", "c", "follower", "killed", "c10d", 0.1),
    ("host black-holed", "c", "follower", "cut", "c10d", 6.5),
    ("leader's agent killed", "c", "leader", "killed", "dir", 1.5),
    ("leader's host cut off", "c", "leader", "cut", "dir", 9.0),
    # torchrun's agent leaves its worker behind, which continues to train: so the loss is not noticed
    ("agent killed, DDP", "ddp", "follower", "killed", "c10d", 0.1),
    ("all of a host killed, DDP", "ddp", "follower", "crash", "c10d", 0.1),
    ("host black-holed, DDP", "ddp", "follower", "cut", "c10d", 6.5),
    ("leader's agent killed, DDP", "ddp", "leader", "killed", "dir", 1.5),
]


def show_peer(name, values):
    took = [v[0] if isinstance(v, tuple) else v for v in values if v not in (LATE, ENDED)]
    if took:
        bench.show(f"  {name}", took, unit="s", scale=1)
    for word in (LATE, ENDED):
        if word in values:
            print(f"  {name:30} {word} ({values.count(word)} of {len(values)} runs)", flush=True)


def peer_text(values):
    """What torchrun did in these trials, for the table; None: it was not tried."""
    took = [v[0] if isinstance(v, tuple) else v for v in values if v not in (LATE, ENDED)]
    words = [bench.seconds(statistics.median(took))] if took else []
    return ", or ".join(words + [w for w in (LATE, ENDED) if w in values]) or None


def row(b, name, kind, who, how, place, limit):
    make = b.c_workers if kind == "c" else b.trainer
    runs = bench.RUNS if kind == "c" else min(bench.RUNS, 3)
    ours, peer = [], []
    for n in range(max(runs, PEER_RUNS)):
        if n < runs:
            ours.append(b.trial(make(who, how), place))
        if b.torchrun and n < PEER_RUNS:
            peer.append(b.trial(make(who, how), "c10d", b.torchrun))
    print(f"{name} ({NODES} nodes, muster by {place}) -> the other three run")
    if LATE in ours or ENDED in ours:
        bench.target(f"{name}: all runs came back", False)
        return
    took = [v[0] if kind == "ddp" else v for v in ours]
    middle = bench.show("  muster", took, unit="s", scale=1)
    if kind == "ddp" and all(v[1] is not None for v in ours):
        own, rest = (statistics.median(v) for v in ([v[1] for v in ours], [v[0] - v[1] for v in ours]))
        print(f"  of this the trainer's own stop and start: {own:.3f} s; all else {rest:.3f} s (medians)")
        if limit is not None:
            bench.target(f"{name}: at most {limit} s besides the trainer's own", rest <= limit)
    show_peer("torchrun", peer)
    bench.row(f"four nodes, {name} → the other three run again", peer_text(peer), bench.seconds(middle))
    if limit is not None and kind == "c":
        bench.target(f"{name}: at most {limit} s", middle <= limit)


def main():
    torchrun = bench.torchrun()
    torchrun = [torchrun[-1]] if torchrun else None  # hosts have their own names' files
    only = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as tmp:
        b = Bench(pathlib.Path(tmp), torchrun)
        for values in ROWS:
            if values[1] == "ddp" and not harness.TORCH_PYTHON or only and not any(o in values[0] for o in only):
                continue
            row(b, *values)
    bench.end()


if __name__ == "__main__":
    try:
        main()
    except NoNamespaces as why:
        print(f"not measured: no network namespaces here: {why}")
