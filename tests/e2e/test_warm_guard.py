"""`muster run --warm`: what is waited with never runs a line of the script before the go, whatever imports do."""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import uuid

import pytest

from harness import SLOWER, VALGRIND, alive, kill
from test_faults import TRACER
from test_warm import FLAG, FORMS, GATE, IDLE, Warm, job, packages  # noqa: F401

pytestmark = pytest.mark.skipif(VALGRIND, reason="the agent's own second for an answer is not enough there")
# Its first line leaves a trace that needs no standard output: a second copy's goes nowhere.
TRACED = "import os\nwith open(os.environ['RAN'], 'a') as ran:\n    ran.write('x')\n" + IDLE


@pytest.fixture
def ran(job):  # noqa: F811
    """How many copies of a TRACED script have begun."""
    trace = job.tmp / "ran"
    trace.touch()

    def count():
        return len(trace.read_text())

    count.env = {"RAN": trace}
    return count


@pytest.mark.parametrize("form", FORMS)
def test_an_installed_program_is_not_run_by_its_import(job, form, ran):  # noqa: F811
    """A small script imports a module that trains."""
    text = TRACED.replace("signal.pause()", "import textwrap, colorsys\nsignal.pause()")
    lib = packages(job, "train", text)
    warm = Warm(job, form, "import train\n", env={"PYTHONPATH": lib, **ran.env})
    pids = warm.begun(0)
    warm.waiting()
    kill(pids[0])
    warm.begun(1)
    warm.said("all 2 workers start warm")
    warm.waiting(2)
    assert ran() == 4


def test_the_package_of_the_script_is_not_imported(job, ran):  # noqa: F811
    lib = packages(job, "unused", "")
    (lib / "program").mkdir()
    (lib / "program" / "__init__.py").write_text("")
    (lib / "program" / "stage.py").write_text("import os\nwith open(os.environ['RAN'], 'a') as ran:\n    ran.write('x')\n")
    (lib / "program" / "__main__.py").write_text("import program.stage\n" + IDLE)
    warm = Warm(job, "process", "", env={"PYTHONPATH": lib, **ran.env})
    warm.agent.signal(signal.SIGTERM)
    warm.agent.wait()
    before = ran()
    warm.agent = job.agent("b", "-v", "--warm=process", "--warm-after=0.3", "--nproc-per-node=2", "--max-restarts=3",
                           "--standalone", "-m", "program", env={"PYTHONPATH": lib, "PYTHONDONTWRITEBYTECODE": "1", **ran.env})
    warm.begun(0)
    warm.waiting()
    assert ran() == before + 2


@pytest.mark.parametrize("form", FORMS)
def test_an_import_that_starts_python_anew_is_cold(job, form, ran):  # noqa: F811
    """Packages do so for a variable that a library reads before main()."""
    lib = packages(job, "anew", "import os, sys, decimal\nif os.environ['MUSTER_WORKER_ID'][0] == '-': os.execv(sys.executable, sys.orig_argv)\n")
    warm = Warm(job, form, "import anew\n" + TRACED, env={"PYTHONPATH": lib, **ran.env})
    warm.begun(0)
    warm.said("workers start cold from now on: importing starts another program in the place of this one")
    assert ran() == 2


def test_a_package_that_has_started_python_anew_is_not_imported(job, ran):  # noqa: F811
    lib = packages(job, "anew", "import os, sys, decimal\nif 'AGAIN' not in os.environ:\n    import colorsys\n"
                   "    os.environ['AGAIN'] = '1'\n    os.execv(sys.executable, sys.orig_argv)\n")
    warm = Warm(job, "fork", "import anew\n" + TRACED, env={"PYTHONPATH": lib, **ran.env})
    warm.begun(0)
    warm.waiting()
    assert ran() == 2 and "(0 failed)" in warm.agent.said()


@pytest.mark.parametrize("form", FORMS)
def test_what_an_import_forks_does_not_wait_for_the_go(job, form, ran):  # noqa: F811
    lib = packages(job, "forks", "import os, sys\nif os.fork() == 0:\n    sys.exit(0)\nos.wait()\n")
    warm = Warm(job, form, "import forks\n" + TRACED, env={"PYTHONPATH": lib, **ran.env})
    pids = warm.begun(0)
    warm.waiting()
    kill(pids[0])
    warm.begun(1)
    warm.said("all 2 workers start warm")
    assert ran() == 4


