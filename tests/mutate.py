#!/usr/bin/python3
"""Puts single mistakes into a copy of the source, one at a time, and reports which suite notices each.

    mutate.py WORK                 all mistakes: those of MISTAKES below, and COUNT more that SEED chooses by pattern
    mutate.py WORK --list          only shows them
    mutate.py WORK --only TEXT     only those whose name contains TEXT: those by hand, and COUNT by pattern
    mutate.py WORK --e2e           mistakes that the programs of meson do not notice go to the end-to-end tests of its folder
    mutate.py WORK --plain         without ASan and UBSan: faster, but notices less
    mutate.py --check              checks that all entries below are still in the source

WORK is a folder for the copy and its build; it is created, and used again. COUNT=90 and SEED=1 are set by the
environment; the same seed chooses the same lines as long as they are in the source. The file's own test runs first,
then those of its room, the simulator with few seeds, those of its folder, all others, and the simulator with many. Only
programs that contain the mistake are built, with ASan and UBSan. A mistake that can't be noticed, because the program
behaves the same with it, is in EQUIVALENT with the reason.

Ends with 1 if fewer than 95 % of the mistakes are noticed.
"""
import argparse
import collections
import hashlib
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
COUNT, SEED = int(os.environ.get("COUNT", "90")), int(os.environ.get("SEED", "1"))
LEAST = 0.95
os.environ.setdefault("MUSTER_SHARED", str(ROOT.parent / "shared"))  # recorded machines: the copy has none beside it
TEST_SECONDS = 600
FEW_SEEDS = "300"

Mistake = collections.namedtuple("Mistake", "name key path old new")

