"""Every example runs under muster, on one agent and on two, and PyTorch's losses are equal to torchrun's bit by bit."""
import collections
import os
import pathlib
import re
import signal
import subprocess

import pytest

import harness
from harness import MUSTER, SLOWER, TORCH_PYTHON, free_port, kill

BUILD = pathlib.Path(MUSTER or "build/src/cli/muster").resolve().parents[2]
EXAMPLES = harness.HERE.parent.parent / "examples"
DATA = EXAMPLES / "data" / "digits.csv"
C_DIGITS = BUILD / "examples" / "c-digits"
NCCL_ALLREDUCE = BUILD / "examples" / "nccl-allreduce"
TORCH_ENV = {"PYTHON_EXEC": TORCH_PYTHON, "OMP_NUM_THREADS": "1"}
LAYOUTS = [(1, 4), (2, 2)]  # agents, workers of each
LAYOUT_NAMES = ["1x4", "2x2"]


def start(job, agents, nproc, *words, env=None):
    """Starts the agents of one job; they differ only in their number. The first starts first, so it leads and has rank
    0."""
    meet = [f"--nnodes={agents}", f"--nproc-per-node={nproc}", "--rdzv-backend=c10d",
            f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=examples", "--max-restarts=3"]
    started = [job.agent("a", *meet, *words, env=env)]
    if agents == 2:
        started[0].wait_said("waiting for nodes: 1 of 2")
        started.append(job.agent("b", *meet, *words, env=env))
    return started


def finish(agents, seconds=120):
    """All succeed. Returns what they wrote to standard output."""
    outputs = []
    for agent in agents:
        code, out, err = agent.finish(seconds)
        assert code == 0, f"{agent.tag}: {code}\n{err}\n{out}"
        outputs.append(out)
    return "".join(outputs)


def accuracy(output):
    found = re.findall(r"^test accuracy: ([0-9.]+) %$", output, re.M)
    assert len(found) == 1, output
    return float(found[0])


def digits(job, *words):
    return ["--no-python", C_DIGITS, "--data", DATA, "--trace", job.tmp / "trace", *words]


class Trace:
    """What the trainers recorded: {generation: [(nanoseconds, event, rank), ...]}."""

    def __init__(self, job):
        self.generations = collections.defaultdict(list)
        for line in (job.tmp / "trace").read_text().splitlines():
            generation, when, event, rank, *_ = line.split(" ")
            self.generations[tuple(map(int, generation.split(".")))].append((int(when), event, int(rank)))

    def ranks(self, generation, event):
        return sorted(rank for _, e, rank in self.generations[generation] if e == event)

    def assert_apart(self):
        """The last record of each generation is older than the first of the next."""
        order = sorted(self.generations)
        for earlier, later in zip(order, order[1:]):
            last, first = max(self.generations[earlier]), min(self.generations[later])
            assert last[0] < first[0], f"{earlier} {last} is younger than {later} {first}"


def test_digits_alone_learns(tmp_path):
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    run = subprocess.run([C_DIGITS, "--data", DATA], env=env, capture_output=True, text=True, timeout=60 * SLOWER)
    assert run.returncode == 0, run.stderr
    assert accuracy(run.stdout) >= 95


@pytest.mark.parametrize("world", [{"WORLD_SIZE": "4"}, {"WORLD_SIZE": "2", "RANK": "2"}, {"WORLD_SIZE": "x", "RANK": "0"},
                                   {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": ""}])
def test_digits_refuses_an_environment_without_sense(world):
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "MASTER_ADDR")} | world
    run = subprocess.run([C_DIGITS, "--data", DATA], env=env, capture_output=True, text=True, timeout=60 * SLOWER)
    assert run.returncode == 1 and "c-digits: " in run.stderr


@pytest.mark.parametrize("words", [["--epochs"], ["--epochs=-1"], ["--batch=0"], ["--nonsense"], ["extra"]])
def test_digits_refuses_wrong_words(words):
    run = subprocess.run([C_DIGITS, *words], capture_output=True, text=True, timeout=60 * SLOWER)
    assert run.returncode == 2 and "usage: c-digits" in run.stderr


@pytest.mark.parametrize("agents, nproc", LAYOUTS, ids=LAYOUT_NAMES)
def test_digits_learns_on(job, agents, nproc):
    output = finish(start(job, agents, nproc, *digits(job)))
    assert accuracy(output) >= 95
    assert output.count("world size 4, generation 1.1") == 30
    trace = Trace(job)
    assert list(trace.generations) == [(1, 1)]
    assert trace.ranks((1, 1), "start") == trace.ranks((1, 1), "end") == [0, 1, 2, 3]


def test_digits_survives_a_killed_worker(job):
    agents = start(job, 2, 2, *digits(job, "--checkpoint-dir", job.tmp / "saved", "--pid-dir", job.tmp / "pids",
                                      "--epochs=8", "--step-delay-ms=2"))
    heard = agents[0].out
    assert heard.until(lambda: b"epoch 3 of 8" in heard.raw, 60), agents[0].said()
    pid, generation = (job.tmp / "pids" / "rank-3.pid").read_text().split()
    assert generation == "1.1"
    kill(int(pid), signal.SIGKILL)
    output = finish(agents)
    assert accuracy(output) >= 93
    assert "continuing from the checkpoint of epoch " in heard.text()
    assert "epoch 8 of 8" in output and "world size 4, generation 1.2" in output
    trace = Trace(job)
    assert sorted(trace.generations) == [(1, 1), (1, 2)]
    assert trace.ranks((1, 1), "start") == trace.ranks((1, 2), "start") == [0, 1, 2, 3]
    assert 3 not in trace.ranks((1, 1), "end")
    assert trace.ranks((1, 2), "end") == [0, 1, 2, 3]
    trace.assert_apart()


def test_digits_goes_on_with_fewer_ranks_and_refuses_a_damaged_checkpoint(job):
    saved = ["--checkpoint-dir", job.tmp / "saved"]
    finish(start(job, 1, 4, *digits(job, *saved, "--epochs=3")))
    newest = job.tmp / "saved" / "epoch-000003.ckpt"
    with open(newest, "r+b") as f:
        f.seek(20000)
        f.write(b"?")
    agents = start(job, 1, 3, *digits(job, *saved, "--epochs=5"))
    output = finish(agents)
    assert f"{newest} is refused: its checksum does not match its contents" in agents[0].said()
    assert "continuing from the checkpoint of epoch 2\n" in output
    assert re.findall(r"^epoch (\d)", output, re.M) == ["3", "4", "5"]


def test_quickstart_shows_both_recoveries():
    run = subprocess.run([EXAMPLES / "quickstart.sh"], env={**os.environ, "BUILD": str(BUILD)}, capture_output=True,
                         text=True, timeout=120 * SLOWER)
    assert run.returncode == 0, run.stdout + run.stderr
    said = run.stdout
    steps = ["== killing worker 3", "generation 1.2", "== killing agent B", "world size 2", "test accuracy: ", "== done"]
    places = [said.index(step) for step in steps]
    assert places == sorted(places), said


def test_nccl_sums_over_the_gpus(job):
    if not NCCL_ALLREDUCE.exists():
        pytest.skip("nccl-allreduce is not built: no nvcc or no NCCL")
    if not os.path.exists("/dev/nvidiactl"):
        pytest.skip("no GPU here")
    code, out, err = job.run("--standalone", "--nproc-per-node=gpu", "--no-python", NCCL_ALLREDUCE, "16", seconds=300)
    assert code == 0, err
    assert "GPUs: right" in out


def losses(path):
    found = path.read_text().split()
    assert found and all(float.fromhex(x) > 0 for x in found)
    return found


def aborted_at_its_end(agents):
    """PyTorch 2.13 sometimes aborts a worker that has finished, on a busy machine, under any launcher."""
    return any("terminate called without an active exception" in agent.said() for agent in agents)


def learns(job, kind, agents, nproc, *words):
    """Trains two epochs on four ranks, into a checkpoint and a file of losses with these names."""
    name = f"{agents}x{nproc}"
    for _ in range(3):
        for path in (job.tmp / f"{name}.pt", job.tmp / name):
            path.unlink(missing_ok=True)
        started = start(job, agents, nproc, EXAMPLES / kind / "train.py", "--epochs=2", *words, "--checkpoint",
                        job.tmp / f"{name}.pt", "--losses", job.tmp / name, env=TORCH_ENV)
        said = finish(started, 300)
        if not aborted_at_its_end(started):
            break
    assert accuracy(said) > 80
    assert "epoch 2 of 2" in said and "world size 4" in said
    return name


def goes_on(job, kind, name):
    """A third epoch, from that checkpoint, on two ranks."""
    said = finish(start(job, 1, 2, EXAMPLES / kind / "train.py", "--epochs=3", "--checkpoint", job.tmp / f"{name}.pt",
                        "--losses", job.tmp / name, env=TORCH_ENV), 300)
    assert "continuing from the checkpoint of epoch 2\n" in said and "world size 2" in said
    curve = [float.fromhex(x) for x in losses(job.tmp / name)]
    assert len(curve) == 3 * 44  # 1438 digits in batches of 32
    assert sum(curve[-44:]) < sum(curve[:44]) / 3


@pytest.mark.torch
@pytest.mark.parametrize("kind, agents, nproc", [
    pytest.param("pytorch-ddp", 1, 4, marks=pytest.mark.slow), pytest.param("pytorch-ddp", 2, 2, marks=pytest.mark.slow),
    pytest.param("pytorch-fsdp", 1, 4, marks=pytest.mark.slow), ("pytorch-fsdp", 2, 2)])
def test_pytorch_learns_and_goes_on_with_fewer_ranks(job, kind, agents, nproc):
    goes_on(job, kind, learns(job, kind, agents, nproc))


@pytest.mark.torch
def test_ddp_learns_bit_for_bit_as_under_torchrun_and_goes_on_with_fewer_ranks(job):
    script = [EXAMPLES / "pytorch-ddp" / "train.py", "--epochs=2", "--seed=7", "--losses"]
    torchrun = pathlib.Path(TORCH_PYTHON).parent / "torchrun"
    for _ in range(3):  # on a busy machine its workers sometimes abort when they end
        (job.tmp / "torchrun").unlink(missing_ok=True)  # it is appended to
        run = subprocess.run([torchrun, "--standalone", "--nproc-per-node=4", *script, job.tmp / "torchrun"],
                             env=job.env("torchrun", TORCH_ENV), capture_output=True, text=True, timeout=300 * SLOWER)
        if run.returncode == 0:
            break
    assert run.returncode == 0, run.stderr
    want = losses(job.tmp / "torchrun")
    assert len(want) == 2 * 44
    for agents, nproc in LAYOUTS:
        name = learns(job, "pytorch-ddp", agents, nproc, "--seed=7")
        assert losses(job.tmp / name) == want
    goes_on(job, "pytorch-ddp", name)
