"""`muster topo`: this machine, files of each kind, recorded and synthetic trees, errors of files and outputs."""
import json
import os
import pathlib
import pty
import re
import resource
import select
import stat
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

import harness

sys.path.insert(0, str(harness.HERE.parent / "tools"))
import make_tree  # noqa: E402
import topo_svg  # noqa: E402

SHARED = pathlib.Path(os.environ.get("MUSTER_SHARED") or harness.HERE.parents[2] / "shared") / "topologies"
NS = {"s": "http://www.w3.org/2000/svg"}


def topo(*words, env=None, **more):
    env = {**{k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "HWLOC_"))}, **(env or {})}
    return subprocess.run([harness.MUSTER, "topo", *map(str, words)], env=env, capture_output=True, timeout=60 * harness.SLOWER,
                          text=True, stdin=subprocess.DEVNULL, **more)


def good(*words, **more):
    done = topo(*words, **more)
    assert done.returncode == 0, done
    return done.stdout


def recorded(name):
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{name} is not there")
    return path


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tree")
    make_tree.make("2s-8gpu-8nic", folder, cores=4)
    return folder


def matrix(text):
    """{row: {column: cell}} and the affinities of a matrix."""
    lines = text.split("\n\n")[0].splitlines()
    names = lines[0].split("CPU Affinity")[0].split()
    rows = {}
    for line in lines[1:]:
        name, *cells = line.split()
        assert len(cells) == len(names) + (3 if name.startswith("GPU") else 2), line
        cpus, numa, *memory = cells[len(names):]
        rows[name] = {**dict(zip(names, cells)), "cpus": cpus, "numa": numa, "memory": memory}
    assert list(rows) == names
    return rows


# --- output as text ---------------------------------------------------------------------------------------------------


def test_this_machine_is_shown_as_the_kernel_knows_it():
    done = topo()
    assert done.returncode == 0, done
    snapshot = json.loads(good("--json"))
    assert snapshot["allowed"] and snapshot["source"] == "live"
    if not snapshot["gpus"] and not snapshot["nics"]:
        assert done.stdout.startswith("This node has no GPUs and no RDMA NICs.\n\nCPUs "), done.stdout
        assert not done.stderr, "warnings are about what is there"
        for node in snapshot["numa"]:
            assert f"  NUMA node {node['index']}  " in done.stdout
    assert good("--tree").count("NUMA node") >= 1
    assert ElementTree.fromstring(good("--svg", "-")).tag == "{%s}svg" % NS["s"]


