"""What a stranger does with what it has heard of a job that has a key, and with many connections at once.

Hosts are those of test_attack_hosts.py: 0 leads, 1 is a member, 2 is the stranger's."""
import hmac
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

import harness
from attacker import CALL
from eavesdrop import Wire, forms
from harness import HERE
from test_attack import AS
from test_attack import Target as Local
from test_attack_hosts import PORT, Field, hosts, resident_mib, write_key  # noqa: F401  (a fixture)
from test_operate import status

openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


def fair_key(path):
    """A key whose id has no NUL, which s_client can't say. (id in hex as it is sent, what TLS uses in hex)"""
    while True:
        secret = forms(write_key(path).read_text())["bytes"]
        name = hmac.digest(secret, b"muster key id v1", "sha256")[:8]
        if 0 not in name:
            return name.hex(), forms(path.read_text())["psk"].hex()
        path.unlink()


@openssl
@pytest.mark.parametrize("what", ["right", "wrong secret", "other id", "secret as it is"])
def test_a_key_s_id_without_its_secret_opens_nothing(job, hosts, what, monkeypatch):  # noqa: F811
    """Whoever has the secret is let in by the same program, so that the others are refused for the secret alone."""
    found = {}

    def make(path):
        found["id"], found["psk"] = fair_key(path)
        return path

    monkeypatch.setattr("test_attack_hosts.write_key", make)
    field = Field(job, hosts)
    secret = {"wrong secret": os.urandom(32).hex(), "secret as it is": field.key.read_text().strip()[-64:]}.get(what, found["psk"])
    heard = field.rogue("psk", hosts.address(0), PORT, os.urandom(8).hex().replace("00", "01") if what == "other id" else found["id"], secret)
    said = heard[1]["said"]
    assert ("HELLO" in said) == (what == "right"), said
    assert what == "right" or "alert" in said, said
    field.unharmed(refused=what != "right")


@pytest.mark.parametrize("whose", ["a node's", "an operator's"])
def test_what_was_heard_on_the_wire_cannot_be_said_again(job, hosts, whose):  # noqa: F811
    """All that a node, or an operator, has sent to the leader, byte by byte, from the first on."""
    with Wire(hosts_as_cluster(hosts), 0) as wire:
        field = Field(job, hosts, nnodes="2:3")
        if whose == "an operator's":
            field.status(1, f"--key-file={field.key}")
    sent = {}
    for source, to, piece in wire.packets:
        if to == PORT:
            sent[source] = sent.get(source, b"") + piece
    told = [said for said in sent.values() if b"CALL" in said and len(said) > 200]
    assert told and not [said for said in told if b"JOIN" in said or b"COMMAND" in said], "nothing in clear"
    said = told[0] if whose == "a node's" else told[-1]
    heard = field.rogue("replay", hosts.address(0), PORT, said.hex())
    assert heard[0]["kind"] == "GREETING" and heard[1:] == ["end"], heard
    field.unharmed()


def hosts_as_cluster(hosts):  # noqa: F811
    class Cluster:
        @staticmethod
        def client(*words, on):
            return [*hosts.enter(on), *map(str, words)]
    return Cluster


# --- floods ----------------------------------------------------------------------------------------------------------


def test_calls_without_an_end_shut_nobody_out(job, hosts):  # noqa: F811
    """10,000 that call and then say nothing: each costs a greeting."""
    field = Field(job, hosts)
    agent = field.agents[0].agent_pid()
    before = resident_mib(agent)
    with field.rogue_runs("begun", hosts.address(0), PORT, 10000):
        begin = time.monotonic()
        field.status(1, f"--key-file={field.key}")
        took = time.monotonic() - begin
        grown = resident_mib(agent) - before
    print(f"begun: status {took:.2f} s, {grown:.0f} MiB more")
    assert grown < 100 and (harness.SLOWER != 1 or took <= 1)
    field.job.go()
    assert [a.finish()[0] for a in field.agents] == [0, 0]


def test_a_flood_of_the_store_shuts_no_worker_out(job, hosts):  # noqa: F811
    field = Field(job, hosts, worker=("start", "env=MASTER_PORT", "go"))
    port = int(job.events.wait("env", 2)[0].fields["value"])
    agent = field.agents[0].agent_pid()
    before = resident_mib(agent)
    with field.rogue_runs("silent", hosts.address(0), port, 10000):
        for n in range(20):
            words = [*hosts.enter(1), "/usr/bin/python3", "-c", (HERE / "attacker.py").read_text(), hosts.address(0), str(port), "write"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=60 * harness.SLOWER)
            assert done.stdout.strip() == str(n + 1), (n, done)
        grown = resident_mib(agent) - before
    assert grown < 100, f"{grown:.0f} MiB more"
    job.go()
    assert [a.finish()[0] for a in field.agents] == [0, 0]
    lines = re.findall("refused a connection.*", field.agents[0].said())
    assert 1 <= len(lines) <= 2, lines


