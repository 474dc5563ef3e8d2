"""muster check: of one node, and of several nodes that are compared without starting workers."""
import json
import os
import re
import subprocess
import sys

import harness
import pytest
from hosts import hosts_or_skip
from test_bind import has_gpus, may_mount
from test_preflight import four, on, part

sys.path.insert(0, str(harness.HERE.parent / "tools"))

import make_tree  # noqa: E402


def check(*words, prefix=(), **more):
    return subprocess.run([*prefix, *harness.command()[:1], "check", *words], capture_output=True, text=True, timeout=60,
                          **more)


def test_one_node_is_looked_at():
    done = check()
    assert done.returncode in (0, 1), done.stderr
    lines = done.stdout.splitlines()
    assert all(re.fullmatch(r"(ok  |warn|fail)  [A-Z-]+ +\S.*", line) for line in lines), done.stdout
    assert any(re.match(r"ok +SHM |warn +SHM-SMALL ", line) for line in lines)
    assert (done.returncode == 1) == any(line.startswith("fail") for line in lines)


def test_json_says_the_same():
    plain, done = check(), check("--json")
    told = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1 and set(told) == {"host", "level", "checks", "facts"}
    assert sorted(c["code"] for c in told["checks"]) == sorted(line.split()[1] for line in plain.stdout.splitlines())
    assert told["facts"]["kernel"] == subprocess.run(["uname", "-r"], capture_output=True, text=True).stdout.strip()
    assert told["level"] in ("ok", "warn", "fail")


def test_nonsense_is_a_usage_error():
    for words in (["--nonsense"], ["train.py"], ["--nnodes=0"], ["--nnodes=2", "--rdzv-backend=what"],
                  ["--nnodes=2"], ["--nnodes=2", "--node-rank=1"]):
        done = check(*words)
        assert done.returncode == 2 and done.stdout == "", f"{words}: {done}"


def test_a_full_disk_fails(tmp_path):
    with hosts_or_skip(1) as hosts:
        on(hosts, 0, f"mount -t tmpfs -o size=8m none {tmp_path}")
        done = check(f"--log-dir={tmp_path}/logs", prefix=hosts.enter(0))
        assert done.returncode == 1 and re.search(r"fail  DISK-LOW +.*8.0 MiB are free", done.stdout), done.stdout


def test_a_name_that_nobody_knows_and_no_address_are_said():
    with hosts_or_skip(1, ipv4=False) as hosts:
        on(hosts, 0, "ip -6 addr flush dev eth0 scope global")
        done = check(prefix=hosts.enter(0))
        assert re.search(r"warn  NAME-UNRESOLVED +this host's own name, host1: ", done.stdout), done.stdout
        assert re.search(r"warn  NET-ROUTE +no interface has an address", done.stdout), done.stdout
        assert done.returncode == 0


def test_a_name_server_that_is_silent_hides_nothing_else():
    """The check then takes its whole time limit."""
    with hosts_or_skip(1) as hosts:
        on(hosts, 0, "ip neigh add 10.88.0.99 lladdr 02:00:00:00:00:99 dev eth0 nud permanent",
           "f=/run/resolv.$$; printf 'nameserver 10.88.0.99\\noptions timeout:30 attempts:1\\n' > $f; "
           "mount --bind $f /etc/resolv.conf; rm $f",
           "f=/run/nss.$$; echo 'hosts: files dns' > $f; mount --bind $f /etc/nsswitch.conf; rm $f")
        done = check("--json", prefix=hosts.enter(0))
        told = json.loads(done.stdout)
        codes = {c["code"]: c["text"] for c in told["checks"]}
        assert codes["NAME-UNRESOLVED"] == "this host's own name, host1: no answer", done
        assert "DISCOVERY" not in codes and told["facts"]["hcas"] and told["facts"]["memlock"], told
        assert told["facts"]["own name"] == "not resolved"


