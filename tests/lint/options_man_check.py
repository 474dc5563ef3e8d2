#!/usr/bin/env python3
"""options_man_check.py MUSTER MAN_DIR: each option and command of `--help-all` is in its page, with a value if it takes one, and
each that is in a page is in the help. The same for the keys of --print-config. Options in the text of any page exist."""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

WRAPPER = shlex.split(os.environ.get("MESON_EXE_WRAPPER", ""))  # runs a program of another processor


def help_text(muster, *words):
    return subprocess.run([*WRAPPER, muster, *words, "--help-all"], check=True, capture_output=True, text=True).stdout


def options_of_help(text):
    """{"--nnodes": True, …}: True if it takes a value. Includes letters."""
    found = {}
    for letter, name, value in re.findall(r"^  (?:-(\w), )?--([a-z-]+)(\[?=\S+)?$", text, re.M):
        found["--" + name] = bool(value)
        if letter:
            found["-" + letter] = bool(value)
    return found


def options_of_page(page):
    section = re.search(r"^\.Sh OPTIONS$(.*?)^\.Sh ", page, re.M | re.S)
    found = {}
    for line in re.findall(r"^\.It (Fl .*)$", section.group(1), re.M):
        value = " Ns = Ns " in line
        for name in re.findall(r"\bFl (-?[A-Za-z-]+)", line):
            found["-" + name] = value
    return found


def commands_of_help(text):
    return set(re.findall(r"^(?:[A-Z][a-z]+:)? +([a-z]+)  ", text, re.M))


def commands_of_page(page):
    section = re.search(r"^\.Sh COMMANDS$(.*?)^\.Sh ", page, re.M | re.S)
    return set(re.findall(r"^\.It Cm ([a-z]+)", section.group(1), re.M))


def keys_of_page(page):
    section = re.search(r"^\.Sh PRINTED SETTINGS$(.*?)^\.Sh ", page, re.M | re.S)
    return set(re.findall(r"\b[a-z][a-z0-9_]+\b", " ".join(re.findall(r"^\.It Cm (.*)$", section.group(1), re.M))))


def options_in_text(page):
    """Long options anywhere in a page."""
    return {"-" + name for line in re.findall(r"^\..*\bFl .*$", page, re.M) for name in re.findall(r"(?:Fl|,) (-[a-z][a-z-]+)", line)}


def example_lines(page):
    """Command lines of muster in examples, with their continuations."""
    blocks = re.findall(r"^\.Bd -literal.*?\n(.*?)^\.Ed$", page, re.M | re.S) + re.findall(r"^\.Dl (.*)$", page, re.M)
    lines = "\n".join(blocks).replace("\\e\n", " ").replace("\\(dq", '"').splitlines()
    return [line for line in lines if re.match(r"(\$ )?(exec )?muster [a-z]", line)]


# A page, the fewest options that it can have, and the commands that it describes.
PAGES = [
    ("muster-run.1", 30, ["run"]),
    ("muster-status.1", 7, ["status"]),
    ("muster-store.1", 3, ["store"]),
    ("muster-ps.1", 4, ["ps"]),
    ("muster-stacks.1", 8, ["stacks"]),
    ("muster-profile.1", 10, ["profile"]),
    ("muster-logs.1", 11, ["logs"]),
    ("muster-keygen.1", 3, ["keygen"]),
    ("muster-notify.1", 2, ["notify"]),
    ("muster-topo.1", 8, ["topo"]),
    ("muster-check.1", 10, ["check"]),
    ("muster-env.1", 12, ["env"]),
    ("muster-operate.1", 6, ["leave", "exclude", "grow", "stop"]),
]


def main():
    muster, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    problems = []
    commands, in_page = commands_of_help(help_text(muster)), commands_of_page((folder / "muster.1").read_text())
    problems += [f"muster.1: no command {c}" for c in sorted(commands - in_page)]
    problems += [f"muster.1: {c} is no command" for c in sorted(in_page - commands)]
    n_options, known, mentioned = 0, set(), 0
    for name, at_least, of in PAGES:
        ours, page = {}, options_of_page((folder / name).read_text())
        for command in of:
            ours |= options_of_help(help_text(muster, command))
        n_options += len(ours)
        known |= ours.keys()
        if len(ours) < at_least:
            problems.append(f"only {len(ours)} options read from the help of {of}: is this check blind?")
        problems += [f"{name}: no {o}" for o in sorted(ours.keys() - page.keys())]
        problems += [f"{name}: {o} is no option" for o in sorted(page.keys() - ours.keys())]
        problems += [f"{name}: {o}: with or without a value?" for o in sorted(ours.keys() & page.keys())
                     if ours[o] != page[o]]
    for path in sorted(folder.glob("*.[1-8]")):
        names = options_in_text(path.read_text())
        mentioned += len(names)
        for line in example_lines(path.read_text()):
            ours = line.split("--ssh")[0].split(".py")[0]  # the rest is for ssh or the script
            names |= set(re.findall(r" (--[a-z-]+)", ours))
        problems += [f"{path.name}: there is no option {o}" for o in sorted(names - known)]
    if mentioned < 300:
        problems.append(f"only {mentioned} options found in the text of the pages: is this check blind?")
    page = (folder / "muster-run.1").read_text()
    if len(example_lines(page[:page.index(".Sh OPTIONS")])) < 12:
        problems.append("muster-run.1: fewer than 12 examples before its options")
    printed = subprocess.run([*WRAPPER, muster, "run", "--print-config", "x"], check=True, capture_output=True, text=True).stdout
    keys, in_page = set(json.loads(printed)), keys_of_page((folder / "muster-files.5").read_text())
    problems += [f"muster-files.5: no key {k} of --print-config" for k in sorted(keys - in_page)]
    problems += [f"muster-files.5: {k} is not a key of --print-config" for k in sorted(in_page - keys)]
    print("\n".join(problems) or f"{n_options} options and {len(commands)} commands agree")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
