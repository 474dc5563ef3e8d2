#!/usr/bin/python3
"""Records README's picture: a real job of two nodes (emulated on this machine) that loses a worker, and later a node.

    record_svg.py MUSTER PYTHON FILE.svg      PYTHON has PyTorch

The job trains examples/pytorch-ddp. When epoch 3 is reached, the worker with rank 3 is killed with SIGSEGV; in epoch 9 the
agent of the node that does not lead is killed with SIGKILL. Every line is what the job printed, with the time at which it came."""
import html
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINE_MAX, SKIPPED = 104, "  ..."
CHAR, LINE, PAD = 7.8, 19, 16
COLOURS = {"$": "#7ee787", "#": "#8b949e", "m": "#e6edf3", "w": "#9fb3c8", "!": "#ffa657"}


def processes_with(text):
    """The processes in whose environment or command line this text is."""
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            whole = (path / "environ").read_bytes() + b"\0" + (path / "cmdline").read_bytes()
        except OSError:
            continue
        if text.encode() in whole:
            yield int(path.name), whole.split(b"\0")


def kill_rank(run_id, rank):
    for pid, words in processes_with(f"TORCHELASTIC_RUN_ID={run_id}"):
        if f"RANK={rank}".encode() in words:
            os.kill(pid, signal.SIGSEGV)
            return
    sys.exit(f"rank {rank} was not found")


def other_agent(muster, run_id):
    """Node and pid of the agent that does not lead."""
    text = subprocess.run([muster, "status", "--json", run_id], capture_output=True, text=True, check=True).stdout
    status = json.loads(text)
    return next((node["node"], node["pid"]) for node in status["nodes"] if node["node"] != status["leader_host"])


def record(muster, python):
    command = ["muster", "run", "--starter=local", "--nnodes=1:2", "--nproc-per-node=2", "--max-restarts=3", "train.py"]
    lines = [("$", "$ " + " ".join(command))]
    with tempfile.TemporaryDirectory() as folder:
        run_id = f"readme-{os.getpid()}"
        more = ["--rdzv-id", run_id, "--hang-action=off", "--rdzv-conf=last_call_timeout=2"]
        train = ROOT / "examples/pytorch-ddp/train.py"
        host = ["unshare", "--uts", "sh", "-c", 'hostname node1 && exec "$@"', "-"] if os.geteuid() == 0 else []
        argv = [*host, muster, *command[1:-1], *more, train, "--checkpoint", f"{folder}/checkpoint", "--epochs", "16"]
        env = {**os.environ, "PYTHON_EXEC": python, "OMP_NUM_THREADS": "1"}
        job = subprocess.Popen([str(word) for word in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        began, faults = time.monotonic(), {3: "worker", 9: "node"}
        for line in job.stdout:
            line = re.sub(r"^\[rank\d+\]: ", "", line.rstrip())
            if not line.startswith(("muster:", "epoch", "test")):
                continue  # the stacks of the worker that was killed
            lines.append(("m" if line.startswith("muster:") else "w", f"{time.monotonic() - began:5.1f}  {line}"))
            epoch = re.match(r"epoch (\d+) ", line)
            fault = faults.pop(int(epoch[1]), None) if epoch else None
            if fault == "worker":
                lines.append(("#", "       # kill -SEGV: the worker with rank 3"))
                kill_rank(run_id, 3)
            elif fault == "node":
                name, pid = other_agent(muster, run_id)
                lines.append(("#", f"       # kill -KILL: the agent of node {name}"))
                os.kill(pid, signal.SIGKILL)
        if job.wait() != 0 or faults:
            sys.exit("\n".join(text for _, text in lines) + f"\nthe job ended with {job.returncode}")
    return lines


def shortened(lines):
    """Of several epochs in a row the first and the last."""
    short = []
    for i, (kind, text) in enumerate(lines):
        inside = kind == "w" and 0 < i < len(lines) - 1 and lines[i - 1][0] == lines[i + 1][0] == "w" and "test" not in lines[i + 1][1]
        if not inside:
            short.append((kind, text))
        elif short[-1][1] != SKIPPED:
            short.append(("#", SKIPPED))
    return short


def svg(lines):
    folded = []
    for kind, text in lines:
        while len(text) > LINE_MAX:
            cut = text.rindex(" ", 0, LINE_MAX)
            folded.append((kind, text[:cut]))
            text = "         " + text[cut + 1:]
        folded.append((kind, text))
    width, height = PAD * 2 + LINE_MAX * CHAR, PAD * 2 + LINE * len(folded)
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}" role="img" '
           'aria-label="A job loses a worker and a node, and continues each time">')
    yield f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#0d1117"/>'
    yield '<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="13" xml:space="preserve">'
    for i, (kind, text) in enumerate(folded):
        yield f'<text x="{PAD}" y="{PAD + LINE * (i + 0.75):.1f}" fill="{COLOURS[kind]}">{html.escape(text)}</text>'
    yield "</g></svg>"


def main():
    muster, python, out = sys.argv[1:]
    pathlib.Path(out).write_text("\n".join(svg(shortened(record(muster, python)))) + "\n")


if __name__ == "__main__":
    main()
