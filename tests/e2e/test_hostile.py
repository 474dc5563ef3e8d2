"""`muster topo` and `muster env` with damaged trees and files: they give an answer or an error sentence, in time, in a
bounded amount of memory, and print only text.

    MUSTER_TEST_SEED=7 …                            repeats one tree
    MUSTER_TEST_SCALE=slow …                        many of them
"""
import json
import os
import pathlib
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

import harness

sys.path.insert(0, str(harness.HERE.parent / "tools"))
import make_tree  # noqa: E402

SLOW = os.environ.get("MUSTER_TEST_SCALE") == "slow"
SEEDS = [int(os.environ["MUSTER_TEST_SEED"])] if os.environ.get("MUSTER_TEST_SEED") else range(1, 1000 if SLOW else 13)
SANITIZED = b"__asan_init" in pathlib.Path(harness.MUSTER).read_bytes() if harness.MUSTER else False
MEMORY_KIB = (1 << 30 if SANITIZED else 1200 << 10)  # hwloc's trial process can use 1 GiB
SECONDS = 30
UNCLEAN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def run(*words):
    """(status, stdout, stderr) of muster. Checks that it ended by itself and in time, in bounded memory, and wrote
    plain text."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "HWLOC_", "SLURM_"))}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen([*harness.muster(), *map(str, words)], env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        fd, end = os.pidfd_open(child.pid), harness.deadline(SECONDS)
        try:
            ended = select.select([fd], [], [], max(0.0, end - time.monotonic()))[0]
            if not ended:
                os.kill(child.pid, signal.SIGKILL)
            _, status, used = os.wait4(child.pid, 0)
        finally:
            os.close(fd)
        child.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for f in (out, err):
            f.seek(0)
            texts.append(f.read().decode(errors="surrogateescape"))
    assert ended, f"{words} still ran after {SECONDS} s: {texts}"
    assert child.returncode in (0, 1), (words, child.returncode, texts[1][-2000:])
    assert used.ru_maxrss < MEMORY_KIB, f"{words}: {used.ru_maxrss} KiB"
    for text in texts:
        bad = UNCLEAN.search(text)
        assert not bad, f"{words}: {bad.group()!r} in …{text[max(0, bad.start() - 80):bad.end() + 20]!r}"
        text.encode()  # well-formed: contains no byte that could not be decoded
    if child.returncode == 1:
        assert re.search("^muster: error: .{10,}$", texts[1], re.M), (words, texts)
    return child.returncode, *texts


# --- trees -----------------------------------------------------------------------------------------------------------

TEXTS = [b"", b"\n", b"-1\n", b"-9223372036854775809\n", b"0\n", b"99999999999999999999999\n", b"4294967295\n", b"0x\n",
         b"2147483648\n", b"0-4294967295\n", b"5-2\n", b"1,,3\n", b"\xff\xfe\0\x01" * 64, b"\0" * 5000, b"A" * (1 << 20),
         b"7," * (1 << 19), b"ffffffff," * 4096 + b"ffffffff\n", b"\x1b[2J\x1b]0;x\x07\n", "\u009b2J\u202e\n".encode(),
         b"1e99\n", b"nan\n", b" \t \n", b"%s%n%s\n", b"../../../../etc/passwd\n", b"Node 0 MemTotal: -5 kB\n"]
NAMES = ["a\x1b[31m", "\u009b31mx", "b\n", "c" * 200, "%n%s", "pci0000:zz", "0000:ff:1f.7", "node99999999", "cpu4294967296",
         "card-1", "..x", "mlx5_0 ", b"\xff\xfe".decode(errors="surrogateescape"), "eth0@\t"]


def put(path, rng):
    """Replaces a file by something of another kind."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    kinds = ["text"] * 6 + ["none", "folder", "loop", "dangling", "up", "zero", "far", "sparse"]
    if "driver/nvidia" in str(path) or rng.random() < 0.02:  # if hwloc opens it, its trial of 4 s is used up
        kinds += ["fifo"] * 10
    kind = rng.choice(kinds)
    if kind == "text":
        path.write_bytes(rng.choice(TEXTS))
    else:
        put_kind(path, kind)
    return kind


