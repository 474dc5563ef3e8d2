"""`muster run` from outside: what it starts, what it reports, how it ends (torchrun's contract)."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys

import pytest

import test_operate
from harness import MUSTER, VALGRIND, command, free_port

SH = ("--no-python", "/bin/sh", "-c")


def script(tmp_path, text, name="worker.py"):
    path = tmp_path / name
    path.write_text(text)
    path.chmod(0o755)
    return path


# Touches a file named by its rank, as the workers of torchrun's own tests do.
TOUCH = "import os, sys\nopen(os.path.join(sys.argv[1], os.environ['RANK']), 'w').write(os.environ.get('SENTINEL', ''))\n"


@pytest.fixture
def touch(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    return script(tmp_path, TOUCH), out


def names(folder):
    return sorted(p.name for p in folder.iterdir())


# --- what is started -------------------------------------------------------------------------------------------------


def test_a_python_script_runs_once_per_rank(job, touch):
    code, _, err = job.run("--nnodes=1", "--nproc-per-node=4", "--rdzv-id=abc", *touch, env={"SENTINEL": "here"})
    assert code == 0, err
    assert names(touch[1]) == ["0", "1", "2", "3"]
    assert (touch[1] / "2").read_text() == "here"


@pytest.mark.skipif(not VALGRIND, reason="for valgrind: children that only a job of some seconds has")
def test_workers_that_run_until_their_first_samples_are_compared(job):
    os.mkfifo(job.tmp / "end")
    agent = job.agent("a", "--nnodes=1", "--nproc-per-node=1", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-backend=c10d",
                      "--rdzv-id=long", script(job.tmp, "import sys\nopen(sys.argv[1]).read()\n"), job.tmp / "end")
    with open(job.tmp / "end", "w"):  # the worker ends when this is closed
        test_operate.until(job, lambda s: s["time"], "long")
    code, _, err = agent.finish(60)
    assert code == 0, err


def test_static_options_of_one_node(job, touch):
    code, _, err = job.run("--nnodes=1", "--nproc-per-node=4", "--node-rank=0", "--master-addr=localhost",
                           f"--master-port={free_port()}", "--monitor-interval=1", "--start-method=fork", *touch)
    assert code == 0, err
    assert names(touch[1]) == ["0", "1", "2", "3"]
    assert not list((job.tmp / "run").glob("mark-*")), "no other run has its name: no leader file is left"


def test_without_options_exactly_one_worker_runs(job, touch):
    code, _, err = job.run(*touch)
    assert code == 0, err
    assert names(touch[1]) == ["0"]


def test_standalone_needs_no_endpoint(job, touch):
    code, _, err = job.run("--standalone", "--nproc_per_node", "4", *touch)
    assert code == 0, err
    assert names(touch[1]) == ["0", "1", "2", "3"]


def test_a_shell_script_runs_without_python(job, tmp_path):
    path = script(tmp_path, "#!/bin/sh\n: > \"$1/$RANK\"\n", "worker.sh")
    out = tmp_path / "out"
    out.mkdir()
    code, _, err = job.run("--nproc-per-node=3", "--no-python", path, out)
    assert code == 0, err
    assert names(out) == ["0", "1", "2"]


def test_a_module_runs_as_python_m_does(job):
    code, out, err = job.run("-m", "json.tool", "--help")
    assert code == 0, err
    assert "json.tool" in out or "json object" in out.lower()


def test_run_path_runs_the_script_too(job, touch):
    code, _, err = job.run("--run-path", "--nproc-per-node=4", *touch)
    assert code == 0, err
    assert names(touch[1]) == ["0", "1", "2", "3"]


def test_every_option_can_come_from_the_environment(job, touch):
    code, _, err = job.run(*touch, env={"PET_NNODES": "1", "PET_NPROC_PER_NODE": "3", "PET_RDZV_ID": "x",
                                        "PET_MAX_RESTARTS": "0", "PET_MODULE": "0", "PET_STANDALONE": "1"})
    assert code == 0, err
    assert names(touch[1]) == ["0", "1", "2"]


def test_the_command_line_wins_over_the_environment(job, touch):
    code, _, err = job.run("--nproc-per-node=2", *touch, env={"PET_NPROC_PER_NODE": "3"})
    assert code == 0, err
    assert names(touch[1]) == ["0", "1"]


def test_auto_without_a_gpu_is_one_worker_per_allowed_cpu(job, touch):
    if pathlib.Path("/dev/nvidia0").exists():
        pytest.skip("this machine has a GPU")
    code, _, err = job.run("--nproc-per-node=auto", *touch)
    assert code == 0, err
    assert len(names(touch[1])) == len(os.sched_getaffinity(0))


def test_an_elastic_job_of_one_agent_starts_after_the_last_call(job, touch):
    code, _, err = job.run("--nnodes=1:2", "--nproc-per-node=4", "--rdzv-backend=c10d",
                           f"--rdzv-endpoint=localhost:{free_port()}", "--rdzv-id=e",
                           "--rdzv-conf=join_timeout=5,last_call_timeout=1,timeout=5", *touch)
    assert code == 0, err
    assert names(touch[1]) == ["0", "1", "2", "3"]


# The longest time for which the agent can be blocked is far below this lease, however many workers there are.
THOUSAND = ("--no-python", f"--nproc-per-node={100 if VALGRIND else 1000}", "--lease=1", "--heartbeat=0.3")


@pytest.mark.alone
def test_a_thousand_workers_start_and_end_within_a_lease_of_a_second(job):
    code, _, err = job.run(*THOUSAND, "--log-dir=logs", "--tee=3", "/bin/true", seconds=120)
    assert code == 0, err
    assert "lease" not in err and "attempt 2" not in err, err


@pytest.mark.alone
def test_a_failure_while_a_thousand_start_stops_those_that_are_there(job):
    code, _, err = job.run(*THOUSAND, "sh", "-c", "[ $RANK != 50 ] || exit 7; exec sleep 600", seconds=120)
    assert code == 1, err
    assert "rank 50 " in err and "exit code 7" in err and "lease" not in err and "attempt 2" not in err, err


@pytest.mark.alone
def test_a_signal_while_a_thousand_start_ends_them(job):
    agent = job.agent("a", *THOUSAND, "sh", "-c", "echo up; exec sleep 600")
    assert agent.out.until(lambda: b"up" in agent.out.raw, 60), agent.said()
    agent.signal(signal.SIGTERM)
    code, _, err = agent.finish(120)
    assert code == 128 + signal.SIGTERM, err
    assert "lease" not in err and "attempt 2" not in err, err


def test_two_agents_give_eight_distinct_ranks(job, touch):
    words = ["--nnodes=1:2", "--nproc-per-node=4", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{free_port()}",
             "--rdzv-id=two", *touch]
    for agent in [job.agent(tag, *words) for tag in "ab"]:
        code, _, err = agent.finish()
        assert code == 0, err
    assert names(touch[1]) == [str(n) for n in range(8)]


def test_script_arguments_are_never_looked_at(job):
    args = ["--nproc", "3", "--d", "-t", "--standalone", "--help", "-x=y", "--", "a b", ""]
    code, out, err = job.run("--no-python", sys.executable, "-c", "import sys; print(sys.argv[1:])", *args)
    assert code == 0, err
    assert repr(args) in out


def test_local_rank_is_put_into_the_arguments(job):
    code, out, err = job.run("--nproc-per-node=2", *SH, 'echo "$1 $2 $3"', "x", "--r=${local_rank}", "$local_rank",
                             "$$x")
    assert code == 0, err
    assert sorted(out.split("\n"))[1:] == ["--r=0 0 $x", "--r=1 1 $x"]


def test_two_bare_runs_at_once_do_not_collide(job):
    agents = [job.agent(tag, "--no-python", job.worker, "start", "env=MASTER_PORT", "env=TORCHELASTIC_RUN_ID", "go")
              for tag in "ab"]
    job.events.wait("start", 2)
    seen = job.events.wait("env", 4)
    for name in ("MASTER_PORT", "TORCHELASTIC_RUN_ID"):
        values = {e.fields["value"] for e in seen if e.fields["name"] == name}
        assert len(values) == 2, (name, values)
    job.go()
    assert [a.wait() for a in agents] == [0, 0]


def test_a_link_named_torchrun_is_muster_run(job, touch, tmp_path):
    if not MUSTER:
        pytest.skip("no muster binary given")
    link = tmp_path / "torchrun"
    link.symlink_to(os.path.abspath(MUSTER))
    code, _, err = job.agent("a", "--nproc-per-node=2", *touch, program=[str(link)]).finish()
    assert code == 0, err
    assert names(touch[1]) == ["0", "1"]


def test_a_copy_named_torchrun_is_muster_run(job, touch, tmp_path):
    if not MUSTER:
        pytest.skip("no muster binary given")
    copy = shutil.copy(MUSTER, tmp_path / "torchrun")
    code, _, err = job.agent("a", *touch, program=[str(copy)]).finish()
    assert code == 0, err


# --- what python ----------------------------------------------------------------------------------------------------


def test_python_exec_runs_the_script_unbuffered(job, tmp_path):
    python = script(tmp_path, '#!/bin/sh\necho "python $*"\n', "mypython")
    code, out, err = job.run(tmp_path / "t.py", "arg", env={"PYTHON_EXEC": python})
    assert code == 0, err
    assert out == f"python -u {tmp_path}/t.py arg\n"


def test_otherwise_the_python3_of_the_path(job, tmp_path):
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    script(bin_dir, '#!/bin/sh\necho "found $*"\n', "python3")
    script(job.tmp, "", "t.py")
    code, out, err = job.run("t.py", env={"PATH": f"{bin_dir}:/usr/bin:/bin"})
    assert code == 0, err
    assert out == "found -u t.py\n"


def test_no_python_at_all_is_a_sentence(job, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    script(job.tmp, "", "t.py")
    code, _, err = job.run("t.py", env={"PATH": str(empty)})
    assert code in (1, 2, 127)
    assert "python" in err and "PATH" in err, err


# --- how it ends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("worker_code", [1, 3, 85, 138])
def test_any_failure_of_a_worker_is_exit_status_1(job, worker_code):
    code, _, err = job.run("--nproc-per-node=2", *SH, f"exit {worker_code}")
    assert code == 1, err
    assert f"exitcode  : {worker_code} " in err, err


@pytest.mark.parametrize("words, hint", [
    (["--no-such-option", "x.py"], "no-such-option"),
    (["--max-restart=abc", "x.py"], "max-restarts"),
    (["--nnodes=2:1", "x.py"], "nnodes"),
    (["--nnodes=1:2:3", "x.py"], "nnodes"),
    (["--nproc-per-node=many", "x.py"], "nproc-per-node"),
    (["--nproc-per-node=0", "x.py"], "nproc-per-node"),
    (["--max-restarts=-1", "x.py"], "max-restarts"),
    (["-m", "--no-python", "x"], "no-python"),
    (["--rdzv-backend=zoo", "x.py"], "zoo"),
    (["--rdzv-conf=a=", "--rdzv-backend=c10d", "x.py"], "rdzv-conf"),
    (["--nproc", "2", "--tee=9", "x.py"], "tee"),
    ([], "SCRIPT"),
])
def test_a_wrong_command_line_is_exit_status_2_and_one_line(job, words, hint):
    code, out, err = job.run(*words)
    assert code == 2, err
    assert hint.lower().replace("_", "-") in err.lower().replace("_", "-"), err
    assert len(err.strip().split("\n")) == 1, err
    assert out == ""


def test_a_misspelled_option_brings_the_nearest(job):
    code, _, err = job.run("--nproc-per-nod3=2", "x.py")
    assert code == 2
    assert "--nproc-per-node" in err, err


def test_help_is_exit_status_0_on_standard_output(job):
    code, out, err = job.run("--help")
    assert code == 0
    assert "--nproc-per-node" in out and err == ""


def test_a_program_that_is_missing(job, tmp_path):
    code, _, err = job.run("--no-python", tmp_path / "nothing-here")
    assert code == 2, err
    assert "nothing-here" in err and "No such file" in err, err


def test_a_program_that_may_not_be_run(job, tmp_path):
    path = tmp_path / "plain.txt"
    path.write_text("no program\n")
    code, _, err = job.run("--no-python", path)
    assert code == 2, err
    assert "plain.txt" in err and "ermission denied" in err and "chmod +x" in err, err


@pytest.mark.parametrize("words, env, said", [
    (("nothing.py",), {}, r"SCRIPT nothing.py: no such file in /"),
    (("/nowhere/nothing.py",), {}, r"SCRIPT /nowhere/nothing.py: No such file"),
    (("python3", "plain.py"), {}, r"SCRIPT python3: no such file in .*; leave it out: muster runs SCRIPT with Python"),
    (("sleep", "1"), {}, r"SCRIPT sleep: no such file in .*; if you mean the program on PATH, write --no-python before"),
    (("/bin/sleep", "1"), {}, r"SCRIPT /bin/sleep is a program, not a Python script; write --no-python before it"),
    (("--run-path", "nothing.py"), {}, r"SCRIPT nothing.py: no such file"),
    (("--no-python", "no-such-program"), {}, r"no program no-such-program on PATH; write \./no-such-program"),
    (("--no-python", "plain.py"), {}, r"no program plain.py on PATH.*leave out --no-python"),
    (("--no-python", "./plain.py"), {}, r"\./plain.py can't be executed: Permission denied.*leave out --no-python"),
    (("--no-python", "./script"), {}, r"\./script can't be executed: its first line names /nowhere/sh: No such file"),
    (("--no-python", "./windows"), {}, r"the first line of \./windows ends as on Windows.*dos2unix"),
    (("--no-python", "."), {}, r"can't be executed|no program"),
    (("plain.py",), {"PYTHON_EXEC": "/nowhere/python"}, r"/nowhere/python can't be executed: No such file.*PYTHON_EXEC"),
    (("plain.py",), {"PYTHON_EXEC": "no-such-python"}, r"PYTHON_EXEC=no-such-python can't be run"),
])
def test_a_mistake_that_no_waiting_mends_ends_at_once(job, words, env, said):
    (job.tmp / "plain.py").write_text("pass\n")
    for name, line in ("script", b"#! /nowhere/sh -e\n"), ("windows", b"#!/bin/sh\r\necho\r\n"):
        (job.tmp / name).write_bytes(line)
        (job.tmp / name).chmod(0o755)
    name = "muster: error" if env else "muster run"
    for more in ((), ("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=x"),
                 ("--nnodes=2",))[:2 if env else 3]:  # the last would warn of its endpoint
        code, out, err = job.run(*more, *words, env=env)
        assert code == 2 and out == "" and re.fullmatch(f"{name}: .*(?:{said})[^\n]*\n", err), (code, err)


def test_a_script_may_come_through_a_pipe(job):
    """Nothing but its worker reads from it."""
    os.mkfifo(job.tmp / "pipe")
    writer = subprocess.Popen(["sh", "-c", """echo "print('whole')" > "$0" """, job.tmp / "pipe"])
    try:
        code, out, err = job.run("pipe")
        assert code == 0 and out == "whole\n", err
        assert writer.wait(timeout=60) == 0
    finally:
        writer.kill()
        writer.wait()


def test_a_script_whose_name_only_a_worker_knows_is_not_looked_for(job):
    for i in range(2):
        (job.tmp / f"part{i}.py").write_text("print('here')\n")
    code, out, err = job.run("--nproc-per-node=2", "part${local_rank}.py")
    assert code == 0 and out == "here\nhere\n", err


@pytest.mark.parametrize("what, said", [("parent", "the directory above it must be there"), ("open", "other users may write"),
                                        ("file", "Not a directory"), ("run", "is open to other users")])
def test_a_directory_that_cannot_be_used_is_said_at_once(job, tmp_path, what, said):
    shared = tmp_path / "shared"
    if what == "file":
        shared.write_text("")
    elif what != "parent":
        shared.mkdir()
        shared.chmod(0o777 if what == "open" else 0o700)
    if what == "run":
        (shared / "muster-e2e").mkdir()
        (shared / "muster-e2e").chmod(0o755)
    where = shared / "missing" / "here" if what == "parent" else shared
    code, _, err = job.run("--nnodes=2", f"--rdzv-endpoint=dir:{where}", "--rdzv-id=e2e", "--no-python", "/bin/true",
                           seconds=20)
    assert code == 2 and err.startswith("muster: error: --rdzv-endpoint: ") and said in err, (code, err)
    assert len(err.splitlines()) == 1, err


@pytest.mark.parametrize("worker_code, word", [(126, "not executable|could not be executed|cannot be executed"),
                                               (127, "not found")])
def test_the_codes_of_a_shell_are_explained(job, worker_code, word):
    code, _, err = job.run(*SH, f"exit {worker_code}")
    assert code == 1
    assert re.search(word, err), err


@pytest.mark.parametrize("how, status", [("exit=85", 85), ("signal=11", 139), ("exit=1", 1)])
def test_the_status_of_the_worker_is_the_jobs_on_request(job, how, status):
    code, _, err = job.run("--nproc-per-node=2", "--exit-code=worker", "--no-python", job.worker, "start", "rank=1", how,
                           "wait")
    assert code == status and "Root Cause" in err, err


def test_the_status_of_a_worker_elsewhere_is_every_nodes(job):
    agents = job.pair("--exit-code=worker", nnodes="2", nproc=1, worker=("start", "rank=0", "exit=7", "wait"))
    assert [a.wait() for a in agents] == [7, 7], [a.said() for a in agents]


def test_a_signal_to_muster_counts_more_than_the_workers_status(job):
    agent = job.agent("a", "--exit-code=worker", "--shutdown-timeout=20", "--no-python", job.worker, "start", "wait")
    job.events.wait("start", 1)
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 143, agent.said()


def test_a_signal_is_called_by_its_name(job):
    code, _, err = job.run("--nproc-per-node=2", "--no-python", job.worker, "start", "rank=1", "signal=11", "wait")
    assert code == 1
    assert re.search(r"rank 1 \(.*SIGSEGV", err), err
    assert re.search(r"exitcode  : -11 \(pid: \d+\)", err) and "Root Cause (first observed failure)" in err, err


def test_a_python_worker_that_crashes_says_where(job, tmp_path):
    (tmp_path / "t.py").write_text("import os, signal\n\n\ndef crash():\n    os.kill(os.getpid(), signal.SIGSEGV)\n\n\ncrash()\n")
    code, _, err = job.run(tmp_path / "t.py", env={"PYTHONFAULTHANDLER": "\0unset"})
    assert code == 1
    assert re.search(r"t\.py\W+, line 5 in crash", err), err
    assert re.search(r"exitcode  : -11 \(pid: \d+\)", err) and "Signal 11 (SIGSEGV) received by PID" in err, err
    code, _, err = job.run(tmp_path / "t.py", env={"PYTHONFAULTHANDLER": ""})
    assert code == 1 and "in crash" not in err and "Signal 11 (SIGSEGV) received by PID" in err, err


def test_the_report_has_torchruns_fields(job):
    code, _, err = job.run("--nproc-per-node=2", "--no-python", job.worker, "err=last words\\n", "rank=0", "exit=7",
                           "wait")
    assert code == 1
    name, _, report = err[err.index("torch.distributed."):].partition("\n")
    assert name == "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: " and report.startswith("===="), err
    for line in (r"^/.*e2e-worker FAILED$", r"^Failures:$", r"^Root Cause \(first observed failure\):$", r"^\[0\]:$",
                 r"^  time      : \d{4}-\d\d-\d\d_\d\d:\d\d:\d\d$", r"^  host      : \S+$",
                 r"^  rank      : 0 \(local_rank: 0\)$", r"^  exitcode  : 7 \(pid: \d+\) ?$", r"^  error_file: <N/A>$"):
        assert re.search(line, report, re.M), (line, err)


@pytest.mark.parametrize("words", [(), ("-r", "3", "--log-dir=logs")], ids=["shown", "in a file"])
def test_the_exception_comes_first_and_last(job, words):
    (job.tmp / "t.py").write_text("import os; int(os.environ['RANK']) or exec('raise ValueError(\"bad shape\")')\n")
    code, _, err = job.run("--nproc-per-node=2", *words, job.tmp / "t.py")
    ours = [line for line in err.splitlines() if line.startswith("muster: ")]
    assert code == 1 and re.fullmatch(r"muster: failed: rank 0 \(node \S+\): ValueError: bad shape \(exit code 1 after .*\); .*", ours[0]), err
    assert re.fullmatch(r"muster: failed: rank 0 \(node \S+\): ValueError: bad shape", err.splitlines()[-1]), err
    assert "https:" not in err and "Last lines" not in err and re.search(r"  traceback : Traceback .*\n(    .*\n)+  ValueError: bad shape\n==", err), err


def test_an_old_line_does_not_explain_a_signal(job):
    code, _, err = job.run("--no-python", job.worker, "err=WARNING: old\\n", "signal=9")
    assert code == 1 and err.count("WARNING: old") == 1, err
    assert re.fullmatch(r"muster: failed: rank 0 \(node \S+\): died of SIGKILL after \d+ ms", err.splitlines()[-1]), err


RUN_ID = r"sh-\d{4}-\d{4}-[0-9a-f]{6}"


def test_runs_that_start_at_once_have_names_of_their_own(job):
    agents = [job.agent(f"a{i}", "--log-dir=logs", "-t3", *SH, "echo $$TORCHELASTIC_RUN_ID") for i in range(12)]
    names = [re.search(RUN_ID, agent.finish()[1])[0] for agent in agents]
    assert len(set(names)) == 12 and {p.name for p in (job.tmp / "logs").iterdir()} == set(names), names


@pytest.mark.parametrize("words, nodes", [(["--starter=local", "--nnodes=2"], 2), (["--master-port={port}"], 1)], ids=["local", "static"])
def test_the_name_that_muster_makes_is_the_same_on_all_nodes(job, words, nodes):
    port = free_port()
    code, out, err = job.run(*(w.replace("{port}", str(port)) for w in words), *SH, "echo $$TORCHELASTIC_RUN_ID")
    assert code == 0 and len(set(re.findall(RUN_ID, out))) == 1 and len(out.splitlines()) == nodes, (out, err)


def test_what_record_wrote_is_in_the_report(job, tmp_path):
    path = script(tmp_path, """
