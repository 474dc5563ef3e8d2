#!/usr/bin/python3
"""A rank of the DDP example is killed: how long until all ranks have done their first step again, and the CPU time of each
rank until then; cold, with --warm=process and with --warm, and with torchrun.

One node of 4 ranks, and two nodes of 2 (both on this machine). Also the memory of what waits (PSS), and its CPU time
while it waits. BENCH_RUNS (10) restarts each; MUSTER_TEST_PYTHON names a Python with PyTorch. With --transformers a
Trainer of transformers with a small Llama takes the place of the example: that Python must have transformers and accelerate.
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

SHAPES = ((1, 4), (2, 2))
TRAIN = harness.HERE.parent.parent / "examples" / "pytorch-ddp" / "train.py"
# Runs the example, and writes a line when its first step is done: then this rank has used so much CPU time.
STEP = """
import os, time
def step_is_done():
    with open("/proc/self/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    with open(os.environ["STEPS"], "a") as f:
        f.write(f"{os.environ['TORCHELASTIC_RESTART_COUNT']} {os.environ['RANK']} {os.getpid()} {time.monotonic()} {used}\\n")
"""
FIRST_STEP = STEP + """
import runpy, sys
import torch.distributed as dist
plain = dist.all_reduce
def all_reduce(*args, **kwargs):
    done = plain(*args, **kwargs)
    step_is_done()
    dist.all_reduce = plain
    return done
dist.all_reduce = all_reduce
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
TRANSFORMERS = STEP + """
import tempfile
import torch, transformers
class First(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **more):
        if state.global_step == 1:
            step_is_done()
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20
    def __getitem__(self, i):
        ids = torch.arange(i, i + 32) % 1000
        return {"input_ids": ids, "labels": ids}
config = transformers.LlamaConfig(vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=4,
                                  num_attention_heads=4)
args = transformers.TrainingArguments(tempfile.mkdtemp(), use_cpu=True, per_device_train_batch_size=4, max_steps=1 << 20,
                                      save_strategy="no", report_to="none", logging_strategy="no", disable_tqdm=True,
                                      ddp_backend="gloo")
transformers.Trainer(transformers.LlamaForCausalLM(config), args, train_dataset=Data(), callbacks=[First()]).train()
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
    def __init__(self, tmp, program, words, shape, transformers):
        nodes, nproc = shape
        self.steps, self.world, self.ranks = tmp / "steps", nodes * nproc, {}
        self.steps.write_text("")
        script = tmp / "first_step.py"
        script.write_text(TRANSFORMERS if transformers else FIRST_STEP)
        script_words = [script] if transformers else [script, TRAIN, "--epochs=100000"]
        port = harness.free_port()
        self.tmp, self.agents = tmp, []
        for node in range(nodes):
            where = [f"--nnodes={nodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=bench"]
            log = open(tmp / f"said{node}", "w")
            self.agents.append(subprocess.Popen(
                [*program, *words, *where, f"--nproc-per-node={nproc}", "--max-restarts=1000", *script_words],
                env={**os.environ, "STEPS": str(self.steps), "PYTHON_EXEC": os.environ["MUSTER_TEST_PYTHON"]},
                stdout=log, stderr=log))

    def stepped(self, generation, patience=120):
        """[(pid, time, CPU seconds)] of all ranks, and of which start: this one or a later one, as torchrun may need several."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            starts = {}
            for w in (line.split() for line in self.steps.read_text().splitlines()):
                if len(w) == 5 and int(w[0]) >= generation:
                    starts.setdefault(int(w[0]), {})[int(w[1])] = (int(w[2]), float(w[3]), float(w[4]))
            for at, ranks in sorted(starts.items()):
                if len(ranks) == self.world:
                    return [ranks[rank] for rank in sorted(ranks)], at
            select.select([], [], [], 0.005)  # of the benchmark; times are the ranks' own
        return None, generation

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


def run(name, program, words, shape, warm, runs, transformers):
    took, used, spent, generation = [], [], [], 0
    with tempfile.TemporaryDirectory() as tmp:
        trial = Trial(pathlib.Path(tmp), program, words, shape, transformers)
        try:
            steps, _ = trial.stepped(0)
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
                steps, generation = trial.stepped(generation)
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
    return [statistics.median(values) if values else float("inf") for values in (took, used)]


def main():
    program, transformers = [bench.muster(), "run", "-v"], "--transformers" in sys.argv
    cpu_most = 0.5 if transformers else 0.1
    after = 10 if transformers else 2  # by then rank 0 has imported all
    for shape in SHAPES:
        name = ("Trainer " if transformers else "") + f"{shape[0]}x{shape[1]}"
        for form in ("fork", "process"):
            took, used = run(f"{name} --warm={form}", program, [f"--warm={form}", f"--warm-after={after}"], shape, True, bench.RUNS,
                             transformers)
            if form == "fork":
                forked = took
            if form == "fork" and not transformers:
                bench.target(f"{name}: kill to first step, warm, at most 0.3 s", took <= 0.3)
            bench.target(f"{name} --warm={form}: CPU per rank until the first step, at most {cpu_most} s", used <= cpu_most)
        cold, _ = run(f"{name} cold", program, [], shape, False, min(bench.RUNS, 3), transformers)
        peer, other = bench.torchrun(), None
        if peer:
            other, _ = run(f"{name} torchrun", peer, [], shape, False, bench.PEER_RUNS, transformers)
        bench.row(f"{name}: a rank of the {'Trainer' if transformers else 'DDP example'} is killed → the first step of all",
                  "" if other is None else bench.seconds(other) if other < float("inf") else "not in 120 s",
                  f"{bench.seconds(forked)} (`--warm`), {bench.seconds(cold)}")
    bench.end()


if __name__ == "__main__":
    main()
