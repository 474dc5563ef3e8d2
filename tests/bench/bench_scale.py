#!/usr/bin/python3
"""One leader, N nodes: the time until the group runs, until it runs again after a loss, and what that costs the leader.

The leader is the real `muster run` with a worker of its own. The other nodes are scale_agents: the product's member
machine and connections, real sockets over loopback, no workers. They are compared with torchrun's own rendezvous
handlers, also without workers, each in a process of its own. Everything runs on the same cores, the nodes, too.

    bench_scale.py            N = 16 to 10,000, with torchrun and the targets (MUSTER_BENCH_NODES=16,1000 for others)
    bench_scale.py --quick    N = 16 and 256, once, without targets: that all of this works
"""
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import bench
import harness

SIZES = [int(n) for n in os.environ.get("MUSTER_BENCH_NODES", "16,64,256,1000,2000,5000,10000").split(",")]
PEER_SIZES = [n for n in SIZES if n <= 256]
RUNS = max(1, int(os.environ.get("BENCH_SCALE_RUNS", "3")))
PEER_SECONDS = 120
IDLE_NODES, IDLE_SECONDS = 1000, 20
NODES_OF_A_PROCESS = 2500  # two sockets each, of 20,000
PATIENCE = 120
TICK = os.sysconf("SC_CLK_TCK")


def agents_program():
    path = os.environ.get("SCALE_AGENTS", "")
    if not os.access(path, os.X_OK):
        sys.exit("SCALE_AGENTS must name the scale_agents program")
    return path


def cpu_seconds(pid):
    """User and system time of a process, without children."""
    words = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / TICK


def machine_cpu_seconds():
    """Of all processes of this machine."""
    words = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    idle = int(words[3]) + int(words[4])
    return (sum(map(int, words[:8])) - idle) / TICK


def memory(pid, key):
    """VmRSS or VmHWM in bytes."""
    said = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{key}:\s+(\d+) kB$", said, re.M).group(1)) * 1024


def number_of(group):
    """(epoch, counter) of "1.2"."""
    return tuple(map(int, group.split(".")))


