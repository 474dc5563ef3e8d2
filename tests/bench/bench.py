"""What the benchmarks share: the peer's command line, medians, and how the result of a target is printed.

The peer is measured in the same run, alternately; targets apply to medians. The environment sets MUSTER (the binary),
MUSTER_TEST_PYTHON (a Python with torchrun in the same folder; without it the peer is left out, and the targets against
it are "not measured") and BENCH_RUNS (how often short measurements are repeated; 21).
"""
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

RUNS = max(1, int(os.environ.get("BENCH_RUNS", "21")))
PEER_RUNS = max(1, int(os.environ.get("BENCH_PEER_RUNS", "3")))

missed = []


def muster():
    path = os.environ.get("MUSTER", "")
    if not os.access(path, os.X_OK):
        sys.exit("MUSTER must name the muster program")
    return path


def torchrun():
    """The command line that starts torchrun, or None. Without DNS if we are allowed to: else its look-ups would be
    measured."""
    python = os.environ.get("MUSTER_TEST_PYTHON", "")
    if not python:
        default = pathlib.Path(__file__).resolve().parents[2] / ".venv" / "bin" / "python"
        python = str(default) if default.exists() else ""
    path = os.path.join(os.path.dirname(python), "torchrun")
    if not python or not os.access(path, os.X_OK):
        return None
    if os.geteuid() == 0:
        conf = pathlib.Path(tempfile.gettempdir()) / f"muster-bench-nsswitch.{os.getpid()}"
        conf.write_text("passwd: files\ngroup: files\nhosts: files\n")
        inside = f'mount --bind {conf} /etc/nsswitch.conf && exec "$@"'
        if subprocess.run(["unshare", "--mount", "sh", "-c", inside, "sh", "true"], capture_output=True).returncode == 0:
            return ["unshare", "--mount", "sh", "-c", inside, "sh", path]
    print("torchrun: with this machine's own name look-ups (no mount namespace here)")
    return [path]


def forget_nsswitch():
    (pathlib.Path(tempfile.gettempdir()) / f"muster-bench-nsswitch.{os.getpid()}").unlink(missing_ok=True)


def show(name, samples, unit="ms", scale=1e3):
    """Prints min, median and max; returns the median."""
    values = sorted(v * scale for v in samples)
    middle = statistics.median(values)
    print(f"{name:32} min {values[0]:10.2f}   median {middle:10.2f}   max {values[-1]:10.2f} {unit}   ({len(values)} runs)",
          flush=True)
    return middle


def target(text, ok):
    print(f"target: {text}: {'not measured' if ok is None else 'ok' if ok else 'MISSED'}", flush=True)
    if ok is False:
        missed.append(text)


def row(what, peer, ours):
    """A row of the table in docs/benchmarks.md (report.py collects them): what was measured, torchrun's figure or what
    happened instead, and muster's. Texts, with their units."""
    print(f"row: {what} | {peer or 'not measured'} | {ours}", flush=True)


def seconds(value):
    """A time for a row, in the unit that reads best: '12 ms', '6.0 s'."""
    return f"{value * 1e3:.3g} ms" if value < 0.1 else f"{value:.2g} s" if value < 1 else f"{value:.3g} s"


def end():
    forget_nsswitch()
    sys.exit(1 if missed else 0)
