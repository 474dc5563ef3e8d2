#!/usr/bin/python3
"""A rank of the DDP example is killed: how long until all ranks have done their first step again, and the CPU time of each
rank until then; cold, with --warm=process and with --warm, and with torchrun.

One node of 4 ranks, and two nodes of 2 (both on this machine). Also the memory of what waits (PSS), and its CPU time
while it waits. BENCH_RUNS (10) restarts each; MUSTER_TEST_PYTHON names a Python with PyTorch.
"""
import contextlib
import os
import pathlib
import re
import select
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("BENCH_RUNS", "10")

import bench  # noqa: E402
import harness  # noqa: E402

TRAIN = harness.HERE.parent.parent / "examples" / "pytorch-ddp" / "train.py"
# Runs the example, and writes a line when its first step is done: then this rank has used so much CPU time.
FIRST_STEP = """
import os, runpy, sys, time
import torch.distributed as dist
plain = dist.all_reduce
def all_reduce(*args, **kwargs):
    done = plain(*args, **kwargs)
    with open("/proc/self/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    with open(os.environ["STEPS"], "a") as f:
        f.write(f"{os.environ['TORCHELASTIC_RESTART_COUNT']} {os.environ['RANK']} {os.getpid()} {time.monotonic()} {used}\\n")
    dist.all_reduce = plain
    return done
dist.all_reduce = all_reduce
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def cpu_of(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pss(pids):
    total = 0
    for pid in pids:
        total += int(re.search(r"^Pss:\s+(\d+)", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)[1])
    return total / 1024


class Trial:
    def __init__(self, tmp, program, words, nodes, nproc):
        self.steps, self.world, self.ranks = tmp / "steps", nodes * nproc, {}
        self.steps.write_text("")
        script = tmp / "first_step.py"
        script.write_text(FIRST_STEP)
        port = harness.free_port()
        self.tmp, self.agents = tmp, []
        for node in range(nodes):
            where = [f"--nnodes={nodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=bench"]
            log = open(tmp / f"said{node}", "w")
            self.agents.append(subprocess.Popen(
                [*program, *words, *where, f"--nproc-per-node={nproc}", "--max-restarts=1000", script, TRAIN, "--epochs=100000"],
                env={**os.environ, "STEPS": str(self.steps), "PYTHON_EXEC": os.environ["MUSTER_TEST_PYTHON"]},
                stdout=log, stderr=log))

    def stepped(self, generation, patience=120):
        """[(pid, time, CPU seconds)] of all ranks."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            lines = [line.split() for line in self.steps.read_text().splitlines()]
            found = {int(w[1]): (int(w[2]), float(w[3]), float(w[4])) for w in lines if len(w) == 5 and int(w[0]) == generation}
            if len(found) == self.world:
                return [found[rank] for rank in sorted(found)]
            select.select([], [], [], 0.005)  # of the benchmark; times are the ranks' own
        return None

    def waiting(self, times, patience=180):
        """All standbys wait, on all nodes."""
        end = time.monotonic() + patience
        for node in range(len(self.agents)):
            while (self.tmp / f"said{node}").read_text().count("wait for the next start") < times:
                if time.monotonic() > end:
                    sys.exit((self.tmp / f"said{node}").read_text())
                select.select([], [], [], 0.05)

    def helpers(self, workers):
        found = []
        for agent in self.agents:
            for pid in harness.children(harness.children(agent.pid)[0]):
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_text()
                if "first_step.py" in words and "--nproc-per-node" not in words and pid not in workers:
                    found.append(pid)
        return found

    def close(self):
        for agent in self.agents:
            agent.terminate()
        for agent in self.agents:
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.wait(30)
            agent.kill()


def run(name, program, words, nodes, nproc, warm, runs):
    took, used, spent, generation = [], [], [], 0
    with tempfile.TemporaryDirectory() as tmp:
        trial = Trial(pathlib.Path(tmp), program, words, nodes, nproc)
        try:
            steps = trial.stepped(0)
            for _ in range(runs if steps else 0):
                pids = [pid for pid, _, _ in steps]
                if warm:
                    trial.waiting(generation + 1)
                    helpers = trial.helpers(pids)
                    before = sum(map(cpu_of, helpers))
                    if not generation:
                        print(f"{name:32} memory of one rank {pss(pids[:1]):.0f} MiB, of {len(helpers)} that wait {pss(helpers):.0f} MiB",
                              flush=True)
                    select.select([], [], [], 1)
                    spent.append(sum(map(cpu_of, helpers)) - before)
                    cpu = {pid: cpu_of(pid) for pid in helpers}
                at = time.monotonic()
                os.kill(pids[-1], 9)
                generation += 1
                steps = trial.stepped(generation)
                if steps is None:
                    break
                took.append(max(when for _, when, _ in steps) - at)
                used += [total - (cpu.get(pid, 0) if warm else 0) for pid, _, total in steps]
        finally:
            trial.close()
    if len(took) < runs:
        print(f"{name:32} {len(took)} of {runs} recovered within 120 s", flush=True)
    if took:
        bench.show(name, took)
        bench.show(name + ", CPU per rank", used)
    if spent:
        print(f"{name:32} CPU of those that wait: {statistics.median(spent) * 1e3:.0f} ms a second", flush=True)
    return statistics.median(took) if took else None


def main():
    program = [bench.muster(), "run", "-v"]
    for nodes, nproc in ((1, 4), (2, 2)):
        shape = f"{nodes}x{nproc}"
        for form in ("fork", "process"):
            median = run(f"{shape} --warm={form}", program, [f"--warm={form}", "--warm-after=2"], nodes, nproc, True, bench.RUNS)
            if form == "fork":
                bench.target(f"{shape}: kill to first step, warm, at most 0.3 s", median is not None and median <= 0.3)
        run(f"{shape} cold", program, [], nodes, nproc, False, min(bench.RUNS, 3))
        peer = bench.torchrun()
        if peer:
            run(f"{shape} torchrun", peer, [], nodes, nproc, False, bench.PEER_RUNS)
    bench.end()


if __name__ == "__main__":
    main()
