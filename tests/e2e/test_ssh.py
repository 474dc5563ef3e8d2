"""Start by ssh: `muster run -H a,b:2` on emulated hosts, each with a real sshd of its own (sshd.py)."""
import re

import pytest

from sshd import sshd_or_skip

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


# ---- the cluster itself ----

def test_hosts_that_can_be_reached(cluster):
    """Without a password and without a question, each by its name; and hosts that are bad in each way."""
    said = [cluster.run("ssh", name, "hostname; echo $SSH_CONNECTION; echo $HOME").stdout.split() for name in cluster.names]
    assert [words[0] for words in said] == cluster.names
    assert [words[3] for words in said] == [cluster.address(n) for n in range(4)]
    assert len({words[5] for words in said}) == 4, "each host has a home folder of its own"
    assert cluster.run("ssh", "-p", "2222", "trainer@node1", "echo $USER").stdout == "trainer\n"
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
