"""The variables that workers get for NCCL, gloo and PyTorch: what `muster env` prints, and what workers really see."""
import bz2
import json
import lzma
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from harness import HERE, MUSTER, TORCH_PYTHON, free_port

sys.path.insert(0, str(HERE.parent / "tools"))

import make_tree  # noqa: E402

OURS = ("NCCL_", "GLOO_", "TP_SOCKET", "UCX_", "TORCH_FR", "TORCH_NCCL_", "CUDA_", "OMP_")
# The variables that every worker gets: those of torchrun's contract, and muster's own.
CONTRACT = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME",
            "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT",
            "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE",
            "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE", "TORCH_NCCL_ASYNC_ERROR_HANDLING",
            "OMP_NUM_THREADS", "PYTHONFAULTHANDLER", "MUSTER_GENERATION", "MUSTER_EPOCH", "MUSTER_NODE_RANK", "MUSTER_RUN_ID",
            "MUSTER_WORKER_ID", "MUSTER_NOTIFY_SOCKET", "NOTIFY_SOCKET"}
UNSET = {name: "\0unset" for name in os.environ if name.startswith(OURS)}
SHARED = pathlib.Path(os.environ.get("MUSTER_SHARED", HERE.parents[2] / "shared")) / "topologies"
PLUMBING = re.compile(r"^(docker|br-|virbr|veth|cali|cni|flannel|tunl|lxc|podman|kube-|lo$)")


def own_address():
    """An address of this machine that is not loopback; a test without one is skipped."""
    found = subprocess.run(["hostname", "-I"], capture_output=True, text=True).stdout.split()
    found = [a for a in found if not a.startswith(("fe80", "169.254", "172.17."))]
    if not found:
        pytest.skip("this machine has no address but loopback")
    return found[0]


def ask(*words, env=None, code=0):
    """Standard output of `muster env`."""
    base = {k: v for k, v in os.environ.items() if k not in UNSET}
    done = subprocess.run([MUSTER, "env", *map(str, words)], capture_output=True, text=True, timeout=60,
                          env={**base, **(env or {})})
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def set_by(text, rank=0):
    """{name: value} of what is set for one rank, from --json."""
    return {v["name"]: v["value"] for v in json.loads(text)["ranks"][rank]["variables"] if v["action"] in ("set", "asked")}


def seen(folder, rank):
    """The whole environment of one worker."""
    text = (pathlib.Path(folder) / str(rank)).read_bytes().split(b"\0")
    return dict(item.decode().split("=", 1) for item in text if item)


def ours(env):
    return {k: v for k, v in env.items() if k.startswith(OURS) and k != "TORCH_NCCL_ASYNC_ERROR_HANDLING"}


DUMP = ["--no-python", "sh", "-c", 'cat /proc/self/environ > "$0/$RANK"']


def pair(job, address, *words, program=(), nproc=2, env=None):
    """Two agents on this machine that meet at one address; the workers' environments are in the folder."""
    out = job.tmp / "seen"
    out.mkdir(exist_ok=True)
    meet = ["--nnodes=2", f"--nproc-per-node={nproc}", "--rdzv-backend=c10d", f"--rdzv-endpoint={address}:{free_port()}",
            "--rdzv-id=env", *words]
    agents = [job.agent(tag, *meet, *(program or [*DUMP, out]), env={**UNSET, **(env or {})}) for tag in "ab"]
    for agent in agents:
        code, _, err = agent.finish(120)
        assert code == 0, err
    return out


def alone(job, name, *words, nproc=2, env=None):
    out = job.tmp / name
    out.mkdir()
    code, _, err = job.run("--standalone", f"--nproc-per-node={nproc}", *words, *DUMP, out, env={**UNSET, **(env or {})})
    assert code == 0, err
    return out


