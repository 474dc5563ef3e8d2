"""A real etcd, of one member or several, for a test to use, kill, freeze and bring back.

    with EtcdCluster(3) as etcd:
        etcd.endpoints          ["127.0.0.1:40001", …]
        etcd.kill(etcd.leader())
        etcd.restart(0)

With tls=True it accepts only TLS: etcd.cacert, and etcd.cert and etcd.key of a client; tls="client" also requires that
certificate. With auth=True only etcd.user, with etcd.password, can use the keys below etcd.prefix. Members are on this
machine, or on emulated hosts: where=[(hosts.address(0), hosts.enter(0)), …], one for each. All files are in a temporary
folder, which stop() removes. Members die with the process that started them.
"""
import base64
import contextlib
import ctypes
import json
import os
import pathlib
import select
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import pytest

import harness

ETCD, ETCDCTL, OPENSSL = (shutil.which(name) for name in ("etcd", "etcdctl", "openssl"))
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def etcd_or_skip():
    """Skips the test if a program is missing, and names it."""
    for name, path in (("etcd", ETCD), ("etcdctl", ETCDCTL), ("openssl", OPENSSL)):
        if not path:
            pytest.skip(f"no {name} on PATH (Debian: etcd-server, etcd-client, openssl)")


def _die_with_parent():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _bracketed(host):
    return f"[{host}]" if ":" in host else host


def make_ca(folder, name="ca"):
    """A certificate authority: folder/name.pem and .key."""
    folder = pathlib.Path(folder)
    subprocess.run([OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                    "30", "-subj", f"/CN=muster test {name}", "-keyout", str(folder / f"{name}.key"), "-out",
                    str(folder / f"{name}.pem")], check=True, capture_output=True)
    return folder / f"{name}.pem"


