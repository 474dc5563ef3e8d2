"""Start by ssh: `muster run -H a,b:2 train.py` on emulated hosts, each with a real sshd of its own (sshd.py)."""
import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import stat
import time

import pytest

import harness
from eavesdrop import Wire, shown
from harness import TORCH_PYTHON, children, deadline
from slurm import pause
from sshd import sshd_or_skip, title_of
from test_slurm import TELLS

MUSTER = str(pathlib.Path(harness.MUSTER).resolve())
RUN = [MUSTER, "run"]
# Found on each host, but another folder there: the run directory of a real host is its own, too.
RUN_DIR = "/dev/shm/muster"
# A host's name is the last part of its user's home folder.
SHOW = ("start", "env=HOME", "go")
# ssh's own last line for the entries that are no good hosts.
BAD = {"refused": "port 9: Connection refused", "liar": "Host key verification failed", "locked": "Permission denied",
       "nowhere": "Could not resolve hostname nowhere", "absent": "No route to host"}


@pytest.fixture(scope="module")
def four():
    with sshd_or_skip(4) as cluster:
        yield cluster


@pytest.fixture
def cluster(four):
    four.settle()
    return four


@pytest.fixture
def here(cluster, job):
    return Here(cluster, job)


class Here:
    """A cluster, and the programs that a test starts on its login host."""

    def __init__(self, cluster, job):
        self.cluster, self.job = cluster, job
        self.tells = job.tmp / "tells.py"
        self.tells.write_text(TELLS)

    def env(self, more=None):
        home = str(self.cluster.home("login"))
        return {"MUSTER_RUN_DIR": RUN_DIR, "HOME": home, "PYTHON_EXEC": "/usr/bin/python3", **(more or {})}

    def line(self, hosts, *words, worker=SHOW):
        """The words of `muster run`, with C workers; worker=None: with the Python program that tells; or a shell's line."""
        what = [str(self.tells)] if worker is None else ["--no-python", "sh", "-c", worker] if isinstance(worker, str) \
            else ["--no-python", self.job.worker, *worker]
        return [*RUN, *(["-H", hosts] if hosts else []), *map(str, words), *what]

    def start(self, hosts, *words, worker=SHOW, env=None, folder=None, **more):
        """Starts it on the login host."""
        line = self.cluster.client(*self.line(hosts, *words, worker=worker), folder=folder or self.job.tmp)
        return self.job.agent("a", env=self.env(env), program=line, **more)

    def run(self, hosts, *words, seconds=60, **more):
        """Runs it to its end: (status, stdout, stderr)."""
        return self.start(hosts, *words, **more).finish(seconds)

    def workers(self, world, seconds=30):
        """Waits for a whole group of this size. Returns the host of each rank, in their order."""
        starts = self.job.events.wait("start", world, seconds, world=world)
        assert sorted(int(e.fields["rank"]) for e in starts) == list(range(world)), starts
        told = self.job.events.wait("env", world)
        return [pathlib.Path(e.fields["value"]).name for e in sorted(told, key=lambda e: int(e.fields["rank"]))]

    def on(self, *counts):
        """The hosts of the ranks, if so many are on each host, in the order of hosts."""
        return [name for name, count in zip(self.cluster.names, counts) for _ in range(count)]

    def told(self, number, seconds=30):
        """Waits until so many workers that tell run."""
        self.job.events.wait("start", number, seconds)

    def head(self, agent):
        """The pid of the starter: the process whose children are ssh."""
        found = [pid for pid in self.below(agent.pid) if any(self.is_ssh(child) for child in children(pid))]
        assert len(found) == 1, f"{found} {agent.said()}"
        return found[0]

    def ssh(self, agent):
        """The pids of the starter's ssh, {host: pid}."""
        found = {}
        for pid in filter(self.is_ssh, children(self.head(agent))):
            words = title_of(pid).split()
            found[next(name for name in words if name in self.cluster.names)] = pid
        return found

    @staticmethod
    def is_ssh(pid):
        with contextlib.suppress(OSError):
            return pathlib.Path(f"/proc/{pid}/comm").read_text() == "ssh\n"
        return False

    def below(self, pid):
        for child in children(pid):
            yield child
            yield from self.below(child)

    def find(self, n, what):
        """The only process of host n whose title matches."""
        found = [pid for pid in self.cluster.started(n) if re.search(what, title_of(pid))]
        assert len(found) == 1, f"{what}: {[title_of(pid) for pid in self.cluster.started(n)]}"
        return found[0]

    def ends_well(self, agent, seconds=60):
        self.job.go()
        code, out, err = agent.finish(seconds)
        assert code == 0, f"{code}\n{out}{err}\n{self.cluster.logs()}"
        self.gone()
        return out, err

    def gone(self, seconds=5):
        """Nothing runs on any host but its sshd."""
        self.cluster.wait_left(seconds)


