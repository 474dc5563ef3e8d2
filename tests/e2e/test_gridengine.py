"""A real Grid Engine on the hosts of a netns-cluster: its packages are downloaded and not installed. Needs root, and the
folder MUSTER_SHARED with netns-cluster and launchers/gridengine-up."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import time

import pytest

import harness

SHARED = pathlib.Path(os.environ.get("MUSTER_SHARED") or harness.HERE.parents[2] / "shared")
NETNS, UP = SHARED / "netns-cluster", SHARED / "launchers" / "gridengine-up"
USER, UID = "geuser", 2000
LIMIT_S = 180  # a job that is queued again waits for a minute

WORKER = """
import os, select, signal, socket, sys
def mark(text):
    with open("mark", "a") as out:
        out.write(f"{os.environ['RANK']} {text}\\n")
def stop(signo, frame):
    if signo == signal.SIGTERM:
        select.select([], [], [], 0.5)
        mark("saved")
        os._exit(0)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGUSR2, stop)
mark(f"up {os.environ['WORLD_SIZE']} {socket.gethostname()} {os.environ['MUSTER_RUN_ID']}")
wait = len(sys.argv) > 1 and os.environ.get("RESTARTED", "0") == "0"
if wait:
    address = os.environ["MUSTER_NOTIFY_SOCKET"].replace("@", "\\0", 1)
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"MUSTER_SAFE_POINT=1", address)
while wait and not os.path.exists("go" + os.environ["WORLD_SIZE"]):
    select.select([], [], [], 0.05)