@pytest.mark.torch
def test_torch_workers_see_what_is_said(job):
    address = own_address()
    script = job.tmp / "train.py"
    script.write_text("import os, sys, pathlib, torch, torch.distributed as d\n"
                      "d.init_process_group('gloo')\n"
                      "t = torch.ones(1) * d.get_rank()\n"
                      "d.all_reduce(t)\n"
                      "assert t.item() == 6\n"
                      "env = pathlib.Path('/proc/self/environ').read_bytes()\n"
                      "(pathlib.Path(sys.argv[1]) / os.environ['RANK']).write_bytes(env)\n"
                      "d.destroy_process_group()\n")
    out = pair(job, address, program=[script, job.tmp / "seen"], env={"PYTHON_EXEC": TORCH_PYTHON})
    said = set_by(ask("--json", "--nnodes=2", "--nproc-per-node=2", f"--rdzv-endpoint={address}"))
    assert said["GLOO_SOCKET_IFNAME"] and said["NCCL_SOCKET_IFNAME"] == "=" + said["GLOO_SOCKET_IFNAME"]
    for rank in range(4):
        assert ours(seen(out, rank)) == said


def test_what_is_set_is_said_in_a_line_for_each_reason(job):
    address = own_address()
    pair(job, address, "-v", nproc=1)
    for agent in job.agents:
        said = [line for line in agent.said().splitlines() if "SOCKET_IFNAME" in line]
        assert len(said) == 1 and re.search(r"NCCL_SOCKET_IFNAME==(\S+), GLOO_SOCKET_IFNAME=\1, TP_SOCKET_IFNAME=\1: .*"
                                            + re.escape(address), said[0]), agent.said()
        assert agent.said().count("GLOO_ENABLE_STORE_V2_API=1: ") == 1


