#!/usr/bin/env python3
"""Random jobs under random faults, until a number of faults were made: one command, one summary line.

    MUSTER=build/src/cli/muster python3 tests/e2e/soak.py --faults 1000
    python3 tests/e2e/soak.py --replay SEED:JOB          the same job once more, with the same draws

A job has 3 to 8 nodes on emulated hosts, C workers that train from a checkpoint, and options drawn by the seed: how its
nodes meet (dir, etcd, c10d), smallest and largest number of nodes, unit, spares, when it grows, restarts, times. Faults
of every kind of trial.py are made in every phase: while the group gathers, forms, runs, stops, and while another node
takes over. Every job must run again within a stated bound after its last fault, and then end with success on all nodes
that live, or end with the right reason on all of them (budget spent, too few nodes, fixed leader lost). No two
generations overlap, no process is left, and training continues from the last checkpoint. Some jobs write all the time,
and one in 25 has 1,000 workers. The output of a failed job is kept, and the command that repeats it is printed.
"""
import argparse
import collections
import contextlib
import multiprocessing
import os
import pathlib
import queue
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import harness  # noqa: E402
from cluster import DEFAULTS, SHORT  # noqa: E402
from hosts import Hosts, NoNamespaces  # noqa: E402
from links import Links  # noqa: E402
from trial import DEADLY, KINDS, NEEDS, PASSING, Trial  # noqa: E402

MOST_NODES = 8
ENOUGH_RESTARTS = 50
JOIN_TIMEOUT = 15
PATIENT = 20
CROWD = 1000  # workers of a job
PORTS = range(20000, 32000)  # below the ports that the kernel chooses itself
Made = collections.namedtuple("Made", "kind phase")


