#!/usr/bin/python3
"""The store compared with torch's two servers, in one run, alternately; medians count.

    MUSTER=… STORELOAD=… bench_store.py

MUSTER_TEST_PYTHON names a Python with torch (else that of .venv, if there is one); without torch only muster is
measured, and targets are not checked. torch's servers look up the names of their peers: they get `hosts: files` in a
mount namespace, or the look-ups would be what is measured. CPU is that of all threads of the server. Ends with 0 unless
it could not measure.
"""
import os
import pathlib
import re
import resource
import select
import statistics
import subprocess
import sys
import tempfile

import bench

RUNS = int(os.environ.get("RUNS", "5"))
CLIENTS = int(os.environ.get("CLIENTS", "8000"))
CONNECTIONS, DEPTH, WAKES = 100, 32, 7
TRIPLES = int(os.environ.get("TRIPLES", "320000"))
VENV_PYTHON = pathlib.Path(__file__).resolve().parents[2] / ".venv" / "bin" / "python"
TORCH = os.environ.get("MUSTER_TEST_PYTHON") or (str(VENV_PYTHON) if VENV_PYTHON.exists() else "")

TORCH_SERVER = """
import sys
from torch.distributed import TCPStore
s = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=sys.argv[1] == "libuv")
print("listening on 127.0.0.1:%d" % s.port, flush=True)
sys.stdin.read()
"""


class Failed(Exception):
    pass


class Server:
    def __init__(self, words):
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready, _, _ = select.select([self.process.stdout], [], [], 120)
        line = self.process.stdout.readline() if ready else ""
        if not line.startswith("listening on "):
            raise Failed(f"{words} did not start")
        self.port = line.rpartition(":")[2].strip()

    def cpu(self):
        """CPU seconds of all threads."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task")
        return sum(int((t / "schedstat").read_text().split()[0]) for t in tasks.iterdir()) / 1e9

    def memory(self):
        """Peak, in MB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1000

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def namespace_prefix(folder):
    """The command line prefix that runs a program without DNS."""
    file = pathlib.Path(folder) / "nsswitch.conf"
    file.write_text("passwd: files\ngroup: files\nhosts: files\n")
    for flags in ("-m", "-rm"):
        words = ["unshare", flags, "sh", "-c", f"mount --bind {file} /etc/nsswitch.conf && exec \"$@\"", "sh"]
        if subprocess.run(words + ["true"], capture_output=True).returncode == 0:
            return words
    raise Failed("cannot give torch's servers a mount namespace (needs root, or user namespaces)")


def load(storeload, *words, seconds):
    done = subprocess.run([storeload, *map(str, words)], capture_output=True, text=True, timeout=seconds)
    if done.returncode != 0:
        raise Failed(done.stderr.strip())
    said = done.stdout.split()
    return dict(zip(said[::2], map(float, said[1::2])))