def test_the_matrix_of_a_tree(tree):
    out = good("--sysroot", tree)
    rows = matrix(out)
    assert [r for r in rows if r.startswith("GPU")] == [f"GPU{i}" for i in range(8)]
    for i in range(8):
        assert rows[f"GPU{i}"][f"mlx5_{i}"] == rows[f"mlx5_{i}"][f"GPU{i}"] == "PIX"
        assert rows[f"GPU{i}"]["GPU%d" % ((i + 4) % 8)] == "SYS" and rows[f"GPU{i}"][f"GPU{i}"] == "X"
        assert rows[f"GPU{i}"]["numa"] == str(i // 4)
        assert re.search(rf"^  GPU{i}  0000:.*  mlx5_{i}  PIX  48.0 GB/s$", out, re.M), out
        assert re.search(rf"^  mlx5_{i}  0000:.*  ACTIVE  400 Gb/s InfiniBand  ib{i}$", out, re.M), out
    assert "NVLinks are not known here" in out


def test_gpus_of_amd_are_listed(tmp_path):
    make_tree.make("amd-8gpu", tmp_path)
    out = good("--sysroot", tmp_path)
    assert len([r for r in matrix(out) if r.startswith("GPU")]) == 8 and out.count("AMD") == 8, out


def test_nvlinks_and_names_come_by_nvml(tmp_path):
    out = topo(env=harness.nvml_env(tmp_path, "hgx-h100"))
    rows = matrix(out.stdout)
    assert rows["GPU0"]["GPU7"] == rows["GPU7"]["GPU0"] == "NV18" and "NVIDIA H100 80GB HBM3" in out.stdout, out
    svg = good("--svg=-", env=harness.nvml_env(tmp_path, "hgx-h100"))
    assert "NVLink: NV18 between all GPUs" in svg


def test_the_node_that_is_a_gpus_memory_comes_by_nvml(tmp_path):
    env = harness.nvml_env(tmp_path, "gb200")
    rows = matrix(good(env=env))
    assert [rows[f"GPU{i}"]["memory"] for i in range(4)] == [["2"], ["10"], ["18"], ["26"]], rows
    assert [g["memory_numa"] for g in json.loads(good("--json", env=env))["gpus"]] == [2, 10, 18, 26]


def test_the_nvlink_domain_comes_by_nvml(tmp_path):
    env = harness.nvml_env(tmp_path, "gb200")
    domain = "nvl-3f8e2a10-4c5d-4b6e-9f00-112233445566.32766"
    line = f"NVLink domain {domain}: healthy, IMEX channel none, chassis 1821125000123, slot 5, tray 3"
    for shown in (good(env=env), good("--tree", env=env)):
        assert shown.splitlines()[-1] == line, shown
    saved = tmp_path / "saved.json"
    saved.write_text(good("--json", env=env))
    told = json.loads(saved.read_text())
    assert (told["domain"], told["gpus"][3]["fabric"], told["gpus"][3]["fabric_health"]) == (domain, "completed", 0xaa)
    assert good("--from", saved).splitlines()[-1] == line
    assert "NVLink domain" not in good(env=harness.nvml_env(tmp_path, "hgx-h100")), "its fabric ends at the machine"


@pytest.mark.parametrize("devices, channels, imex", [
    ("195 nvidia-frontend", None, "none"),
    ("234 nvidia-caps-imex-channels", None, "missing"),
    ("234 nvidia-caps-imex-channels", ["other"], "missing"),
    ("234 nvidia-caps-imex-channels", ["channel0"], "present"),
])
def test_the_imex_channel_is_looked_for(tmp_path, devices, channels, imex):
    make_tree.make("gb200", tmp_path)
    (tmp_path / "dev").mkdir(exist_ok=True)
    (tmp_path / "proc/devices").write_text(f"Character devices:\n  1 mem\n{devices}\n\nBlock devices:\n")
    for name in channels or []:
        (tmp_path / "dev/nvidia-caps-imex-channels").mkdir(exist_ok=True)
        (tmp_path / "dev/nvidia-caps-imex-channels" / name).touch()
    assert json.loads(good("--json", "--sysroot", tmp_path))["imex_channel"] == imex


def test_variables_that_change_the_choice_are_named(tmp_path):
    nvml = harness.nvml_env(tmp_path, "hgx-h100")
    assert "NCCL_IB_HCA is set" in topo(env={**nvml, "NCCL_IB_HCA": "mlx5_7"}).stderr
    assert " is set" not in topo(env=nvml).stderr


def test_the_tree_is_drawn_as_the_locale_can(tree):
    lines = good("--tree", "--sysroot", tree, env={"LC_ALL": "C.UTF-8"})
    assert "└─ package 1\n" in lines and "→ mlx5_7 (PIX, 48.0 GB/s)\n" in lines, lines
    plain = good("--tree", "--sysroot", tree, env={"LC_ALL": "C"})
    assert plain.isascii() and "`- package 1\n" in plain and "-> mlx5_7 (PIX, 48.0 GB/s)\n" in plain, plain
    assert len(plain.splitlines()) == len(lines.splitlines())


@pytest.mark.parametrize("term, drawn", [("xterm", True), ("dumb", False)])
def test_the_tree_fits_a_terminal(tree, term, drawn):
    master, slave = pty.openpty()
    import fcntl
    import struct
    import termios
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
    with subprocess.Popen([harness.MUSTER, "topo", "--tree", "--sysroot", tree], stdout=slave, stderr=subprocess.DEVNULL,
                          env={**os.environ, "LC_ALL": "C.UTF-8", "TERM": term}) as process:
        os.close(slave)
        out, end = b"", harness.deadline(30)
        while True:
            assert harness.deadline(0) < end and select.select([master], [], [], 30 * harness.SLOWER)[0]
            try:
                part = os.read(master, 65536)
            except OSError:
                break
            if not part:
                break
            out += part
        assert process.wait() == 0
    os.close(master)
    lines = out.decode().split("\r\n")[:-1]
    assert len(lines) > 20 and max(map(len, lines)) == 50, lines
    assert any("├─" in line for line in lines) == drawn
    assert any(line.endswith("…" if drawn else "...") for line in lines)


# --- the picture -----------------------------------------------------------------------------------------------------


def test_the_picture_has_each_device_and_a_line_for_each_pair(tree, tmp_path):
    assert good("--sysroot", tree, "--svg", tmp_path / "a.svg") == ""
    text = (tmp_path / "a.svg").read_text()
    svg = ElementTree.fromstring(text)
    words = [e.text for e in svg.iter("{%s}text" % NS["s"])]
    for i in range(8):
        assert f"GPU{i}" in words and f"mlx5_{i}" in words and f"→ mlx5_{i}" in words
    assert words.count("PIX · 48.0 GB/s") == 8 and "Package 1" in words
    wires = [e for e in svg.iter("{%s}path" % NS["s"]) if e.get("class").startswith("w s") and "h28" not in e.get("d")]
    assert len(wires) == 8
    assert not re.search(r"(href|url\(|@import|<script|<image)", text), "it needs nothing else"
    assert "prefers-color-scheme:dark" in text
    assert text == good("--sysroot", tree, "--svg", "-"), "the same each time"
    assert stat.S_IMODE((tmp_path / "a.svg").stat().st_mode) == 0o644


@pytest.mark.skipif(not topo_svg.MACHINE.exists(), reason=f"{topo_svg.MACHINE} is not here")
def test_the_picture_of_readme_is_what_muster_draws():
    """If this fails, make it again: tests/tools/topo_svg.py MUSTER docs/topo.svg."""
    text = topo_svg.picture(harness.MUSTER)
    assert (harness.HERE.parents[1] / "docs/topo.svg").read_text() == text
    assert "docs/topo.svg" in (harness.HERE.parents[1] / "README.md").read_text()
    assert ">h200-1001<" in text and str(topo_svg.SHARED) not in text


# --- other forms -----------------------------------------------------------------------------------------------------


def test_json_reads_back_as_it_was(tree, tmp_path):
    first = good("--json", "--sysroot", tree)
    (tmp_path / "a.json").write_text(first)
    again = json.loads(good("--json", "--from", tmp_path / "a.json"))
    assert {k: v for k, v in again.items() if k not in ("source", "from")} == \
        {k: v for k, v in json.loads(first).items() if k not in ("source", "from")}
    assert good("--from", tmp_path / "a.json") == good("--sysroot", tree)
    gpu = again["gpus"][3]
    assert gpu["index"] == 3 and gpu["numa"] == 0 and gpu["nic"] == {"name": "mlx5_3", "path": "PIX", "bandwidth": 48.0}


def test_an_nccl_file_is_written_judged_and_read_back(tree, tmp_path):
    path = tmp_path / "topo.xml"
    assert good("--sysroot", tree, "--nccl-xml", path) == ""
    root = ElementTree.fromstring(path.read_text())
    assert root.tag == "system" and root.get("version") == "1" and len(root.findall(".//gpu")) == 8
    done = topo("--check-nccl-xml", path, "--sysroot", tree)
    assert done.returncode == 0 and " error: " not in done.stdout, done
    rows = matrix(good("--from", path))
    assert rows["GPU5"]["mlx5_5"] == "PIX" and rows["GPU5"]["mlx5_2"] == "SYS"
    assert good("--sysroot", tree, "--nccl-xml=-") == path.read_text()


HWLOC = ["flux-corona", "flux-ipa20", "flux-sched-chimera", "flux-sierra", "flux-tuo.SPX", "hwloc-16intel64-manyVFs",
         "hwloc-32em64t-2n8c2t-pci-normalio", "hwloc-32em64t-2n8c2t-pci-wholeio", "hwloc-96em64t-4n4d3ca2co-pci",
         "hwloc-nvidiaDGX2", "hwloc-power8gpudistances", "mpibind-coral-lassen", "mpibind-cts1-pascal", "mpibind-eas-tioga",
         "mpibind-epyc-corona-p2", "mpibind-g4dnmetal", "prrte-turin-4xH200-noplugins", "prrte-turin-4xH200-nvml"]
NCCL = ["aws-g5.48xl-topo", "aws-p4d-24xl-topo", "aws-p4de-24xl-topo", "aws-p5.48xl-topo-2024",
        "aws-p5.48xl-topo-pr1226-toobig", "azure-ncv4-topo", "azure-ndv2-topo", "azure-ndv4-topo", "azure-ndv5-topo",
        "modal-b200vm-1-5554632f9", "modal-b200vm-2-bd9eaa8d4", "modal-b200vm-3-63d40870d", "modal-b200vm-4-86859751d",
        "sugarlxn-4x4090-calico", "gb10-nccl", "derived/turin-4xH200-nccl", "derived/ipa20-4xH100-nccl"]
SYSFS = ["hwloc-sysfs/2pa-pcidomain32bits.tar.bz2", "hwloc-sysfs/32em64t-2n8c+dax+nvme+mic+dimms.tar.bz2",
         "hwloc-sysfs/40intel64-2g2n4c+pcilocality.tar.bz2", "hwloc-sysfs/40intel64-4n10c+pci-conflicts.tar.bz2",
         "hwloc-sysfs/fakepcilocalities.tar.bz2", "hwloc-sysfs/nvidia-dgx-gb10.tar.bz2",
         "hwloc-sysfs/nvidiagpunumanodes.tar.bz2", "sysfs-derived/g4dnmetal-8xT4.tar.xz", "sysfs-derived/ipa20-4xH100.tar.xz",
         "sysfs-derived/turin-4xH200.tar.xz"]
MACHINES = [f"hwloc/{n}.xml" for n in HWLOC] + [f"nccl-xml/{n}.xml" for n in NCCL] + SYSFS + list(make_tree.PRESETS)


@pytest.fixture(scope="module")
def machine(request, tmp_path_factory):
    """The options that show one of MACHINES."""
    name, folder = request.param, tmp_path_factory.mktemp("machine") / "root"
    if name in make_tree.PRESETS:
        make_tree.make(name, folder)
    elif ".tar." in name:
        folder.mkdir()
        subprocess.run(["tar", "-xf", recorded(name), "-C", folder, "--strip-components=1"], check=True)
    else:
        return "--from", recorded(name)
    return "--sysroot", folder


def path_in_nccls_file(t, a, b, path):
    """NCCL's file has no host bridges and no root ports. So the path between two devices without a common switch
    follows from the bus of what is left, else from their NUMA nodes."""
    parents = {p["bus_id"]: p["parent"] for p in t["pci"]}

    def chain(device):
        at, above = device["bus_id"], []
        while at:
            above.append(at)
            at = parents.get(at)
        return [at for at in above if at == device["bus_id"] or parents[at]]
    tops = chain(a), chain(b)
    if path not in ("PIX", "PHB") or t["source"] == "nccl" or set(tops[0]) & set(tops[1]):
        return path
    if tops[0][-1:] and tops[1][-1:] and tops[0][-1][:-5] == tops[1][-1][:-5]:
        return "PHB"
    return "NODE" if a["numa"] == b["numa"] and a["numa"] >= 0 else "SYS"


@pytest.mark.parametrize("machine", MACHINES, indirect=True)
def test_a_written_nccl_file_tells_what_its_machine_does(machine, tmp_path):
    """The same NICs for each GPU, with the same paths; the same matrix, as far as NCCL's file has the information."""
    path = tmp_path / "topo.xml"
    done = topo(*machine, "--nccl-xml", path)
    assert done.returncode == 0, done
    first, again = json.loads(good("--json", *machine)), json.loads(good("--json", "--from", path))
    lost = {g["bus_id"] for g in first["gpus"]} - {g["bus_id"] for g in again["gpus"]}
    nvidia = any(g["vendor"] == "nvidia" for g in first["gpus"])
    assert lost == {g["bus_id"] for g in first["gpus"] if nvidia and g["vendor"] != "nvidia" and first["source"] != "nccl"}
    found = {g["bus_id"]: (g.get("nic"), g.get("nics")) for g in again["gpus"]}
    assert found == {g["bus_id"]: (g.get("nic"), g.get("nics")) for g in first["gpus"] if g["bus_id"] not in lost}

    def cells(t):
        names = {**{f"GPU{g['index']}": g for g in t["gpus"]}, **{n["name"]: n for n in t["nics"]}}
        return {frozenset((link["a"], link["b"])): (names[link["a"]], names[link["b"]], link["path"]) for link in t["links"]}
    before, after = cells(first), cells(again)
    for pair in before.keys() & after.keys():
        assert after[pair][2] == path_in_nccls_file(first, *before[pair]), pair
    left_out = topo(*machine).stderr
    for nic in {n["name"] for n in first["nics"] if first["gpus"]} - {n["name"] for n in again["nics"]}:
        assert any(nic in n["name"].split("+") for n in again["nics"]) or f"{nic} is left out" in left_out, nic


def described():
    """From muster-topology(5): {key of the whole: keys of its objects} and {key: its allowed words}."""
    keys, words, block = {}, {}, None
    for line in (harness.HERE.parents[1] / "man" / "muster-topology.5").read_text().splitlines():
        if line.startswith(".It Cm "):
            block = line[len(".It Cm "):].replace(" ,", "").split()
            keys.update((name, set()) for name in block)
            last = block
        elif line.startswith(".El"):
            block = None
        elif block and line.startswith((".Cm ", ".Brq Cm ")):
            last = re.findall(r"[a-z_0-9]+(?= |$)", line.split("Cm ", 1)[1])
            keys[block[0]].update(last)
        elif block and line.startswith(".Pq Cm "):
            words[block[0], last[-1]] = set(line[len(".Pq Cm "):].replace(",", "").split())
    return keys, words


def keys_of(value):
    """Of all objects in it."""
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    return set(value).union(*map(keys_of, value.values())) if isinstance(value, dict) else set()


def check_words(snapshot):
    keys, words = described()
    assert set(snapshot) == set(keys)
    for name, value in snapshot.items():
        assert keys_of(value) <= keys[name], name
        for (of, key), allowed in words.items():
            if of == name:
                assert ({value} if key == name else {item[key] for item in value}) <= allowed, (name, key)


@pytest.mark.parametrize("machine", MACHINES, indirect=True)
def test_the_manual_has_each_key_of_the_json(machine):
    snapshot = json.loads(good("--json", *machine))
    check_words(snapshot)
    gpus, nics, names = snapshot["gpus"], snapshot["nics"], [f"GPU{g['index']}" for g in snapshot["gpus"]]
    for gpu in gpus:
        assert {"index", "bus_id", "numa", "cpus"} <= set(gpu) and ("nic" in gpu) == ("nics" in gpu)
        assert "nic" not in gpu or (set(gpu["nic"]) == {"name", "path", "bandwidth"} and gpu["nics"][0] == gpu["nic"]["name"])
    for nic in nics:
        assert {"name", "bus_id", "numa", "state", "rate", "netdev"} <= set(nic)
    names += [n["name"] for n in nics]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1:]]
    assert [(link["a"], link["b"]) for link in snapshot["links"]] == pairs