def put_kind(path, kind):
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "sparse":
        with open(path, "wb") as f:
            f.truncate(1 << 31)
    elif kind != "none":
        path.symlink_to({"loop": path.name, "dangling": "nowhere", "up": "../" * 2, "zero": "/dev/zero", "far": "x/" * 2000}[kind])


def damage(root, rng, n):
    """Makes n faults in a made tree. Returns a list of them."""
    places = sorted(p for p in root.rglob("*") if p != root)
    small = [p for p in places if "cpu/cpu" not in str(p)]  # most of the files are those of single CPUs
    done = []
    for _ in range(n):
        path = rng.choice(small if rng.random() < 0.8 else places)
        if not os.path.lexists(path):
            continue  # was removed with its folder
        if path.is_dir() and not path.is_symlink() and rng.random() < 0.7:
            name = rng.choice(NAMES)
            if os.path.lexists(path / name):
                continue
            (path / name).write_bytes(rng.choice(TEXTS)) if rng.random() < 0.5 else os.symlink("../" * 3, path / name)
            done.append(f"{path.relative_to(root)} + {name!r}")
        else:
            done.append(f"{path.relative_to(root)}: {put(path, rng)}")
    return done


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    """{preset: a folder} of small presets."""
    base = tmp_path_factory.mktemp("made")
    for preset in ("2s-8gpu-8nic", "roce-v2", "docker-noise", "slingshot", "gpu-memory", "vm-domains"):
        make_tree.make(preset, base / preset, cores=2, smt=1)
    return {p.name: p for p in base.iterdir()}


def test_a_sound_tree_and_this_machine_in_every_form(trees, tmp_path):
    """The test that runs under valgrind."""
    xml = tmp_path / "a.xml"
    assert run("topo", "--sysroot", trees["2s-8gpu-8nic"], "--svg", tmp_path / "a.svg", "--nccl-xml", xml, "--tree")[0] == 0
    assert run("topo", "--from", xml)[0] == run("topo", "--check-nccl-xml", xml)[0] == 0
    assert run("env", "--sysroot", trees["2s-8gpu-8nic"], "--explain")[0] == run("topo", "--json")[0] == 0
    # there can be warnings about this machine, which are not errors of the program
    done = subprocess.run([*harness.muster(), "check"], capture_output=True, text=True, timeout=60 * harness.SLOWER)
    assert done.returncode in (0, 1) and re.search("^(ok|warn|fail) ", done.stdout, re.M), done


@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_tree_is_shown_or_refused(trees, tmp_path, seed):
    rng = random.Random(seed)
    root = tmp_path / "tree"
    preset = rng.choice(sorted(trees))
    shutil.copytree(trees[preset], root, symlinks=True)
    faults = damage(root, rng, rng.choice((1, 3, 10, 40)))
    print(f"MUSTER_TEST_SEED={seed}: {preset}:", *faults, sep="\n    ")
    code, out, _ = run("topo", "--json", "--sysroot", root)
    if code == 0:
        (tmp_path / "a.json").write_text(out)
        assert run("topo", "--from", tmp_path / "a.json", "--tree", "--svg", tmp_path / "a.svg")[0] == 0, "it reads what it wrote"
    run("topo", "--sysroot", root, "--nccl-xml", tmp_path / "a.xml")
    run("env", "--sysroot", root, "--explain")


@pytest.mark.parametrize("command, name", [
    ("topo", "proc/cpuinfo"), ("env", "sys/class/dmi/id/sys_vendor"), ("env", "proc/driver/nvidia/version"),
    ("topo", "sys/devices/virtual/net/lo/mtu"), ("env", "etc/nccl.conf"),
])
def test_a_pipe_in_a_tree_is_no_trap(trees, tmp_path, command, name):
    root = tmp_path / "tree"
    shutil.copytree(trees["roce-v2"], root, symlinks=True)
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).unlink(missing_ok=True)
    os.mkfifo(root / name)
    assert run(command, "--sysroot", root)[0] == 0


def test_a_tree_that_fills_the_memory_is_left_to_the_file_system(trees, tmp_path):
    """hwloc reads a file completely, whatever its size."""
    root = tmp_path / "tree"
    shutil.copytree(trees["roce-v2"], root, symlinks=True)
    for name in ("possible", "online"):
        (root / "sys/devices/system/cpu" / name).unlink()
        put_kind(root / "sys/devices/system/cpu" / name, "sparse")
    code, out, err = run("topo", "--sysroot", root)
    assert code == 0 and "mlx5_0" in out and "cores, caches and NUMA nodes are" in err, (out, err)


