"""Launchers, batch systems and clouds, each with an environment in tests/places/*.env: what muster run makes of it on node 0
and on node 1. Lines of a file:

    [node 0]                a process; the lines below are of it
    NAME=VALUE              a variable; \\n is a line end
    file NAME PATH TEXT     a file, whose name the variable has
    below PROGRAM           an ancestor of this name
    options WORDS           of muster run
    expect KEY JSON         of --print-config
    log TEXT                a part of what -v prints
    error TEXT              it ends with this sentence, and status 2
"""
import json
import os
import pathlib
import shlex
import shutil
import subprocess

import pytest

import harness

PLACES = pathlib.Path(__file__).parents[1] / "places"
FILES = sorted(PLACES.glob("*.env"))


class Process:
    def __init__(self):
        self.env, self.files, self.expected, self.logs = {}, [], {}, []
        self.below, self.options, self.error = None, [], None

    def add(self, line):
        word, _, rest = line.partition(" ")
        if word == "file":
            self.files.append(rest.split(" ", 2))
        elif word == "below":
            self.below = rest
        elif word == "options":
            self.options = rest.split()
        elif word == "expect":
            key, _, value = rest.partition(" ")
            self.expected[key] = json.loads(value)
        elif word == "log":
            self.logs.append(rest)
        elif word == "error":
            self.error = rest
        else:
            name, _, value = line.partition("=")
            self.env[name] = value.replace("\\n", "\n")

    def run(self, folder, *options, below=None):
        words = [harness.MUSTER, "run", "-v", *self.options, *options, "--print-config", "train.py"]
        return self.start(folder, words, below)

    def start(self, folder, command, below=None):
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), **self.env}
        for name, path, text in self.files:
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace("\\n", "\n"))
            env[name] = str(file)
        program = below or self.below
        if program:  # a shell of this name, which stays
            shell = folder / program
            if not shell.exists():
                shutil.copy("/bin/sh", shell)
            command = [shell, "-c", '"$@"; exit $?', "sh", *command]
        return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60)


def read(file):
    processes = []
    for line in file.read_text().splitlines():
        if line.startswith("["):
            processes.append(Process())
        elif line and not line.startswith("#"):
            processes[-1].add(line)
    return processes


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_place_is_recognized(tmp_path, file):
    processes = read(file)
    assert len(processes) == 2, "node 0 and node 1"
    for process in processes:
        assert process.error or process.expected, "never N jobs in silence"
        done = process.run(tmp_path)
        if process.error:
            assert done.returncode == 2 and process.error in done.stderr, done.stderr + done.stdout
            continue
        assert done.returncode == 0, done.stderr
        config = json.loads(done.stdout)
        assert {key: config[key] for key in process.expected} == process.expected, done.stderr
        for text in process.logs:
            assert text in done.stderr, done.stderr


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_user_who_wants_one_node_gets_it(tmp_path, file):
    for process in read(file):
        process.options = []
        for option in ["--standalone", "--nnodes=1"]:
            done = process.run(tmp_path, option)
            config = json.loads(done.stdout)
            assert (config["max_nodes"], config["start_nodes"]) == (1, 0), done.stderr


@pytest.mark.parametrize("file", [file for file in FILES if "below" in file.read_text()], ids=lambda file: file.stem)
def test_variables_that_have_leaked_prove_nothing(tmp_path, file):
    other = "slurmstepd" if "sge_shepherd" in file.read_text() else "sge_shepherd"
    for process in read(file):
        done = process.run(tmp_path, "--rdzv-endpoint=", below=other)
        assert done.returncode == 0, done.stderr
        config = json.loads(done.stdout)
        assert (config["max_nodes"], config["start_nodes"]) == (1, 0), done.stderr


def test_what_the_user_gives_wins(tmp_path):
    node = read(PLACES / "dstack.env")[1]
    for option, key, value in [("--nnodes=1:2", "min_nodes", 1), ("--nproc-per-node=3", "nproc_per_node", 3),
                               ("--rdzv-id=mine", "run_id", "mine"), ("--node-rank=0", "node_rank", 0),
                               ("--rdzv-endpoint=other:1234", "endpoint_host", "other")]:
        config = json.loads(node.run(tmp_path, option).stdout)
        expected = {**node.expected, key: value}
        if key == "endpoint_host":
            expected.update(is_host=-1, run_id="none")
        assert {name: config[name] for name in expected} == expected, option


@pytest.mark.parametrize("name, program, folder", [("lsf", "blaunch", "bin"), ("lsf", "blaunch", "empty"),
                                                   ("oar", "oarsh", None), ("pjm", "pjrsh", None)])
def test_the_command_of_a_batch_system_starts_the_agents(tmp_path, name, program, folder):
    """It stands for one that reaches another host: HOST COMMAND, without ssh's options. LSF names the folder of its commands,
    which need not be in PATH."""
    process = read(PLACES / f"{name}.env")[0]
    own = tmp_path / "bin" / program
    own.parent.mkdir()
    own.write_text(f'#!/bin/sh\necho "$#" "$1" >> {tmp_path}/called\nexec sh -c "$2"\n')
    own.chmod(0o755)
    if folder is not None:
        process.env["LSF_BINDIR"] = str(tmp_path / folder)
    process.env["PATH"] = os.environ["PATH"] if folder == "bin" else f"{own.parent}:{os.environ['PATH']}"
    process.env["MUSTER_RUN_DIR"] = str(tmp_path / "run")
    done = process.start(tmp_path, [harness.MUSTER, "run", "--no-python", "sh", "-c",
                                    "echo this is $RANK of $WORLD_SIZE in $MUSTER_RUN_ID"])
    assert done.returncode == 0, done.stderr
    lines = sorted(line[line.index("this is"):].split() for line in done.stdout.splitlines())
    assert [line[2:5] for line in lines] == [["0", "of", "2"], ["1", "of", "2"]], done.stdout
    assert lines[0][6] == lines[1][6], "one run"
    assert sorted((tmp_path / "called").read_text().splitlines()) == ["2 host1", "2 host2"]


def test_a_batch_system_queues_the_job_again_by_its_command(tmp_path):
    """Grid Engine ignores exit status 99 when a time limit has ended the job: qmod -rj does not."""
    process = read(PLACES / "gridengine.env")[0]
    process.env.update(PATH=f"{tmp_path}:{os.environ['PATH']}", MUSTER_RUN_DIR=str(tmp_path / "run"), SGE_TASK_ID="3")
    for name, line in [("qrsh", 'exec sh -c "$3"'), ("qmod", f'echo "$*" >> {tmp_path}/called; echo pushed >&2')]:
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    worker = f"trap 'exit 0' TERM; {harness.MUSTER} notify MUSTER_SAFE_POINT=1; [ $RANK = 1 ] || kill -USR2 $HEAD; sleep 60 & wait"
    shell = f"HEAD=$$ exec {harness.MUSTER} run --requeue=timeout --no-python sh -c {shlex.quote(worker)}"
    done = process.start(tmp_path, ["sh", "-c", shell])
    assert done.returncode == 99 and "qmod: pushed" in done.stderr, done.stderr
    assert (tmp_path / "called").read_text() == "-rj 12.3\n"
