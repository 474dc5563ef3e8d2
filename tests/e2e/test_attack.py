"""Another user of the same machine attacks a job: it is refused, the job does not notice, and the log has one line.

Each attack is made twice: on a job that admits everybody (--auth=none), where it must succeed, or it would prove
nothing; and on one as it is by default."""
import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess

import pytest

import harness
from attacker import VALIDATE, add, exactly, text
from harness import HERE, MUSTER, free_port
from test_endpoint_ports import end, free_ports, start
from test_operate import status

OTHER = 65534
AS = ["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups"]
REFUSED = f"muster: warning: refused a connection to .* it belongs to uid {OTHER} of this machine, and only root may talk to it"
CLOSED = "muster: warning: refused a connection to "


def as_other(*words, seconds=60, uid=OTHER):
    """(status, stdout, stderr) of a command run as that user."""
    prefix = [w.replace(str(OTHER), str(uid)) for w in AS] if uid else []
    done = subprocess.run([*prefix, *map(str, words)], cwd="/", env={"PATH": os.environ["PATH"], "HOME": "/"},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds * harness.SLOWER)
    return done.returncode, done.stdout, done.stderr


pytestmark = pytest.mark.skipif(os.geteuid() != 0 or as_other(MUSTER, "--version")[0] != 0,
                                reason="needs root, and a muster that other users can run")


class Target:
    """A job of root's: one node with one worker, and one more may join."""

    def __init__(self, job, *words):
        self.job, self.port = job, free_port()
        self.place = f"127.0.0.1:{self.port}"
        self.agent = job.agent("a", "--nnodes=1:2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=e2e",
                               f"--rdzv-endpoint={self.place}", "--rdzv-conf=last_call_timeout=0.2", "--max-restarts=3", *words,
                               "--no-python", job.worker, "start", "env=MASTER_PORT", "go")
        self.store_port = int(job.events.wait("env", 1)[0].fields["value"])

    def attack(self, what, store=True):
        """What the attacker got."""
        port = self.store_port if store else self.port
        code, out, err = as_other("/usr/bin/python3", "-c", (HERE / "attacker.py").read_text(), "127.0.0.1", port, what)
        assert code == 0, err
        return out.strip()

    def ask(self, *words):
        """A command of the other user's, to this job: whether it was obeyed."""
        code, out, err = as_other(MUSTER, *words)
        assert code == 0 or re.search("can't reach|closed the connection|closes the connection", err), (out, err)
        return code == 0

    def store(self):
        s = socket.create_connection(("127.0.0.1", self.store_port), 30 * harness.SLOWER)
        s.sendall(VALIDATE)
        return s

    def counter(self):
        """What the attacker has written, as root reads it."""
        with self.store() as s:
            s.sendall(add(b"attacked", 0))
            return int.from_bytes(exactly(s, 8), "little")

    def unharmed(self):
        """Its worker still runs, in its first generation, and ends well; nobody was let in."""
        seen = status(self.job, self.place)
        assert (seen["state"], seen["generation"], seen["members"]) == ("running", "1.1", 1), seen
        self.job.go()
        code, _, err = self.agent.finish()
        assert code == 0, err
        return err


def stop(t):
    return t.ask("stop", t.place)


def exclude(t):
    return t.ask("exclude", os.uname().nodename.partition(".")[0], t.place) or t.ask("exclude", os.uname().nodename, t.place)


def look(t):
    return t.ask("status", t.place)


def hello(t):
    return '"e2e"' in t.attack("hello", store=False)


def join(t):
    """A node of the other user's waits for a place, and gets it at the next restart."""
    words = [*AS, MUSTER, "run", "--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-endpoint={t.place}", "--rdzv-id=e2e",
             "--rdzv-conf=join_timeout=3,read_timeout=2,is_host=0", "--role=evil", "--max-restarts=3", "--no-python", "/bin/cat"]
    end = harness.deadline(60)
    with subprocess.Popen(words, cwd="/", env={"PATH": os.environ["PATH"]}, stdin=subprocess.PIPE) as node:
        while node.poll() is None and len(status(t.job, t.place)["nodes"]) != 2:  # each is a question to the leader
            assert harness.deadline(0) < end
        taken = node.poll() is None
        node.kill()
    return taken