# ---- the cluster itself ----

def test_hosts_that_can_be_reached(cluster):
    """Without a password and without a question, each by its name; and hosts that are bad in each way."""
    said = [cluster.run("ssh", name, "hostname; echo $SSH_CONNECTION; echo $HOME").stdout.split() for name in cluster.names]
    assert [words[0] for words in said] == cluster.names
    assert [words[3] for words in said] == [cluster.address(n) for n in range(4)]
    assert len({words[5] for words in said}) == 4, "each host has a home folder of its own"
    assert cluster.run("ssh", "-p", "2222", "me@node1", "echo $USER").stdout == "me\n"
    for bad, reason in BAD.items():
        done = cluster.run("ssh", "-o", "BatchMode=yes", bad, "true", check=False)
        assert done.returncode == 255 and re.search(reason, done.stderr.splitlines()[-1]), f"{bad}: {done.stderr}"
    cluster.wait_left(5)


def test_the_cluster_is_as_new_after_faults(cluster):
    cluster.set_shell("node1", "/bin/false")
    assert cluster.run("ssh", "node1", "true", check=False).returncode == 1
    cluster.crash(1)
    cluster.kill_sshd(2, listener=True)
    cluster.cut(3)
    assert cluster.run("ssh", "-o", "ConnectTimeout=1", "node4", "true", check=False).returncode == 255
    cluster.settle()
    for name in cluster.names:
        cluster.run("ssh", name, "true")


# ---- which hosts, and what runs there ----

@pytest.mark.parametrize("hosts, counts", [("node1,node2", (1, 1)), ("node1,node2:2", (1, 2)), ("node[1-4]:2", (2, 2, 2, 2)),
                                           ("node3:2,node1", (1, 0, 2))])
def test_a_list_of_hosts(here, hosts, counts):
    """Ranks are in the order of the list. The job is over when the workers are, with 0."""
    agent = here.start(hosts)
    expected = here.on(*counts)
    if hosts.startswith("node3"):
        expected = ["node3", "node3", "node1"]
    assert here.workers(sum(counts)) == expected
    here.ends_well(agent)


def test_a_port_in_the_list_of_hosts_starts_no_workers(here):
    """node1:2222 means 2222 workers; that many need to be confirmed."""
    code, _, err = here.run("node1,node2:2222")
    assert code != 0 and '2222 workers for' in err and '--ssh "ssh -p 2222"' in err, err
    assert not here.job.events.all("start")


@pytest.mark.parametrize("text, counts", [
    ("node1 slots=2 max_slots=4\nnode2 slots=1   # Open MPI\n", (2, 1)),
    ("node1:2\nnode2:1\n", (2, 1)),
    ("node1 slots=2\nnode2 slots=2\nnode3 slots=1\n", (2, 2, 1)),
    ("node[1-3]\n", (1, 1, 1)),
    ("node1\nnode1\nnode2\n", (2, 1)),
])
def test_a_host_file(here, text, counts):
    path = here.job.tmp / "hosts"
    path.write_text(text)
    agent = here.start(None, "--hostfile", path)
    assert here.workers(sum(counts)) == here.on(*counts)
    here.ends_well(agent)