def test_a_pipe_that_hwloc_opens_costs_its_deadline_and_a_warning(trees, tmp_path):
    root = tmp_path / "tree"
    shutil.copytree(trees["roce-v2"], root, symlinks=True)
    online = root / "sys/devices/system/cpu/online"
    online.unlink()
    os.mkfifo(online)
    code, out, err = run("topo", "--sysroot", root)
    assert code == 0 and "mlx5_0" in out, (out, err)
    assert "hwloc has not read it after 4 s" in err and "cores, caches and NUMA nodes are" in err


def test_names_that_are_no_text_are_counted(trees, tmp_path):
    root = tmp_path / "tree"
    shutil.copytree(trees["roce-v2"], root, symlinks=True)
    net = root / "sys/class/net"
    for name in (b"a\x1b[2Jb", b"c\nd", b"\xff\xfe", b"e" * 100, "f\u009bg".encode()):
        os.symlink(os.readlink(net / "lo"), os.path.join(os.fsencode(net), name))
    os.symlink(os.readlink(net / "lo"), net / "g h<&>\u00e4%n")
    code, out, err = run("topo", "--json", "--sysroot", root)
    assert code == 0 and "/sys/class/net: entries with names that are too long, or no text, are not read: 5" in err, err
    assert "g h<&>\u00e4%n" in {n["name"] for n in json.loads(out)["interfaces"]}