def test_the_json_has_each_key_of_the_manual(tmp_path, tree):
    make_tree.make("roce-v2", tmp_path / "roce")
    make_tree.make("gb200", tmp_path / "gb200")
    xml = tmp_path / "topo.xml"
    good("--sysroot", tree, "--nccl-xml", xml)
    snapshots = [json.loads(text) for text in (
        good("--json", env=harness.nvml_env(tmp_path, "mig")), good("--json", "--sysroot", tmp_path / "roce"),
        good("--json", "--sysroot", tmp_path / "gb200"),
        good("--json", "--from", xml), good("--json", env=harness.nvml_env(tmp_path, "dgx-1v")))]
    for snapshot in snapshots:
        check_words(snapshot)
    for name, wanted in described()[0].items():
        assert set().union(*(keys_of(snapshot[name]) for snapshot in snapshots)) == wanted, name


@pytest.mark.parametrize("name, says", [
    ("hwloc/prrte-turin-4xH200-nvml.xml", r"^GPU0 .* NV6 "),
    ("hwloc/flux-sierra.xml", r"^  GPU0  .*V100"),
    ("nccl-xml/derived/ipa20-4xH100-nccl.xml", r"^  GPU0  .*  mlx5_2,mlx5_3  PXN  48.0 GB/s"),
])
def test_recorded_files_are_shown(name, says):
    assert re.search(says, good("--from", recorded(name)), re.M)