def steal(t):
    """A call in the name of the job's own node, with its incarnation."""
    attacker, own = (HERE / "attacker.py").read_text().split("def main")[0], status(t.job, t.place)["leader"]
    rogue = (HERE / "rogue.py").read_text().replace("from attacker import CALL, exactly, frame, message", attacker)
    code, out, err = as_other("/usr/bin/python3", "-c", rogue, "join", "127.0.0.1", t.port, "e2e", own)
    assert code == 0 or re.search("ConnectionError: closed|ConnectionResetError", err), err
    return "WELCOME" in out


def read(t):
    with t.store() as s:
        s.sendall(b"\1" + text(b"secret") + text(b"word") + add(b"set", 1))
        exactly(s, 8)
    return t.attack("read") == "word"


def write(t):
    return t.attack("write") == "1" and t.counter() == 1


def fill(t):
    return t.attack("fill") == "8"


def write_by_the_endpoint(t):
    """The store at muster's own port, where clients are recognized by their first bytes."""
    return t.attack("write", store=False) == "1" and t.counter() == 1


ATTACKS = [stop, exclude, look, hello, join, steal, read, write, fill, write_by_the_endpoint]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda f: f.__name__)
def test_by_another_user_is_refused(job, attack):
    target = Target(job)
    assert not attack(target)
    err = target.unharmed()
    assert len(re.findall(REFUSED, err)) == 1 and err.count("refused a connection") == 1, err


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda f: f.__name__)
def test_succeeds_where_everybody_is_admitted(job, attack):
    target = Target(job, "--auth=none")
    assert attack(target)
    job.go()
    target.agent.finish()
    assert "refused a connection" not in target.agent.said()


# --- without an owner ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["write_and_close", "write_and_reset"])
@pytest.mark.parametrize("store", [True, False], ids=["store", "endpoint"])
def test_who_writes_and_closes_is_refused(job, how, store):
    """The agent stands still meanwhile, so that it accepts a connection that was closed already."""
    target = Target(job)
    agent = target.agent.agent_pid()
    os.kill(agent, signal.SIGSTOP)
    try:
        target.attack(how, store=store)
    finally:
        os.kill(agent, signal.SIGCONT)
    target.agent.wait_said(CLOSED)
    assert target.counter() == 0
    err = target.unharmed()
    assert err.count("refused a connection") == 1 and "wrote and closed it at once" in err, err


def test_a_probe_that_ended_before_it_was_accepted_is_not_reported(job):
    target = Target(job)
    agent = target.agent.agent_pid()
    os.kill(agent, signal.SIGSTOP)
    try:
        target.attack("call_and_close", store=False)
    finally:
        os.kill(agent, signal.SIGCONT)
    assert "refused a connection" not in target.unharmed()


def test_who_writes_and_closes_succeeds_where_everybody_is_admitted(job):
    target = Target(job, "--auth=none")
    agent = target.agent.agent_pid()
    os.kill(agent, signal.SIGSTOP)
    try:
        target.attack("write_and_close")
    finally:
        os.kill(agent, signal.SIGCONT)
    end = harness.deadline(20)
    while target.counter() == 0:  # each question is a round to the store
        assert harness.deadline(0) < end
    target.unharmed()


# --- the name of the one that leads at an endpoint of several ports ---------------------------------------------------

HELD = rf"no agent of this machine can lead the run 'e2e': uid {OTHER} holds the name of a unix socket that its leader needs, @"
HOLD = ("import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "s.bind('\\0' + sys.argv[1])\n"
        "print('up', flush=True)\n"
        "sys.stdin.read()\n")  # until the test closes our standard input, or ends


def name_of_leader(agent):
    """As every user of the machine sees it."""
    own = set()
    for fd in pathlib.Path(f"/proc/{agent.agent_pid()}/fd").iterdir():
        with contextlib.suppress(OSError):
            own.add(os.readlink(fd))
    for line in pathlib.Path("/proc/net/unix").read_text().splitlines():
        *_, inode, name = line.split(" ")
        if name.startswith("@muster-leads-") and f"socket:[{inode}]" in own:
            return name[1:]
    raise AssertionError("it has none")


