#!/usr/bin/python3
"""A line for each output of muster: its name and its SHA-256. To show that a rearrangement of the source changes
nothing:

    fingerprint.py BUILD > before; (rearrange, build); fingerprint.py BUILD > after; diff before after

That is: the simulator's traces of 2,000 seeds (SEEDS=n for others), the help of every command, topo and env for every
recorded machine, and check and status on this one with all numbers masked.
"""
import concurrent.futures
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
RECORDED = HERE.parents[2] / "shared" / "topologies"
SEEDS = int(os.environ.get("SEEDS", "2000"))
MASK = re.compile(rb"[0-9a-f]*[0-9][0-9a-f]*")


def output(words, **env):
    """Status, standard output and standard error of a command, as one text."""
    done = subprocess.run([str(w) for w in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **env},
                          check=False, timeout=120)
    return b"%d\n%s\n--\n%s" % (done.returncode, done.stdout, done.stderr)


def trace(build, seed):
    """The trace of the simulator's world, without the summary that Criterion prints with its times."""
    said = output([build / "tests/test-sim-group"], SEED=str(seed), SIM_SEEDS="1", FIRST_SEED=str(seed))
    return b"\n".join(line for line in said.splitlines() if re.match(rb" *[0-9]+\.[0-9]{6} ", line))


def recorded(tmp):
    """(name, option) of every recorded machine."""
    for kind in ("hwloc", "nccl-xml", "nccl-xml/derived"):
        for path in sorted((RECORDED / kind).glob("*.xml")):
            yield f"{kind}/{path.name}", f"--from={path}"
    for kind in ("hwloc-sysfs", "sysfs-derived"):
        for path in sorted((RECORDED / kind).glob("*.tar.*")):
            root = tmp / path.name
            with tarfile.open(path) as tar:
                tar.extractall(root)
            while not (root / "sys").exists() and len(list(root.iterdir())) == 1:
                root = next(root.iterdir())
            yield f"{kind}/{path.name}", f"--sysroot={root}"


def things(build, tmp):
    """(name, function that gives the text)."""
    muster = build / "src/cli/muster"
    for seed in range(1, SEEDS + 1):
        yield f"trace {seed}", lambda seed=seed: trace(build, seed)
    for name in ("", "run", "status", "leave", "exclude", "grow", "stop", "env", "check", "store", "topo", "completion",
                 "version"):
        yield f"help {name}", lambda name=name: output([muster, "help"] + [name] * bool(name))
        yield f"--help-all {name}", lambda name=name: output([muster] + [name] * bool(name) + ["--help-all"])
    yield "completion", lambda: output([muster, "completion", "bash"])
    yield "print-config, masked", lambda: MASK.sub(b"#", output([muster, "run", "--print-config", "true"]))
    for machine, option in recorded(tmp):
        for how in ([], ["--json"], ["--tree"], ["--svg=-"], ["--nccl-xml=-"]):
            yield f"topo {machine} {' '.join(how)}", lambda how=how, option=option: output([muster, "topo", option, *how])
        for how in (["--explain"], ["--json"], ["--nnodes=2", "--nproc-per-node=8", "--explain"]):
            yield f"env {machine} {' '.join(how)}", lambda how=how, option=option: output([muster, "env", option, *how])
    for path in sorted((RECORDED / "nccl-xml").glob("*.xml")):
        yield f"topo --check-nccl-xml {path.name}", lambda path=path: output([muster, "topo", f"--check-nccl-xml={path}"])
    for words in (["check"], ["check", "--json"], ["version", "-v"]):
        yield f"{' '.join(words)}, masked", lambda words=words: MASK.sub(b"#", output([muster, *words]))
    for how in ([], ["--json"]):
        run = tmp / f"run{len(how)}"
        run.mkdir(mode=0o700)
        yield f"status {' '.join(how)}, masked", lambda how=how, run=run: MASK.sub(b"#", output(
            [muster, "run", "--no-python", "--nproc-per-node=1", muster, "status", *how], XDG_RUNTIME_DIR=str(run)))


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as tmp, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(things(build, pathlib.Path(tmp)))
        texts = pool.map(lambda thing: thing[1]().replace(tmp.encode(), b"TMP"), found)
        for (name, _), text in zip(found, texts):
            print(name, hashlib.sha256(text).hexdigest()[:16], len(text), flush=True)


if __name__ == "__main__":
    main()
