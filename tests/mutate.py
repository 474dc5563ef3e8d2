#!/usr/bin/python3
"""Puts single mistakes into a copy of the source, one at a time, and says which suite notices.

    mutate.py WORK                 all mistakes: those of MISTAKES below, and COUNT more that SEED chooses by pattern
    mutate.py WORK --list          only shows them
    mutate.py WORK --only TEXT     only those whose name holds TEXT
    mutate.py WORK --e2e           what the programs of meson do not notice goes to the end-to-end tests of its folder

WORK is a folder for the copy and its build; it is made, and used again. COUNT=75 and SEED=1 are the environment's. The
tests of the changed room run first, then those of its folder, then all others, then the simulator. A mistake that
nothing can notice, because the program does the same with it, stands in EQUIVALENT with the reason.

Ends with 1 if fewer than 95 % of the mistakes are noticed.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
COUNT, SEED = int(os.environ.get("COUNT", "75")), int(os.environ.get("SEED", "1"))
LEAST = 0.95
TEST_SECONDS = 600

Mistake = collections.namedtuple("Mistake", "name path old new")

# By hand: of the kinds that suites miss most easily. (file, what stands there once, what stands there instead)
MISTAKES = [
    # bounds over time
    ("rendezvous/leader/group_watch.c", "MIN2(2 * n->probe_wait_ns, PROBE_RETRY_MAX_NS)", "2 * n->probe_wait_ns"),
    ("rendezvous/leader/group_watch.c", "MIN2(2 * n->probe_wait_ns, PROBE_RETRY_MAX_NS)", "n->probe_wait_ns"),
    ("rendezvous/server/server_io.c", "n->conn != NULL && conn_unsent(n->conn) < STATUS_UNSENT_MAX", "n->conn != NULL"),
    ("rendezvous/server/listener_io.c", "l->n_pending >= l->pending_max || too_many", "too_many"),
    # state that goes on into the next generation
    ("rendezvous/leader/group.c", "g->losses = MAX2(g->losses, report->losses);", ""),
    ("rendezvous/leader/group.c", "g->restarts_used = MAX2(g->restarts_used, report->restarts_used);", ""),
    ("rendezvous/leader/group.c", "if (report->excluded || !kept->excluded) {", "{"),
    # durability
    ("rendezvous/arbiter/dir/arbiter_folder_io.c", "fsync(f->fd) < 0", "0 < 0"),
    ("rendezvous/arbiter/dir/arbiter_folder_io.c", "only_new && fsync(fd) < 0", "only_new && 0 < 0"),
    ("io/file.c", "fsync(fd) < 0", "0 < 0"),
    # exact boundaries
    ("launcher/supervise/worker_start_io.c", 'strncmp(envp[i], WORKER_MARKER "=", len) != 0',
     'strncmp(envp[i], WORKER_MARKER, len - 1) != 0'),
    ("launcher/supervise/worker_sweep_io.c", "!w->looked_for || strcmp(", "strcmp("),
    # what is kept of a node
    ("rendezvous/leader/group_view.c", ".first_rank = p->first_rank,", ".first_rank = p->node_rank,"),
    ("rendezvous/leader/group_view.c", ".restarts_used = p->restarts_used,", ""),
    ("rendezvous/leader/group_view.c", ".log_nonce = g->config.log_nonce,", ""),
    ("client/store.c", "return muster_store_fail(-ECONNABORTED,", "return muster_store_fail(code,"),
]

# (name of the pattern, what it finds in a line of code, what it makes of it)
PATTERNS = [
    ("less", re.compile(r"(?<= )<(?= )"), "<="),
    ("less or equal", re.compile(r"(?<= )<=(?= )"), "<"),
    ("greater", re.compile(r"(?<= )>(?= )"), ">="),
    ("greater or equal", re.compile(r"(?<= )>=(?= )"), ">"),
    ("equal", re.compile(r"(?<= )==(?= )"), "!="),
    ("and", re.compile(r"(?<= )&&(?= )"), "||"),
    ("or", re.compile(r"(?<= )\|\|(?= )"), "&&"),
    ("plus one", re.compile(r" \+ 1\b"), ""),
    ("minimum", re.compile(r"\bMIN2\("), "MAX2("),
    ("maximum", re.compile(r"\bMAX2\("), "MIN2("),
    ("true", re.compile(r"(?<= = )true(?=;)"), "false"),
    ("false", re.compile(r"(?<= = )false(?=;)"), "true"),
    ("no call", re.compile(r"^( +)(?!assert|log_|return|break|free|\(void\))[a-z_]+\([^;{}]*\);$"), r"\1;"),
    ("no error", re.compile(r"return -E[A-Z]+;"), "return 0;"),
]

# Path and line of mistakes by pattern that change nothing that can be seen -> why.
EQUIVALENT = {}

# Folder -> the end-to-end tests that know it.
END_TO_END = {
    "launcher": "test_run.py test_output.py test_faults.py test_events.py",
    "rendezvous": "test_losses.py test_elastic.py test_succession.py test_operate.py test_store.py test_other_job.py",
    "cli": "test_cli.py test_run.py test_operate.py test_env.py test_check.py",
    "io": "test_run.py test_output.py test_faults.py test_etcd.py",
    "topology": "test_topo.py test_bind.py",
    "nccl_env": "test_env.py",
}


def code_lines(text):
    """(number, line) of what is code: comments and the preprocessor are left out."""
    inside = False
    for number, line in enumerate(text.splitlines()):
        starts = line.lstrip()
        if inside or starts.startswith("/*"):
            inside = "*/" not in line
        elif line.startswith(" ") and '"' not in line and "/*" not in line:
            yield number, line


def by_pattern(chosen):
    """COUNT mistakes, each of another line; the same for the same SEED and source."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.c")):
        for number, line in code_lines(path.read_text()):
            for name, pattern, new in PATTERNS:
                if pattern.search(line):
                    found.append((path.relative_to(ROOT / "src").as_posix(), number, line, name,
                                  pattern.sub(new, line, count=1)))
    chosen.shuffle(found)
    seen = set()
    for path, number, line, name, new in found:
        if (path, number) not in seen and len(seen) < COUNT:
            seen.add((path, number))
            yield Mistake(f"{path}:{number + 1}: {name}: {line.strip()}", path, (number, line), new)


