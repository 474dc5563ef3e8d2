#!/usr/bin/python3
"""What --store-check=uid costs when the workers of another machine all come at once: a job of two hosts, each a network
namespace; thousands of clients on the one that does not lead. Each run with and without the check, alternately.

    MUSTER=… STORELOAD=… bench_store_check.py

CLIENTS (8000), RUNS (7). Both hosts and the clients share the processors, so the wall time has the work of all three; in
a real job each has its own. Target: at most 1.3 times the time without the check."""
import os
import pathlib
import re
import resource
import subprocess
import sys

import bench
from hosts import Hosts, NoNamespaces

RUNS, CLIENTS = int(os.environ.get("RUNS", "7")), int(os.environ.get("CLIENTS", "8000"))
WORKER = "echo port $MASTER_PORT; exec sleep 100000"


def cpu(pid):
    """CPU seconds of all threads of the agent that this guardian has."""
    agent = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]
    return sum(int((t / "schedstat").read_text().split()[0]) for t in pathlib.Path(f"/proc/{agent}/task").iterdir()) / 1e9


def measure(hosts, check):
    """{figure: seconds} of one storm against a fresh job."""
    place = f"{hosts.address(0)}:29400"
    agents = [subprocess.Popen([*hosts.enter(n), bench.muster(), "run", "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=bench",
                                f"--rdzv-endpoint={place}", f"--store-check={check}", "--nproc-per-node=1", "--no-python",
                                "sh", "-c", WORKER], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               text=True) for n in (0, 1)]
    try:
        port = next(m[1] for m in (re.search(r"port (\d+)", line) for line in agents[0].stdout) if m)
        next(line for line in agents[1].stdout if "port" in line)
        before = [cpu(a.pid) for a in agents]
        storm = subprocess.Popen([*hosts.enter(1), os.environ["STORELOAD"], "storm", port, str(CLIENTS), hosts.address(0)],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        said = storm.stdout.readline().split()
        after = [cpu(a.pid) for a in agents]
        storm.communicate(timeout=60)
        if said[:1] != ["connect"]:
            sys.exit("bench_store_check.py: could not measure: storeload did not get through")
        return {"wall": float(said[1]), "CPU of the leader's agent": after[0] - before[0],
                "CPU of the other agent": after[1] - before[1]}
    finally:
        for agent in agents:
            agent.terminate()
        for agent in agents:
            agent.wait(30)
            agent.stdout.close()


def main():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < CLIENTS + 200:
        sys.exit(f"bench_store_check.py: could not measure: RLIMIT_NOFILE is {hard}")
    figures = {"none": [], "uid": []}
    try:
        with Hosts(2, ipv6=False) as hosts:
            for _ in range(RUNS):
                for check, runs in figures.items():
                    runs.append(measure(hosts, check))
    except NoNamespaces as why:
        sys.exit(f"bench_store_check.py: could not measure: {why}")
    medians = {(f, c): bench.show(f"{f}, {c}", [r[f] for r in runs]) for f in figures["uid"][0] for c, runs in figures.items()}
    ratio = medians["wall", "uid"] / medians["wall", "none"]
    bench.target(f"{CLIENTS} clients with --store-check=uid within 1.3 times of none: {ratio:.2f}", ratio <= 1.3)
    bench.row(f"the store: {CLIENTS:,} clients of another machine, each asked for", "",
              f"{bench.seconds(medians['wall', 'uid'] / 1e3)}, without the question {bench.seconds(medians['wall', 'none'] / 1e3)}")
    bench.end()


if __name__ == "__main__":
    main()
