"""muster in a container: as process 1, without capabilities, under a filter of system calls, on a root that is
read-only; and in the pods of a Kubernetes Job."""
import contextlib
import os
import pathlib
import re
import select
import shlex
import signal
import subprocess
import time

import pytest

import harness
from harness import MUSTER, SLOWER, children
from hosts import hosts_or_skip

SH = ("--no-python", "/bin/sh", "-c")
POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}

# Makes every mount read-only, but for the folder $1, and those that are named after it, which become empty ones of this
# container. /proc stays as it is.
READ_ONLY = """
mount --make-rprivate / && mount --bind "$1" "$1" || exit 99
kept="$1"; shift
while [ "$1" != -- ]; do mount -t tmpfs none "$1" || exit 99; kept="$kept $1"; shift; done
shift
while read -r _ _ _ _ point _; do
    case " $kept " in *" $point "*) continue;; esac
    case "$point" in /proc|/proc/*) ;; *) mount -o remount,bind,ro "$point" 2> /dev/null || :;; esac
done < /proc/self/mountinfo
exec "$@"
"""
# A /dev with a termination log, which is the file $0.
WITH_TERMINATION_LOG = """
mount --make-rprivate / && d=$(mktemp -d) && mount -t tmpfs none "$d" || exit 99
for n in null zero full random urandom tty; do touch "$d/$n" && mount --bind "/dev/$n" "$d/$n" || exit 99; done
mkdir "$d/pts" "$d/shm" && mount --bind /dev/pts "$d/pts" && ln -s pts/ptmx "$d/ptmx" && touch "$d/termination-log" || exit 99
mount --bind "$0" "$d/termination-log" && mount --move "$d" /dev && rmdir "$d" || exit 99
exec "$@"
"""


@pytest.fixture(scope="session")
def confine(tmp_path_factory):
    """The program of confine.c, compiled once."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"]).returncode != 0:
        pytest.skip("needs root and namespaces")
    out = tmp_path_factory.mktemp("confine") / "confine"
    subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-std=gnu11", "-O1", "-Wall", "-Wextra", "-o", str(out),
                    str(harness.HERE / "confine.c")], check=True)
    return str(out)


def as_process_1(*more):
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *more]


def read_only(job, *kept):
    return ["/bin/sh", "-c", READ_ONLY, "sh", str(job.tmp), *kept, "--"]


# --- process 1 ---

def state_and_start(pid):
    """Of a process; None if it is gone."""
    with contextlib.suppress(OSError):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return fields[0], fields[19]
    return None


class Zombies:
    """Children of some processes that have ended and were not waited for, and how long each was seen so."""

    def __init__(self, parents):
        self.parents, self.since, self.longest, self.most = parents, {}, 0.0, 0

    def look(self):
        seen = {}
        for parent in self.parents:
            for pid in children(parent):
                what = state_and_start(pid)
                if what is not None and what[0] == "Z":
                    seen[pid, what[1]] = self.since.get((pid, what[1]), time.monotonic())
        now = time.monotonic()
        self.longest = max([self.longest, *(now - since for since in seen.values())])
        self.most = max(self.most, len(seen))
        self.since = seen
        return len(seen)


@pytest.mark.alone
@pytest.mark.parametrize("how", [[], ["caps", "filter"]], ids=["plain", "docker"])
def test_process_1_leaves_no_zombie(job, confine, how):
    """10,000 orphans, each double-forked, which end at once. None of them is a zombie for 100 ms."""
    agent = job.agent("a", "--no-python", job.worker, "start", "orphans=10000", "go",
                      prefix=as_process_1(confine, *how, "--"))
    job.events.wait("start", 1)
    guardian = children(agent.pid)[0]
    zombies = Zombies([guardian, children(guardian)[0]])
    end = harness.deadline(120)
    done = False
    while not done:
        zombies.look()
        done = job.events.until(lambda: job.events._all("orphaned", {}), 0.002 / SLOWER)
        assert time.monotonic() < end, agent.said()
    end = time.monotonic() + 0.1 * SLOWER
    while zombies.look() > 0:
        assert time.monotonic() < end, f"{len(zombies.since)} zombies 100 ms after the last one was made"
    print(f"at most {zombies.most} zombies at once, the longest for {zombies.longest * 1e3:.1f} ms")
    assert zombies.longest < 0.1 * SLOWER
    job.go()
    assert agent.finish() == (0, "", "")


def test_process_1_ends_with_the_status_of_the_job_and_everything_with_it(job, confine):
    agent = job.agent("a", "--no-python", job.worker, "family", "start", "exit=3",
                      prefix=as_process_1(confine, "caps", "filter", "--"))
    code, _, err = agent.finish()
    assert code == 1 and "exit code 3" in err, err
    job.wait_gone("a", 5)


def test_process_1_that_is_told_to_stop_tells_the_workers(job, confine):
    """As Kubernetes and docker stop do: a signal from outside, which process 1 would not get without a handler."""
    agent = job.agent("a", "--nproc-per-node=2", "--no-python", job.worker, "start", "wait",
                      prefix=as_process_1(confine, "caps", "filter", "--"))
    job.events.wait("start", 2)
    os.kill(children(agent.pid)[0], signal.SIGTERM)
    assert len(job.events.wait("term", 2)) == 2
    assert agent.wait() == 143, agent.said()
    job.wait_gone("a", 5)


# --- a root that is read-only ---

NOWHERE = """
for d in /tmp /var/tmp /run /dev/shm / "$HOME"; do
    if { true > "$d/written.$$"; } 2> /dev/null; then echo "$d can be written"; rm "$d/written.$$"; fi
