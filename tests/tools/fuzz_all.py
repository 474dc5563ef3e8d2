#!/usr/bin/python3
"""Runs every libFuzzer target of a build for RUNS inputs each, from a copy of its corpus, and writes JUnit.

    RUNS=1000000 fuzz_all.py BUILD_DIR RESULT.xml
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET

CORPUS = pathlib.Path(__file__).resolve().parent.parent / "fuzz" / "corpus"


def fuzz(target, runs, folder):
    """None, or what went wrong; new inputs and crashes go to `folder`."""
    corpus = folder / target.name
    shutil.copytree(CORPUS / target.name, corpus)
    words = [str(target), f"-runs={runs}", "-max_len=4096", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1",
             f"-artifact_prefix={folder}/", str(corpus)]
    dictionary = CORPUS.parent / f"{target.name}.dict"
    if dictionary.exists():
        words.append(f"-dict={dictionary}")
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=3600,
                          env=dict(os.environ, ASAN_OPTIONS="detect_leaks=1", UBSAN_OPTIONS="halt_on_error=1"))
    said = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    ran = int(said.group(1)) if said else 0
    print(f"{target.name}: {ran} inputs, status {done.returncode}", flush=True)
    if done.returncode != 0:
        seed = re.search(r"Seed: (\d+)", done.stderr)
        return f"seed {seed.group(1) if seed else '?'}\n{done.stderr[-4000:]}"
    return None if ran >= runs else f"only {ran} of {runs} inputs ran"


def main():
    build, result = pathlib.Path(sys.argv[1]), sys.argv[2]
    runs = int(os.environ.get("RUNS", "1000000"))
    targets = sorted(p for p in (build / "tests" / "fuzz").iterdir()
                     if p.name.startswith("fuzz-") and p.is_file() and os.access(p, os.X_OK))
    suite = ET.Element("testsuite", name="fuzz")
    with tempfile.TemporaryDirectory(prefix="muster-fuzz-") as folder:
        for target in targets:
            wrong = fuzz(target, runs, pathlib.Path(folder))
            case = ET.SubElement(suite, "testcase", classname="fuzz", name=target.name)
            if wrong:
                ET.SubElement(case, "failure", message=wrong.splitlines()[0]).text = wrong
                print(wrong)
    root = ET.Element("testsuites")
    root.append(suite)
    ET.ElementTree(root).write(result)


if __name__ == "__main__":
    main()
