"""The arbiter over etcd, with a real etcd: which claims win, what survives, and the errors when nothing does."""
import json
import os
import pathlib
import re
import select
import subprocess
import time

import pytest

import etcd
import harness

# Next to the muster under test: tests/process/arbiter_etcd.c, the arbiter without the rest of muster.
DRIVER = os.environ.get("MUSTER_TEST_ARBITER_ETCD") or \
    pathlib.Path(harness.MUSTER).resolve().parent / "../../tests/test-arbiter-etcd"
TIMEOUT_MS = 5000  # ARBITER_TIMEOUT_NS


class Arbiter:
    """One process with one arbiter."""

    def __init__(self, cluster, *flags, endpoints=None, run_id="job"):
        self.process = subprocess.Popen(
            [DRIVER, *map(str, flags), run_id, *(endpoints or cluster.endpoints)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.rest = b""

    def __enter__(self):
        return self

    def __exit__(self, *what):
        try:
            _, said = self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        if what[0] is None:
            assert (self.process.returncode, said) == (0, b""), said.decode()

    def send(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def hear(self, seconds=20):
        end = harness.deadline(seconds)
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))
            assert ready, f"no answer in {seconds} s"
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, f"the arbiter's process ended: {self.process.stderr.read().decode()}"
            self.rest += data
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)

    def ask(self, line, seconds=20):
        self.send(line)
        return self.hear(seconds)

    def stalled_ms(self):
        return self.ask("stalled")["ms"]


def tls_flags(cluster, client=True):
    return ["--tls", "--cacert", cluster.cacert] + (["--cert", cluster.cert, "--key", cluster.key] if client else [])