import json, os, time
json.dump({"message": {"message": "ValueError: bad shape", "extraInfo": {"py_callstack": "Traceback: here it was",
           "timestamp": str(int(time.time()))}}}, open(os.environ["TORCHELASTIC_ERROR_FILE"], "w"))
raise SystemExit(1)
""")
    code, _, err = job.run(path)
    assert code == 1
    assert re.search(r"^  traceback : Traceback: here it was$", err, re.M), err
    named = re.search(r"error_file: (\S+)", err)
    assert named and named.group(1) != "<N/A>", err
    assert "bad shape" in pathlib.Path(named.group(1)).read_text()
    shutil.rmtree(pathlib.Path(named.group(1)).parent, ignore_errors=True)


@pytest.mark.parametrize("nproc, words", [(1, ()), (2, ()), (1, ("-t", "2"))])
def test_what_the_terminal_shows_is_not_repeated_in_the_report(job, tmp_path, nproc, words):
    code, _, err = job.run(f"--nproc-per-node={nproc}", "--log-dir", tmp_path / "logs", *words, "--no-python", job.worker,
                           "rank=0", "err=the very last words\\n", "rank=0", "exit=1", "wait")
    assert code == 1
    assert err.count("the very last words") == 1 and err.count("ChildFailedError") == 1, err
    assert "Last lines" not in err, err


def test_what_the_filter_hid_is_in_the_report(job):
    code, _, err = job.run("--nproc-per-node=2", "--local-ranks-filter=1", "--no-python", job.worker, "rank=0",
                           "err=the very last words\\n", "rank=0", "exit=1", "wait")
    assert code == 1
    assert re.search(r"^Last lines of rank 0's .*\n  the very last words$", err, re.M), err


def test_last_words_of_a_failed_worker_are_shown(job, tmp_path):
    code, _, err = job.run("--log-dir", tmp_path / "logs", "-r", "3", "--no-python", job.worker,
                           "err=one\\ntwo\\nthe very last words\\n", "exit=1")
    assert code == 1
    assert "the very last words" in err, err


def test_a_worker_that_fails_once_is_restarted(job):
    fails = [word for act in ("go", "exit=5") for word in ("rank=1", "count=0", act)]
    agent = job.agent("a", "--nproc-per-node=2", "--max-restarts=2", "--no-python", job.worker, "start", *fails,
                      "count=0", "wait")
    job.events.wait("start", 2, count=0)
    job.go()
    code, _, err = agent.finish()
    assert code == 0, err
    assert len(job.events.all("start", count=1)) == 2
    assert re.search(r"restart 1 of 2", err), err
    job.no_overlap()


def test_the_store_of_an_attempt_ends_with_it(job, tmp_path):
    path = script(tmp_path, """
