#!/usr/bin/python3
"""What the watchdog costs: the CPU time of the launcher, with its helpers and without workers, with --hang-action=report and
off, while the workers move and while they all wait; and how long it takes to gather the evidence of 64 workers.

BENCH_SECONDS: for how long each job is watched (30).
"""
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import bench
import harness

WORKERS, MANY, THREADS = 8, 64, 4
SECONDS = float(os.environ.get("BENCH_SECONDS", "30"))
SETTLE = 12  # until quiet workers are looked at every 5 s
TICK = 1 / os.sysconf("SC_CLK_TCK")

# What the main thread does: "moves" a little each 0.2 s, "waits", or "spins" in a loop.
WORKER = """
import os, select, sys, threading, time
def idle(seconds):
    select.select([], [], [], seconds)
def telemetry():
    while True:
        idle(0.5)
        os.getloadavg()
def all_reduce():
    while True:
        end = time.process_time() + 0.005
        while kind == "spins" or kind == "moves" and time.process_time() < end:
            pass
        idle(1000 if kind == "waits" else 0.2)
kind = sys.argv[1]
for _ in range(int(sys.argv[2])):
    threading.Thread(target=telemetry, daemon=True).start()
print("ready", flush=True)
all_reduce()
"""


def used(pids):
    """CPU seconds of these processes, and of the children that they have waited for."""
    total = 0.0
    for pid in pids:
        folder = pathlib.Path(f"/proc/{pid}")
        total += sum(int(p.read_text().split()[0]) for p in folder.glob("task/*/schedstat")) / 1e9
        total += sum(map(int, (folder / "stat").read_text().rpartition(")")[2].split()[13:15])) * TICK
    return total


def launcher(pid, python):
    """pid and its descendants that run muster."""
    if os.readlink(f"/proc/{pid}/exe") == python:
        return []
    return [pid] + [p for child in harness.children(pid) for p in launcher(child, python)]


def goes_on(run, seconds):
    """It has to run for so long."""
    try:
        sys.exit(f"the job ended with {run.wait(seconds)}")
    except subprocess.TimeoutExpired:
        return


def percent(tmp, kind, action):
    """Percent of a core that the launcher uses."""
    python = os.path.realpath(sys.executable)
    script = tmp / "worker.py"
    script.write_text(WORKER)
    args = [bench.muster(), "run", "--standalone", f"--nproc-per-node={WORKERS}", f"--hang-action={action}", "--no-python",
            python, script, kind, "1"]
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as run:
        try:
            for _ in range(WORKERS):
                if run.stdout.readline() != "ready\n":
                    sys.exit("the workers do not start")
            goes_on(run, SETTLE)
            pids = launcher(run.pid, python)
            before, began = used(pids), time.monotonic()
            goes_on(run, SECONDS)
            spent = used(pids) - before
            return 100 * spent / (time.monotonic() - began)
        finally:
            run.terminate()


def gather(tmp):
    """Seconds for the evidence of MANY workers, each with THREADS threads more."""
    script = tmp / "worker.py"
    script.write_text(WORKER)
    workers = [subprocess.Popen([sys.executable, script, "waits", str(THREADS)], stdout=subprocess.PIPE, text=True)
               for _ in range(MANY)]
    try:
        for w in workers:
            w.stdout.readline()
        said = [subprocess.run([os.environ["GATHERTIME"], *(str(w.pid) for w in workers)], check=True, text=True,
                               capture_output=True).stdout for _ in range(5)]
    finally:
        for w in workers:
            w.kill()
            w.communicate()
    stacks = {int(line.split()[1]) for line in said}
    if stacks != {MANY}:
        sys.exit(f"not all Python stacks were read: {said}")
    return [int(line.split()[0]) / 1e9 for line in said]


def main():
    print(f"CPU time of the launcher, {WORKERS} workers, in {SECONDS:.0f} s; load {os.getloadavg()[0]:.2f}")
    middle = {}
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as tmp:
        tmp = pathlib.Path(tmp)
        for kind in ("moves", "waits", "spins"):
            for action in ("off", "report"):
                middle[kind, action] = bench.show(f"workers: {kind}, {action}",
                                                  [percent(tmp, kind, action) for _ in range(3)], "% of a core", 1)
        took = gather(tmp)
    cost = {kind: max(0.0, middle[kind, "report"] - middle[kind, "off"]) for kind in ("moves", "waits", "spins")}
    bench.target("while the workers move, at most 0.1 % of a core", cost["moves"] <= 0.1)
    bench.target("while they wait, at most 0.5 % of a core", cost["waits"] <= 0.5)
    bench.show(f"evidence of {MANY} workers", took)
    bench.target(f"the evidence of {MANY} workers within 1 s", statistics.median(took) <= 1)
    bench.row(f"watchdog, {WORKERS} workers: CPU while they move / wait", "has none",
              f"{cost['moves']:.2f} % / {cost['waits']:.2f} % of a core")
    bench.row(f"evidence of {MANY} workers, stacks included", "has none", bench.seconds(statistics.median(took)))
    bench.end()


if __name__ == "__main__":
    main()
