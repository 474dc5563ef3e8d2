"""Settings of torchrun that few use: a store of the workers' own, and a rendezvous in a file."""
import os
import re
import subprocess
import sys

import pytest

from harness import TORCH_PYTHON, free_port, has_ipv6, muster


# Rank 0 opens the store at MASTER_PORT, as torch does without the agent's; with a failure in the first group.
STORE = """
import os, select, socket, sys
assert os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "False"
at = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if rank == 0:
    server = socket.create_server(at)
    for _ in range(world - 1):
        server.accept()[0].sendall(b"here")
else:
    for _ in range(500):
        try:
            client = socket.create_connection(at)
            break
        except ConnectionRefusedError:
            select.select([], [], [], 0.05)
    assert client.recv(4) == b"here"
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit(1 if rank == 1 else 0)
print("done", os.environ["GROUP_RANK"], rank, at[1], flush=True)
"""

ALL_REDUCE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1)
dist.all_reduce(x)
print("sum", int(x.item()), flush=True)
dist.destroy_process_group()
"""


def two_agents(job, tmp_path, text, *words, env=None):
    script = tmp_path / "worker.py"
    script.write_text(text)
    agents = [job.agent(tag, "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", *words, script, env=env)
              for tag in "ab"]
    ends = [a.finish() for a in agents]
    assert [code for code, _, _ in ends] == [0, 0], ends
    return ends


def test_rank_0_opens_the_store_itself_on_request(job, tmp_path):
    ends = two_agents(job, tmp_path, STORE, f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=e2e", "--max-restarts=1",
                      env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
    done = [line.split() for _, out, _ in ends for line in out.splitlines() if line.startswith("done")]
    assert sorted(int(d[2]) for d in done) == [0, 1, 2, 3] and len({d[3] for d in done}) == 1, ends


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
@pytest.mark.parametrize("nnodes", [1, 2])
def test_agents_that_meet_at_the_loopback_of_ipv6_reach_each_other(job, nnodes):
    words = (f"--nnodes={nnodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint=[::1]:{free_port()}", "--rdzv-id=e2e",
             "--no-python", "/bin/true")
    for agent in [job.agent(tag, *words) for tag in "ab"[:nnodes]]:
        code, _, err = agent.finish()
        assert code == 0 and "can't be reached" not in err, err


@pytest.mark.torch
@pytest.mark.parametrize("place", ["own store", "file"])
def test_torch_trains_so_on_two_agents(job, tmp_path, place):
    where = [f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=e2e"]
    if place == "file":
        where = [f"--rdzv-endpoint={tmp_path}/meeting", "--rdzv-conf=store_type=file"]
    ends = two_agents(job, tmp_path, ALL_REDUCE, *where,
                      env={"PYTHON_EXEC": TORCH_PYTHON, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": str(int(place != "file"))})
    assert [out for _, out, _ in ends] == ["sum 4\nsum 4\n"] * 2, ends


@pytest.mark.parametrize("words", [("run", "--rdzv-id", b"pr\xfcfung", "--no-python", "/bin/true"),
                                   ("run", "--role", b"r\xff", "--no-python", "/bin/true"),
                                   ("status", "--rdzv-id", b"a\x1b[31m"),
                                   ("exclude", b"node\n2"),
                                   ("stop", "--reason", b"\xc2\x9b31m")])
def test_a_text_that_cannot_be_sent_is_refused_at_once(words):
    end = subprocess.run([*muster(), *words], capture_output=True, timeout=30)
    assert end.returncode == 2 and re.search(rb"(byte \d.*not valid UTF-8|control characters)", end.stderr), end


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("name", [b"pr\xfcfung", b"a\nb\x1b[31m", b"../../up"])
def test_a_host_name_of_any_bytes_is_shown_clean_and_stays_in_its_folder(tmp_path, name):
    start = f"import os, socket, sys; socket.sethostname({name!r}); os.execvp(sys.argv[1], sys.argv[1:])"
    run = ["run", "--log-dir", tmp_path / "logs", "--rdzv-id=e2e", "--max-restarts=1", "--no-python", "/bin/false"]
    end = subprocess.run(["unshare", "--uts", sys.executable, "-c", start, *muster(), *run], capture_output=True, timeout=60)
    assert end.returncode == 1 and b"\x1b" not in end.stderr and b"(node " in end.stderr, end
    end.stderr.decode()  # valid UTF-8, and so is each name
    places = [os.path.relpath(folder, tmp_path) for folder, _, _ in os.walk(os.fsencode(tmp_path).decode())]
    assert all(p.isprintable() for p in places) and not (tmp_path.parent / "up").exists(), places


def test_a_file_that_one_node_meets_in(job, tmp_path):
    words = ("--rdzv-backend=c10d", "--rdzv-conf=store_type=file", f"--rdzv-endpoint={tmp_path}/meeting", "--no-python",
             "/bin/true")
    code, _, err = job.run(*words)
    assert code == 0 and f"the nodes meet in the directory {tmp_path}/meeting.muster" in err, err
    code, _, err = job.run(*words)  # as with torchrun, which fails with RendezvousClosedError
    assert code == 2 and "had finished" in err, err
    assert os.listdir(tmp_path / "meeting.muster")
