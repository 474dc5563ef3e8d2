"""What a node says while it waits for its leader or for other nodes: the value, the cause, and the time left."""
import os
import pty
import re
import select
import socket
import subprocess

from harness import MUSTER, SLOWER, free_port

PROGRAM = ("--no-python", "/bin/true")


def c10d(endpoint, conf):
    return ("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", "--rdzv-id=e2e", f"--rdzv-conf={conf}",
            *PROGRAM)


def on_a_terminal(job, *words):
    """Runs one agent to its end, with a terminal of 80 columns as standard error. Returns what it wrote there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([MUSTER, "run", *words], env={**job.env("a"), "TERM": "xterm"}, stderr=theirs,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    os.close(theirs)
    said = b""
    try:
        while select.select([ours], [], [], 30 * SLOWER)[0]:
            said += os.read(ours, 65536)
    except OSError:  # EIO: the last process that had it open has ended
        pass
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return said.decode()


def test_the_last_line_repeats_why_there_was_no_leader(job):
    port = free_port()
    code, _, err = job.run(*c10d(f"127.0.0.1:{port}", "join_timeout=1,is_host=0"))
    assert code == 75
    assert re.search(rf"no leader at 127.0.0.1:{port}: .*; trying again \(0:00 of 0:01\)\n", err), err
    assert re.search(rf"within the join timeout; .*; the last attempt: no leader at 127.0.0.1:{port}: .*\n$", err), err


def test_a_node_that_comes_a_little_earlier_than_the_leader_says_nothing_of_that(job):
    words = c10d(f"127.0.0.1:{free_port()}", "join_timeout=60,is_host=%d")
    early = job.agent("early", "-vv", *[w % 0 if "%d" in w else w for w in words])
    early.wait_said("rendezvous: no leader at")
    leader = job.agent("leader", *[w % 1 if "%d" in w else w for w in words])
    for agent in early, leader:
        code, _, err = agent.finish()
        assert code == 0 and "trying again" not in err, err


def test_a_node_with_the_rank_of_another_is_named_by_both_at_the_end(job):
    port = free_port()
    words = ("--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={port}", *PROGRAM)
    first = job.agent("a", "--rdzv-conf=timeout=6", *words)
    first.wait_said("1 of 2")
    why = "another node has the same --node-rank; give each its own"
    code, _, err = job.agent("b", "--rdzv-conf=timeout=1", *words).finish()
    assert code == 75 and err.endswith(f"within the join timeout; the last attempt: not admitted by the agent at "
                                      f"127.0.0.1:{port}: {why}\n"), err
    code, _, err = first.finish()
    assert code == 75 and re.search(rf"only 1 of at least 2 nodes came .*; node \S+ was refused: {why}\n$", err), err


def test_a_name_that_may_come_is_waited_for_with_its_cause(job):
    code, _, err = job.run(*c10d("nowhere.invalid:29400", "join_timeout=1"))
    assert code == 75
    assert re.search(r"'nowhere.invalid': .*; trying again \(0:0\d of 0:01\)\n", err), err
    assert re.search(r"the last attempt: [^\n]*'nowhere.invalid': [^\n]*\n$", err), err


def test_a_name_that_only_this_node_could_have_ends_at_once(job):
    code, _, err = job.run("--nnodes=1", "--master-addr=nowhere.invalid", f"--master-port={free_port()}", *PROGRAM,
                           seconds=20)
    assert code == 2 and "'nowhere.invalid'" in err and "leave the endpoint out" in err, err


def test_the_time_passes_in_place_on_a_terminal(job):
    said = on_a_terminal(job, *c10d(f"127.0.0.1:{free_port()}", "join_timeout=3,is_host=0"))
    assert re.search(r"\r\x1b\[Kmuster: 0:01 of 0:03: no leader at 127", said), repr(said)
    said = on_a_terminal(job, *c10d(f"127.0.0.1:{free_port()}", "join_timeout=3"))
    assert re.search(r"\r\x1b\[Kmuster: waiting for nodes, 0:0[12] of 0:03: 1 of 2 here", said), repr(said)
    assert said.count("\n") == 1, "only the last line stays"


def test_a_cause_too_long_for_the_terminal_has_a_line_of_its_own_once(job):
    said = on_a_terminal(job, *c10d("a-long-name-that-nobody-has.invalid:29400", "join_timeout=3"))
    cause = r"cannot look up the host name 'a-long-name-that-nobody-has\.invalid': [^\r\n]*"
    assert len(re.findall(rf"muster: {cause}; trying again\r\n", said)) == 1, repr(said)
    assert re.search(rf"the last attempt: {cause}\r\n$", said), repr(said)


def test_a_node_without_a_master_addr_says_so_once_on_a_terminal(job):
    said = on_a_terminal(job, "--nnodes=2", "--node-rank=1", f"--master-port={free_port()}", "--rdzv-conf=timeout=3",
                         *PROGRAM)
    assert said.count("looking for the other nodes at 127.0.0.1:") == 1, repr(said)
    assert re.search(r"\r\x1b\[Kmuster: waiting for nodes, 0:0[12] of 0:03: 1 of 2 here \([^)]*\); missing", said), said


def test_the_time_is_counted_from_the_start(job):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # which is given more than a second to answer
        port = silent.getsockname()[1]
        said = on_a_terminal(job, *c10d(f"127.0.0.1:{port}", "join_timeout=8,is_host=0"))
    first = re.search(rf"muster: (\d:\d\d) of 0:08: no leader at 127.0.0.1:{port}: no answer; what", said)
    assert first and first[1] != "0:00", repr(said)
    assert said.endswith(f"the last attempt: no leader at 127.0.0.1:{port}: no answer; what listens there may not be "
                         "muster\r\n"), repr(said)


def test_a_node_without_a_master_addr_says_where_it_looks(job):
    port = free_port()
    where = rf"at 127\.0\.0\.1:{port} \(no --master-addr given\)"
    code, _, err = job.run("--nnodes=2", "--node-rank=1", f"--master-port={port}", "--rdzv-conf=timeout=1", *PROGRAM)
    assert code == 75
    warned = "this node looks for the others at 127.0.0.1, where no other machine can reach it"
    assert warned in err.splitlines()[0], err
    assert re.search(rf"waiting for nodes: 1 of 2 here .*{where}; missing: node rank 0", err), err
    assert re.search(rf"the job ended: .*; this node looked for the others {where}\n$", err), err
    assert "(timeout=S with static)" in err, err
    code, _, err = job.run("--nnodes=2", "--node-rank=1", "--master-addr=127.0.0.1", f"--master-port={port}",
                           "--rdzv-conf=timeout=1", *PROGRAM)
    assert code == 75 and "no --master-addr" not in err, err