def test_an_inherited_value_is_kept(job):
    address = own_address()
    env = {"NCCL_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "7"}
    out = pair(job, address, env=env)
    for rank in range(4):
        assert env.items() <= seen(out, rank).items()
    text = ask("--explain", "--nnodes=2", f"--rdzv-endpoint={address}", env=env)
    kept = text.split("Left as it is")[1]
    assert "NCCL_SOCKET_IFNAME=lo" in kept and "the environment sets it" in kept
    assert "GLOO_SOCKET_IFNAME" in text.split("Left as it is")[0]


def test_nccls_own_files_are_left_to_nccl(job):
    address = own_address()
    conf = job.tmp / "nccl.conf"
    conf.write_text("# site\nNCCL_SOCKET_IFNAME==eth9\n")
    env = {"NCCL_CONF_FILE": str(conf)}
    out = pair(job, address, env=env)
    for rank in range(4):
        assert "NCCL_SOCKET_IFNAME" not in seen(out, rank) and "GLOO_SOCKET_IFNAME" in seen(out, rank)
    text = ask("--explain", "--nnodes=2", f"--rdzv-endpoint={address}", env=env)
    assert f"{conf} line 2 sets it" in " ".join(text.split())
    assert "there is no interface eth9 here" in " ".join(text.split())


def test_the_file_that_an_option_names_is_the_one_that_counts(job):
    address = own_address()
    conf = job.tmp / "nccl.conf"
    conf.write_text("NCCL_SOCKET_IFNAME=eth9\n")
    words = ["--env", f"NCCL_CONF_FILE={conf}"]
    out = pair(job, address, *words)
    for rank in range(4):
        assert "NCCL_SOCKET_IFNAME" not in seen(out, rank) and "GLOO_SOCKET_IFNAME" in seen(out, rank)
    assert f"{conf} line 1 sets it" in " ".join(ask("--explain", "--nnodes=2", *words).split())


def test_off_changes_nothing(job):
    out = pair(job, own_address(), "--nccl-env=off", nproc=1)
    for rank in range(2):
        assert ours(seen(out, rank)) == {}


def test_nodes_on_one_host_get_no_interface(job):
    out = pair(job, "127.0.0.1", nproc=1)
    for rank in range(2):
        assert not [k for k in seen(out, rank) if k.endswith("SOCKET_IFNAME")]


def test_one_node_without_gpus_gets_what_torchrun_gives(job):
    if pathlib.Path("/dev/nvidia0").exists():
        pytest.skip("this machine has GPUs")
    base = {k for k in job.env("a", UNSET)}
    full, off = alone(job, "full"), alone(job, "off", "--nccl-env=off", "--bind=none")
    for rank in range(2):
        a, b = seen(full, rank), seen(off, rank)
        assert set(a) - base <= CONTRACT | {"PWD", "OLDPWD", "SHLVL", "_"}, set(a) - base - CONTRACT
        changing = {"MASTER_PORT", "MUSTER_WORKER_ID", "TORCHELASTIC_RUN_ID", "MUSTER_RUN_ID", "MUSTER_NOTIFY_SOCKET",
                    "NOTIFY_SOCKET", "TORCHELASTIC_ERROR_FILE", "E2E_TAG", "MUSTER_EPOCH", "MUSTER_GENERATION"}
        assert {k: v for k, v in a.items() if k not in changing} == {k: v for k, v in b.items() if k not in changing}
        assert ours(a) == {"OMP_NUM_THREADS": "1"}


def test_variables_by_option_and_file(job):
    file = job.tmp / "vars"
    file.write_text("# of the site\nA_B=1 = 2\nNCCL_IB_TC=41\n")
    out = alone(job, "seen", "--env-file", file, "--env", "C=x", "--env", "NCCL_IB_TC=52", "--nccl-env=off",
                env={"C": "inherited", "NCCL_IB_TC": "0"})
    for rank in range(2):
        assert {"A_B": "1 = 2", "C": "x", "NCCL_IB_TC": "52"}.items() <= seen(out, rank).items()
    code, _, err = job.run("--env=RANK=3", "x.py")
    assert code == 2 and "muster itself sets RANK for each worker" in err


def test_the_plain_form_is_a_file_of_variables(job):
    address = own_address()
    file = job.tmp / "vars"
    file.write_text(ask("--nnodes=2", "--nproc-per-node=2", f"--rdzv-endpoint={address}"))
    out = alone(job, "seen", "--env-file", file)
    said = set_by(ask("--json", "--nnodes=2", "--nproc-per-node=2", f"--rdzv-endpoint={address}"))
    assert ours(seen(out, 0)) == said


def test_a_comm_id_is_one_for_all_and_new_after_a_restart(job):
    out = job.tmp / "seen"
    out.mkdir()
    script = 'file="$0/$TORCHELASTIC_RESTART_COUNT.$RANK"; cat /proc/self/environ > "$file.new"; ' \
             'mv "$file.new" "$file"; [ "$TORCHELASTIC_RESTART_COUNT" = 1 ] || { [ "$RANK" != 0 ] || exit 1; sleep 60; }'
    code, _, err = job.run("--standalone", "--nproc-per-node=2", "--nccl-comm-id", "--nccl-env=off", "--max-restarts=1",
                           "--no-python", "sh", "-c", script, out, env=UNSET)
    assert code == 0, err
    ids = [[seen(out, f"{restart}.{rank}").get("NCCL_COMM_ID") for rank in range(2)
            if (out / f"{restart}.{rank}").exists()] for restart in range(2)]
    assert ids[1][0] == ids[1][1] and re.fullmatch(r"127\.0\.0\.1:\d+", ids[1][0]), ids
    assert ids[0] and ids[0][0] != ids[1][0] and len(set(ids[0])) == 1, ids


def test_devices_are_shared_out_when_asked():
    text = ask("--json", "--nproc-per-node=2", "--gpus-per-worker=2", env={"CUDA_VISIBLE_DEVICES": "4,5,6,7"})
    assert [set_by(text, rank)["CUDA_VISIBLE_DEVICES"] for rank in range(2)] == ["4,5", "6,7"]
    text = ask("--nproc-per-node=2", "--virtual-local-rank", env={"CUDA_VISIBLE_DEVICES": "4,5"})
    assert "# local rank 0\nCUDA_VISIBLE_DEVICES=4\n" in text and "# local rank 1\nCUDA_VISIBLE_DEVICES=5\n" in text
    assert "CUDA_VISIBLE_DEVICES" not in set_by(ask("--json", env={"CUDA_VISIBLE_DEVICES": "4,5"}))


def test_words_mean_what_they_mean_to_muster_run(job):
    """If an option of muster run changes what workers get, muster env prints the same with that option."""
    file = job.tmp / "vars"
    file.write_text("OMP_NUM_THREADS=5\nA_B=1 = 2\n")
    cases = [(["--omp=cores"], {}), (["--omp=cores", "--bind=core"], {}), (["--env-file", file, "--env=A_B=3"], {}),
             (["--virtual-local-rank"], {"CUDA_VISIBLE_DEVICES": "4,5"}), ([], {"PET_OMP": "cores"}),
             ([], {"PET_ENV_FILE": str(file)}), (["--nccl-debug", "--log-dir=/dev/null"], {})]
    for i, (words, env) in enumerate(cases):
        out = alone(job, f"seen{i}", *words, env=env)
        text = ask("--json", "--nproc-per-node=2", *words, env=env)
        for rank in range(2):
            said = set_by(text, rank)
            real = seen(out, rank)
            assert said and {name: real.get(name) for name in said} == said, (words, env)
            assert ours(real) == {k: v for k, v in said.items() if k.startswith(OURS)}, (words, env)


def test_what_the_start_decides_is_a_comment(tmp_path):
    make_tree.make("2s-8gpu-8nic", str(tmp_path / "tree"), cores=4)
    words = ["--sysroot", tmp_path / "tree", "--nnodes=2", "--nccl-comm-id", "--nccl-debug", "--log-dir=/l", "--preflight=strict"]
    text = ask(*words)
    comments = [line for line in text.splitlines() if line.startswith("# ")]
    assert comments[:2] == ["# local ranks 0-7", "# NCCL_COMM_ID=LEADER:PORT"] and "# NCCL_RAS_ADDR=localhost:PORT" in comments
    assert "# NCCL_DEBUG_FILE=/l/RUN_ID/GENERATION/NODE/nccl.%h.%p.log" in comments
    assert "\nNCCL_IGNORE_NET_MISMATCH=0\n" in text and "\nNCCL_DEBUG=INFO\n" in text
    for line in text.splitlines():
        assert line in comments or not re.search("PORT|RUN_ID|LEADER", line), line
    assert "NCCL_IGNORE_NET_MISMATCH" not in ask(*words[:-1])
    threads = json.loads(ask(*words, "--json", "--omp=cores", "--nproc-per-node=3"))
    assert [set_by(json.dumps(threads), rank)["OMP_NUM_THREADS"] for rank in range(3)] == ["1", "1", "1"]


def test_a_faster_network_is_named(tmp_path):
    machine = json.loads(subprocess.run([MUSTER, "topo", "--json"], capture_output=True, text=True, check=True).stdout)
    machine["interfaces"] = [
        {**machine["interfaces"][0], "name": name, "kind": "physical",
         "addrs": [{"addr": address, "prefix": 24, "ipv6": False, "link_local": False}]}
        for name, address in (("eth0", "10.0.0.2"), ("ib0", "10.1.0.2"))]
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(machine))
    words = ["--explain", "--from", file, "--nnodes=2", "--rdzv-endpoint=10.0.0.1"]
    told = "goes by eth0; ib0, of a faster network, is used instead if every node has one"
    assert told in " ".join(ask(*words).split())
    for more, env in (["--preflight=off"], {}), ([], {"NCCL_SOCKET_IFNAME": "=eth0"}), (["--nnodes=1"], {}):
        assert "faster" not in ask(*words, *more, env=env)
    assert "NCCL_SOCKET_IFNAME==ib0" in ask(*words[:-1], "--rdzv-endpoint=10.1.0.1").split("Worth")[0]