@pytest.mark.parametrize("how", ["changes", "by rank", "without exec"])
def test_an_interpreter_that_passes_by_later_runs_no_script(job, how, ran):  # noqa: F811
    wrapper = job.tmp / "python"
    good, bad = f'exec {sys.executable} "$@"\n', f'exec {sys.executable} -I "$@"\n'
    other = {"changes": f"[ -e {job.tmp}/flag ] || ", "by rank": "[ $LOCAL_RANK = 0 ] && ", "without exec": "[ $LOCAL_RANK = 0 ] && "}
    wrapper.write_text("#!/bin/sh\n" + other[how] + good + (f'{sys.executable} "$@"\n' if how == "without exec" else bad))
    wrapper.chmod(0o755)
    warm = Warm(job, "process", TRACED.replace("signal.pause()", FLAG), env={"PYTHON_EXEC": wrapper, **ran.env})
    warm.begun(0)
    warm.said("workers start cold from now on: its Python did not load muster's sitecustomize")
    assert ran() == 2


# A gate in a child process, in which a standby has come to an end that it can't take.
BROKEN = """import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("warm_gate", sys.argv[1])
gate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gate)
class Loud:
    def write(self, text):
        raise RuntimeError("no")
def stand_by(*_):
    sys.stderr, os._exit = Loud(), lambda code: None
    raise ValueError
gate.stand_by, gate.Standby, gate.take_away = stand_by, lambda *_: None, lambda *_: None
try:
    gate.pass_by("standby", str(os.getppid()), "3", "3", "3", "0", "")
except BaseException:
    pass
print("the script")
"""