# By hand: of the kinds that suites miss most easily. (file, what stands there once, what stands there instead)
MISTAKES = [
    # bounds over time
    ("rendezvous/leader/group_nodes.c", "MIN2(2 * n->probe_wait_ns, PROBE_RETRY_MAX_NS)", "2 * n->probe_wait_ns"),
    ("rendezvous/leader/group_nodes.c", "MIN2(2 * n->probe_wait_ns, PROBE_RETRY_MAX_NS)", "n->probe_wait_ns"),
    ("rendezvous/server/server_io.c", "n->conn != NULL && conn_unsent(n->conn) < STATUS_UNSENT_MAX", "n->conn != NULL"),
    ("rendezvous/server/node_listener_io.c", "n_unknown(l) < l->unknown_max", "true"),
    # the search for the leader
    ("rendezvous/client/search.c", "if (greeted || (!may_retry(s)", "if ((!may_retry(s)"),
    ("rendezvous/client/search.c", "s->due_ns = MAX2(s->due_ns, s->welcomed_ns + BACKOFF_FIRST_NS);", ";"),
    ("rendezvous/client/search.c", "if (other || s->state == SEARCH_WELCOMED)", "if (s->state == SEARCH_WELCOMED)"),
    ("rendezvous/client/search.c", "s->welcomed_ns == 0 && s->n_retries", "s->n_retries"),
    ("rendezvous/client/search.c", "s->first_port = port_of(s, s->at);", ";"),
    ("rendezvous/client/search.c", "if (s->probe_next == s->at)", "if (false)"),
    # state that goes on into the next generation
    ("rendezvous/leader/group_cause.c", "g->policy.losses = MAX2(g->policy.losses, losses);", ""),
    ("rendezvous/leader/group_cause.c", "g->policy.restarts_used = MAX2(g->policy.restarts_used, restarts_used);", ""),
    # units of one domain
    ("rendezvous/leader/parts/formation.c", "if (x->n_missing != y->n_missing)", "if (false)"),
    ("rendezvous/leader/parts/formation.c", "i < s->n_gaps || ", ""),
    ("rendezvous/leader/parts/formation.c", "if (i >= n_old_shares || s->n_units == 0) {", "if (i >= n_old_shares) {"),
    ("rendezvous/leader/parts/roster.c", "if (key != (n->domain == NULL ? 0 : n->domain->key)) {", "if (n->domain == NULL) {"),
    ("rendezvous/leader/group.c", "memcpy(kept->domain, report->domain, sizeof kept->domain);", ""),
    # a crash loop
    ("rendezvous/leader/group_cause.c", "hash == g->policy.last_hash && !will_be_excluded", "hash == g->policy.last_hash"),
    ("rendezvous/leader/group_cause.c", "f->incarnation == g->policy.fail_node &&", "true &&"),
    ("rendezvous/leader/group.c", "!group_is_crash_loop(g);", "true;"),
    ("rendezvous/leader/group.c", "if (report->excluded || !kept->excluded) {", "{"),
    ("launcher/supervise/local_workers_io.c", "c->fences = guardian_fences(c->config.link);", ""),
    ("rendezvous/member/member.c", "report_unexplained_end(m, ev->failure);", ""),
    # signs of progress
    ("watchdog/look/signs_io.c", "ran_ns < turns * SIGNS_TURN_NS;", "turns > 0;"),
    ("watchdog/look/signs_io.c", "MAX2(tick->turns - t->turns, SIGNS_TURNS)", "SIGNS_TURNS"),
    ("watchdog/look/signs_io.c", "t->known && t->receives && tick->turns != t->turns;", "false;"),
    ("watchdog/look/signs_io.c", "if (w->own.track.moved_ns > found->before_ns) {", "if (false) {"),
    ("watchdog/evidence/waits.c", "is_futex_wait(call->args[1]) && call->args[3] != 0;", "call->args[3] != 0;"),
    ("watchdog/judge/hang.c", "if (!w->ended) /* it has run to its end */", "if (false)"),
    # a node that leaves between two leaders
    ("rendezvous/member/member.c", "if (!is_awaited(m)) {", "{"),
    ("rendezvous/leader/group_states.c", "roster_usable(&g->roster, TALLY_HOPEFUL) < g->need && leave > 0 &&",
     "leave > 0 &&"),
    ("rendezvous/member/election.c", "m->leader_gone && (m->leaving ||", "m->leader_gone && ("),
    # an agent's end
    ("launcher/agent/agent_life.c", "(e->facts & l->awaits) != 0)", "has(e, LIFE_PROCESSES))"),
    ("launcher/agent/agent_life.c", "l->cause != LIFE_CAUSE_OPERATOR && l->signo != SIGINT;", "l->signo != SIGINT;"),
    ("launcher/agent/agent_life.c", "if (!alone || !has(e, LIFE_HAS_LEADER))", "if (!alone)"),
    ("launcher/agent/agent_life.c", "if (!has(e, LIFE_JOB_SUCCEEDS))", "if (true)"),
    ("launcher/agent/agent_life.c", "if (e->now_ns >= l->deadline_ns)", "if (false)"),
    # durability
    ("rendezvous/arbiter/dir/arbiter_folder_io.c", "fsync(f->fd) < 0", "0 < 0"),
    ("rendezvous/arbiter/dir/arbiter_folder_io.c", "only_new ? file_write_flushed(", "false ? file_write_flushed("),
    ("io/file.c", "fsync(fd) < 0", "0 < 0"),
    # what is left behind
    ("rendezvous/client/client_io.c", "drop_handover(c);\n    resolve_free(TAKE_PTR(c->resolve));", "drop_handover(c);"),
    ("rendezvous/client/client_io.c", "resolve_free(TAKE_PTR(c->resolve));\n    free_probes(c);", "free_probes(c);"),
    # what is kept of a node
    ("rendezvous/leader/group.c", ".first_rank = p->first_rank,", ".first_rank = p->node_rank,"),
    ("rendezvous/leader/group.c", ".restarts_used = g->formation.restarts_used,", ""),
    ("rendezvous/leader/group.c", ".log_nonce = g->config.log_nonce,", ""),
    # what operators see
    ("rendezvous/leader/group_states.c", "if (g->formation.started_once && g->last_event", "if (g->last_event"),
    ("rendezvous/leader/group_states.c", "group_stop_event(g, &g->last_event);", ""),
    ("rendezvous/member/election.c", "? m->form_job_ns + (m->now_ns - m->form_at_ns) : 0;", "? m->form_job_ns : 0;"),
    ("client/store_client.c", "return fail(-ECONNABORTED,", "return fail(code,"),
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

# Lines with a text or a comment. Asserts and EINTR: what they are for does not happen in a test. "x < y ? -1 : x > y"
# means the same with "<=".
LEFT_OUT = re.compile(r'"|/\*|\bEINTR\b|^ *assert\(|\? -1 : ')
# "fd < 0" and "fd <= 0" mean the same: descriptor 0 is open from the start (file_open_standard()). A device's pci is an
# index below n_pci, or TOPO_NONE, which is far above.
SAME = re.compile(r"\b(\w*fd|dir) (<|>=) 0\b|pci (<|>=) [a-z>.-]*\bn_pci\b")

# Mistakes by pattern that change nothing that can be seen: "file: pattern: line" -> why.
EQUIVALENT = {
    "io/process/reaper.c: greater: return pid > 0 ? idmap_get(&r->by_pid, (uint64_t)pid) : NULL;":
        "no child has the pid 0, so the map has no such key",
    "rendezvous/arbiter/dir/arbiter_folder_io.c: less: if (clock_now_ns() < f->deadline_ns)":
        "differs only if the clock reads the very nanosecond of the deadline",
    "rendezvous/store/store_io.c: greater: if (len > STAGE_SIZE - server->stage_len)":
        "the stage is written out a byte before it is full: the same bytes in the same order",
    "launcher/agent/agent_io.c: no call: node_discovery_free(a->fabric);":
        "at the end of the process, which its helper does not outlive (PR_SET_PDEATHSIG)",
    "launcher/agent/agent_ends_io.c: greater: } else if (wants_wait(a) && (!told || "
    "local_workers_workers_alive(a->local_workers) > 0)) {":
        "Slurm is asked in vain about workers that have ended; nothing waits for its answer",
    "launcher/output/log_times_io.c: greater or equal: uint64_t spent_ns = back || passed_ns >= pace->spent_ns ? 0 : "
    "pace->spent_ns - passed_ns;": "if both are equal, their difference is 0, too",
    "launcher/output/logmux_io.c: less: (mux->alone || writer_terminal(mux->writer, ERR) < 0);":
        "descriptor 0 is open from the start, and no output",
    "launcher/agent/agent_io.c: no call: loop_free(a.loop);": "the process ends, and its memory with it",
    "watchdog/profile/infer.c: greater: l.how = count_pauses(w, i, &l) > 0.5 ? PROFILE_PAUSES : PROFILE_IS_LATE;":
        "differs only if it is late in long pauses for exactly half of the time: either word is right",
    "launcher/output/console_io.c: less: o->kind = again < 0 ? OUTPUT_POLLED : OUTPUT_NONBLOCK;":
        "descriptor 0 is open from the start",
    "launcher/output/writer_process_io.c: greater: for (; reads > 0 && s->pipe_fd >= 0; reads--) {":
        "one more read in a turn of many",
    "launcher/output/writer_process_io.c: less or equal: bool due = is_shown(s) && "
    "linebuf_deadline_ns(&s->lines) <= now_ns;": "differs only if the clock reads the very nanosecond of the deadline",
    "launcher/supervise/worker_io.c: false: g->held = false;":
        "a group gets one signal before SIGKILL, and what ends the waiting clears it, too",
    "watchdog/look/pystack_io.c: greater or equal: return r >= 0": "pystack_read() never returns 0",
    "launcher/ssh/ssh_node_io.c: no call: stream_free(r->link);": "the relay ends, and its sockets with it",
    "rendezvous/store/store_io.c: no call: store_server_close(server);": "the process ends, and its sockets with it",
    "cli/commands/cmd_version.c: no call: globfree(&found);": "the command ends, and its memory with it",
    "client/store_client.c: no call: va_end(ap);": "has no effect on the machines for which muster is built",
    "launcher/preflight/preflight_io.c: less: if (by_ns > (int64_t)CLOCK_STEP_NS || by_ns < -(int64_t)CLOCK_STEP_NS) {":
        "differs only if the clock was set by exactly this many nanoseconds",
    "watchdog/profile/samples.c: less: if (node->first_tick < job->first_tick)":
        "moving the samples by 0 ticks changes nothing",
    "rendezvous/client/search.c: less: for (unsigned first = 0; first < s->config.n_ports; first++) {":
        "for a port past the end of the list, alike() returns 0, whatever is there",
    "cli/commands/cmd_check.c: less: if (status < 0 && spec.rdzv.max_nodes < 2) {":
        "the status is 0 only after --help, which is not passed on",
    "topology/render/render_svg.c: less: for (uint32_t n = 1; n < p->predictions[i].n_nets; n++) {":
        "the name after the last is empty, and colours nothing",
    "rendezvous/member/election.c: less: if (m->record.idle && m->record_ns < over_at(m))":
        "a record that was requested at that very time decides at once, and a node that claims does not read",
    "topology/nccl/nccl_xml_parse.c: less: for (uint32_t i = 0; i < x->n; i++) {":
        "a file that is read has at most 255 of 256 elements: the next one is there, empty, and nobody's parent",
}

# Folder or room -> the end-to-end tests that know it.
END_TO_END = {
    "launcher/starter": "test_head.py test_local.py",
    "launcher/srun": "test_head.py test_requeue.py test_slurm.py",
    "launcher/ssh": "test_ssh_here.py test_ssh_head.py test_ssh_node.py test_ssh_ends.py test_places.py "
                    "test_key_memory.py",
    "launcher/output": "test_output.py test_logs.py test_terminal.py test_events.py",
    "launcher/agent": "test_run.py test_ends.py test_leave.py test_signals.py test_requeue.py test_arbiter_lost.py "
                      "test_health_check.py test_troubleshooting.py test_faults.py test_succession.py test_one_port.py "
                      "test_head.py test_key_memory.py test_attack_hosts.py test_mpirun.py test_waiting.py",
    "launcher/supervise": "test_run.py test_ends.py test_leave.py test_faults.py test_job_control.py",
    "launcher/preflight": "test_preflight.py",
    "launcher/place": "test_places.py test_slurm_place.py test_kubernetes.py",
    "rendezvous/client": "test_elastic.py test_endpoint_ports.py test_netns.py test_succession.py",
    "watchdog": "test_hang.py test_hang_ends.py test_hang_evidence.py test_hang_recorder.py test_stacks.py",
    "launcher": "test_run.py test_output.py test_faults.py test_events.py test_env.py test_preflight.py",
    "rendezvous": "test_losses.py test_elastic.py test_succession.py test_operate.py test_store.py test_other_job.py "
                  "test_one_port.py",
    "cli": "test_cli.py test_run.py test_operate.py test_env.py test_check.py test_key_folder.py",
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
        elif line.startswith(" ") and not LEFT_OUT.search(line):
            yield number, line


def by_pattern():
    """All mistakes by pattern."""
    for path in sorted((ROOT / "src").rglob("*.c")):
        short = path.relative_to(ROOT / "src").as_posix()
        for number, line in code_lines(path.read_text()):
            for name, pattern, new in PATTERNS:
                if pattern.search(line) and not (name in ("less", "greater or equal") and SAME.search(line)):
                    yield Mistake(f"{short}:{number + 1}: {name}: {line.strip()}", f"{short}: {name}: {line.strip()}",
                                  short, (number, line), pattern.sub(new, line, count=1))


def chosen(only):
    """COUNT of those whose name contains this, each in another line. Each gets a random number of its own, so changes in
    other lines do not change the choice."""
    seen, lots, lines = collections.Counter(), {}, {}
    for mistake in by_pattern():
        seen[mistake.key] += 1  # equal lines of one file
        lots[mistake] = random.Random(f"{SEED} {seen[mistake.key]} {mistake.key}").random()
    for mistake in sorted(lots, key=lots.get):
        if only in mistake.name and len(lines) < COUNT:
            lines.setdefault((mistake.path, mistake.old), mistake)
    return list(lines.values())


def by_hand():
    for path, old, new in MISTAKES:
        name = f"{path}: {old} -> {new or 'nothing'}"
        yield Mistake(name, name, path, old, new)


def stale():
    """Entries of the tables above that are no longer in the source, or more than once."""
    for path, old, _ in MISTAKES:
        file = ROOT / "src" / path
        times = file.read_text().count(old) if file.exists() else 0
        if times != 1:
            yield f"MISTAKES: src/{path} has {times} times, not once: {old}"
    keys = {m.key for m in by_pattern()}
    yield from (f"EQUIVALENT: not in the source: {key}" for key in EQUIVALENT if key not in keys)


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

    def __init__(self, work, plain):
        self.root, self.build = work / "tree", work / ("build-plain" if plain else "build")
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
            options = ["-Doptimization=0", "-Ddebug=false", "-Dc_args=-Werror=type-limits", *([] if plain else ["-Db_sanitize=address,undefined"])]
            self.run("meson", "setup", self.build, self.root, *options, check=True)
        if not self.makes():
            sys.exit(f"mutate.py: {self.root} does not build")
        said = json.loads(self.run("meson", "introspect", "--tests", self.build, check=True).stdout)
        self.suites = {t["name"]: {s.rpartition(":")[2] for s in t["suite"]} for t in said if "slow" not in t["suite"][0]}
        self.programs = {t["name"]: os.path.relpath(t["cmd"][0], self.build) for t in said}
        self.sound = {path: self.digest(path) for path in self.programs.values()}
        self.without = collections.defaultdict(set)  # of a source file: programs that do not contain it

    def run(self, *words, check=False, env=None):
        return subprocess.run([str(w) for w in words], cwd=self.root, check=check, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, env=None if env is None else {**os.environ, **env})

    def makes(self, *targets):
        return self.run("ninja", "-C", self.build, *targets).returncode == 0

    def digest(self, program):
        return hashlib.sha256((self.build / program).read_bytes()).digest()

    def stale_programs(self):
        """The programs that ninja would link again: no other can notice a change."""
        return set(re.findall(r"Linking target (\S+)", self.run("ninja", "-C", self.build, "-n").stdout))

    def notices(self, names, seeds):
        """The first of these tests that fails, and fails again alone; or None."""
        names = list(names)
        while names:
            bad = self.fails(names, seeds)
            if bad is None or bad not in names or self.fails([bad], seeds):
                return bad
            names.remove(bad)
        return None

    def fails(self, names, seeds):
        """The first of these tests that fails, or None."""
        log = self.build / "meson-logs/testlog.json"
        log.unlink(missing_ok=True)
        try:
            done = subprocess.run(["meson", "test", "-C", self.build, "--no-rebuild", "--maxfail=1", *names],
                                  check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=TEST_SECONDS,
                                  env={**os.environ, **seeds})
        except subprocess.TimeoutExpired:
            return "a test that does not end"
        if done.returncode == 0:
            return None
        bad = [t["name"].rpartition(" / ")[0] and t["name"].partition(" / ")[2] or t["name"]
               for t in map(json.loads, log.read_text().splitlines()) if t["result"] not in ("OK", "SKIP")]
        return bad[0] if bad else "meson test"

    def end_to_end(self, room):
        files = [f"tests/e2e/{name}" for name in END_TO_END.get(room, END_TO_END.get(room.split("/")[0], "")).split()]
        if not files:
            return None
        done = self.run("/usr/bin/python3", "-m", "pytest", "-q", "-x", "-n", "3", "-p", "no:cacheprovider", *files,
                        env={"MUSTER": str(self.build / "src/cli/muster"), "MUSTER_TEST_SLOWER": "4"})
        bad = re.search(r"^FAILED (\S+)", done.stdout, re.M)  # an ERROR is of a fixture, which may not work here at all
        return bad.group(1) if bad else None

    def who_notices(self, mistake, e2e):
        """(stage, test); (None, None) if no test notices; or ("compiler", "")."""
        path = self.root / "src" / mistake.path
        good = path.read_text()
        path.write_text(changed(good, mistake))
        try:
            reached = self.stale_programs()
            tests = [name for name in self.suites if self.programs[name] in reached - self.without[mistake.path]]
            room, folder = mistake.path.rpartition("/")[0], mistake.path.split("/")[0]
            plain = [name for name in tests if self.suites[name] & {"unit", "process"}]
            near = [name for name in plain if name.startswith(room + "/")]
            own = [name for name in near if name.removeprefix(room + "/").removesuffix("_io") in mistake.path]
            far = [name for name in plain if name.startswith(folder + "/") and name not in near]
            rest = [name for name in plain if name not in near and name not in far]
            sim = [name for name in tests if "sim" in self.suites[name]]
            fuzz = [name for name in tests if "fuzz" in self.suites[name]]
            few = [name for name in sim if name != "mutants"]
            for stage, names, seeds in (("file", own, {}), ("room", near, {}), ("few seeds", few, {"SIM_SEEDS": FEW_SEEDS}),
                                        ("folder", far, {}), ("unit", rest, {}), ("sim", sim + fuzz, {})):
                if names and not self.makes(*{self.programs[name] for name in names}):
                    return "compiler", ""
                # A program that is linked again without a change does not contain the file (unless none changes).
                same = {p for p in map(self.programs.get, names) if self.digest(p) == self.sound[p]}
                names = [name for name in names if self.programs[name] not in same]
                self.without[mistake.path] |= same if names else set()
                test = self.notices(names, seeds) if names else None
                if test is not None:
                    return stage, test
            if not self.makes():
                return "compiler", ""
            test = self.end_to_end(room) if e2e else None
            return ("e2e", test) if test else (None, None)
        finally:
            path.write_text(good)
            os.utime(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=pathlib.Path, nargs="?")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--e2e", action="store_true")
    parser.add_argument("--plain", action="store_true")
    words = parser.parse_args()
    wrong = list(stale())
    if wrong or words.check:
        print("\n".join(f"tests/mutate.py: {line}" for line in wrong))
        return 1 if wrong else 0
    mistakes = [m for m in [*by_hand(), *chosen(words.only)] if words.only in m.name]
    if words.list:
        print("\n".join(m.name for m in mistakes))
        return 0
    if os.geteuid() == 0 and not os.environ.get("MUSTER_MUTATE_ALONE"):
        # Some mistakes make a test signal processes that are not its own: it sees none but those of this run.
        os.environ["MUSTER_MUTATE_ALONE"] = "1"
        os.execvp("unshare", ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, *sys.argv])
    copy = Copy(words.work.resolve(), words.plain)
    found, missed = collections.Counter(), []
    for number, mistake in enumerate(mistakes, 1):
        since = time.monotonic()
        why = EQUIVALENT.get(mistake.key)
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