def test_some_hosts_of_a_file(here):
    path = here.job.tmp / "hosts"
    path.write_text("node1 slots=2\nnode2 slots=2\nnode3 slots=2\n")
    agent = here.start(None, "--hostfile", path, "--exclude", "node2")
    assert here.workers(4) == here.on(2, 0, 2)
    here.ends_well(agent)


def test_chosen_gpus(here):
    path = here.job.tmp / "hosts"
    path.write_text("node1 slots=4\nnode2 slots=4\n")
    say = "echo $RANK ${HOME##*/} ${CUDA_VISIBLE_DEVICES-unset}"
    code, out, err = here.run(None, "--hostfile", path, "--include", "node1:0,2@node2:3", worker=say)
    assert code == 0, err
    shown = sorted(re.sub(r"^\[rank\d+\]: ", "", line) for line in out.splitlines())
    assert shown == ["0 node1 0,2", "1 node1 0,2", "2 node2 3"], out + err
    here.gone()


def test_user_and_port(here):
    path = here.job.tmp / "hosts"
    path.write_text("node1 user=me port=2222\nnode2\n")
    code, out, err = here.run(None, "--hostfile", path, worker="echo $USER ${SSH_CONNECTION##* }")
    assert code == 0 and sorted(line.partition(": ")[2] for line in out.splitlines()) == ["me 2222", "root 22"], out + err


def test_the_users_own_words_win(here):
    """Workers, endpoint and run id of the command line are on each node what they are on one."""
    code, out, err = here.run("node1:4,node2:4", "--nproc-per-node=2", "--rdzv-id=mine",
                              worker="echo $LOCAL_WORLD_SIZE $WORLD_SIZE $MUSTER_RUN_ID $TORCHELASTIC_RUN_ID")
    assert code == 0, err
    assert [line.partition(": ")[2] for line in out.splitlines()] == ["2 4 mine mine"] * 4, out
    here.gone()


def test_this_machine_as_a_host(here):
    """`localhost` needs no sshd, and works together with others."""
    code, out, err = here.run("login,node2", worker="hostname")
    assert code == 0 and sorted(line.partition(": ")[2] for line in out.splitlines()) == ["login", "node2"], out + err
    here.gone()


@pytest.mark.slow
def test_many_hosts(job):
    with sshd_or_skip(32) as cluster:
        here = Here(cluster, job)
        agent = here.start("node[1-32]")
        assert here.workers(32, 60) == cluster.names
        assert len(here.ssh(agent)) == 32
        out, err = here.ends_well(agent)
        assert err.count("attempt ") == 1, err


# ---- how hosts are reached ----

def test_another_ssh(here):
    """Words as a shell splits them; what it is given comes before ours, so its -o win."""
    folder = here.job.tmp / "with blank"
    folder.mkdir()
    own = folder / "my ssh"
    own.write_text(f"#!/bin/sh\necho \"$@\" >> {here.job.tmp}/called\nexec ssh \"$@\"\n")
    own.chmod(0o755)
    code, out, err = here.run("node1,node2", "--ssh", f"'{own}' -o \"ConnectTimeout=3\" -4", worker="echo done")
    assert code == 0 and out.count("done") == 2, err
    called = (here.job.tmp / "called").read_text().splitlines()
    assert len(called) == 2 and all(line.startswith("-o ConnectTimeout=3 -4 ") for line in called), called
    here.gone()


