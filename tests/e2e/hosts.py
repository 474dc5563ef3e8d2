"""Emulated hosts: network namespaces joined by a bridge that sits in a namespace of its own.

    with Hosts(2) as hosts:
        job.agent("a", …, prefix=hosts.enter(0))
        hosts.cut(1)                                   # its link goes down: silence, the host lives on

Host n is 10.88.0.(n+1) and fd88::(n+1), named host(n+1); no resolver, and no route out. Each has its own net, uts and
mount namespace. Nothing is named outside: the namespaces live as long as the processes that hold them.
"""
import contextlib
import os
import subprocess

HOLD = ("import os, sys, signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "print('up', flush=True)\n"
        "sys.stdin.read()\n")  # until the test closes our standard input, or is gone


class NoNamespaces(Exception):
    """This machine or user cannot make them."""


class Hosts:
    def __init__(self, count, ipv4=True, ipv6=True):
        self.count, self.ipv4, self.ipv6 = count, ipv4, ipv6
        self._holders = []

    def __enter__(self):
        if os.geteuid() != 0:
            raise NoNamespaces("needs root")
        try:
            self.switch = self._hold()
            self._ip(self.switch, "link add br0 type bridge", "link set br0 up", "link set lo up")
            self.pids = [self._hold() for _ in range(self.count)]
            for n, pid in enumerate(self.pids):
                self._wire(n, pid)
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            raise NoNamespaces(f"{error} {getattr(error, 'stderr', '')}") from error
        return self

    def __exit__(self, *exc):
        for holder in self._holders:
            holder.stdin.close()
            holder.wait(10)
            holder.stdout.close()

    def _hold(self):
        holder = subprocess.Popen(["unshare", "--net", "--uts", "--mount", "/usr/bin/python3", "-c", HOLD],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._holders.append(holder)
        if holder.stdout.readline() != b"up\n":
            raise OSError("unshare failed")
        return holder.pid

    def _in(self, pid, *words):
        subprocess.run(["nsenter", f"--target={pid}", "--net", "--uts", "--mount", "--", *words], check=True,
                       capture_output=True, text=True)

    def _ip(self, pid, *lines):
        for line in lines:
            self._in(pid, "ip", *line.split())

    def _wire(self, n, pid):
        self._ip(self.switch, f"link add p{n} type veth peer name eth0 netns {pid}", f"link set p{n} master br0 up")
        self._ip(pid, "link set lo up")
        if self.ipv4:
            self._ip(pid, f"addr add 10.88.0.{n + 1}/24 dev eth0")
        if self.ipv6:
            self._ip(pid, f"-6 addr add fd88::{n + 1}/64 dev eth0 nodad")
        else:
            self._in(pid, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6")
        self._ip(pid, "link set eth0 up")
        self._in(pid, "hostname", f"host{n + 1}")
        # No name service: an empty hosts file, and a resolver that is not there.
        self._in(pid, "sh", "-c", "printf '127.0.0.1 localhost\\n' > /run/hosts.$$; mount --bind /run/hosts.$$ /etc/hosts;"
                                  "rm -f /run/hosts.$$; mount --bind /dev/null /etc/resolv.conf")

    def enter(self, n):
        """The words before a command that is to run on host n."""
        return ["nsenter", f"--target={self.pids[n]}", "--net", "--uts", "--mount", "--"]

    def address(self, n):
        return f"10.88.0.{n + 1}" if self.ipv4 else f"fd88::{n + 1}"

    def cut(self, n):
        """Frames to and from host n are lost; nothing is told to anybody."""
        self._ip(self.switch, f"link set p{n} nomaster")

    def heal(self, n):
        self._ip(self.switch, f"link set p{n} master br0")


@contextlib.contextmanager
def hosts_or_skip(count, **more):
    import pytest
    try:
        with Hosts(count, **more) as hosts:
            yield hosts
    except NoNamespaces as why:
        pytest.skip(f"no network namespaces here: {why}")