@pytest.mark.parametrize("what", ["silent", "begun", "half"])
@pytest.mark.parametrize("store", [False, True], ids=["endpoint", "store"])
def test_a_flood_by_another_user_shuts_nobody_out(job, what, store):
    """2,000 connections of one machine; status and the store answer all the while."""
    target = Local(job)
    rogue = (HERE / "rogue.py").read_text().replace("from attacker import CALL, exactly, frame, message",
                                                    (HERE / "attacker.py").read_text().split("def main")[0])
    before = resident_mib(target.agent.agent_pid())
    with subprocess.Popen([*AS, "/usr/bin/python3", "-c", rogue, what, "127.0.0.1", str(target.store_port if store else target.port), "2000"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/") as crowd:
        end, rounds = harness.deadline(60), 0
        while rounds < 10 or status(job, target.place)["refused"] < 1500:
            assert harness.deadline(0) < end, status(job, target.place)["refused"]
            assert target.ask("status", target.place) is False
            assert target.counter() == 0
            rounds += 1
        grown = resident_mib(target.agent.agent_pid()) - before
        crowd.kill()
    assert grown < 100, f"{grown:.0f} MiB more"
    err = target.unharmed()
    assert err.count("refused a connection") == 1, err


# --- at each moment of a handshake -----------------------------------------------------------------------------------


@pytest.mark.parametrize("said", range(5), ids=["nothing", "half a frame", "a call", "a record's head", "half a hello"])
def test_who_stands_still_in_the_middle_harms_nobody(job, hosts, said):  # noqa: F811
    """A hundred that stop at each moment of a beginning, from a member's host: it goes, and the others do not wait."""
    field = Field(job, hosts)
    text = [b"", CALL[:7], CALL, CALL + b"\x16\x03\x01", CALL + b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)][said]
    code = ("import socket, sys\nheld = [socket.create_connection((sys.argv[1], int(sys.argv[2])), 30) for _ in range(100)]\n"
            "for s in held: s.sendall(bytes.fromhex(sys.argv[3]))\nprint('up', flush=True)\n"
            "for s in held:\n    s.settimeout(60)\n    try:\n        while s.recv(4096): pass\n    except ConnectionError: pass\n"
            "print('gone', flush=True)\n")
    with subprocess.Popen([*map(str, hosts.enter(1)), "/usr/bin/python3", "-c", code, hosts.address(0), str(PORT), text.hex()],
                          stdout=subprocess.PIPE, text=True) as still:
        assert still.stdout.readline() == "up\n"
        begin = time.monotonic()
        field.status(1, f"--key-file={field.key}")
        assert harness.SLOWER != 1 or time.monotonic() - begin <= 1
        assert still.stdout.readline() == "gone\n", "all of them were ended"
    field.job.go()
    assert [a.finish()[0] for a in field.agents] == [0, 0]


@pytest.mark.parametrize("when", ["greeting", "handshake"])
def test_a_leader_that_is_killed_in_the_middle_of_handshakes(job, hosts, when):  # noqa: F811
    """Fifty callers are in the middle of one when the agent dies: all end, and the job as it would without them."""
    field = Field(job, hosts)
    with field.rogue_runs("begun" if when == "greeting" else "half", hosts.address(0), PORT, 50):
        os.kill(field.agents[0].agent_pid(), signal.SIGKILL)
        code, _, err = field.agents[0].finish()
        assert code != 0, err
        code, _, err = field.agents[1].finish()
        assert code != 0 and "the leader is gone" in err, err


def test_a_peer_that_stops_in_a_handshake_and_goes_on_is_taken(job, hosts):  # noqa: F811
    """A node is stopped as soon as it has connected, again and again: it joins all the same."""
    field = Field(job, hosts, nnodes="2:3")
    late = field.start(3)
    stops = 0
    end = harness.deadline(60)
    while stops == 0 or len(field.status()["nodes"]) < 3:
        assert harness.deadline(0) < end, late.said()
        found = harness.children(late.pid)
        if found and stops < 20:
            harness.kill(found[0], signal.SIGSTOP)
            field.status()
            harness.kill(found[0], signal.SIGCONT)
            stops += 1
    assert stops > 0
    job.go()
    for agent in [*field.agents, late]:
        code, _, err = agent.finish()
        assert code in (0, 75), err
