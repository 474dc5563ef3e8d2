"""A `dir:` job whose only key is the one in its folder: all nodes use it, whoever comes first, and a file that is not the
job's own is refused. Hosts are network namespaces; 2 is the stranger's."""
import os
import re
import signal
import subprocess

import pytest

from harness import MUSTER
from hosts import hosts_or_skip
from test_attack import OTHER
from test_attack_hosts import write_key
from test_attack_munge import key_id

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to other users")


class Shared:
    def __init__(self, job, hosts):
        self.job, self.hosts = job, hosts
        self.top = job.tmp / "shared"
        self.top.mkdir(mode=0o700)
        self.folder = self.top / "muster-net"
        self.key = self.folder / "key"

    def put(self, mode=0o600, uid=0):
        """A key that lies there before the job begins; its id."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        write_key(self.key)
        self.key.chmod(mode)
        os.chown(self.key, uid, 0)
        return key_id(self.key.read_text().strip()[-64:])

    def start(self, n, *words):
        return self.job.agent(f"h{n}", "--nnodes=2", "--nproc-per-node=1", f"--rdzv-endpoint=dir:{self.top}", "--rdzv-id=net",
                              "--rdzv-conf=join_timeout=20,last_call_timeout=0.2", *words, "--no-python", self.job.worker, "start", "go",
                              prefix=self.hosts.enter(n), env={"HOME": self.job.tmp, "MUSTER_MUNGE_SOCKET": "/nowhere"})

    def status(self, n, *words):
        env = {**self.job.env("operator"), "HOME": str(self.job.tmp), "MUSTER_RUN_DIR": str(self.job.tmp / f"run{n}"),
               "MUSTER_MUNGE_SOCKET": "/nowhere"}
        done = subprocess.run([*self.hosts.enter(n), MUSTER, "status", *words], env=env, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def shared(job):
    with hosts_or_skip(3, ipv6=False) as hosts:
        yield Shared(job, hosts)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first leads", "second leads"])
@pytest.mark.parametrize("made", ["before", "by the first"])
def test_the_key_of_the_folder_is_the_jobs(job, shared, order, made):
    there = shared.put() if made == "before" else None
    first = shared.start(order[0])
    first.wait_said("waiting for nodes|leads")
    here = key_id(shared.key.read_text().strip()[-64:])
    assert there in (None, here)
    second = shared.start(order[1])
    job.events.wait("start", 2, world=2)
    code, out, err = shared.status(2, f"dir:{shared.top}", "--rdzv-id=net")
    assert code == 0 and re.search(rf"access +by key: .*{here}.*folder", out), (out, err)
    refused = shared.status(2, f"dir:{shared.top}", "--rdzv-id=net", f"--key-file={write_key(job.tmp / 'other')}")
    assert refused[0] == 1 and f"{here} from the job's folder" in refused[2], refused
    job.go()
    for agent in (first, second):
        code, _, err = agent.finish()
        assert code == 0, err
    assert key_id(shared.key.read_text().strip()[-64:]) == here


def test_both_at_once_make_one_key(job, shared):
    agents = [shared.start(n) for n in (0, 1)]
    job.events.wait("start", 2, world=2)
    assert not [path for path in shared.folder.iterdir() if path.name.startswith("key-")]
    job.go()
    assert [a.finish()[0] for a in agents] == [0, 0]


def test_a_key_that_is_changed_while_a_job_runs_is_another_job_s(job, shared):
    """Who comes with the new one is refused, with both ids; the job goes on."""
    old = shared.put()
    agents = [shared.start(n) for n in (0, 1)]
    job.events.wait("start", 2, world=2)
    shared.key.unlink()
    new = shared.put()
    code, _, err = shared.status(2, f"dir:{shared.top}", "--rdzv-id=net")
    assert code == 1 and f"{old} from the job's folder" in err and f"here is {new} from the job's folder" in err, err
    shared.key.chmod(0o644)
    code, _, err = shared.status(2, f"dir:{shared.top}", "--rdzv-id=net")
    assert code == 1 and "(mode 0644): remove it" in err and "there is no key here" in err, err
    job.go()
    assert [a.finish()[0] for a in agents] == [0, 0]


@pytest.mark.parametrize("what,said", [
    ("another user's", f"belongs to another user \\(uid {OTHER}\\): remove it"), ("open", r"\(mode 0644\): remove it"),
    ("symlink", "cannot read .*key: Too many levels"), ("folder", "is not a file of muster"), ("fifo", "is not a file of muster"),
    ("long", "is not a file of muster"), ("text", "is not a key of muster"), ("two", "holds more than one key"), ("empty", "is empty")])
def test_a_file_that_is_not_the_jobs_own_is_refused(job, shared, what, said):
    shared.put(mode=0o644 if what == "open" else 0o600, uid=OTHER if what == "another user's" else 0)
    if what in ("long", "text", "two", "empty"):
        good = shared.key.read_text().strip()
        shared.key.write_text({"long": good * 100, "text": "hello\n", "two": good * 2, "empty": ""}[what])
    elif what in ("symlink", "folder", "fifo"):
        shared.key.rename(job.tmp / "elsewhere")
        {"symlink": lambda: shared.key.symlink_to(job.tmp / "elsewhere"), "folder": shared.key.mkdir,
         "fifo": lambda: os.mkfifo(shared.key, 0o600)}[what]()
    code, _, err = shared.start(0).finish()
    assert code == 2 and re.search(said, err) and "--rdzv-endpoint: " in err and err.count("\n") == 1, err


def test_a_job_whose_folder_s_key_was_removed_makes_another(job, shared):
    first = shared.start(0)
    first.wait_said("waiting for nodes|leads")
    first.signal(signal.SIGTERM)
    first.finish()
    shared.key.unlink()
    agents = [shared.start(n, "--rdzv-id=other") for n in (0, 1)]
    job.events.wait("start", 2, world=2)
    assert (shared.top / "muster-other/key").stat().st_mode & 0o7777 == 0o600 and not shared.key.exists()
    job.go()
    assert [a.finish()[0] for a in agents] == [0, 0]
