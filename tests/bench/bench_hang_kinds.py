#!/usr/bin/python3
"""Real jobs, healthy and hung, side by side, and what muster concludes of each: one table in Markdown.

The hung ones are those of tests/e2e/torch_hang.py, the healthy ones those of tests/e2e/hang_kinds.py and
torch_healthy.py, for BENCH_SECONDS (45) each with limits of quiet of 12 s: a false alarm needs no half hour then.
BENCH_ONLY="prints sleep": only these; BENCH_SIDE (3): so many jobs side by side. Needs MUSTER_TEST_PYTHON with PyTorch.
"""
import concurrent.futures
import os
import pathlib
import re
import sys
import tempfile
import time

import bench
import harness
from hang_kinds import KINDS
from hang_trial import FAULTS, Trial
from harness import HERE, TORCH_PYTHON

SECONDS = float(os.environ.get("BENCH_SECONDS", "45"))
SIDE = int(os.environ.get("BENCH_SIDE", "3"))
STILL, BUSY, LATE_S = 12, 20, 5
TORCH = {"noisy": "steps of very different length", "first": "computes before the first step",
         "evaluates": "rank 0 alone computes", "saves": "rank 0 alone writes a checkpoint",
         "uploads": "rank 0 alone writes to a slow socket", "loaders": "slow data loaders"}


def said_of(said):
    """"restarted", "reported" or "left alone", and the line."""
    line = next((line for line in said.splitlines() if "the job hangs" in line), "")
    if line and "nothing is stopped" not in line:
        return "restarted", line
    return ("reported" if line else "left alone"), line


def healthy(tmp, name):
    with tempfile.TemporaryDirectory(dir=tmp) as folder, harness.Job(pathlib.Path(folder) / "job") as job:
        torch = name in TORCH
        script = HERE / ("torch_healthy.py" if torch else "hang_kinds.py")
        ranks = 4 if torch else KINDS[name].ranks
        begin = time.monotonic()
        agent = job.agent("a", f"--nproc-per-node={ranks}", "--max-restarts=3", "--hang-report=5", f"--hang-still={STILL}",
                          f"--hang-timeout={BUSY}" if not torch else "--hang-timeout=60", script, name, SECONDS,
                          env={"PYTHON_EXEC": TORCH_PYTHON, "OMP_NUM_THREADS": "1", "HANG_FOLDER": job.tmp, "SEED": "1"})
        code, _, said = agent.finish(SECONDS * 4 + 120)
        verdict, line = said_of(said)
        well = code == 0 and verdict == ("left alone" if torch or not KINDS[name].idles else verdict) != "restarted"
        return (name, TORCH.get(name) or KINDS[name].what, f"{STILL} s", verdict, shown(line),
                time.monotonic() - begin, well, said)


def hung(tmp, name):
    with tempfile.TemporaryDirectory(dir=tmp) as folder, harness.Job(pathlib.Path(folder) / "job") as job:
        fault = FAULTS[name]
        trial = Trial(job, fault)
        trial.start()
        at = trial.begins()
        begun, _ = trial.again(fault.limit + 60)
        line, _ = trial.line(fault.named if name == "exits" else rf"the job hangs: .*{fault.line}", 1)
        took = begun and begun - at
        well = bool(begun and line) and took <= fault.limit + LATE_S
        return (name, fault.what, f"{fault.limit} s", "restarted" if begun else "missed", shown(line), took, well, trial.said())


def shown(line):
    line = re.sub(r"^.*?(?=rank 2 |all ranks|the only rank)", "", line or "").split("; nothing is stopped")[0]
    return re.sub(r"; stopping .*", "", re.sub(r"/\S*/(?=\S+)", ".../", line)).replace("|", "/")


def main():
    if not TORCH_PYTHON:
        sys.exit("MUSTER_TEST_PYTHON must name a Python with PyTorch")
    names = os.environ.get("BENCH_ONLY", "").split() or [*KINDS, *TORCH, *FAULTS]
    with tempfile.TemporaryDirectory() as tmp, concurrent.futures.ThreadPoolExecutor(SIDE) as side:
        rows = [side.submit(hung if name in FAULTS else healthy, tmp, name) for name in names]
        bad = []
        print("| job | kind | limit | verdict | named | seconds |\n| --- | --- | --- | --- | --- | --- |", flush=True)
        for name, row in zip(names, rows):
            _, what, limit, verdict, line, took, well, said = row.result()
            group = "hung" if name in FAULTS else "healthy"
            print(f"| {group} | {what} | {limit} | {verdict} | {line} | {'never' if took is None else f'{took:.1f}'} |",
                  flush=True)
            if not well:
                bad.append(name)
                print(f"{name}: {said}", file=sys.stderr, flush=True)
    bench.target(f"no false alarm, and no hang later than its limit and {LATE_S} s: {' '.join(bad) or 'all'}", not bad)
    bench.end()


if __name__ == "__main__":
    main()