class Plan:
    """The random choices that are made before a job starts."""

    def __init__(self, dice, args, lacking):
        self.place = args.backend if args.backend != "mix" else dice.choice(["dir", "dir", "etcd", "c10d"])
        if self.place == "etcd" and "etcd" in lacking:
            self.place = "dir"
        self.nodes = args.nodes or dice.choice([3, 3, 4, 4, 5, 5, 6, 8])
        self.nproc = dice.choice([1, 1, 2])
        self.unit = dice.choice([1, 1, 1, 2]) if self.nodes >= 4 else 1
        spares = dice.choice([0, 0, 1]) if self.nodes >= 4 and self.unit == 1 else 0
        self.high = (self.nodes - spares) // self.unit * self.unit
        self.low = max(self.unit, dice.choice([1, self.high // 2, self.high // 2, self.high - self.unit]) // self.unit * self.unit)
        self.times = dice.choices([SHORT, DEFAULTS], [9, 1])[0]
        self.last_call = dice.choice([0.5, 1, 2])
        self.linger_ms = dice.choice([0, 0, 500, 2000])
        self.faults = dice.randint(3, 7)
        self.shout = dice.choice([0, 0, 0, 0, 64, 256])  # KB of output with each step, through the log writer
        self.crowd = dice.random() < 1 / 25
        endings = {"success": 12, "at once": 2, "budget": 1, "too few": 1} | ({"leader": 3} if self.place == "c10d" else {})
        self.ending = dice.choices(list(endings), list(endings.values()))[0]
        self.restarts = dice.choice([0, 1, 2]) if self.ending == "budget" else ENOUGH_RESTARTS
        self.opening = dice.choice(["gathering", "forming", None, None])
        self.options = [f"--max-restarts={self.restarts}", "--crash-loop=0", "--exclude-after=0",
                        f"--hold={dice.choice([0, 0.5, 2])}", f"--grow={dice.choice(['now', 'boundary', 'never'])}", f"--node-unit={self.unit}"]
        self.regroup = dice.choices([0, 0.5, PATIENT], [16, 2, 2])[0]
        if self.regroup:
            self.options.append(f"--regroup-wait={self.regroup}")
        if self.regroup == PATIENT:  # then sometimes too few nodes are left, and it waits for more
            self.low = self.high
        conf = [f"last_call_timeout={self.last_call}"]
        if self.ending in ("too few", "leader"):
            conf.append(f"join_timeout={JOIN_TIMEOUT}")
        if self.ending == "too few":
            self.low = max(self.low, 2 * self.unit)
            self.low = min(self.low, self.high)
        if self.crowd:
            self.nproc, self.shout, self.linger_ms, self.faults = CROWD // self.nodes, 0, 0, 3
            self.times = DEFAULTS
        if self.shout:
            self.options += ["--tee=3", "--log-dir=logs"]
        if self.ending == "leader":
            conf.append(f"read_timeout={self.read_timeout():g}")
        self.options.append(f"--rdzv-conf={','.join(conf)}")

    def words(self):
        """Of its workers."""
        tick = 3000 if self.crowd else 50
        return [f"tick={tick}", *([f"linger={self.linger_ms}"] if self.linger_ms else []),
                *([f"shout={self.shout}"] if self.shout else []), "start", "train"]

    def read_timeout(self):
        """How long nodes try to reach a silent fixed leader: longer than any fault that is undone."""
        return (10 + 5 * self.times["lease"]) * harness.SLOWER

    def __str__(self):
        return (f"{self.place}, {self.nodes} nodes x {self.nproc}, {self.low}:{self.high} by {self.unit}, lease "
                f"{self.times['lease']:g} s, {self.faults} faults, {self.ending}, shout {self.shout}; {' '.join(self.options)}")


class Soaked:
    """One job from its start to its end."""

    def __init__(self, trial, plan, dice, kinds):
        self.t, self.plan, self.dice, self.kinds = trial, plan, dice, kinds
        self.recoveries, self.waiting = [], set(range(plan.nodes))
        self.sure = plan.nodes  # nodes that can certainly form a group, whatever other nodes do
        t = self.t
        t.limits = (plan.low, plan.high, plan.unit)
        self.more = {"nnodes": f"{plan.low}:{plan.high}", "nproc": plan.nproc, "options": plan.options,
                     "program": ["--no-python", t.job.worker, *plan.words()],
                     "stdout": subprocess.DEVNULL if plan.shout else None}

    def run(self):
        self.open()
        for _ in range(3 * self.plan.faults):  # a step makes no fault if too few nodes would be left
            if self.left() > 0:
                self.step()
        getattr(self, f"end_{self.plan.ending.replace(' ', '_')}")()

    def left(self):
        return self.plan.faults - len(self.t.made)

    def bound(self):
        return self.t.bound(self.plan.last_call, self.plan.linger_ms / 1000) + \
            2 * self.plan.regroup + (30 if self.plan.crowd else 0)

    # ---- the beginning ----

    def start(self, *numbers):
        self.t.start(*numbers, **self.more)
        self.waiting -= set(numbers)

    def open(self):
        """Starts all nodes in any order, with a fault before the last one comes, or while the others wait for its
        acknowledgement."""
        t, dice = self.t, self.dice
        numbers = dice.sample(range(self.plan.nodes), self.plan.nodes)
        if self.plan.place == "c10d" and self.plan.opening:
            numbers.remove(0)
            numbers.insert(0, 0)
        kind, whom, who_waits = self.draw_kind(), dice.random(), dice.random()
        if not self.plan.opening:
            self.start(*numbers)
            return
        first, last = numbers[:-1], numbers[-1]
        self.start(*first)
        t.noted.until(lambda: len(t.notes("node_joined")) >= len(first), 20)
        held = None
        if self.plan.opening == "forming":
            followers = [tag for tag in t.living() if tag != t.leading()]
            held = t.hold(followers[int(who_waits * len(followers))])
            self.start(last)
            t.noted.until(lambda: len(t.notes("node_joined")) > len(first), 0.5)
        self.make(kind, whom, self.plan.opening)
        if held:
            t.pause(0.2)
            held()
        self.start(*self.waiting)

    # ---- faults ----

    def draw_kind(self):
        """Half are deaths."""
        return self.dice.choice(self.dice.choice([DEADLY, PASSING, self.kinds]))

    def target(self, kind, whom):
        """The leader, in a third of the cases, or any other node; None if this kind of fault would leave no node."""
        t = self.t
        living, leader = t.living(), t.leading()
        others = [tag for tag in living if tag != leader]
        fixed = self.plan.place == "c10d"
        if kind in DEADLY:
            if fixed:
                others = [tag for tag in others if t.host_of[tag] != 0]
                return others[int(whom * len(others))] if others else None
            if len(living) < 2:
                return None
        if leader in living and (whom < 0.35 or not others):
            return leader
        return others[int(whom * len(others))] if others else None

    def make(self, kind, whom, phase=None):
        t = self.t
        if kind not in self.kinds or (kind == "arbiter hangs" and self.plan.place == "c10d") or (kind == "worker killed" and self.plan.ending == "budget"):
            kind = "agent killed"
        tag = self.target(kind, whom)
        share, way = self.dice.choice([10, 30, 60]), self.dice.choice(["in", "out", "both"])
        side = self.dice.sample(range(self.plan.nodes), self.dice.randint(0, self.plan.nodes // 2))
        if tag is None:
            return self.boot()
        side = self.afford(kind, side, t.host_of[tag])
        if side is None:
            return t.fault("worker killed", tag, phase) if self.plan.ending != "budget" else None
        return t.fault(kind, tag, phase, against=side, share=share, way=way)

    def afford(self, kind, side=(), n=None):
        """The nodes that this fault can lose; None if too few would be left, because then muster ends the job. For a
        split: the nodes that its sides can be without."""
        plan = self.plan
        if kind == "worker killed" or plan.regroup == PATIENT:
            return side

        def left(cost):
            return (self.sure - cost) // plan.unit * plan.unit >= plan.low

        side = list(side)
        if plan.place == "c10d" and (n == 0 or kind == "split"):  # a fixed leader that loses all the others
            return [] if left(self.sure - 1) else None
        while side and not left(len(side) + 1):
            side.pop()
        if not left(len(side) + 1):
            return None
        self.sure -= len(side) + 1 if kind == "split" else 1
        return side

    def step(self):
        """Brings the job into a phase and makes one fault in it; then gives it time to recover, or makes the next fault
        at once."""
        t, dice = self.t, self.dice
        phases = ["running", "running", "stopping", "forming"]
        if self.plan.ending == "budget":
            phases = ["running"]
        phase = dice.choice(phases + (["succession"] if self.plan.place != "c10d" else []))
        kind, whom, pause = self.draw_kind(), dice.random(), dice.random()
        length, patience, provoker = dice.random(), dice.random(), dice.random()
        if patience < 0.7:
            self.recover()
        if phase == "succession" and t.leading():
            death = dice.choice(DEADLY)
            if len(t.living()) > 2 and self.afford(death) is not None:
                t.fault(death, t.leading(), "running")
            t.pause(pause * t.settle() if dice.random() < 0.5 else 0)
        elif phase in ("stopping", "forming") and t.living():
            seen = len(t.noted.lines)
            living = t.living()
            t.fault("worker killed", living[int(provoker * len(living))])
            t.noted.wait(lambda n: n["event"] == ("stopping" if phase == "stopping" else "stopped"), 3, seen)
        else:
            t.pause(pause * 1.5)
        self.make(kind, whom)
        if patience > 0.3:
            self.undo(length)

    def undo(self, length):
        """Undoes faults that can be undone, after up to four leases; some of the dead agents come back."""
        t = self.t
        for fault in t.made:
            if fault.restored is None:
                t.pause(length * 4 * t.times["lease"])
                fault.restore()
        if length < 0.5:
            self.boot()

    def free_hosts(self):
        busy = {self.t.host_of[tag] for tag in self.t.living()}
        return [n for n in range(self.plan.nodes) if n not in busy and n not in self.waiting]

    def boot(self):
        for n in self.free_hosts():
            if n != 0 or self.plan.place != "c10d":
                self.t.boot(n)

    def undo_all(self):
        t = self.t
        t.close()
        if len(t.living()) < self.plan.low or self.plan.regroup == PATIENT or self.dice.random() < 0.7:
            self.boot()
        return t.now()

    def recover(self):
        """All faults are undone: a group must run, and in time."""
        since = self.undo_all()
        group, began = self.t.recovers(since, self.bound())
        self.sure = len(set(group.ranks.values()))
        took = max(0.0, began - since)
        self.recoveries.append(took)
        assert took <= self.bound(), f"{took:.1f} s until a group ran, {self.bound():.1f} allowed\n{self.t.story()}"

    def took(self):
        """(kind, seconds from the fault to the next complete group), if there was no other fault in between."""
        begins, found = [g.began for g in self.t.groups()], []
        for fault, after in zip(self.t.made, self.t.made[1:] + [None]):
            began = min((at for at in begins if at > fault.at), default=None)
            if began is not None and (after is None or began < after.at):
                found.append((fault.kind, began - fault.at))
        return found

    # ---- the end ----

    def seconds(self):
        return self.bound() + 20

    def end_success(self):
        self.recover()
        self.t.ends(0, seconds=self.seconds())

    def end_at_once(self):
        """Lets the workers end, whatever the group is doing. At a fixed endpoint, a node that is absent then can't
        learn of the end."""
        if self.plan.place == "c10d":
            self.recover()
        self.undo_all()
        self.t.ends(0, seconds=self.seconds())

    def end_budget(self):
        t = self.t
        self.recover()
        for _ in range(self.plan.restarts + 1):
            group = t.newest()
            seen = len(t.noted.lines)
            tag = self.dice.choice(sorted(set(group.ranks.values())))
            t.fault("worker killed", tag, "running")
            done = t.noted.wait(lambda n: n["event"] in ("started", "closed"), 20, seen)
            assert done, f"neither another group nor the end\n{t.story()}"
            if done["event"] == "closed":
                break
            t.group(after=group, seconds=self.bound())
        t.ends(1, r"SIGKILL|signal 9", self.seconds(), go=False)

    def end_too_few(self):
        """Kills so many agents that too few are left; also the leader, if another agent can lead."""
        t = self.t
        self.recover()
        victims = [tag for tag in t.living() if self.plan.place != "c10d" or t.host_of[tag] != 0]
        self.dice.shuffle(victims)
        while len(t.living()) >= self.plan.low and victims and len(t.living()) > 1:
            t.fault(self.dice.choice(DEADLY), victims.pop())
        if len(t.living()) >= self.plan.low:
            return self.end_success()
        t.ends(75, r"nodes", JOIN_TIMEOUT + self.seconds(), go=False)

    def end_leader(self):
        """A fixed leader is lost permanently: the others report it; a node that was never in a group waits for another
        leader until the join timeout."""
        t = self.t
        self.recover()
        t.fault(self.dice.choice(DEADLY), t.leading(), "running")
        t.ends(75, r"leader", self.plan.read_timeout() + JOIN_TIMEOUT + self.seconds(), go=False)


# ---- many of them ----


class Slot:
    """A process with hosts of its own, which runs one job after the other."""

    def __init__(self, args, worker, folder):
        self.args, self.worker, self.folder = args, worker, pathlib.Path(folder)

    def serve(self, orders, answers):
        try:
            with contextlib.ExitStack() as stack:
                hosts = stack.enter_context(Hosts(MOST_NODES, ipv6=False, far=1))
                etcd = self.etcd(hosts, stack)
                links = Links(hosts)
                lacking = {kind: links.lacks(need) for kind, need in NEEDS.items() if links.lacks(need)}
                if etcd is None:
                    lacking["etcd"] = "etcd (Debian: etcd-server)"
                answers.put(("lacking", lacking))
                while (index := orders.get()) is not None:
                    answers.put(("job", self.job(index, hosts, etcd, links, lacking)))
        except NoNamespaces as why:
            answers.put(("broken", f"no network namespaces here: {why}"))
        except Exception:
            answers.put(("broken", traceback.format_exc()))

    def etcd(self, hosts, stack):
        if self.args.backend not in ("etcd", "mix") or not shutil.which("etcd"):
            return None
        import etcd as real
        return stack.enter_context(
            real.EtcdCluster(1, where=[(hosts.address(MOST_NODES), hosts.enter(MOST_NODES))]))

    def job(self, index, hosts, etcd, links, lacking):
        name = f"{self.args.seed}:{index}"
        dice = random.Random(name)
        plan = Plan(dice, self.args, lacking)
        folder = self.folder / f"job-{index}"
        began, failure = time.monotonic(), None
        with contextlib.ExitStack() as stack:
            job = stack.enter_context(harness.Job(folder, self.worker))
            t = Trial(job, hosts, plan.place, plan.nodes, plan.times, etcd if plan.place == "etcd" else None,
                      PORTS[index % len(PORTS)], links, run_id=f"job{index}")
            stack.callback(t.stop)
            stack.callback(t.close)
            if plan.place == "dir":
                t.directory.mkdir()
            soaked = Soaked(t, plan, dice, [k for k in KINDS if k not in lacking])
            try:
                soaked.run()
            except AssertionError as why:
                failure = str(why)
            except Exception:
                failure = traceback.format_exc()
            made = [Made(f.kind, f.phase) for f in t.made]
            took = soaked.took()
            if failure is not None:
                self.keep(folder, name, plan, failure, t)
        if failure is None:
            shutil.rmtree(folder)
        return {"name": name, "plan": str(plan), "made": made, "took": took, "recoveries": soaked.recoveries,
                "failure": failure, "seconds": time.monotonic() - began}

    def keep(self, folder, name, plan, failure, t):
        with contextlib.suppress(Exception):
            failure = f"{failure}\n---- all of it\n{t.story()}"
        (folder / "failure.txt").write_text(f"{name}: {plan}\n{failure}\n")
        print(f"job {name} failed: {failure.splitlines()[0]}\n    {plan}\n    kept in {folder}\n    again: "
              f"{self.again(name)}", file=sys.stderr, flush=True)

    def again(self, name):
        words = [f"MUSTER={harness.MUSTER}", "python3", __file__, "--replay", name]
        words += ["--nodes", str(self.args.nodes)] if self.args.nodes else []
        return " ".join(words + ["--backend", self.args.backend])


def spread(values):
    if not values:
        return "-"
    values = sorted(values)
    return f"{values[len(values) // 2]:.2f}/{values[-1]:.2f}"


def report(args, results, lacking, seconds):
    """Prints a table for people, and the summary line."""
    made = collections.Counter(m for r in results for m in r["made"])
    phases = sorted({m.phase for m in made})
    print(f"\n{'faults':<16}" + "".join(f"{p:>12}" for p in phases) + f"{'to a group: median/max s':>26}")
    for kind in KINDS:
        took = [x for r in results for k, x in r["took"] if k == kind]
        why = f"  skipped: no {lacking[kind]}" if kind in lacking else ""
        print(f"{kind:<16}" + "".join(f"{made[Made(kind, p)]:>12}" for p in phases) + f"{spread(took):>26}{why}")
    took = [x for r in results for _, x in r["took"]]
    settled = [x for r in results for x in r["recoveries"]]
    failed = [r["name"] for r in results if r["failure"]]
    by_phase = ", ".join(f"{p} {sum(n for m, n in made.items() if m.phase == p)}" for p in phases)
    print(f"soak: seed {args.seed}: {sum(made.values())} faults ({by_phase}) in {len(results)} jobs, {len(failed)} "
          f"failed{': ' + ' '.join(failed) if failed else ''}; fault to group "
          f"median/max {spread(took)} s, end of faults to group {spread(settled)} s; {seconds:.0f} s")
    return 1 if failed or not results else 0


def work(args, worker, folder):
    context = multiprocessing.get_context("fork")
    orders, answers = context.Queue(), context.Queue()
    wanted = [int(args.replay.split(":")[1])] if args.replay else None
    count = 1 if args.replay else args.jobs
    slots = [context.Process(target=Slot(args, worker, folder).serve, args=(orders, answers)) for _ in range(count)]
    for slot in slots:
        slot.start()
    results, given, lacking, began = [], 0, {}, time.monotonic()
    try:
        for index in wanted or range(count):
            orders.put(index)
            given += 1
        while len(results) < given and any(slot.is_alive() for slot in slots):
            try:
                what, said = answers.get(timeout=5)
            except queue.Empty:
                continue
            if what == "broken":
                print(said, file=sys.stderr)
                return 2
            if what == "lacking":
                lacking = said
                continue
            results.append(said)
            if args.verbose:
                print(f"{said['name']}: {len(said['made'])} faults, {'FAILED' if said['failure'] else 'well'}, "
                      f"{said['seconds']:.1f} s: {said['plan']}", flush=True)
            enough = sum(len(r["made"]) for r in results) >= args.faults or \
                sum(bool(r["failure"]) for r in results) >= args.failures
            if not args.replay and not enough:
                orders.put(given)
                given += 1
    finally:
        for _ in slots:
            orders.put(None)
        for slot in slots:
            slot.join(120)
    return report(args, results, lacking, time.monotonic() - began)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100, help="go on until so many were made (100)")
    parser.add_argument("--seed", default=None, help="of all draws; a new one otherwise, which is printed")
    parser.add_argument("--nodes", type=int, default=0, help="in every job; 3 to 8 otherwise")
    parser.add_argument("--jobs", type=int, default=4, help="at the same time (4)")
    parser.add_argument("--backend", choices=["dir", "etcd", "c10d", "mix"], default="mix")
    parser.add_argument("--failures", type=int, default=5, help="give up after so many failed jobs (5)")
    parser.add_argument("--replay", metavar="SEED:JOB", help="this job only")
    parser.add_argument("--keep", help="folder for what failed jobs leave (a new one in TMPDIR)")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for each job")
    args = parser.parse_args()
    if not os.access(harness.MUSTER, os.X_OK):
        parser.error("MUSTER must name the muster program to test")
    if args.nodes and not 3 <= args.nodes <= MOST_NODES:
        parser.error(f"--nodes: 3 to {MOST_NODES}")
    args.seed = args.replay.split(":")[0] if args.replay else args.seed or str(random.SystemRandom().randrange(1 << 32))
    folder = pathlib.Path(args.keep or tempfile.mkdtemp(prefix="muster-soak."))
    folder.mkdir(parents=True, exist_ok=True)
    worker = folder / "e2e-worker"
    subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-std=gnu11", "-O1", "-o", str(worker), str(harness.HERE / "worker.c")],
                   check=True)
    code = work(args, worker, folder)
    if code == 0 and not args.keep:
        shutil.rmtree(folder)
    return code


if __name__ == "__main__":
    sys.exit(main())