def make_cert(folder, name, names, ca="ca"):
    """A certificate of that authority for these subjectAltNames ("IP:127.0.0.1", "DNS:localhost")."""
    folder = pathlib.Path(folder)
    request, extra = folder / f"{name}.csr", folder / f"{name}.ext"
    extra.write_text(f"subjectAltName={','.join(names)}\nextendedKeyUsage=serverAuth,clientAuth\n")
    subprocess.run([OPENSSL, "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                    f"/O=muster test {name}", "-keyout", str(folder / f"{name}.key"), "-out", str(request)], check=True,
                   capture_output=True)
    subprocess.run([OPENSSL, "x509", "-req", "-in", str(request), "-CA", str(folder / f"{ca}.pem"), "-CAkey",
                    str(folder / f"{ca}.key"), "-CAcreateserial", "-days", "30", "-extfile", str(extra), "-out",
                    str(folder / f"{name}.pem")], check=True, capture_output=True)
    return folder / f"{name}.pem", folder / f"{name}.key"


class EtcdCluster:
    def __init__(self, n=1, tls=False, auth=False, host="127.0.0.1", where=None, prefix="/muster",
                 names=("IP:127.0.0.1", "IP:::1", "DNS:localhost")):
        etcd_or_skip()
        self.n, self.tls, self.auth, self.prefix = n, tls, auth, prefix
        self.hosts = [address for address, _ in where] if where else [host] * n
        self.enter = [list(words) for _, words in where] if where else [[]] * n
        self.user, self.password = ("muster", "pass word: \"ü\"") if auth else (None, None)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-etcd."))
        self.cacert = self.cert = self.key = None
        self.processes, self.ports, self.peer_ports = [None] * n, [], []
        if tls:
            self.cacert = make_ca(self.folder)
            make_cert(self.folder, "server", names)
            self.cert, self.key = make_cert(self.folder, "client", ["DNS:client"])

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *what):
        self.stop()

    @property
    def endpoints(self):
        return [f"{_bracketed(host)}:{port}" for host, port in zip(self.hosts, self.ports)]

    def url(self, i):
        return f"{'https' if self.tls else 'http'}://{self.endpoints[i]}"

    def log(self, i):
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / f"{i}.log").read_text(errors="replace")
        return ""

    def start(self):
        """Starts all members; tries again if another process took a port meanwhile."""
        for attempt in range(5):
            at = list(zip(self.hosts, self.enter))
            self.ports = [2379 if words else harness.free_port(host) for host, words in at]
            self.peer_ports = [2380 if words else harness.free_port(host) for host, words in at]
            for i in range(self.n):
                self._spawn(i)
            try:
                for i in range(self.n):
                    self.wait_healthy(i)
                break
            except AssertionError:
                taken = any("address already in use" in self.log(i) for i in range(self.n))
                for i in range(self.n):
                    self.kill(i)
                    shutil.rmtree(self.folder / f"{i}.data", ignore_errors=True)
                if attempt == 4 or not taken:
                    raise
        if self.auth:
            self._enable_auth()

    def _spawn(self, i):
        peers = [f"http://{_bracketed(host)}:{port}" for host, port in zip(self.hosts, self.peer_ports)]
        words = self.enter[i] + [ETCD, "--name", f"m{i}", "--data-dir", str(self.folder / f"{i}.data"),
                 "--listen-client-urls", self.url(i), "--advertise-client-urls", self.url(i),
                 "--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i],
                 "--initial-cluster", ",".join(f"m{k}={peer}" for k, peer in enumerate(peers)),
                 "--initial-cluster-token", self.folder.name, "--heartbeat-interval=50", "--election-timeout=500"]
        if self.tls:
            words += ["--cert-file", str(self.folder / "server.pem"), "--key-file", str(self.folder / "server.key")]
            words += ["--client-cert-auth", "--trusted-ca-file", str(self.cacert)] if self.tls == "client" else []
        with open(self.folder / f"{i}.log", "ab") as log:
            self.processes[i] = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                 cwd=self.folder, preexec_fn=_die_with_parent,
                                                 env={"PATH": os.environ["PATH"], "GOMAXPROCS": "2"})

    def _context(self):
        if not self.tls:
            return None
        context = ssl.create_default_context(cafile=str(self.cacert))
        context.check_hostname = False
        context.load_cert_chain(self.cert, self.key)
        return context

    def healthy(self, i):
        """True when member i answers, and the cluster has a leader."""
        if self.enter[i]:
            with contextlib.suppress(AssertionError):
                self.ctl("endpoint", "health", members=[i])
                return True
            return False
        try:
            with urllib.request.urlopen(self.url(i) + "/health", timeout=2, context=self._context()) as answer:
                return json.load(answer).get("health") == "true"
        except (OSError, ValueError):
            return False

    def wait_healthy(self, i, seconds=30):
        end = harness.deadline(seconds)
        ended = os.pidfd_open(self.processes[i].pid)
        try:
            poll = select.poll()
            poll.register(ended, select.POLLIN)
            while not self.healthy(i):
                left = end - time.monotonic()
                assert left > 0 and not poll.poll(50), f"etcd {i} is not healthy:\n{self.log(i)[-3000:]}"
        finally:
            os.close(ended)

    def ask(self, path, body, i=0):
        """Sends one request to member i's gateway: POST, with JSON in both directions (not with `where`)."""
        request = urllib.request.Request(self.url(i) + path, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=5, context=self._context()) as answer:
            return json.load(answer)

    def keys(self, i=0):
        """{key: value} of all keys (not with auth)."""
        found = self.ask("/v3/kv/range", {"key": "AA==", "range_end": "AA=="}, i).get("kvs", [])
        return {base64.b64decode(kv["key"]).decode(): base64.b64decode(kv.get("value", "")).decode() for kv in found}

    def leader(self):
        """The index of the member that leads."""
        for i, process in enumerate(self.processes):
            if process is not None and self.healthy(i):
                status = self.ask("/v3/maintenance/status", {}, i)
                if status["leader"] == status["header"]["member_id"]:
                    return i
        raise AssertionError("no member of etcd says that it leads")

    def ctl(self, *words, members=None):
        """Runs etcdctl without a user, as before auth is enabled."""
        members = members or list(range(self.n))
        words = [ETCDCTL, "--endpoints", ",".join(self.url(i) for i in members), *words]
        if self.tls:
            words[1:1] = ["--cacert", str(self.cacert), "--cert", str(self.cert), "--key", str(self.key)]
        done = subprocess.run(self.enter[members[0]] + words, capture_output=True, text=True, timeout=60,
                              env={"PATH": os.environ["PATH"], "ETCDCTL_API": "3"})
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def _enable_auth(self):
        self.ctl("user", "add", "root:root")
        self.ctl("role", "add", "root")
        self.ctl("user", "grant-role", "root", "root")
        self.ctl("role", "add", "muster")
        self.ctl("role", "grant-permission", "--prefix=true", "muster", "readwrite", self.prefix + "/")
        self.ctl("user", "add", f"{self.user}:{self.password}")
        self.ctl("user", "grant-role", self.user, "muster")
        self.ctl("auth", "enable")

    def kill(self, i):
        process, self.processes[i] = self.processes[i], None
        if process is not None:
            process.kill()
            process.wait()

    def restart(self, i, wait=True):
        """Starts it again with its data, at the same ports."""
        self.kill(i)
        self._spawn(i)
        if wait:
            self.wait_healthy(i)

    def freeze(self, i):
        self.processes[i].send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.processes[i].pid, os.WSTOPPED)  # all its threads have stopped

    def thaw(self, i):
        self.processes[i].send_signal(signal.SIGCONT)

    def stop(self):
        for i in range(self.n):
            self.kill(i)
        shutil.rmtree(self.folder, ignore_errors=True)