import os, socket, sys
store = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
socket.create_connection(store).close()
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    open(sys.argv[1], "w").write(str(store[1]))
    raise SystemExit(1)
old = store[0], int(open(sys.argv[1]).read())
try:
    if old != store:
        socket.create_connection(old)
        raise SystemExit("the store of the first attempt still listens")
except ConnectionRefusedError:
    pass
""")
    code, _, err = job.run("--max-restarts=1", path, tmp_path / "port")
    assert code == 0, err


def test_a_host_whose_endpoint_another_program_has_ends_with_one_line(job):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, _, err = job.run("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
                               "--rdzv-conf=is_host=1", *SH, "true")
    assert code == 2, err
    assert re.fullmatch(rf"muster: error: [^\n]*{port}[^\n]*\n", err), err


def test_the_budget_is_spent_exactly(job):
    code, _, err = job.run("--nproc-per-node=2", "--max-restarts=3", "--crash-loop=0", "--no-python", job.worker, "start", "rank=0",
                           "exit=9", "wait")
    assert code == 1
    for count in range(4):
        assert len(job.events.all("start", count=count, rank=0)) == 1, err
    assert "exitcode  : 9 " in err, err
    job.no_overlap()


# --- environment -----------------------------------------------------------------------------------------------------

DUMP = 'env > "$DUMP/$RANK"; cat /proc/self/stat > /dev/null'


def environments(job, tmp_path, agents, *words, extra=None):
    folder = tmp_path / "env"
    folder.mkdir()
    endpoint = f"127.0.0.1:{free_port()}"
    meet = [f"--nnodes={agents}", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", "--rdzv-id=job7"]
    runs = [job.agent(tag, *meet, *words, *SH, DUMP, env={"DUMP": folder, **(extra or {})})
            for tag in "ab"[:agents]]
    for run in runs:
        code, _, err = run.finish()
        assert code == 0, err
    return {int(p.name): dict(line.split("=", 1) for line in p.read_text().splitlines() if "=" in line)
            for p in folder.iterdir()}


@pytest.mark.parametrize("agents", [1, 2])
def test_the_environment_of_the_workers(job, tmp_path, agents):
    seen = environments(job, tmp_path, agents, "--nproc-per-node=2", "--max-restarts=3", "--role=trainer")
    world = 2 * agents
    assert sorted(seen) == list(range(world))
    for rank, env in seen.items():
        want = {
            "RANK": rank, "LOCAL_RANK": rank % 2, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": rank // 2,
            "GROUP_WORLD_SIZE": agents, "ROLE_NAME": "trainer", "ROLE_RANK": rank, "ROLE_WORLD_SIZE": world,
            "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 3, "TORCHELASTIC_RUN_ID": "job7",
            "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1, "OMP_NUM_THREADS": 1,
            "MASTER_ADDR": "127.0.0.1", "MUSTER_EPOCH": 1, "MUSTER_GENERATION": "1.1", "MUSTER_RUN_ID": "job7",
            "MUSTER_NODE_RANK": rank // 2, "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        }
        assert {k: env.get(k) for k in want} == {k: str(v) for k, v in want.items()}
        assert env["TORCHELASTIC_ERROR_FILE"].endswith("error.json")
        assert 0 < int(env["MASTER_PORT"]) < 65536
    assert len({env["MASTER_PORT"] for env in seen.values()}) == 1
    assert len({env["TORCHELASTIC_ERROR_FILE"] for env in seen.values()}) == world


def test_uneven_nodes_have_dense_ranks(job, tmp_path):
    folder = tmp_path / "env"
    folder.mkdir()
    meet = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=u"]
    runs = [job.agent(tag, *meet, f"--nproc-per-node={n}", *SH, DUMP, env={"DUMP": folder})
            for tag, n in (("a", 1), ("b", 3))]
    for run in runs:
        code, _, err = run.finish()
        assert code == 0, err
    seen = {int(p.name): dict(line.split("=", 1) for line in p.read_text().splitlines() if "=" in line)
            for p in folder.iterdir()}
    assert sorted(seen) == [0, 1, 2, 3]
    by_node = {}
    for rank, env in sorted(seen.items()):
        assert env["WORLD_SIZE"] == "4"
        by_node.setdefault(env["GROUP_RANK"], []).append(rank)
    for ranks in by_node.values():
        assert ranks == list(range(ranks[0], ranks[0] + len(ranks))), by_node


def test_settings_of_the_user_are_left_alone(job, tmp_path):
    env = environments(job, tmp_path, 1, "--nproc-per-node=2",
                       extra={"OMP_NUM_THREADS": "3", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "MINE": "1"})[0]
    assert (env["OMP_NUM_THREADS"], env["TORCH_NCCL_ASYNC_ERROR_HANDLING"], env["MINE"]) == ("3", "0", "1")


def test_one_worker_gets_no_omp_num_threads(job, tmp_path):
    env = environments(job, tmp_path, 1, "--nproc-per-node=1", extra={"OMP_NUM_THREADS": "\0unset"})[0]
    assert "OMP_NUM_THREADS" not in env


def test_variables_of_an_outer_launcher_are_stale_and_go(job, tmp_path):
    env = environments(job, tmp_path, 1, "--nproc-per-node=2",
                       extra={"RANK": "55", "WORLD_SIZE": "99", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "outer",
                              "MUSTER_NO_SUCH_THING": "old", "TORCHELASTIC_ENABLE_FILE_TIMER": "0"})[0]
    assert env["RANK"] == "0" and env["WORLD_SIZE"] == "2" and env["MASTER_PORT"] != "1"
    assert env["TORCHELASTIC_RUN_ID"] == "job7"
    assert "MUSTER_NO_SUCH_THING" not in env
    assert env["TORCHELASTIC_ENABLE_FILE_TIMER"] == "0"


def test_a_worker_starts_with_signals_and_descriptors_as_if_from_a_shell(job):
    code, out, err = job.run("--nproc-per-node=2", *SH, 'ls /proc/self/fd; cat /proc/self/status')
    assert code == 0, err
    assert set(re.findall(r"^Sig(?:Blk|Ign|Cgt):\s(\w+)$", out, re.M)) == {"0" * 16}, out
    assert set(re.findall(r"^(\d+)$", out, re.M)) <= {"0", "1", "2", "3"}, "3 is ls's own: " + out


def test_each_worker_has_a_session_of_its_own(job):
    code, out, err = job.run("--nproc-per-node=2", "--no-python", sys.executable, "-c",
                             "import os; print(os.getsid(0) == os.getpid() == os.getpgrp())")
    assert code == 0, err
    assert out == "True\nTrue\n"


# --- signals ---------------------------------------------------------------------------------------------------------

ENDING = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]


@pytest.mark.parametrize("signo", ENDING)
def test_a_signal_while_workers_run_stops_them_and_is_the_exit_status(job, signo):
    agent = job.agent("a", "--nproc-per-node=2", "--no-python", job.worker, "family", "start", "wait")
    job.events.wait("start", 2)
    agent.signal(signo)
    code, _, err = agent.finish()
    assert code == 128 + signo, err
    assert job.held("a") == []


@pytest.mark.parametrize("signo", ENDING)
def test_a_signal_while_waiting_for_nodes_ends_it(job, signo):
    agent = job.agent("a", "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}",
                      "--no-python", job.worker, "start", "wait")
    agent.wait_said("wait")
    agent.signal(signo)
    code, _, err = agent.finish(10)
    assert code == 128 + signo, err
    assert not job.events.all("start")


def test_workers_that_ignore_sigterm_are_killed_after_the_time_given(job):
    agent = job.agent("a", "--nproc-per-node=2", "--shutdown-timeout=1", "--no-python", job.worker, "ignore", "family",
                      "start", "wait")
    job.events.wait("start", 2)
    agent.signal(signal.SIGTERM)
    code, _, err = agent.finish(20)
    assert code == 128 + signal.SIGTERM, err
    assert job.held("a") == []


def test_a_second_interrupt_kills_at_once(job):
    agent = job.agent("a", "--nproc-per-node=2", "--shutdown-timeout=300", "--no-python", job.worker, "ignore",
                      "start", "wait")
    job.events.wait("start", 2)
    agent.signal(signal.SIGINT)
    agent.wait_said("SIGINT")
    agent.signal(signal.SIGINT)
    code, _, err = agent.finish(20)
    assert code == 128 + signal.SIGINT, err
    assert job.held("a") == []


def test_a_second_sigterm_does_not(job):
    agent = job.agent("a", "--shutdown-timeout=300", "--no-python", job.worker, "start", "wait")
    # One worker ends slowly: its handler waits for the test.
    slow = job.agent("b", "--shutdown-timeout=300", *SH,
                     'trap "echo term >&2; : < $E2E_GO; exit 0" TERM; echo "start slow=1" > $E2E_EVENTS; '
                     'while :; do sleep 1 & wait; done')
    job.events.wait("start", 2)
    slow.signal(signal.SIGTERM)
    slow.wait_said("term")
    slow.signal(signal.SIGTERM)
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 128 + signal.SIGTERM  # by then, a second signal would have had its effect
    assert slow.wait(0.3) is None, slow.said()
    job.go()
    code, _, err = slow.finish()
    assert code == 128 + signal.SIGTERM, err


def test_other_signals_to_handle(job):
    agent = job.agent("a", "--signals-to-handle=SIGUSR1,SIGTERM", "--no-python", job.worker, "start", "wait")
    job.events.wait("start", 1)
    agent.signal(signal.SIGUSR1)
    code, _, err = agent.finish()
    assert code == 128 + signal.SIGUSR1, err
    assert job.held("a") == []


# --- logs ------------------------------------------------------------------------------------------------------------


def log_files(root):
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and p.name[0] != ".")


def test_the_folders_of_the_logs(job, tmp_path):
    logs = tmp_path / "logs"
    code, _, err = job.run("--nproc-per-node=2", "--log-dir", logs, "--rdzv-id=job7", "--redirects=3", "--no-python",
                           job.worker, "out=to out\\n", "err=to err\\n")
    assert code == 0, err
    host = os.uname().nodename
    assert log_files(logs / "job7") == [*sorted(f"1.1/{host}/{rank}/{stream}.log" for rank in (0, 1)
                                                for stream in ("stdout", "stderr")), "events.jsonl"]
    assert (logs / "job7" / "1.1" / host / "0" / "stdout.log").read_text() == "to out\n"
    assert (logs / "job7" / "latest").resolve() == (logs / "job7" / "1.1").resolve()


def modes(root):
    """Of everything below, links apart: {(kind, permissions)}."""
    return {(stat.S_IFMT(st.st_mode), oct(stat.S_IMODE(st.st_mode))) for st in (p.lstat() for p in root.rglob("*"))
            if not stat.S_ISLNK(st.st_mode)}


@pytest.mark.parametrize("umask", ["000", "077"])
@pytest.mark.parametrize("words, file, folder", [([], "0o600", "0o700"), (["--log-mode=0640"], "0o640", "0o750")])
def test_who_may_read_logs_does_not_depend_on_the_umask(job, tmp_path, umask, words, file, folder):
    """Of the job's folders and files; the folder that was there keeps its mode."""
    logs = tmp_path / "logs"
    logs.mkdir()
    logs.chmod(0o755)
    code, _, err = job.run(*words, "--log-dir", logs / "mine", "-r1", "-t2", "--duplicate-stderr-filters=x", "--max-restarts=1",
                           f"--event-log={logs}/events", *SH, 'umask; umask >&2; exit $((1 - TORCHELASTIC_RESTART_COUNT))',
                           prefix=("/bin/sh", "-c", f'umask {umask}; exec "$@"', "sh"))
    assert code == 0, err
    assert modes(logs) == {(stat.S_IFREG, file), (stat.S_IFDIR, folder)}
    assert stat.S_IMODE(logs.stat().st_mode) == 0o755
    assert {p.read_text() for p in logs.rglob("stdout.log")} == {f"0{umask}\n"}, "the workers' own is as it was"


