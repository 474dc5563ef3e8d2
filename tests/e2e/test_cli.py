"""The command line compared with genuine torchrun's, by --print-config; and muster's own messages to people."""
import collections
import contextlib
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time

import pytest

import harness

# Command lines that both must read in the same way: the same result, or both refuse. (words, environment)
ALIKE = [
    ("t.py", {}),
    ("t.py a b", {}),
    ("--nnodes=2 t.py", {}),
    ("--nnodes 2:4 --rdzv-backend c10d --rdzv-endpoint h:1 --rdzv-id j t.py", {}),
    ("--nnodes=2 --nproc_per_node=3 --node_rank=1 --master_addr=10.0.0.1 --master_port=1234 t.py --x", {}),
    ("--nnodes=2 --nproc-per-node 3 --node-rank 1 --master-addr 10.0.0.1 t.py", {}),
    ("--nnodes=2 --master-addr=[::1] t.py", {}),
    ("--master-port=1234 t.py", {}),
    ("--standalone --nproc-per-node=4 t.py", {}),
    ("--standalone --rdzv-backend=static --rdzv-endpoint=h:1 --rdzv-id=x t.py", {}),
    ("--rdzv-backend=c10d --rdzv-endpoint=[::1] --rdzv-id=a t.py", {}),
    ("--rdzv-backend=c10d --rdzv-endpoint=[::1]:90 --rdzv-id=a t.py", {}),
    ("--rdzv-backend=c10d --rdzv-endpoint=fe80::1:90 --rdzv-id=a t.py", {}),
    ("--rdzv-backend=c10d --rdzv-endpoint=node-1.x_y:65535 --rdzv-id=a t.py", {}),
    ("--rdzv-backend=c10d --rdzv-endpoint=h:65536 t.py", {}),
    ("--rdzv-backend=c10d --rdzv-endpoint=h: t.py", {}),
    ("--rdzv-backend=c10d --rdzv-endpoint=h~:1 t.py", {}),
    ("--rdzv-endpoint=h:1 t.py", {}),
    ("--rdzv-endpoint=h t.py", {}),
    ("--rdzv-conf=a= t.py", {}),
    ("--rdzv-conf=,a=1 t.py", {}),
    ("--max-restarts=3 t.py", {}),
    ("--max_restarts=-1 t.py", {}),
    ("--max-restarts=abc t.py", {}),
    ("--max-restarts t.py", {}),
    ("--monitor-interval=0.5 --start-method=fork --role=trainer t.py", {}),
    ("--monitor-interval=x t.py", {}),
    ("--start-method=thread t.py", {}),
    ("-m pkg.mod a", {}),
    ("--module pkg.mod -m", {}),
    ("-mr3 pkg.mod", {}),
    ("-mr 3 pkg.mod", {}),
    ("-r3 -t1 --nproc-per-node=2 t.py", {}),
    ("-r 0:3,1:1 --tee 1:2 --nproc-per-node=3 t.py", {}),
    ("-r=3 t.py", {}),
    ("-r 4 t.py", {}),
    ("-r 0:4 t.py", {}),
    ("-r 0:1, t.py", {}),
    ("-r 10:1 t.py", {}),
    ("--redirects= t.py", {}),
    ("--redirect=3 --te=3 t.py", {}),
    ("--nproc_per 2 t.py", {}),
    ("--local-ranks-filter=0,2 --nproc-per-node=3 t.py", {}),
    ("--local_ranks_filter=a t.py", {}),
    ("--no-python /bin/true -m --x", {}),
    ("--no-python --module /bin/true", {}),
    ("--run-path t.py a", {}),
    ("--run-path --no-python t.py", {}),
    ("--virtual-local-rank --local-addr=10.0.0.9 --log-dir=/tmp/l t.py", {}),
    ("--signals-to-handle=SIGTERM,SIGUSR1 t.py", {}),
    ("--shutdown-timeout=7 t.py", {}),
    ("--shutdown-timeout=x t.py", {}),
    ("--nnodes=1:2:3 t.py", {}),
    ("--nnodes=2:1 t.py", {}),
    ("--nnodes=0 t.py", {}),
    ("--nnodes=a t.py", {}),
    ("--nproc-per-node=many t.py", {}),
    ("--nproc-per-node=cpu t.py", {}),
    ("--nproc-per-node=xpu t.py", {}),
    ("-- t.py a", {}),
    ("t.py -- a", {}),
    ("t.py a -- b", {}),
    ("-- t.py -- a", {}),
    ("t.py -- -- a", {}),
    ("-- -m", {}),
    ("- a", {}),
    ("--node-rank -1 t.py", {}),
    ("--log-dir -a~b t.py", {}),
    ("--log-dir -a t.py", {}),
    ("--log-dir -- t.py", {}),
    ("--log-dir", {}),
    ("", {}),
    ("--standalone", {}),
    ("--zzz t.py", {}),
    ("-x t.py", {}),
    ("--no t.py", {}),
    ("--standalone=1 t.py", {}),
    ("-m=1 t.py", {}),
    ("--nnodes=1 --nnodes=2 t.py", {}),
    ("t.py ${local_rank} $$", {}),
    ("t.py", {"PET_NPROC_PER_NODE": "3", "PET_MAX_RESTARTS": "2", "PET_ROLE": "r", "PET_TEE": "3"}),
    ("--nproc-per-node=2 t.py", {"PET_NPROC_PER_NODE": "3"}),
    ("t.py", {"PET_NPROC_PER_NODE": ""}),
    ("t.py", {"PET_MAX_RESTARTS": "abc"}),
    ("t.py", {"PET_STANDALONE": "1", "PET_RDZV_ENDPOINT": "h:1"}),
    ("t.py", {"PET_STANDALONE": "0", "PET_RDZV_ENDPOINT": "h:1"}),
    ("t.py", {"PET_STANDALONE": "true"}),
    ("pkg.mod", {"PET_MODULE": "1"}),
    ("t.py", {"PET_MODULE": "0"}),
    ("t.py", {"PET_MODULE": "1", "PET_NO_PYTHON": "1"}),
    ("t.py", {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "h", "PET_MASTER_PORT": "99"}),
    ("--nnodes ~2~ --nproc-per-node=~2 --node-rank=~+1 --master-addr=h --master-port=2_9_500 --max-restarts=3~ t.py", {}),
    ("--nnodes=1:~2 --rdzv-backend=c10d --rdzv-endpoint=~h:1~ t.py", {}),
    ("--nnodes=1_0:+20 --rdzv-backend=c10d --rdzv-endpoint=h:1 --monitor-interval=~+.5 --shutdown-timeout=~1_0 t.py", {}),
    ("--nnodes=-0 t.py", {}),
    ("--nnodes=+~3 t.py", {}),
    ("--nnodes=1__0 t.py", {}),
    ("--nnodes=2.0 t.py", {}),
    ("--nproc-per-node=0x2 t.py", {}),
    ("--nproc-per-node=~gpu t.py", {}),
    ("--max-restarts=1e1 t.py", {}),
    ("--nproc-per-node=3 --local-ranks-filter=0,~+2 t.py", {}),
    ("--nproc-per-node=3 --local-ranks-filter=0, t.py", {}),
    ("-r ~3 t.py", {}),
    ("--rdzv-backend=c10d --rdzv-endpoint=h:~1 t.py", {}),
    ("--rdzv-backend=c10d --rdzv-endpoint=h:1 --rdzv-conf=join_timeout=+5,last_call_timeout=~1_0 t.py", {}),
    ("t.py", {"PET_NNODES": " 1:2", "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "h:1", "PET_MAX_RESTARTS": " 3\n"}),
    ("pkg.mod", {"PET_MODULE": " 1 "}),
    ("t.py", {"PET_START_METHOD": "thread"}),
    ("t.py", {"PET_START_METHOD": ""}),
    ("t.py", {"PET_LOG_DIR": "/tmp/l", "PET_REDIRECTS": "0:3", "PET_SIGNALS_TO_HANDLE": "SIGTERM"}),
]

# Command lines where muster differs on purpose: torchrun refuses, muster runs.
BETTER = ["t.py --d 3", "t.py --nproc 3", "--nproc 2 t.py", "t.py --zzz --d"]


def words(text):
    return [w.replace("~", " ") for w in text.split()]


def clean_env(extra):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("PET_", "TORCH", "CUDA_VISIBLE", "LOGLEVEL", "MUSTER_"))}
    return {**env, **extra}


