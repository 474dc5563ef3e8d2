#!/usr/bin/python3
"""A rank of the DDP example is killed: how long until all ranks have done their first step again, and the CPU time of each
rank until then; with --warm, --warm=process and cold, and with torchrun.

One node of 4 ranks, and two nodes of 2 (both on this machine). Also the memory of what waits (PSS), and its CPU time
while it waits. BENCH_RUNS (10) restarts each. MUSTER_TEST_PYTHON names a Python with PyTorch and torchrun. With
--transformers a Trainer of transformers with a small Llama takes the place of the example: that Python must have
transformers and accelerate. On an idle machine with 2 cores it takes 12 minutes, with --transformers half an hour;
--shapes, --ways and --runs measure a part of it.

torchrun has TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1. Without it ("torchrun-shared" in --ways), torchrun 2.13 keeps one
TCPStore for all restarts, in which the keys of the earlier start are left. A rank that asks before the others have
written gets their old addresses, "Connection refused", and that start fails, too; with --max-restarts=1000 it rarely
recovers at all. PyTorch's issue 135712 names the same cause and the same remedy.
"""
import argparse
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

SHAPES = {"1x4": (1, 4), "2x2": (2, 2)}
WAYS = ("fork", "process", "cold", "torchrun")
SHARED = "torchrun-shared"
PATIENCE = 60 * harness.SLOWER  # for all ranks to be at their first step again
TRAIN = harness.HERE.parent.parent / "examples" / "pytorch-ddp" / "train.py"
PYTHON = harness.TORCH_PYTHON or str(harness.HERE.parent.parent / ".venv" / "bin" / "python")
# A rank writes a line when its first step is done: by then it has used so much CPU time.
STEP = """
import os, time
def step_is_done():
    with open("/proc/self/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    with open(os.environ["STEPS"], "a") as f:
        f.write(f"{os.environ['RANK']} {os.getpid()} {time.monotonic()} {used}\\n")
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
args = transformers.TrainingArguments(os.environ["STEPS"] + ".out", use_cpu=True, per_device_train_batch_size=4, max_steps=1 << 20,
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
    def __init__(self, tmp, program, shape, transformers):
        nodes, nproc = shape
        self.steps, self.world = tmp / "steps", nodes * nproc
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
                [*program, *where, f"--nproc-per-node={nproc}", "--max-restarts=1000", *script_words],
                env={**os.environ, "STEPS": str(self.steps), "PYTHON_EXEC": PYTHON},
                stdout=log, stderr=log))

    def stepped(self, since):
        """[(pid, time, CPU seconds)] of all ranks, the highest last, once each has done a first step after `since`; or None.

        Which start that is does not matter: torchrun may need several. Nor does TORCHELASTIC_RESTART_COUNT tell it:
        torchrun's agents count each for itself, and only the failures of their own workers.
        """
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            ranks = {}
            for w in (line.split() for line in self.steps.read_text().splitlines()):
                if len(w) == 4 and float(w[2]) > since:
                    ranks[int(w[0])] = (int(w[1]), float(w[2]), float(w[3]))
            if len(ranks) == self.world:
                return [ranks[rank] for rank in sorted(ranks)]
            select.select([], [], [], 0.005)  # of the benchmark; times are the ranks' own
        return None

    def waiting(self, times, patience=180 * harness.SLOWER):
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


class Measured:
    """What one way to start gave in one shape."""

    def __init__(self, shape, way):
        self.shape, self.way = shape, way
        self.tried = 0
        self.took, self.used, self.idle = [], [], []  # until all have stepped; CPU of each rank; CPU of what waits, in 1 s

    def middle(self, name="took"):
        values = getattr(self, name)
        return statistics.median(values) if values else None

    def times(self, other):
        """How many times as long the other way takes, for the table."""
        return f"{other.middle() / self.middle():.1f}" if other and other.took else "-"


def command(way, transformers):
    """The launcher's words, or None: there is no torchrun."""
    if way in ("torchrun", SHARED):
        peer = bench.torchrun()
        return peer and ["env", f"TORCH_DISABLE_SHARE_RDZV_TCP_STORE={0 if way == SHARED else 1}", *peer]
    after = 10 if transformers else 2  # by then rank 0 has imported all
    return [bench.muster(), "run", "-v", *([] if way == "cold" else [f"--warm={way}", f"--warm-after={after}"])]


def restart(trial, measured, steps, restarts):
    """Kills the highest rank; the steps of the next start."""
    before = {}
    if measured.way in ("fork", "process"):
        trial.waiting(restarts + 1)
        helpers = trial.helpers([pid for pid, _, _ in steps])
        if not restarts:
            print(f"{measured.shape} {measured.way}: memory of one rank {pss([steps[0][0]]):.0f} MiB, "
                  f"of {len(helpers)} that wait {pss(helpers):.0f} MiB", flush=True)
        idle = sum(map(cpu_of, helpers))
        select.select([], [], [], 1)  # the time over which their CPU is measured
        before = {pid: cpu_of(pid) for pid in helpers}
        measured.idle.append(sum(before.values()) - idle)
    measured.tried += 1
    at = time.monotonic()
    os.kill(steps[-1][0], 9)
    steps = trial.stepped(at)
    if steps:
        measured.took.append(max(when for _, when, _ in steps) - at)
        measured.used += [total - before.get(pid, 0) for pid, _, total in steps]
    return steps


