"""The Python package muster: torch.distributed.run's functions, its exceptions, and how it takes its place."""
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from harness import HERE, MUSTER, TORCH_PYTHON, deadline

PACKAGE = HERE.parent.parent / "packaging/python"

WORKER = """
import os, sys
print("worker", os.environ["RANK"], sys.argv[1:], flush=True)
if sys.argv[1:2] == ["fail"]:
    sys.exit(7)
if sys.argv[1:2] == ["wait"]:
    import signal
    signal.pause()
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.py").write_text(WORKER)
    return tmp_path


def environment(**more):
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHON_EXEC", "MUSTER_REPLACE_TORCHRUN")}
    return {**env, "PYTHONPATH": str(PACKAGE), "MUSTER_BINARY": MUSTER, "PYTHONDONTWRITEBYTECODE": "1", **more}


def python(program, *words, interpreter=sys.executable, **more):
    return subprocess.run([interpreter, "-c", program, *words], env=environment(**more), capture_output=True, text=True,
                          timeout=120)


# --- main, run, get_args_parser ---------------------------------------------------------------------------------------


def test_main_returns_after_success_and_takes_every_option_of_muster(here):
    done = python("import muster.run as r; print(r.main(['--nproc-per-node=2', '--crash-loop=0', 'w.py', '--x']), 'returned')")
    assert done.returncode == 0 and "None returned" in done.stdout, done
    assert "worker 0 ['--x']" in done.stdout and "worker 1 ['--x']" in done.stdout


def test_run_takes_a_namespace_and_hands_on_what_differs_from_the_defaults(here):
    done = python("import muster.run as r; a = r.get_args_parser().parse_args(['--nproc_per_node', '2', 'w.py', 'a', '--b']);"
                  "a.role = 'other'; r.run(a)")
    assert done.returncode == 0 and "worker 1 ['a', '--b']" in done.stdout, done


def test_a_namespace_becomes_a_command_line(monkeypatch):
    monkeypatch.syspath_prepend(str(PACKAGE))
    from muster._parser import get_args_parser, words_of

    def words(*argv):
        return words_of(get_args_parser().parse_args(argv))

    assert words("t.py") == ["t.py"]
    assert words("--nnodes", "2:4", "-r", "3", "-m", "pkg.mod", "--lr", "1") == ["--nnodes=2:4", "--redirects=3", "--module",
                                                                               "pkg.mod", "--lr", "1"]
    assert words("--duplicate-stdout-filters", "a,b", "t") == ["--duplicate-stdout-filters=a,b", "t"]
    monkeypatch.setenv("PET_NNODES", "3")
    assert get_args_parser().parse_args(["t"]).nnodes == "3"


def test_what_the_namespace_says_goes_before_the_environment(here):
    """As under torch.distributed.run, whose parser has asked for PET_NAME already."""
    done = python("import muster.run as r; a = r.get_args_parser().parse_args(['w.py']); print(a.nproc_per_node, a.tee, a.no_python);"
                  "a.nproc_per_node = '1'; a.tee = '0'; a.no_python = False; a.log_dir = None; r.run(a)",
                  PET_NPROC_PER_NODE="2", PET_TEE="3", PET_NO_PYTHON="1", PET_LOG_DIR="/nowhere/at/all")
    assert done.returncode == 0 and done.stdout == "2 3 True\nworker 0 []\n", done


def test_a_script_without_use_env_gets_its_local_rank_as_an_argument(here):
    done = python("import muster.run as r; a = r.get_args_parser().parse_args(['--nproc-per-node=2', 'w.py', 'a b', 'c']);"
                  "a.use_env = False; r.run(a)")
    assert done.returncode == 0 and "worker 1 ['--local-rank=1', 'a b', 'c']" in done.stdout, done


def test_what_fails_is_an_exception_and_a_wrong_command_line_ends_with_2(here):
    done = python("import muster.run as r\ntry: r.main(['w.py', 'fail'])\n"
                  "except r.ChildFailedError as e: print(e, e.exitcode)")
    assert "w.py FAILED; the report is above 1" in done.stdout, done
    assert done.stderr.count("Root Cause") == 1
    assert python("import muster.run as r; r.main(['--no-such-option', 'w.py'])").returncode == 2


def test_the_module_becomes_muster_with_its_exit_status(here):
    done = subprocess.run([sys.executable, "-m", "muster.run", "--nproc-per-node=2", "w.py"], env=environment(),
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "worker 1 []" in done.stdout, done
    done = subprocess.run([sys.executable, "-m", "muster.run", "w.py", "fail"], env=environment(), capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done


def test_the_package_becomes_muster_with_any_command(here):
    def muster(*words):
        return subprocess.run([sys.executable, "-m", "muster", *words], env=environment(), capture_output=True, text=True, timeout=60)

    done = muster("run", "--nproc-per-node=2", "--no-python", "sh", "-c", "echo $RANK")
    assert done.returncode == 0 and sorted(done.stdout.split()) == ["0", "1"], done
    done = muster("run", "w.py", "fail")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done
    done = muster("version")
    assert done.returncode == 0 and done.stdout.startswith("muster "), done
    assert muster().returncode == 2 and "usage: muster COMMAND" in muster("-h").stdout


@pytest.mark.parametrize("signo, status", [(signal.SIGTERM, 128 + 15), (signal.SIGINT, -signal.SIGINT)])
def test_a_signal_ends_the_job_and_then_the_caller(here, signo, status):
    program = "import muster.run as r; r.main(['--nproc-per-node=2', 'w.py', 'wait'])"
    with subprocess.Popen([sys.executable, "-c", program], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, start_new_session=True) as caller:
        for _ in range(2):
            assert caller.stdout.readline().startswith("worker")
        caller.send_signal(signo)
        out, err = caller.communicate(timeout=max(1, deadline(60) - deadline(0)))
        assert caller.returncode == status, (caller.returncode, err)


def test_a_caller_that_is_killed_takes_the_job_with_it(here):
    program = "import muster.run as r; r.main(['w.py', 'wait'])"
    with subprocess.Popen([sys.executable, "-c", program], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, start_new_session=True) as caller:
        assert caller.stdout.readline().startswith("worker")
        caller.kill()
        caller.communicate(timeout=60)  # ends when nothing holds the pipes


def test_import_is_cheap_and_the_pth_file_does_nothing_unless_asked():
    line = (PACKAGE / "muster.pth").read_text()
    assert line.count("\n") == 1
    program = f"{line}import sys; print('muster' in sys.modules, 'torch' in sys.modules, 'argparse' in sys.modules)"
    assert python(program).stdout == "False False False\n"
    assert python(program, MUSTER_REPLACE_TORCHRUN="0").stdout == "False False False\n"
    assert python(program, MUSTER_REPLACE_TORCHRUN="1").stdout == "True False False\n"


def test_the_root_cause_is_written_for_the_caller(here):
    to = here / "failure.json"
    subprocess.run([MUSTER, "run", "w.py", "fail"], env={**environment(), "MUSTER_FAILURE_FILE": str(to)}, capture_output=True,
                   timeout=60)
    failure = json.loads(to.read_text())
    assert (failure["rank"], failure["exitcode"], failure["entrypoint"]) == (0, 7, "w.py") and failure["pid"] > 0


# --- with torch -------------------------------------------------------------------------------------------------------


@pytest.mark.torch
def test_the_parser_has_torchs_options_destinations_and_defaults():
    done = python("import muster.run as m, torch.distributed.run as t\n"
                  "def rows(p): return {(tuple(sorted(a.option_strings)), a.dest, str(a.default), str(a.nargs), str(a.choices))\n"
                  "    for a in p._actions if a.dest != 'help'}\n"
                  "print(sorted(rows(m.get_args_parser()) ^ rows(t.get_args_parser())))", interpreter=TORCH_PYTHON)
    assert done.stdout == "[]\n", done


@pytest.mark.torch
def test_the_functions_have_torchs_signatures():
    done = python("import inspect, muster.run as m, torch.distributed.run as t\n"
                  "for name in ('main', 'run', 'get_args_parser'):\n"
                  "    mine, torchs = (inspect.signature(getattr(module, name)).parameters.values() for module in (m, t))\n"
                  "    assert [(p.name, p.kind, p.default) for p in mine] == [(p.name, p.kind, p.default) for p in torchs], name\n"
                  "print('the same')", interpreter=TORCH_PYTHON)
    assert done.stdout == "the same\n", done


# What torchtune's `tune run` does: torchrun's actions in a parser of its own, with other names for the script, and record().
TUNE = """
import argparse, sys
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.run import get_args_parser, run
parser = argparse.ArgumentParser()
command = parser.add_subparsers().add_parser("run")
names = {"training_script": "recipe", "training_script_args": "recipe_args"}
for action in get_args_parser()._actions:
    if action.dest != "help":
        action.dest = names.get(action.dest, action.dest)
        command._add_action(action)