def muster(*argv, env=None, program=None):
    return subprocess.run([program or harness.MUSTER, *argv], env=clean_env(env or {}), capture_output=True, text=True,
                          timeout=60 * harness.SLOWER)


def read_by_muster(text, env):
    """None if it is refused with exit status 2 and one line."""
    done = muster("run", "--print-config", *words(text), env=env)
    if done.returncode == 2:
        assert done.stdout == "" and re.fullmatch(r"muster run: [^\n]+\n", done.stderr), done
        return None
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def read_by_torchrun(cases, tmp_path):
    done = subprocess.run([harness.TORCH_PYTHON, str(harness.HERE / "torchrun_config.py")],
                          env=clean_env({"TMPDIR": str(tmp_path)}), cwd=tmp_path,  # it makes the log folders
                          input=json.dumps([{"argv": words(text), "env": env} for text, env in cases]),
                          capture_output=True, text=True, timeout=300 * harness.SLOWER)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def common(config):
    """Muster's configuration, with the names of torchrun_config.py."""
    alone = config["standalone"]
    return {
        **{k: config[k] for k in ("min_nodes", "max_nodes", "nproc_per_node", "backend", "role", "max_restarts", "entry",
                                  "script", "args", "start_method", "virtual_local_rank", "local_addr", "node_rank",
                                  "log_dir", "redirects", "tee", "local_ranks_filter", "shutdown_timeout")},
        "host": "localhost" if alone else config["endpoint_host"], "port": config["endpoint_port"],
        "run_id": None if alone else config["run_id"], "signals": ",".join(config["signals_to_handle"]),
    }


