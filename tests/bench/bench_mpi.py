#!/usr/bin/python3
"""Below mpiexec of MPICH and mpirun of Open MPI: four tasks of /bin/true, with muster in between and without it, and what it
costs to ask the process manager: muster run --print-config in two tasks, and with --standalone, which does not ask."""
import pathlib
import shutil
import tempfile

import bench
from bench_start import timed

PROGRAMS = {"MPICH": (["mpiexec.hydra"], 1.5), "Open MPI": (["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"], 2.0)}
ASK_S = 0.1


def measure(name, words, limit_s, script):
    run = [bench.muster(), "run"]
    lines = {"job": [*words, "-n", "4", *run, "--no-python", "/bin/true"],
             "alone": [*words, "-n", "4", "/bin/true"],
             "asks": [*words, "-n", "2", *run, "--print-config", script],
             "does not ask": [*words, "-n", "2", *run, "--standalone", "--print-config", script]}
    samples = {what: [] for what in lines}
    for _ in range(bench.RUNS):
        for what, line in lines.items():
            samples[what].append(timed(line))
    middle = {what: bench.show(f"{name}: {what}", values) for what, values in samples.items()}
    bench.target(f"{name}: one job of four tasks in {limit_s} s", middle["job"] < limit_s * 1e3)
    bench.target(f"{name}: asking takes {ASK_S} s", middle["asks"] - middle["does not ask"] < ASK_S * 1e3)


def main():
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "train.py"
        script.touch()
        for name, (words, limit_s) in PROGRAMS.items():
            if shutil.which(words[0]):
                measure(name, words, limit_s, str(script))
            else:
                print(f"{name}: {words[0]} is not installed")
    bench.end()


if __name__ == "__main__":
    main()
