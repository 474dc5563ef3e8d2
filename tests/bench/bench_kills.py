#!/usr/bin/python3
"""A worker of a 4-rank gloo job is killed at a random moment, with --max-restarts=1: how many jobs recover.

The moments are those of tests/e2e/test_torch.py: a third before the first collective, the others spread over the
training. BENCH_KILLS (20) and BENCH_PEER_KILLS (6) are the numbers of jobs; SEED repeats the same moments.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

import bench

TORCHRUN = bench.torchrun()
if TORCHRUN:  # the jobs' workers run under that Python
    os.environ["MUSTER_TEST_PYTHON"] = str(pathlib.Path(TORCHRUN[-1]).with_name("python"))

import harness      # noqa: E402
import test_torch   # noqa: E402

KILLS = max(1, int(os.environ.get("BENCH_KILLS", "20")))
PEER_KILLS = max(1, int(os.environ.get("BENCH_PEER_KILLS", "6")))


def recovered(tmp, worker, program, moments):
    count = 0
    for n, (rank, where) in enumerate(moments):
        with harness.Job(tmp / f"{'torchrun' if program else 'muster'}{n}", worker) as job:
            count += test_torch.one_kill(job, rank, where, program=program, seconds=60) == 0
    return count


def main():
    if not TORCHRUN:
        print("not measured: no Python with PyTorch in MUSTER_TEST_PYTHON")
        return
    seed = os.environ.get("SEED", "1")
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as tmp:
        tmp = pathlib.Path(tmp)
        worker = tmp / "worker"
        subprocess.run(["cc", "-std=gnu11", "-O1", "-o", worker, harness.HERE / "worker.c"], check=True)
        ours = recovered(tmp, worker, None, list(test_torch.moments(KILLS, seed)))
        peer = recovered(tmp, worker, TORCHRUN, list(test_torch.moments(PEER_KILLS, seed)))
    print(f"a worker killed at a random moment (SEED={seed}): muster {ours} of {KILLS} jobs recover, "
          f"torchrun {peer} of {PEER_KILLS}")
    bench.target("all jobs recover", ours == KILLS)
    bench.row("a worker is killed at a random moment in a 4-rank gloo job, `--max-restarts=1`",
              f"{peer} of {PEER_KILLS} jobs recover", f"{ours} of {KILLS} jobs recover")
    bench.end()


if __name__ == "__main__":
    sys.exit(main())