@pytest.mark.parametrize("words, wanted, absent", [
    ([], {"MINE": "of the login host", "OTHER": "o"}, []),
    (["--export=ALL"], {"MINE": "of the login host", "OTHER": "o"}, []),
    (["--export=NONE"], {}, ["MINE", "OTHER"]),
    (["--export=MINE"], {"MINE": "of the login host"}, ["OTHER"]),
    (["--export=MIN*,NEW=a=b"], {"MINE": "of the login host", "NEW": "a=b"}, ["OTHER"]),
    (["--export=ALL,OTHER=new"], {"MINE": "of the login host", "OTHER": "new"}, []),
])
def test_which_variables_workers_have(here, words, wanted, absent):
    """HOME, USER and what ssh told are always the node's own."""
    show = "\n".join(f"echo {name} ${{{name}-unset}}" for name in ("MINE", "OTHER", "NEW", "DISPLAY", "HOME"))
    # A script beside the job: the worker's own line would name the variables.
    script = here.job.tmp / "show.sh"
    script.write_text(show)
    code, out, err = here.run("node2", *words, worker=f"exec sh {script}",
                              env={"MINE": "of the login host", "OTHER": "o", "DISPLAY": ":0"})
    assert code == 0, err
    said = dict(re.sub(r"^\[rank\d+\]: ", "", line).split(" ", 1) for line in out.splitlines())
    assert said["HOME"] == str(here.cluster.home("node2")) and said["DISPLAY"] == "unset", said
    assert {name: said[name] for name in wanted} == wanted
    assert all(said[name] == "unset" for name in absent), said


def test_secrets_are_not_shown(here):
    """The program's variables are in no command line and in no other process's environment, on no host."""
    secret = "correct-horse-battery"
    agent = here.start("node1,node2", env={"SECRET": secret})
    here.workers(2)
    pids = [pid for n in range(2) for pid in here.cluster.started(n)] + here.cluster.head.processes()
    assert not [title for pid in pids if secret in (title := title_of(pid))]
    relays = [pid for pid in pids if title_of(pid).startswith(MUSTER) and title_of(pid).endswith("ssh-node")]
    assert len(relays) == 2
    for pid in relays:
        assert secret.encode() not in pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    here.ends_well(agent)


def keys_left(here):
    """The files with the job's key, on the login host and on each of the others."""
    found = []
    for host in (here.cluster.head, *here.cluster.nodes):
        folder = pathlib.Path(f"/proc/{host.pid}/root{RUN_DIR}")
        found += [path for path in folder.glob("key-*") if stat.S_IMODE(path.stat().st_mode) == 0o600]
    return found


def test_the_jobs_key_is_not_shown(here):
    """It is made for the job, sent over ssh's standard input, and in no process's words or environment. Files with it, for
    operators, are this user's alone, and end with the job."""
    before = keys_left(here)
    agent = here.start("node1,node2", "-r3", "--log-dir=logs", "-vv")
    here.workers(2)
    files = [path for path in keys_left(here) if path not in before]
    texts = {path.read_text().strip() for path in files}
    assert len(files) == 3 and len(texts) == 1, (files, texts)
    key = texts.pop().removeprefix("muster-key-1:")
    pids = [pid for n in range(2) for pid in here.cluster.started(n)] + here.cluster.head.processes()
    assert len(pids) > 10 and not shown(key, pids)
    out, err = here.ends_well(agent)
    assert key not in out + err and not [path for path in keys_left(here) if path not in before]
    written = [path for path in here.job.tmp.rglob("*") if path.is_file()]
    assert len(written) > 4 and not [path for path in written if key.encode() in path.read_bytes()]


@pytest.mark.parametrize("shell", ["bash", "dash", "zsh", "csh", "tcsh", "fish"])
def test_a_login_shell_that_prints(here, shell):
    """Whatever the shell and its rc files say before is no part of the job's output."""
    path = f"/bin/{shell}"
    if not os.path.exists(path) and not os.path.exists(path := f"/usr/bin/{shell}"):
        pytest.skip(f"no {shell} here")
    for name in ("node1", "node2"):
        here.cluster.set_shell(name, path)
        fish = ".config/fish/config.fish"
        (here.cluster.home(name) / fish).parent.mkdir(parents=True, exist_ok=True)
        for rc in (".bashrc", ".zshenv", ".cshrc", ".tcshrc", fish):
            (here.cluster.home(name) / rc).write_text("echo 'Welcome to the cluster!'\necho again\nprintf 'no line end'\n")
    code, out, err = here.run("node1,node2", worker="echo \"it's $RANK\"")
    assert code == 0 and sorted(out.splitlines()) == ["[rank0]: it's 0", "[rank1]: it's 1"], out + err
    here.gone()