class Crowd:
    """The nodes that do not lead, in a few processes, each of which reports through a pipe."""

    def __init__(self, port, nodes, low, high):
        self.parts = []
        for first in range(1, nodes + 1, NODES_OF_A_PROCESS):
            count = min(NODES_OF_A_PROCESS, nodes + 1 - first)
            words = [agents_program(), "agents", port, count, first, low, high, "bench"]
            process = subprocess.Popen([str(w) for w in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.parts.append((process, harness.Heard(os.dup(process.stdout.fileno()))))
            process.stdout.close()
        self.hear("ready")

    def said(self, part, word):
        """The fields of the lines that begin with this word."""
        return [line.split()[1:] for line in list(part[1].lines) if line.split()[0] == word]

    def hear(self, word, where=lambda fields: True, parts=None, seconds=PATIENCE):
        """Waits for the newest such line of each process."""
        found = []
        for part in parts or self.parts:
            def match(part=part):
                bad = self.said(part, "end")
                return bad or [fields for fields in self.said(part, word) if where(fields)]

            lines = part[1].until(match, seconds)
            if not lines or self.said(part, "end"):
                sys.exit(f"no '{word}' of all nodes within {seconds} s; heard of one part:\n"
                         + "\n".join(part[1].lines[-10:]))
            found.append(lines[-1])
        return found

    def tell(self, words, parts=None):
        for process, _ in parts or self.parts:
            process.stdin.write(words.encode() + b"\n")
            process.stdin.flush()

    def ended(self):
        return [line for part in self.parts for line in self.said(part, "end")]

    def close(self):
        for process, heard in self.parts:
            process.kill()
            process.wait()
            heard.join()
            process.stdin.close()

    def cpu(self):
        return sum(cpu_seconds(process.pid) for process, _ in self.parts)


class Run:
    """A leader, its crowd, and what was measured of them."""

    def __init__(self, tmp, nodes):
        self.nodes, self.crowd = nodes, None
        low, port = max(1, nodes - 1), harness.free_port()
        self.job = harness.Job(tmp)
        self.agent = self.job.agent("leader", f"--nnodes={low}:{nodes}", "--nproc-per-node=1", "--max-restarts=3",
                                    "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=bench",
                                    "--no-python", agents_program(), "worker", self.job.tmp / "events",
                                    program=[bench.muster(), "run"])
        if nodes == 1:
            self.own_worker("1.1")
        else:
            self.agent.wait_said("waiting for nodes")
            self.crowd = Crowd(port, nodes - 1, low, nodes)
        self.leader = self.agent.agent_pid()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.crowd:
            self.crowd.close()
        self.job.close()

    def own_worker(self, generation):
        """When the leader's own worker of this group started."""
        return int(self.job.events.wait("start", 1, PATIENCE, generation=generation)[0].fields["ns"])

    def groups(self):
        """The newest group that each process has started."""
        return {lines[-1][0] for lines in (self.crowd.said(part, "started") for part in self.crowd.parts) if lines}

    def all_started(self, after):
        """When the last node had START of one group newer than `after` (epoch, counter); and that group."""
        heard = self.crowd.hear("started", lambda fields: number_of(fields[0]) > after)
        groups = {fields[0] for fields in heard}
        if len(groups) != 1:
            sys.exit(f"the nodes started different groups, {groups}: some were lost meanwhile\n{self.agent.said()}")
        group = groups.pop()
        return max([int(fields[3]) for fields in heard] + [self.own_worker(group)]), group

    def form(self):
        at = time.monotonic_ns() + 50_000_000
        leader, crowd, machine = cpu_seconds(self.leader), self.crowd.cpu(), machine_cpu_seconds()
        began = time.monotonic()
        self.crowd.tell(f"go {at}")
        end, self.group = self.all_started((0, 0))
        leader, crowd = cpu_seconds(self.leader) - leader, self.crowd.cpu() - crowd
        others = (machine_cpu_seconds() - machine - leader - crowd) / (time.monotonic() - began)
        began = max(int(fields[1]) for fields in self.crowd.hear("connecting"))
        return {"form": (end - began) / 1e9, "form_first": (end - at) / 1e9,
                "form_cpu": leader, "crowd_cpu": crowd, "others": max(0.0, others)}

    def lose_one(self):
        self.crowd.hear("probed")
        if self.groups() != {self.group}:
            sys.exit(f"group {self.group} did not last: this machine is too busy\n{self.agent.said()}")
        part = self.crowd.parts[-1:]
        leader = cpu_seconds(self.leader)
        self.crowd.tell("drop", part)
        dropped = int(self.crowd.hear("dropped", parts=part)[0][0])
        end, self.group = self.all_started(number_of(self.group))
        return {"reform": (end - dropped) / 1e9, "reform_cpu": cpu_seconds(self.leader) - leader}

    def idle(self, seconds):
        """The leader's share of a core while nothing happens."""
        before, began = cpu_seconds(self.leader), time.monotonic()
        self.crowd.parts[0][1].until(self.crowd.ended, seconds)
        return (cpu_seconds(self.leader) - before) / (time.monotonic() - began)


def measure(nodes, alone):
    """alone: (VmRSS, VmHWM) of a leader without other nodes."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as tmp, Run(tmp, nodes) as run:
        found = run.form()
        run.crowd.hear("probed")
        found["rss"] = (memory(run.leader, "VmRSS") - alone[0]) / nodes
        if nodes == IDLE_NODES:
            found["idle"] = run.idle(IDLE_SECONDS)
        found |= run.lose_one()
        found["peak"] = (memory(run.leader, "VmHWM") - alone[1]) / nodes
        if run.crowd.ended():
            sys.exit(f"nodes ended: {run.crowd.ended()[:5]}")
    return found


def measure_alone():
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as tmp, Run(tmp, 1) as run:
        return memory(run.leader, "VmRSS"), memory(run.leader, "VmHWM")


def measure_torch(words, nodes):
    """Seconds until all of torchrun's handlers have their group; None: not within PEER_SECONDS."""
    script = pathlib.Path(__file__).with_name("torch_rendezvous.py")
    said = subprocess.run([*words, script, str(nodes), str(PEER_SECONDS)], capture_output=True, text=True)
    found = re.search(r"^seconds (\S+)$", said.stdout, re.M)
    if said.returncode != 0 or not found:
        sys.exit(f"torch_rendezvous.py failed:\n{said.stdout}{said.stderr[-2000:]}")
    return None if found.group(1) == "none" else float(found.group(1))


def exponent(points):
    """The exponent e of time = c · N^e, by least squares on the logarithms."""
    x, y = [math.log(n) for n, _ in points], [math.log(t) for _, t in points]
    mx, my = statistics.mean(x), statistics.mean(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y)) / sum((a - mx) ** 2 for a in x)


def median(runs, key):
    return statistics.median(run[key] for run in runs)


COLUMNS = [("form", "form s", 1), ("form_first", "of the first", 1), ("form_cpu", "leader CPU s", 1),
           ("crowd_cpu", "nodes' CPU s", 1), ("others", "others' cores", 1), ("reform", "re-form s", 1),
           ("reform_cpu", "leader CPU s", 1), ("rss", "RSS KB/node", 1 / 1024), ("peak", "peak KB/node", 1 / 1024)]


def show_table(found):
    print("nodes  runs" + "".join(f"{title:>14}" for _, title, _ in COLUMNS))
    for nodes, runs in found.items():
        print(f"{nodes:5}  {len(runs):4}"
              + "".join(f"{median(runs, key) * scale:14.3f}" for key, _, scale in COLUMNS))
    print("others' cores: what the rest of this machine took meanwhile; the times count where it is near 0")
    print("min … max of the same runs")
    for nodes, runs in found.items():
        print(f"{nodes:5}  " + "; ".join(f"{key} {min(r[key] for r in runs):.3f} … {max(r[key] for r in runs):.3f}"
                                         for key in ("form", "reform")))
    sys.stdout.flush()


def show_torch(found, peer):
    for nodes, took in peer.items():
        missing = sum(t is None for t in took)
        words = f"not within {PEER_SECONDS} s in {missing} of {len(took)} runs"
        if missing == 0:
            middle, ours = statistics.median(took), median(found[nodes], "form")
            words = f"{middle:.2f} s ({min(took):.2f} … {max(took):.2f}), muster {ours:.3f} s: " \
                    f"{middle / ours:.0f} times as long"
        print(f"torchrun's handlers, {nodes} nodes: {words}")


def show_rows(found, peer):
    for nodes, runs in found.items():
        took = peer.get(nodes, [])
        known = [t for t in took if t is not None]
        torch = f"not within {PEER_SECONDS} s" if None in took else bench.seconds(statistics.median(known)) if known else None
        bench.row(f"{nodes:,} nodes without workers form a group, on {os.cpu_count()} cores", torch,
                  f"{bench.seconds(median(runs, 'form'))}; {bench.seconds(median(runs, 'reform'))} to re-form after a loss")


def show_targets(found):
    most = max(found)
    for key, title, limit in (("form", "10,000 nodes form a group in <= 2 s", 2),
                              ("reform", "10,000 nodes re-form after a loss in <= 1 s", 1)):
        bench.target(title, median(found[10000], key) <= limit if 10000 in found else None)
    for key, title in (("form", "forming"), ("reform", "re-forming")):
        points = [(n, median(runs, key)) for n, runs in found.items()]
        large = [p for p in points if p[0] >= 1000]
        if len(points) > 1:
            print(f"{title} grows as N^{exponent(points):.2f} from {points[0][0]} to {most}")
        bench.target(f"{title} grows <= N^1.1 from 1,000 on"
                     + (f" (N^{exponent(large):.2f})" if len(large) > 1 else ""),
                     exponent(large) <= 1.1 if len(large) > 1 else None)
    large = [runs for n, runs in found.items() if n >= 1000]
    for key, title in (("rss", "resident memory once it runs"), ("peak", "peak memory")):
        worst = max((median(runs, key) for runs in large), default=None)
        bench.target(f"leader's {title} <= 4 KB per node (1,000 on)"
                     + (f": {worst / 1024:.1f}" if large else ""), worst <= 4 * 1024 if large else None)
    idle = [run["idle"] for run in found.get(IDLE_NODES, [])]
    bench.target(f"idle leader of {IDLE_NODES} nodes <= 5 % of a core"
                 + (f": {100 * statistics.median(idle):.1f} %" if idle else ""),
                 statistics.median(idle) <= 0.05 if idle else None)


def quick():
    alone = measure_alone()
    show_table({nodes: [measure(nodes, alone)] for nodes in (16, 256)})


def main():
    if sys.argv[1:] == ["--quick"]:
        quick()
        return
    torchrun = bench.torchrun()
    # The part before torchrun's own path runs its Python without DNS.
    words = [*torchrun[:-1], pathlib.Path(torchrun[-1]).with_name("python")] if torchrun else None
    alone = measure_alone()
    found, peer = {n: [] for n in SIZES}, {n: [] for n in PEER_SIZES if words}
    for _ in range(RUNS):
        for nodes in SIZES:
            found[nodes].append(measure(nodes, alone))
    # The peer last: its hundreds of processes keep the machine busy for a while after they have ended.
    for nodes, seconds in peer.items():
        for _ in range(bench.PEER_RUNS):
            if None not in seconds:  # what was not ready in time once is not measured again
                seconds.append(measure_torch(words, nodes))
    show_table(found)
    show_torch(found, peer)
    show_targets(found)
    show_rows(found, peer)
    bench.end()


if __name__ == "__main__":
    main()