def test_logs_of_earlier_generations_stay_and_latest_moves(job, tmp_path):
    logs = tmp_path / "logs"
    code, _, err = job.run("--max-restarts=1", "--log-dir", logs, "--rdzv-id=job7", "-r3", "--no-python", job.worker,
                           "count=0", "out=first\\n", "count=0", "exit=1", "out=second\\n")
    assert code == 0, err
    texts = {p.read_text() for p in (logs / "job7").glob("*/*/0/stdout.log") if "latest" not in p.parts}
    assert texts == {"first\n", "second\n"}
    assert "second\n" in {p.read_text() for p in (logs / "job7" / "latest").glob("*/0/stdout.log")}


def test_a_run_id_used_before_gets_a_number(job, tmp_path):
    logs = tmp_path / "logs"
    for _ in range(2):
        code, _, err = job.run("--log-dir", logs, "--rdzv-id=job7", "-r1", *SH, "echo x")
        assert code == 0, err
    assert names(logs) == ["job7", "job7.2"]


@pytest.mark.parametrize("spec, out_files, err_files", [("0", [], []), ("1", [0, 1], []), ("2", [], [0, 1]),
                                                         ("3", [0, 1], [0, 1]), ("0:1,1:2", [0], [1]), ("1:3", [1], [1])])