@pytest.mark.parametrize("name", ["it's here", "a\"b", "back\\slash", "dollar $HOME", "exclam!x", "*"])
def test_a_program_with_any_path(here, name):
    """The remote shell reads muster's own path as it is, whichever shell it is."""
    folder = here.job.tmp / name
    folder.mkdir()
    program = folder / "muster"
    program.symlink_to(MUSTER)
    for shell in filter(None, map(shutil.which, ("bash", "dash", "zsh", "csh", "tcsh", "fish"))):
        here.cluster.set_shell("node1", shell)
        done = here.cluster.run(program, "run", "-H", "node1", "--no-python", "echo", "ran", folder=here.job.tmp,
                                env=here.job.env("a", here.env()), check=False)
        assert done.returncode == 0 and "ran" in done.stdout, f"{shell}: {done.stderr}"
    here.gone()


def test_standard_input_is_not_read(here):
    """Neither the lines of a loop around muster, nor those of a script that comes by a pipe."""
    run = shlex.join(here.line("node1,node2", worker="echo ran"))
    script = f"printf 'a\\nb\\n' | while read -r x; do echo loop $x; {run}; done"
    done = here.cluster.run("bash", "-c", script, folder=here.job.tmp, env=here.job.env("a", here.env()))
    lines = done.stdout.splitlines()
    assert [x for x in lines if x.startswith("loop")] == ["loop a", "loop b"], done.stderr
    assert len([x for x in lines if x.endswith("ran")]) == 4, lines


# ---- hosts that are bad ----

def named(err, host, reason):
    """There is a line that names the host and has ssh's words."""
    return re.search(rf"^muster: .*\b{host}\b.*{reason}", err, re.M)


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_host_ends_a_job_that_needs_it(here, bad):
    begin = time.monotonic()
    code, out, err = here.run(f"node1,{bad},node2", worker="echo ran; sleep 100")
    assert code == 75 and named(err, bad, BAD[bad]), f"{code} {err}"
    assert harness.SLOWER > 1 or time.monotonic() - begin < (6 if bad == "absent" else 2)
    here.gone()


@pytest.mark.parametrize("bad", BAD)
def test_a_job_goes_on_without_a_bad_host(here, bad):
    """Also if it is the first one."""
    agent = here.start(f"{bad},node1,node2", "--nnodes=2:3", "--rdzv-conf=last_call_timeout=1")
    assert here.workers(2) == here.on(1, 1)
    agent.wait_said(BAD[bad])  # they may have begun without a first host for whose answer ssh waits
    out, err = here.ends_well(agent)
    assert named(err, bad, BAD[bad]), err


def test_all_bad_hosts_are_named(here):
    code, _, err = here.run("refused,node1,liar,nowhere", "--nnodes=1:4", "--rdzv-conf=last_call_timeout=1", worker="sleep 1")
    assert code == 0 and all(named(err, bad, BAD[bad]) for bad in ("refused", "liar", "nowhere")), err
    here.gone()


def test_all_bad_hosts_are_named_where_all_are_needed(here):
    """One start names them all, also where the first of them ends the job."""
    for _ in range(5 if harness.SLOWER > 1 else 1):  # a busy ssh may need more than SSH_HEAD_NAMING_NS
        code, out, err = here.run("refused,node1,liar,nowhere,locked", worker="echo never")
        found = [bad for bad in ("refused", "liar", "nowhere", "locked") if named(err, bad, BAD[bad])]
        if len(found) == 4:
            break
    assert code == 75 and len(found) == 4, err
    assert err.count("1 host remains, and the job needs 5: ending it") == 1 and "never" not in out, err
    here.gone()


