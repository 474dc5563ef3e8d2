"""Below the real mpiexec.hydra: Debian's mpich, and of the Python package index mpich (5) and impi-rt (Intel MPI), if they
can be had. Hosts are network namespaces; Hydra's ssh is a script that enters them."""
import contextlib
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import threading
import time

import pytest

import harness
from hosts import hosts_or_skip
from slurm import slurm_or_skip

LIMIT_S = 60
SERVER_S = 9
# In an emulated host, with a run directory of its own.
TASK = 'MUSTER_RUN_DIR="$E2E_DIR/run-$(hostname)" exec "$@"'
WORKER = ('echo "worker-of $(hostname) $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $TORCHELASTIC_RUN_ID" '
          '$(env | grep -c ^PMI_) $(ls -l /proc/self/fd | grep socket: | grep -vc " 0 -> ")')
ENTER = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
host=$1; shift
exec nsenter --target=$(cat {folder}/pid-$host) --net --uts --mount -- sh -c "$*"
"""


@pytest.fixture(scope="module", params=["debian", pytest.param("mpich", marks=pytest.mark.slow),
                                        pytest.param("impi-rt", marks=pytest.mark.slow)])
def mpiexec(request, tmp_path_factory):
    if request.param == "debian":
        found = shutil.which("mpiexec.hydra")
        return found or pytest.skip("mpiexec.hydra (Debian's mpich) is not installed")
    folder = tmp_path_factory.mktemp("pypi")
    done = subprocess.run(["/usr/bin/python3", "-m", "pip", "install", "-q", "--no-deps", "--target", folder,
                           request.param], capture_output=True, text=True)
    program = folder / "bin" / "mpiexec.hydra"
    if done.returncode != 0 or not program.exists():
        pytest.skip(f"{request.param} cannot be installed: {done.stderr[-200:]}")
    return str(program)


def environment(folder):
    return {"PATH": f"{pathlib.Path(harness.MUSTER).parent}:{os.environ['PATH']}", "HOME": str(folder),
            "E2E_DIR": str(folder), "MUSTER_RUN_DIR": str(folder / "run")}


def run(folder, *words, env=None):
    """(status, output, seconds)"""
    began = time.monotonic()
    done = subprocess.run([str(word) for word in words], env={**environment(folder), **(env or {})}, cwd=folder,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LIMIT_S)
    return done.returncode, done.stdout, time.monotonic() - began


def workers(output):
    """[host, rank, world size, local rank, local world size, run id, variables, sockets] of each, by rank."""
    found = [line.split() for line in re.findall(r"worker-of (.*)", output)]
    return sorted([[w[0], *map(int, w[1:5]), w[5], *map(int, w[6:])] for w in found], key=lambda w: w[1])


def check_one_job(output, hosts, each):
    """One job with `each` workers on each of these hosts, in this order."""
    found = workers(output)
    assert [w[1] for w in found] == list(range(len(hosts) * each)), output
    assert [w[0] for w in found] == [host for host in hosts for _ in range(each)], output
    assert {(w[2], w[4]) for w in found} == {(len(found), each)}, output
    assert [w[3] for w in found] == list(range(each)) * len(hosts), output
    assert len({w[5] for w in found}) == 1, "one run"
    assert {(w[6], w[7]) for w in found} == {(0, 0)}, "workers have nothing of the process manager"


# ---- one host ----

@pytest.mark.parametrize("tasks", [1, 4])
def test_tasks_of_one_host_are_one_job(tmp_path, mpiexec, tasks):
    status, output, _ = run(tmp_path, mpiexec, "-n", tasks, *harness.command(), "--no-python", "sh", "-c", WORKER)
    assert status == 0, output
    check_one_job(output, [socket.gethostname()], tasks)


def test_a_worker_that_fails_ends_all_tasks_with_its_status(tmp_path, mpiexec):
    status, output, _ = run(tmp_path, mpiexec, "-n", 3, *harness.command(), "--no-python", "sh", "-c", "exit 3$RANK")
    assert status != 0, output
    assert output.count("Root Cause") == 1, output


@pytest.mark.parametrize("option", ["--standalone", "--nnodes=1", "--starter=none"])
def test_a_user_who_wants_one_job_in_each_task_gets_it(tmp_path, mpiexec, option):
    """The other tasks run another program, so the server would never answer."""
    line = [*harness.command(), option, "--no-python", "sh", "-c", WORKER]
    status, output, seconds = run(tmp_path, mpiexec, "-n", 2, *line, ":", "-n", 1, "true")
    assert status == 0, output
    found = workers(output)
    assert [w[1:3] for w in found] == [[0, 1], [0, 1]], output
    assert {(w[6], w[7]) for w in found} == {(0, 0)}, "workers have nothing of the process manager"
    assert seconds < SERVER_S * harness.SLOWER, "it would wait for the server that long"


def test_workers_save_when_mpiexec_is_terminated(tmp_path, mpiexec):
    """Hydra signals all tasks: the agent stops the workers, and the tasks that wait do not end before it."""
    worker = 'trap "echo saved; exit 0" TERM; echo up; while :; do sleep 0.1; done'
    words = [mpiexec, "-n", "2", *harness.command(), "--no-python", "sh", "-c", worker]
    with subprocess.Popen(words, env=environment(tmp_path), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as process:
        lines = []
        while lines.count("up\n") < 2:
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        process.terminate()
        lines += process.communicate(timeout=LIMIT_S)[0].splitlines()
    assert lines.count("saved") == 2, lines  # each task returns 143, and mpiexec of MPICH 4.0.2 sometimes 0


def test_a_second_run_in_a_task_is_refused(tmp_path, mpiexec):
    twice = '"$@" && "$@"'
    status, output, _ = run(tmp_path, mpiexec, "-n", 2, "sh", "-c", twice, "sh", *harness.command(), "--no-python", "sh",
                            "-c", WORKER)
    assert status != 0, output
    assert len(workers(output)) == 2, output
    assert output.count("closed the connection: another program of this task has used it") == 2, output


# ---- several hosts ----

@pytest.fixture(scope="module")
def hosts():
    with hosts_or_skip(4, names=True) as four:
        yield four


NAMES = [f"host{n + 1}" for n in range(4)]


def words_on(folder, mpiexec, hosts, numbers, each, *command):
    """The line that starts a command on these hosts, `each` times."""
    for name, pid in zip(NAMES, hosts.pids):
        (folder / f"pid-{name}").write_text(str(pid))
    (folder / "enter").write_text(ENTER.format(folder=folder))
    (folder / "enter").chmod(0o755)
    return [*hosts.enter(numbers[0]), mpiexec, "-launcher", "ssh", "-launcher-exec", folder / "enter", "-hosts",
            ",".join(NAMES[n] for n in numbers), "-n", len(numbers) * each, "-ppn", each, "sh", "-c", TASK, "sh",
            *harness.command(), *command]


@pytest.mark.parametrize("each", [1, 2])
def test_tasks_of_four_hosts_are_one_job(tmp_path, mpiexec, hosts, each):
    """With --auth=on: the nodes have a key, although the user has none."""
    status, output, _ = run(tmp_path, *words_on(tmp_path, mpiexec, hosts, range(4), each, "--auth=on", "--no-python",
                                                "sh", "-c", WORKER))
    assert status == 0, output
    check_one_job(output, NAMES, each)


def test_two_groups_of_tasks_can_be_one_job(tmp_path, mpiexec, hosts):
    """As the user arranges it: their process managers do not know each other, so no key is common to both."""
    line = ["--nnodes=4", "--rdzv-backend=c10d", "--rdzv-endpoint=host1:29400", "--rdzv-id=both", "--no-python", "sh", "-c", WORKER]
    done = []
    threads = [threading.Thread(target=lambda numbers=numbers: done.append(
        run(tmp_path, *words_on(tmp_path, mpiexec, hosts, numbers, 1, *line)))) for numbers in ([0, 1], [2, 3])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    output = "".join(text for _, text, _ in done)
    assert [status for status, _, _ in done] == [0, 0], output
    assert [w[1:3] for w in workers(output)] == [[rank, 4] for rank in range(4)], output


# ---- in Slurm ----

@pytest.fixture(scope="module")
def slurm():
    with slurm_or_skip(3) as three:
        yield three


def batch(folder, slurm, words, *options):
    """The output of a batch script that is this line."""
    env = {**environment(folder), "MUSTER_RUN_DIR": "/dev/shm/muster"}  # of each host
    number = slurm.submit(folder, shlex.join(map(str, words)), *options, env=slurm.env(env))
    facts = slurm.end(number, LIMIT_S)
    output = (folder / f"out-{number}").read_text()
    assert facts["JobState"] == "COMPLETED", output
    return output


@pytest.fixture(params=["mpiexec.hydra", "mpirun.openmpi --allow-run-as-root"])
def manager(request):
    words = request.param.split()
    return words if shutil.which(words[0]) else pytest.skip(f"{words[0]} is not installed")


@pytest.mark.parametrize("each", [1, 2])
def test_tasks_in_a_batch_script_of_slurm_are_one_job(tmp_path, slurm, manager, each):
    """The daemons are started by srun: the nearest process above muster is one of them, and not slurmstepd."""
    output = batch(tmp_path, slurm, [*manager, "-n", 3 * each, *harness.command(), "--auth=on", "--no-python", "sh", "-c",
                                     WORKER], "-N3", f"--ntasks-per-node={each}")
    check_one_job(output, sorted(slurm.names), each)


def test_a_job_that_a_task_submits_is_a_job_of_its_own(tmp_path, slurm, manager):
    """sbatch copies the variables of the task, which is one of 2."""
    inner = tmp_path / "inner.sh"
    inner.write_text(f'#!/bin/sh\necho "leaked $OMPI_COMM_WORLD_SIZE$PMI_SIZE"\n'
                     f'{shlex.join([*map(str, harness.command()), "--no-python", "sh", "-c", WORKER])}\n')
    task = 'test "$OMPI_COMM_WORLD_RANK$PMI_RANK" != 0 || sbatch -W -N1 -n1 -o inner inner.sh'
    batch(tmp_path, slurm, [*manager, "-n", 2, "sh", "-c", task], "-N2", "--ntasks-per-node=1")
    output = (tmp_path / "inner").read_text()
    assert "leaked 2\n" in output and [w[1:3] for w in workers(output)] == [[0, 1]], output


# ---- a server that is not one ----

def below_hydra(folder, server, *options, seconds=10):
    """Runs a task, whose PMI_FD is a connection to server(connection). (status, output)"""
    proxy = folder / "hydra_pmi_proxy"
    if not proxy.exists():
        shutil.copy("/bin/sh", proxy)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        env = {"PMI_FD": str(theirs.fileno()), "PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}
        task = subprocess.Popen([proxy, "-c", '"$@"; exit $?', "sh", *harness.command(), *options, "--no-python", "true"],
                                env={**environment(folder), **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, pass_fds=[theirs.fileno()])
        theirs.close()
        thread = threading.Thread(target=server, args=(ours,))
        thread.start()
        began = time.monotonic()
        output = task.communicate(timeout=LIMIT_S)[0]
        took = time.monotonic() - began
        ours.shutdown(socket.SHUT_RDWR)
        thread.join(LIMIT_S)
    assert took < seconds * harness.SLOWER
    return task.returncode, output


def answer(connection, *lines):
    """Answers a line by each of these, and then reads what comes."""
    file = connection.makefile("rb")
    with contextlib.suppress(OSError):
        for line in lines:
            file.readline()
            connection.sendall(line)
        file.read()


def drip(connection):
    for _ in iter(lambda: connection.recv(100), b""):
        with pytest.raises(OSError):
            while True:
                connection.sendall(b"x")
                threading.Event().wait(0.1)


INIT = b"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
NAME = b"cmd=my_kvsname kvsname=kvs_1\n"
PUT = b"cmd=put_result rc=0\n"
BAD = "the PMI server of Hydra (MPICH, Intel MPI) (PMI_FD): its answer is not "
GONE = "the PMI server of Hydra (MPICH, Intel MPI) (PMI_FD) closed the connection"


@pytest.mark.parametrize("server, sentence", [
    (lambda c: c.shutdown(socket.SHUT_RDWR), GONE),
    (lambda c: (c.recv(100), c.sendall(INIT[:9]), c.shutdown(socket.SHUT_RDWR)), GONE),
    (lambda c: answer(c, b"HTTP/1.1 400 Bad Request\n"), BAD + '"response_to_init"'),
    (lambda c: answer(c, b"cmd=response_to_init rc=-1\n"), BAD + '"response_to_init"'),
    (lambda c: answer(c, INIT, b"cmd=my_kvsname kvsname=" + b"k" * 500 + b"\n"), BAD + '"my_kvsname"'),
    (lambda c: answer(c, b"x" * (1 << 16)), BAD + '"response_to_init"'),
    (lambda c: answer(c, INIT, NAME, PUT, b"cmd=barrier_out\n", b"cmd=get_result rc=-1 msg=no_key value=unknown\n"),
     BAD + '"get_result"'),
], ids=["dead", "dies", "another program", "refuses", "long name", "oversized line", "no value"])
def test_a_server_that_speaks_nonsense_is_reported(tmp_path, server, sentence):
    status, output = below_hydra(tmp_path, server, seconds=5)
    assert status == 2 and sentence in output and output.count("\n") == 1, output


def test_a_server_that_does_not_answer_is_reported_within_ten_seconds(tmp_path):
    cases = {"silent": (answer, "did not answer within 9 s"),
             "drips": (drip, "did not answer within 9 s"),
             "waits": (lambda c: answer(c, INIT, NAME, PUT),
                       "not all of the 2 tasks of Hydra (MPICH, Intel MPI) started muster run within 9 s")}
    results = {}

    def try_one(name, server):
        (tmp_path / name).mkdir()
        results[name] = below_hydra(tmp_path / name, server)
    threads = [threading.Thread(target=try_one, args=(name, case[0])) for name, case in cases.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, (_, sentence) in cases.items():
        status, output = results[name]
        assert status == 2 and sentence in output and output.count("\n") == 1, (name, output)


def test_a_descriptor_other_than_a_socket_is_not_asked(tmp_path):
    env = {"PMI_FD": "0", "PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}
    shutil.copy("/bin/sh", tmp_path / "hydra_pmi_proxy")
    for program, status, text in [(tmp_path / "hydra_pmi_proxy", 2, "how they find each other is not known here"),
                                  ("/bin/sh", 0, "alone\n")]:
        got, output, _ = run(tmp_path, program, "-c", '"$@"; exit $?', "sh", *harness.command(), "--no-python", "echo",
                             "alone", env=env)
        assert got == status and text in output, output
