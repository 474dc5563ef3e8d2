#!/usr/bin/python3
"""`echo` on emulated hosts that are reached by ssh (sshd.py): by `muster run -H`, and `ssh true` to all of them at once;
alternately. Then: how long anything lives after the starter was killed, or interrupted.

BENCH_SSH_HOSTS are the numbers of hosts (4 32), BENCH_SSH_RUNS how often each is measured (9).
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import bench
import harness
from hosts import NoNamespaces
from slurm import pause
from sshd import PROGRAMS, Sshd

HOSTS = [int(n) for n in os.environ.get("BENCH_SSH_HOSTS", "4 32").split()]
RUNS = int(os.environ.get("BENCH_SSH_RUNS", "9"))
GRACE_S = 2

# A line for each run: what, microseconds, how many hosts answered. One round more than asked fills the caches. Each ssh
# has a session of its own, as muster's have: on a busy machine the kernel shares its CPUs between sessions
# (sched_autogroup_enabled, sched(7)), and those in one session get less.
ROUNDS = r"""
runs=$1
shift
timed() {
    local what=$1 begin=${EPOCHREALTIME/./} heard
    shift
    heard=$("$@" 2>> errors < /dev/null | grep -c HERE)
    echo "$what:$((${EPOCHREALTIME/./} - begin)):$heard"
}
every() {
    local host
    for host; do setsid --wait ssh -T -x -o BatchMode=yes "$host" 'true; echo HERE' & done
    wait
}
list=$(IFS=,; echo "$*")
for ((i = 0; i <= runs; i++)); do
    timed ssh every "$@"
    timed muster "$MUSTER" run -H "$list" --no-python echo HERE
done
"""


def rounds(cluster, folder, env):
    """{what: [seconds, …]}"""
    script = pathlib.Path(folder, "rounds")
    script.write_text(ROUNDS)
    done = cluster.run("bash", script, RUNS, *cluster.names, folder=folder, env=env, seconds=60 + 60 * RUNS)
    samples = {"ssh": [], "muster": []}
    for line in done.stdout.splitlines():
        what, took, heard = line.split(":")
        if int(heard) != cluster.count:
            sys.exit(f"{what} on {cluster.count} hosts: {heard} answers\n" + pathlib.Path(folder, "errors").read_text())
        samples[what].append(int(took) / 1e6)
    return {what: found[1:] for what, found in samples.items()}


def end_of(cluster, folder, env, signo, worker):
    """Seconds from the signal to the starter until none of its processes lives on any host."""
    with open(pathlib.Path(folder, "errors"), "ab") as errors:
        job = subprocess.Popen(cluster.client(bench.muster(), "run", "-H", ",".join(cluster.names),
                                              f"--shutdown-timeout={GRACE_S}", "--no-python", "sh", "-c", worker, folder=folder),
                               env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
    for _ in range(cluster.count):
        job.stdout.readline()
    starter = next(pid for pid in cluster.head.processes() if any(p in harness.children(pid) for p in ssh_of(cluster)))
    begin = time.monotonic()
    os.kill(starter, signo)
    while cluster.left():
        pause(0.005)
    took = time.monotonic() - begin
    job.stdout.close()
    job.wait()
    return took


def ssh_of(cluster):
    return [pid for pid in cluster.head.processes() if pathlib.Path(f"/proc/{pid}/comm").read_text() == "ssh\n"]


def main():
    missing = [name for name in PROGRAMS if not shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin")]
    if missing or os.geteuid() != 0:
        print(f"no sshd here: {', '.join(missing) or 'needs root'}")
        bench.target("at most 1.3 times ssh true to all hosts at once", None)
        return
    for count in HOSTS:
        print(f"{count} hosts, one worker each")
        with tempfile.TemporaryDirectory() as folder:
            try:
                with Sshd(count) as cluster:
                    env = cluster.env({"MUSTER": str(pathlib.Path(bench.muster()).resolve()), "MUSTER_RUN_DIR": "/dev/shm/muster"})
                    samples = rounds(cluster, folder, env)
                    bare, ours = (bench.show(what, samples[what]) for what in ("ssh", "muster"))
                    print(f"muster run takes {ours / bare:.2f} times as long as ssh to all hosts at once")
                    bench.target(f"{count} hosts: at most 1.3 times ssh alone ({1.3 * bare:.0f} ms)", ours <= 1.3 * bare)
                    for what, signo in ("killed", signal.SIGKILL), ("^C", signal.SIGINT):
                        ends = [end_of(cluster, folder, env, signo, "echo HERE; exec sleep 1000") for _ in range(3)]
                        bench.show(f"{what}: until nothing lives", ends)
                        ends = [end_of(cluster, folder, env, signo, "trap '' TERM INT; echo HERE; while :; do sleep 1000; done")]
                        last = bench.show(f"{what}, workers that ignore it", ends)
                        limit = GRACE_S + 1
                        bench.target(f"{what}: nothing lives 1 s after the grace of {GRACE_S} s", last <= limit * 1e3)
            except (NoNamespaces, subprocess.TimeoutExpired) as why:
                sys.exit(f"{count} hosts: {why}")
    bench.end()


if __name__ == "__main__":
    main()