def test_redirects_per_local_rank(job, tmp_path, spec, out_files, err_files):
    logs = tmp_path / "logs"
    code, out, err = job.run("--nproc-per-node=2", "--log-dir", logs, "--rdzv-id=j", "-r", spec, *SH,
                             'echo "out$RANK"; echo "err$RANK" >&2')
    assert code == 0, err
    for rank in (0, 1):
        for word, stream, files, shown in (("out", "stdout", out_files, out), ("err", "stderr", err_files, err)):
            found = list((logs / "j").glob(f"1.1/*/{rank}/{stream}.log"))
            assert bool(found) == (rank in files), (rank, stream)
            assert (f"{word}{rank}" in shown) == (rank not in files), (rank, stream)
            if found:
                assert found[0].read_text() == f"{word}{rank}\n"


def test_tee_goes_to_both_with_torchruns_prefix(job, tmp_path):
    logs = tmp_path / "logs"
    code, out, err = job.run("--nproc-per-node=2", "--log-dir", logs, "--rdzv-id=j", "-t3", *SH,
                             'echo "out$RANK"; echo "err$RANK" >&2')
    assert code == 0, err
    for rank in (0, 1):
        assert f"[default{rank}]:out{rank}\n" in out
        assert f"[default{rank}]:err{rank}\n" in err
        assert next((logs / "j").glob(f"1.1/*/{rank}/stdout.log")).read_text() == f"out{rank}\n"