def test_a_host_that_says_nothing(here):
    """No answer at all is a failure after ssh's own time."""
    here.cluster.cut(1)
    code, _, err = here.run("node1,node2", "--ssh=ssh -o ConnectTimeout=2")
    assert code == 75 and named(err, "node2", "timed out"), err
    here.gone()


def test_a_host_without_the_program(here):
    own = pathlib.Path("/dev/shm/muster-copy")
    here.cluster.run("ip", "neigh", "flush", "all", check=False)  # the test before has cut that host off
    here.cluster.run("sh", "-c", f"cp {MUSTER} {own}")
    here.cluster.run("sh", "-c", f"cp {MUSTER} {own}", on=0)
    done = here.cluster.run(own, "run", "-H", "node1,node2", "--no-python", "true", env=here.job.env("a", here.env()), check=False)
    assert done.returncode == 75 and named(done.stderr, "node2", f"it can't run {own}: .*No such file"), done.stderr
    here.gone()


def test_a_host_with_another_version(here):
    own = pathlib.Path("/dev/shm/muster-other")
    here.cluster.run("sh", "-c", f"cp {MUSTER} {own}")
    here.cluster.run("sh", "-c", f"printf '#!/bin/sh\\necho; echo MUSTER-SSH 999; sleep 2\\n' > {own}; chmod 755 {own}", on=0)
    done = here.cluster.run(own, "run", "-H", "node1", "--no-python", "true", env=here.job.env("a", here.env()), check=False)
    assert done.returncode == 75 and named(done.stderr, "node1", "version|999"), done.stderr
    here.gone()


def test_a_host_without_the_folder(here):
    here.cluster.run("mkdir", "/dev/shm/only-here")
    code, _, err = here.run("node1,node2", folder="/dev/shm/only-here")
    assert code == 75 and named(err, "node[12]", "/dev/shm/only-here can't be used"), err
    here.gone()


# ---- what is seen ----

def test_what_is_seen_of_a_job(here):
    """The group's lines once, workers' with their rank."""
    code, out, err = here.run("node1:2,node2:2,node3:2,node4:2", worker="echo in ${HOME##*/}; echo oops >&2")
    assert code == 0, err
    hosts = here.on(2, 2, 2, 2)
    assert sorted(out.splitlines()) == sorted(f"[rank{rank}]: in {hosts[rank]}" for rank in range(8))
    assert sorted(x for x in err.splitlines() if "oops" in x) == sorted(f"[rank{rank}]: oops" for rank in range(8))
    assert len([x for x in err.splitlines() if re.match(r"muster: attempt 1: 4 nodes, 8 workers", x)]) == 1, err
    here.gone()


def test_much_output_is_whole(here):
    """200,000 lines of four hosts: each is there, whole, and in the order of its worker."""
    lines = 50000
    program = f"import os; r = os.environ['RANK']\nfor i in range({lines}): print(r, i, 'x' * 60)"
    agent = here.start("node[1-4]", worker=f"exec /usr/bin/python3 -c {shlex.quote(program)}")
    code, out, err = agent.finish(120)
    assert code == 0, err
    seen = [0] * 4
    for line in out.splitlines():
        found = re.fullmatch(r"\[rank(\d)\]: \1 (\d+) x{60}", line)
        assert found and int(found[2]) == seen[int(found[1])], f"{line!r} {seen}"
        seen[int(found[1])] += 1
    assert seen == [lines] * 4


