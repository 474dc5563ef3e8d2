#!/usr/bin/python3
"""Repeats the tests of `meson test` that failed while the machine stood still (stalls.py), and corrects its logs.

    meson_again.py BUILD_DIR LOGBASE [ARGS...]

ARGS are further arguments of `meson test`, such as --setup.
"""
import json
import pathlib
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

import stalls


def read_log(path):
    return {test["name"]: test for test in map(json.loads, path.read_text().splitlines())}


def to_repeat(log):
    """{name: for how long the machine stood still} of the failed tests that had not their time."""
    since_boot, found = time.monotonic() - time.time(), {}
    for name, test in log.items():
        if test["result"] not in ("OK", "SKIP", "EXPECTEDFAIL"):
            begin = test["starttime"] + since_boot
            seconds = stalls.total(begin - 1, begin + test["duration"])
            if seconds >= stalls.STOOD_STILL_S:
                found[name] = seconds
    return found


def replace_suites(path, newer):
    """The suites of the JUnit file `newer` take the places of those of the same name."""
    tree = ET.parse(path)
    root, new = tree.getroot(), {suite.get("name"): suite for suite in ET.parse(newer).getroot().iter("testsuite")}
    for i, suite in enumerate(root):
        root[i] = new.get(suite.get("name"), suite)
    tree.write(path, encoding="utf-8", xml_declaration=True)


def main():
    build, base, *args = sys.argv[1:]
    logs = pathlib.Path(build, "meson-logs")
    path = logs / f"{base}.json"
    log = read_log(path)
    for _ in range(stalls.TRIES - 1):
        names = to_repeat(log)
        if not names:
            return
        for name, seconds in names.items():
            stalls.record_repeat(name, seconds)
        subprocess.run(["meson", "test", "-C", build, "--no-rebuild", "--print-errorlogs", "--logbase", "again", *args,
                        *(name.split(" / ")[-1] for name in names)], stdin=subprocess.DEVNULL, check=False)
        again = next(logs.glob("again*.json"))
        log.update(read_log(again))
        path.write_text("".join(json.dumps(test) + "\n" for test in log.values()))
        replace_suites(logs / f"{base}.junit.xml", again.with_suffix(".junit.xml"))
        for old in logs.glob("again*"):
            old.unlink()


if __name__ == "__main__":
    main()
