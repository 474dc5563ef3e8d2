"""Starting over ssh, the user's side: `muster run -H a,b`. Here a few lines of Python play ssh, so all hosts are this
machine (with a real sshd: test_ssh.py)."""
import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import textwrap
import time

import pytest

from harness import MUSTER, SLOWER, Heard, children, deadline, processes_with
from hosts import hosts_or_skip

# Host names say what happens. Any other is a login, whose shell runs the command.
FAKE = r"""
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
words = sys.argv[1:]
at = words.index("--") + 1 if "--" in words else 0  # people leave it out
host, command = words[at], " ".join(words[at + 1:])
with open(os.environ["FAKE_CALLS"], "a") as f:
    f.write(" ".join(words) + "\n")
def end(status, *lines):
    for line in lines:
        sys.stderr.write(line + "\r\n")
    sys.exit(status)
if host.startswith("unknown"):
    end(255, f"ssh: Could not resolve hostname {host}: Name or service not known")
if host == "late":
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    signal.sigwait([signal.SIGALRM])
    end(255, "ssh: connect to host late port 22: No route to host")
if host == "slow":
    signal.setitimer(signal.ITIMER_REAL, 7)
    signal.sigwait([signal.SIGALRM])
if host == "refused":
    end(255, "ssh: connect to host refused port 22: Connection refused")
if host == "key":
    end(255, "@@@ WARNING @@@", "me@key: Permission denied (publickey,password).")
if host == "nologin":
    print("This account is currently not available.")
    end(1)
if host == "halves":
    os.write(1, b"half a line")
    os.close(0)
    os.close(1)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    signal.sigwait([signal.SIGALRM])
    os.write(2, b"ssh: the reason\r\n" + 28 * (200 * b"x" + b"\r\n") + b"ssh: the last line\r\n")
    os._exit(255)
if host == "nomuster":
    os.execvp("sh", ["sh", "-c", "exec /no/such/muster ssh-node"])
if host == "old":
    print("\nMUSTER-SSH 2\n", flush=True)
    signal.pause()
if host == "other":
    text = b'H{"version":"0.0.1","host":"other","pid":1,"addrs":""}'
    sys.stdout.buffer.write(b"\nMUSTER-SSH 1\n" + len(text).to_bytes(4, "little") + text)
    sys.stdout.flush()
    signal.pause()
if host == "endless":
    while True:
        print("x" * 1000)
if host == "silent":
    signal.pause()
if host == "gate":
    open(os.environ["FAKE_GATE"]).read()
if host == "nofolder":
    os.execvp("unshare", ["unshare", "-m", "sh", "-c", f"mount -t tmpfs none {os.environ['FAKE_FOLDER']} && {command}"])
if host.startswith("noisy"):
    print("Welcome!\nYou have mail.", end="", flush=True)
os.environ.update(SSH_CONNECTION="127.0.0.1 1 127.0.0.1 22", ON_HOST=host)
if "FAKE_RUN_DIRS" in os.environ:
    own, run = os.environ["FAKE_RUN_DIRS"] + host, os.environ["MUSTER_RUN_DIR"]
    for folder in own, run:
        os.makedirs(folder, 0o700, exist_ok=True)
    os.execvp("unshare", ["unshare", "-m", "sh", "-c", f"mount --bind {own} {run} && {command}"])
os.execvp("sh", ["sh", "-c", command])
"""

QUICK = ["--rdzv-conf=last_call_timeout=1"]


@pytest.fixture
def hosts(job):
    return Hosts(job)


class Hosts:
    def __init__(self, job):
        self.job = job
        self.ssh = job.tmp / "ssh"
        self.ssh.write_text(f"#!{sys.executable}\n" + textwrap.dedent(FAKE))
        self.ssh.chmod(0o755)
        self.calls = job.tmp / "calls"
        self.calls.write_text("")

    def start(self, names, *words, env=None, **more):
        more_env = {"FAKE_CALLS": self.calls, **(env or {})}
        return self.job.agent("head", f"-H{names}", f"--ssh={self.ssh}", *words, env=more_env, **more)

    def run(self, names, *words, seconds=60, **more):
        return self.start(names, *words, **more).finish(seconds)

    def workers(self, names, *words, worker=("start", "go"), **more):
        head = self.start(names, *words, "--no-python", self.job.worker, *worker, **more)
        return head


def shell(text):
    return ["--no-python", "sh", "-c", text]


def test_hosts_are_nodes(hosts):
    code, out, err = hosts.run("a,b:2", *shell("echo $RANK/$WORLD_SIZE $LOCAL_RANK $GROUP_RANK $ON_HOST $PWD"))
    assert code == 0, err
    here = hosts.job.tmp
    assert sorted(out.splitlines()) == [f"[rank0]: 0/3 0 0 a {here}", f"[rank1]: 1/3 0 1 b {here}", f"[rank2]: 2/3 1 1 b {here}"]
    calls = hosts.calls.read_text().splitlines()
    assert len(calls) == 2 and all("-T -x -o BatchMode=yes" in call for call in calls)


