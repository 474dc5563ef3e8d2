#!/usr/bin/python3
"""The time after a worker's failure until all workers of two nodes run again, and after the loss of a node until the
other runs again.

Two agents on loopback with two C workers each; from the kill to the first instructions of the last new worker, with
this machine's CLOCK_MONOTONIC.
"""
import pathlib
import subprocess
import tempfile
import time

import bench
import harness


def running_again(job, since, ranks, seconds=60):
    """Seconds from `since` until the last of `ranks` new workers ran."""
    def first_of_each():
        seen = {}
        for event in job.events._all("start", {}):
            at = int(event.fields["ns"]) / 1e9
            if at > since:
                seen.setdefault(event.fields["rank"], at)
        return seen if len(seen) >= ranks else None

    seen = job.events.until(first_of_each, seconds)
    if not seen:
        raise SystemExit("\n".join(a.said()[-2000:] for a in job.agents) + "\nnot all workers came back")
    return max(seen.values()) - since


def start(job, program, restarts):
    endpoint = f"127.0.0.1:{harness.free_port()}"
    for tag in "ab":
        job.agent(tag, "--nnodes=1:2", "--nproc-per-node=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}",
                  "--rdzv-id=bench", f"--max-restarts={restarts}", "--no-python", job.worker, "start", "go",
                  program=program)
    job.events.wait("start", 4, 120, world=4)


def failures(job, program, runs):
    """Kills a worker again and again; the ranks take turns."""
    start(job, program, runs)
    for n in range(runs):
        newest = {e.fields["rank"]: e for e in job.events.all("start")}
        at = time.monotonic()
        harness.kill(int(newest[str(n % 4)].fields["pid"]))
        yield running_again(job, at, 4)


def lost_node(job, program):
    """Kills the agent of the node that does not lead."""
    start(job, program, 0)
    node = {e.fields["tag"]: e.fields["node"] for e in job.events.all("start")}
    follower = next(a for a in job.agents if node[a.tag] == "1")
    at = time.monotonic()
    harness.kill(follower.agent_pid())
    return running_again(job, at, 2)


def main():
    ours, peer = [bench.muster(), "run"], bench.torchrun()
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as tmp:
        tmp = pathlib.Path(tmp)
        worker = tmp / "worker"
        subprocess.run(["cc", "-std=gnu11", "-O1", "-o", worker, harness.HERE / "worker.c"], check=True)
        samples = {"muster": [], "torchrun": []}
        # Both jobs run at the same time and take turns, so that they have the same load.
        with harness.Job(tmp / "m", worker) as m, harness.Job(tmp / "t", worker) as t:
            our_turns = failures(m, ours, bench.RUNS)
            peer_turns = failures(t, peer, bench.PEER_RUNS) if peer else iter(())
            for n in range(bench.RUNS):
                samples["muster"].append(next(our_turns))
                if n < bench.PEER_RUNS:
                    samples["torchrun"] += [took for took in [next(peer_turns, None)] if took is not None]
        lost = []
        for n in range(5):
            with harness.Job(tmp / f"l{n}", worker) as job:
                lost.append(lost_node(job, ours))
    print("a worker killed -> all four workers of two nodes run again")
    middle = {name: bench.show(name, values) for name, values in samples.items() if values}
    bench.target("at most 30 ms", middle["muster"] <= 30)
    if "torchrun" in middle:
        print(f"torchrun takes {middle['torchrun'] / middle['muster']:.0f} times as long as muster")
    print("an agent killed -> the two workers of the other node run again (torchrun: not in 45 s)")
    alone = bench.show("muster", lost)
    bench.target("at most 1 s", alone <= 1000)
    bench.row("a worker is killed → all four workers of two nodes run again",
              bench.seconds(middle["torchrun"] / 1e3) if "torchrun" in middle else None,
              bench.seconds(middle["muster"] / 1e3))
    bench.row("one of two agents is killed → the workers of the other run again", "not in 45 s",
              bench.seconds(alone / 1e3))
    bench.end()


if __name__ == "__main__":
    main()