@pytest.mark.torch
def test_command_lines_mean_what_they_mean_to_torchrun(tmp_path):
    differences = []
    for (text, env), theirs in zip(ALIKE, read_by_torchrun(ALIKE, tmp_path)):
        ours = read_by_muster(text, env)
        if ours is None or "min_nodes" not in theirs:
            if (ours is None) != ("min_nodes" not in theirs):
                differences.append((text, env, ours and "taken", theirs))
            continue
        ours = common(ours)
        if ours["run_id"] is None:  # alone: a random name on both sides
            theirs["run_id"] = None
        elif ours["max_nodes"] == 1 and re.fullmatch(r"[\w.-]+-\d{4}-\d{4}-[0-9a-f]{6}", ours["run_id"]):
            assert theirs["run_id"] == "none", theirs  # the script's name instead: like_differences.py
            theirs["run_id"] = ours["run_id"]
        if theirs["shutdown_timeout"] is None:
            theirs["shutdown_timeout"] = 30
        differences += [(text, env, k, ours[k], theirs[k]) for k in ours if ours[k] != theirs[k]]
    assert not differences, "\n".join(map(str, differences))


@pytest.mark.torch
def test_lines_that_torchrun_refuses_for_what_the_script_is_told(tmp_path):
    for text, theirs in zip(BETTER, read_by_torchrun([(text, {}) for text in BETTER], tmp_path)):
        ours = read_by_muster(text, {})
        assert ours is not None and ours["script"] == "t.py", text
        if text.startswith("t.py"):
            assert ours["args"] == words(text)[1:]
        # Newer versions of Python have a corrected argparse; ours must not depend on it.
        assert "min_nodes" in theirs or theirs == {"exit": 2}, (text, theirs)


@pytest.mark.torch
def test_every_option_of_torchrun_is_known():
    done = subprocess.run([harness.TORCH_PYTHON, "-m", "torch.distributed.run", "--help"], capture_output=True, text=True,
                          timeout=120 * harness.SLOWER)
    theirs = set(re.findall(r"--[a-z][a-z_-]+", done.stdout.split("positional arguments")[0]))
    assert len(theirs) > 25
    ours = set(re.findall(r"--[a-z][a-z-]+", muster("run", "--help-all").stdout))
    assert {name for name in theirs if name.replace("_", "-") not in ours} == set()


def test_a_program_called_torchrun_runs(tmp_path):
    for make in (os.symlink, shutil.copy):
        link = tmp_path / make.__name__ / "torchrun"
        link.parent.mkdir()
        make(os.path.abspath(harness.MUSTER), link)
        done = muster("--print-config", "--nproc-per-node=2", "t.py", "--help", program=str(link))
        assert done.returncode == 0 and json.loads(done.stdout)["args"] == ["--help"], done


@pytest.mark.parametrize("argv, status, said", [
    (["rnu"], 2, 'muster: unknown command "rnu"; did you mean "muster run"?\n'),
    (["train.py"], 2, 'muster: unknown command "train.py"; to start a job: muster run train.py\n'),
    (["--nnodes", "2", "-m", "a b"], 2, """muster: unknown command "--nnodes"; to start a job: muster run --nnodes 2 -m 'a b'\n"""),
    (["-v", "run"], 2, 'muster: unknown command "-v"; to start a job: muster run -v\n'),
    (["run", "--nprocs=2", "t.py"], 2, "muster run: unknown option --nprocs; did you mean --nproc-per-node?\n"),
    (["run", "--nnodes=\x1b[2J\n", "t.py"], 2, "muster run: --nnodes=?[2J?: must be a number of nodes, or MIN:MAX\n"),
    (["\u009b2J\udcff"], 2, 'muster: unknown command "??2J?"; see "muster help"\n'),
    (["version", "-x"], 2, 'muster version: unknown argument "-x"; there is only -v\n'),
    (["completion", "tcsh"], 2, 'muster completion: no completion for "tcsh"; only for bash, zsh and fish\n'),
    (["exclude"], 2, 'muster exclude: which NODE? See "muster status"\n'),
    (["stop", "h:1", "x"], 2, 'muster stop: unknown argument "x"\n'),
    (["status", "--josn"], 2, "muster status: unknown option --josn; did you mean --json?\n"),
    (["grow", "--timeout=0"], 2, "muster grow: --timeout=0: must be a number of seconds from 0.001 to 3600\n"),
    (["status", "h:65536"], 2, None),
    (["status", "dir:/tmp"], 2, 'muster status: which job at dir:/tmp? Give its --rdzv-id; "muster ps" shows those of '
                                'this machine\n'),
    (["leave", "dir:/tmp"], 2, 'muster leave: "dir:/tmp" has no agent of its own; name the node\'s, as HOST:PORT\n'),
    (["help", "rum"], 2, 'muster help: unknown command "rum"; see "muster help"\n'),
])
def test_mistakes_are_one_line_and_exit_2(argv, status, said):
    done = muster(*argv)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr == said if said else done.stderr.count("\n") == 1, done.stderr