def all_mistakes():
    for path, old, new in MISTAKES:
        text = (ROOT / "src" / path).read_text()
        if text.count(old) != 1:
            sys.exit(f"mutate.py: src/{path} has {text.count(old)} times: {old}")
        yield Mistake(f"{path}: {old} -> {new or 'nothing'}", path, old, new)
    yield from by_pattern(random.Random(SEED))


def changed(text, mistake):
    if isinstance(mistake.old, str):
        return text.replace(mistake.old, mistake.new)
    lines = text.splitlines(keepends=True)
    number, line = mistake.old
    assert lines[number].rstrip("\n") == line
    lines[number] = mistake.new + "\n"
    return "".join(lines)


class Copy:
    """The source in WORK, and its build."""

    def __init__(self, work):
        self.root, self.build = work / "tree", work / "build"
        self.root.mkdir(parents=True, exist_ok=True)
        names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
                               capture_output=True, text=True).stdout.split("\n")
        for name in filter(None, names):
            source, target = ROOT / name, self.root / name
            if source.is_file() and (not target.exists() or target.read_bytes() != source.read_bytes()):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
                os.utime(target)
        if not (self.build / "build.ninja").exists():
            self.run("meson", "setup", self.build, self.root, "-Dbuildtype=debugoptimized", check=True)
        if not self.makes():
            sys.exit(f"mutate.py: {self.root} does not build")
        said = self.run("meson", "introspect", "--tests", self.build, check=True).stdout
        self.tests = [(t["name"], {s.rpartition(":")[2] for s in t["suite"]}) for t in json.loads(said)]

    def run(self, *words, check=False, env=None):
        return subprocess.run([str(w) for w in words], cwd=self.root, check=check, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, env=None if env is None else {**os.environ, **env})

    def makes(self):
        return self.run("ninja", "-C", self.build).returncode == 0

    def notices(self, names):
        """The first of these tests that fails, and fails again alone; or None."""
        names = list(names)
        while names:
            bad = self.fails(names)
            if bad is None or bad not in names or self.fails([bad]):
                return bad
            names.remove(bad)
        return None

    def fails(self, names):
        """The first of these tests that fails, or None."""
        log = self.build / "meson-logs/testlog.json"
        log.unlink(missing_ok=True)
        try:
            done = subprocess.run(["meson", "test", "-C", self.build, "--no-rebuild", "--maxfail=1", *names],
                                  check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=TEST_SECONDS)
        except subprocess.TimeoutExpired:
            return "a test that does not end"
        if done.returncode == 0:
            return None
        bad = [t["name"].rpartition(" / ")[0] and t["name"].partition(" / ")[2] or t["name"]
               for t in map(json.loads, log.read_text().splitlines()) if t["result"] not in ("OK", "SKIP")]
        return bad[0] if bad else "meson test"

    def end_to_end(self, folder):
        files = [f"tests/e2e/{name}" for name in END_TO_END.get(folder, "").split()]
        if not files:
            return None
        done = self.run("/usr/bin/python3", "-m", "pytest", "-q", "-x", "-n", "3", "-p", "no:cacheprovider", *files,
                        env={"MUSTER": str(self.build / "src/cli/muster"), "MUSTER_TEST_SLOWER": "3"})
        bad = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
        return None if done.returncode == 0 else bad.group(1) if bad else "pytest"

    def who_notices(self, mistake, e2e):
        """(stage, test), (None, None) when nobody does, or ("compiler", "")."""
        path = self.root / "src" / mistake.path
        good = path.read_text()
        path.write_text(changed(good, mistake))
        try:
            if not self.makes():
                return "compiler", ""
            room, folder = mistake.path.rpartition("/")[0], mistake.path.split("/")[0]
            plain = [name for name, suites in self.tests if suites & {"unit", "process"}]
            near = [name for name in plain if name.startswith(room + "/")]
            far = [name for name in plain if name.startswith(folder + "/") and name not in near]
            rest = [name for name in plain if name not in near and name not in far]
            others = [name for name, suites in self.tests if suites & {"sim", "fuzz"} and "slow" not in suites]
            for stage, names in (("room", near), ("folder", far), ("unit", rest), ("sim", others)):
                test = self.notices(names)
                if test is not None:
                    return stage, test
            test = self.end_to_end(folder) if e2e else None
            return ("e2e", test) if test else (None, None)
        finally:
            path.write_text(good)
            os.utime(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--e2e", action="store_true")
    words = parser.parse_args()
    mistakes = [m for m in all_mistakes() if words.only in m.name]
    if words.list:
        print("\n".join(m.name for m in mistakes))
        return 0
    copy = Copy(words.work.resolve())
    found, missed = collections.Counter(), []
    for number, mistake in enumerate(mistakes, 1):
        since = time.monotonic()
        why = EQUIVALENT.get(mistake.name)
        stage, test = ("equivalent", why) if why else copy.who_notices(mistake, words.e2e)
        found[stage or "missed"] += 1
        missed += [] if stage else [mistake.name]
        print(f"{number:3} {stage or 'MISSED':10} {time.monotonic() - since:5.0f} s  {mistake.name}"
              + (f"  [{test}]" if test else ""), flush=True)
    counted = sum(n for stage, n in found.items() if stage not in ("equivalent", "compiler"))
    caught = counted - len(missed)
    print("\n" + ", ".join(f"{stage}: {n}" for stage, n in found.most_common()))
    print("\n".join(f"missed: {name}" for name in missed))
    print(f"{caught} of {counted} mistakes noticed ({100 * caught / max(1, counted):.0f} %)")
    return 0 if counted and caught >= LEAST * counted else 1


if __name__ == "__main__":
    sys.exit(main())