def test_mistakes_are_one_line():
    for words, part in [(["--nnodes=0"], "--nnodes=0"), (["--json", "--explain"], "--explain"), (["x"], "unknown argument"),
                        (["--env=A"], "NAME=VALUE"), (["--nccl-env=some"], "off minimal full")]:
        err = ask(*words, code=2)
        assert part in err and err.count("\n") == 1, err
    assert "no such" in ask("--from=/nowhere", code=1).lower()
    for place in ("dir:/shared", "etcd://a,b/x", "/shared"):
        assert "any node may lead" in ask("--nnodes=2", f"--rdzv-endpoint={place}", code=1)


# ---- on a machine that has GPUs, according to its files ----

INSIDE = 'mount --bind "$0/sys" /sys && mount --bind "$0/proc/driver" /proc/driver && exec "$@"'
TESTS = pathlib.Path(MUSTER).parents[2] / "tests"


@pytest.fixture
def gpus(job, tmp_path, monkeypatch):
    """Runs jobs where /sys and /proc/driver are those of a tree with 8 GPUs."""
    if pathlib.Path("/dev/nvidia0").exists() or subprocess.run(
            ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/sys"], capture_output=True).returncode != 0:
        pytest.skip("needs mount namespaces, and no GPU")
    make_tree.make("2s-8gpu-8nic", str(tmp_path / "tree"), cores=1, smt=1, l3_cores=1)
    monkeypatch.setenv("MUSTER_TEST_COMMAND", shlex.join(["unshare", "-m", "sh", "-c", INSIDE, str(tmp_path / "tree"),
                                                          MUSTER, "run"]))
    return job


# Does with the names what NCCL and PyTorch do, in a working directory of its own.
WRITES = """cd /
debug=$(echo "$NCCL_DEBUG_FILE" | sed "s/%h/host/; s/%p/$RANK/")
for file in "$debug" "$TORCH_FR_DUMP_TEMP_FILE$RANK"; do echo "$TORCHELASTIC_RESTART_COUNT" > "$file" || exit 9; done
mkfifo "$TORCH_NCCL_DEBUG_INFO_PIPE_FILE$RANK.pipe" || exit 9
[ "$TORCHELASTIC_RESTART_COUNT" = 2 ] || exit 3
"""


def test_a_restart_keeps_what_nccl_wrote_before(gpus):
    code, _, err = gpus.run("--standalone", "--nproc-per-node=1", "--bind=none", "--log-dir=logs", "--nccl-debug",
                            "--max-restarts=2", "--crash-loop=0", "--no-python", "sh", "-c", WRITES, env=UNSET)
    assert code == 0, err
    for restart in range(3):
        node, = (gpus.tmp / "logs").glob(f"*/1.{restart + 1}/*")
        assert sorted(p.name for p in node.iterdir()) == ["0", "nccl.host.0.log", "nccl_trace_pipe_0.pipe", "nccl_trace_rank_0"]
        assert (node / "nccl.host.0.log").read_text() == (node / "nccl_trace_rank_0").read_text() == f"{restart}\n"
        assert (node / "nccl_trace_pipe_0.pipe").is_fifo() and (node / "0").is_dir()


def test_workers_with_gpus_see_what_is_said(gpus):
    out = gpus.tmp / "seen"
    words = ["--nproc-per-node=3", "--gpus-per-worker=2", "--omp=cores", "--nccl-debug", "--nccl-comm-id", "--log-dir=logs"]
    env = {**UNSET, "CUDA_VISIBLE_DEVICES": "7,0,1,2,3,4", "NCCL_P2P_DISABLE": "1"}
    out.mkdir()
    code, _, err = gpus.run("--standalone", *words, *DUMP, out, env=env)
    assert code == 0 and err.count("NCCL_P2P_DISABLE=1 (environment): is for debugging") == 1, err
    command = shlex.split(os.environ["MUSTER_TEST_COMMAND"])[:-1] + ["env", "--json", *words]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, env=gpus.env("a", env), cwd=gpus.tmp, check=True).stdout
    for rank in range(3):
        real, said = ours(seen(out, rank)), set_by(text, rank)
        assert said["NCCL_RAS_ADDR"] == "localhost:PORT" and said["NCCL_COMM_ID"] == "127.0.0.1:PORT"
        folder, = (gpus.tmp / "logs").glob("*/1.1/*")
        for name in said:
            said[name] = said[name].replace("RUN_ID/GENERATION/NODE", str(folder.relative_to(gpus.tmp / "logs")))
            assert re.fullmatch(re.escape(said[name]).replace("PORT", r"\d+"), real.get(name, "")), (name, said[name], real)
        assert set(real) - set(said) == {"NCCL_P2P_DISABLE"}
        assert real["CUDA_VISIBLE_DEVICES"] == ["7,0", "1,2", "3,4"][rank] and real["NCCL_DEBUG"] == "INFO"