def test_several_outputs_at_once(tree, tmp_path):
    out = good("--sysroot", tree, "--tree", f"--svg={tmp_path}/a.svg", f"--nccl-xml={tmp_path}/a.xml")
    assert "package 1" in out and (tmp_path / "a.svg").exists() and (tmp_path / "a.xml").exists()


# --- --check-nccl-xml ------------------------------------------------------------------------------------------------


def test_findings_name_file_and_line(tree, tmp_path):
    path = tmp_path / "bad.xml"
    good("--sysroot", tree, "--nccl-xml", path)
    text = path.read_text()
    path.write_text(text.replace('busid="0000:03:00.0"', 'busid="0000:0f:00.0"', 1))
    done = topo("--check-nccl-xml", path, "--sysroot", tree)
    line = 1 + text[:text.index('busid="0000:03:00.0"')].count("\n")
    # no line: about the whole file
    found = re.findall(r"^(.*?):(?:([1-9]\d*):)? (error|warning|note): (.+)$", done.stdout, re.M)
    assert any(f == str(path) and n == str(line) and "0000:0f:00.0" in t for f, n, _, t in found), done
    lines = [int(n or 0) for _, n, _, _ in found]
    assert len(found) == done.stdout.count("\n") and lines == sorted(lines), done
    assert done.returncode == (1 if any(kind == "error" for _, _, kind, _ in found) else 0)
    alone = topo("--check-nccl-xml", path)
    if not json.loads(good("--json"))["gpus"]:
        assert "0000:0f:00.0" not in alone.stdout, "without GPUs here there is nothing to compare with"
    snapshot = tmp_path / "node.json"
    snapshot.write_text(good("--json", "--sysroot", tree))
    assert topo("--check-nccl-xml", path, "--from", snapshot).stdout == done.stdout