def test_an_operator_has_the_keys_of_all_jobs_that_were_started_here(hosts, job):
    """Twenty heads, whose hosts do not answer; one job leads on another machine."""
    keys = []
    for n in range(20):
        keys.append(job.tmp / f"key{n}")
        subprocess.run([MUSTER, "keygen", str(keys[-1])], check=True, capture_output=True)
        hosts.start("silent", f"--key-file={keys[-1]}", *shell("true"), env={"HOME": job.tmp})
    end = deadline(60)
    while len(list((job.tmp / "run").glob("key-*"))) < 20:
        assert deadline(0) < end
        subprocess.run([MUSTER, "ps"], env=job.env("operator"), check=True, capture_output=True)  # takes a while
    with hosts_or_skip(2, ipv6=False) as other:
        for key in keys[::4]:
            leader = job.agent("l", "--nnodes=1:2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=there", f"--key-file={key}",
                               f"--rdzv-endpoint={other.address(0)}:29400", "--rdzv-conf=last_call_timeout=0.2", "--no-python", job.worker,
                               "start", "go", prefix=other.enter(0), env={"MUSTER_RUN_DIR": job.tmp / "there"})
            leader.wait_said("waiting for nodes|attempt 1")
            env = {**job.env("operator"), "HOME": str(job.tmp)}
            done = subprocess.run([*other.enter(1), MUSTER, "status", f"{other.address(0)}:29400"], env=env, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            leader.signal(signal.SIGTERM)
            leader.finish()


def test_this_machine_needs_no_ssh(hosts):
    code, out, err = hosts.run("localhost,b", *shell("echo $GROUP_RANK $ON_HOST"))
    assert code == 0, err
    assert sorted(out.splitlines()) == ["[rank0]: 0", "[rank1]: 1 b"]
    assert len(hosts.calls.read_text().splitlines()) == 1


def test_what_a_login_prints_is_not_the_jobs(hosts):
    code, out, err = hosts.run("noisy1,noisy2", *shell("echo $RANK"))
    assert code == 0, err
    assert sorted(out.splitlines()) == ["[rank0]: 0", "[rank1]: 1"]


@pytest.mark.parametrize("host, said", [
    ("unknown", "host unknown: ssh: Could not resolve hostname unknown: Name or service not known"),
    ("refused", "host refused: ssh: connect to host refused port 22: Connection refused"),
    ("key", r"host key: me@key: Permission denied \(publickey,password\)\. \(a key must be enough"),
    ("nologin", "host nologin: its login ended with status 1 before muster began: This account is currently not available."),
    ("nomuster", "host nomuster: it can't run /.*: sh: .*/no/such/muster: not found"),
    ("old", "host old: muster there is another version"),
    ("other", r"host other: /\S+ is muster 0\.0\.1 there, and \S+ here"),
    ("endless", "host endless: its login prints without end"),
])
def test_a_bad_host_is_named_at_once_and_ends_the_job(hosts, host, said):
    code, out, err = hosts.run(f"a,{host},b", *shell("echo never"), seconds=15)
    assert code == 75, err
    assert re.search(rf"^muster: error: {said}", err, re.M), err
    assert "2 hosts remain, and the job needs 3: ending it" in err
    assert out == ""


def test_what_ssh_wrote_is_in_the_log_in_lines(hosts):
    """What came on its standard output is a line of its own."""
    code, _, err = hosts.run("a,halves", "-vv", *shell("true"), seconds=15)
    assert code == 75, err
    assert re.search("^muster: error: host halves: ssh: the last line$", err, re.M), err
    for line in "ssh: the reason", "ssh: the last line":
        assert f"muster: debug: ssh of host 1: {line}\n" in err, err
    assert "ssh of host 0" not in err, err


def test_hosts_from_a_pipe(hosts):
    read, write = os.pipe()
    os.write(write, b"\xef\xbb\xbfa\nb slots=2\n")
    os.close(write)
    head = hosts.job.agent("head", "--hostfile=/dev/stdin", f"--ssh={hosts.ssh}", *shell("echo $RANK/$WORLD_SIZE $ON_HOST"),
                           env={"FAKE_CALLS": hosts.calls}, stdin=read)
    os.close(read)
    code, out, err = head.finish(60)
    assert code == 0, err
    assert sorted(out.splitlines()) == ["[rank0]: 0/3 a", "[rank1]: 1/3 b", "[rank2]: 2/3 b"]


def test_what_is_said_of_the_command_line_is_said_once(hosts):
    code, _, err = hosts.run("a,b,c", "--nnodes=2", "--max-requeues=2", *shell("true"))
    assert code == 0, err
    assert err.count("only the first 2 of the 3 hosts of -H take part") == 1, err
    assert err.count("--max-requeues has no effect") == 1, err


@pytest.mark.parametrize("words", [["--ssh=ssh '"], ["--export=1A"]])
def test_mistakes_of_the_command_line(hosts, words):
    code, _, err = hosts.run("a,b", *words, *shell("true"))
    assert code == 2 and err.startswith("muster run: --"), err


def test_all_bad_hosts_are_named(hosts):
    code, _, err = hosts.run("unknown1,refused,late,key,a", *shell("true"), seconds=15)
    assert code == 75, err
    for host in "unknown1", "refused", "late", "key":
        assert f"host {host}: " in err, err
    assert "1 host remains, and the job needs 5" in err


def test_a_host_that_does_not_answer_holds_up_no_failure_for_long(hosts):
    head = hosts.start("a,silent,refused", *shell("true"))
    head.wait_said("host refused: ")
    code, _, err = head.finish(8)
    assert code == 75, err


# A shell with job control: it says when its job has stopped, and continues it when it may read a byte.
SHELL = """
import os, signal, sys
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.execvp(sys.argv[1], sys.argv[1:])
status = os.waitpid(job, os.WUNTRACED)[1]
print("stopped" if os.WIFSTOPPED(status) else "ended", flush=True)
os.read(0, 1)
os.kill(job, signal.SIGCONT)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(job, 0)[1]))
"""


def test_the_job_goes_on_while_the_head_is_stopped(hosts):
    """As after ^Z."""
    read, write = os.pipe()
    shell_ = hosts.workers("a,b", prefix=(sys.executable, "-c", SHELL), stdin=read)
    hosts.job.events.wait("start", 2)
    head = children(shell_.pid)[0]
    os.kill(head, signal.SIGTSTP)
    assert shell_.out.until(lambda: "stopped" in shell_.output(), 10)
    hosts.job.go()
    os.write(write, b"x")
    for one in read, write:
        os.close(one)
    code, _, err = shell_.finish(30)
    assert code == 0, err


def test_a_login_that_hangs_is_named(hosts):
    head = hosts.start("a,silent", *shell("true"))
    head.wait_said("host silent: its login has not started muster yet", 40)
    head.signal(signal.SIGTERM)
    assert head.finish(20)[0] == 143


def test_a_first_host_that_hangs_does_not_hold_up_the_others(hosts):
    """They meet at the next one; a login that hangs has as long as any host that is late for the start."""
    code, out, err = hosts.run("silent,a,b", "--nnodes=2:3", *QUICK, *shell("echo $RANK/$WORLD_SIZE $GROUP_RANK $ON_HOST"))
    assert code == 0, err
    assert err.count("host silent: its login has not started muster yet: the job begins without it") == 1, err
    assert sorted(out.splitlines()) == ["[rank0]: 0/2 0 a", "[rank1]: 1/2 1 b"]


def test_a_first_host_that_answers_late_takes_part(hosts):
    """As the last node, where the group grows."""
    gate = hosts.job.tmp / "gate"
    os.mkfifo(gate)
    head = hosts.workers("gate,a,b", "--nnodes=2:3", "--grow=now", *QUICK, env={"FAKE_GATE": gate})
    hosts.job.events.wait("start", 2, world=2)
    gate.write_text("open")
    starts = hosts.job.events.wait("start", 3, world=3)
    assert sorted(int(e.fields["rank"]) for e in starts) == [0, 1, 2]
    hosts.job.go()
    assert head.finish(30)[0] == 0, head.said()


@pytest.mark.slow
def test_a_first_host_that_hangs_is_named_once(hosts):
    code, out, err = hosts.run("silent,a,b", "--nnodes=2:3", *shell("echo $ON_HOST"), seconds=90)
    assert code == 0 and sorted(out.splitlines()) == ["[rank0]: a", "[rank1]: b"], err
    assert err.count("host silent: ") == 1 and "the job begins without it" in err, err


@pytest.mark.slow
def test_the_start_waits_for_no_login_that_hangs(hosts):
    """Not longer than until it is named, whatever last_call_timeout says."""
    code, out, err = hosts.run("a,silent,b", "--nnodes=2:3", "--rdzv-conf=last_call_timeout=600", *shell("echo $ON_HOST"), seconds=90)
    assert code == 0 and sorted(out.splitlines()) == ["[rank0]: a", "[rank1]: b"], err
    assert "host silent: its login has not started muster yet" in err


@pytest.mark.slow
def test_no_login_hangs_while_others_come_through(hosts):
    """Many at once are slow. One that hangs is named 15 s after the last other one."""
    begun = time.monotonic()
    head = hosts.start("a,slow,silent", "--nnodes=2:3", *shell("echo $ON_HOST"))
    head.wait_said("host silent: its login has not started muster yet", 60)
    assert time.monotonic() - begun >= 22
    code, out, err = head.finish(30)
    assert code == 0 and sorted(out.splitlines()) == ["[rank0]: a", "[rank1]: slow"], err


def test_a_login_that_hangs_is_given_up(hosts):
    code, out, err = hosts.run("silent,a", "--rdzv-conf=join_timeout=3", *shell("echo never"), seconds=60)
    assert code == 75 and out == "", err
    assert "host silent: its login has not started muster within 3 s (join_timeout)" in err, err


@pytest.mark.slow
def test_logins_that_hang_do_not_keep_others_from_being_called(hosts):
    """64 are called at a time. After 15 s the places of those that hang go to the next."""
    own = hosts.job.tmp / "ssh-or-hang"
    own.write_text(f"#!/bin/sh\ncase $* in *'-- hangs'*) exec tail -f /dev/null; esac\nexec {hosts.ssh} \"$@\"\n")
    own.chmod(0o755)
    names = ",".join(["a", *(f"hangs{n}" for n in range(64)), "b"])
    head = hosts.job.agent("head", f"-H{names}", f"--ssh={own}", "--nnodes=2:66", "--rdzv-conf=last_call_timeout=1",
                           *shell("echo $ON_HOST"), env={"FAKE_CALLS": hosts.calls})
    code, out, err = head.finish(120)
    assert code == 0 and sorted(out.splitlines()) == ["[rank0]: a", "[rank1]: b"], err


def test_the_job_goes_on_without_a_bad_host(hosts):
    code, out, err = hosts.run("unknown,other,a,b", "--nnodes=2:4", *QUICK, *shell("echo $RANK/$WORLD_SIZE $GROUP_RANK $ON_HOST"))
    assert code == 0, err
    assert "host unknown: " in err
    assert err.count("host other: ") == 1, err  # its login is killed after that
    assert sorted(out.splitlines()) == ["[rank0]: 0/2 0 a", "[rank1]: 1/2 1 b"]


def test_the_group_waits_for_no_host_that_can_not_come(hosts):
    """Also for one that fails when the others are there already, and for places that no host of the list can take."""
    code, out, err = hosts.run("unknown,a,b,late", "--nnodes=2:6", "--rdzv-conf=last_call_timeout=300",
                               *shell("echo $RANK/$WORLD_SIZE $ON_HOST"))
    assert code == 0, err
    assert "host unknown: " in err and "host late: " in err
    assert sorted(out.splitlines()) == ["[rank0]: 0/2 a", "[rank1]: 1/2 b"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_a_folder_that_a_host_lacks_is_named(hosts):
    folder = hosts.job.tmp / "only" / "here"
    folder.mkdir(parents=True)
    head = hosts.start("a,nofolder", *shell("echo never"), env={"FAKE_FOLDER": folder.parent}, prefix=("env", "-C", str(folder)))
    code, out, err = head.finish(20)
    assert code == 75, err
    assert re.search(rf"host nofolder: the working folder {folder} can't be used on \S+: No such file or directory", err), err


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_a_script_that_one_host_lacks(hosts):
    """Its agent ends before there is a group: the line says on which host, and so does the one that ends the others."""
    script = hosts.job.tmp / "only" / "train.py"
    script.parent.mkdir()
    script.write_text("")
    code, _, err = hosts.run("a,nofolder", script, env={"FAKE_FOLDER": script.parent})
    assert code == 2, err
    assert f"muster: error: {socket.gethostname()}: SCRIPT {script}: No such file or directory\n" in err, err
    assert "host nofolder: muster ended there with status 2, and the others are too few: ending the job" in err, err
    assert "SIGTERM" not in err, err


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_a_script_that_the_first_host_lacks(hosts):
    """Nobody else can lead, so the others are not waited for."""
    script = hosts.job.tmp / "only" / "train.py"
    script.parent.mkdir()
    script.write_text("")
    code, _, err = hosts.run("nofolder,a,b", "--nnodes=2:3", script, env={"FAKE_FOLDER": script.parent})
    assert code == 2, err
    assert "host nofolder: muster ended there with status 2, and the others meet there: ending the job\n" in err, err
    hosts.job.all_gone(3)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_an_environment_that_one_host_lacks(hosts):
    """There the workers run with another python, so that is told."""
    venv = hosts.job.tmp / "only" / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text("")
    python = venv / "bin" / "python3"
    python.symlink_to(sys.executable)
    script = hosts.job.tmp / "train.py"
    script.write_text("")
    code, _, err = hosts.run("a,nofolder", script, env={"FAKE_FOLDER": venv.parent, "PATH": f"{venv}/bin:{os.environ['PATH']}"})
    assert code == 0, err
    told = [line for line in err.splitlines() if "warning" in line]
    assert len(told) == 1, err
    assert re.fullmatch(rf"muster: warning: {socket.gethostname()}: there is no {python} here, as where the job was started: "
                        r"/\S+ runs the workers", told[0]), err


def test_ps_shows_the_line_that_was_written(hosts):
    """Root also sees jobs of other tests."""
    head = hosts.workers("a,b", "--nnodes=2")
    hosts.job.events.wait("start", 2)
    done = subprocess.run([MUSTER, "ps", "--json"], env=hosts.job.env("ps"), capture_output=True, text=True, timeout=60 * SLOWER)
    agents = [one for one in json.loads(done.stdout)["agents"] if f" --ssh={hosts.ssh} " in (one["command"] or "")]
    assert len(agents) == 2, done
    run_id = agents[0]["run_id"]
    heads = [one for one in json.loads(done.stdout)["heads"] if one["run_id"] == run_id]
    assert [one["nodes"] for one in heads] == [2], done
    text = subprocess.run([MUSTER, "ps"], env=hosts.job.env("ps"), capture_output=True, text=True, timeout=60 * SLOWER).stdout
    mine = [line for line in text.splitlines() if line.startswith(run_id)]
    assert len(mine) == 2 and " starter " not in "".join(mine), text
    for agent in agents:
        assert re.search(r" run -Ha,b --ssh=\S+ --nnodes=2 --no-python ", agent["command"]), agent
    hosts.job.go()
    assert head.finish(30)[0] == 0


def ask(hosts, *words):
    return subprocess.run([MUSTER, *words], env=hosts.job.env("operator", {"FAKE_CALLS": hosts.calls, **run_dirs(hosts)}),
                          capture_output=True, text=True, timeout=60 * SLOWER)


def run_dirs(hosts):
    """What each host knows of, as if it were another machine than the head's."""
    return {"FAKE_RUN_DIRS": str(hosts.job.tmp / "run-")}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a mount namespace")
@pytest.mark.parametrize("command", ["status", "stacks far", "status --watch --json", "exclude b", "leave"])
def test_who_asks_where_only_the_head_is_gets_the_line_to_ask_with(hosts, command):
    head = hosts.workers("a,b", "--rdzv-id=far", "--nnodes=2", env=run_dirs(hosts))
    hosts.job.events.wait("start", 2)
    done = ask(hosts, *command.split())
    [pid] = [one["pid"] for one in json.loads(ask(hosts, "ps", "--json").stdout)["heads"] if one["run_id"] == "far"]
    words = command.removesuffix(" far").split(" --")[0]
    said = rf"muster: error: the job 'far' was started here by process {pid}, and runs on other machines \(2 nodes\); " \
           rf"ask on one of its nodes:\n  ({re.escape(str(hosts.ssh))} a {re.escape(MUSTER)} {words})\n"
    line = re.fullmatch(said, done.stderr)
    assert (done.returncode, done.stdout) == (1, "") and line, done
    if command == "status":
        there = subprocess.run(line[1], shell=True, env=hosts.job.env("operator", {"FAKE_CALLS": hosts.calls, **run_dirs(hosts)}),
                               capture_output=True, text=True, timeout=60 * SLOWER)
        assert there.returncode == 0 and "2 workers" in there.stdout, there
    hosts.job.go()
    assert head.finish(30)[0] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a mount namespace")
def test_stop_where_only_the_head_is_ends_the_job(hosts):
    """Of two jobs one has to be named."""
    head = hosts.workers("a,b", "--rdzv-id=far", "--nnodes=2", worker=("start", "wait"), env=run_dirs(hosts))
    hosts.job.events.wait("start", 2)
    other = hosts.workers("c,d", "--rdzv-id=near", "--nnodes=2", env=run_dirs(hosts))
    hosts.job.events.wait("start", 4)
    done = ask(hosts, "stop")
    assert done.returncode == 1 and re.search(r"several jobs on other machines were started from here.*:\n"
                                              r"  muster stop far\n  muster stop near\n", done.stderr), done
    done = ask(hosts, "stop", "--rdzv-id=far", "--reason=enough")
    assert done.returncode == 0 and "the job is being stopped by process " in done.stdout, done
    assert "--reason is ignored: the job is stopped with SIGTERM" in done.stderr, done
    code, _, err = head.finish(60)
    assert code == 128 + signal.SIGTERM and "got SIGTERM: stopping the job" in err, (code, err)
    done = ask(hosts, "stop", "--rdzv-id=far")
    assert done.returncode == 1 and "error: 'far' is over: the job was stopped by SIGTERM\n" in done.stderr, done
    hosts.job.go()
    assert other.finish(30)[0] == 0
    done = ask(hosts, "status", "--json", "nea")
    seen = json.loads(done.stdout)
    assert (seen["run_id"], seen["state"], seen["outcome"]) == ("near", "closed", "success"), done


def test_a_failure_whose_output_is_in_files_is_reported_once(hosts):
    """The one that leads has the last lines of other nodes' workers. The folder that is not there yet is no bad disk."""
    _, _, err = hosts.run("a,b", "-r3", "--log-dir=logs/new", *shell("[ $RANK = 0 ] || { echo oops >&2; exit 7; }"),
                          prefix=("env", "-C", str(hosts.job.tmp)))
    assert err.count("Root Cause") == 1, err
    assert err.count("oops") == 1, err
    assert "DISK-BAD" not in err, err


@pytest.mark.parametrize("words, status", [((), 1), (("--exit-code=worker",), 7)])
def test_the_status_is_the_jobs(hosts, words, status):
    code, _, err = hosts.run("a,b", *words, *shell("[ $RANK = 0 ] || exit 7"))
    assert code == status, err
    assert err.count("Root Cause") == 1


def test_a_job_that_recovers_ends_well(hosts):
    code, _, err = hosts.run("a,b", "--max-restarts=1", *shell("[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit $RANK"))
    assert code == 0, err


def test_an_agent_that_can_not_begin_ends_the_others(hosts):
    """As where a host has no python: the others would wait for it for ten minutes."""
    code, _, err = hosts.run("a,b", "--nproc-per-node=gpu", *shell("true"), seconds=30)
    assert code == 2, err


def test_output_of_hosts_is_whole_and_in_lines(hosts):
    lines = 20000
    text = f"i=0; while [ $i -lt {lines} ]; do echo $RANK line $i and some more text; i=$((i+1)); done"
    code, out, err = hosts.run("a,b,c", *shell(text))
    assert code == 0, err
    seen = {0: [], 1: [], 2: []}
    for line in out.splitlines():
        found = re.fullmatch(r"\[rank(\d)\]: (\d) line (\d+) and some more text", line)
        assert found and found[1] == found[2], line
        seen[int(found[1])].append(int(found[3]))
    assert all(seen[rank] == list(range(lines)) for rank in seen)


PROMPTS = r"""
import os, sys, time
fifo = open(sys.argv[1 + int(os.environ["RANK"])])
for _ in iter(fifo.readline, "end\n"):
    print("at", time.monotonic(), end=" ", flush=True)
print("rest")
"""


def test_a_line_without_an_end(hosts):
    """Its host waits for the end, the head does not wait again; what comes after another host's line has its prefix."""
    fifos = [hosts.job.tmp / name for name in ("0", "1")]
    fds = [os.mkfifo(fifo) or os.open(fifo, os.O_RDWR) for fifo in fifos]
    head = hosts.start("a,b", "--no-python", sys.executable, "-c", PROMPTS, *fifos)

    def delay(i):
        os.write(fds[0], b"at\n")
        assert head.out.until(lambda: head.out.raw.count(b"at ") > i, 60), head.said()
        return time.monotonic() - float(re.findall(rb"at ([\d.]+) ", head.out.raw)[i])
    assert any(delay(i) < 0.29 * SLOWER for i in range(20)), head.out.text()
    for n, fd in enumerate(reversed(fds), 1):
        os.write(fd, b"end\n")
        assert head.out.until(lambda: head.out.raw.count(b"rest\n") == n, 60), head.said()
        os.close(fd)
    assert head.finish()[0] == 0, head.said()
    assert re.search(r"\[rank0\]: at .* \n\[rank1\]: rest\n\[rank0\]: rest\n", head.out.text()), head.out.text()


def hear(fd, count):
    """So many bytes of a FIFO."""
    heard, end = b"", deadline(60)
    while len(heard) < count:
        assert select.select([fd], [], [], max(0, end - time.monotonic()))[0], f"only {heard} came"
        heard += os.read(fd, count - len(heard))
    return heard


def test_a_slow_reader_loses_nothing(hosts):
    out_r, out_w = os.pipe()
    done = hosts.job.tmp / "done"
    os.mkfifo(done)
    done_fd = os.open(done, os.O_RDWR)
    head = hosts.start("a,b", *shell("i=0; while [ $i -lt 30000 ]; do echo $i 0123456789012345678901234567890123456789; "
                                     f"i=$((i+1)); done; echo $RANK > {done}"), stdout=out_w)
    os.close(out_w)
    assert sorted(hear(done_fd, 4)) == sorted(b"0\n1\n")  # the workers don't wait for a reader
    os.close(done_fd)
    assert head.process.poll() is None
    heard = Heard(out_r)
    assert head.wait(60) == 0, head.said()
    heard.until(lambda: heard.ended, 10)
    lines = heard.text().splitlines()
    heard.join()
    assert len(lines) == 60000 and all(re.fullmatch(r"\[rank[01]\]: \d+ [0-9]{40}", line) for line in lines)


def unread(hosts, before, **more):
    """Starts a job that writes without end what nobody reads: (head, the pipe's end). What a worker has said may be behind
    that, so a FIFO tells that it has run `before`."""
    out_r, out_w = os.pipe()
    ready = hosts.job.tmp / "ready"
    os.mkfifo(ready)
    ready_fd = os.open(ready, os.O_RDWR)
    head = hosts.start("a,b", "--shutdown-timeout=1", *shell(f"{before}; echo > {ready}; exec timeout 300 yes"), stdout=out_w,
                       **{name: out_w for name in more})
    os.close(out_w)
    assert hear(ready_fd, 2) == b"\n\n"
    os.close(ready_fd)
    assert select.select([out_r], [], [], 30 * SLOWER)[0]
    return head, out_r


def test_a_signal_ends_a_job_whose_reader_has_stopped(hosts):
    """Whatever waits on the hosts: here 100 MB on each, of which none is sent any more."""
    head, out_r = unread(hosts, "yes $(printf %0100d 1) | head -c 100M")
    begin = time.monotonic()
    head.signal(signal.SIGTERM)
    code, _, err = head.finish(30)
    assert code == 143, err
    assert "killing the job" not in err and time.monotonic() < begin + 8 * SLOWER
    assert err.count("standard output is not read; discarding the rest") == 1 and "can't write" not in err, err
    os.close(out_r)


def test_a_reader_of_both_that_has_stopped(hosts):
    """As with `2>&1 | less`: what the head itself has to say holds it up no more than what workers write."""
    head, out_r = unread(hosts, "yes | head -c 2M", stderr=True)
    fd = os.open(f"/proc/self/fd/{out_r}", os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):  # the last page has room for short lines
        while True:
            os.write(fd, b"x")
    os.close(fd)
    head.signal(signal.SIGTERM)
    assert head.wait(60) == 143
    os.close(out_r)


def test_a_reader_that_goes_ends_nothing(hosts):
    out_r, out_w = os.pipe()
    head = hosts.start("a,b", *shell("i=0; while [ $i -lt 30000 ]; do echo $i; i=$((i+1)); done"), stdout=out_w)
    os.close(out_w)
    os.close(out_r)
    assert head.wait(60) == 0, head.said()


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_job_on_all_hosts(hosts, signo):
    head = hosts.workers("a,b:2")
    hosts.job.events.wait("start", 3)
    head.signal(signo)
    code, _, err = head.finish(20)
    assert code == 128 + signo, err
    name = signal.Signals(signo).name
    assert [line for line in err.splitlines() if "SIG" in line or "stop" in line] == [
        f"muster: got {name}: stopping the job (up to 30 s)"], err
    hosts.job.all_gone(1)


def test_a_second_interrupt_kills(hosts):
    head = hosts.workers("a,b,c,d", "--nnodes=1:4", *QUICK, worker=("start", "ignore", "go"))
    hosts.job.events.wait("start", 4)
    head.signal(signal.SIGINT)
    head.wait_said("stopping the job")
    head.signal(signal.SIGINT)
    code, _, err = head.finish(20)
    assert code == 130, err
    assert err.splitlines()[-1] == "muster: killing the job on all hosts", err
    hosts.job.all_gone(2)


def test_a_killed_head_leaves_nothing(hosts):
    head = hosts.workers("a,b:2")
    hosts.job.events.wait("start", 3)
    head.signal(signal.SIGKILL)
    head.wait(10)
    hosts.job.all_gone(3)


def test_a_host_that_is_lost_ends_a_job_that_needs_it(hosts):
    head = hosts.workers("a,b")
    hosts.job.events.wait("start", 2)
    lost = [pid for pid in children(head.pid) if b"ON_HOST=b" in environ(pid)]
    assert len(lost) == 1
    os.kill(lost[0], signal.SIGKILL)
    code, _, err = head.finish(30)
    assert code == 75, err
    assert re.search(r"host b: its ssh was killed by signal 9", err), err
    hosts.job.all_gone(3)


def test_a_silent_host_holds_up_no_end(hosts):
    """As where its power was cut: the group goes on without it, and its ssh notices nothing for minutes."""
    head = hosts.workers("a,b,c", "--nnodes=2:3", "--lease=2", "--heartbeat-interval=0.3", *QUICK)
    hosts.job.events.wait("start", 3)
    for pid in processes_with(b"ON_HOST=c"):
        if hosts.job.mark.encode() in environ(pid):
            os.kill(pid, signal.SIGSTOP)
    hosts.job.events.wait("start", 5)
    hosts.job.go()
    code, _, err = head.finish(15)
    assert code == 0, err
    assert "killing the job" not in err


def environ(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            return f.read()
    except OSError:
        return b""


@pytest.mark.parametrize("what", ["ssh", "agent"])
def test_the_first_host_is_lost(hosts, what):
    """The others meet there. It is said what would have saved the job."""
    head = hosts.workers("a,b,c", "--nnodes=2:3", *QUICK)
    hosts.job.events.wait("start", 3)
    ssh = next(pid for pid in children(head.pid) if b"ON_HOST=a" in environ(pid))
    os.kill(ssh if what == "ssh" else children(ssh)[0], signal.SIGKILL)
    code, _, err = head.finish(30)
    assert code == 75, err
    assert "the other hosts meet at this host: ending the job (with --rdzv-endpoint=dir:/PATH, " in err, err
    hosts.job.all_gone(3)


def relay_of(head, host):
    return next(pid for pid in children(head.pid) if f"ON_HOST={host}".encode() in environ(pid))


@pytest.mark.parametrize("signo", [signal.SIGKILL, signal.SIGSEGV])
def test_the_first_host_and_another_are_lost(hosts, signo):
    """The other agent dies first; the one that leads does not live to report it."""
    head = hosts.workers("a,b", "--nnodes=2")
    hosts.job.events.wait("start", 2)
    first, other = children(relay_of(head, "a"))[0], relay_of(head, "b")
    ended = os.pidfd_open(other)
    os.kill(children(first)[0], signal.SIGSTOP)
    os.kill(children(children(other)[0])[0], signo)
    assert select.select([ended], [], [], 20)[0]
    os.close(ended)
    os.kill(first, signal.SIGKILL)
    code, _, err = head.finish(30)
    assert code == 75, err
    hosts.job.all_gone(3)


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("what", ["relay", "guardian", "agent"])
def test_a_signal_on_the_first_host_is_reported(hosts, what, signo):
    """The relay passes SIGTERM on for each signal that ends it."""
    head = hosts.workers("a,b", "--nnodes=2", worker=("start", "wait"))
    hosts.job.events.wait("start", 2)
    relay = relay_of(head, "a")
    guardian = children(relay)[0]
    os.kill({"relay": relay, "guardian": guardian, "agent": children(guardian)[0]}[what], signo)
    code, _, err = head.finish(30)
    passed = signal.SIGTERM if what == "relay" else signo
    assert code == 128 + passed, err
    assert len(re.findall(rf"^muster: muster on host \S+ was stopped by {passed.name}: stopping 1 worker ", err, re.M)) == 1, err


@pytest.mark.parametrize("what", ["relay", "guardian", "agent"])
def test_a_signal_on_another_host_is_reported(hosts, what):
    head = hosts.workers("a,b", "--nnodes=2", worker=("start", "wait"))
    hosts.job.events.wait("start", 2)
    relay = relay_of(head, "b")
    guardian = children(relay)[0]
    os.kill({"relay": relay, "guardian": guardian, "agent": children(guardian)[0]}[what], signal.SIGHUP)
    code, _, err = head.finish(30)
    assert code != 0 and re.search(rf"node \S+ was stopped by {'SIGTERM' if what == 'relay' else 'SIGHUP'}", err), err


def test_a_head_in_a_job_of_slurm_does_not_know_its_time(hosts):
    head = hosts.workers("a,b", env={"SLURM_JOB_ID": "1"})
    hosts.job.events.wait("start", 2)
    head.signal(signal.SIGTERM)
    code, _, err = head.finish(20)
    assert code == 143 and "got SIGTERM: stopping the job\n" in err, err


def test_usr1_is_for_the_workers(hosts):
    head = hosts.start("a,b", *shell("trap 'echo got $RANK; exit 0' USR1; echo ready; while :; do sleep 0.1; done"))
    head.out.until(lambda: head.output().count("ready") == 2, 30)
    head.signal(signal.SIGUSR1)
    code, out, err = head.finish(30)
    assert code == 0, err
    assert "[rank0]: got 0" in out and "[rank1]: got 1" in out


def test_what_follows_in_a_script_is_not_the_jobs(hosts):
    read, write = os.pipe()
    os.write(write, b"the next line\n")
    os.close(write)
    code, out, err = hosts.run("a,b", *shell("cat; echo $RANK"), stdin=read)
    assert code == 0, err
    assert sorted(out.splitlines()) == ["[rank0]: 0", "[rank1]: 1"]
    assert os.read(read, 100) == b"the next line\n"
    os.close(read)


def test_hosts_are_shown(hosts):
    code, out, err = hosts.run("me@a:2,b", "--print-config", "x")
    assert code == 0, err
    assert '"hosts": ["me@a:2", "b"],' in out and "2 in all, from -H" in out
    assert hosts.calls.read_text() == ""
