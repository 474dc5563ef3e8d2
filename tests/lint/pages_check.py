#!/usr/bin/python3
"""README and the pages in docs/: short enough, with links that lead somewhere and messages that exist.

    pages_check.py ROOT MUSTER

- README has at most 10 KB and 150 lines, a page at most 200 lines; ARCHITECTURE.md and benchmarks.md may have more.
- Each page is listed in docs/README.md.
- A link to a file of the repository leads to one, and its #anchor to a heading.
- Each message in the first column of a table of troubleshooting.md is in src: the parts between "..." are looked for in its string literals.
  So is what "you see" on the pages in YOU_SEE.
- Each command line is run by a test, or tests/e2e/page_lines.py has the reason why not.
- Each option in code within a sentence is one of muster's, of the command that is named there, or one in OTHERS."""
import os
import pathlib
import re
import shlex
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

import page_lines  # noqa: E402

WRAPPER = shlex.split(os.environ.get("MESON_EXE_WRAPPER", ""))  # runs a program of another processor
BYTES_MAX, README_LINES_MAX, LINES_MAX = 10_240, 150, 200
LONG = {"ARCHITECTURE.md", "benchmarks.md"}
MESSAGES_MIN = 30
YOU_SEE = ("hangs", "slurm", "ssh", "warm")  # the pages on libraries have messages of theirs
SSH_PRINTS = ("Permission denied", "Host key verification failed")
# Of other programs. Those with an underscore are never muster's: the pages write its options with hyphens.
OTHERS = {"--checkpoint", "--cleanenv", "--container-image", "--container-mounts", "--from-file", "--gpus-per-node",
          "--gpus-per-task", "--init", "--ip-address", "--jobid", "--network", "--no-kill", "--nodes", "--nproc",
          "--ntasks-per-node", "--nv", "--overlap", "--segment", "--signal", "--user", "--userns"}


def anchors(text):
    """Of the headings, as GitHub makes them."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", text, re.M)}


def links(path, text):
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        found = (path.parent / name) if name else path
        if not found.exists():
            yield f"{target} does not exist"
        elif anchor and found.suffix == ".md" and anchor not in anchors(found.read_text()):
            yield f"{target}: no such heading"


def literals(root):
    """Each run of string literals of a file that C joins, one per line; formats of numbers as they are."""
    whole = []
    for path in sorted((root / "src").rglob("*.[ch]")):
        for run in re.findall(r'"(?:[^"\\\n]|\\.)*"(?:\s*(?:PRI\w+\s*)?"(?:[^"\\\n]|\\.)*")*', path.read_text()):
            whole.append("".join(re.findall(r'"((?:[^"\\]|\\.)*)"', run)).replace('\\"', '"'))
    return "\n".join(whole)


def messages(text, head="message"):
    """The quoted texts of the first cells, of all tables whose head begins so."""
    inside = False
    for line in text.splitlines():
        inside = line.startswith(f"| {head}") or (inside and line.startswith("|"))
        if inside:
            yield from re.findall(r"`([^`]+)`", line.split(" | ")[0])


def options_of(muster):
    """{command: its options}; of "" those of all commands."""
    def named(*words):
        return subprocess.run([*WRAPPER, muster, *words, "--help-all"], check=True, capture_output=True, text=True).stdout
    options = {command: set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", named(command)))
               for command in re.findall(r"^(?:[A-Z][a-z]+:)? +([a-z]+)  ", named(), re.M)}
    return {"": set().union(*options.values()), **options}


def options_in(text):
    """Command or "", and option, as written in code within a sentence; what follows a script is the script's."""
    for code in re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)):
        command = re.search(r"\bmuster ([a-z]+)\b", code)
        for option in re.findall(r"(?<![\w-])--[a-z][\w-]*\*?", code.split(".py ")[0]):
            yield (command[1] if command else "", option)


def check_options(pages, muster):
    known, others = options_of(muster), set()
    for name, text in pages:
        for command, option in options_in(text):
            if option in OTHERS:
                others.add(option)
            elif option.endswith("-*"):
                if not any(real.startswith(option[:-1]) for real in known[""]):
                    yield f"{name}: no option begins with {option[:-1]}"
            elif "_" not in option and option not in known.get(command, known[""]):
                yield f"{name}: muster {command or 'COMMAND'} has no option {option}; if another program has, name it in OTHERS"
    yield from (f"tests/lint/pages_check.py: no page has {option} of OTHERS" for option in sorted(OTHERS - others))


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    readme, docs, faults = root / "README.md", root / "docs", []
    text = readme.read_text()
    if len(text.encode()) > BYTES_MAX or len(text.splitlines()) > README_LINES_MAX:
        faults.append(f"README.md: {len(text.encode())} bytes in {len(text.splitlines())} lines; at most {BYTES_MAX} in {README_LINES_MAX}")
    pages = sorted(docs.glob("*.md"))
    if len(pages) < 10:
        sys.exit(f"{docs}: only {len(pages)} pages; is this the source tree?")
    faults += page_lines.faults(root)
    faults += check_options([(path.name, path.read_text()) for path in [readme, *pages]], sys.argv[2])
    for path in [readme, *(root / f"{name}.md" for name in ("CONTRIBUTING", "SECURITY", "CHANGELOG")), *pages]:
        text = path.read_text()
        faults += [f"{path.relative_to(root)}: {fault}" for fault in links(path, text)]
        if path.parent == docs and path.name != "README.md":
            if path.name not in LONG and len(text.splitlines()) > LINES_MAX:
                faults.append(f"docs/{path.name}: more than {LINES_MAX} lines")
            if f"({path.name})" not in (docs / "README.md").read_text():
                faults.append(f"docs/{path.name} is not listed in docs/README.md")
    source, found = literals(root), list(messages((docs / "troubleshooting.md").read_text()))
    for message in found:
        parts = [part.strip() for part in message.split("...") if part.strip()]
        for part in parts:
            if part not in source:
                faults.append(f'docs/troubleshooting.md: "{part}" of a message is not in src')
        if not any(len(part) >= 7 for part in parts):
            faults.append(f'docs/troubleshooting.md: "{message}" is too short to be recognized')
    for page in YOU_SEE:
        for message in messages((docs / f"{page}.md").read_text(), "you see"):
            parts = [part.strip() for part in re.split(r"\.\.\.|\b\d+\b|/\S+|\bbecause\b|: ", message) if part.strip()]
            faults += [f'docs/{page}.md: "{part}" of a message is not in src' for part in parts
                       if message not in SSH_PRINTS and part not in source and part not in ("muster", "cold", "warning")]
    if len(found) < MESSAGES_MIN:
        faults.append(f"docs/troubleshooting.md: {len(found)} messages; at least {MESSAGES_MIN}")
    print("\n".join(faults), file=sys.stderr)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