def test_a_file_that_nccl_refuses_is_an_error(tmp_path):
    path = tmp_path / "x.xml"
    path.write_text('<system version="2">\n</system>\n')
    done = topo("--check-nccl-xml", path)
    assert done.returncode == 1 and re.search(rf"^{re.escape(str(path))}:1: error: .*version", done.stdout), done
    done = topo("--check-nccl-xml", recorded("nccl-xml/modal-b200vm-4-86859751d.xml"))
    assert done.returncode == 1 and re.search(r":13: error: GPU 0002:00:01.0 is lost", done.stdout), done


# --- errors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words, says", [
    (["--from=a", "--sysroot=b"], "either --from or --sysroot"),
    (["--json", "--tree"], "only one of"),
    (["--svg=-", "--json"], "only one of"),
    (["--svg=-", "--nccl-xml=-"], "only one of"),
    (["--check-nccl-xml=x", "--json"], "--check-nccl-xml prints nothing else"),
    (["--svg="], "empty"),
    (["--svg"], "--svg"),
    (["node7"], 'unknown argument "node7"'),
    (["--form=x"], "--from"),
])
def test_a_wrong_command_line(words, says):
    done = topo(*words)
    assert done.returncode == 2 and done.stderr.startswith("muster topo: ") and says in done.stderr, done
    assert done.stderr.count("\n") == 1 and not done.stdout


