"""`muster run --warm`: workers that have imported before they are needed, and all reasons why one has not."""
import importlib.util
import json
import os
import pathlib
import random
import re
import signal
import sys

import pytest

from harness import KILLS, SLOWER, VALGRIND, Job, alive, children, kill

GATE = pathlib.Path(__file__).resolve().parents[2] / "src" / "launcher" / "warm" / "warm_gate.py"
FORMS = ["process", "fork"]
# Says where and when it runs, and idles.
# Each line is one write: the words of a print() of several workers could come mixed.
IDLE = """import json, decimal, os, signal
os.write(1, f"begin {os.environ['RANK']} {os.environ['TORCHELASTIC_RESTART_COUNT']} {os.getpid()}\\n".encode())
signal.pause()
"""
FLAG = "if os.environ['RANK'] == '0': open('flag', 'w')\nsignal.pause()"  # rank 0 records; the others see this only later
pytestmark = pytest.mark.skipif(VALGRIND, reason="the agent's own second for an answer is not enough there")


@pytest.fixture
def job(tmp_path):
    with Job(tmp_path) as job:
        yield job
        for agent in job.agents:
            if agent.process.poll() is None:
                agent.signal(signal.SIGTERM)
                agent.wait()
        job.all_gone(20)


class Warm:
    """A job of one node with --warm."""

    def __init__(self, job, form, text=IDLE, nproc=2, words=(), env=None, module=False, restarts=9, after="0.3", **more):
        self.script = job.tmp / "the_script.py"
        self.script.write_text(text)
        what = ["-m", "the_script"] if module else [self.script]
        self.n, self.generation = nproc, 0
        self.agent = job.agent("a", "-v", *([f"--warm={form}"] if form else []), f"--warm-after={after}",
                               f"--nproc-per-node={nproc}", f"--max-restarts={restarts}", "--crash-loop=0", "--standalone",
                               *words, *what, env={"PYTHONDONTWRITEBYTECODE": "1", **(env or {})}, **more)

    def begun(self, generation, seconds=25):
        """{rank: pid} of this generation."""
        def found():
            seen = dict(re.findall(rf"begin (\d+) {generation} (\d+)\n", self.agent.output()))
            return seen if len(seen) == self.n else None

        pids = self.agent.out.until(found, seconds)
        assert pids, f"no {self.n} of generation {generation}: {self.agent.output()} {self.agent.said()}"
        return {int(rank): int(pid) for rank, pid in pids.items()}

    def said(self, text, times=1, seconds=25):
        found = self.agent.err.until(lambda: self.agent.said().count(text) >= times, seconds)
        assert found, f"not {times} times {text!r}: {self.agent.said()}"

    def waiting(self, times=1):
        self.said(f"{self.n} processes wait for the next start", times)

    def restart(self):
        """The first group is replaced once processes wait for the next start."""
        pids = self.begun(0)
        self.waiting()
        kill(pids[0])
        self.begun(1)

    def not_forked(self, because):
        """Processes wait nevertheless."""
        self.said(f"processes for the next start are not forked: {because}")
        self.restart()
        self.said(f"all {self.n} workers start warm")

    def helpers(self, workers):
        """Templates and standbys."""
        found = []
        for pid in children(self.agent.agent_pid()):
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_text()
            if pid not in workers.values() and "the_script" in words and "--standalone" not in words:
                found.append(pid)
        return found