SILENT = """
import ctypes, os, sys
fd = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
print(ctypes.CDLL(None).mount(b"none", sys.argv[1].encode(), b"fuse", 0, options), flush=True)
sys.stdin.read()
"""


def test_a_disk_that_is_silent_fails_and_hides_nothing_else(tmp_path):
    """A file system whose server does not answer, as with NFS when the server is gone."""
    with hosts_or_skip(1, names=True) as hosts:
        if not os.path.exists("/dev/fuse"):
            pytest.skip("needs FUSE")
        server = subprocess.Popen([*hosts.enter(0), sys.executable, "-c", SILENT, str(tmp_path)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        try:
            if server.stdout.readline() != "0\n":
                pytest.skip("FUSE can not be mounted")
            done = check("--json", f"--log-dir={tmp_path}/logs", prefix=hosts.enter(0))
        finally:
            server.communicate()
        told = json.loads(done.stdout)
        codes = {c["code"]: (c["level"], c["text"]) for c in told["checks"]}
        assert codes["DISK-BAD"] == ("fail", "the disk of the logs does not answer"), done
        assert done.returncode == 1 and "DISCOVERY" not in codes and told["facts"]["hcas"], told


def start(hosts, *words, numbers=range(4)):
    place = f"{hosts.address(0)}:29400"
    return [subprocess.Popen([*hosts.enter(n), harness.command()[0], "check", "--nnodes=4", "--rdzv-backend=c10d",
                              f"--rdzv-endpoint={place}", "--rdzv-id=check", "--rdzv-conf=join_timeout=30", *words],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for n in numbers]


def ends(agents):
    said = [agent.communicate(timeout=60) for agent in agents]
    print(said)  # shown when the test fails
    return [agent.returncode for agent in agents], said


def test_four_nodes_are_compared_and_no_worker_runs():
    with four() as hosts:
        codes, said = ends(start(hosts))
        assert codes == [0, 0, 0, 0], said
        out = said[0][0]
        assert re.search(r"host2 +interface +macv0 +the other 2: eth0  \[NETIF-DIFFERS\]", out), said
        for n in range(4):
            assert re.search(r"ok    NET-ROUTE +workers reach other nodes by \S+ \(", said[n][0]), said[n]
            assert "NETIF-DIFFERS" not in said[n][0] or n == 0
            assert said[n][0].startswith(f"node host{n + 1}\n")


def failed(text, code):
    return [line for line in text.splitlines() if line.startswith("fail ") and code in line]


def ended(said, *parts):
    """Each node prints one line about why the check failed; only the leader prints everything."""
    for n in range(4):
        last = said[n][1].splitlines()[-1]
        assert re.match(r"muster: error: .*check failed: .* \(host1 has printed all of it\)$", last), said[n]
        assert all(part in last for part in parts), last
        assert "FAILED" not in said[n][1], "no report of a worker's failure"


def test_a_difference_that_matters_fails_all_of_them():
    with four() as hosts:
        on(hosts, 2, "ip link set eth0 mtu 1400", "ip link set br7 mtu 1400")
        codes, said = ends(start(hosts))
        assert codes == [1, 1, 1, 1], said
        assert re.search(r"host3 +mtu +1400 +the other 3: 1500  \[MTU-DIFFERS\]", said[0][0]), said
        ended(said, "MTU-DIFFERS: host3 has mtu 1400, the other 3: 1500")
        assert all("DIFFERS" not in said[n][0] for n in range(1, 4)), said


def test_both_of_a_pair_that_can_not_talk_say_so_and_the_leader():
    with four() as hosts:
        part(hosts, 1, 2)
        codes, said = ends(start(hosts))
        assert codes == [1, 1, 1, 1], said
        ends_of = r"host2 \(10\.88\.0\.2 on macv0\)", r"host3 \(10\.88\.0\.3 on br7\)"
        lines = [failed(out, "RING-BLOCKED") for out, _ in said]
        assert [len(found) for found in lines] == [2, 1, 1, 0], said
        for here, there in ((0, 1), (1, 0)):
            tells = rf"RING-BLOCKED +{ends_of[here]} can't reach {ends_of[there]}: "
            assert re.match("fail +" + tells, lines[1 + here][0]), lines
            assert re.match(f"fail +host{2 + here} +" + tells, lines[0][here]), lines
        ended(said, "check failed: RING-BLOCKED: host2, host3 (")


@pytest.fixture
def small_disk(tmp_path):
    """A folder that is on a full disk on one host, and not on the others."""
    def mount(hosts, n):
        on(hosts, n, f"mount -t tmpfs -o size=8m none {tmp_path}")
        return f"--log-dir={tmp_path}"

    return mount


def test_all_that_is_wrong_is_told_at_once(small_disk, tmp_path):
    with four() as hosts:
        disk = small_disk(hosts, 1)
        on(hosts, 2, "ip link set eth0 mtu 1400", "ip link set br7 mtu 1400")
        part(hosts, 2, 3)
        codes, said = ends(start(hosts, disk))
        assert codes == [1, 1, 1, 1], said
        assert [len(failed(out, "DISK-LOW")) for out, _ in said] == [1, 1, 0, 0], said
        assert [len(failed(out, "RING-BLOCKED")) for out, _ in said] == [2, 0, 1, 1], said
        ended(said, "MTU-DIFFERS: host3", "DISK-LOW: host2", "RING-BLOCKED: host3, host4")
        assert list(tmp_path.iterdir()) == [], "nothing is written"


def test_json_is_one_object_a_line_on_every_node(small_disk):
    with four() as hosts:
        disk = small_disk(hosts, 1)
        part(hosts, 1, 2)
        on(hosts, 2, "ip link set eth0 mtu 1400", "ip link set br7 mtu 1400")
        codes, said = ends(start(hosts, disk, "--json"))
        assert codes == [1, 1, 1, 1], said
        told = [[json.loads(line) for line in out.splitlines()] for out, _ in said]
        assert [len(lines) for lines in told] == [2, 1, 1, 1], said
        for n in range(4):
            fails = {c["code"] for c in told[n][0]["checks"] if c["level"] == "fail"}
            assert told[n][0]["host"] == f"host{n + 1}"
            assert fails == [set(), {"DISK-LOW", "RING-BLOCKED"}, {"RING-BLOCKED"}, set()][n], told[n]
        both = told[0][1]
        assert set(both) == {"nodes", "differences", "failures"} and both["nodes"] == 4
        assert [d for d in both["differences"] if d["matters"]] == [
            {"code": "MTU-DIFFERS", "what": "mtu", "nodes": "host3", "n_nodes": 1, "value": "1400", "others": "1500",
             "n_others": 3, "matters": True}], both
        assert sorted((f["node"], f["code"]) for f in both["failures"]) == [
            ("host2", "DISK-LOW"), ("host2", "RING-BLOCKED"), ("host3", "RING-BLOCKED")], both


def test_nodes_that_do_not_meet_are_looked_at_all_the_same():
    with four() as hosts:
        codes, said = ends(start(hosts, "--rdzv-conf=join_timeout=2", numbers=[0, 1]))
        assert codes == [1, 1], said
        for out, err in said:
            assert re.search(r"^ok +NAME ", out, re.M) and "RING" not in out, out
            assert re.search("of 4", err), err


# --- on a machine that has eight GPUs according to its files and a scripted NVML --------------------------------------

INSIDE = """
mount --bind "$0/sys" /sys && mount --bind "$0/proc/driver" /proc/driver &&
mkdir -p "$0.dev" && mount -t tmpfs none "$0.dev" && mkdir "$0.dev/shm" && touch "$0.dev/null" "$0.dev/nvidia5" &&
mount --bind /dev/null "$0.dev/null" && mount --rbind "$0.dev" /dev && eval "$1"
"""
H100 = """
driver 550.54.15
cuda 12040
count 8
gpu 0-7 name "NVIDIA H100 80GB HBM3" cc 9.0 memory 85520809984 pcie 5 16 5 16
gpu 0-7 nvlink 0-17 remote 00000000:C4:00.0 type switch
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return tmp_path_factory.mktemp("nvml")


@pytest.fixture
def gpus(tmp_path, library):
    """Checks a node with eight H100 about which NVML also reports this. Returns the exit status, the facts, and {code:
    (level, text)} of findings about GPUs."""
    if has_gpus or os.geteuid() != 0 or not may_mount():
        pytest.skip("needs root, mount namespaces, and no GPU")
    tree = tmp_path / "tree"

    def run(lines="", shell='exec "$MUSTER_CHECK" check --json', preset="2s-8gpu-8nic", nvml=H100, **more):
        make_tree.make(preset, str(tree))
        addresses = sorted(os.listdir(tree / "proc/driver/nvidia/gpus"))
        script = nvml + "".join(f"gpu {i} busid 0000{at.upper()} uuid GPU-{i}\n" for i, at in enumerate(addresses))
        env = {**os.environ, **harness.nvml_env(library, script + lines + "\n"), **more,
               "MUSTER_CHECK": harness.command()[0]}
        # In a PID namespace of its own: the holders of GPUs in other tests must not be seen.
        done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", INSIDE,
                               str(tree), shell], capture_output=True, text=True, timeout=60, env=env)
        print(done.stdout, done.stderr)  # shown when the test fails
        told = json.loads(done.stdout)
        found = {c["code"]: (c["level"], c["text"]) for c in told["checks"]
                 if re.match("GPU|NVML|NVLINK|PCIE|FABRIC|DOMAIN|IMEX|STACK|DISCOVERY", c["code"]) or
                 c["code"] == "XID" and (c["level"] == "fail" or "kmsg" in shell)}
        assert len(found) == len([c for c in told["checks"] if c["code"] in found]), "a code once"
        failed = any(c["level"] == "fail" for c in told["checks"])
        assert done.returncode == failed and (told["level"] == "fail") == failed, done
        return told["facts"], found

    return run


def test_eight_gpus_that_are_well(gpus):
    facts, found = gpus()
    assert found == {"GPU": ("ok", "8 x NVIDIA H100 80GB HBM3"), "GPU-FREE": ("ok", "no process holds a GPU"),
                     "NVLINK": ("ok", "18 NVLinks up on each GPU")}
    assert (facts["gpus"], facts["driver"], facts["cuda"]) == ("8 x NVIDIA H100 80GB HBM3", "550.54.15", "12.4")
    assert facts["gpu processes"] == "0" and re.fullmatch(r"[0-9.]+ \S+", facts["free disk"])
    assert re.fullmatch(r"(mlx5_\d 400G IB(, )?){8}", facts["hcas"]), facts
    assert facts["rails"] == ", ".join(f"GPU{i} mlx5_{i}" for i in range(8)), facts


@pytest.mark.parametrize("lines, code, level, text", [
    ("fail nvmlDeviceGetNvLinkCapability 3 15", "GPU-LOST", "fail", r"GPU 3 \(0000:15:00\.0\) is lost: .* reboot"),
    ("fail nvmlDeviceGetHandleByIndex_v2 3 15", "GPU-LOST", "fail", r"GPU 3 \(0000:15:00\.0\) is lost"),
    ("fail nvmlDeviceGetName 3 16", "GPU-RESET", "fail", r"GPU 3 \(0000:15:00\.0\) needs a reset"),
    ("gpu 3 recovery 1\ngpu 4 recovery 0", "GPU-RECOVERY", "fail", r"GPU 3 \(0000:15:00\.0\) needs a reset"),
    ("gpu 3-5 recovery 2", "GPU-RECOVERY", "fail", r"GPU 3 \(0000:15:00\.0\) needs a reboot of the node \(2 more GPUs as well\)"),
    ("gpu 3 remap 0 1", "GPU-REMAP", "fail", "GPU 3 .* could not be replaced"),
    ("gpu 3 remap 1 0", "GPU-REMAP", "fail", "GPU 3 .* which a reset will replace"),
    ("gpu 3 pages 1", "GPU-REMAP", "fail", "GPU 3 .* which a reset will replace"),
    ("gpu 3 ecc 2", "GPU-ECC", "fail", "GPU 3 .* uncorrected ECC errors"),
    ("gpu 3 slowed 0x40", "GPU-SLOW", "warn", "GPU 3 .* lower clocks"),
    ("gpu 4 pcie 5 8 5 16", "PCIE-WIDTH", "fail", "GPU 4 has x8 of x16 PCIe lanes"),
    ("gpu 7 nvlink 17 remote 00000000:C4:00.0 type switch active 0", "NVLINK-UNEQUAL", "fail",
     "GPU 7 has 17 NVLinks that are up, others have 18"),
    ("gpu 0-7 fabric 00000000000000000000000000000000 clique 0 state 2 status 0", "FABRIC-DOWN", "fail",
     r"8 of 8 GPUs .* \(GPU 0: in progress\): is nvidia-fabricmanager running"),
    ("gpu 0-7 fabric 3f8e2a104c5d4b6e9f00112233445566 clique 1 state 3 status 0 health 0xaa\n"
     "gpu 2-3 fabric 3f8e2a104c5d4b6e9f00112233445566 clique 1 state 3 status 0 health 0x9a", "FABRIC-DEGRADED", "fail",
     r"2 of 8 GPUs .* \(GPU 2: a route is unhealthy\)"),
    ("gpu 0-3 fabric 3f8e2a104c5d4b6e9f00112233445566 clique 1 state 3 status 0\n"
     "gpu 4-7 fabric 3f8e2a104c5d4b6e9f00112233445566 clique 2 state 3 status 0", "DOMAIN-SPLIT", "fail",
     r"GPU 0 and GPU 4 are in different NVLink domains \(cliques\)"),
    ("fail nvmlInit_v2 18", "NVML-FAILED", "fail", "NVML: Driver/library version mismatch"),
    ("crash nvmlDeviceGetNvLinkCapability 2", "NVML-FAILED", "fail", "nvmlDeviceGetNvLinkCapability of GPU 2"),
    ("hang nvmlInit_v2", "NVML-HUNG", "fail", r"NVML did not answer in 2\.0 s \(nvmlInit_v2\)"),
    ("hang nvmlDeviceGetNvLinkCapability 2", "NVML-HUNG", "fail", "nvmlDeviceGetNvLinkCapability of GPU 2"),
    ("count 7", "GPU-COUNT", "warn", "the driver has 7 GPUs, the PCI bus 8"),
    ("gpu 2 mig 1 mig-uuid MIG-a mig-uuid MIG-b", "GPU-MIG", "warn", "1 of 8 GPUs .* GPU 2 with 2 MIG devices"),
])
def test_a_gpu_that_is_not_well_has_its_code(gpus, lines, code, level, text):
    facts, found = gpus(lines)
    assert found[code][0] == level and re.search(text, found[code][1]), found
    assert [c for c in found if found[c][0] != "ok"] == [code], found
    assert ("GPU" in found) == (level == "warn" or code in ("NVLINK-UNEQUAL", "FABRIC-DOWN", "FABRIC-DEGRADED", "DOMAIN-SPLIT")), found
    if code == "GPU-MIG":
        assert facts["gpus"] == "8 x NVIDIA H100 80GB HBM3 (1 in MIG mode)", "other nodes differ"


LOGGED = """4,1,100,-;NVRM: Xid (PCI:0000:15:00): 119, pid='<unknown>', name=<unknown>, Timeout after 6s
4,2,200,-;NVRM: Xid (PCI:0000:15:00): 31, pid=4711, name=python3, MMU Fault
12,3,300,-;NVRM: Xid (PCI:0000:15:00): 79, a program's line
4,4,400,-;NVRM: Xid (PCI:0099:15:00): 79, another container's GPU
4,5,500,-;NVRM: Xid (PCI:0000:15:00): 4"""


@pytest.mark.parametrize("lines, fails", [("", True), ("gpu 3 recovery 1", True), ("gpu 3 recovery 0", False)])
def test_a_fatal_xid_of_the_kernels_log_has_its_code(gpus, lines, fails):
    _, found = gpus(lines, f"cat > /dev/kmsg <<'END'\n{LOGGED}\nEND\n" + 'exec "$MUSTER_CHECK" check --json')
    assert ("XID" in found) == fails and ("GPU-RECOVERY" in found) == ("recovery 1" in lines), found
    if fails:
        assert found["XID"][0] == "fail" and re.match(r"GPU 3 \(0000:15:00\.0\) had Xid 119 [0-9.]+ hours ago", found["XID"][1])


@pytest.mark.parametrize("shell, why", [
    ("touch /dev/kmsg; chmod 0 /dev/kmsg; exec setpriv --bounding-set=-dac_override,-dac_read_search", "permission denied"),
    ("rm -f /dev/kmsg; exec", "No such file")])
def test_a_kernels_log_that_can_not_be_read_fails_nothing(gpus, shell, why):
    _, found = gpus("", shell + ' "$MUSTER_CHECK" check --json')
    assert found["XID"][0] == "ok" and why in found["XID"][1] and {level for level, _ in found.values()} == {"ok"}, found


GRACE = """driver 580.95
count {n}
gpu 0-{last} name "NVIDIA {name}" cc {cc} pcie 5 16 5 16
gpu 0-{last} fabric {uuid} clique 32766 state {state} status 0 health {health} summary 1
"""
CHANNEL = """
mount --bind "$0/proc/devices" /proc/devices && mkdir /dev/nvidia-caps-imex-channels &&
: > /dev/nvidia-caps-imex-channels/channel0 && exec "$MUSTER_CHECK" check --json
"""


@pytest.mark.parametrize("preset, nvml, domain", [
    ("2s-8gpu-8nic", H100 + f"gpu 0-7 fabric {'0' * 32} clique 0 state 3 status 0 health 0xaa\n", None),
    ("gb200", GRACE.format(n=4, last=3, name="GB200", cc="10.0", uuid="3f8e2a104c5d4b6e9f00112233445566", state=3, health="0xaa"),
     "nvl-3f8e2a10-4c5d-4b6e-9f00-112233445566.32766"),
    ("gh200", GRACE.format(n=1, last=0, name="GH200 480GB", cc="9.0", uuid="0" * 32, state=0, health=0), None),
    ("gb10", GRACE.format(n=1, last=0, name="GB10", cc="12.1", uuid="0" * 32, state=0, health=0), None),
])
def test_machines_that_are_well_have_no_finding(gpus, tmp_path, preset, nvml, domain):
    """A mask of 0xaa has no fault; a fabric without a UUID ends at the machine."""
    facts, found = gpus("", "echo '234 nvidia-caps-imex-channels' > \"$0/proc/devices\" && " + CHANNEL.strip(), preset=preset,
                        nvml=nvml)
    assert [c for c in found if found[c][0] != "ok"] == [], found
    assert facts.get("nvlink domain") == domain
    assert facts.get("imex channel") == ("present" if domain else None), facts


def test_a_driver_that_is_not_there_is_no_failure(gpus):
    _, found = gpus(MUSTER_NVML_LIBRARY="/nowhere/libnvidia-ml.so.1")
    assert found["NVML-MISSING"] == ("warn", "the PCI bus has 8 GPUs of NVIDIA, and there is no driver for them here: "
                                     "no /nowhere/libnvidia-ml.so.1"), found


# The kernel knows the start of a process only to a hundredth of a second, so a leftover must be older than that.
HOLD = """
tail -f --pid=$$ /dev/null 3</dev/nvidia5 & held=$!
began() { awk '{print $22}' "/proc/$1/stat"; }
until [ "$(began self)" -gt "$(began $held)" ]; do :; done
"$MUSTER_CHECK" check --json; r=$?; kill $held; exit $r
"""


def test_leftover_processes_are_named(gpus):
    facts, found = gpus(shell=HOLD)
    assert re.fullmatch(r"1 process holds GPUs already: tail \(\d+\)", found["GPU-BUSY"][1]), found
    assert found["GPU-BUSY"][0] == "fail" and facts["gpu processes"] == "1"


@pytest.mark.parametrize("visible, looks", [("0,1,2,3", False), ("0,1,2,3,4,5,6,7", True)])
def test_jobs_that_share_a_node_do_not_see_each_other(gpus, visible, looks):
    _, found = gpus(shell=HOLD, CUDA_VISIBLE_DEVICES=visible)
    assert ("GPU-BUSY" in found) == looks, found


def test_what_nvml_counts_and_nobody_sees_is_said(gpus):
    """Pids of another PID namespace: here, 1 is another process."""
    facts, found = gpus("gpu 5 process 1 used 1048576\ngpu 6 process 99999999 used 1")
    assert found["GPU-BUSY"] == ("warn", "NVML counts 2 processes on GPUs that can't be seen from here, the first on GPU 5: "
                                 "another container's, or hidden"), found
    assert facts["gpu processes"] == "2"


# The discovery runs in a child, which calls NVML in a child of its own.
MEANWHILE = """
children() { cat "/proc/$1/task/$1/children" 2>/dev/null; }
"$MUSTER_CHECK" check --json & c=$!
until g=$(children $c) && [ -n "$g" ] && [ -n "$(children ${g%% *})" ]; do kill -0 $c || exit; done
tail -f --pid=$$ /dev/null 3</dev/nvidia5 & held=$!
wait $c; r=$?; kill $held; exit $r
"""


def test_a_process_that_begins_while_the_node_is_looked_at_is_no_leftover(gpus):
    """The same for workers of a job that does not wait for the discovery: NVML hangs here until they run."""
    facts, found = gpus("hang nvmlInit_v2", shell=MEANWHILE)
    assert set(found) == {"NVML-HUNG", "GPU-FREE"} and facts["gpu processes"] == "0", found


# Of the machine's own /sys only the interfaces are left.
OWN_SYS = """
mkdir -p {0}.real && mount -t sysfs none {0}.real && mount --bind {0}/sys /sys && mount --bind {0}/proc/driver /proc/driver &&
mkdir -p /sys/devices/virtual/net && mount --bind {0}.real/devices/virtual/net /sys/devices/virtual/net &&
mount --bind {0}.real/class/net /sys/class/net && mount -t tmpfs -o size={1} none /dev/shm
"""


def machine(folder, shm="256m", torch="2.9.0", nccl="2.27.5", nvml=(), down=None):
    """A node's files below a folder: its tree, and a Python that has PyTorch according to pip. (line for a shell,
    env)"""
    make_tree.make("2s-8gpu-8nic", str(folder / "tree"))
    if down:
        (folder / "tree/sys/class/infiniband" / down / "ports/1/state").write_text("1: DOWN\n")
    gpus = sorted(os.listdir(folder / "tree/proc/driver/nvidia/gpus"))
    script = H100 + "".join(f"gpu {i} busid 0000{at.upper()} uuid GPU-{i}\n" for i, at in enumerate(gpus))
    site = folder / "venv/lib/python3.11/site-packages"
    for name, version in (("torch", torch), ("nvidia_nccl_cu12", nccl)):
        (site / f"{name}-{version}.dist-info").mkdir(parents=True)
    (site / "nvidia/nccl/lib").mkdir(parents=True)
    (site / "nvidia/nccl/lib/libnccl.so.2").touch()
    (folder / "venv/bin").mkdir()
    (folder / "venv/bin/python3").symlink_to("/usr/bin/python3")
    env = harness.nvml_env(folder, script + "\n".join(nvml) + "\n")
    return OWN_SYS.format(folder / "tree", shm), {**env, "PATH": f"{folder}/venv/bin:{os.environ['PATH']}"}


def test_nodes_whose_hardware_and_software_differ_are_named(tmp_path):
    """Each node except host1 differs in its own way."""
    if has_gpus:
        pytest.skip("there are GPUs here")
    odd = [{}, {"down": "mlx5_3"}, {"torch": "2.8.0", "nccl": "2.27.3", "shm": "128m", "nvml": ["driver 535.183.01", "cuda 12020"]},
           {"nvml": ["count 7"]}]
    for n in range(4):
        (tmp_path / str(n)).mkdir()
    machines = [machine(tmp_path / str(n), **more) for n, more in enumerate(odd)]
    with four() as hosts:
        for n, (line, _) in enumerate(machines):
            on(hosts, n, line)
        agents = []  # at once: they wait 30 s for each other
        for n, (_, env) in enumerate(machines):
            limit = ["sh", "-c", "ulimit -l 4096 && exec \"$@\"", "sh"] if n == 3 else []
            agents.append(subprocess.Popen(
                [*hosts.enter(n), *limit, harness.command()[0], "check", "--nnodes=4", "--rdzv-backend=c10d",
                 f"--rdzv-endpoint={hosts.address(0)}:29400", "--rdzv-id=check", "--rdzv-conf=join_timeout=30", "--json"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **env}))
        codes, said = ends(agents)
        assert codes == [1, 1, 1, 1], said
        own, both = [json.loads(line) for line in said[0][0].splitlines()]
        assert [own["facts"][fact] for fact in ("gpus", "driver", "cuda", "nccl", "torch", "shm")] == [
            "8 x NVIDIA H100 80GB HBM3", "550.54.15", "12.4", "2.27.5", "2.9.0", "256 MiB"], own
        rows = {(d["nodes"], d["code"]): (d["value"], d["others"], d["matters"]) for d in both["differences"]
                if d["code"] != "NETIF-DIFFERS"}
        hcas = rows.pop(("host2", "HCAS-DIFFER"))
        rails = rows.pop(("host2", "RAILS-DIFFER"))
        assert "GPU3 mlx5_3" in rails[1] and "GPU3 mlx5_3" not in rails[0] and not rails[2], rails
        assert rows.pop(("host4", "RAILS-DIFFER"))[0] == ", ".join(f"GPU{i} mlx5_{i}" for i in range(7))
        assert "mlx5_3 DOWN, mlx5_4 400G IB" in hcas[0] and "mlx5_3 400G IB, mlx5_4 400G IB" in hcas[1] and hcas[2], hcas
        assert rows == {
            ("host3", "DRIVER-DIFFERS"): ("535.183.01", "550.54.15", True),
            ("host3", "CUDA-DIFFERS"): ("12.2", "12.4", False),
            ("host3", "NCCL-DIFFERS"): ("2.27.3", "2.27.5", True),
            ("host3", "TORCH-DIFFERS"): ("2.8.0", "2.9.0", True),
            ("host3", "SHM-DIFFERS"): ("128 MiB", "256 MiB", False),
            ("host4", "GPUS-DIFFER"): ("7 x NVIDIA H100 80GB HBM3", "8 x NVIDIA H100 80GB HBM3", True),
            ("host4", "MEMLOCK-DIFFERS"): ("4.0 MiB", own["facts"]["memlock"], False),
        }, rows
        assert ("host4", "MEMLOCK-LOW") in {(f["node"], f["code"]) for f in both["failures"]}, both
        last = said[3][1].splitlines()[-1]
        assert all(f"{code}: " in last for code in ("GPUS-DIFFER", "HCAS-DIFFER", "TORCH-DIFFERS", "MEMLOCK-LOW")), last
