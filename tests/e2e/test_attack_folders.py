"""Another user of the same machine was there first: folders, files, links and sockets of names that muster uses. What the
other has made is not used, nothing is written into it, and a sentence says so; or the job runs as if it were not there."""
import os
import re
import stat
import subprocess

import pytest

import harness
from harness import MUSTER
from test_attack import OTHER, as_other

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or as_other(MUSTER, "--version")[0] != 0,
                                reason="needs root, and a muster that other users can run")


@pytest.fixture
def common(tmp_path_factory):
    """A folder like /tmp, which the other user reaches."""
    folder = tmp_path_factory.mktemp("common")
    folder.chmod(0o1777)
    for above in folder.parents:
        if above.stat().st_uid == 0 and not above.stat().st_mode & stat.S_IXOTH:
            above.chmod(above.stat().st_mode | stat.S_IXOTH)
    return folder


def squat(how, path, target=None):
    """What the other user has made there; the folder in which something could appear."""
    target = target or path.parent / "others"
    line = {"folder": f"mkdir -m 777 '{path}'", "link": f"mkdir -m 777 '{target}' && ln -s '{target}' '{path}'",
            "file": f"umask 0; echo mine >'{path}'", "fifo": f"mkfifo -m 666 '{path}'"}[how]
    code, _, err = as_other("/bin/sh", "-c", line)
    assert code == 0, err
    return path if how == "folder" else target if how == "link" else None


def entries(folder):
    return [] if folder is None else [str(p) for p in folder.rglob("*")]


def run(job, *words, env=None):
    job.go()
    return job.run("--nnodes=1", "--nproc-per-node=1", *words, "--no-python", job.worker, "start", "go", env=env)


@pytest.mark.parametrize("how", ["folder", "link", "file", "fifo"])
def test_a_squatted_run_directory_is_not_used(job, common, how):
    place = squat(how, common / "run")
    code, _, err = run(job, "--standalone", env={"MUSTER_RUN_DIR": common / "run"})
    assert code == 0 and entries(place) == [], err  # only operators don't find it, who are told why
    for command in "ps", "status":
        done = subprocess.run([MUSTER, command], env={**job.env("operator"), "MUSTER_RUN_DIR": str(common / "run")},
                              capture_output=True, text=True)
        assert done.returncode == 1 and f"the run directory {common}/run" in done.stderr and entries(place) == [], done.stderr


@pytest.mark.parametrize("how", ["folder", "link", "file", "fifo"])
def test_a_squatted_job_folder_is_not_used(job, common, how):
    """Neither the key nor the epochs of a dir: job are written there."""
    place = squat(how, common / "muster-net")
    code, _, err = run(job, f"--rdzv-endpoint=dir:{common}", "--rdzv-id=net")
    assert code == 2 and entries(place) == [], err
    assert re.search(f"{common}/muster-net.*(belongs to another user|Not a directory|Too many levels)", err), err


def test_a_job_folder_in_another_user_s_is_not_used(job, common):
    squat("folder", common / "theirs")
    code, _, err = run(job, f"--rdzv-endpoint=dir:{common}/theirs", "--rdzv-id=net")
    assert code == 2 and "belongs to another user" in err and "who could take this job's folder away" in err, err


@pytest.mark.parametrize("how", ["folder", "link"])
def test_a_squatted_log_folder_is_not_used(job, common, how):
    place = squat(how, common / "logs")
    code, _, err = run(job, "--standalone", f"--log-dir={common}/logs", "--redirects=3")
    assert code == 0 and entries(place) == [], err  # as with a full disk, the job is worth more than its logs
    assert f"the logs can't be below {common}/logs: {common}/logs belongs to another user (uid {OTHER})" in err, err


@pytest.mark.parametrize("how", ["link", "file", "fifo"])
def test_a_squatted_event_log_is_not_written(job, common, how):
    target = common / "target"
    if how == "link":
        code, _, err = as_other("/bin/sh", "-c", f"ln -s '{target}' '{common}/events'")
        assert code == 0, err
    else:
        squat(how, common / "events")
    code, _, err = run(job, "--standalone", f"--event-log={common}/events")
    assert code != 0 and "events belongs to another user" in err and not target.exists(), err
    if how == "file":
        assert (common / "events").read_text() == "mine\n"