@pytest.mark.parametrize("option", ["--from", "--check-nccl-xml"])
@pytest.mark.parametrize("what, says", [
    ("missing", "No such file"), ("folder", "a folder"), ("fifo", "regular file"), ("device", "regular file"),
])
def test_what_is_no_file_is_refused(tmp_path, option, what, says):
    path = tmp_path / what
    if what == "folder":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "device":
        path = pathlib.Path("/dev/zero")
    done = topo(option, path)
    assert done.returncode == 1 and done.stderr.startswith("muster: error: "), done
    assert str(path) in done.stderr and says in done.stderr and not done.stdout, done


@pytest.mark.parametrize("content", [b"", b"garbage", b"{", b"{\"format\": 7}", b"<html></html>", b"<system", b"\0\1\2" * 50,
                                     b"<topology version=\"3.0\">", b"[" * 100000])
def test_garbage_is_refused_with_a_sentence(tmp_path, content):
    path = tmp_path / "garbage"
    path.write_bytes(content)
    done = topo("--from", path)
    assert done.returncode == 1 and re.fullmatch(r"muster: error: [^\n]{10,}\n", done.stderr) and not done.stdout, done


def test_what_may_not_be_read_or_written_is_said(tmp_path, tree):
    prefix = []
    if os.geteuid() == 0:
        prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    secret = tmp_path / "secret"
    secret.write_text("{}")
    secret.chmod(0)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    for part in [tmp_path, *tmp_path.parents][:-1]:
        if part.stat().st_uid == os.geteuid() and part != pathlib.Path("/tmp"):
            part.chmod(part.stat().st_mode | 0o055)
    for words in (["--from", secret], ["--check-nccl-xml", secret], ["--svg", closed / "a.svg"]):
        done = subprocess.run([*prefix, harness.MUSTER, "topo", *map(str, words)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "Permission denied" in done.stderr and str(words[1]) in done.stderr, done
    assert not list(closed.iterdir())


@pytest.mark.parametrize("option", ["--svg", "--nccl-xml"])
def test_a_file_is_written_whole_or_not_at_all(tmp_path, tree, option):
    target = tmp_path / "out"
    target.write_text("before")
    done = topo("--sysroot", tree, option, target / "in-a-file")
    assert done.returncode == 1 and "Not a directory" in done.stderr, done
    done = topo("--sysroot", tree, option, tmp_path)
    assert done.returncode == 1 and "Is a directory" in done.stderr, done
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))  # noqa: E731
    # Python ignores SIGXFSZ: inherited, it makes the limit an error of write().
    done = topo("--sysroot", tree, option, target, preexec_fn=limit, restore_signals=False)
    assert done.returncode == 1 and f"can't write {target}: File too large" in done.stderr, done
    assert target.read_text() == "before"
    link = tmp_path / "link"
    link.symlink_to(target)
    good("--sysroot", tree, option, link)
    assert link.is_symlink() and target.read_text().startswith("<s")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "out"]