@pytest.mark.parametrize("may", [True, False], ids=["root", "limited"])
def test_limits_of_workers_with_gpus(gpus, monkeypatch, may):
    """They are raised as far as allowed; limits that are still too low are reported."""
    lower = "ulimit -n 600 && ulimit -l 64 && ulimit -s 1024 && "
    drop = "exec setpriv --bounding-set=-sys_resource --inh-caps=-sys_resource -- " if not may else "exec "
    if may and subprocess.run(["sh", "-c", lower + "ulimit -n 8192"], capture_output=True).returncode != 0:
        pytest.skip("needs CAP_SYS_RESOURCE")
    words = os.environ["MUSTER_TEST_COMMAND"].replace('exec "$@"', lower + drop + '"$@"')
    assert lower in words
    monkeypatch.setenv("MUSTER_TEST_COMMAND", words)
    code, out, err = gpus.run("--standalone", "--nproc-per-node=1", "--no-python", "sh", "-c", "ulimit -n; ulimit -l; ulimit -s", env=UNSET)
    assert code == 0, err
    assert out.split() == (["131072", "unlimited", "8192"] if may else ["600", "64", "1024"])
    assert ("open files are limited to 600" in err) != may


@pytest.mark.parametrize("trouble", ["lost", "unnamed", "fabric"])
def test_a_gpu_that_is_gone_is_a_warning_once(gpus, trouble):
    if not (TESTS / "libnvidia-ml.so.1").exists():
        pytest.skip("the stand-in for NVML is not built")
    places = sorted(p.name for p in (gpus.tmp.parent / "tree/proc/driver/nvidia/gpus").iterdir())
    script = ["driver 550.54.15", f"count {len(places)}", 'gpu 0-7 name "NVIDIA H100 80GB HBM3" cc 9.0']
    script += [f"gpu {i} busid 0000{place} uuid GPU-{i}" for i, place in enumerate(places)]
    script += {"lost": ["fail nvmlDeviceGetName 3 15", "fail nvmlDeviceGetName 5 16"],
               "unnamed": ["count 9", "fail nvmlDeviceGetHandleByIndex_v2 8 15"],
               "fabric": [f"gpu {i} fabric {'0' * 32} clique 0 state {state} status 0" for i, state in (("0-6", 3), (7, 2))]}[trouble]
    (gpus.tmp / "nvml.txt").write_text("\n".join(script) + "\n")
    env = {**UNSET, "LD_LIBRARY_PATH": str(TESTS), "FAKE_NVML_SCRIPT": str(gpus.tmp / "nvml.txt")}
    code, _, err = gpus.run("--standalone", "--nproc-per-node=1", "--max-restarts=1", "--no-python", "sh", "-c",
                            '[ "$TORCHELASTIC_RESTART_COUNT" = 1 ]', env=env)
    assert code == 0, err
    said = [line for line in err.splitlines() if "GPU" in line and "warning: " in line]
    parts = {"lost": ["GPU 3 (0000:%s) is lost", "GPU 5 (0000:%s) needs a reset"], "unnamed": ["1 of 9 GPUs are lost"],
             "fabric": ["1 of 8 GPUs have not joined the NVLink fabric (GPU 7: in progress)"]}[trouble]
    assert len(said) == len(parts), err
    for line, part in zip(said, parts):
        assert re.search(re.escape(part).replace("0000:%s", ".*"), line), err