def test_help_and_version_go_to_standard_output():
    for argv in (["help"], ["--help"], ["run", "--help"], ["help", "run"], ["help", "version"],
                 ["help", "status"], ["stop", "--help"], ["version"], ["version", "--help"], ["help", "--help"],
                 ["--version"], ["run", "--version"]):
        done = muster(*argv)
        assert done.returncode == 0 and done.stdout and not done.stderr, (argv, done)
    assert muster("help", "run").stdout == muster("run", "-h").stdout == muster("run", "--help").stdout
    assert muster("help", "version").stdout == muster("version", "-h").stdout
    assert muster("check", "--help").stdout.startswith("usage: muster check [OPTIONS]\n")


ROW = r"^(?:[A-Z][a-z]+:)? +([a-z]+)  "  # of the overview
COMMANDS = re.findall(ROW, muster("help").stdout, re.M) if harness.MUSTER else []


@pytest.mark.parametrize("words", [["help"], *([name, "-h"] for name in COMMANDS)], ids=" ".join)
def test_help_fits_a_screen_and_all_of_it_says_more(words):
    lines = muster(*words).stdout.splitlines()
    assert 2 < len(lines) <= 24 and max(map(len, lines)) <= 80, "\n".join(lines)
    assert lines[0].startswith("usage: muster "), lines
    options = [line for line in lines if line.startswith("  -")]
    assert not options or "-h, --help" in options[-1], "it is the last one"
    short = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", "\n".join(lines), re.M))
    every = muster(words[0], "--help-all")
    assert every.returncode == 0 and short <= set(re.findall(r"--[a-z-]+", every.stdout)), every
    if words[0] == "run":
        assert {"--nnodes", "--nproc-per-node", "--rdzv-endpoint", "--max-restarts", "--host", "--help"} <= short
        assert "--crash-loop" in every.stdout and "--crash-loop" not in short
        assert "--help-all" in lines[-1], lines


def test_muster_alone_prints_the_overview():
    done = muster()
    assert (done.returncode, done.stderr) == (2, "") and done.stdout == muster("help").stdout, done


def test_torchrun_has_help(tmp_path):
    link = tmp_path / "torchrun"
    link.symlink_to(os.path.abspath(harness.MUSTER))
    for word in ("-h", "--help", "--help-all"):
        done = muster(word, program=str(link))
        assert done.returncode == 0 and done.stdout == muster("run", word).stdout.replace("muster run", "torchrun"), done
        assert done.stdout.startswith("usage: torchrun [OPTIONS] SCRIPT [ARGS...]\n")


@pytest.mark.parametrize("line, error", [
    ("", "no SCRIPT to run; usage: torchrun [OPTIONS] SCRIPT [ARGS...]"),
    ("--nnodes 2", 'no SCRIPT to run: "2" was taken as the value of --nnodes; usage: torchrun [OPTIONS] SCRIPT [ARGS...]'),
    ("--zzz t.py", 'unknown option --zzz; see "torchrun --help-all"'),
    ("--nnodes=x t.py", "--nnodes=x: must be a number of nodes, or MIN:MAX"),
])
def test_errors_of_torchrun_call_it_torchrun(tmp_path, line, error):
    """As a link, and as the script of the wheel."""
    (tmp_path / "link").mkdir()
    for link in "link/torchrun", "muster":
        (tmp_path / link).symlink_to(os.path.abspath(harness.MUSTER))
    shutil.copy(harness.HERE.parents[1] / "packaging/python/torchrun.sh", tmp_path / "torchrun")
    (tmp_path / "torchrun").chmod(0o755)
    for path in "link/torchrun", "torchrun":
        done = muster(*line.split(), program=str(tmp_path / path))
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"torchrun: {error}\n")


def test_the_overview_has_groups():
    rows = re.findall(r"^([A-Z][a-z]+:)? +([a-z]+)  ", muster("help").stdout, re.M)
    groups, group = collections.defaultdict(list), None
    for heading, name in rows:
        group = heading or group
        groups[group].append(name)
    assert dict(groups) == {
        "Run:": ["run"], "Look:": ["status", "ps", "logs", "stacks", "profile"], "Change:": ["stop", "leave", "exclude", "grow"],
        "Prepare:": ["check", "topo", "env", "keygen"], "Other:": ["notify", "store", "completion", "version", "help"]}