done
"""


def contained(confine, job, *kept):
    return [*as_process_1(*read_only(job, *kept)), confine, "caps", "filter", "--"]


def test_without_a_writable_folder_the_job_runs_without_error_files(job, confine):
    """Which is said once, also if workers start again."""
    script = NOWHERE + 'echo "file=[$TORCHELASTIC_ERROR_FILE]"; [ "$TORCHELASTIC_RESTART_COUNT" = 1 ]'
    code, out, err = job.agent("a", "--nproc-per-node=2", "--max-restarts=1", *SH, script,
                               env={"MUSTER_RUN_DIR": "\0unset"}, prefix=contained(confine, job)).finish()
    assert code == 0, err
    assert "can be written" not in out, out
    assert 2 <= out.count("file=[]") <= 4 and out.count("file=") == out.count("file=[]"), out
    assert re.findall("muster: warning: .*", err) == [
        "muster: warning: can't make a temporary folder (/tmp: Read-only file system, /dev/shm: Read-only file system); "
        "workers have no error files; set TMPDIR to a folder that can be written"], err


def test_error_files_are_in_memory_where_there_is_no_other_place(job, confine):
    script = '{ echo "{}" > "$TORCHELASTIC_ERROR_FILE"; } && echo "file=$TORCHELASTIC_ERROR_FILE"'
    code, out, err = job.agent("a", *SH, script, env={"MUSTER_RUN_DIR": "\0unset", "TMPDIR": "/nonexistent"},
                               prefix=[*contained(confine, job, "/dev/shm"), "/bin/sh", "-c", '"$@" && ls /dev/shm', "sh"]).finish()
    assert (code, err) == (0, ""), err
    assert re.fullmatch(r"file=/dev/shm/muster-\w{6}/\S+-error.json\nmuster-0\n", out), "its folder is removed: " + out


def test_logs_are_not_put_into_memory(job, confine):
    code, _, err = job.agent("a", "-r3", *SH, "echo here", env={"MUSTER_RUN_DIR": "\0unset"},
                             prefix=contained(confine, job, "/dev/shm")).finish()
    assert code == 0, err
    assert "can't make a temporary folder (/tmp: Read-only file system); the job continues without these files" in err, err


def test_a_folder_of_the_users_is_taken_first(job, confine):
    mine = job.tmp / "mine"
    mine.mkdir()
    code, out, err = job.agent("a", *SH, 'echo "file=$TORCHELASTIC_ERROR_FILE"', env={"TMPDIR": mine},
                               prefix=contained(confine, job)).finish()
    assert (code, err) == (0, ""), err
    assert out.startswith(f"file={mine}/muster-"), out
    assert list(mine.iterdir()) == []


def test_two_nodes_on_roots_that_are_read_only(job, confine):
    """Their files for "muster ps" are in memory, too."""
    name = f"read-only-{os.getpid()}"
    agents = job.pair(f"--rdzv-id={name}", nnodes=2, env={"MUSTER_RUN_DIR": "\0unset"}, worker=("start", "go"),
                      prefix=contained(confine, job, "/dev/shm"))
    job.events.wait("start", 4, world=4)
    env = {k: v for k, v in os.environ.items() if k != "MUSTER_RUN_DIR"}
    for agent in agents:
        inside = ["nsenter", f"--target={children(agent.pid)[0]}", "--mount", "--pid"]
        listed = subprocess.run([*inside, MUSTER, "ps"], env=env, capture_output=True, text=True)
        assert name in listed.stdout, listed
    job.go()
    for agent in agents:
        code, _, err = agent.finish()
        assert code == 0, err


# --- containment ---

@pytest.mark.parametrize("how, says", [
    ("pidns", "--contain=pidns: can't make a pid namespace: root has no CAP_SYS_ADMIN here"),
    ("cgroup", "--contain=cgroup: can't "),
])
def test_containment_says_what_is_missing(job, confine, how, says):
    code, _, err = job.agent("a", f"--contain={how}", *SH, "echo ran",
                             prefix=[*as_process_1(*read_only(job)), confine, "caps", "--"]).finish()
    assert code == 1, err
    lines = err.splitlines()
    assert len(lines) == 1 and says in lines[0] and "or leave --contain out" in lines[0], err


def test_a_filter_is_named_where_the_capability_is_there(job, confine):
    code, _, err = job.agent("a", "--contain=pidns", *SH, "echo ran", prefix=[confine, "filter", "--"]).finish()
    assert code == 1, err
    assert "a seccomp filter forbids it (docker run --security-opt seccomp=unconfined" in err, err


# --- pods ---

def with_termination_log(log):
    words = ["unshare", "--mount", "/bin/sh", "-c", WITH_TERMINATION_LOG, str(log)]
    if subprocess.run([*words, "true"], capture_output=True).returncode != 0:
        pytest.skip("needs root and a mount namespace")
    return words


@pytest.mark.parametrize("words, env, message", [
    (["--nproc-per-node=2", *SH, "[ $RANK = 0 ] || { echo loading >&2; echo 'no space on /data' >&2; exit 3; }; "
                                 "exec sleep 60"], POD,
     r"rank 1 \(node \S+\) ended with exit code 3: no space on /data\n"),
    ([*SH, "echo fine"], POD, ""),
    (["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-conf=join_timeout=1", *SH, ":"], POD,
     r"the job ended: [^\n]*\n"),
    (["nowhere.py"], POD, r"[^\n]*nowhere.py[^\n]*\n"),
    ([*SH, "exit 3"], {}, ""),
], ids=["worker", "success", "nodes", "script", "no pod"])
def test_the_first_failure_is_the_pods_termination_message(job, words, env, message):
    log = job.tmp / "message"
    log.write_text("")
    port = harness.free_port()
    code, _, err = job.agent("a", *(w.replace("{port}", str(port)) for w in words), env=env,
                             prefix=with_termination_log(log)).finish()
    assert (code == 0) == ("echo fine" in words), err
    assert re.fullmatch(message, log.read_text()), (log.read_text(), err)


# A name server for one name, which it knows only some time after it was first asked.
LATE_NAME = r"""
import socket, struct, sys, time
address, name, seconds, to = sys.argv[1:5]
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((address, 53))
print("up", flush=True)
first = None
while True:
    asked, who = server.recvfrom(512)
    first = first or time.monotonic()
    labels, at = [], 12
    while asked[at]:
        labels.append(asked[at + 1:at + 1 + asked[at]].decode().lower())
        at += asked[at] + 1
    kind = struct.unpack(">H", asked[at + 1:at + 3])[0]
    known = time.monotonic() - first >= float(seconds) and ".".join(labels) == name
    answer = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton(to) if known and kind == 1 else b""
    server.sendto(asked[:2] + struct.pack(">HHHHH", 0x8180 if known else 0x8183, 1, bool(answer), 0, 0) +
                  asked[12:at + 5] + answer, who)
