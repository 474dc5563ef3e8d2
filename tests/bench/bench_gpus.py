#!/usr/bin/python3
"""How much time discovery of the node adds to a start: on a machine that has two sockets and eight GPUs according to
its files and a scripted NVML, and on this one without GPUs. Each is compared with the same job with --bind=none
--nccl-env=off."""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import bench

TOOLS = pathlib.Path(__file__).resolve().parent.parent / "tools"
INSIDE = 'mount --bind "$0/sys" /sys && mount --bind "$0/proc/driver" /proc/driver && exec "$@"'
JOB = ["run", "--standalone", "--no-python", "--nproc-per-node=8"]
NOTHING = ["--bind=none", "--nccl-env=off"]
NVML_DEADLINE = 2.0

sys.path.insert(0, str(TOOLS))
import harness  # noqa: E402
import make_tree  # noqa: E402


def timed(words, env):
    at = time.perf_counter()
    done = subprocess.run([bench.muster(), *JOB, *words, "/bin/true"], stdin=subprocess.DEVNULL, env=env,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    took = time.perf_counter() - at
    if done.returncode != 0:
        sys.exit(f"muster {' '.join(words)} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-500:]}")
    return took, done.stderr.decode(errors="replace")


def compare(title, env):
    """Medians in ms: with all of it, and without; measured alternately. Also returns the output of the first."""
    samples, nothing = [], []
    _, said = timed([], env)
    for _ in range(bench.RUNS):
        samples.append(timed([], env)[0])
        nothing.append(timed(NOTHING, env)[0])
    print(title)
    return bench.show("by default", samples), bench.show("--bind=none --nccl-env=off", nothing), said


def with_gpus(tmp, script):
    return {**os.environ, **harness.nvml_env(tmp, script)}


def inside(tmp):
    """In a mount namespace where /sys is the tree's."""
    full, bare, said = compare("start to exit of 8 x /bin/true, 8 GPUs", with_gpus(tmp, "hgx-h100"))
    if "bound to CPUs" not in said:
        sys.exit(f"nobody was bound: {said}")
    bench.target("looking, binding and variables add at most 100 ms", full - bare <= 100)
    took, said = timed([], with_gpus(tmp, "hang-init"))
    print(f"with an NVML that never answers: {took * 1e3:.0f} ms")
    bench.target("it costs its deadline of 2 s, a warning, and at most 100 ms more",
                 NVML_DEADLINE <= took <= NVML_DEADLINE + (bare + 100) / 1e3 and said.count("NVML") >= 1)
    bench.end()


def outside(tmp):
    full, bare, _ = compare("start to exit of 8 x /bin/true, no GPU", dict(os.environ))
    bench.target("nothing measurable without GPUs (at most 0.5 ms)", abs(full - bare) <= 0.5)
    make_tree.make("2s-8gpu-8nic", str(tmp / "tree"), cores=1, smt=1, l3_cores=1)
    again = ["unshare", "--mount", "sh", "-c", INSIDE, str(tmp / "tree"), sys.executable, __file__, str(tmp)]
    ours = sorted(os.sched_getaffinity(0)) == [0, 1] and not os.path.exists("/proc/driver/nvidia")
    if not ours or subprocess.run([*again[:-3], "true"], capture_output=True).returncode != 0:
        print("the rest needs the CPUs 0 and 1, no GPU, and mount namespaces")
        bench.end()
    sys.stdout.flush()
    code = subprocess.run(again).returncode
    sys.exit(code or bool(bench.missed))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        inside(pathlib.Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
            outside(pathlib.Path(folder))
