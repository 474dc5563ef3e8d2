#!/usr/bin/python3
"""Peak memory of the launcher itself: the sum of VmHWM of all its processes, without workers."""
import pathlib
import re
import subprocess
import sys
import tempfile

import bench
import harness

WORKERS = 8


def peak_bytes(pid):
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    except OSError:
        return 0
    return int(found.group(1)) * 1024 if found else 0


def below(pid, leave_out):
    """pid and its descendants, without the workers and theirs."""
    if pid in leave_out:
        return []
    return [pid] + [p for child in harness.children(pid) for p in below(child, leave_out)]


def launcher_peak(tmp, worker, program):
    with harness.Job(tmp, worker) as job:
        agent = job.agent("a", "--standalone", f"--nproc-per-node={WORKERS}", "--no-python", worker, "start",
                          "out=hello\\n", "start", "go", program=program)
        starts = job.events.wait("start", 2 * WORKERS, 120)
        pids = below(agent.pid, {int(e.fields["pid"]) for e in starts})
        total = sum(map(peak_bytes, pids))
        job.go()
        if agent.wait(120) != 0:
            sys.exit(agent.said())
    return total, len(pids)


def main():
    ours, peer = [bench.muster(), "run"], bench.torchrun()
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as tmp:
        tmp = pathlib.Path(tmp)
        worker = tmp / "worker"
        subprocess.run(["cc", "-std=gnu11", "-O1", "-o", worker, harness.HERE / "worker.c"], check=True)
        samples = {"muster": [], "torchrun": []}
        for n in range(5):
            samples["muster"].append(launcher_peak(tmp / f"m{n}", worker, ours))
            if peer and n < bench.PEER_RUNS:
                samples["torchrun"].append(launcher_peak(tmp / f"t{n}", worker, peer))
    print(f"peak memory of the launcher, {WORKERS} workers")
    middle = {}
    for name, values in samples.items():
        if values:
            middle[name] = bench.show(f"{name} ({values[0][1]} processes)", [v for v, _ in values], "MiB", 1 / 2**20)
    if "torchrun" in middle:
        print(f"torchrun takes {middle['torchrun'] / middle['muster']:.0f} times as much as muster")
    bench.target("torchrun takes at least 20 times as much",
                 middle["torchrun"] / middle["muster"] >= 20 if "torchrun" in middle else None)
    bench.row(f"peak memory of the launcher, {WORKERS} workers",
              f"{middle['torchrun']:.0f} MiB" if "torchrun" in middle else None, f"{middle['muster']:.1f} MiB")
    bench.end()


if __name__ == "__main__":
    main()