"""


@contextlib.contextmanager
def name_server(hosts, n, name, seconds, to):
    """On host n, for all of them."""
    server = subprocess.Popen([*hosts.enter(n), "/usr/bin/python3", "-c", LATE_NAME, hosts.address(n), name, str(seconds), to],
                              stdout=subprocess.PIPE)
    try:
        assert select.select([server.stdout], [], [], 30 * SLOWER)[0] and server.stdout.readline() == b"up\n"
        for pid in hosts.pids:
            subprocess.run(["nsenter", f"--target={pid}", "--net", "--uts", "--mount", "--", "sh", "-ec",
                            f"f=/run/resolv.$$; printf 'nameserver {hosts.address(n)}\\noptions timeout:1 attempts:1\\n' > $f; "
                            "mount --bind $f /etc/resolv.conf; rm $f; f=/run/nss.$$; "
                            "printf 'passwd: files\\ngroup: files\\nhosts: files dns\\n' > $f; "
                            "mount --bind $f /etc/nsswitch.conf; rm $f"], check=True)
        yield
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


FULL = "train-{}.mesh.team.svc.cluster.local"


def test_pods_of_an_indexed_job_need_only_their_number(job):
    """Each knows its own name; that of pod 0 is known to the others only after 20 s. Ranks go by the index, here against
    the order of the hosts' names."""
    with hosts_or_skip(3, ipv6=False) as hosts, name_server(hosts, 2, FULL.format(0), 20, hosts.address(1)):
        pods = {}
        for host, index in ((0, 1), (1, 0)):
            subprocess.run([*hosts.enter(host), "sh", "-c",
                            f"printf '{hosts.address(host)}\\t{FULL.format(index)}\\ttrain-{index}\\n' >> /etc/hosts"], check=True)
            pods[index] = job.agent(f"pod{index}", "--nnodes=2", "--nproc-per-node=2", "-v", "--no-python", job.worker,
                                    "start", "go", env={**POD, "JOB_COMPLETION_INDEX": index}, prefix=hosts.enter(host))
        at = time.monotonic()
        starts = job.events.wait("start", 4, 60, world=4)
        took = time.monotonic() - at
        assert took >= 19, f"the name was known after {took:.1f} s"
        assert took <= 20 + 6 * SLOWER, f"{took:.1f} s"
        assert {(e.fields["tag"], int(e.fields["rank"]) // 2) for e in starts} == {("pod0", 0), ("pod1", 1)}
        pods[1].wait_said("node_rank: 1, from JOB_COMPLETION_INDEX\n")
        pods[1].wait_said(f"rdzv_endpoint: {FULL.format(0)}, from this pod's full name in /etc/hosts, with index 0\n")
        job.go()
        for pod in pods.values():
            code, _, err = pod.finish()
            assert code == 0, err


def test_a_host_that_learns_its_own_name_late_leads(job):
    """The endpoint is a name of this host that no file has, and the name server does not know it yet."""
    with hosts_or_skip(3, ipv6=False) as hosts, name_server(hosts, 2, "train-0.mesh", 2, hosts.address(0)):
        agents = [job.agent(f"h{n}", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d",
                            "--rdzv-endpoint=train-0.mesh:29400", "--rdzv-conf=join_timeout=60", "--no-python", job.worker,
                            "start", "env=MASTER_ADDR", "go", prefix=hosts.enter(n)) for n in (0, 1)]
        job.events.wait("start", 2, 45, world=2)
        assert {e.fields["value"] for e in job.events.wait("env", 2)} == {hosts.address(0)}
        job.go()
        for agent in agents:
            code, _, err = agent.finish()
            assert code == 0, err
