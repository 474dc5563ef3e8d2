#!/usr/bin/python3
"""What a key costs an agent: its CPU from start to end in a job of two hosts, each a network namespace, that run /bin/true,
with a key and with --auth=none, alternately.

    MUSTER=… SHAKETIME=… bench_key.py

RUNS (100). An agent then loads OpenSSL and makes three handshakes: the join, the leader's probe of the node that has come,
and the other's of its neighbour. What OpenSSL takes of it is measured between: a process that does only that. Target: at
most 5 ms more."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import bench
from hosts import Hosts, NoNamespaces

RUNS = int(os.environ.get("RUNS", "100"))
WHO = ("leader", "other")
HANDSHAKES = 3


def measure(hosts, home, auth, run):
    """CPU seconds of both agents, with those that they have waited for."""
    agents = []
    for n in (0, 1):
        words = [*hosts.enter(n), bench.muster(), "run", auth, "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-id=bench{run}",
                 f"--rdzv-endpoint={hosts.address(0)}:29400", "--nproc-per-node=1", "--no-python", "/bin/true"]
        agents.append(subprocess.Popen(words, env={"PATH": os.environ["PATH"], "HOME": home}, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    used = []
    for agent in agents:
        _, status, usage = os.wait4(agent.pid, 0)
        agent.returncode = os.waitstatus_to_exitcode(status)
        used.append(usage.ru_utime + usage.ru_stime)
    if any(agent.returncode for agent in agents):
        sys.exit("bench_key.py: could not measure: the job failed")
    return used


def floor():
    """CPU seconds that a process which connects so often takes more with TLS than without."""
    said = subprocess.run([os.environ["SHAKETIME"], str(HANDSHAKES)], check=True, capture_output=True, text=True).stdout
    plain, tls = map(float, re.findall(r"in all ([\d.]+) ms", said))
    return (tls - plain) / 1e3


def main():
    alone = []
    with tempfile.TemporaryDirectory() as home:
        key = pathlib.Path(home) / "key"
        subprocess.run([bench.muster(), "keygen", str(key)], check=True, capture_output=True, env={**os.environ, "HOME": home})
        ways = {"--auth=none": [], f"--key-file={key}": []}
        try:
            with Hosts(2, ipv6=False) as hosts:
                for run in range(RUNS):
                    for auth, used in ways.items():
                        used.append(measure(hosts, home, auth, run))
                    alone.append(floor())
        except NoNamespaces as why:
            sys.exit(f"bench_key.py: could not measure: {why}")
    more = []
    print("CPU of an agent")
    for n, who in enumerate(WHO):
        none, with_key = (bench.show(f"{who}, {how}", [used[n] for used in runs])
                          for how, runs in zip(("without a key", "with a key"), ways.values()))
        more.append(with_key - none)
    bench.show("OpenSSL alone", alone)
    bench.target(f"a key costs an agent at most 5 ms: leader {more[0]:.1f}, other {more[1]:.1f}", max(more) <= 5)
    bench.end()


if __name__ == "__main__":
    main()