# ---- recorded machines ----


def check(text):
    """Checks what must hold on every machine: nothing that NCCL finds out itself, no virtual interface, nothing
    twice."""
    for rank in json.loads(text)["ranks"]:
        names = [v["name"] for v in rank["variables"]]
        assert len(names) == len(set(names)), names
        for v in rank["variables"]:
            assert v["reason"], v
            if v["action"] != "set":
                continue
            assert v["source"] and v["value"], v
            assert v["name"] not in ("NCCL_TOPO_FILE", "NCCL_IB_GID_INDEX", "NCCL_IB_ADDR_FAMILY", "NCCL_GRAPH_FILE"), v
            if v["name"].endswith("SOCKET_IFNAME"):
                assert not PLUMBING.match(v["value"].lstrip("=")), v
            if v["name"] == "NCCL_IB_HCA":
                assert v["value"].startswith("="), v


def check_explained(text):
    """Checks the output for people: only known sections, nothing twice, no line too wide, no values that were not
    set."""
    titles = [line for line in text.splitlines()[1:] if re.match("[A-Z]", line)]
    assert titles == [t for t in ("Set by muster", "Left as it is", "Not set", "Worth a look") if t in titles], titles
    for line in text.splitlines()[1:]:
        assert len(line) <= 100 and line == line.rstrip() and not re.search(r"\(null\)|  \S.*  |%", line), line
        assert re.match(r"local ranks? [0-9-]+$|[A-Z]|  [A-Z]\w+(=|$)|      |  \S|$", line), line
    names = re.findall(r"^  ([A-Z]\w+)(?:=.*)?$", text, re.M)
    assert len(names) == len(set(names)), names