def test_a_reader_that_stops(here):
    """Nothing is lost, and nobody's memory grows: what is not read stays on the nodes."""
    lines = 100000
    program = f"import os; r = os.environ['RANK']\nfor i in range({lines}): print(r, i, 'x' * 200)"
    reader, writer = os.pipe()
    agent = here.start("node1,node2", worker=f"exec /usr/bin/python3 -c {shlex.quote(program)}", stdout=writer)
    os.close(writer)
    head = None
    end = deadline(20)
    while head is None:
        assert time.monotonic() < end, agent.said()
        with contextlib.suppress(AssertionError):
            head = here.head(agent)
        pause(0.05)
    pause(3)
    assert resident_kib(head) < 40000, "the starter holds what is not read"
    heard = harness.Heard(reader)
    code, _, err = agent.finish(120)
    heard.until(lambda: heard.ended, 30)
    # A line whose end comes late, on a busy machine, is shown in two.
    assert code == 0 and sum(line.count("x") for line in heard.lines) == 2 * lines * 200, f"{code} {len(heard.lines)} {err}"
    here.gone()


def resident_kib(pid):
    return int(re.search(r"^VmRSS:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1])


def test_a_reader_that_leaves(here):
    """As with `head -2`: workers notice nothing, and the job's status is theirs."""
    run = shlex.join(here.line("node1,node2", worker="i=0; while [ $i -lt 3000 ]; do echo $RANK $i; i=$((i + 1)); done"))
    done = here.cluster.run("bash", "-c", f"{run} | head -2; echo status ${{PIPESTATUS[0]}}", folder=here.job.tmp,
                            env=here.job.env("a", here.env()))
    assert done.stdout.splitlines()[2:] == ["status 0"], done.stdout + done.stderr
    here.gone()


# ---- how it ends ----

def test_the_first_failures_status(here):
    fails = ("start", "rank=1", "exit=3", "go")
    code, _, err = here.run("node1,node2", worker=fails)
    assert code == 1 and err.count("ChildFailedError") == 1, err
    code, _, err = here.run("node1,node2", "--exit-code=worker", worker=fails)
    assert code == 3, err
    here.gone()


def test_a_job_that_restarts(here):
    code, out, err = here.run("node1,node2", "--max-restarts=1",
                              worker='[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit $RANK; echo "went on"')
    assert code == 0 and out.count("went on") == 2, err
    here.gone()


@pytest.mark.torch
def test_pytorch(here):
    agent = here.start("node1:2,node2:2", "--rdzv-conf=join_timeout=60", worker=f"exec {TORCH_PYTHON} "
                       f"{harness.HERE / 'torch_steps.py'} 5", env={"OMP_NUM_THREADS": "1"})
    here.job.events.wait("done", 4, 120)
    code, _, err = agent.finish(60)
    assert code == 0, err
    here.gone()


@pytest.mark.parametrize("words, said", [
    (["--starter=ssh"], "-H"),
    (["-H", "node1", "--hostfile", "/nowhere/hosts"], "/nowhere/hosts"),
    (["-H", "node1:x"], 'not "x"'),
    (["-H", "node1", "--ssh", "ssh 'open"], "--ssh"),
    (["-H", "node1", "--nnodes=2"], "2"),
])
def test_mistakes(here, words, said):
    done = here.cluster.run(*RUN, *words, "--no-python", "true", env=here.job.env("a", here.env()), check=False)
    assert done.returncode == 2 and said in done.stderr, f"{done.returncode} {done.stderr}"


def test_an_ssh_that_is_not_there(here):
    code, _, err = here.run("node1", "--ssh=/nowhere/ssh")
    assert code in (2, 75) and "/nowhere/ssh" in err, f"{code} {err}"


def test_a_job_is_asked_on_its_hosts(here):
    agent = here.start("node1,node2")
    here.workers(2)
    env = here.job.env("a", here.env())
    rows = [line.split() for line in here.cluster.run(MUSTER, "ps", env=env).stdout.splitlines()]
    assert len(rows) == 2 and rows[1][1:3] == ["starter", "login"] and rows[1][4:6] == ["2", "nodes"], rows
    for command in "status", "stacks":
        done = here.cluster.run(MUSTER, command, env=env, check=False)
        assert done.returncode == 1 and f"\n  ssh node1 {MUSTER} {command}\n" in done.stderr, done.stderr
    status = here.cluster.run("ssh", "node2", f"MUSTER_RUN_DIR={RUN_DIR} {MUSTER} status", env=env)
    assert "2 nodes, 2 workers" in status.stdout, status.stdout
    here.cluster.run("ssh", "node1", f"MUSTER_RUN_DIR={RUN_DIR} {MUSTER} stop", env=env)
    code, _, err = agent.finish(30)
    assert code != 0 and "an operator stopped the job" in err, err
    here.gone()


def test_who_has_the_key_may_ask_from_elsewhere(here):
    """On the head's machine the job's key is found; without it an agent of another machine says nothing."""
    agent = here.start("node1,node2")
    here.workers(2)
    env = here.job.env("a", here.env())
    listed = here.cluster.run("ssh", "node2", f"MUSTER_RUN_DIR={RUN_DIR} {MUSTER} ps --json", env=env).stdout
    port = json.loads(listed)["agents"][0]["port"]
    asked = here.cluster.run(MUSTER, "status", f"node2:{port}", env=env)
    assert "2 nodes, 2 workers" in asked.stdout, asked
    refused = here.cluster.run(MUSTER, "status", f"node2:{port}", env={**env, "MUSTER_RUN_DIR": "/dev/shm/other"}, check=False)
    assert refused.returncode == 1 and not refused.stdout and "from the muster run that started the job" in refused.stderr, refused
    here.ends_well(agent)


@pytest.mark.parametrize("auth,is_heard", [("auto", False), ("none", True)])
def test_what_can_be_heard_of_a_job(here, auth, is_heard):
    """Of what nodes say to each other: nothing."""
    with Wire(here.cluster, 0) as wire:
        agent = here.start("node1,node2", "--rdzv-id=a-name-for-a-job", f"--auth={auth}")
        here.workers(2)
        here.job.go()
        assert agent.finish(60)[0] == 0
    here.gone()
    said = b"".join(part for _, _, part in wire.packets)
    assert len(said) > 10_000 and (b"a-name-for-a-job" in said) == is_heard


def test_what_the_page_says_to_ask(here):
    page = (harness.HERE.parents[1] / "docs" / "ssh.md").read_text()
    asks = re.findall(r"`(ssh node1) muster (\w+)`", page)
    assert [command for _, command in asks] == ["status", "stacks"] and "`muster stop`" in page, asks
    agent = here.start("node1,node2")
    here.workers(2)
    env = here.job.env("a", here.env())
    for ssh, command in asks:
        done = here.cluster.run("sh", "-c", f"{ssh} MUSTER_RUN_DIR={RUN_DIR} {MUSTER} {command}", env=env)
        assert "2 workers" in done.stdout, done
    here.cluster.run(MUSTER, "stop", env=env)
    code, _, err = agent.finish(60)
    assert code == 128 + signal.SIGTERM, err
    here.gone()


def test_the_page(here):
    """The lines of docs/ssh.md, as they are."""
    page = (harness.HERE.parents[1] / "docs" / "ssh.md").read_text()
    lines, hosts = re.findall(r"^```(?:sh)?\n(.*?)```$", page, re.M | re.S)
    folder = here.job.tmp
    (folder / "bin").mkdir()
    (folder / "bin" / "muster").symlink_to(MUSTER)
    (folder / "hosts").write_text(hosts.replace("[03-16]", "3"))
    (folder / "train.py").write_text("import os; print('trained', os.environ['RANK'], os.environ['WORLD_SIZE'])\n")
    env = here.job.env("a", here.env({"PATH": f"{folder}/bin:{os.environ['PATH']}"}))
    for line, world in zip(lines.splitlines(), (4, 6)):
        done = here.cluster.run("sh", "-c", line, folder=folder, env=env)
        assert sorted(done.stdout.splitlines()) == [f"[rank{rank}]: trained {rank} {world}" for rank in range(world)], done.stderr
    here.gone()
