#!/usr/bin/python3
"""Records when this machine stood still, until the process that started it ends.

    stalls.py FILE

A host that runs other machines too stops a virtual one for tenths of a second, without any sign of it in the machine. A
test of leases and deadlines fails then, and muster is not the cause. Each line of FILE is one stall:

    END SECONDS WHO

END is CLOCK_MONOTONIC's time at its end. WHO is `cpuN`, a process of real-time priority there: the host stopped that CPU;
or `any`, a process of normal priority: more programs wanted to run than there are CPUs.
"""
import os
import sys
import time

INTERVAL = 0.01
# A failed test counts if the machine gave its programs their time, or at the third time.
TRIES = 3
STOOD_STILL_S = 0.2
LONG_S = 0.04  # shorter stalls fail no test of leases and deadlines


def overlaps(begin, end):
    """(seconds between these times, who, seconds in all) of each stall in the file that MUSTER_TEST_STALLS names."""
    try:
        with open(os.environ.get("MUSTER_TEST_STALLS", ""), encoding="ascii") as file:
            lines = file.readlines()
    except OSError:
        return
    for line in lines:
        at, seconds, who = line.split()
        overlap = min(float(at), end) - max(float(at) - float(seconds), begin)
        if overlap > 0:
            yield overlap, who, float(seconds)


def total(begin, end):
    """How long the machine stood still between these times: the CPU or the process that was stopped for longest."""
    sums = {}
    for overlap, who, seconds in overlaps(begin, end):
        if seconds >= LONG_S:
            sums[who] = sums.get(who, 0) + overlap
    return max(sums.values(), default=0.0)


def longest_of_a_cpu(begin, end):
    """The longest time for which the host stopped a CPU between these times, with an error of INTERVAL."""
    return max((seconds for _, who, seconds in overlaps(begin, end) if who != "any"), default=0.0)


def record_repeat(name, seconds, why=""):
    with open(os.environ["MUSTER_TEST_REPEATED"], "a", encoding="utf-8") as file:
        file.write(f"{name}: failed while the machine stood still for {seconds:.2f} s{why and ': '}{why}\n")


def watch(fd, who, cpu, parent):
    if cpu is not None:
        try:
            os.sched_setaffinity(0, {cpu})
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        except OSError:
            os._exit(0)  # not permitted here
    before = time.monotonic()
    while os.getppid() == parent:
        time.sleep(INTERVAL)
        now = time.monotonic()
        if now - before - INTERVAL >= INTERVAL:
            os.write(fd, f"{now:.3f} {now - before:.3f} {who}\n".encode())
        before = now
    os._exit(0)


def main():
    parent, own = os.getppid(), os.getpid()
    fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    for cpu in sorted(os.sched_getaffinity(0)):
        if os.fork() == 0:
            watch(fd, f"cpu{cpu}", cpu, own)
    watch(fd, "any", None, parent)


if __name__ == "__main__":
    main()
