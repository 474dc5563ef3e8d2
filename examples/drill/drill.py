#!/usr/bin/env python3
"""Makes faults in a running job on purpose, and checks that it recovers as fast as muster promises.

    MUSTER_ALLOW_DRILL=1 muster run --rdzv-endpoint=dir:/shared/muster --nnodes=2:4 --max-restarts=9 train.py
    examples/drill/drill.py --seed 7 --dry-run      # on a node of the job: what would be done
    examples/drill/drill.py --seed 7

It kills or stops only processes of this machine and this user, in a job that was started with MUSTER_ALLOW_DRILL=1.
The seed chooses the order of the faults and the victims. The status is 0 if the job recovered from each fault in time,
1 if it did not or if no fault was possible, and 2 if the drill was refused.
"""
import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time

# The longest time, in seconds, from the fault to the start of the next group's workers.
LIMITS = {"worker-kill": 1.0, "worker-term": 1.0, "worker-stop": 12.0, "agent-kill": 1.0, "leader-kill": 1.5, "exclude": 1.0}
SIGNALS = {"worker-term": signal.SIGTERM, "worker-stop": signal.SIGSTOP}  # the others: SIGKILL
GIVE_UP_S = 60  # after the limit
ROW = "{:<12} {:<32} {:>8} {:>8} {:>8}  {}"


class Refused(Exception):
    """Nothing may be done to this job."""


class LeftOut(Exception):
    """This fault is not possible now."""


