#!/usr/bin/python3
"""Counts the tests that really ran, and ends with one line: N passed, N failed, N skipped.

    summary.py RESULTS_DIR

RESULTS_DIR holds, one file per step of tests/run.sh:
  LABEL.xml      JUnit, of meson (each TAP point of a test program counts, not the program) or of pytest
  LABEL.json     meson's own log of the same run: a program that timed out or crashed has no failed TAP point
  LABEL.failed   a step that could not be run at all, with the reason: counts as one failure
  LABEL.skipped  a step that was left out, one reason a line: each counts as one skipped
  repeated.txt   tests that were run again because the machine stood still, one a line
Exit status 1 when anything failed, or nothing ran.
"""
import json
import pathlib
import sys
import xml.etree.ElementTree as ET


def cases(path):
    """(name, outcome, text) of each test case of a JUnit file."""
    for suite in ET.parse(path).getroot().iter("testsuite"):
        for case in suite.findall("testcase"):
            name = "::".join(filter(None, (case.get("classname") or suite.get("name"), case.get("name"))))
            bad = next((case.find(tag) for tag in ("failure", "error") if case.find(tag) is not None), None)
            skipped = case.find("skipped")
            if bad is not None:
                yield name, "failed", "\n".join(filter(None, (bad.get("message"), (bad.text or "").strip())))
            elif skipped is not None:
                yield name, "skipped", skipped.get("message") or (skipped.text or "").strip()
            else:
                yield name, "passed", ""


def tell_skipped(skipped, path):
    """One line for each reason and file of tests, so that what failed is not lost among them; all names into `path`."""
    groups = {}
    for label, name, text in skipped:
        groups.setdefault((label, name.rpartition("::")[0] or name, first_line(text)), []).append(name)
    for (label, where, reason), names in groups.items():
        which = names[0] if len(names) == 1 else f"{where}, {len(names)} tests"
        print(f"skipped: [{label}] {which}" + (f": {reason}" if reason else ""))
    path.write_text("".join(f"[{label}] {name}: {first_line(text)}\n" for label, name, text in skipped))
    if skipped:
        print(f"each by name: {path}")


def tell_failed(failed, whole=10, lines=40):
    """Prints the end of the first one's output, which has the reason, then a line for each."""
    for label, name, text in failed[:whole]:
        print(f"\n-- [{label}] {name}", *text.splitlines()[-lines:], sep="\n   ")
    for label, name, text in failed:
        print(f"failed: [{label}] {name}: {first_line(text)}")


def first_line(text):
    return text.splitlines()[0][:200] if text else ""


def main():
    folder = pathlib.Path(sys.argv[1])
    found = {"passed": [], "failed": [], "skipped": []}
    for path in sorted(folder.iterdir(), reverse=True):  # LABEL.xml before LABEL.json
        label = path.stem
        if path.suffix == ".xml":
            try:
                counts = dict.fromkeys(found, 0)
                for name, outcome, text in cases(path):
                    found[outcome].append((label, name, text))
                    counts[outcome] += 1
                print(f"{label}: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
                if sum(counts.values()) == 0:
                    found["failed"].append((label, "the step", "no test ran in it"))
            except ET.ParseError as error:
                found["failed"].append((label, path.name, f"unreadable: {error}"))
        elif path.suffix == ".json":
            named = " ".join(name for step, name, _ in found["failed"] if step == label)
            for test in map(json.loads, path.read_text().splitlines()):
                if test["result"] not in ("OK", "SKIP", "EXPECTEDFAIL") and test["name"].split(" / ")[-1] not in named:
                    found["failed"].append((label, test["name"], test["result"]))
        elif path.suffix == ".failed":
            found["failed"].append((label, "the step", path.read_text().strip()))
        elif path.suffix == ".skipped":
            found["skipped"] += [(label, line, "") for line in path.read_text().splitlines() if line]
    tell_skipped(found["skipped"], folder / "skipped.txt")
    if (folder / "repeated.txt").exists():
        print("".join(f"repeated: {line}\n" for line in (folder / "repeated.txt").read_text().splitlines()), end="")
    tell_failed(found["failed"])
    passed, failed, skipped = (len(found[what]) for what in ("passed", "failed", "skipped"))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