def test_help_of_run_shows_defaults_and_two_nodes(job):
    text = muster("run", "-h").stdout
    printed = json.loads(muster("run", "--print-config", "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h", "x").stdout)
    assert f'--rdzv-id=ID              name of the job ("{printed["run_id"]}"; ' in text, text
    assert re.search(r"--rdzv-backend=NAME .* \(static\)$", text, re.M), text
    example = re.search(r"On two nodes.*\n  muster run (.*) train.py$", text, re.M)[1]
    words = example.replace("node1", f"127.0.0.1:{harness.free_port()}").split()
    agents = [job.agent(tag, *words, "--no-python", "printenv", "WORLD_SIZE") for tag in "ab"]
    for agent in agents:
        assert agent.finish()[:2] == (0, "2\n")


def test_version_says_what_was_found_and_what_was_not():
    lines = muster("version", "-v", env={"PATH": "/nonexistent"}).stdout
    for name in ("program", "package", "torchrun", "compiler", "libevent", "OpenSSL", "cJSON", "hwloc", "kernel", "CPUs", "NVML", "GPUs", "python"):
        assert re.search(rf"^  {name} +\S", lines, re.M), (name, lines)
    assert "no python3 or python on PATH" in lines


@pytest.mark.parametrize("words", [["help"], ["run", "-h"], ["version", "-v"], ["ps"], ["env"], ["completion", "bash"],
                                   ["run", "--print-config", "x"], ["run", "--dry-run", "--no-python", "true"]], ids=" ".join)
def test_a_reader_that_leaves_costs_no_warning(words):
    for ignored in (False, True):
        reader, pipe = os.pipe()
        os.close(reader)
        done = subprocess.run([harness.MUSTER, *words], stdout=pipe, stderr=subprocess.PIPE, text=True, env=clean_env({}),
                              restore_signals=not ignored)
        os.close(pipe)
        assert (done.returncode, done.stderr) == (128 + 13 if ignored else -13, ""), done