@pytest.mark.parametrize("how", ["folder", "link", "file"])
def test_a_squatted_key_is_not_used(job, common, how):
    path = common / "key"
    if how == "file":
        squat("file", path)
    elif how == "link":
        code, _, err = as_other("/bin/sh", "-c", f"umask 077; echo muster-key-1:{'07' * 32} >'{common}/theirs'; ln -s theirs '{path}'")
        assert code == 0, err
    else:
        squat("folder", path)
    code, _, err = run(job, "--rdzv-backend=c10d", f"--rdzv-endpoint=10.88.0.1:{harness.free_port()}", f"--key-file={path}")
    assert code == 2 and re.search("belongs to another user|is not a regular file", err), err


def test_temporary_folders_have_names_that_nobody_guesses(job, common):
    """Two jobs in a folder like /tmp have different ones, which only their user may enter."""
    seen = set()
    for n in range(2):
        agent = job.agent(f"t{n}", "--nnodes=1", "--nproc-per-node=1", "--standalone", "--no-python", job.worker, "start", "go",
                          env={"TMPDIR": common})
        job.events.wait("start", n + 1)
        made = [path for path in common.iterdir() if path.name not in seen]
        assert made and all(stat.S_IMODE(path.stat().st_mode) == 0o700 for path in made), made
        seen.update(path.name for path in made)
        agent.signal(15)
        agent.finish()
    assert len(seen) == 2, seen


def notify_socket(pid):
    """The abstract socket by which workers of this agent speak to it."""
    inodes = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd") if os.path.islink(f"/proc/{pid}/fd/{fd}")}
    with open("/proc/net/unix", encoding="ascii", errors="replace") as f:
        for line in f.read().splitlines()[1:]:
            words = line.split()
            if len(words) == 8 and words[7].startswith("@muster-notify-") and f"socket:[{words[6]}]" in inodes:
                return words[7]
    raise AssertionError("no such socket")


SPEAK = """
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.setblocking(False)
n = 0
for i in range(20000):
    for text in (b"MUSTER_SAFE_POINT=1", b"READY=1", b"STOPPING=1", b"WATCHDOG=trigger", b"STATUS=" + bytes(200), bytes(3000)):
        try:
            s.sendto(text, chr(0) + sys.argv[1][1:])
            n += 1
        except BlockingIOError:
            pass
print(n)
"""


def test_what_another_user_says_to_the_workers_socket_does_not_count(job):
    """100,000 messages, while the worker says one of its own."""
    agent = job.agent("a", "--nnodes=1", "--nproc-per-node=1", "--standalone", "--no-python", job.worker, "start", "go")
    job.events.wait("start", 1)
    name = notify_socket(agent.agent_pid())
    code, out, err = as_other("/usr/bin/python3", "-c", SPEAK, name)
    assert code == 0 and int(out) > 100, (out, err)
    assert harness.alive(agent.pid)
    job.go()
    code, _, err = agent.finish()
    assert code == 0 and len(job.events.all("start")) == 1 and "warning" not in err, err


def test_a_port_that_another_user_holds_gets_no_node(job):
    """A rogue leader at the endpoint, on this machine: its node tells it nothing, and says whose it is."""
    port = harness.free_port()
    rogue = (harness.HERE / "rogue.py").read_text().replace("from attacker import CALL, exactly, frame, message",
                                                            (harness.HERE / "attacker.py").read_text().split("def main")[0])
    for words, obeyed in ([], False), (["--auth=none"], True):
        with subprocess.Popen(["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups", "/usr/bin/python3", "-c", rogue, "lead",
                               str(port)], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd="/", text=True) as leader:
            assert leader.stdout.readline() == '"up"\n'
            code, _, err = job.run("--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
                                   "--rdzv-id=net", "--rdzv-conf=join_timeout=3,read_timeout=2,is_host=0", *words, "--no-python",
                                   job.worker, "start", "go")
            leader.kill()
            heard = leader.stdout.read()
        assert code == 75 and ("JOIN" in heard) == obeyed, (heard, err)
        assert obeyed or f"belongs to another user of this machine (uid {OTHER}): choose another port" in err, err
