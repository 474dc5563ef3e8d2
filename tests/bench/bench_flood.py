#!/usr/bin/python3
"""What 10,000 connections of a stranger on another host cost a job of two hosts that have a key: until an operator has the
status, until a third node has joined, and the leader's memory. Hosts are network namespaces. The stranger's connections
say nothing ("silent"), or begin a handshake and go no further ("half"); no part of the job knows of it.

    MUSTER=… bench_flood.py

CONNECTIONS (10000), RUNS (5). The stranger uses the same processors."""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import bench
import harness
from hosts import Hosts, NoNamespaces

try:
    from test_attack_hosts import PORT, Field, resident_mib
except ImportError as why:
    sys.exit(f"bench_flood.py: could not measure: {why}")

RUNS, CONNECTIONS = int(os.environ.get("RUNS", "5")), int(os.environ.get("CONNECTIONS", "10000"))
PATIENCE = 60


def measure(folder, worker, what):
    """(seconds for the status, seconds for a join, MiB that the leader has more) during one flood. The hosts are new each
    time: the stranger's ports are not free again at once."""
    with Hosts(4, ipv6=False) as hosts, harness.Job(folder, worker) as job:
        field = Field(job, hosts)
        leader = field.agents[0].agent_pid()
        before = resident_mib(leader)
        with field.rogue_runs(what, hosts.address(0), PORT, CONNECTIONS):
            began = time.monotonic()
            field.status(1, f"--key-file={field.key}")
            asked = time.monotonic() - began
            began = time.monotonic()
            field.start(3)
            while len(field.status()["nodes"]) < 3:
                if time.monotonic() - began > PATIENCE:
                    sys.exit(f"bench_flood.py: no third node in {PATIENCE} s")
            return asked, time.monotonic() - began, resident_mib(leader) - before


def main():
    found = {"silent": [], "half": []}
    try:
        with tempfile.TemporaryDirectory(prefix="muster-bench-") as tmp:
            worker = pathlib.Path(tmp, "worker")
            subprocess.run(["cc", "-std=gnu11", "-O1", "-o", worker, harness.HERE / "worker.c"], check=True)
            for n in range(RUNS):
                for what, runs in found.items():
                    runs.append(measure(pathlib.Path(tmp, f"{what}{n}"), worker, what))
    except NoNamespaces as why:
        sys.exit(f"bench_flood.py: could not measure: {why}")
    worst = {"status": 0.0, "join": 0.0, "memory": 0.0}
    for what, runs in found.items():
        asked, joined, grown = zip(*runs)
        worst["status"] = max(worst["status"], bench.show(f"{what}: status", asked))
        worst["join"] = max(worst["join"], bench.show(f"{what}: a node joins", joined))
        worst["memory"] = max(worst["memory"], bench.show(f"{what}: leader, more", grown, "MiB", 1))
    bench.target(f"status under {CONNECTIONS} hostile connections <= 1 s", worst["status"] <= 1e3)
    bench.target("a node joins <= 1 s", worst["join"] <= 1e3)
    bench.target("the leader takes < 100 MiB more", worst["memory"] < 100)
    bench.row(f"{CONNECTIONS:,} hostile connections: the status; a node joins", "",
              f"{bench.seconds(worst['status'] / 1e3)}; {bench.seconds(worst['join'] / 1e3)}")
    bench.end()


if __name__ == "__main__":
    main()