def test_a_full_disk_is_noticed():
    with open("/dev/full", "w") as full:
        done = subprocess.run([harness.MUSTER, "help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "can't write to standard output" in done.stderr


@pytest.mark.parametrize("words, hint", [
    (("status", "--rdzv-endpoint=h:1"), "muster status h:1"), (("stop", "--rdzv_endpoint", "h:1"), "muster stop h:1"),
    (("leave", "--rdzv-endp=h:1"), "muster leave h:1"), (("grow", "--rdzv-endpoint"), "muster grow HOST:PORT"),
    (("exclude", "n", "--rdzv-endpoint=dir:/x"), "muster exclude NODE dir:/x")])
def test_an_endpoint_by_its_option_gets_the_form_that_works(words, hint):
    done = muster(*words)
    assert done.returncode == 2 and done.stderr.endswith(f"; write the endpoint alone: {hint}\n"), done
    done = muster("status", "--rdzv-i2=x")
    assert "did you mean --rdzv-id?" in done.stderr, done


def test_env_says_when_there_is_nothing_to_set():
    done = muster("env", "--nccl-env=off")
    assert done.returncode == 0 and done.stdout == "# local rank 0\n# (no variable needs to be set on this node)\n", done


def complete(line, env=None):
    """Words that bash offers for the last word of a command line."""
    script = muster("completion", "bash").stdout + (
        'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _muster; printf "%s\\n" "${COMPREPLY[@]}"')
    path = f"{os.path.dirname(os.path.abspath(harness.MUSTER))}:{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", script, "bash", *line], env=clean_env({"PATH": path, **(env or {})}),
                          capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done
    return done.stdout.split()


def test_bash_completes(tmp_path):
    """Which words are offered, and where, is in tests/unit/cli/help/completion_test.c."""
    assert "run" in complete(["muster", "r"]) and complete(["muster", "ver"]) == ["version"]
    assert complete(["muster", "completion", ""]) == ["bash", "zsh", "fish"]
    assert complete(["muster", "run", "--leave", "=", "d"]) == ["detached"]
    assert complete(["muster", "run", "--rdzv-conf", "=", "join_timeout", "=", "3,last"]) == ["3,last_call_timeout="]
    assert complete(["torchrun", "--rdzv-backend", "=", "c"]) == ["c10d"]
    assert complete(["torchrun", "t.py", "--nnod"]) == [] and complete(["muster", "exclude", "n"]) == []
    (tmp_path / "a-folder").mkdir()
    (tmp_path / "a-file").touch()
    assert sorted(complete(["muster", "run", "--log-dir", "=", f"{tmp_path}/a"])) == [f"{tmp_path}/a-folder"]
    assert sorted(complete(["muster", "run", f"{tmp_path}/a"])) == [f"{tmp_path}/a-file", f"{tmp_path}/a-folder"]
    for key in complete(["muster", "run", "--rdzv-conf", ""]):
        done = muster("run", "--print-config", f"--rdzv-conf={key}1", "x")
        assert "unknown key" not in done.stderr, done


def test_bash_offers_what_runs_on_this_machine(tmp_path, worker):
    with harness.Job(tmp_path, worker) as job:
        a, b = job.pair(nnodes="2")
        job.events.wait("start", 4)
        env = {"MUSTER_RUN_DIR": str(tmp_path / "run")}
        assert complete(["muster", "status", "--rdzv-id", ""], env=env) == ["e2e"]
        seen = json.loads(muster("ps", "--json", env=env).stdout)["agents"]
        assert sorted(complete(["muster", "exclude", ""], env=env)) == sorted(x["node"] for x in seen)
        for command in "status", "stacks", "stop", "grow", "leave":
            assert complete(["muster", command, ""], env=env) == ["e2e"], command
        job.go()
        assert (a.wait(), b.wait()) == (0, 0)
    assert complete(["muster", "status", "--rdzv-id", ""], env=env) == []
    assert complete(["muster", "logs", ""], env=env) == complete(["muster", "logs", "-f", "e"], env=env) == ["e2e"]
    assert complete(["muster", "logs", str(tmp_path / "ru")], env=env) == [str(tmp_path / "run")]


@pytest.mark.skipif(not shutil.which("fish"), reason="no fish on PATH")
@pytest.mark.parametrize("line, offered, not_offered", [
    ("muster ver", "version", "run"),
    ("muster run --nproc", "--nproc-per-node", "--nnodes"),
    ("torchrun --nproc", "--nproc-per-node", "--nnodes"),
    ("muster run --nnodes 2 --nproc", "--nproc-per-node", "--nnodes"),
    ("muster run --contain ", "cgroup", "--nnodes"),
    ("muster run train.py --nproc", "", "--nproc-per-node"),
    ("muster status --nproc", "", "--nproc-per-node"),
    ("muster run --rdzv-backend=c", "--rdzv-backend=c10d", "--rdzv-backend=dir"),
    ("muster run --rdzv-conf last", "last_call_timeout=", "join_timeout="),
    ("muster run --rdzv-conf=join_timeout=3,last", "--rdzv-conf=join_timeout=3,last_call_timeout=", "--nnodes"),
    ("muster logs --foll", "--follow", "--nnodes"),
    ("muster run --warm=pro", "--warm=process", "--nnodes"),
    ("muster run --warm ", "", "process"),
    ("muster run --warm --nnod", "--nnodes", "process"),
    ("muster run --warm train.py --nnod", "", "--nnodes"),
])
def test_fish_completes(tmp_path, line, offered, not_offered):
    script = tmp_path / "muster.fish"
    script.write_text(muster("completion", "fish").stdout)
    path = f"{os.path.dirname(os.path.abspath(harness.MUSTER))}:{os.environ['PATH']}"
    done = subprocess.run(["fish", "-N", "-c", f"source {script}; complete -C '{line}'"], capture_output=True, text=True,
                          env=clean_env({"PATH": path, "HOME": str(tmp_path)}))
    words = [word.split("\t")[0] for word in done.stdout.splitlines()]
    assert done.returncode == 0 and not done.stderr and (not offered or offered in words) and not_offered not in words, done


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh on PATH")
def test_zsh_reads_its_completions():
    done = subprocess.run(["zsh", "-n"], input=muster("completion", "zsh").stdout, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh on PATH")
@pytest.mark.parametrize("typed, whole", [
    ("run --numa-b", "run --numa-binding="),
    ("run --numa-binding=excl", "run --numa-binding=exclusive"),
    ("run --rdzv-backend=c1", "run --rdzv-backend=c10d"),
    ("run --nproc-per-node g", "run --nproc-per-node gpu"),
    ("run t.py --nno", None),
    ("run -r 3 --log-dir d t.py a --nno", None),
    ("run --rdzv-conf=last", "run --rdzv-conf=last_call_timeout="),
    ("run --rdzv-conf=join_timeout=3,last", "run --rdzv-conf=join_timeout=3,last_call_timeout="),
    ("comp", "completion"),
    ("env --expl", "env --explain"),
    ("topo --check-n", "topo --check-nccl-xml="),
    ("logs --foll", "logs --follow"),
    ("logs a-fol", "logs a-folder/"),
])
def test_zsh_completes(tmp_path, typed, whole):
    """In a real zsh on a terminal, with the tab key."""
    script = tmp_path / "_muster"
    script.write_text(muster("completion", "zsh").stdout)
    (tmp_path / "a-folder").mkdir()
    pid, fd = pty.fork()
    if pid == 0:
        path = f"{os.path.dirname(os.path.abspath(harness.MUSTER))}:{os.environ['PATH']}"
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "PATH": path, "TERM": "dumb", "HOME": str(tmp_path)})
    said = ""

    def until(text):
        nonlocal said
        end = time.monotonic() + 20
        while text not in said and time.monotonic() < end:
            if select.select([fd], [], [], 0.1)[0]:
                said += os.read(fd, 4096).decode(errors="replace").replace("\a", "")
        assert text in said, said

    try:
        os.write(fd, f"autoload -Uz compinit && compinit -D -u && source {script} && cd {tmp_path} && print re''ady\n".encode())
        until("ready")
        said = ""
        os.write(fd, f"muster {typed}\t".encode())
        if whole is None:  # nothing is offered: the next letter stands right behind
            os.write(fd, b"Q")
            whole = typed + "Q"
        until(f"muster {whole}")
    finally:
        os.close(fd)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_dry_run_is_what_a_shell_would_take(tmp_path):
    """The printed command is run by sh; the worker gets what the real job's worker gets."""
    script = tmp_path / "it's a script.py"
    script.write_text("import json, os, sys\nprint(json.dumps([sys.argv[1:], dict(os.environ)]))\n")
    words = ["run", "--nproc-per-node=2", "--env=NOTE=two words; $HOME", str(script), "a b", "$x", "${local_rank}", ""]
    env = {"RANK": "77", "MUSTER_NODE_RANK": "3", "KEPT": "1"}
    dry = muster(words[0], "--dry-run", *words[1:], env=env)
    assert dry.returncode == 0 and not dry.stderr, dry
    blocks = dry.stdout.split("\n\n")
    assert len(blocks) == 2 and blocks[0].splitlines()[1] == "# rank 0, local rank 0", dry.stdout
    real = muster(*words, env=env)
    assert real.returncode == 0, real
    real = {seen[1]["RANK"]: seen for seen in map(json.loads, real.stdout.splitlines())}
    changing = {"MASTER_PORT", "MUSTER_EPOCH", "MUSTER_GENERATION", "MUSTER_NOTIFY_SOCKET", "NOTIFY_SOCKET", "MUSTER_WORKER_ID",
                "TORCHELASTIC_ERROR_FILE", "MUSTER_RUN_ID", "TORCHELASTIC_RUN_ID", "_", "PWD", "SHLVL", "OLDPWD",
                "TORCH_WORKER_SERVER_SOCKET"}  # a folder that exists only while a job runs
    for rank, block in enumerate(blocks):
        assert "KEPT" not in block and "MASTER_PORT=PORT" in block, block
        done = subprocess.run(["sh", "-c", block], env=clean_env(env), capture_output=True, text=True)
        assert done.returncode == 0, done
        argv, got = json.loads(done.stdout)
        assert argv == real[str(rank)][0] == ["a b", "$x", str(rank), ""], argv
        assert set(got) - changing == set(real[str(rank)][1]) - changing
        assert {k: v for k, v in got.items() if k not in changing} == \
            {k: v for k, v in real[str(rank)][1].items() if k not in changing}
        shape = re.escape(got["TORCHELASTIC_ERROR_FILE"]).replace("TMPDIR", ".+").replace("XXXXXX", r"\w{6}")
        file = real[str(rank)][1]["TORCHELASTIC_ERROR_FILE"]
        assert re.fullmatch(shape.replace("GENERATION", r"[\d.]+"), file), (shape, file)