"""


class GridEngine:
    def __init__(self, folder):
        self.folder, self.work = folder, folder / "work"
        self.env = {**os.environ, "NC": str(NETNS), "NC_DIR": str(folder / "cluster")}

    def call(self, *words, **more):
        return subprocess.run([str(word) for word in words], env=self.env, capture_output=True, text=True,
                              timeout=LIMIT_S, umask=0o022, **more)

    def host(self, number, *words):
        return self.call(NETNS / "host", number, *words)

    def as_user(self, *words):
        line = " ".join(shlex.quote(str(word)) for word in words)
        return self.host(1, "bash", "-c", f". {self.folder}/ge/env; cd {self.work}; exec setpriv --reuid={UID} --regid={UID} "
                                          f"--clear-groups env HOME={self.work} USER={USER} {line}")

    def start(self):
        self.call(NETNS / "up", "-n", 4, check=True)
        done = self.call(UP, self.folder / "ge")
        if done.returncode != 0 or "all.q@host4" not in done.stdout:
            pytest.skip(f"no Grid Engine can be started here: {done.stderr[-300:]}")
        for name, line in [("passwd", f"{USER}:x:{UID}:{UID}::{self.work}:/bin/sh"), ("group", f"{USER}:x:{UID}:")]:
            (self.folder / name).write_text(pathlib.Path("/etc", name).read_text() + line + "\n")
            for number in range(1, 5):
                self.host(number, "mount", "--bind", self.folder / name, f"/etc/{name}")
        self.work.mkdir()
        shutil.copy(harness.MUSTER, self.work / "muster")
        (self.work / "train.py").write_text(WORKER)
        self.call("chown", "-R", f"{UID}:{UID}", self.work)

    def stop(self):
        self.call(NETNS / "down")

    def submit(self, script, *options):
        (self.work / "job.sh").write_text(script)
        for old in self.work.glob("go*"):
            old.unlink()
        for name in ["mark", "out"]:
            (self.work / name).unlink(missing_ok=True)
        done = self.as_user("qsub", "-terse", "-v", "LD_LIBRARY_PATH", "-wd", self.work, "-j", "y", "-o", self.work / "out",
                            "-pe", "mpi", 6, *options, self.work / "job.sh")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def read(self, name):
        file = self.work / name
        return file.read_text() if file.exists() else ""

    def wait(self, what):
        deadline = time.monotonic() + LIMIT_S
        while not what():
            assert time.monotonic() < deadline, self.read("mark") + self.read("out")
            os.sched_yield()

    def ups(self, world):
        return re.findall(rf"^(\d) up {world} (\S+) (\S+)$", self.read("mark"), re.M)

    def is_over(self, job):
        return self.as_user("qstat", "-j", job).returncode != 0

    def processes(self):
        return [line for number in range(1, 5) for line in self.host(number, "ps", "-eo", "args").stdout.splitlines()
                if line.startswith(str(self.work / "muster"))]


@pytest.fixture
def grid():
    if os.geteuid() != 0 or not UP.exists() or os.environ.get("MUSTER_TEST_SCALE") != "slow":
        pytest.skip("needs root, MUSTER_SHARED and MUSTER_TEST_SCALE=slow")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-ge-"))  # pytest's own are closed to other users
    folder.chmod(0o755)
    grid = GridEngine(folder)
    try:
        grid.start()
        yield grid
    finally:
        grid.stop()
        shutil.rmtree(folder)


def run(*options, words=""):
    return f"exec ./muster run {' '.join(options)} train.py {words}\n"


def test_the_whole_script_is_one_line(grid):
    script = "cat $PE_HOSTFILE > hosts\ndate +%s.%N > begin\n./muster run train.py\necho status $?\ndate +%s.%N > end\n"
    job = grid.submit(script)
    grid.wait(lambda: grid.is_over(job))
    assert grid.read("out").endswith("status 0\n")
    ups = grid.ups(3)
    hosts = [line.split()[0] for line in grid.read("hosts").splitlines()]
    assert [host for _, host, _ in sorted(ups)] == hosts, "ranks in the order of PE_HOSTFILE"
    assert len({run_id for _, _, run_id in ups}) == 1
    if not os.environ.get("MUSTER_TEST_SLOWER"):
        assert float(grid.read("end")) - float(grid.read("begin")) < 2


@pytest.mark.parametrize("options", [(), ("-l", "h_rt=10"), ("-l", "s_rt=10")], ids=["qdel", "h_rt", "s_rt"])
def test_workers_have_saved_before_the_job_is_killed(grid, options):
    job = grid.submit(run(words="wait"), "-notify", *options)
    grid.wait(lambda: len(grid.ups(3)) == 3)
    if not options:
        grid.as_user("qdel", job)
    grid.wait(lambda: grid.is_over(job))
    assert sorted(re.findall(r"^(\d) saved$", grid.read("mark"), re.M)) == ["0", "1", "2"], grid.read("out")
    assert "was killed by signal" not in grid.read("out")
    assert grid.processes() == []


def test_a_job_that_has_reached_its_time_limit_is_queued_again(grid):
    """From h_rt on Grid Engine ignores exit status 99."""
    script = "echo $RESTARTED >> mark\n./muster run --requeue=timeout train.py wait\necho status $? >> mark\n"
    job = grid.submit("trap : USR2\n" + script, "-r", "y", "-notify", "-l", "h_rt=15")
    grid.wait(lambda: grid.is_over(job))
    lines = grid.read("mark").splitlines()
    assert lines[0] == "0" and "1" in lines and lines[-1] == "status 0", lines
    assert sum(line.endswith("saved") for line in lines) == 3 and len(grid.ups(3)) == 6, lines
    assert f"qmod: Pushed rescheduling of job {job} on host" in grid.read("out")


def test_a_job_of_another_job_is_one_of_its_own(grid):
    """qsub -V inside a parallel job: PE_HOSTFILE is that of the job around it."""
    job = grid.submit("$SGE_BINARY_PATH/qsub -V -sync y -terse -o inner -j y -wd $PWD -b y ./muster run train.py\n", "-V")
    grid.wait(lambda: grid.is_over(job))
    assert len(grid.ups(1)) == 1, grid.read("out") + grid.read("inner")


def test_a_job_continues_without_a_host_that_crashes(grid):
    job = grid.submit("cat $PE_HOSTFILE > hosts\n./muster run --nnodes=2:3 --lease=2 --heartbeat-interval=0.4 train.py wait\n"
                      "echo status $?\n")
    grid.wait(lambda: len(grid.ups(3)) == 3)
    lost = grid.read("hosts").splitlines()[2].split()[0].removeprefix("host")
    grid.call(NETNS / "fault", "crash", lost)
    (grid.work / "go2").touch()
    grid.wait(lambda: "status" in grid.read("out"))
    assert "status 0" in grid.read("out") and len(grid.ups(2)) == 2
    grid.as_user("qdel", job)  # Grid Engine itself waits for that host