@contextlib.contextmanager
def held(name):
    """By the other user."""
    with subprocess.Popen([*AS, "/usr/bin/python3", "-c", HOLD, name], cwd="/", stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"up\n"
        yield
        holder.stdin.close()


@pytest.mark.parametrize("words", [[], ["--rdzv-conf=is_host=1"]], ids=["guessed", "by order"])
def test_a_leaders_name_that_another_user_holds(job, words):
    """Nobody could lead, and all would wait: that is said at once."""
    ports = free_ports(2)
    first = start(job, "first", ports)
    first.wait_said("1 of 2")
    name = name_of_leader(first)
    first.signal(signal.SIGTERM)
    first.finish()
    with held(name):
        code, _, err = start(job, "a", ports, *words).finish()
    assert code == 2 and re.search(HELD + name, err) and "give all nodes another --rdzv-id" in err, err
    agents = [start(job, tag, ports, *words[:tag == "b"]) for tag in "bc"]
    job.events.wait("start", 2, world=2)
    end(job, *agents)


def test_a_leaders_name_that_another_user_gets_while_nodes_wait(job):
    """They wait on, and lead when it is free."""
    ports = free_ports(2)
    old = start(job, "old", ports)
    old.wait_said("1 of 2")
    name, old_agent = name_of_leader(old), old.agent_pid()
    os.kill(old_agent, signal.SIGSTOP)
    agents = [start(job, tag, ports) for tag in "ab"]
    for agent in agents:
        agent.wait_said("no leader at 127.0.0.1: ")
        os.kill(agent.agent_pid(), signal.SIGSTOP)
    os.kill(old_agent, signal.SIGKILL)
    old.finish()
    with held(name):
        for agent in agents:
            os.kill(agent.agent_pid(), signal.SIGCONT)
        for agent in agents:
            agent.wait_said("muster: warning: " + HELD + name)
    job.events.wait("start", 2, world=2)
    end(job, *agents)
    for agent in agents:
        assert len(re.findall(HELD, agent.said())) == 1, agent.said()


def test_a_leaders_name_is_anybodys_where_everybody_is_admitted(job):
    """The other user's agent leads, and root's joins."""
    ports = free_ports(2)
    words = [f"--rdzv-endpoint=127.0.0.1:{ports[0]},{ports[1]}", "--rdzv-id=e2e", "--nnodes=2", "--nproc-per-node=1",
             "--rdzv-conf=join_timeout=60", "--auth=none", "--no-python", "/bin/true"]
    with subprocess.Popen([*AS, MUSTER, "run", *words], cwd="/", env={"PATH": os.environ["PATH"], "HOME": "/"},
                          stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as leader:
        assert "1 of 2" in leader.stderr.readline()
        code, _, err = job.agent("a", *words).finish()
        said = leader.stderr.read()
        assert leader.wait() == 0 and code == 0 and "holds the name" not in err, (said, err)


# --- many, and friends -----------------------------------------------------------------------------------------------


def test_a_silent_crowd_shuts_nobody_out(job):
    target = Target(job)
    assert target.attack("crowd", store=False) == "401", "each is closed at once"
    err = target.unharmed()
    assert err.count("refused a connection") == 1, err


@pytest.mark.parametrize("auth", ["", "--auth=none"])
def test_the_owner_and_root_are_served(auth):
    """A store of one user's: for that user and for root, not for another, unless it is for all."""
    words = ["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", MUSTER, "store", "--listen=localhost:0",
             *auth.split()]
    with subprocess.Popen(words, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as store:
        try:
            port = store.stdout.readline().strip().rpartition(":")[2]
            code = (HERE / "attacker.py").read_text()
            for uid, got in [(65533, "1"), (0, "2"), (65534, "3" if auth else ""), (65533, "4" if auth else "3")]:
                assert as_other("/usr/bin/python3", "-c", code, "localhost", port, "write", uid=uid)[1].strip() == got, uid
        finally:
            store.terminate()
        said = store.stderr.read()
    refused = ("muster: warning: refused a connection to .* it belongs to uid 65534 of this machine, and only uid 65533 and root may "
               "talk to it .*\n")
    assert re.fullmatch("" if auth else refused, said), said