def recorded(folder, pattern):
    files = sorted((SHARED / folder).glob(pattern))
    return [pytest.param(f, id=f.name) for f in files] or [
        pytest.param(None, id=f"{folder}/{pattern}", marks=pytest.mark.skip(reason=f"no {SHARED / folder}"))]


@pytest.mark.parametrize("file", recorded("hwloc", "*.xml") + recorded("nccl-xml", "*.xml") +
                         recorded("nccl-xml/derived", "*.xml"))
def test_recorded_files(file):
    known = subprocess.run([MUSTER, "topo", "--json", "--from", str(file)], capture_output=True, text=True)
    done = subprocess.run([MUSTER, "env", "--json", "--nnodes=2", "--rdzv-endpoint=10.11.12.13", "--from", str(file)],
                          capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    assert done.returncode == known.returncode, done.stderr + known.stderr
    if done.returncode == 0:
        check(done.stdout)
        check_explained(ask("--explain", "--nnodes=2", "--rdzv-endpoint=10.11.12.13", "--from", file))
        gpus = [g for g in json.loads(known.stdout)["gpus"] if g.get("vendor", "nvidia").lower() == "nvidia"]
        assert ("CUDA_DEVICE_ORDER" in set_by(done.stdout)) == bool(gpus)


@pytest.mark.parametrize("archive", recorded("sysfs-derived", "*.tar.xz") + recorded("hwloc-sysfs", "*.tar.bz2"))
def test_recorded_trees(archive, tmp_path):
    unpack = bz2.open if archive.suffix == ".bz2" else lzma.open  # tarfile takes ten times as long for thousands of files
    subprocess.run(["tar", "-x", "-C", tmp_path], input=unpack(archive).read(), check=True)
    top = next(p for p in [tmp_path, *sorted(tmp_path.iterdir())] if (p / "sys").is_dir() or (p / "proc").is_dir())
    done = subprocess.run([MUSTER, "env", "--json", "--nnodes=2", "--rdzv-endpoint=10.11.12.13", f"--sysroot={top}"],
                          capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stderr
    check(done.stdout)
    check_explained(ask("--explain", "--nnodes=2", f"--sysroot={top}"))
