#!/usr/bin/python3
"""A rank of a PyTorch job (gloo, four ranks on two agents) hangs in fifteen ways: when muster names it, when the job runs
again, and what torchrun does in a minute.

Each fault is that of tests/e2e/torch_hang.py, alone and with a second thread that writes a line five times a second; of
the two, the longer time counts. Times are from the fault: "named", until a line of --hang-report=5 has the rank;
"again", until the first instruction of the last new worker. BENCH_ONLY="sleep key": only these; BENCH_PEER_PATIENCE
(60): how long torchrun has, 0: it is left out; BENCH_SIDE (2): so many jobs side by side. Needs MUSTER_TEST_PYTHON with PyTorch.
"""
import concurrent.futures
import os
import pathlib
import re
import statistics
import sys
import tempfile

import bench
import harness
from hang_trial import FAULTS, Trial

PATIENCE = float(os.environ.get("BENCH_PEER_PATIENCE", "60"))
SIDE = int(os.environ.get("BENCH_SIDE", "2"))
NAMED_S, AGAIN_S = 10, 2


class Result:
    """One job: seconds until it was named and until it ran again, the line, and what it said; None: it did not."""
    named = again = line = None
    said = ""


def one(tmp, fault, logs, launcher):
    with tempfile.TemporaryDirectory(dir=tmp) as folder, harness.Job(pathlib.Path(folder) / "job") as job:
        trial, result = Trial(job, fault, logs, launcher), Result()
        trial.start()
        at = trial.begins()
        if launcher is None:
            line, when = trial.line(fault.named, fault.limit + 20)
            result.named, result.line = when and when - at, line
        begun, _ = trial.again(PATIENCE if launcher else fault.limit + 30)
        result.again = begun and begun - at
        result.said = trial.said()
        if launcher and not begun and all(a.process.poll() is not None for a in trial.agents):
            result.line = "the job ended"
        return result


def longest(values):
    return None if None in values else max(values)


def shown(line):
    """What a line of muster says of rank 2."""
    line = re.sub(r"^.*?(?=rank 2 )", "", line or "not named").replace("|", "/")
    return re.sub(r"/\S*/(?=(fifo|fuse)\.)", ".../", line)  # a temporary folder


def table(rows):
    """For docs/hangs.md."""
    print(f"| rank 2 ... | sign, limit | named | runs again | torchrun, {PATIENCE:.0f} s | muster says |")
    print("| --- | --- | --- | --- | --- | --- |")
    for fault, named, again, peer, line in rows:
        limit = f", {fault.limit} s" if fault.limit else ""
        print(f"| {fault.what} | {fault.sign}{limit} | {text(named)} | {text(again)} | {peer} | {shown(line)} |")


def text(value):
    return "never" if value is None else f"{value:.1f} s"


def peer_text(result):
    if result is None:
        return "not measured"
    return result.line or (f"runs again after {result.again:.1f} s" if result.again else "nothing")


def main():
    if not harness.TORCH_PYTHON:
        sys.exit("MUSTER_TEST_PYTHON must name a Python with PyTorch")
    torchrun, rows = bench.torchrun() if PATIENCE > 0 else None, []
    names = os.environ.get("BENCH_ONLY", "").split() or list(FAULTS)
    with tempfile.TemporaryDirectory() as tmp, concurrent.futures.ThreadPoolExecutor(SIDE) as side:
        peers = {name: side.submit(one, tmp, FAULTS[name], False, torchrun) for name in names if torchrun}
        ours = {name: [side.submit(one, tmp, FAULTS[name], logs, None) for logs in (False, True)] for name in names}
        for name, pair in ours.items():
            results, fault = [r.result() for r in pair], FAULTS[name]
            named, again = longest([r.named for r in results]), longest([r.again for r in results])
            peer = peers[name].result() if torchrun else None
            rows.append((fault, named, again, peer_text(peer), results[0].line))
            print(f"{name:14} named {text(named):>7}   again {text(again):>7}   {shown(results[0].line)}", flush=True)
            for r in results:
                if r.named is None or r.again is None:
                    print(r.said, flush=True)
    late = [f.name for f, named, _, _, _ in rows if named is None or named > NAMED_S]
    slow = [f.name for f, _, again, _, _ in rows if f.limit and (again is None or again > f.limit + AGAIN_S)]
    table(rows)
    bench.target(f"each is named within {NAMED_S} s: {' '.join(late) or 'all'}", not late)
    bench.target(f"each runs again {AGAIN_S} s after its limit at the latest: {' '.join(slow) or 'all'}", not slow)
    over = [again - f.limit for f, _, again, _, _ in rows if f.limit and again is not None]
    done = sum(peer not in ("nothing", "not measured") for _, _, _, peer, _ in rows)
    bench.row("15 hangs of one rank of four: start again within a minute", f"{done} of {len(rows)}" if torchrun else None,
              f"{sum(r[2] is not None for r in rows)} of {len(rows)}, {bench.seconds(statistics.median(over))} after their limits" if over else "none")
    bench.end()


if __name__ == "__main__":
    main()
