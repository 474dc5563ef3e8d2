#!/usr/bin/python3
"""Plain English in the source, the man pages and the documentation.

    words_check.py SOURCE_ROOT               fails if a folder has more of these words than ALLOWED
    words_check.py SOURCE_ROOT --all         prints every place, allowed or not
    words_check.py SOURCE_ROOT --count       prints the numbers for ALLOWED

Programs print, report, log, warn, refuse: they don't say or tell. WORDS has what to write instead. ALLOWED is how many are
left in each folder; a commit may only lower it. If a folder has more, the places in lines that the branch has added are
printed, or all of them if git can't tell which these are. READERS are words that only people who read the source know: they
are counted in string literals of src, which are messages and help texts, and in the pages.
"""
import collections
import pathlib
import re
import subprocess
import sys

WORDS = [  # a pattern, and what to write
    (r"told|tells?", "reported, sent, notified, ordered; a value shows"),
    (r"said|says?|saying", "reported, logged, printed; a page describes"),
    (r"nobody|somebody|everybody|whoever", "no one, no process; the process that"),
    (r"anew", "again"),
    (r"(?<!there )(?:is|are|was|were) no(?! longer| more| other|-|:|\.|,)", "is not a"),
    (r"(?:go|goes|went|going) on", "continue"),
    (r"strangers?", "unauthenticated peer, other process"),
    (r"but for", "except"),
    (r"hears?|heard", "receives, is notified"),
]
READERS = [
    (r"heads?(?! -| of)|head of the job", "the launcher process; in messages: this command"),
    (r"arbiters?", "the shared directory, or etcd"),
    (r"incarnations?|epochs?", "leave it out"),
    (r"joiners?|callers?", "joining node, client"),
    (r"digests?", "node summary"),
    (r"(?:is|are|was|were) left(?! out)|stays?", "remains"),
    (r"whose (?:it|this|that)", "its owner"),
    (r"the ways?(?! to)", "the route, the address"),
    (r"may you|shall", "can, must"),
    (r"what there is|likewise", "a noun"),
]
# The specifications define epochs and the arbiter, and ARCHITECTURE.md names parts of the source.
NOT_FOR_READERS = {"muster-rendezvous.7", "muster-arbiter.7", "muster-protocol.7", "ARCHITECTURE.md"}
ALLOWED = {
    "docs": 1,
    "man": 4,
    "src/cli": 21,
    "src/launcher": 243,
    "src/rendezvous": 223,
    "src/watchdog": 5,
}
ALLOWED_READ = {
    "CHANGELOG.md": 2,
    "CONTRIBUTING.md": 2,
    "README.md": 1,
    "docs": 2,
    "man": 20,
    "src/cli": 3,
    "src/io": 1,
    "src/launcher": 2,
    "src/nccl_env": 2,
    "src/rendezvous": 7,
    "src/topology": 2,
    "src/watchdog": 3,
}
LIMITS = {**ALLOWED, **{f"{folder}, read": limit for folder, limit in ALLOWED_READ.items()}}
TOPS = ("src", "include", "man", "docs", "examples")
KINDS = {".c", ".h", ".md", ".1", ".5", ".7", ".py"}


def folder_of(name):
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] == "src" else parts[0]


def for_readers(path, line):
    """The part of a line that users read: of C the texts of several words, of a page all but code."""
    if path.suffix in (".c", ".h") and "/examples/" not in str(path):
        return " ".join(s for s in re.findall(r'"((?:[^"\\]|\\.)*)"', line) if " " in s and not line.startswith("#include"))
    return "" if path.suffix == ".py" or "/examples/" in str(path) else re.sub(r"`[^`]*`", "", line)


def added(root):
    """The lines that are not on main: "file:number"."""
    def git(*words):
        return subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=False).stdout
    base = git("merge-base", "HEAD", "main").strip()
    if base == git("rev-parse", "HEAD").strip():
        base = "HEAD" if git("status", "--porcelain", "-uno") else "HEAD~1"
    lines, name = set(), ""
    for line in git("diff", "--unified=0", "--no-renames", base or "HEAD").splitlines():
        if line.startswith("+++ b/"):
            name = line[6:]
        elif m := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            lines |= {f"{name}:{n}" for n in range(int(m[1]), int(m[1]) + int(m[2] or 1))}
    return lines


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    files = [p for top in TOPS for p in sorted((root / top).rglob("*")) if p.suffix in KINDS and p.is_file()]
    files += [root / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")]
    if len(files) < 100:
        sys.exit(f"{root}: only {len(files)} files found; is this the source tree?")
    # in identifiers, too: told_ns, is_told
    patterns = [(re.compile(rf"(?<![A-Za-z])(?:{p})(?![A-Za-z])", re.I), instead) for p, instead in WORDS]
    readers = [(re.compile(rf"(?<![\w-])(?:{p})(?![\w-])", re.I), instead) for p, instead in READERS]
    places = collections.defaultdict(list)
    for path in files:
        name = path.relative_to(root).as_posix()
        for n, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            for pattern, instead in patterns:
                for m in pattern.finditer(line):
                    places[folder_of(name)].append(f'{name}:{n}: "{m[0].strip()}": write {instead}')
            read = for_readers(path, line) if path.name not in NOT_FOR_READERS else ""
            for pattern, instead in readers if read else []:
                for m in pattern.finditer(read):
                    places[f"{folder_of(name)}, read"].append(f'{name}:{n}: "{m[0].strip()}": write {instead}')
    if "--all" in sys.argv:
        print("\n".join(line for folder in sorted(places) for line in places[folder]))
    faults = [folder for folder in places if len(places[folder]) > LIMITS.get(folder, 0)]
    ours = added(root) if faults else set()
    for folder in faults:
        print("\n".join([p for p in places[folder] if ":".join(p.split(":")[:2]) in ours] or places[folder]))
        print(f"{folder}: {len(places[folder])} such words, {LIMITS.get(folder, 0)} are allowed (tests/lint/words_check.py)")
    if "--count" in sys.argv:
        print({f: len(p) for f, p in sorted(places.items())})
    if not faults:
        print(f"{len(files)} files, no new word")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