def storm(server, storeload):
    process = subprocess.Popen([storeload, "storm", server.port, str(CLIENTS)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    try:
        begin = server.cpu()
        connect = process.stdout.readline().split()
        connected = server.cpu()
        process.stdin.write("\n")
        process.stdin.flush()
        wake = process.stdout.readline().split()
        woken = server.cpu()
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
    if connect[:1] != ["connect"] or wake[:1] != ["wake"]:
        raise Failed("storeload did not get through the storm")
    return {f"ms until {CLIENTS} are connected": float(connect[1]) * 1e3,
            f"ms until one SET woke {CLIENTS}": float(wake[1]) * 1e3,
            "CPU ms, connecting": (connected - begin) * 1e3,
            f"CPU ms, {WAKES} times waiting and waking": (woken - connected) * 1e3}


def measure(words, storeload, pipelined):
    """One run against a fresh server: {figure: number}."""
    figures = {}
    server = Server(words)
    try:
        if pipelined:
            begin = server.cpu()
            got = load(storeload, "pipelined", server.port, CONNECTIONS, TRIPLES, DEPTH, seconds=60)
            figures["CPU us per operation, pipelined"] = (server.cpu() - begin) / got["ops"] * 1e6
            figures["M operations/s, pipelined"] = got["ops"] / got["seconds"] / 1e6
    finally:
        server.end()
    server = Server(words)
    try:
        figures |= storm(server, storeload)
        figures["peak memory, MB"] = server.memory()
    finally:
        server.end()
    return figures


def main():
    muster, storeload = os.environ["MUSTER"], os.environ["STORELOAD"]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < CLIENTS + 200:
        raise Failed(f"RLIMIT_NOFILE is {hard}, {CLIENTS + 200} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs; wall times of thousands of "
          "clients are those of the machine, CPU times those of the server")
    with tempfile.TemporaryDirectory() as folder:
        servers = {"muster": [muster, "store", "--listen", "127.0.0.1:0"]}
        if TORCH:
            script = pathlib.Path(folder) / "server.py"
            script.write_text(TORCH_SERVER)
            for backend in ("libuv", "legacy"):
                servers[backend] = namespace_prefix(folder) + [TORCH, str(script), backend]
        else:
            print("no Python with torch in MUSTER_TEST_PYTHON: muster alone; targets: not measured")
        all_figures = {name: [] for name in servers}
        for run in range(RUNS):
            for name, words in servers.items():
                # The legacy server reads with blocking calls, and does not survive pipelined load at all.
                try:
                    all_figures[name].append(measure(words, storeload, name != "legacy"))
                except (Failed, OSError) as e:
                    if name != "legacy":
                        raise
                    print(f"run {run + 1} of {RUNS}, legacy: did not get through: {e}", flush=True)
                    continue
                print(f"run {run + 1} of {RUNS}, {name}: " +
                      ", ".join(f"{k}: {v:.3g}" for k, v in all_figures[name][-1].items()), flush=True)
    report(all_figures)


def report(all_figures):
    medians = {}
    print(f"\n{'':40} {'':8} {'min':>9} {'median':>9} {'max':>9}")
    for figure in all_figures["muster"][0]:
        for name, runs in all_figures.items():
            values = [r[figure] for r in runs if figure in r]
            if not values:
                print(f"{figure:40} {name:8} {'not tried':>9}")
                continue
            medians[figure, name] = statistics.median(values)
            print(f"{figure:40} {name:8} {min(values):9.3f} {medians[figure, name]:9.3f} {max(values):9.3f}")
    if "libuv" not in all_figures:
        return
    cpu = "CPU us per operation, pipelined"
    ratio = medians[cpu, "libuv"] / medians[cpu, "muster"]
    print(f"target: CPU per operation at least 10 times less than libuv's: {ratio:.1f} times "
          f"{'ok' if ratio >= 10 else 'MISSED'}")
    for figure in (f"ms until {CLIENTS} are connected", f"ms until one SET woke {CLIENTS}", "CPU ms, connecting",
                   f"CPU ms, {WAKES} times waiting and waking"):
        best = min(medians[figure, name] for name in ("libuv", "legacy") if (figure, name) in medians)
        ours = medians[figure, "muster"]
        print(f"target: {figure}, not more than either: {ours:.1f} beside {best:.1f} "
              f"{'ok' if ours <= best else 'MISSED'}")
    show_rows(medians)


def show_rows(medians):
    def both(figure, text):
        return ", ".join(f"{text(medians[figure, name])} ({name})" for name in ("libuv", "legacy")
                         if (figure, name) in medians)

    def row(what, figure, text):
        bench.row(what, both(figure, text), text(medians[figure, "muster"]))

    row("the store: CPU per operation, pipelined from many connections", "CPU us per operation, pipelined",
        lambda v: f"{v:.2f} µs")
    row(f"the store: until {CLIENTS:,} clients are connected", f"ms until {CLIENTS} are connected",
        lambda v: bench.seconds(v / 1e3))
    row(f"the store: one SET wakes {CLIENTS:,}", f"ms until one SET woke {CLIENTS}", lambda v: bench.seconds(v / 1e3))


if __name__ == "__main__":
    try:
        main()
    except (Failed, subprocess.TimeoutExpired, OSError) as e:
        sys.exit(f"bench_store.py: could not measure: {e}")