def test_a_dry_run_of_several_nodes_contacts_nobody():
    words = ["--nnodes=2", "--nproc-per-node=2", "--node-rank=1", "--master-addr=node1", "--master-port=1234"]
    dry = muster("run", "--dry-run", *words, "--no-python", "/bin/false")
    assert dry.returncode == 0 and "RANK=3" in dry.stdout and "WORLD_SIZE=4" in dry.stdout, dry
    assert "MASTER_ADDR=node1" in dry.stdout and "MASTER_PORT=1234" in dry.stdout, dry
    dry = muster("run", "--dry-run", "--standalone", "--master-port=1234", "--no-python", "/bin/false")
    assert "MASTER_ADDR=127.0.0.1 " in dry.stdout and "MASTER_PORT=1234 " in dry.stdout, dry
    dry = muster("run", "--dry-run", "--nnodes=1:4", "--rdzv-backend=c10d", "--rdzv-endpoint=nowhere.invalid",
                 "--rdzv-id=j", "t.py")
    assert dry.returncode == 0 and " RANK=RANK " in dry.stdout and "TORCHELASTIC_RUN_ID=j" in dry.stdout, dry


@pytest.mark.parametrize("words, env, workers", [
    (["-H", "a:3,b:2"], {}, 3), (["-H", "a:3,b:2", "--nproc-per-node=1"], {}, 1),
    ([], {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "a,b"}, 1)])