args = parser.parse_args(["run", *sys.argv[1:]])
args.training_script, args.training_script_args, args.standalone, args.module = args.recipe, args.recipe_args, True, True
record(run)(args)
"""


@pytest.mark.torch
def test_a_program_with_torchs_parser_inside_its_own_runs_its_job_with_muster(here):
    program = (PACKAGE / "muster.pth").read_text() + TUNE
    done = python(program, "--nproc_per_node", "2", "w", "--config", "c.yaml", interpreter=TORCH_PYTHON,
                  MUSTER_REPLACE_TORCHRUN="1")
    assert sorted(done.stdout.splitlines()) == [f"worker {rank} ['--config', 'c.yaml']" for rank in (0, 1)], done
    done = python(program, "w", "fail", interpreter=TORCH_PYTHON, MUSTER_REPLACE_TORCHRUN="1")
    assert done.returncode == 1 and "w FAILED; the report is above" in done.stderr, done


@pytest.mark.torch
def test_what_fails_is_torchs_exception_with_rank_pid_and_exit_code(here):
    done = python("import muster.run as r\nfrom torch.distributed.elastic.multiprocessing.errors import ChildFailedError\n"
                  "try: r.main(['--nproc-per-node=1', 'w.py', 'fail'])\n"
                  "except ChildFailedError as e: rank, f = e.get_first_failure(); print('got', e.name, rank, f.exitcode, f.pid > 0)",
                  interpreter=TORCH_PYTHON)
    assert "got w.py 0 7 True" in done.stdout, done


@pytest.mark.torch
def test_install_takes_torchs_place_before_or_after_its_import(here):
    program = ("import sys, muster; {}; import torch.distributed.run as r; {}; r.main(['--nproc-per-node=1', 'w.py', 'hello']);"
               "print(r.run.__module__); muster.uninstall(); print(r.run.__module__)")
    for order in (("muster.install()", "0"), ("0", "muster.install()")):
        done = python(program.format(*order), interpreter=TORCH_PYTHON)
        assert done.stdout == "worker 0 ['hello']\nmuster.run\ntorch.distributed.run\n", done
    done = python("import muster, runpy, sys; muster.install(); sys.argv = ['x', '--nproc-per-node=1', 'w.py', 'hello'];"
                  "runpy.run_module('torch.distributed.run', run_name='__main__')", interpreter=TORCH_PYTHON)
    assert done.stdout == "worker 0 ['hello']\n" and done.returncode == 0, done


# What coverage does with -m: it reads the file that the module's spec names, and runs that as __main__.
COVERAGE = """
import importlib.util, sys, types
def run():
    spec = importlib.util.find_spec("torch.distributed.run")
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(open(spec.origin).read(), spec.origin, "exec"), module.__dict__)
def outer():
    run()
    print("returned")