def test_a_standby_without_standard_error_and_exit_runs_no_script():
    done = subprocess.run([sys.executable, "-c", BROKEN, GATE], stdout=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")


def test_recording_writes_to_no_file_of_others(tmp_path):
    """Where /proc shows another pid namespace, the agent's number is another process's."""
    program = BROKEN.split("class Loud")[0] + "gate.Recorder(os.getppid(), int(sys.argv[2]), set())\n"
    with open(tmp_path / "others", "w") as other:
        done = subprocess.run([sys.executable, "-c", program, GATE, str(other.fileno())], stderr=subprocess.PIPE, check=False)
    assert b"another pid namespace" in done.stderr and (tmp_path / "others").read_text() == ""


def test_what_importing_has_printed_is_lost_on_a_full_disk():
    program = BROKEN.split("class Loud")[0] + """
standby = object.__new__(gate.Standby)
standby.copied = [b"x", b"y"]
standby.print_again()
"""
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", program, GATE], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"y")


# ---- imports that change what the gate itself uses ----

ODD = {
    "children": "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n",
    "timeout": "import socket\nsocket.setdefaulttimeout(0.2)\n",
    "path": "import pathlib, sys\nsys.path.insert(0, pathlib.Path('/'))\n",
    "thread": "import ctypes, threading\nnamed = threading.Event()\ndef run():\n"
              "    ctypes.CDLL(None).prctl(15, b'\\xff\\xe6', 0, 0, 0)\n    named.set()\n    threading.Event().wait()\n"
              "threading.Thread(target=run, daemon=True).start()\nnamed.wait()\n",
}


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("form", FORMS)
def test_odd_imports_are_warm(job, form, what):  # noqa: F811
    lib = packages(job, "odd", ODD[what])
    warm = Warm(job, form, "import odd\n" + IDLE, env={"PYTHONPATH": lib})
    pids = warm.begun(0)
    warm.waiting()
    standbys = warm.helpers(pids)
    warm.agent.err.until(lambda: not all(map(alive, standbys)), 1)  # longer than the timeout
    assert all(map(alive, standbys))
    for generation in (1, 2, 3):  # a standby that has no CPU for a second is replaced by a cold start
        kill(pids[0])
        pids = warm.begun(generation)
        warm.said("2 workers start warm", generation)
        if "all 2 workers start warm" in warm.agent.said():
            break
        warm.waiting(generation + 1)
    assert "all 2 workers start warm" in warm.agent.said(), warm.agent.said()
    assert "Traceback" not in warm.agent.said()


LAZY = """import importlib.util, sys
found = importlib.util.find_spec("lazy")
found.loader = importlib.util.LazyLoader(found.loader)
sys.modules["lazy"] = importlib.util.module_from_spec(found)
found.loader.exec_module(sys.modules["lazy"])
"""


def test_recording_asks_no_module(job):  # noqa: F811
    """One that is lazy would be loaded by that; another raises."""
    lib = packages(job, "lazy", "print('loaded', flush=True)\n")
    packages(job, "rude", "import sys\nclass Rude:\n    def __getattribute__(self, name):\n        raise RuntimeError(name)\n"
             "sys.modules['rude'] = Rude()\n")
    warm = Warm(job, "process", LAZY + "import rude, colorsys\n" + IDLE, env={"PYTHONPATH": lib})
    warm.begun(0)
    warm.waiting()
    assert "loaded" not in warm.agent.output()


DAEMON = """import os
ready, begun = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(begun, b"%d" % os.getpid())
        os.execv("/bin/sleep", ["sleep", "1000"])
    os._exit(0)
os.close(begun)
os.wait()
PID = int(os.read(ready, 100))
os.read(ready, 1)  # the end: it is becoming another program
os.close(ready)
"""


@pytest.mark.parametrize("form", FORMS)
def test_a_daemon_that_an_import_makes_runs_with_the_worker(job, form):  # noqa: F811
    lib = packages(job, "makes", DAEMON)
    text = "import makes\n" + IDLE.replace("signal.pause()", "os.kill(makes.PID, 0)\nos.write(1, b'it runs\\n')\nsignal.pause()")
    warm = Warm(job, form, text, env={"PYTHONPATH": lib}, restarts=1)
    pids = warm.begun(0)
    warm.said("workers start cold from now on: importing leaves a daemon: sleep")
    kill(pids[0])
    warm.begun(1)
    assert warm.agent.out.until(lambda: warm.agent.output().count("it runs\n") == 4, 25), warm.agent.said()


# ---- time ----

def test_what_dies_again_and_again_is_made_ever_more_rarely(job):  # noqa: F811
    made = job.tmp / "made"
    lib = packages(job, "noted", f"""import os, time
if os.environ['MUSTER_WORKER_ID'][0] == '-':
    with open('{made}', 'a') as made:
        made.write(str(time.monotonic()) + chr(10))
""")
    warm = Warm(job, "process", "import noted\n" + IDLE, nproc=1, env={"PYTHONPATH": lib}, after="0.05")
    pids = warm.begun(0)
    for times in range(1, 7):
        warm.waiting(times)
        kill(warm.helpers(pids)[0])
    times = [float(line) for line in made.read_text().split()]
    assert times[5] - times[4] >= 0.05 * 2**5


@pytest.mark.parametrize("form", FORMS)
def test_what_ends_while_importing_ends_the_pool(job, form):  # noqa: F811
    lib = packages(job, "ends", "import os\nif os.environ['MUSTER_WORKER_ID'][0] == '-': os._exit(3)\n")
    warm = Warm(job, form, "import ends\n" + IDLE, env={"PYTHONPATH": lib})
    warm.begun(0)
    warm.said("workers start cold from now on: a process for the next start has ended")


@pytest.mark.parametrize("form", FORMS)
def test_an_agent_that_stands_still_at_the_go_loses_no_worker(job, form, ran):  # noqa: F811
    """It may see its deadline before the answer, which has been there for long."""
    warm = Warm(job, form, TRACED, env=ran.env)
    pids = warm.begun(0)
    warm.waiting()
    helpers = warm.helpers(pids)
    for pid in helpers:
        os.kill(pid, signal.SIGSTOP)
    kill(pids[0])
    warm.said("all 2 workers start warm")
    agent = warm.agent.agent_pid()
    os.kill(agent, signal.SIGSTOP)
    for pid in helpers:
        os.kill(pid, signal.SIGCONT)
    warm.agent.err.until(lambda: False, 1.2 / SLOWER)  # more than the second, and less than the lease
    os.kill(agent, signal.SIGCONT)
    warm.begun(1)
    warm.waiting(2)
    assert ran() == 4 and "restart 2" not in warm.agent.said()


# ---- what there is not enough of ----

def oom_score(pid):
    return int(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text())


@pytest.mark.parametrize("form", FORMS)
def test_what_waits_is_ended_before_a_worker_when_memory_runs_out(job, form):  # noqa: F811
    warm = Warm(job, form)
    pids = warm.begun(0)
    own = oom_score(pids[0])
    warm.waiting()
    assert {*map(oom_score, warm.helpers(pids))} == {1000}
    kill(pids[0])
    pids = warm.begun(1)
    warm.said("all 2 workers start warm")
    assert {*map(oom_score, pids.values())} == {own}


@pytest.fixture
def in_little_memory():
    """Words that start a command in a cgroup of 256 MiB."""
    name = f"muster-e2e-{uuid.uuid4().hex}"
    for top, limit, swap in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.swappiness"),
                             ("/sys/fs/cgroup", "memory.max", "memory.swap.max")):
        folder = pathlib.Path(top, name)
        try:
            folder.mkdir()
            (folder / limit).write_text(str(256 << 20))
        except OSError:
            with contextlib.suppress(OSError):
                folder.rmdir()
            continue
        with contextlib.suppress(OSError):
            (folder / swap).write_text("0")
        yield ["sh", "-c", f'echo $$ > {folder}/cgroup.procs; exec "$@"', "sh"]
        folder.rmdir()
        return
    pytest.skip("needs a cgroup for memory")