def refused(*words):
    done = subprocess.run([DRIVER, *map(str, words)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2, done
    return done.stdout.strip()


@pytest.fixture(scope="module")
def one():
    """A plain etcd that no test damages; each test uses a run id of its own."""
    with etcd.EtcdCluster(1) as cluster:
        yield cluster


def test_claims_beats_and_the_close_are_what_they_should_be(one):
    with Arbiter(one, run_id="words") as a:
        none = a.ask("read")
        assert (none["result"], none["epoch"], none["beat"]) == ("ok", 0, "0")
        won = a.ask("claim 1 5")
        assert (won["result"], won["epoch"], won["leader"], won["addr"], won["port"]) == ("ok", 1, 5, "10.0.0.1", 4711)
        assert a.ask("claim 1 5")["result"] == "ok"  # asked again, as after a lost answer
        lost = a.ask("claim 1 6")
        assert (lost["result"], lost["epoch"], lost["leader"]) == ("lost", 1, 5)
        beats = [a.ask("beat 1 5")["beat"] for _ in range(3)]
        assert len(set(beats)) == 3 and a.ask("read")["beat"] == beats[-1]
        assert a.ask("beat 1 6")["beat"] == beats[-1]  # the beat is not its own, so it does not change
        assert a.ask("claim 2 6")["result"] == "ok"
        deposed = a.ask("beat 1 5")
        assert (deposed["result"], deposed["epoch"], deposed["leader"], deposed["beat"]) == ("ok", 2, 6, beats[-1])
        assert a.ask("close 1 5 failed")["result"] == "lost"
        closed = a.ask("close 2 6 success")
        assert (closed["result"], closed["closed"], closed["outcome"]) == ("ok", True, "success")
        assert a.ask("close 2 6 success")["result"] == "ok"
        late = a.ask("close 2 6 failed")
        assert (late["result"], late["closed"], late["outcome"]) == ("lost", True, "success")
        late = a.ask("claim 9 7")
        assert (late["result"], late["closed"], late["reason"]) == ("lost", True, "said by success")
        assert a.ask("read")["closed"]
    keys = {key.removeprefix("/muster/words/") for key in one.keys() if "/words/" in key}
    assert keys == {"epoch-1", "epoch-2", "epoch-3", "latest", "beat"}


def test_an_epoch_that_is_left_vacant_is_nobodys_and_the_next_is_claimed(one):
    with Arbiter(one, run_id="vacant") as a, Arbiter(one, run_id="vacant") as b:
        assert a.ask("claim 1 5")["result"] == "ok"
        assert b.ask("vacate 1 6")["result"] == "lost"
        for _ in range(2):  # asked again, as after a lost answer
            left = a.ask("vacate 1 5")
            assert (left["result"], left["epoch"], left["vacant"]) == ("ok", 2, True)
        assert a.ask("claim 2 5")["result"] == b.ask("claim 2 6")["result"] == "lost"
        seen = b.ask("read")
        assert seen["vacant"] and not seen["closed"]
        won = b.ask("claim 3 6")
        assert (won["result"], won["leader"], "vacant" in won) == ("ok", 6, False)
        assert a.ask("vacate 1 5")["result"] == a.ask("vacate 2 5")["result"] == "lost"


def test_an_epoch_is_idle_if_it_was_claimed_so_and_the_next_is_not(one):
    with Arbiter(one, run_id="idle") as a, Arbiter(one, run_id="idle") as b:
        assert a.ask("claim 1 5 idle")["idle"] and b.ask("read")["idle"]
        assert a.ask("claim 1 5")["idle"], "it stays as it was claimed"
        assert "idle" not in a.ask("claim 2 5")
        lost = b.ask("claim 2 6 idle")
        assert (lost["result"], lost["leader"], "idle" in lost) == ("lost", 5, False)
        assert b.ask("claim 3 6 idle")["idle"]
        closed = b.ask("close 3 6 success")
        assert (closed["result"], closed["epoch"], "idle" in closed) == ("ok", 4, False)


def test_run_ids_and_prefixes_are_apart(one):
    with Arbiter(one, run_id="apart") as a, Arbiter(one, run_id="apart/latest") as b, \
            Arbiter(one, "--prefix", "/other/", run_id="apart") as c:
        for who, arbiter in enumerate((a, b, c), 1):
            assert arbiter.ask(f"claim 1 {who}")["result"] == "ok"
        assert "/other/apart/latest" in one.keys()


def test_one_winner_in_each_of_200_epochs(one):
    with Arbiter(one, run_id="race") as a, Arbiter(one, run_id="race") as b:
        wins = [0, 0]
        for epoch in range(1, 201):
            first, second = ((a, 1), (b, 2)) if epoch % 2 else ((b, 2), (a, 1))
            for arbiter, who in (first, second):
                arbiter.send(f"claim {epoch} {who}")
            answers = {who: arbiter.hear() for arbiter, who in (first, second)}
            won = [who for who, answer in answers.items() if answer["result"] == "ok"]
            assert len(won) == 1 and sorted(x["result"] for x in answers.values()) == ["lost", "ok"], answers
            assert all(x["leader"] == won[0] and x["epoch"] == epoch for x in answers.values()), answers
            wins[won[0] - 1] += 1
        assert min(wins) > 0, f"no race: {wins}"
        for arbiter, outcome in ((a, "success"), (b, "failed")):
            arbiter.send(f"close 201 {1 + (arbiter is b)} {outcome}")
        answers = [a.hear(), b.hear()]
        assert sorted(x["result"] for x in answers) == ["lost", "ok"]
        assert answers[0]["outcome"] == answers[1]["outcome"]


def test_more_questions_than_it_takes_are_refused_and_the_others_answered(one):
    with Arbiter(one, run_id="many") as a:
        for _ in range(20):
            a.send("read")
        answers = [a.hear() for _ in range(20)]
        assert {x["result"] for x in answers} <= {"ok", "unreachable"}
        assert sum(x["result"] == "ok" for x in answers) >= 8
        assert all("too many questions" in x["text"] for x in answers if x["result"] != "ok")


def test_names_are_looked_up_and_a_bad_endpoint_is_passed_over(one):
    port = one.ports[0]
    dead = harness.free_port()
    with Arbiter(one, run_id="names", endpoints=[f"127.0.0.1:{dead}", f"localhost:{port}"]) as a:
        assert a.ask("claim 1 5")["result"] == "ok"
        assert a.ask("read")["ms"] < 1000
    with Arbiter(one, endpoints=["no-such-host.invalid:1", f"127.0.0.1:{dead}"]) as a:
        answer = a.ask("read")
        assert answer["result"] == "unreachable"
        assert "cannot look up the host name 'no-such-host.invalid'" in answer["text"]
        assert f"127.0.0.1:{dead}: Connection refused" in answer["text"]


def test_keys_that_somebody_removed_are_told(one):
    with Arbiter(one, run_id="hands") as a:
        assert a.ask("claim 1 5")["result"] == "ok"
        one.ctl("del", "/muster/hands/latest")
        answer = a.ask("beat 1 5")
        assert answer["result"] == "ruined" and "'/muster/hands/latest' was removed" in answer["text"]
    with Arbiter(one, run_id="hands") as newcomer:  # it has not seen any of it before
        answer = newcomer.ask("claim 1 6")
        assert answer["result"] == "ruined" and "another program changed these keys" in answer["text"]


def test_another_job_in_the_place_of_one_whose_keys_were_removed_is_told_apart(one):
    with Arbiter(one, run_id="anew") as a, Arbiter(one, run_id="anew") as b:
        assert a.ask("claim 1 5")["result"] == "ok"
        one.ctl("del", "--prefix", "/muster/anew/")
        assert b.ask("claim 1 6")["result"] == "ok"
        for line in ("beat 1 5", "claim 2 5", "read"):
            answer = a.ask(line)
            assert answer["result"] == "ruined" and "another job's" in answer["text"], answer
        assert b.ask("beat 1 6")["result"] == "ok"


def test_etcd_may_die_and_come_back():
    with etcd.EtcdCluster(1) as cluster, Arbiter(cluster) as a:
        assert a.ask("claim 1 5")["result"] == "ok"
        cluster.kill(0)
        down = a.ask("beat 1 5")
        assert down["result"] == "unreachable"
        assert down["text"] == f"etcd did not answer: {cluster.endpoints[0]}: Connection refused"
        cluster.restart(0)
        back = a.ask("beat 1 5")
        assert (back["result"], back["epoch"], back["leader"]) == ("ok", 1, 5)


def test_a_frozen_etcd_is_unreachable_in_time_and_blocks_nothing():
    with etcd.EtcdCluster(1) as cluster, Arbiter(cluster) as a, Arbiter(cluster) as fresh:
        assert a.ask("claim 1 5")["result"] == "ok"
        a.stalled_ms()
        cluster.freeze(0)
        try:
            for arbiter in (a, fresh):  # on a kept connection, and on a new one
                arbiter.send("beat 1 5")
                arbiter.send("claim 2 5")
            answers = [arbiter.hear() for arbiter in (a, a, fresh, fresh)]
        finally:
            cluster.thaw(0)
        for answer in answers:
            assert answer["result"] == "unreachable" and "no answer" in answer["text"], answer
            assert TIMEOUT_MS <= answer["ms"] < TIMEOUT_MS + 1000 * harness.SLOWER
        assert a.stalled_ms() < 200 * harness.SLOWER
        # The request may have been executed meanwhile, or not. Repeating it shows which, with a consistent answer.
        result = a.ask("claim 2 5")
        assert (result["result"], result["epoch"], result["leader"]) == ("ok", 2, 5)
        assert fresh.ask("claim 2 6")["result"] == "lost"


def test_a_cluster_survives_the_loss_of_one_member_and_not_of_two():
    with etcd.EtcdCluster(3) as cluster:
        leader = cluster.leader()
        order = cluster.endpoints[leader:] + cluster.endpoints[:leader]
        with Arbiter(cluster, endpoints=order) as a:  # asks the leader first
            assert a.ask("claim 1 5")["result"] == "ok"
            cluster.kill(leader)
            answers = [a.ask("beat 1 5")]
            while answers[-1]["result"] != "ok":  # until there is another leader
                assert len(answers) < 10, answers
                answers.append(a.ask("beat 1 5"))
            assert all(x["ms"] < TIMEOUT_MS + 1000 * harness.SLOWER for x in answers)
            assert answers[-1]["leader"] == 5
            assert a.ask("read")["ms"] < 1000 * harness.SLOWER  # continues with the member that answered
            second = (leader + 1) % 3
            cluster.kill(second)
            down = a.ask("claim 2 5")
            assert down["result"] == "unreachable"
            assert TIMEOUT_MS // 4 < down["ms"] < TIMEOUT_MS + 1000 * harness.SLOWER
            for i in (leader, second):
                assert f"{cluster.endpoints[i]}: Connection refused" in down["text"], down
            assert cluster.endpoints[(leader + 2) % 3] in down["text"], down
            cluster.restart(second)
            back = a.ask("claim 2 5")
            assert (back["result"], back["epoch"], back["leader"]) == ("ok", 2, 5)
            cluster.restart(leader)
            assert a.ask("claim 3 5")["result"] == "ok"


def test_a_frozen_member_costs_its_share_once():
    with etcd.EtcdCluster(3) as cluster:
        follower = next(i for i in range(3) if i != cluster.leader())
        order = cluster.endpoints[follower:] + cluster.endpoints[:follower]
        with Arbiter(cluster, endpoints=order) as a:
            assert a.ask("claim 1 5")["result"] == "ok"
            cluster.freeze(follower)
            try:
                slow, quick = a.ask("beat 1 5"), a.ask("beat 1 5")
            finally:
                cluster.thaw(follower)
            assert (slow["result"], quick["result"]) == ("ok", "ok")
            assert slow["ms"] < TIMEOUT_MS / 3 + 1500 * harness.SLOWER and quick["ms"] < 500 * harness.SLOWER


def test_claims_while_members_die_have_one_winner_each():
    with etcd.EtcdCluster(3) as cluster, Arbiter(cluster) as a, \
            Arbiter(cluster, endpoints=cluster.endpoints[::-1]) as b:
        epoch, winners = 1, {}
        for round_ in range(30):
            if round_ % 10 == 3:
                cluster.kill(round_ // 10)
            if round_ % 10 == 7:
                cluster.restart(round_ // 10)
            for arbiter, who in ((a, 1), (b, 2)):
                arbiter.send(f"claim {epoch} {who}")
            answers = [a.hear(), b.hear()]
            while any(x["result"] == "unreachable" for x in answers):
                answers = [x if x["result"] != "unreachable" else arbiter.ask(f"claim {epoch} {who}")
                           for x, (arbiter, who) in zip(answers, ((a, 1), (b, 2)))]
            assert sorted(x["result"] for x in answers) == ["lost", "ok"], answers
            assert answers[0]["leader"] == answers[1]["leader"]
            winners[epoch] = answers[0]["leader"]
            epoch += 1
        keys = cluster.keys()
        assert {e: int(json.loads(keys[f"/muster/job/epoch-{e}"])["leader"], 16) for e in winners} == winners


def test_users_and_passwords():
    with etcd.EtcdCluster(1, auth=True) as cluster:
        with Arbiter(cluster) as a:
            text = a.ask("read")["text"]
            assert "wants a user and a password, and none were given" in text, text
        with Arbiter(cluster, "--user", cluster.user, "--password", "wrong") as a:
            text = a.ask("read")["text"]
            assert "user 'muster': etcdserver: authentication failed" in text and "wrong" not in text, text
        flags = ["--user", cluster.user, "--password", cluster.password]
        with Arbiter(cluster, *flags, "--prefix", "/elsewhere") as a:
            text = a.ask("read")["text"]
            assert "user 'muster': etcdserver: permission denied" in text, text
        with Arbiter(cluster, *flags) as a:
            assert a.ask("claim 1 5")["result"] == "ok"
            assert a.ask("beat 1 5")["result"] == "ok"
            cluster.restart(0)  # the server forgets its tokens
            assert a.ask("beat 1 5")["result"] == "ok"


def test_a_user_where_etcd_has_none_is_no_hindrance(one):
    with Arbiter(one, "--user", "joe", "--password", "x", run_id="nobody") as a:
        assert a.ask("claim 1 5")["result"] == "ok"


def test_tls_verifies_the_server(tmp_path):
    with etcd.EtcdCluster(1, tls=True) as cluster:
        for endpoint in (f"https://{cluster.endpoints[0]}", f"https://localhost:{cluster.ports[0]}"):
            with Arbiter(cluster, "--cacert", cluster.cacert, endpoints=[endpoint]) as a:
                a.ask("claim 1 5")
                assert all(a.ask("beat 1 5")["result"] == "ok" for _ in range(5))
        with Arbiter(cluster, *tls_flags(cluster, client=False)) as a:  # dies and comes back
            assert a.ask("read")["result"] == "ok"
            cluster.restart(0)
            assert a.ask("read")["result"] == "ok"
        with Arbiter(cluster, "--tls", "--cacert", etcd.make_ca(tmp_path, "other")) as a:
            text = a.ask("read")["text"]
            assert "certificate verify failed: " in text, text
        with Arbiter(cluster, "--tls") as a:  # it is not signed by the system's authorities
            text = a.ask("read")["text"]
            assert "certificate verify failed: " in text, text
        with Arbiter(cluster) as a:  # without TLS
            text = a.ask("read")["text"]
            assert "a server that wants TLS" in text or "Client sent an HTTP request to an HTTPS" in text, text


def test_tls_checks_the_name(tmp_path):
    with etcd.EtcdCluster(1, tls=True, names=["DNS:other.example", "IP:10.9.9.9"]) as cluster:
        for endpoint, why in ((cluster.endpoints[0], "IP address mismatch"),
                              (f"localhost:{cluster.ports[0]}", "hostname mismatch")):
            with Arbiter(cluster, *tls_flags(cluster, client=False), endpoints=[endpoint]) as a:
                text = a.ask("read")["text"]
                assert f"certificate verify failed: {why}" in text, text


def test_tls_with_client_certificates():
    with etcd.EtcdCluster(1, tls="client") as cluster:
        with Arbiter(cluster, *tls_flags(cluster)) as a:
            assert a.ask("claim 1 5")["result"] == "ok"
        with Arbiter(cluster, *tls_flags(cluster, client=False)) as a:
            text = a.ask("read")["text"]
            assert "client certificate" in text, text


def test_tls_to_a_server_without_it(one):
    with Arbiter(one, "--tls") as a:
        text = a.ask("read")["text"]
        assert "the server speak TLS?" in text or "the server does not speak TLS" in text, text


def test_a_wrong_configuration_is_refused_in_words(tmp_path):
    etcd.etcd_or_skip()
    ca = etcd.make_ca(tmp_path)
    cert, key = etcd.make_cert(tmp_path, "me", ["DNS:me"])
    _, other = etcd.make_cert(tmp_path, "you", ["DNS:you"])
    locked = tmp_path / "locked.key"
    subprocess.run([etcd.OPENSSL, "ec", "-in", str(key), "-aes128", "-passout", "pass:x", "-out", str(locked)], check=True,
                   capture_output=True)
    empty = tmp_path / "empty"
    empty.write_text("")
    for words, said in (
            (["job"], "0 endpoints of etcd were given"),
            (["job"] + ["h"] * 17, "17 endpoints of etcd were given: it takes 1 to 16"),
            (["job", "h:x"], "'h:x' is not an endpoint of etcd"),
            (["", "h"], "a run id of 1 to 255 bytes"),
            (["--user", "joe", "job", "h"], "the password is missing"),
            (["--cacert", ca, "job", "h"], "its endpoints are without TLS"),
            (["job", "https://a", "http://b"], "'http://b' of etcd is without TLS"),
            (["--tls", "--cacert", tmp_path / "none", "job", "h"], "none': No such file or directory"),
            (["--tls", "--cacert", empty, "job", "h"], "no certificate authority in '"),
            (["--tls", "--cert", cert, "job", "h"], "a client certificate needs its key"),
            (["--tls", "--cert", cert, "--key", other, "job", "h"], "it must belong to '"),
            (["--tls", "--cert", cert, "--key", locked, "job", "h"], "PEM without a password"),
            (["--tls", "--cert", ca.with_suffix(".key"), "--key", key, "job", "h"], "no certificate in '"),
    ):
        assert said in refused(*words), (words, refused(*words))


def test_an_agent_of_another_version_is_told(one):
    one.ctl("put", "/muster/future/latest", json.dumps({"version": 7, "epoch": 1}))
    with Arbiter(one, run_id="future") as a:
        text = a.ask("claim 1 5")["text"]
        assert "'/muster/future/latest' is not a record of this program's" in text and "version 7" in text, text


def test_a_library_of_another_libevent_is_closed_again(tmp_path):
    (tmp_path / "fake.c").write_text(r"""
        #include <unistd.h>
        const char *event_get_version(void) { return "0"; }
        __attribute__((destructor)) static void end(void) { (void)!write(2, "closed\n", 7); }""")
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", tmp_path / "libevent_extra-2.1.so.7",
                    tmp_path / "fake.c"], check=True)
    done = subprocess.run([harness.MUSTER, "status", "--rdzv-id=x", "etcd://127.0.0.1:1"], capture_output=True, text=True,
                          env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})
    if "closed" not in done.stderr:
        pytest.skip("libevent is linked in")
    assert done.returncode == 1 and re.fullmatch("closed\nmuster: .* uses another libevent than .*\n", done.stderr), done
