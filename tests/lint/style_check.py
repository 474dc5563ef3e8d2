#!/usr/bin/python3
"""Checks of the code style that the compiler does not make.

    style_check.py SOURCE_ROOT

  no tabs or trailing blanks in C; lines of at most 100 columns; functions of at most 80 lines; #pragma once in headers;
  no sleeping in a test; no TODO without a number. A file has one noun; its length follows. Over 1,000 lines there are
  almost always two.
"""
import pathlib
import re
import sys

LINE_MAX, FUNCTION_MAX, FILE_MAX = 100, 80, 1000

# This file, what measures how late a sleep ends, and trainers whose fault or pace it is
MAY_SLEEP = ("style_check.py", "stalls.py", "torch_async.py", "torch_hang.py", "torch_healthy.py", "hang_kinds.py", "profile_train.py",
             "torch_recorder.py", "fake_nvml.c")
# An idle worker is not a wait of the test: workers pause() or run `sleep`, and are killed.
SLEEP = {
    ".c": re.compile(r"\b(sleep|usleep|nanosleep|clock_nanosleep|thrd_sleep)\s*\("),
    ".py": re.compile(r"\b(time\.sleep|asyncio\.sleep)\s*\(|^from time import .*\bsleep\b"),
}


def faults_of_c(name, lines):
    faults = []
    start = None
    for n, line in enumerate(lines, 1):
        if "\t" in line:
            faults.append(f"{name}:{n}: a tab")
        if line != line.rstrip():
            faults.append(f"{name}:{n}: blanks at the end of the line")
        if len(line) > LINE_MAX and not name.startswith("tests/"):
            faults.append(f"{name}:{n}: {len(line)} columns, at most {LINE_MAX}")
        if re.search(r"\bTODO\b(?!\(#\d)|\bFIXME\b|\bXXX\b", line):
            faults.append(f"{name}:{n}: a TODO without an issue: TODO(#n)")
        if re.match(r"[A-Za-z_].*\)\s*\{$", line) or line == "{":
            start = n
        elif line.startswith("}") and start is not None:
            if n - start + 1 > FUNCTION_MAX:
                faults.append(f"{name}:{start}: a function of {n - start + 1} lines, at most {FUNCTION_MAX}")
            start = None
    if len(lines) > FILE_MAX and name.startswith("src/"):
        faults.append(f"{name}: {len(lines)} lines, at most {FILE_MAX}: look for the second noun")
    if name.endswith(".h") and "#pragma once" not in lines:
        faults.append(f"{name}: no #pragma once")
    return faults


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    faults, count = [], 0
    for top in ("src", "include", "tests", "examples"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in (".c", ".h", ".py") or not path.is_file():
                continue
            count += 1
            name = path.relative_to(root).as_posix()
            lines = path.read_text(errors="replace").splitlines()
            if path.suffix != ".py":
                faults += faults_of_c(name, lines)
            wait = SLEEP.get(path.suffix)
            paced = name.startswith("tests/gpu/") or path.name in MAY_SLEEP  # the kit takes samples
            if name.startswith("tests/") and wait and not paced:
                faults += [f"{name}:{n}: a test may not sleep; wait for an event with a deadline"
                           for n, line in enumerate(lines, 1) if wait.search(line)]
    if count < 10:
        sys.exit(f"{root}: only {count} files found; is this the source tree?")
    print("\n".join(faults) or f"{count} files, no fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