def measure(shape, way, runs, transformers):
    measured, program = Measured(shape, way), command(way, transformers)
    if not program:
        return measured
    with tempfile.TemporaryDirectory() as tmp:
        trial = Trial(pathlib.Path(tmp), program, SHAPES[shape], transformers)
        try:
            steps = trial.stepped(0)
            if not steps:
                sys.exit(f"{shape} {way}: no first step\n" + (trial.tmp / "said0").read_text()[-3000:])
            for n in range(runs):
                steps = restart(trial, measured, steps, n)
                if not steps:
                    print(f"{shape} {way}: not all ranks were back within {PATIENCE:.0f} s", flush=True)
                    break
        finally:
            trial.close()
    name = f"{shape} {way}"
    if measured.took:
        bench.show(name, measured.took, unit="s", scale=1)
        bench.show(f"{name}, CPU of a rank", measured.used)
    if measured.idle:
        print(f"{name}: CPU of those that wait {measured.middle('idle') * 1e3:.0f} ms a second", flush=True)
    return measured


def show_table(found):
    """One line for each way; the last two columns say how many times as long cold and torchrun take."""
    print(f"\n{'':20}{'kill to first step of all, s':>30}{'CPU of a rank until then, s':>30}{'runs':>10}"
          f"{'cold takes':>13}{'torchrun takes':>17}")
    print(f"{'':20}" + f"{'min':>10}{'median':>10}{'max':>10}" * 2 + f"{'':10}{'... times':>13}{'... times':>17}")
    for (shape, way), one in found.items():
        cells = [f"{f(values):.2f}" if values else "-" for values in (one.took, one.used) for f in (min, statistics.median, max)]
        print(f"{shape + ' ' + way:20}" + "".join(f"{cell:>10}" for cell in cells) + f"{f'{len(one.took)} of {one.tried}':>10}"
              + (f"{one.times(found.get((shape, 'cold'))):>13}{one.times(found.get((shape, 'torchrun'))):>17}" if one.took else ""))
    print()


def targets(found, transformers):
    most = 0.5 if transformers else 0.1
    for (shape, way), one in found.items():
        if way == "fork" and not transformers:
            bench.target(f"{shape} {way}: kill to first step at most 0.3 s", one.middle() is not None and one.middle() <= 0.3)
        if way in ("fork", "process"):
            bench.target(f"{shape} {way}: CPU of a rank until its first step at most {most} s",
                         one.middle("used") is not None and one.middle("used") <= most)


def rows(found, transformers):
    job = "Trainer" if transformers else "DDP example"
    for shape in dict.fromkeys(shape for shape, _ in found):
        by = {way: one for (of, way), one in found.items() if of == shape}
        ours = [bench.seconds(by[way].middle()) + words for way, words in
                (("fork", " (`--warm`)"), ("process", " (`--warm=process`)"), ("cold", " (cold)")) if way in by and by[way].took]
        peer = by.get("torchrun")
        bench.row(f"{shape}: a rank of the {job} is killed → the first step of all",
                  f"{bench.seconds(peer.middle())} (`TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`)" if peer and peer.took else None,
                  ", ".join(ours) or "not measured")


def words(known):
    def read(text):
        if not set(text.split(",")) <= set(known):
            raise argparse.ArgumentTypeError(f"of these, with commas between: {','.join(known)}")
        return text.split(",")
    return read


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--transformers", action="store_true", help="a Trainer of transformers in place of the DDP example")
    p.add_argument("--shapes", type=words(SHAPES), default=list(SHAPES), help="nodes x ranks of each: 1x4,2x2")
    p.add_argument("--ways", type=words((*WAYS, SHARED)), default=list(WAYS), help=f"{','.join(WAYS)}; also {SHARED}")
    p.add_argument("--runs", type=int, default=bench.RUNS, help="restarts of each")
    args = p.parse_args()
    needs = "torch, transformers, accelerate" if args.transformers else "torch"
    if subprocess.run([PYTHON, "-c", f"import {needs}"], capture_output=True).returncode:
        print(f"not measured: {PYTHON} does not have {needs} (MUSTER_TEST_PYTHON names another)")
        bench.end()
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs", flush=True)
    found = {(shape, way): measure(shape, way, args.runs, args.transformers) for shape in args.shapes for way in args.ways}
    show_table(found)
    targets(found, args.transformers)
    rows(found, args.transformers)
    bench.end()


if __name__ == "__main__":
    main()