def test_tee_and_redirect_mixed_per_rank(job, tmp_path):
    logs = tmp_path / "logs"
    code, out, err = job.run("--nproc-per-node=2", "--log-dir", logs, "--rdzv-id=j", "-r", "0:2", "-t", "0:1,1:2", *SH,
                             'echo "out$RANK"; echo "err$RANK" >&2')
    assert code == 0, err
    assert "[default0]:out0" in out and "out1\n" in out and "[default1]:out1" not in out
    assert "err0" not in err and "[default1]:err1" in err
    assert sorted(f"{p.parent.name}/{p.name}" for p in (logs / "j").glob("1.1/*/*/*.log")) == [
        "0/stderr.log", "0/stdout.log", "1/stderr.log"]


def test_the_prefix_can_be_chosen(job, tmp_path):
    code, out, err = job.run("--nproc-per-node=2", "--log-dir", tmp_path / "logs", "--redirect=3", "--tee=3", *SH,
                             "echo hello", env={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[rank${rank}]: "})
    assert code == 0, err
    assert "[rank0]: hello\n" in out and "[rank1]: hello\n" in out


@pytest.mark.parametrize("when, template, lines", [
    ("never", None, ["hello", "hello"]),
    ("never", "<${rank}> ", ["hello", "hello"]),
    ("always", "<${rank}> ", ["<0> hello", "<1> hello"]),
    ("auto", None, ["[default0]:hello", "[default1]:hello"]),
])
def test_prefixes_of_tee(job, tmp_path, when, template, lines):
    words = [f"--log-line-prefix-template={template}"] if template else []
    code, out, err = job.run("--nproc-per-node=2", "--log-dir", tmp_path / "logs", "-t3", f"--prefix={when}", *words, *SH,
                             "echo hello")
    assert code == 0 and sorted(out.splitlines()) == lines, out + err
    assert {p.read_text() for p in (tmp_path / "logs").rglob("stdout.log")} == {"hello\n"}


def test_only_chosen_local_ranks_reach_the_terminal(job, tmp_path):
    code, out, err = job.run("--nproc-per-node=3", "--log-dir", tmp_path / "logs", "-t1", "--local-ranks-filter=1",
                             *SH, 'echo "out$RANK"')
    assert code == 0, err
    assert "out1" in out and "out0" not in out and "out2" not in out
    assert len(list((tmp_path / "logs").rglob("stdout.log"))) >= 3


def test_a_folder_without_r_or_t_gets_no_log_files_and_that_is_reported_first(job, tmp_path):
    code, out, err = job.run("--log-dir", tmp_path / "logs", *SH, "echo out; echo err >&2")
    assert (code, out) == (0, "out\n") and list(tmp_path.rglob("*.log")) == [], err
    assert err.splitlines() == ["muster: warning: --log-dir: the output of workers is not written there; add -t 3 (to files "
                                "and terminal) or -r 3 (to files only)", "err"]


@pytest.mark.parametrize("words", [(), ("-t3",), ("-r3",)])
def test_what_stays_in_the_temporary_folder_is_reported(job, tmp_path, words):
    (tmp_path / "temp").mkdir()
    code, _, err = job.run(*words, *SH, "echo out", env={"TMPDIR": tmp_path / "temp"})
    assert code == 0, err
    stays = re.findall(r"^muster: logs: (.*) \(kept; each node has its own folder without --log-dir\)$", err, re.M)
    assert sorted(map(str, (tmp_path / "temp").iterdir())) == stays and len(stays) == bool(words), err


def test_no_files_at_all_with_dev_null(job):
    code, out, err = job.run("--log-dir=/dev/null", *SH, 'echo "f=$TORCHELASTIC_ERROR_FILE"')
    assert code == 0, err
    assert out == "f=\n"


def test_a_log_dir_that_is_a_file_is_refused(job, tmp_path):
    path = tmp_path / "plain"
    path.write_text("x")
    code, _, err = job.run("--log-dir", path, "-r3", *SH, "true")
    assert code in (1, 2) and str(path) in err, err


def on_small_disk(path, options, prepare="true"):
    """The command line that runs muster where `path` is a small file system, prepared by shell commands."""
    path.mkdir()
    words = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o {options} none "$0" && cd "$0" && {prepare} && exec "$@"',
             str(path)]
    if subprocess.run([*words, "true"], capture_output=True).returncode != 0:
        pytest.skip("needs a mount namespace")
    return [*words, *command()]


def test_a_full_run_directory_hides_the_job_from_operators(job, tmp_path):
    full = on_small_disk(tmp_path / "run", "size=4k,mode=700", "(cat /dev/zero > fill || true) 2> /dev/null")
    code, out, err = job.agent("a", *SH, "echo done", env={"MUSTER_RUN_DIR": tmp_path / "run"}, program=full).finish()
    assert (code, out) == (0, "done\n"), err
    assert re.fullmatch(f"muster: warning: can't write {tmp_path}/run/agent-\\d+: No space left on device; "
                        "commands like muster ps do not find this job here\n", err), err


def test_a_full_log_disk_at_the_start_does_not_end_the_job(job, tmp_path):
    logs = tmp_path / "logs"
    full = on_small_disk(logs, "size=64k", "(cat /dev/zero > fill || true) 2> /dev/null")
    code, out, err = job.run("--nproc-per-node=2", "--log-dir", logs, "-r3", *SH, 'echo "out$RANK"', program=full)
    assert code == 0, err
    assert "can't make the log folder" in err and "No space left on device" in err, err
    assert "Input/output" not in err
    assert "1 of 1 starts had no log files" in err, err
    assert sorted(out.split()) == ["[default0]:out0", "[default1]:out1"], "it is shown instead"


def test_a_log_disk_that_fills_up_does_not_end_the_job(job, tmp_path):
    """Restarts find no space for a folder, then none for a file; the last one has space for both."""
    logs = tmp_path / "logs"
    small = on_small_disk(logs, "nr_inodes=64")
    code, out, err = job.run(
        "--max-restarts=3", "--crash-loop=0", "--log-dir", logs, "-t1", "--rdzv-id=j", *SH,
        'echo "start $TORCHELASTIC_RESTART_COUNT $(readlink latest)"; n=0; case $TORCHELASTIC_RESTART_COUNT in '
        '0) while true > $n; do n=$((n+1)); done 2> /dev/null;; '
        '1) rm 0 1 2;; '
        '2) rm [0-9]*;; '
        '3) until [ -s j/latest/*/0/stdout.log ]; do true; done; t=$(cat j/latest/*/0/stdout.log); echo "$t"; exit 0;; '
        'esac; exit 1', program=small)
    assert code == 0, err
    for n in range(4):
        assert f"[default0]:start {n}" in out, out
    assert out.count("start 3") == 2, "the last start has its file"
    assert len(re.findall("the job continues without these files", err)) == 1, err
    assert "can't make the log folder" in err and "No space left on device" in err, err
    assert "2 of 4 starts had no log files" in err, err


def test_a_log_disk_that_is_full_in_the_middle_is_told_and_a_failure(job, tmp_path):
    """Workers end by themselves and everything is shown, but their files lack bytes."""
    logs = tmp_path / "logs"
    small = on_small_disk(logs, "size=256k")
    code, out, err = job.run("--nproc-per-node=3", "--log-dir", logs, "-t3", *SH,
                             'seq -f "line %.0f of the lines that a worker writes" 20000', program=small)
    assert code == 1, err
    assert out.count("\n") == 60000
    assert err.count("can't write to") == 1 and "No space left on device; the job continues" in err, err
    lost = sum(int(n) for n in re.findall(r"/stdout\.log lacks ([0-9]+) bytes", err))
    assert 0 < 3 * 20000 * 44 - lost < 600000, err
    assert "Root Cause" not in err


def test_a_log_folder_that_vanishes_is_made_again(job, tmp_path):
    logs = tmp_path / "logs"
    code, _, err = job.run("--max-restarts=1", "--log-dir", logs, "--rdzv-id=job7", "-r1", *SH,
                           f'echo "start $TORCHELASTIC_RESTART_COUNT"; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || '
                           f'{{ rm -r {logs}; exit 1; }}')
    assert code == 0, err
    assert [p.read_text() for p in (logs / "job7" / "latest").glob("*/0/stdout.log")] == ["start 1\n"]
    assert "had no log files" not in err
    events = [json.loads(line)["event"] for line in (logs / "job7" / "events.jsonl").read_text().splitlines()]
    assert events[-1] == "closed", events


def test_lines_of_many_workers_are_never_torn(job, tmp_path):
    path = script(tmp_path, """
import os, sys
rank = os.environ["RANK"]
for i in range(400):
    line = f"<{rank}.{i}." + rank * 150 + ">\\n"
    sys.stdout.write(line[:70]); sys.stdout.flush(); sys.stdout.write(line[70:]); sys.stdout.flush()
""")
    code, out, err = job.run("--nproc-per-node=4", "--log-dir", tmp_path / "logs", "-t1", path)
    assert code == 0, err
    lines = out.split("\n")
    assert lines.pop() == ""
    whole = re.compile(r"\[default(\d)\]:<\1\.\d+\.\1{150}>")
    assert [x for x in lines if not whole.fullmatch(x)] == []
    assert len(lines) == 1600
    for rank in "0123":
        mine = [int(x.split(".")[1]) for x in lines if x.startswith(f"[default{rank}]")]
        assert mine == list(range(400)), "in order"


def test_a_partial_last_line_is_shown(job, tmp_path):
    code, out, err = job.run("--log-dir", tmp_path / "logs", "-t1", "--no-python", job.worker, "out=no newline")
    assert code == 0, err
    assert "[default0]:no newline" in out


def test_a_partial_line_shows_while_the_worker_lives(job, tmp_path):
    agent = job.agent("a", "--log-dir", tmp_path / "logs", "-t1", "--no-python", job.worker, "out=Password? ", "start",
                      "go")
    job.events.wait("start", 1)
    assert agent.out.until(lambda: b"Password?" in agent.out.raw, 10), agent.output()
    job.go()
    assert agent.wait() == 0


def test_progress_bars_with_carriage_returns_come_through(job, tmp_path):
    agent = job.agent("a", "--log-dir", tmp_path / "logs", "-t1", "--no-python", job.worker, "out=10%\\r", "out=20%\\r",
                      "start", "go")
    job.events.wait("start", 1)
    assert agent.out.until(lambda: b"20%" in agent.out.raw, 10), agent.output()
    job.go()
    code, out, err = agent.finish()
    assert code == 0, err
    assert next((tmp_path / "logs").rglob("stdout.log")).read_bytes() == b"10%\r20%\r"


def test_all_that_a_dying_worker_wrote_is_kept(job, tmp_path):
    text = "".join(f"line {i}\\n" for i in range(2000))
    code, out, err = job.run("--log-dir", tmp_path / "logs", "-t1", "--no-python", job.worker, f"out={text}", "signal=9")
    assert code == 1, err
    assert out.count("line ") == 2000
    assert "line 1999\n" in next((tmp_path / "logs").rglob("stdout.log")).read_text()


def test_a_slow_reader_of_our_output_does_not_block_the_job(job, tmp_path):
    """Standard output is not read; the worker writes far more than a pipe holds, and ends nevertheless."""
    read_end, write_end = os.pipe()
    try:
        agent = job.agent("a", "--log-dir", tmp_path / "logs", "-t1", *SH,
                          'i=0; while [ $i -lt 4000 ]; do echo "0123456789 0123456789 0123456789 0123456789 $i"; '
                          'i=$((i+1)); done; echo "done x=1" > $E2E_EVENTS', stdout=write_end)
        os.close(write_end)
        write_end = None
        job.events.wait("done", 1)
    finally:
        os.close(read_end)
        if write_end is not None:
            os.close(write_end)
    assert agent.wait() is not None


def test_redirect_without_tee_gives_the_worker_the_file_itself(job, tmp_path):
    code, _, err = job.run("--log-dir", tmp_path / "logs", "-r1", *SH,
                           'echo "$(readlink /proc/$$$$/fd/1)" >&2')
    assert code == 0, err
    assert "stdout.log" in err, err


def test_the_error_files_of_a_good_run_leave_nothing_in_tmp(job, tmp_path):
    tmp = tmp_path / "TMP"
    tmp.mkdir()
    code, _, err = job.run(*SH, 'test -d "$(dirname "$TORCHELASTIC_ERROR_FILE")"', env={"TMPDIR": tmp})
    assert code == 0, err
    assert list(tmp.iterdir()) == []


@pytest.mark.parametrize("logs", ["/dev/null", "/proc/self/none"])
def test_a_log_folder_that_is_not_there_leaves_no_other(job, tmp_path, logs):
    """No files are wanted, or they can't be created: no empty folder is named or left instead."""
    tmp = tmp_path / "TMP"
    tmp.mkdir()
    code, _, err = job.run("--log-dir", logs, "-t3", *SH, "exit 3", env={"TMPDIR": tmp})
    assert code == 1 and "logs:" not in err, err
    assert list(tmp.iterdir()) == []


def test_who_ends_well_when_told_to_stop_had_not_ended_before(job):
    """A shell in `wait` runs its trap at once: it ends with 0, but because of SIGTERM."""
    code, _, err = job.run("--nproc-per-node=2", *SH,
                           "[ $RANK = 0 ] || { until [ -e $F ]; do :; done; exit 3; }; trap 'exit 0' TERM; "
                           "sleep 600 & : > $F; wait", env={"F": job.tmp / "up"})
    assert code == 1 and "stopping 1 other" in err and "had ended" not in err, err


def test_who_ended_well_before_is_not_said_to_be_stopped(job):
    """`$$$$` is the shell's `$$`: muster reads arguments as templates, as torchrun does."""
    code, _, err = job.run("--nproc-per-node=2", *SH,
                           '[ $RANK = 0 ] && echo $$$$ > $F.new && mv $F.new $F && exit 0; until [ -e $F ]; do :; done; '
                           'read pid < $F; while [ -e /proc/$pid ]; do :; done; exit 3', env={"F": job.tmp / "pid"})
    assert code == 1 and "rank 1 " in err and "stopping" not in err, err


def test_the_private_folder_is_private(job):
    code, out, err = job.run(*SH, 'echo "$TORCHELASTIC_ERROR_FILE"; '
                                  'd=$TORCHELASTIC_ERROR_FILE; while [ "$d" != / ]; do stat -c "%a %n" "$d" 2>/dev/null; '
                                  'd=$(dirname "$d"); done')
    assert code == 0, err
    assert re.search(r"^700 ", out, re.M), out


def test_the_root_cause_is_copied_to_an_outer_error_file(job, tmp_path):
    path = script(tmp_path, """
import json, os
json.dump({"message": {"message": "ValueError: inner", "extraInfo": {"py_callstack": "T", "timestamp": "1"}}},
          open(os.environ["TORCHELASTIC_ERROR_FILE"], "w"))
raise SystemExit(4)
""")
    outer = tmp_path / "outer.json"
    code, _, _ = job.run(path, env={"TORCHELASTIC_ERROR_FILE": outer})
    assert code == 1
    reply = json.loads(outer.read_text())
    assert reply["message"]["message"] == "ValueError: inner" and reply["message"]["errorCode"] == 4
