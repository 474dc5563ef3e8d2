#!/usr/bin/python3
"""Start to exit of eight /bin/true: muster, torchrun, and a simple loop that spawns and waits (the minimum)."""
import os
import subprocess
import sys
import time

import bench


def timed(words):
    at = time.perf_counter()
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    took = time.perf_counter() - at
    if done.returncode != 0:
        sys.exit(f"{words[0]} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-500:]}")
    return took


def main():
    job = ["--standalone", "--no-python", "--nproc-per-node", "8", "/bin/true"]
    ours = [bench.muster(), "run", *job]
    floor = [os.environ["SPAWNLOOP"], "8", "/bin/true"]
    peer = bench.torchrun()
    samples = {"muster": [], "floor": [], "torchrun": []}
    timed(ours), timed(floor)  # the first of each fills the page cache
    for n in range(bench.RUNS):
        samples["muster"].append(timed(ours))
        if peer and n % max(1, bench.RUNS // bench.PEER_RUNS) == 0 and len(samples["torchrun"]) < bench.PEER_RUNS:
            samples["torchrun"].append(timed(peer + job))
        samples["floor"].append(timed(floor))
    print("start to exit of 8 x /bin/true")
    middle = {name: bench.show(name, values) for name, values in samples.items() if values}
    ratio = middle["muster"] / middle["floor"]
    print(f"muster is {ratio:.2f} times the floor")
    bench.target(f"at most twice the floor and 2 ms ({2 * middle['floor'] + 2:.1f} ms)",
                 middle["muster"] <= 2 * middle["floor"] + 2)
    if "torchrun" in middle:
        print(f"torchrun takes {middle['torchrun'] / middle['muster']:.0f} times as long as muster")
    bench.target("torchrun takes at least 200 times as long",
                 middle["torchrun"] / middle["muster"] >= 200 if "torchrun" in middle else None)
    bench.row("start to exit of 8 × `/bin/true`",
              bench.seconds(middle["torchrun"] / 1e3) if "torchrun" in middle else None,
              f"{bench.seconds(middle['muster'] / 1e3)} ({ratio:.1f} times a bare spawn-and-wait loop)")
    bench.end()


if __name__ == "__main__":
    main()
