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
SHORTEST = 0.04


def total(path, begin, end):
    """How long the machine stood still between these times: the CPU or the process that was stopped for longest."""
    sums = {}
    try:
        with open(path, encoding="ascii") as file:
            for line in file:
                at, seconds, who = line.split()
                overlap = min(float(at), end) - max(float(at) - float(seconds), begin)
                if overlap > 0:
                    sums[who] = sums.get(who, 0) + overlap
    except OSError:
        return 0.0
    return max(sums.values(), default=0.0)


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
        if now - before - INTERVAL >= SHORTEST:
            os.write(fd, f"{now:.3f} {now - before:.3f} {who}\n".encode())
        before = now
    os._exit(0)


def main():
    parent = os.getppid()
    fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    for who, cpu in [("any", None)] + [(f"cpu{n}", n) for n in sorted(os.sched_getaffinity(0))]:
        own = os.getpid()
        if os.fork() == 0:
            watch(fd, who, cpu, own)
    while os.getppid() == parent:
        time.sleep(0.2)


if __name__ == "__main__":
    main()