def test_a_dry_run_of_what_starts_itself_on_other_nodes_is_one_of_them(words, env, workers):
    dry = muster("run", "--dry-run", *words, "--no-python", "/bin/false", env=env)
    assert dry.returncode == 0 and "# muster would start itself on 2 nodes: " in dry.stdout, dry
    assert dry.stdout.count(f" LOCAL_WORLD_SIZE={workers} ") == workers, dry.stdout
    assert " RANK=RANK " in dry.stdout and " WORLD_SIZE=WORLD_SIZE " in dry.stdout, dry.stdout
    assert " MASTER_ADDR=LEADER " in dry.stdout, dry.stdout
    for rank, host in enumerate("ab" if words else ""):
        line = next(line for line in dry.stdout.splitlines() if line.startswith(f"# {host}: "))
        assert line.startswith(f"# {host}: node rank {rank}") and line.endswith(", meets the others on node 0"), line


@pytest.mark.parametrize("words, env", [((), {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}),
                                        (("--master-addr=localhost", "--master-port={port}"), {})])
def test_a_dry_run_has_the_store_of_the_job(words, env):
    port = harness.free_port()
    names = "MASTER_ADDR", "TORCHELASTIC_USE_AGENT_STORE"
    script = "echo " + " ".join(f"{name}=${name}" for name in names)
    words = [word.format(port=port) for word in words] + ["--no-python", "/bin/sh", "-c", script]
    dry, real = muster("run", "--dry-run", *words, env=env), muster("run", *words, env=env)
    assert real.returncode == 0 and all(word in dry.stdout.split() for word in real.stdout.split()), (dry, real)
    config = json.loads(muster("run", "--print-config", "x", env=env).stdout)
    assert config["workers_store"] == ("USE_AGENT_STORE=False" in real.stdout), config


TWO_GPUS = """
cuda 12040
count 2
gpu 0 busid 00000000:01:00.0 uuid GPU-aa-1 name "Fake One"
gpu 1 busid 00000000:02:00.0 uuid GPU-ab-2 name "Fake Two"
"""


@pytest.fixture(scope="module")
def nvml(tmp_path_factory):
    """A folder for a library that answers like NVML."""
    return tmp_path_factory.mktemp("nvml")


@pytest.mark.parametrize("visible, said", [
    (None, "GPUs       2\n             0: Fake One GPU-aa-1 0000:01:00.0\n"
           "             1: Fake Two GPU-ab-2 0000:02:00.0\n"),
    ("1", "GPUs       2, 1 visible (CUDA_VISIBLE_DEVICES=1)\n"),
    ("GPU-ab,GPU-aa", "GPUs       2, 2 visible"),
    ("GPU-a", "GPUs       2, 0 visible"),
])
def test_gpus_are_counted_through_nvml(nvml, visible, said):
    env = {**harness.nvml_env(nvml, TWO_GPUS), **({"CUDA_VISIBLE_DEVICES": visible} if visible else {})}
    found = muster("version", "-v", env=env).stdout
    assert "  NVML       12.999.1, driver 999.1, CUDA 12.4\n" in found and said in found, found


def test_nvml_is_found_by_its_name(nvml):
    script = harness.nvml_env(nvml, TWO_GPUS)["FAKE_NVML_SCRIPT"]
    found = muster("version", "-v", env={"LD_LIBRARY_PATH": str(nvml), "FAKE_NVML_SCRIPT": script}).stdout
    assert "  NVML       12.999.1, driver 999.1, CUDA 12.4\n" in found, found
    found = muster("version", "-v", env={"MUSTER_NVML_LIBRARY": "/nowhere/libnvidia-ml.so.1"}).stdout
    assert "  NVML       not found: no /nowhere/libnvidia-ml.so.1\n" in found, found


@pytest.mark.parametrize("script, said", [
    ("not-loaded", "not found: NVML: Driver Not Loaded"),
    ("crash nvmlInit_v2\n", "not found: NVML could not be asked (nvmlInit_v2)"),
    ("missing nvmlDeviceGetCount_v2\n", "not found: LIBRARY is not NVML"),
])
def test_a_broken_nvml_harms_nobody(nvml, script, said):
    env = harness.nvml_env(nvml, script)
    done = muster("version", "-v", env=env)
    said = said.replace("LIBRARY", env["MUSTER_NVML_LIBRARY"])
    assert done.returncode == 0 and f"  NVML       {said}\n" in done.stdout, done


def test_a_lost_gpu_is_said_to_be_lost(nvml):
    found = muster("version", "-v", env=harness.nvml_env(nvml, "lost")).stdout
    assert "             0: NVIDIA A100-SXM4-80GB GPU-l0 0000:01:00.0\n" in found, found
    assert "             1: (lost, or needs a reset)\n" in found and "             3: GPU-l3 (lost" in found, found


@pytest.mark.parametrize("limit", [6, 8, 12, 16, 32])
def test_too_low_a_limit_of_open_files_is_told_with_the_remedy(limit):
    words = ["run", "--standalone", "--nproc-per-node=16", "--no-python", "/bin/true"]
    done = subprocess.run(["sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh", *harness.muster(), *words],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "ulimit -n" in done.stderr, done
    assert "[warn]" not in done.stderr and "[err]" not in done.stderr, done.stderr