@pytest.mark.parametrize("option", ["--svg", "--nccl-xml"])
def test_a_full_disk_is_said_and_the_device_stays(tree, tmp_path, option):
    """The device is a node that the test makes: a bug could replace the machine's own."""
    full = tmp_path / "full"
    try:
        os.mknod(full, 0o600 | stat.S_IFCHR, os.makedev(1, 7))
        full.open("wb").close()
    except PermissionError:
        pytest.skip("device nodes can't be made or opened here")
    done = topo("--sysroot", tree, f"{option}={full}")
    assert done.returncode == 1 and f"{full}: No space left on device" in done.stderr, done
    assert stat.S_ISCHR(os.stat(full).st_mode)


@pytest.mark.parametrize("words", [[], ["--json"], ["--tree"], ["--svg=-"], ["--nccl-xml=-"]])
def test_standard_output_that_is_full_is_an_error(tree, words):
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([harness.MUSTER, "topo", "--sysroot", tree, *words], stdout=full, stderr=subprocess.PIPE, text=True,
                              timeout=60)
    assert done.returncode == 1 and "can't write to standard output: No space left" in done.stderr, done


def test_a_reader_that_leaves_early_is_no_crash(tree):
    """As with `muster topo | head -1`: it ends by SIGPIPE, or with its status, and reports nothing."""
    for ignored in (False, True):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run([harness.MUSTER, "topo", "--json", "--sysroot", tree], stdout=write, stderr=subprocess.PIPE,
                              text=True, timeout=60, restore_signals=not ignored)
        os.close(write)
        assert (done.returncode, done.stderr) == (128 + 13 if ignored else -13, ""), done


def test_hostile_names_do_not_reach_the_terminal(tree, tmp_path):
    snapshot = json.loads(good("--json", "--sysroot", tree))
    snapshot["nics"][0]["name"] = "mlx\u001b[31m5_0<&>"
    snapshot["host"] = "a\u001b]0;x\u0007"
    snapshot["warnings"] = ["look \u001b[2J here"]
    (tmp_path / "a.json").write_text(json.dumps(snapshot))
    for words in ([], ["--tree"], ["--svg=-"]):
        done = topo("--from", tmp_path / "a.json", *words)
        assert done.returncode == 0 and "\x1b" not in done.stdout + done.stderr and "\x07" not in done.stdout, done
        assert "look ?[2J here" in done.stderr
    ElementTree.fromstring(topo("--from", tmp_path / "a.json", "--svg=-").stdout)


# --- time ------------------------------------------------------------------------------------------------------------


def test_looking_is_quick():
    """hwloc's own time is not compared here (it is measured elsewhere), but the command must be quick."""
    import time
    times = []
    for _ in range(5):
        start = time.monotonic()
        good()
        times.append(time.monotonic() - start)
    assert min(times) < harness.SLOWER, times
