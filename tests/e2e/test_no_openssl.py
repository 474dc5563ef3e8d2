"""Where OpenSSL can't be loaded: a key is of no use there, and nobody is admitted without it; who needs none is not
disturbed. The library is hidden by a file of its name that is none."""
import re
import subprocess

import pytest

import harness
from harness import MUSTER
from hosts import hosts_or_skip
from test_attack_hosts import PORT, home_key, write_key
from test_ssh_head import Hosts as Logins

SAID = r"TLS needs OpenSSL \d: .*libssl\.so"


@pytest.fixture
def hidden(job):
    """An environment without OpenSSL."""
    folder = job.tmp / "lib"
    folder.mkdir()
    for major in (3, 4):
        (folder / f"libssl.so.{major}").touch()
    return {"LD_LIBRARY_PATH": folder, "HOME": job.tmp, "XDG_CONFIG_HOME": "\0unset", "MUSTER_MUNGE_SOCKET": "/nowhere"}


def agent(job, env, *words, **more):
    return job.agent("a", "--nnodes=1:2", "--nproc-per-node=1", "--rdzv-id=net", "--rdzv-conf=last_call_timeout=0.2,join_timeout=3",
                     *words, "--no-python", job.worker, "start", "go", env=env, **more)


@pytest.mark.parametrize("source", ["file", "environment", "home", "folder"])
def test_an_agent_that_has_a_key_does_not_start(job, hidden, source):
    words = ["--rdzv-backend=c10d", f"--rdzv-endpoint=10.88.0.1:{PORT}"]
    env = dict(hidden)
    if source == "file":
        words.append(f"--key-file={write_key(job.tmp / 'key')}")
    elif source == "environment":
        env["MUSTER_KEY"] = write_key(job.tmp / "key").read_text().strip()
    elif source == "home":
        home_key(job)
    else:
        words = [f"--rdzv-endpoint=dir:{job.tmp}/shared"]
    code, _, err = agent(job, env, *words).finish()
    assert code == 2 and re.search(SAID, err) and err.count("error") == 1, (code, err)


def test_a_job_of_one_machine_does_not_need_it(job, hidden):
    home_key(job)
    job.go()
    code, _, err = agent(job, hidden, "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{harness.free_port()}").finish()
    assert code == 0 and "OpenSSL" not in err, err


@pytest.mark.parametrize("words,said", [([], "warning"), (["--auth=on"], "error")])
def test_a_head_gives_no_key(job, hidden, words, said):
    """A job over ssh runs without one, and says so; not with --auth=on."""
    job.go()
    code, _, err = Logins(job).workers("a,b", *words, env=hidden).finish()
    assert (code == 0) == (said == "warning"), err
    assert re.search(f"{said}: .*{SAID}", err), err


def test_an_operator_says_it_when_a_key_is_needed(job, hidden):
    with hosts_or_skip(2, ipv6=False) as hosts:
        key = write_key(job.tmp / "key")
        leader = agent(job, {"HOME": job.tmp}, "--rdzv-backend=c10d", f"--rdzv-endpoint={hosts.address(0)}:{PORT}", f"--key-file={key}",
                       prefix=hosts.enter(0))
        job.events.wait("start", 1)
        env = {**job.env("operator"), **{k: str(v) for k, v in hidden.items() if v != "\0unset"}, "MUSTER_RUN_DIR": str(job.tmp / "none")}
        words = [*hosts.enter(1), MUSTER, "status", f"{hosts.address(0)}:{PORT}", f"--key-file={key}"]
        done = subprocess.run(words, env=env, capture_output=True, text=True)
        assert done.returncode == 1 and re.search(SAID, done.stderr), done.stderr
        words[:len(hosts.enter(1))] = hosts.enter(0)
        done = subprocess.run(words, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr  # of the leader's own machine
        job.go()
        assert leader.finish()[0] == 0