def test_nothing_of_a_large_node_is_cut_silently(tmp_path):
    """Twice as much as any machine has now, but few CPUs, because those have many files."""
    places = tuple(make_tree.Place(i % 64, [make_tree.Gpu(), *(make_tree.infiniband(i * 4 + k) for k in range(4))], domain=i)
                   for i in range(16))
    make_tree.make("2s-cpu", tmp_path / "tree", sockets=2, nodes=32, cores=1, smt=2, places=places,
                   virtual=tuple(make_tree.Virtual(f"veth{i}", "veth") for i in range(1000 if SLOW else 200)))
    found = json.loads(run("topo", "--json", "--sysroot", tmp_path / "tree")[1])
    assert [len(found[k]) for k in ("numa", "gpus", "nics", "links")] == [64, 16, 64, 80 * 79 // 2]
    assert len(found["interfaces"]) == (1000 if SLOW else 200) + 64 + 1 and found["allowed"] == "0-127"
    code, out, err = run("topo", "--sysroot", tmp_path / "tree")
    assert code == 0 and all(f"\n{name} " in out for name in ("GPU15", "mlx5_63")), out
    assert "mlx5_32 to mlx5_63 are left out: NCCL takes 32 RDMA ports at most" in err
    make_tree.make("2s-cpu", tmp_path / "more", cores=1, virtual=tuple(make_tree.Virtual(f"veth{i}", "veth") for i in range(2060)))
    assert "more than 2048 network interfaces: the rest is left out" in run("topo", "--sysroot", tmp_path / "more")[2]


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sparse", "dangling", "loop"])
def test_a_file_that_is_no_file(tmp_path, kind):
    path = tmp_path / "file"
    put_kind(path, kind)
    for words in (("topo", "--from", path), ("env", "--from", path), ("topo", "--check-nccl-xml", path)):
        code, out, err = run(*words)
        assert code == 1 and not out and str(path) in err, (words, err)


def mutations(text, rng, n):
    """Texts that are similar to this one: cut, doubled, with other numbers or bytes."""
    for _ in range(n):
        t = bytearray(text)
        for _ in range(rng.choice((1, 2, 8, 50))):
            at = rng.randrange(len(t))
            kind = rng.randrange(5)
            if kind == 0:
                t[at] = rng.choice(b'"<>=/&0123456789abcdef:,-{}[] \x1b\x7f\xc2')
            elif kind == 1:
                del t[at:at + rng.choice((1, 10, 200))]
            elif kind == 2:
                t[at:at] = t[rng.randrange(len(t)):][:rng.choice((10, 300))]
            elif kind == 3:
                numbers = list(re.finditer(rb"[0-9a-fx]*[0-9][0-9a-fx]*", bytes(t)))
                m = rng.choice(numbers)
                t[m.start():m.end()] = rng.choice((b"-1", b"0", b"4294967296", b"99999999999999999999", b"0xffffffff", b"1e9"))
            else:
                attributes = list(re.finditer(rb' [a-z_]+="[^"]*"', bytes(t)))
                if attributes:
                    m = rng.choice(attributes)
                    del t[m.start():m.end()]
            if not t:
                t = bytearray(b"<")
        yield bytes(t)


HWLOC_XML = b"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000000f" allowed_cpuset="0x0000000f"
   nodeset="0x00000003" complete_nodeset="0x00000003" allowed_nodeset="0x00000003" gp_index="1">
    <info name="Architecture" value="x86_64"/>
    <object type="Package" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000000f" nodeset="0x00000003"
     complete_nodeset="0x00000003" gp_index="2">
      <object type="NUMANode" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000000f" nodeset="0x00000001"
       complete_nodeset="0x00000001" gp_index="3" local_memory="67108864"/>
      <object type="L3Cache" cpuset="0x0000000f" complete_cpuset="0x0000000f" nodeset="0x00000003"
       complete_nodeset="0x00000003" gp_index="4" cache_size="1048576" depth="3" cache_linesize="64"
       cache_associativity="16" cache_type="0">
        <object type="Core" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000003"
         complete_nodeset="0x00000003" gp_index="5">
          <object type="PU" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000003"
           complete_nodeset="0x00000003" gp_index="6"/>
          <object type="PU" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000003"
           complete_nodeset="0x00000003" gp_index="7"/>
        </object>
        <object type="Core" os_index="1" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000003"
         complete_nodeset="0x00000003" gp_index="8">
          <object type="PU" os_index="2" cpuset="0x00000004" complete_cpuset="0x00000004" nodeset="0x00000003"
           complete_nodeset="0x00000003" gp_index="9"/>
          <object type="PU" os_index="3" cpuset="0x00000008" complete_cpuset="0x00000008" nodeset="0x00000003"
           complete_nodeset="0x00000003" gp_index="10"/>
        </object>
      </object>
      <object type="Bridge" gp_index="11" bridge_type="0-1" depth="0" bridge_pci="0000:[00-3f]">
        <object type="Bridge" os_index="16" gp_index="12" bridge_type="1-1" depth="1" bridge_pci="0000:[01-01]"
         pci_busid="0000:00:01.0" pci_type="0604 [8086:352a] [0000:0000] 04" pci_link_speed="63.015385">
          <object type="PCIDev" os_index="4096" gp_index="13" pci_busid="0000:01:00.0"
           pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="63.015385">
            <object type="OSDev" gp_index="14" name="nvml0" subtype="NVML" osdev_type="5"/>
          </object>
        </object>
        <object type="PCIDev" os_index="32" gp_index="15" pci_busid="0000:00:02.0"
         pci_type="0207 [15b3:1021] [15b3:0001] 00" pci_link_speed="63.015385">
          <object type="OSDev" gp_index="16" name="mlx5_0" osdev_type="3">
            <info name="NodeGUID" value="5c25:7303:00aa:0000"/>
            <info name="Port1State" value="4"/>
          </object>
        </object>
      </object>
    </object>
  </object>
</topology>
"""


@pytest.mark.parametrize("form", ["hwloc", "nccl", "json"])
def test_a_damaged_file_is_shown_or_refused(trees, tmp_path, form):
    """Like the fuzzers, but with the whole program, and with hwloc's own reader."""
    seed = int(os.environ.get("MUSTER_TEST_SEED") or 1)
    path = tmp_path / "file"
    whole = HWLOC_XML
    if form != "hwloc":
        words = ["--json"] if form == "json" else ["--nccl-xml=-"]
        whole = run("topo", "--sysroot", trees["2s-8gpu-8nic"], *words)[1].encode()
    path.write_bytes(whole)
    code, out, _ = run("topo", "--from", path, "--json")
    assert code == 0 and json.loads(out)["gpus"]
    taken = 0
    for i, text in enumerate(mutations(whole, random.Random(seed), 1000 if SLOW else 20)):
        print(f"{form}: seed {seed}, number {i}")
        path.write_bytes(text)
        taken += run("topo", "--from", path)[0] == 0
        if i % 4 == 0:
            run("env", "--from", path, "--explain")
    print(taken, "of them were taken")