@pytest.mark.parametrize("form", FORMS)
def test_memory_that_is_too_little_for_what_waits_is_for_workers(in_little_memory, job, form):  # noqa: F811
    """A worker has 150 MiB, and importing takes 130."""
    lib = packages(job, "large", "import os\nDATA = b'x' * ((130 if os.environ['MUSTER_WORKER_ID'][0] == '-' else 150) << 20)\n")
    warm = Warm(job, form, "import large\n" + IDLE, nproc=1, restarts=0, prefix=in_little_memory, env={"PYTHONPATH": lib})
    pids = warm.begun(0)
    warm.said("workers start cold from now on: a process for the next start has ended")
    kill(pids[0])  # what the kernel ended before is no reason
    code, _, said = warm.agent.finish()
    assert code == 1 and "died of SIGKILL" in said and "out of memory" not in said


@pytest.mark.parametrize("form", FORMS)
def test_a_low_limit_of_open_files_is_for_workers(job, form):  # noqa: F811
    """It is enough for them alone, and for a few that wait, but not when these become workers."""
    warm = Warm(job, form, nproc=6, prefix=["sh", "-c", 'ulimit -n 52; exec "$@"', "sh"])
    pids = warm.begun(0)
    warm.said("workers start cold from now on: half of the open files that this process may have are in use")
    kill(pids[0])
    pids = warm.begun(1)
    assert not warm.helpers(pids) and "could not be started" not in warm.agent.said()


@contextlib.contextmanager
def held(pid):
    """Stopped by a debugger that does not look at it any more."""
    with subprocess.Popen([sys.executable, "-c", TRACER, str(pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as tracer:
        try:
            if tracer.stdout.readline() != "stopped\n":
                pytest.skip(f"nothing can be traced here: {tracer.stderr.read()}")
            yield
        finally:
            tracer.kill()


@pytest.mark.parametrize("form", FORMS)
def test_a_debugger_that_holds_what_waits_holds_no_restart(job, form):  # noqa: F811
    warm = Warm(job, form)
    pids = warm.begun(0)
    warm.waiting()
    with contextlib.ExitStack() as debuggers:
        for pid in warm.helpers(pids):
            debuggers.enter_context(held(pid))
        kill(pids[0])
        warm.begun(1)
        warm.said("starts cold after all: its process did not begin within a second", 2)
