"""Which Python runs the workers, and what is said when it was the wrong one."""
import os
import pathlib
import subprocess
import sys

from harness import MUSTER


def environment(folder):
    """The folders of a venv whose python3 says which one it is, and a muster of its own. Returns its bin."""
    bin_ = folder / "bin"
    bin_.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("")
    python = bin_ / "python3"
    python.write_text(f"#!/bin/sh\necho run by {folder.name}\nexec {sys.executable} \"$@\"\n")
    python.chmod(0o755)
    (bin_ / "torchrun").symlink_to(MUSTER)
    return bin_


def run(argv, path, **more):
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHON_EXEC", "VIRTUAL_ENV", "CONDA_PREFIX")}
    env.update(PATH=os.pathsep.join(map(str, path)), **more)
    return subprocess.run([str(a) for a in argv], env=env, capture_output=True, text=True, timeout=60)


def test_a_torchrun_of_an_environment_runs_its_python_without_activation(tmp_path):
    (tmp_path / "t.py").write_text("print('worker')")
    mine, other = environment(tmp_path / "mine"), environment(tmp_path / "other")
    done = run([mine / "torchrun", tmp_path / "t.py"], [other, "/usr/bin"])
    assert (done.returncode, done.stdout) == (0, "run by mine\nworker\n"), done
    done = run(["torchrun", tmp_path / "t.py"], [tmp_path, mine, other, "/usr/bin"])
    assert done.stdout == "run by mine\nworker\n", done


def test_python_exec_goes_before_the_environment_as_under_torchrun(tmp_path):
    (tmp_path / "t.py").write_text("print('worker')")
    mine, other = environment(tmp_path / "mine"), environment(tmp_path / "other")
    done = run([mine / "torchrun", tmp_path / "t.py"], ["/usr/bin"], PYTHON_EXEC=str(other / "python3"))
    assert done.stdout == "run by other\nworker\n", done


def test_an_active_environment_that_does_not_run_the_workers_is_warned_of(tmp_path):
    (tmp_path / "t.py").write_text("print('worker')")
    mine, other = environment(tmp_path / "mine"), environment(tmp_path / "other")

    def warnings(*words, **env):
        done = run([mine / "torchrun", *words, tmp_path / "t.py"], [other, "/usr/bin"], **env)
        assert done.returncode == 0 and "worker" in done.stdout, done
        return [line for line in done.stderr.splitlines() if "runs the workers" in line]

    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        assert warnings(**{name: str(other.parent)}) == [
            f"muster: warning: {name} is {other.parent}, but {mine}/python3 runs the workers; PYTHON_EXEC chooses another"]
        assert warnings(**{name: str(mine.parent)}) == []
    (tmp_path / "link").symlink_to(mine.parent)
    assert warnings(VIRTUAL_ENV=str(tmp_path / "link"), CONDA_PREFIX=str(other.parent)) == []  # a venv in conda's base
    assert warnings(VIRTUAL_ENV=str(other.parent), PYTHON_EXEC=str(mine / "python3")) == []
    assert warnings(VIRTUAL_ENV=str(tmp_path / "gone")) == []
    assert warnings("-v") == [f"muster: {mine}/python3 runs the workers"]


def test_a_muster_of_the_system_serves_the_environment_on_path(tmp_path):
    (tmp_path / "t.py").write_text("print('worker')")
    system = tmp_path / "system"
    system.mkdir()
    (system / "torchrun").symlink_to(MUSTER)
    (system / "python3").symlink_to(pathlib.Path(sys.executable))
    active = environment(tmp_path / "active")
    done = run(["torchrun", tmp_path / "t.py"], [active.parent / "none", system, "/usr/bin"])
    assert done.stdout == "worker\n", done
    (active / "torchrun").unlink()
    done = run(["torchrun", tmp_path / "t.py"], [active, system, "/usr/bin"])
    assert done.stdout == "run by active\nworker\n", done


def test_the_report_names_the_interpreter_that_lacks_a_module(tmp_path):
    (tmp_path / "t.py").write_text("import no_such_module_of_ours")
    mine = environment(tmp_path / "mine")
    done = run([mine / "torchrun", tmp_path / "t.py"], ["/usr/bin"])
    assert done.returncode == 1
    assert f"\n  The interpreter was {mine}/python3 (PYTHON_EXEC chooses another)\n" in done.stderr, done.stderr
    (tmp_path / "t.py").write_text("raise ValueError('of ours')")
    assert "The interpreter was" not in run([mine / "torchrun", tmp_path / "t.py"], ["/usr/bin"]).stderr