def ask(muster, *words):
    """The JSON that a command of muster prints; an empty object if it fails."""
    done = subprocess.run([muster, *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def field(pid, name):
    """The first number of a line of /proc/PID/status."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name + ":"))


def descends(pid, ancestor):
    while pid > 1 and pid != ancestor:
        pid = field(pid, "PPid")
    return pid == ancestor


class Job:
    def __init__(self, muster, run_id):
        self.muster, self.run_id = muster, run_id
        found = {a["run_id"] for a in ask(muster, "ps").get("agents", [])}
        if run_id is None and len(found) == 1:
            self.run_id, = found
        elif run_id is None:
            raise Refused(f"{len(found)} jobs run on this machine; give --rdzv-id" if found else "no job of yours runs on this machine")
        elif run_id not in found:
            raise Refused(f"no agent of job {run_id} runs on this machine")
        self.agents()

    def agents(self):
        """Node and pid of each agent on this machine. Refuses a job that may not be touched. Names can occur twice."""
        found = set()
        for node, pid in [(a["node"], a["pid"]) for a in ask(self.muster, "ps").get("agents", []) if a["run_id"] == self.run_id]:
            try:
                if field(pid, "Uid") != os.getuid():
                    raise Refused(f"the agent of node {node} (pid {pid}) belongs to another user")
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if b"MUSTER_ALLOW_DRILL=1" not in file.read().split(b"\0"):
                        raise Refused(f"job {self.run_id} was not started with MUSTER_ALLOW_DRILL=1")
                found.add((node, pid))
            except (FileNotFoundError, ProcessLookupError):
                pass  # it has just ended
        return found

    def status(self):
        return ask(self.muster, "status", f"--rdzv-id={self.run_id}")

    def until(self, is_so, seconds):
        """Asks until is_so(status). Returns that status, or None after this time or if no agent remains here."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            status = self.status()
            if status and is_so(status):
                return status
            if not status and not self.agents():
                return None
            time.sleep(0.05)
        return None


def is_running(status):
    return status["state"] == "running" and all(n["state"] == "running" for n in status["nodes"] if n["place"] == "member")


def remaining(status, victim):
    """How many nodes a group can have without the victim."""
    count, unit = {}, status["node_unit"]
    for n in status["nodes"]:
        if n["id"] != victim["id"] and n["connected"] and n["place"] in ("member", "waiting", "spare"):
            count[n["domain"]] = count.get(n["domain"], 0) + 1
    return sum(c // unit * unit for c in count.values())


def draw_worker(job, fault, status, nodes, rng):
    if status["restarts_used"] >= status["max_restarts"]:
        raise LeftOut("no restart remains")
    if fault == "worker-stop" and status["watchdog"] is None:
        raise LeftOut("the job is not watched for hangs")
    by_name, workers = {n["node"]: n for n in nodes}, []

    def is_known(now):  # right after a start, a node may not answer yet
        stacks = ask(job.muster, "stacks", f"--rdzv-id={job.run_id}").get("nodes", [])
        workers.extend((w["rank"], w["pid"], n["node"]) for n in stacks if n["node"] in by_name and n.get("evidence")
                       for w in n["evidence"]["workers"])
        return workers or now["generation"] != status["generation"]

    if not nodes or not job.until(is_known, GIVE_UP_S):
        raise LeftOut("no worker on this machine is known")
    if not workers:  # the group is a new one
        return draw(job, fault, rng)
    rank, pid, name = rng.choice(sorted(workers))
    return f"rank {rank} of {name}, pid {pid}", by_name[name], pid, status["generation"]


def draw_node(fault, status, nodes, rng):
    if fault == "leader-kill" and not status["successors"]:
        raise LeftOut("no other node can lead")
    nodes = [n for n in nodes if (n["id"] == status["leader"]) == (fault == "leader-kill")]
    if not nodes:
        raise LeftOut("no such node is on this machine")
    nodes = [n for n in nodes if remaining(status, n) >= status["min_nodes"]]
    if not nodes:
        raise LeftOut("too few nodes would remain")
    node = rng.choice(sorted(nodes, key=lambda n: n["node_rank"]))
    return f"node {node['node']}, pid {node['pid']}", node, node["pid"], status["generation"]


def draw(job, fault, rng):
    """Chooses a victim: its description, its node, its pid, and the generation in which it runs."""
    status, agents = job.until(is_running, GIVE_UP_S), job.agents()
    if status is None:
        raise LeftOut("the job does not run")
    nodes = [n for n in status["nodes"] if n["place"] == "member" and (n["node"], n["pid"]) in agents]
    if fault.startswith("worker"):
        return draw_worker(job, fault, status, nodes, rng)
    return draw_node(fault, status, nodes, rng)


def strike(job, fault, node, pid, pidfd):
    """Makes the fault. The pid can have been used again, so it is checked once more, behind its pidfd."""
    if (node["node"], node["pid"]) not in job.agents() or not descends(pid, node["pid"]):
        raise ProcessLookupError(f"process {pid} is not of this job any more")
    if fault == "exclude":
        subprocess.run([job.muster, "exclude", "--reason=drill", f"--rdzv-id={job.run_id}", node["id"]], check=True,
                       stdout=subprocess.DEVNULL)
    else:
        signal.pidfd_send_signal(pidfd, SIGNALS.get(fault, signal.SIGKILL))


def make_fault(job, fault, victim, limit):
    """Makes the fault and waits. Returns the seconds until the job showed it, and until the next group was started."""
    _, node, pid, generation = victim
    pidfd, seen = os.pidfd_open(pid), None
    begin = time.monotonic()

    def is_over(status):
        nonlocal seen
        if seen is None and (status["state"] != "running" or status["generation"] != generation):
            seen = time.monotonic() - begin
        return is_running(status) and status["generation"] != generation

    try:
        strike(job, fault, node, pid, pidfd)
        status = job.until(is_over, limit + GIVE_UP_S)
        return seen, status and time.monotonic() - begin - status["started_seconds"]
    finally:
        if fault == "worker-stop":
            with contextlib.suppress(ProcessLookupError):  # it should have been killed
                signal.pidfd_send_signal(pidfd, signal.SIGCONT)
        os.close(pidfd)


def seconds(value):
    return "-" if value is None else f"{value:.2f} s"


def drill(job, o):
    rng, rows = random.Random(o.seed), []
    faults = rng.sample(o.faults, len(o.faults))
    print(f"drill: job {job.run_id}, seed {o.seed}", flush=True)
    for fault in faults:
        limit = LIMITS[fault] * o.stretch
        try:
            victim = draw(job, fault, rng)
            print(f"drill: {fault}: {victim[0]}", flush=True)
            if o.dry_run:
                continue
            seen, started = make_fault(job, fault, victim, limit)
        except (LeftOut, OSError, subprocess.CalledProcessError) as why:
            print(f"drill: {fault} is left out: {why}", flush=True)
            continue
        rows.append((fault, victim[0], limit, seen, started, started is not None and started <= limit))
        if started is None:
            break
        if fault != faults[-1]:
            time.sleep(o.every)
    if o.dry_run:
        return 0
    print(ROW.format("fault", "victim", "limit", "seen", "started", ""))
    for fault, text, limit, seen, started, in_time in rows:
        print(ROW.format(fault, text, seconds(limit), seconds(seen), seconds(started), "ok" if in_time else "late"))
    return 0 if rows and all(row[-1] for row in rows) else 1


def fault_list(text):
    unknown = [f for f in text.split(",") if f not in LIMITS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown fault {unknown[0]}")
    return text.split(",")


def main():
    p = argparse.ArgumentParser(description="Makes faults in a running job, and checks how fast it recovers.")
    p.add_argument("--seed", type=int, default=random.randrange(10**6), help="chooses the order and the victims")
    p.add_argument("--faults", type=fault_list, default=list(LIMITS), help="a list of " + ", ".join(LIMITS))
    p.add_argument("--every", type=float, default=10, metavar="SECONDS", help="pause after each recovery (10)")
    p.add_argument("--stretch", type=float, default=1, metavar="FACTOR", help="multiplies the limits (1)")
    p.add_argument("--rdzv-id", metavar="ID", help="the job, if this machine has several")
    p.add_argument("--dry-run", action="store_true", help="print the faults and their victims, and do nothing")
    p.add_argument("--muster", default="muster", metavar="PATH", help="the program (muster)")
    o = p.parse_args()
    try:
        return drill(Job(o.muster, o.rdzv_id), o)
    except Refused as why:
        print(f"drill: refused: {why}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
