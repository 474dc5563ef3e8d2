#!/usr/bin/python3
"""Eight workers that write lines as fast as they can, with -t 3: bytes per second into the log files.

Peers in the same run: eight `cat`s into files, eight `tee`s that write to files and to one console, and torchrun's own
-t 3, if PyTorch is installed. The console is the null device, a plain file, or a pipe that a process reads."""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import bench

WORKERS = 8
MIB = int(os.environ.get("BENCH_TEE_MIB", "64"))  # of each worker
PEER_MIB = 4  # of torchrun: it is that slow
LINE = 100


def console(kind, tmp):
    """An open file, and the process to wait for."""
    if kind == "file":
        return open(tmp / "console", "wb"), None
    if kind == "pipe":
        reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        return reader.stdin, reader
    return open(os.devnull, "wb"), None


def timed(words, kind, mib, tmp):
    out, reader = console(kind, tmp)
    at = time.perf_counter()
    done = subprocess.run([str(w) for w in words], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE)
    out.close()
    if reader:
        reader.wait()
    took = time.perf_counter() - at
    if done.returncode != 0:
        sys.exit(f"{words[0]} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-500:]}")
    for path in tmp.rglob("*"):
        if path.is_file():
            path.unlink()
    return WORKERS * mib / took


def run(launcher, flood, mib, tmp):
    return [*launcher, "--standalone", "--no-python", f"--nproc-per-node={WORKERS}", "--log-dir", tmp / "logs", "-t", "3",
            flood, mib, LINE]


def each(command, flood, tmp):
    """Runs these shell pipelines at the same time."""
    one = f'{flood} {MIB} {LINE} | {command}'
    return ["sh", "-c", f'for i in $(seq {WORKERS}); do ({one}) & done; wait', "sh", tmp]


def main():
    ours, torch, flood = [bench.muster(), "run"], bench.torchrun(), os.environ["FLOOD"]
    runs = max(3, bench.RUNS // 4)
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as tmp:
        tmp = pathlib.Path(tmp)
        samples = {}

        def sample(name, *args):
            samples.setdefault(name, []).append(timed(*args, tmp))
        for n in range(runs):
            for kind in ("null", "file", "pipe"):
                sample(f"muster -t 3, console: {kind}", run(ours, flood, MIB, tmp), kind, MIB)
                sample(f"8 tee, console: {kind}", each('tee "$1/$i"', flood, tmp), kind, MIB)
            sample("8 cat", each('cat > "$1/$i"', flood, tmp), "null", MIB)
            if torch and n < bench.PEER_RUNS:
                sample("torchrun -t 3, console: null", run(torch, flood, PEER_MIB, tmp), "null", PEER_MIB)
    print(f"{WORKERS} writers of lines of {LINE} bytes, in sum")
    middle = {name: bench.show(name, values, "MiB/s", 1) for name, values in samples.items()}
    for kind in ("null", "file", "pipe"):
        mine = middle[f"muster -t 3, console: {kind}"]
        print(f"console: {kind}: {mine / middle['8 cat']:.2f} times 8 cat, "
              f"{mine / middle[f'8 tee, console: {kind}']:.2f} times 8 tee")
    mine = middle["muster -t 3, console: null"]
    bench.target("1 GiB/s, or 80 % of 8 cat", mine >= 1024 or mine >= 0.8 * middle["8 cat"])
    torch = middle.get("torchrun -t 3, console: null")
    bench.row(f"`-t 3`: lines of {WORKERS} fast writers into files and the console", f"{torch:.0f} MiB/s" if torch else None,
              f"{mine:.0f} MiB/s")
    bench.end()


if __name__ == "__main__":
    main()
