#!/usr/bin/python3
"""Two `echo` a host in an allocation of an emulated Slurm: by srun alone, by `muster run` (which starts its own step), and
by `srun muster run`; alternately.

The emulated hosts share /tmp, which real ones do not: each agent would see the others' folders there, and all wait for
one lock to make their own. So TMPDIR is a folder that each host has for itself.

BENCH_NODES are the numbers of hosts (2 8 32 64), BENCH_SLURM_RUNS how often each is measured (9).
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import bench
from hosts import NoNamespaces
from slurm import PROGRAMS, Slurm

NODES = [int(n) for n in os.environ.get("BENCH_NODES", "2 8 32 64").split()]
RUNS = int(os.environ.get("BENCH_SLURM_RUNS", "9"))
KINDS = ("srun", "muster run", "srun muster run")

# A line for each run: what, microseconds, how many workers were heard. One round more than asked fills the caches.
ROUNDS = r"""
n=$SLURM_JOB_NUM_NODES
timed() {
    local what=$1 begin=${EPOCHREALTIME/./} heard
    shift
    heard=$("$@" 2>> errors < /dev/null | grep -c WORKER)
    echo "$what:$((${EPOCHREALTIME/./} - begin)):$heard"
}
for ((i = 0; i <= $1; i++)); do
    timed srun srun -N$n -n$((2 * n)) --ntasks-per-node=2 echo WORKER
    timed 'muster run' "$MUSTER" run --nproc-per-node=2 --no-python echo WORKER
    timed 'srun muster run' srun -N$n -n$n --ntasks-per-node=1 "$MUSTER" run --nproc-per-node=2 --no-python echo WORKER
done
"""


def measure(nodes, folder):
    """{what: [seconds, …]}"""
    script = pathlib.Path(folder, "rounds")
    script.write_text(ROUNDS)
    with Slurm(nodes, cpus=4) as slurm:
        env = slurm.env({"MUSTER": str(pathlib.Path(bench.muster()).resolve()), "MUSTER_RUN_DIR": "/dev/shm/muster",
                         "TMPDIR": "/dev/shm"})
        done = slurm.run("salloc", "--quiet", f"-N{nodes}", "--ntasks-per-node=2", "--exclusive", "bash", script, RUNS,
                         folder=folder, env=env, seconds=60 + 30 * RUNS)
    samples = {what: [] for what in KINDS}
    for line in done.stdout.splitlines():
        what, took, heard = line.split(":")
        if int(heard) != 2 * nodes:
            sys.exit(f"{what} on {nodes} hosts: {heard} of {2 * nodes} workers\n" + pathlib.Path(folder, "errors").read_text())
        samples[what].append(int(took) / 1e6)
    return {what: found[1:] for what, found in samples.items()}


def main():
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        print(f"no Slurm here: {', '.join(missing) or 'needs root'}")
        bench.target("at most 1.5 times srun alone", None)
        return
    for nodes in NODES:
        print(f"{nodes} hosts, two workers each")
        with tempfile.TemporaryDirectory() as folder:
            try:
                samples = measure(nodes, folder)
            except (NoNamespaces, subprocess.TimeoutExpired) as why:
                sys.exit(f"{nodes} hosts: {why}")
        middle = {what: bench.show(what, found) for what, found in samples.items()}
        bare, ours = middle["srun"], middle["muster run"]
        print(f"muster run takes {ours / bare:.2f} times as long as srun alone")
        if nodes == 2:
            bench.target(f"2 hosts: at most 50 ms more than srun alone ({bare + 50:.0f} ms)", ours <= bare + 50)
        else:
            bench.target(f"{nodes} hosts: at most 1.5 times srun alone ({1.5 * bare:.0f} ms)", ours <= 1.5 * bare)
    bench.end()


if __name__ == "__main__":
    main()