def ppid(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def marker(pid):
    found = re.search(rb"(?:^|\0)MUSTER_WORKER_ID=([^\0]*)", pathlib.Path(f"/proc/{pid}/environ").read_bytes())
    return found[1].decode()


@pytest.mark.parametrize("form", FORMS)
def test_a_restart_is_warm_again_and_again(job, form):
    warm = Warm(job, form)
    for generation in range(3):
        pids = warm.begun(generation)
        for rank, pid in pids.items():
            assert ppid(pid) == warm.agent.agent_pid() and os.getsid(pid) == pid
            assert re.fullmatch(rf"\d+\.{rank}\.[0-9a-f]{{16}}", marker(pid))
        warm.waiting(generation + 1)
        if generation > 0:
            warm.said(f"all {warm.n} workers start warm", generation)
            assert set(pids.values()) <= standbys
        standbys = set(warm.helpers(pids))
        kill(pids[1])


@pytest.mark.parametrize("form", FORMS)
def test_a_worker_that_was_forked_leaves_nothing(job, form):
    """What it started in a session of its own is found by the marker, although it was exec'ed by nobody."""
    text = IDLE.replace("signal.pause()", """
if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
    begun, in_session = os.pipe()
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            os.write(1, f"orphan {os.getpid()}\\n".encode())
            os.write(in_session, b".")
            signal.pause()
    for _ in range(3):
        os.read(begun, 1)
    os._exit(3)
signal.pause()""")
    warm = Warm(job, form, text)
    warm.begun(0)
    warm.waiting()
    kill(warm.begun(0)[0])
    warm.begun(2)
    orphans = re.findall(r"orphan (\d+)", warm.agent.output())
    assert len(orphans) == 3 and not any(alive(int(pid)) for pid in orphans)


# Prints what it can see, without what differs from run to run.
SEE = """import atexit, decimal, gc, json, multiprocessing, os, pickle, resource, signal, sys, threading, traceback
class Thing:
    pass
def double(x):
    return 2 * x
def see():
    plain = lambda v: v if isinstance(v, (int, str, float, bool, type(None))) else str(v)
    environment = {k: v for k, v in os.environ.items() if k not in ("MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID",
                   "MUSTER_GENERATION", "MUSTER_WORKER_ID", "MUSTER_RUN_ID", "MUSTER_NOTIFY_SOCKET", "NOTIFY_SOCKET", "E2E_JOB",
                   "TORCH_WORKER_SERVER_SOCKET", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS")}
    stack = []
    frame = sys._getframe(1)
    while frame:
        stack.append(frame.f_code.co_name + ":" + os.path.basename(frame.f_code.co_filename))
        frame = frame.f_back
    streams = [[s.encoding, s.errors, s.line_buffering, s.write_through, s.isatty(), s.name, type(s.buffer).__name__]
               for s in (sys.stdin, sys.stdout, sys.stderr)]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])  # before there are threads, which could take it
    pools, tasks = [], len(os.listdir("/proc/self/task"))
    for how in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(how).Pool(1) as pool:
            pools.append(pool.map(double, [1, 2]))
    return {
        "flags": str(sys.flags), "argv": sys.argv, "orig_argv": getattr(sys, "orig_argv", None), "path": sys.path,
        "main": [__name__, __file__, str(__spec__ and __spec__.name), sorted(k for k in globals() if k[:2] == "__")],
        "environment": environment, "streams": streams, "stack": stack, "pools": pools,
        "session": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()], "umask": os.umask(0o22), "cwd": os.getcwd(),
        "affinity": sorted(os.sched_getaffinity(0)), "nice": os.nice(0),
        "limits": [resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT_")],
        "signals": {s.name: plain(signal.getsignal(s)) for s in signal.Signals},
        "mask": sorted(mask),
        "fds": sorted(f for f in os.listdir("/proc/self/fd") if int(f) > 2 and os.path.exists("/proc/self/fd/" + f)),
        "targets": [os.readlink(f"/proc/self/fd/{i}").split(":")[0] for i in range(3)],
        "threads": [t.name for t in threading.enumerate()], "tasks": tasks,
        "pickle": pickle.dumps(Thing()).hex(), "gc": [gc.isenabled(), gc.get_threshold()],
        "site": [plain(getattr(sys.modules.get(n), "__file__", None)) for n in ("sitecustomize", "usercustomize")],
        "status": [line.rstrip() for line in open("/proc/self/status") if line.startswith(("SigB", "SigI", "SigC", "Shd", "NoNewPrivs", "Seccomp", "Cap", "Mems"))],
        "hooks": [str(sys.excepthook), str(sys.displayhook), sys.gettrace(), len(sys.path_hooks)],
        "comm": open("/proc/self/comm").read(), "oom": open("/proc/self/oom_score_adj").read(),
        "cmdline": open("/proc/self/cmdline").read().split(chr(0))[1:],
    }
if __name__ == "__main__":
    seen = see()
    os.write(1, f"see {os.environ['RANK']} {os.environ['TORCHELASTIC_RESTART_COUNT']} {json.dumps(seen)}\\n".encode())
    atexit.register(print, "at exit", os.environ["RANK"])
    os.write(1, f"begin {os.environ['RANK']} {os.environ['TORCHELASTIC_RESTART_COUNT']} {os.getpid()}\\n".encode())
    signal.sigwait([signal.SIGUSR1])
    (lambda *_: 1 / 0)()
"""


@pytest.mark.parametrize("module", [False, True], ids=["script", "module"])
def test_a_script_sees_the_same_cold_forked_and_as_a_standby(tmp_path, module):
    sees_the_same(tmp_path, SEE, module)


def sees_the_same(tmp_path, script, module, python=sys.executable):
    seen, ends = {}, {}
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins\nbuiltins.own_site = 1\n")
    for form in ("", *FORMS):
        (tmp_path / form).mkdir(exist_ok=True)
        with Job(tmp_path / "job") as job:
            job.tmp.joinpath("x").mkdir()
            warm = Warm(job, form, script, module=module, words=["--bind=core"], restarts=1,
                        env={"PYTHONPATH": f"{own}:{job.tmp}", "OMP_NUM_THREADS": "1", "PYTHON_EXEC": python})
            pids = warm.begun(0, 60)
            if form:
                warm.waiting()
            kill(pids[0])
            pids = warm.begun(1, 60)
            if form:
                warm.said(f"all {warm.n} workers start warm")
            lines = re.findall(r"see (\d) (\d) (\{.*\})\n", warm.agent.output())
            seen[form] = {rank: json.loads(text) for rank, generation, text in lines if generation == "1"}
            os.kill(pids[1], signal.SIGUSR1)
            code, out, said = warm.agent.finish()
            trace = said[said.index("Traceback"):]
            ends[form] = (code, "at exit 1" in out, re.sub(r"\x1b.*", "", trace[:trace.index("ZeroDivisionError")]))
        for path in sorted((tmp_path / "job").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        (tmp_path / "job").rmdir()
    for form in FORMS:
        for rank, facts in seen[""].items():
            for key, value in facts.items():
                assert seen[form][rank][key] == value, (form, rank, key)
        assert ends[form] == ends[""], form


def packages(job, name, text):
    """A folder for PYTHONPATH in which this package is an installed one."""
    folder = job.tmp / "lib" / "site-packages"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(text)
    return folder


WRAPPER = "#!/bin/sh\nexec {python} -I \"$@\"\n"


def test_no_python_is_cold(job):
    agent = job.agent("a", "-v", "--warm", "--standalone", "--no-python", "/bin/true")
    assert agent.wait() == 0
    agent.wait_said("0 of 1 workers start warm; cold because --no-python starts no Python")


def test_an_interpreter_that_passes_by_is_cold(job):
    wrapper = job.tmp / "python"
    wrapper.write_text(WRAPPER.format(python=sys.executable))
    wrapper.chmod(0o755)
    warm = Warm(job, "fork", env={"PYTHON_EXEC": wrapper})
    pids = warm.begun(0)
    warm.said("workers can't be warm: the Python of local rank 0 did not load muster's sitecustomize")
    assert not warm.helpers(pids)
    kill(pids[0])
    warm.said("0 of 2 workers start warm; cold because the Python of local rank 0 did not load")
    warm.begun(1)


def test_a_script_that_imports_nothing_is_cold(job):
    warm = Warm(job, "fork", IDLE.replace("import json, decimal, os, signal", "import os, posix")
                .replace("signal.pause()", "while True: os.read(os.pipe()[0], 1)"))
    warm.begun(0)
    warm.said("workers can't be warm: the script has imported no installed package")


def test_a_script_that_imports_late_is_warm_later(job):
    fifo = job.tmp / "fifo"
    os.mkfifo(fifo)
    lib = packages(job, "late", "")
    begin = f"import os\nif os.environ['RANK'] == '0' and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': open({str(fifo)!r}).read()\n"
    warm = Warm(job, "process", begin + "import late\n" + IDLE, nproc=1, env={"PYTHONPATH": lib})
    warm.said("workers can't be warm: the script has imported no installed package")
    fifo.write_text("")
    warm.restart()
    warm.said("all 1 workers start warm")


def test_what_comes_after_a_variable_that_the_script_sets_is_cold(job):
    lib = packages(job, "early", "")
    packages(job, "late", "import os\nprint('late', os.environ.get('FOR_LATE'), flush=True)")
    text = "import early, os\nos.environ['FOR_LATE'] = 'x'\nimport late\n" + IDLE
    warm = Warm(job, "process", text, env={"PYTHONPATH": lib})
    pids = warm.begun(0)
    warm.said("the script sets FOR_LATE: what it imports afterwards is not imported ahead")
    warm.waiting()
    kill(pids[0])
    warm.begun(1)
    assert warm.agent.output().count("late x\n") == 4 and "late None" not in warm.agent.output()


def test_packages_of_warm_skip_are_not_imported(job):
    lib = packages(job, "noisy", "print('noisy is imported', flush=True)")
    warm = Warm(job, "process", "import noisy\n" + IDLE, env={"PYTHONPATH": lib}, words=["--warm-skip=other,noisy"])
    kill(warm.begun(0)[0])
    warm.begun(1)
    assert warm.agent.output().count("noisy is imported") == 4


@pytest.mark.parametrize("form", FORMS)
def test_what_importing_prints_is_in_the_workers_output(job, form):
    lib = packages(job, "noisy", "import sys\nprint('noisy is imported', flush=True)\nprint('loud', file=sys.stderr)")
    warm = Warm(job, form, "import noisy\n" + IDLE, env={"PYTHONPATH": lib})
    warm.restart()
    warm.said(f"all {warm.n} workers start warm")
    assert warm.agent.output().count("noisy is imported") == 4
    assert warm.agent.err.until(lambda: warm.agent.said().count("loud") == 4)
    assert "loud" not in warm.agent.output() and "noisy" not in warm.agent.said()


@pytest.mark.parametrize("form", FORMS)
def test_an_import_that_fails_only_in_the_standby_runs_no_script(job, form):
    lib = packages(job, "odd", "import os\nif os.path.exists('flag'): raise KeyboardInterrupt\n")
    text = "try:\n    import odd\nexcept KeyboardInterrupt:\n    pass\n" + IDLE.replace("signal.pause()", FLAG)
    warm = Warm(job, form, text, env={"PYTHONPATH": lib})
    pids = warm.begun(0)
    warm.waiting()
    warm.said("(1 failed)")
    assert warm.agent.output().count("begin") == 2
    kill(pids[0])
    warm.begun(1)
    warm.said("all 2 workers start warm")


@pytest.mark.parametrize("form", FORMS)
def test_a_standby_that_can_t_report_runs_no_script(job, form):
    """Its descriptors are closed by an import: only its exit is left."""
    lib = packages(job, "closes", "import os\nif os.path.exists('flag'): os.closerange(3, 100)\n")
    warm = Warm(job, form, "import closes\n" + IDLE.replace("signal.pause()", FLAG), env={"PYTHONPATH": lib})
    pids = warm.begun(0)
    warm.said("workers start cold from now on: a process for the next start has ended")
    assert warm.agent.output().count("begin") == 2
    kill(pids[0])
    warm.begun(1)
    assert warm.agent.output().count("begin") == 4


def test_threads_are_not_forked(job):
    lib = packages(job, "threads", "import threading, time\n"
                   "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n")
    warm = Warm(job, "fork", "import threads\n" + IDLE, env={"PYTHONPATH": lib})
    warm.not_forked("importing leaves threads: python")


def test_a_process_that_an_import_starts_is_not_shared(job):
    lib = packages(job, "starts", "import subprocess\nP = subprocess.Popen(['sleep', '1000'])\n"
                   "while open(f'/proc/{P.pid}/comm').read() != 'sleep\\n': pass\n")  # its name comes after exec
    text = "import starts\nassert starts.P.poll() is None\n" + IDLE
    warm = Warm(job, "fork", text, env={"PYTHONPATH": lib})
    warm.not_forked("importing leaves threads: sleep (a process)")


def test_an_import_that_reads_the_rank_is_not_forked(job):
    lib = packages(job, "reads", "import os\nRANK = os.environ.get('RANK')\nALL = dict(os.environ)\n")
    text = "import reads\n" + IDLE + "\n"
    text = text.replace("signal.pause()", "assert reads.RANK == os.environ['RANK']\nsignal.pause()")
    warm = Warm(job, "fork", text, env={"PYTHONPATH": lib})
    warm.not_forked("an import reads RANK, which differs from rank to rank")


def test_different_arguments_are_not_forked(job):
    warm = Warm(job, "fork", IDLE.replace("signal.pause()", "import sys\nassert sys.argv[1] == os.environ['RANK']\nsignal.pause()"))
    warm.agent.signal(signal.SIGTERM)
    warm.agent.wait()
    agent = job.agent("b", "-v", "--warm", "--warm-after=0.3", "--nproc-per-node=2", "--max-restarts=3", "--standalone",
                      warm.script, "${local_rank}")
    warm.agent = agent
    warm.not_forked("workers have different arguments")


@pytest.mark.parametrize("form", FORMS)
def test_a_variable_that_was_read_and_has_changed_makes_it_cold(job, form):
    lib = packages(job, "reads", "import os\nPORT = os.environ['TORCHELASTIC_RESTART_COUNT']\n")
    text = "import reads\n" + IDLE
    warm = Warm(job, form, text.replace("signal.pause()", "assert reads.PORT == os.environ['TORCHELASTIC_RESTART_COUNT']\nsignal.pause()"),
                env={"PYTHONPATH": lib})
    warm.restart()
    warm.said("local rank 0 starts cold after all: an import has read TORCHELASTIC_RESTART_COUNT, which has changed")


@pytest.mark.parametrize("what", ["package", "script"])
def test_what_has_changed_since_is_not_used(job, what):
    lib = packages(job, "one", "")
    warm = Warm(job, "fork", "import one\n" + IDLE, env={"PYTHONPATH": lib})
    pids = warm.begun(0)
    warm.waiting()
    if what == "package":
        packages(job, "another", "")
    else:
        warm.script.write_text("import one\n" + IDLE + "# changed\n")
    kill(pids[0])
    warm.begun(1)
    changed = lib if what == "package" else warm.script
    warm.said(f"starts cold after all: {changed} has changed since the modules were imported")


@pytest.mark.parametrize("form", FORMS)
def test_a_standby_that_does_not_begin_is_replaced(job, form):
    warm = Warm(job, form)
    pids = warm.begun(0)
    warm.waiting()
    for pid in warm.helpers(pids):
        os.kill(pid, signal.SIGSTOP)
    kill(pids[0])
    warm.begun(1)
    warm.said("starts cold after all: its process did not begin within a second", warm.n)
    assert len(re.findall(r"begin \d 1 ", warm.agent.output())) == warm.n


@pytest.mark.parametrize("form", FORMS)
def test_a_standby_that_is_killed_is_replaced(job, form):
    warm = Warm(job, form)
    pids = warm.begun(0)
    warm.waiting()
    for pid in warm.helpers(pids):
        kill(pid)
    warm.waiting(2)
    kill(pids[0])
    warm.begun(1)
    warm.said("all 2 workers start warm")


# Imports more when it is told to. Only the import of a process that waits for the next start lasts, until the test ends it.
LATER = IDLE.replace("os, signal\n", "os, signal, sys\nsys.is_worker = True\n"
                     "os.write(1, f\"knows {os.environ['TORCHELASTIC_RESTART_COUNT']} {'later' in sys.modules}\\n\".encode())\n"
                     "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n") \
    .replace("signal.pause()", "signal.sigwait([signal.SIGUSR1])\nimport later, colorsys\nsignal.pause()")


@pytest.mark.parametrize("form", FORMS)
def test_what_is_made_anew_serves_until_then(job, form):
    os.mkfifo(job.tmp / "wait")
    lib = packages(job, "later", "import os, sys\nif not hasattr(sys, 'is_worker') and os.path.exists('wait'):\n"
                   "    os.read(os.open('wait', os.O_RDONLY), 1)\n")
    warm = Warm(job, form, LATER, env={"PYTHONPATH": lib})
    pids = warm.begun(0)
    warm.waiting()
    os.kill(pids[0], signal.SIGUSR1)
    warm.said("the script imported more modules; re-creating the standbys")
    for generation in range(1, 3):  # nothing new is ready, and the old ones serve once
        kill(pids[1])
        pids = warm.begun(generation)
    warm.said("all 2 workers start warm")
    assert warm.agent.said().count("all 2 workers start warm") == 1
    warm.said("0 of 2 workers start warm; cold because ")
    with open(job.tmp / "wait", "w"):  # as soon as somebody reads
        (job.tmp / "wait").rename(job.tmp / "gone")
    warm.waiting(2)
    kill(pids[1])
    warm.begun(3)
    warm.said("all 2 workers start warm", 2)
    assert re.findall(r"knows (\d) (\w+)", warm.agent.output())[-2:] == [("3", "True")] * 2
    assert re.findall(r"knows 1 (\w+)", warm.agent.output()) == ["False"] * 2


def test_two_warm_starts_that_fail_soon_are_the_last(job):
    warm = Warm(job, "fork", IDLE.replace("signal.pause()", "signal.sigtimedwait([signal.SIGUSR1], 100)\nos._exit(3)"))
    for generation in range(3):
        pids = warm.begun(generation)
        warm.waiting(generation + 1)
        os.kill(pids[0], signal.SIGUSR1)
        if generation > 0:
            warm.said(f"all {warm.n} workers start warm", generation)
    warm.begun(3)
    warm.said("workers start cold from now on: two warm starts in a row have failed within 10 s")
    warm.said("cold because two warm starts in a row have failed within 10 s")


def test_the_gate_finds_devices(tmp_path):
    spec = importlib.util.spec_from_file_location("warm_gate", GATE)
    gate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gate)
    with open(tmp_path / "nvidia0", "w"):
        gate.DEVICES = (str(tmp_path / "nv"),)
        assert gate.Standby.devices() == [str(tmp_path / "nvidia0")]


@pytest.mark.parametrize("who", ["guardian", "agent"])
@pytest.mark.parametrize("form", FORMS)
def test_nothing_outlives_agent_and_guardian(job, form, who):
    warm = Warm(job, form)
    warm.begun(0)
    warm.waiting()
    kill(warm.agent.pid if who == "guardian" else warm.agent.agent_pid())
    warm.agent.wait()
    job.all_gone(10)


@pytest.mark.parametrize("form", FORMS)
def test_nothing_outlives_a_job_that_ends(job, form):
    warm = Warm(job, form)
    warm.begun(0)
    warm.waiting()
    warm.agent.signal(signal.SIGTERM)
    warm.agent.wait()
    job.all_gone(10)


@pytest.mark.parametrize("contain", ["cgroup", "pidns"])
@pytest.mark.parametrize("form", FORMS)
def test_contained_workers_are_warm_in_the_cgroup_of_muster(job, form, contain):
    text = IDLE.replace("signal.pause()", """
group = open("/proc/self/cgroup").read().split("0::")[-1].strip()
os.write(1, f"in {os.environ['TORCHELASTIC_RESTART_COUNT']} {group}\\n".encode())
while not os.path.exists("end" + os.environ["TORCHELASTIC_RESTART_COUNT"]):
    signal.sigtimedwait([signal.SIGTERM], 0.05)
os._exit(3)""")
    warm = Warm(job, form, text, words=[f"--contain={contain}"], restarts=1)
    if warm.agent.err.until(lambda: "contain" in warm.agent.said() or "ranks 0-1" in warm.agent.said()) and \
            "ranks 0-1" not in warm.agent.said():
        pytest.skip(warm.agent.said())
    warm.waiting()
    (job.tmp / "end0").touch()
    warm.said(f"all {warm.n} workers start warm")
    assert warm.agent.out.until(lambda: len(re.findall(r"^in 1 .*\n", warm.agent.output(), re.M)) == warm.n, 25)
    (job.tmp / "end1").touch()
    warm.agent.finish()
    groups = re.findall(r"^in 1 (\S+)\n", warm.agent.output(), re.M)
    assert len(groups) == warm.n and len(set(groups)) == 1, groups
    assert contain != "cgroup" or re.search(r"/muster-\d+$", groups[0]), groups


@pytest.mark.parametrize("form", FORMS)
def test_kills_at_random_moments(job, form):
    """Workers, templates and standbys are killed, warm and while warming: each time a complete group runs again."""
    rng = random.Random(os.environ['SEED'] + form)
    warm = Warm(job, form, restarts=1000000, after="0.1")
    generation = 0
    for _ in range(KILLS):
        pids = warm.begun(generation)
        until = rng.random() * 0.6 * SLOWER
        warm.agent.err.until(lambda: False, until)  # a moment, and not an event, is what is tested
        helpers = warm.helpers(pids)
        if helpers and rng.random() < 0.3:
            kill(rng.choice(helpers))
        kill(rng.choice(list(pids.values())))
        generation += 1
    warm.begun(generation)
    lines = re.findall(r"begin (\d+ \d+) \d+\n", warm.agent.output())
    assert len(lines) == len(set(lines)), "a script ran twice in one generation"
    assert warm.agent.said().count("workers start warm") >= KILLS
