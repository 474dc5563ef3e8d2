"""A stranger on another host attacks a job of two hosts that have a key: it is refused, the job does not notice, and the
log has a line. Where the same succeeds without a key, that is shown, or the attack would prove nothing.

Hosts are network namespaces: 0 leads, 1 is a member, 2 is the stranger's, 3 comes late."""
import contextlib
import json
import os
import re
import subprocess
import sys
import time

import pytest

import harness
from harness import HERE, MUSTER
from hosts import hosts_or_skip
from test_operate import listener

PORT = 29400
REFUSED = r"muster: warning: refused a connection from 10\.88\.0\.3: "


def write_key(path):
    done = subprocess.run([MUSTER, "keygen", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return path


class Field:
    """The hosts, a key, and a job on the first two."""

    def __init__(self, job, hosts, *words, keyed=True, nnodes="2:3", worker=("start", "go"), more=()):
        self.job, self.hosts, self.more = job, hosts, list(more)
        self.key = write_key(job.tmp / "key")
        self.words = [f"--key-file={self.key}"] if keyed else ["--auth=none"]
        self.place = f"{hosts.address(0)}:{PORT}"
        self.worker, self.nnodes = worker, nnodes
        self.agents = [self.start(n, *words) for n in (0, 1)]
        job.events.wait("start", 2, world=2)

    def start(self, n, *words, place=None, key=True):
        return self.job.agent(f"h{n}", f"--nnodes={self.nnodes}", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=net",
                              f"--rdzv-endpoint={place or self.place}", "--max-restarts=3",
                              "--rdzv-conf=join_timeout=20,last_call_timeout=0.2,read_timeout=3",
                              *(self.words if key else []), *words, "--no-python", self.job.worker, *self.worker,
                              prefix=self.hosts.enter(n), env={"HOME": self.job.tmp, "XDG_CONFIG_HOME": "\0unset"})

    def ask(self, n, *words, seconds=30):
        env = {**self.job.env("operator"), "HOME": str(self.job.tmp), "MUSTER_RUN_DIR": str(self.job.tmp / f"run{n}")}
        done = subprocess.run([*self.hosts.enter(n), MUSTER, *map(str, words)], env=env, cwd=self.job.tmp, text=True,
                              timeout=seconds * harness.SLOWER, capture_output=True, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout, done.stderr

    def status(self, n=0, *words):
        code, out, err = self.ask(n, "status", "--json", self.place, *words)
        assert code == 0, err
        return json.loads(out)

    def rogue(self, *words):
        """All that a program of the stranger's has heard."""
        done = subprocess.run([*self.hosts.enter(2), sys.executable, HERE / "rogue.py", *map(str, words)], text=True,
                              timeout=60 * harness.SLOWER, capture_output=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    @contextlib.contextmanager
    def rogue_runs(self, *words):
        """The same while it runs; the lines are in .heard.lines."""
        process = subprocess.Popen([str(w) for w in [*self.hosts.enter(2), sys.executable, HERE / "rogue.py", *words]],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process.heard = harness.Heard(os.dup(process.stdout.fileno()))
        process.stdout.close()
        try:
            assert process.heard.until(lambda: '"up"' in process.heard.lines, 60), process.heard.lines
            yield process
        finally:
            process.kill()
            process.wait()
            process.heard.join()
            process.stdin.close()

    def unharmed(self, refused=True):
        """Both workers still run, in their first generation, and end well."""
        seen = self.status()
        assert (seen["state"], seen["generation"], seen["members"]) == ("running", "1.1", 2), seen
        assert seen["auth"] == "keys" and (seen["refused"] > 0) == refused, seen
        self.job.go()
        for agent in self.agents:
            code, _, err = agent.finish()
            assert code == 0, err
        lines = re.findall(REFUSED + ".*", self.agents[0].said())
        assert (len(lines) >= 1) == refused and len(lines) == len(set(lines)), lines
        for line in lines:
            assert "net" not in line.split(": ", 2)[2].split(), "the run id is not told"


@pytest.fixture
def hosts():
    with hosts_or_skip(4, ipv6=False) as found:
        yield found


# --- operators -------------------------------------------------------------------------------------------------------

COMMANDS = {"status": ["status"], "stop": ["stop"], "exclude": ["exclude", "host2"], "leave": ["leave"]}


@pytest.mark.parametrize("what", COMMANDS)
@pytest.mark.parametrize("key", ["none", "other"])
def test_an_operator_without_the_key_is_refused(job, hosts, what, key):
    field = Field(job, hosts)
    place = listener(job, field.agents[1]) if what == "leave" else field.place
    if what == "leave":
        place = f"{hosts.address(1)}:{place.rpartition(':')[2]}"
    words = [] if key == "none" else [f"--key-file={write_key(job.tmp / 'other')}"]
    code, out, err = field.ask(2, *COMMANDS[what], place, *words)
    assert code == 1 and out == "" and "admits only those who have its key" in err and "--key-file" in err, (out, err)
    field.unharmed(refused=what != "leave")


@pytest.mark.parametrize("what", COMMANDS)
def test_an_operator_is_obeyed_where_everybody_is_admitted(job, hosts, what):
    field = Field(job, hosts, keyed=False)
    place = listener(job, field.agents[1]) if what == "leave" else field.place
    if what == "leave":
        place = f"{hosts.address(1)}:{place.rpartition(':')[2]}"
    code, _, err = field.ask(2, *COMMANDS[what], place)
    assert code == 0, err


def test_an_operator_with_the_key_is_obeyed_from_everywhere(job, hosts):
    field = Field(job, hosts)
    seen = field.status(2, f"--key-file={field.key}")
    assert [k["source"] for k in seen["auth_keys"]] == ["file"] and seen["refused"] == 0
    field.unharmed(refused=False)


OTHER = 65534


class Theirs:
    """A job of another user on the first two hosts, each of which has a /run of its own, as real ones do; root asks."""

    def __init__(self, job, hosts, *env):
        self.job, self.hosts = job, hosts
        folder = f"/run/user/{OTHER}"
        for n in (0, 1):
            subprocess.run([*hosts.enter(n), "sh", "-c", f"mount -t tmpfs run /run && mkdir -p {folder} && chown {OTHER} {folder}"], check=True)
        user = ["env", "-u", "MUSTER_RUN_DIR", f"XDG_RUNTIME_DIR={folder}", "HOME=/nonexistent", *env, "setpriv", f"--reuid={OTHER}",
                f"--regid={OTHER}", "--clear-groups", "env", "-C", "/"]
        self.agents = [job.agent(f"h{n}", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=theirs",
                                 f"--rdzv-endpoint={hosts.address(0)}:{PORT}", "--no-python", "sleep", "100",
                                 prefix=[*hosts.enter(n), *user]) for n in (0, 1)]
        for agent in self.agents:
            agent.wait_said("attempt 1: ")

    def ask(self, n, *words, prefix=()):
        env = {k: v for k, v in self.job.env("operator").items() if k not in ("MUSTER_RUN_DIR", "XDG_RUNTIME_DIR")}
        return subprocess.run([*self.hosts.enter(n), *prefix, MUSTER, *words], env=env, cwd="/", text=True, capture_output=True)

    def listed(self, n):
        return [a for a in json.loads(self.ask(n, "ps", "--json").stdout)["agents"] if a["run_id"] == "theirs"]


def test_root_asks_the_jobs_of_all_users_on_each_of_their_nodes(job, hosts):
    """Also where another node leads, which admits only whoever has the key that the head gave them: here by its variable."""
    key = write_key(job.tmp / "key").read_text().strip()
    secret = key.partition(":")[2]
    theirs = Theirs(job, hosts, f"MUSTER_HEAD_KEY={key}")
    for n in (0, 1):
        listed = theirs.listed(n)
        assert [(a["node"], a["world_size"]) for a in listed] == [(f"host{n + 1}", 2)], listed
        listener = f"{listed[0]['address']}:{listed[0]['port']}"
        seen = theirs.ask(n, "status", "--json", "--rdzv-id=theirs")
        assert seen.returncode == 0 and json.loads(seen.stdout)["members"] == 2, seen
        assert json.loads(seen.stdout)["refused"] == n and secret not in seen.stdout, seen
        seen = theirs.ask(n, "status", listener)
        assert seen.returncode == 0 and seen.stdout.startswith("job theirs: "), seen
        assert "no job of yours" in theirs.ask(n, "status").stderr
        seen = theirs.ask(n, "status", "--rdzv-id=theirs", listener,
                          prefix=["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups"])
        assert seen.returncode == 1 and "closes the connection without an answer: it may belong to another user" in seen.stderr, seen
    stopped = theirs.ask(1, "stop", "--rdzv-id=theirs")
    assert stopped.returncode == 0, stopped
    for agent in theirs.agents:
        assert agent.finish()[0] != 0 and secret not in agent.said(), agent.said()


def test_root_is_told_whose_job_it_is_whose_key_is_not_known(job, hosts):
    """A key that was given in the environment is in no file."""
    key = write_key(job.tmp / "key").read_text().strip()
    theirs = Theirs(job, hosts, f"MUSTER_KEY={key}")
    assert theirs.listed(0)[0]["world_size"] == 2 and theirs.listed(1)[0]["world_size"] is None
    assert " no access " in theirs.ask(1, "ps").stdout
    seen = theirs.ask(1, "status", "--rdzv-id=theirs")
    assert seen.returncode == 1 and f"it is a job of uid {OTHER}: run this as that user; " in seen.stderr, seen
    stopped = theirs.ask(0, "stop", "--rdzv-id=theirs")
    assert stopped.returncode == 0, stopped
    for agent in theirs.agents:
        agent.finish()


def home_key(job):
    (job.tmp / ".config" / "muster").mkdir(parents=True, mode=0o700)
    return write_key(job.tmp / ".config" / "muster" / "key")


def test_on_the_jobs_own_node_no_key_is_needed(job, hosts):
    """Neither is OpenSSL loaded, even if there is a key."""
    field = Field(job, hosts)
    assert field.status()["members"] == 2
    home_key(job)
    asked = subprocess.run([*hosts.enter(0), MUSTER, "status", field.place], text=True, capture_output=True,
                           env={**job.env("operator"), "HOME": str(job.tmp), "LD_DEBUG": "libs"})
    assert asked.returncode == 0 and "access     by key: " in asked.stdout, (asked.stdout, asked.stderr)
    assert "libc.so" in asked.stderr and "libssl" not in asked.stderr, asked.stderr
    field.unharmed(refused=False)


@pytest.mark.parametrize("words", [["--standalone"], ["--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{harness.free_port()}", "--nnodes=1"]])
def test_a_job_of_one_machine_never_loads_openssl(job, words):
    home_key(job)
    agent = job.agent("a", *words, "--nproc-per-node=1", "--no-python", job.worker, "start", "go", env={"HOME": job.tmp})
    job.events.wait("start", 1)
    with open(f"/proc/{agent.agent_pid()}/maps", encoding="ascii") as maps:
        mapped = maps.read()
    assert "libc.so" in mapped and "libssl" not in mapped and "libcrypto" not in mapped
    job.go()
    code, _, err = agent.finish()
    assert code == 0 and err.count("warning") == 0, err


def test_a_job_that_is_open_says_so_once(job, hosts):
    field = Field(job, hosts, keyed=False)
    assert field.status()["auth"] == "none" and "warning" not in field.agents[0].said()
    job.go()
    assert [a.wait() for a in field.agents] == [0, 0]
    field.words = []
    field.agents = [field.start(n) for n in (0, 1)]
    job.events.wait("start", 4, world=2)
    assert [a.finish()[0] for a in field.agents] == [0, 0]
    assert field.agents[0].said().count("this job is open: no node has a key") == 1
    assert "this job is open" not in field.agents[1].said()


def test_a_key_in_the_environment_is_nowhere_to_be_read(job, hosts):
    """Neither of the guardian, nor of the agent, nor of workers."""
    secret = os.urandom(32).hex()
    agent = job.agent("a", "--nnodes=1:2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=net",
                      f"--rdzv-endpoint={hosts.address(0)}:{PORT}", "--rdzv-conf=last_call_timeout=0.2", "--no-python", job.worker,
                      "start", "env=MUSTER_KEY", "go", prefix=hosts.enter(0), env={"MUSTER_KEY": f"muster-key-1:{secret}"})
    assert job.events.wait("env", 1)[0].fields["set"] == "0", job.events.lines
    family = [agent.pid, agent.agent_pid(), *harness.children(agent.agent_pid())]
    for pid in family:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as f:
            assert secret.encode() not in f.read(), pid
    job.go()
    assert agent.finish()[0] == 0 and secret not in agent.said()


# --- without the key -------------------------------------------------------------------------------------------------


def greeting_only(heard):
    assert [m["kind"] if isinstance(m, dict) else m for m in heard] == ["GREETING", "end"], heard
    assert not heard[0]["open"] and [k["source"] for k in heard[0]["keys"]] == ["file"]


@pytest.mark.parametrize("words", [("hello",), ("join", "net", "00000000000000ab"), ("tls", "TLSv1.2"), ("tls", "TLSv1.3")],
                         ids=lambda w: "-".join(w[:2]))
def test_who_has_no_key_hears_a_greeting(job, hosts, words):
    field = Field(job, hosts)
    greeting_only(field.rogue(words[0], hosts.address(0), PORT, *words[1:]))
    field.unharmed()


def test_who_has_no_key_takes_part_where_everybody_is_admitted(job, hosts):
    field = Field(job, hosts, keyed=False)
    heard = field.rogue("hello", hosts.address(0), PORT)
    assert heard[1]["kind"] == "HELLO" and heard[1]["run_id"] == "net"
    heard = field.rogue("join", hosts.address(0), PORT, heard[1]["run_id"], "00000000000000ab")
    assert "WELCOME" in [m["kind"] for m in heard if isinstance(m, dict)]


def test_a_node_without_the_key_is_told_what_to_do(job, hosts):
    field = Field(job, hosts)
    late = field.start(3, "--rdzv-conf=join_timeout=3,read_timeout=2", key=False)
    code, _, err = late.finish()
    assert code == 75 and "from --key-file), and there is no key here" in err, err
    said = field.agents[0].said()
    assert "refused a connection from 10.88.0.4: it left after it received the keys that are accepted here; muster's output there " in said


def test_a_stolen_incarnation_is_refused(job, hosts):
    """Also where nobody has a key: its node is there, and is heard."""
    field = Field(job, hosts, keyed=False)
    node = next(n for n in field.status()["nodes"] if n["node"] == "host2")
    heard = field.rogue("join", hosts.address(0), PORT, "net", node["id"])
    assert [m["kind"] for m in heard if isinstance(m, dict)] == ["GREETING", "HELLO", "REFUSED"], heard
    assert "connected from another address" in field.agents[0].said()
    own = field.status()["leader"]
    heard = field.rogue("join", hosts.address(0), PORT, "net", own)
    assert heard[2]["kind"] == "REFUSED", heard
    assert (field.status()["generation"], field.status()["members"]) == ("1.1", 2)
    job.go()
    assert [a.wait() for a in field.agents] == [0, 0]


# --- in the middle ---------------------------------------------------------------------------------------------------


def test_what_was_said_cannot_be_said_again(job, hosts):
    field = Field(job, hosts)
    with field.rogue_runs("relay", PORT, hosts.address(0), PORT) as relay:
        code, _, err = field.ask(1, "status", f"{hosts.address(2)}:{PORT}", f"--key-file={field.key}")
        assert code == 0, err  # whoever passes everything on learns nothing
        assert relay.heard.until(lambda: [line for line in relay.heard.lines if "sent" in line], 30)
        sent = json.loads(relay.heard.lines[-1])["sent"]
    assert b"COMMAND" not in bytes.fromhex(sent) and b"net" not in bytes.fromhex(sent)
    heard = field.rogue("replay", hosts.address(0), PORT, sent)
    assert heard[0]["kind"] == "GREETING" and heard[1:] == ["end"]
    field.unharmed()


def test_an_offer_to_do_without_is_not_believed(job, hosts):
    field = Field(job, hosts)
    with field.rogue_runs("strip", PORT, hosts.address(0), PORT) as strip:
        code, _, err = field.ask(1, "status", f"{hosts.address(2)}:{PORT}", f"--key-file={field.key}")
        assert code == 1 and "has no key and admits anybody" in err, err
        assert strip.heard.until(lambda: [line for line in strip.heard.lines if "sent" in line], 30)
        sent = bytes.fromhex(json.loads(strip.heard.lines[-1])["sent"])
    assert sent.count(b"kind") == 1 and b"CALL" in sent, sent
    field.unharmed(refused=True)


# --- a rogue leader --------------------------------------------------------------------------------------------------


def node_of(job, hosts, *words):
    return job.agent("h1", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=net",
                     f"--rdzv-endpoint={hosts.address(2)}:{PORT}", "--rdzv-conf=join_timeout=3,read_timeout=2", *words,
                     "--no-python", job.worker, "start", prefix=hosts.enter(1), env={"HOME": job.tmp})


def rogue_runs(job, hosts, *words):
    field = object.__new__(Field)
    field.hosts = hosts
    return field.rogue_runs(*words)


def test_a_rogue_leader_without_a_key_gets_no_node(job, hosts):
    with rogue_runs(job, hosts, "lead", PORT) as rogue:
        code, _, err = node_of(job, hosts, f"--key-file={write_key(job.tmp / 'key')}").finish()
        assert code == 75 and "has no key and admits anybody, but the key here is" in err, err
        assert "JOIN" not in "".join(rogue.heard.lines), rogue.heard.lines


def test_a_rogue_leader_gets_a_node_that_has_no_key(job, hosts):
    with rogue_runs(job, hosts, "lead", PORT) as rogue:
        node = node_of(job, hosts)
        assert rogue.heard.until(lambda: "JOIN" in "".join(rogue.heard.lines), 30), rogue.heard.lines
        node.finish()


def test_a_rogue_leader_with_a_certificate_gets_no_node(job, hosts):
    key, cert = write_key(job.tmp / "key"), job.tmp / "cert.pem"
    done = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", cert,
                           "-out", job.tmp / "c.pem", "-subj", "/CN=leader", "-days", "2"], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no openssl: {done.stderr}")
    cert.write_text(cert.read_text() + (job.tmp / "c.pem").read_text())
    # Its id, as a job with it says it.
    leader = job.agent("h0", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=net", f"--key-file={key}",
                       f"--rdzv-endpoint={hosts.address(0)}:{PORT}", "--no-python", job.worker, "start", prefix=hosts.enter(0))
    leader.wait_said("waiting for nodes")
    field = object.__new__(Field)
    field.hosts = hosts
    name = field.rogue("hello", hosts.address(0), PORT)[0]["keys"][0]["id"]
    with field.rogue_runs("certified", PORT, name, cert) as rogue:
        code, _, err = node_of(job, hosts, f"--key-file={key}").finish()
        assert code == 75 and "failed to prove that it has this node's key" in err, err
        assert "JOIN" not in "".join(rogue.heard.lines), rogue.heard.lines
    leader.signal(15)
    leader.finish()


# --- many ------------------------------------------------------------------------------------------------------------


def resident_mib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


@pytest.mark.parametrize("what", ["silent", "half"])
def test_a_flood_shuts_nobody_out(job, hosts, what):
    field = Field(job, hosts)
    agent = field.agents[0].agent_pid()
    before = resident_mib(agent)
    with field.rogue_runs(what, hosts.address(0), PORT, 10000):
        worst = 0.0
        for n in (0, 1):
            begin = time.monotonic()
            field.status(n, f"--key-file={field.key}")
            worst = max(worst, time.monotonic() - begin)
        begin = time.monotonic()
        field.start(3)
        while len(field.status()["nodes"]) < 3:
            assert time.monotonic() - begin < 30 * harness.SLOWER
        joined = time.monotonic() - begin
        grown = resident_mib(agent) - before
    print(f"{what}: status {worst:.2f} s, join {joined:.2f} s, {grown:.0f} MiB more")
    assert grown < 100
    if harness.SLOWER == 1:
        assert worst <= 1 and joined <= 1