outer()
"""


@pytest.mark.torch
@pytest.mark.parametrize("words", [["-c", COVERAGE], ["-m", "coverage", "run", "-m", "torch.distributed.run"],
                                   ["-m", "cProfile", "-o", "profile", "-m", "torch.distributed.run"]],
                         ids=["by the spec", "coverage", "cProfile"])
def test_a_tool_that_runs_the_module_runs_muster_and_gets_its_end(here, words):
    if "coverage" in words and subprocess.run([TORCH_PYTHON, "-c", "import coverage"], capture_output=True).returncode != 0:
        pytest.skip("needs coverage: pip install coverage")
    (here / "w.py").write_text("import os; print('worker', os.environ['RANK'], 'MUSTER_RUN_ID' in os.environ, flush=True)\n")
    site = here / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text((PACKAGE / "muster.pth").read_text())
    env = environment(MUSTER_REPLACE_TORCHRUN="1")
    env["PYTHONPATH"] += f":{site}"
    done = subprocess.run([TORCH_PYTHON, *words, "--nproc-per-node=2", "w.py"], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and {"worker 0 True", "worker 1 True"} <= set(done.stdout.splitlines()), done
    result = {"-c": "returned" in done.stdout, "coverage": (here / ".coverage").exists(), "cProfile": (here / "profile").exists()}
    assert result[words[words[0] == "-m"]], (done, list(here.iterdir()))


@pytest.mark.torch
def test_an_import_still_has_the_modules_own_file(here):
    done = python("import muster; muster.install(); import torch.distributed.run as r; print(r.__file__, r.__spec__.origin)",
                  interpreter=TORCH_PYTHON)
    assert [pathlib.Path(word).parts[-3:] for word in done.stdout.split()] == [("torch", "distributed", "run.py")] * 2, done


@pytest.mark.torch
def test_elastic_launch_warns_once_that_torch_starts_its_workers(here):
    program = ("import sys, muster; {}; from torch.distributed.launcher.api import LaunchConfig, elastic_launch; {}\n"
               "import torch.distributed.launcher.api as api\n"
               "c = LaunchConfig(1, 1, 1, rdzv_backend='c10d', rdzv_endpoint='localhost:0')\n"
               "for _ in range(2): print(elastic_launch(c, sys.executable)('-c', 'pass'))\n"
               "muster.uninstall(); print(api.launch_agent.__module__, hasattr(api.launch_agent, '__wrapped__'))")
    for order in (("muster.install()", "0"), ("0", "muster.install()")):
        done = python(program.format(*order), interpreter=TORCH_PYTHON)
        assert done.returncode == 0 and done.stdout.endswith("torch.distributed.launcher.api False\n"), done
        assert done.stderr.count("muster: warning: elastic_launch() starts its workers with torch") == 1, done


FRAMEWORKS = os.environ.get("MUSTER_TEST_FRAMEWORKS", "")


@pytest.mark.slow
@pytest.mark.skipif(not FRAMEWORKS, reason="needs Accelerate and Fabric: MUSTER_TEST_FRAMEWORKS")
@pytest.mark.parametrize("command", [
    ["accelerate", "launch", "--multi_gpu", "--num_processes=2", "--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no"],
    ["fabric", "run", "--accelerator=cpu", "--devices=2", "--strategy=ddp"],
])
def test_other_launchers_start_their_jobs_with_muster(here, command):
    (here / "t.py").write_text("import os\nprint('worker', os.environ['RANK'], 'MUSTER_RUN_ID' in os.environ, flush=True)\n"
                               "if os.environ['RANK'] == '1' and os.path.exists('fail'): raise SystemExit(3)\n")
    argv = [str(pathlib.Path(FRAMEWORKS).parent / command[0]), *command[1:], "t.py"]
    env = environment(MUSTER_REPLACE_TORCHRUN="1")
    # The package is on PYTHONPATH, not installed: a sitecustomize does what the .pth file does.
    (here / "site").mkdir()
    (here / "site/sitecustomize.py").write_text((PACKAGE / "muster.pth").read_text())
    env["PYTHONPATH"] += f":{here}/site"
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and sorted(done.stdout.split("\n"))[-2:] == ["worker 0 True", "worker 1 True"], done
    (here / "fail").touch()
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "ChildFailedError" in done.stderr and done.stderr.count("Root Cause") == 1, done
