"""What test_like_torchrun.py does to torchrun and to muster: each function drives a Rig (like.py), whose workers are
like_actor.py, and returns what it saw as JSON."""
import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import termios

import harness
import like

BEHAVIOURS = []
# torchrun with LOGLEVEL=INFO, and muster.
AWAITS_NODES = r"Rendezvous'ing worker group|waiting for nodes"


def behaviour(function):
    BEHAVIOURS.append(function)
    return function


def with_torch(function):
    """The workers import PyTorch."""
    function.torch = True
    return behaviour(function)


def failure(rig, options, words, starts=0, **more):
    """How a launcher ends that fails. With `starts`, the word go is said when so many workers have started."""
    agent = rig.start(options, words, **more)
    if starts:
        rig.job.events.wait("waits", starts)
        rig.job.go()
    status, _, err = agent.finish(90)
    return {"status": status, "report": like.report(err), "told": rig.told()}


# --- ends ------------------------------------------------------------------------------------------------------------


@behaviour
def the_exit_code_of_a_worker(rig):
    return {str(code): rig.end("", f"exit={code}")[0] for code in (0, 1, 2, 42, 130, 255)}


@behaviour
def a_worker_exits_with_3(rig):
    return failure(rig, "--nproc-per-node=2", "end=SIGTERM start rank=0 wait go exit=3", 2)


@behaviour
def a_worker_is_killed(rig):
    return failure(rig, "--nproc-per-node=2", "end=SIGTERM start rank=0 wait go kill=SIGKILL", 2)


@behaviour
def a_worker_has_a_segmentation_fault(rig):
    return failure(rig, "", "start kill=SIGSEGV")


@behaviour
def a_worker_ends_by_sigterm_by_itself(rig):
    return failure(rig, "", "start kill=SIGTERM")


@behaviour
def a_worker_ends_earlier_than_the_others(rig):
    agent = rig.start("--nproc-per-node=2", "start rank=0 exit=0 go")
    rig.job.events.wait("start", 2)
    rig.job.go()
    return {"status": agent.finish()[0], "told": rig.told()}


@behaviour
def a_worker_fails_and_the_restart_succeeds(rig):
    return failure(rig, "--max-restarts=2", "start restart=0 exit=1")


@behaviour
def a_worker_fails_in_every_attempt(rig):
    return failure(rig, "--max-restarts=1", "start exit=9")


@behaviour
def a_worker_fails_at_once_in_every_attempt_of_many(rig):
    return failure(rig, "--max-restarts=3", "start exit=9")


@behaviour
def the_logs_of_each_attempt(rig):
    status, out, _ = rig.end("--max-restarts=2 -t3 --log-dir=logs --rdzv-id=j", "out=hello err=world restart=0 exit=5 restart=1 exit=6")
    return {"status": status, "stdout": sorted(out.splitlines()), "logs": like.logs_seen(rig.job.tmp / "logs")}


# --- reports ---------------------------------------------------------------------------------------------------------


@behaviour
def an_error_file_is_in_the_report(rig):
    return failure(rig, "", "start error=boom exit=3")


@behaviour
def an_error_file_is_copied_for_an_outer_launcher(rig):
    path = rig.job.tmp / "outer.json"
    status = rig.end("", "error=boom exit=3", env={"TORCHELASTIC_ERROR_FILE": str(path)})[0]
    told = json.loads(path.read_text())["message"] if path.exists() else None
    if told:
        told["extraInfo"]["timestamp"] = bool(told["extraInfo"]["timestamp"])
    return {"status": status, "copied": told}


@behaviour
def no_error_file_is_copied_when_nobody_wrote_one(rig):
    path = rig.job.tmp / "outer.json"
    status = rig.end("", "exit=3", env={"TORCHELASTIC_ERROR_FILE": str(path)})[0]
    return {"status": status, "copied": path.exists()}


@behaviour
def a_program_that_is_no_python_fails(rig):
    return failure(rig, "--no-python", "", program_words=["sh", "-c", "exit 4"])


@behaviour
def a_module_fails(rig):
    return failure(rig, "-m", "", program_words=["pkg.nothing"])


@with_torch
def an_exception_under_torchs_record(rig):
    script = rig.job.tmp / "recorded.py"
    script.write_text("from torch.distributed.elastic.multiprocessing.errors import record\n"
                      "@record\ndef main():\n    raise RuntimeError('no luck')\nmain()\n")
    seen = failure(rig, "", "", program_words=[str(script)])
    root = seen["report"]["root"]
    root["traceback"] = re.sub(r'File ".*?"', "File", root.get("traceback", ""))
    return seen


@behaviour
def an_exception_without_an_error_file(rig):
    script = rig.job.tmp / "raises.py"
    script.write_text("raise RuntimeError('no luck')\n")
    return failure(rig, "", "", program_words=[str(script)])


@behaviour
def error_files_of_other_forms(rig):
    forms = {"flat": '{"message": "boom", "timestamp": 1}', "text for a time": '{"message": "boom", "timestamp": "1"}',
             "no message": '{"other": 1}', "no JSON": "boom", "empty": ""}
    return {name: failure(rig, "", f"'file={text}' exit=3") for name, text in forms.items()}


@behaviour
def signals_have_names_in_the_report(rig):
    return {name: failure(rig, "", f"kill={name}")["report"] for name in ("SIGABRT", "SIGBUS", "SIGHUP", "SIGUSR1", "SIGXCPU")}


# --- signals ---------------------------------------------------------------------------------------------------------


def signalled(rig, name, options="", words="start go", answer=None):
    """Sends the launcher a signal when two workers run. `answer`: an event that shows that it did not end them."""
    agent = rig.start(f"--nproc-per-node=2 {options}", words)
    rig.job.events.wait("waits", 2)
    agent.signal(getattr(signal, name))
    if answer and rig.happens(lambda: rig.job.events._all(answer, {}), agent):
        rig.job.go()
    status, _, err = agent.finish()
    return {"status": status, "told": rig.told(), "alive": rig.alive("start"), "report": like.report(err)}


@behaviour
def ctrl_c_is_a_keyboard_interrupt_for_workers(rig):
    return signalled(rig, "SIGINT")


@behaviour
def sigterm_reaches_the_workers(rig):
    return signalled(rig, "SIGTERM", words="end=SIGTERM start go")


@behaviour
def sigterm_ends_workers_that_do_not_look(rig):
    return signalled(rig, "SIGTERM")


@behaviour
def sighup_reaches_the_workers(rig):
    return signalled(rig, "SIGHUP", words="end=SIGHUP end=SIGTERM start go")


@behaviour
def sigquit_reaches_the_workers(rig):
    return signalled(rig, "SIGQUIT", words="end=SIGQUIT end=SIGTERM start go")


@behaviour
def a_listed_sigusr1_reaches_the_workers(rig):
    return signalled(rig, "SIGUSR1", "--signals-to-handle=SIGTERM,SIGUSR1", "end=SIGUSR1 end=SIGTERM start go")


@behaviour
def sigusr1_that_is_not_listed(rig):
    return signalled(rig, "SIGUSR1", words="on=SIGUSR1 start go", answer="signal")


@behaviour
def a_signal_is_no_failure_to_restart_after(rig):
    return signalled(rig, "SIGTERM", "--max-restarts=3")


def signalled_alone(rig, name):
    """A signal while the launcher waits for another node."""
    agent = rig.start(f"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=localhost:{harness.free_port()}", "start",
                      env={"LOGLEVEL": "INFO"})
    agent.wait_said(AWAITS_NODES, 60)
    agent.signal(getattr(signal, name))
    return {"status": agent.finish()[0], "told": rig.told()}


@behaviour
def sigterm_while_nodes_are_awaited(rig):
    return signalled_alone(rig, "SIGTERM")


@behaviour
def sigint_while_nodes_are_awaited(rig):
    return signalled_alone(rig, "SIGINT")


@behaviour
def too_few_nodes_come(rig):
    status = rig.end(f"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=localhost:{harness.free_port()} "
                     "--rdzv-conf=join_timeout=2", "start")[0]
    return {"status": status, "told": rig.told()}


@behaviour
def sigint_that_is_not_listed(rig):
    return signalled(rig, "SIGINT", "--signals-to-handle=SIGTERM")


@behaviour
def workers_that_ignore_sigterm_are_killed_after_the_timeout(rig):
    return signalled(rig, "SIGTERM", "--shutdown-timeout=1", "ignore=SIGTERM start go")


@behaviour
def a_second_signal_does_not_wait(rig):
    agent = rig.start("--nproc-per-node=2", "on=SIGINT ignore=SIGTERM start go")
    rig.job.events.wait("waits", 2)
    agent.signal(signal.SIGINT)
    rig.job.events.wait("signal", 2)
    agent.signal(signal.SIGINT)
    status = agent.wait(20)  # the grace is 30 s
    return {"status": status, "alive": rig.alive("start")}


@behaviour
def sigint_to_a_job_in_the_background_of_a_script(rig):
    """A shell without job control starts it with SIGINT and SIGQUIT ignored."""
    agent = rig.start("", "on=SIGTERM start go", prefix=("sh", "-c", 'trap "" INT QUIT; exec "$@"', "sh"))
    rig.job.events.wait("waits", 1)
    agent.signal(signal.SIGINT)
    return {"status": agent.finish()[0], "told": rig.told()}


@behaviour
def an_ignored_sighup_stays_ignored(rig):
    agent = rig.start("", "on=SIGUSR1 start go", prefix=("nohup",))
    rig.job.events.wait("waits", 1)
    agent.signal(signal.SIGHUP)
    if harness.ignores(agent.pid, signal.SIGHUP):
        rig.job.go()
    return {"status": agent.finish()[0], "told": rig.told()}


@behaviour
def the_agent_is_killed(rig):
    agent = rig.start("", "start go")
    rig.job.events.wait("waits", 1)
    # muster's first process is the guardian; the agent is its child.
    harness.kill(agent.pid if rig.launcher == "torchrun" else agent.agent_pid())
    status = agent.finish()[0]
    return {"status": status, "alive": rig.alive("start")}


# --- input, output, terminals ----------------------------------------------------------------------------------------


@behaviour
def standard_input_reaches_the_worker(rig):
    read, write = os.pipe()
    os.write(write, b"some words\n")
    os.close(write)
    try:
        status = rig.end("", "read", stdin=read)[0]
    finally:
        os.close(read)
    return {"status": status, "read": [e.fields["data"] for e in rig.job.events.all("read")]}


@behaviour
def bytes_pass_as_they_are(rig):
    status, _, _ = rig.end("", r"'raw=\xff\xfe\x00a\rb\r\n\r\n' 'raw=no\x20newline'")
    return {"status": status, "bytes": bytes(rig.job.agents[-1].out.raw).hex()}


@behaviour
def a_last_line_without_a_newline_is_teed(rig):
    status, out, _ = rig.end("-t1", "out=first raw=last")
    return {"status": status, "stdout": out}


@behaviour
def bytes_that_are_no_text_are_teed(rig):
    status, _, _ = rig.end("-t1 --log-dir=logs", r"'out=\xff\xfea' 'out=b'")
    return {"status": status, "bytes": bytes(rig.job.agents[-1].out.raw).hex()}


@behaviour
def carriage_returns_are_teed(rig):
    status, _, _ = rig.end("-t1 --log-dir=logs", r"'raw=10%\r20%\r30%\n'")
    return {"status": status, "bytes": bytes(rig.job.agents[-1].out.raw).hex()}


@behaviour
def a_very_long_line(rig):
    status, out, _ = rig.end("-t1 --log-dir=logs", "bytes=1000000")
    return {"status": status, "lengths": [len(line) for line in out.splitlines()],
            "logs": like.logs_seen(rig.job.tmp / "logs")}


@behaviour
def many_lines_of_a_worker_keep_their_order(rig):
    status, out, _ = rig.end("-t3", "lines=5000")
    found = [int(n) for n in re.findall(r"^\[default0\]:rank 0 line (\d+) of the lines", out, re.M)]
    return {"status": status, "lines": len(found), "in order": found == sorted(found)}


@behaviour
def lines_of_several_workers_are_all_there(rig):
    status, out, _ = rig.end("--nproc-per-node=4", "lines=2000")
    return {"status": status, "bytes": len(out), "lines": out.count("\n")}


@behaviour
def a_reader_that_comes_late_gets_all(rig):
    read, write = os.pipe()
    agent = rig.start("--nproc-per-node=2", "lines=5000 start", stdout=write)
    os.close(write)
    with contextlib.suppress(subprocess.TimeoutExpired):
        agent.process.wait(3)
    heard = harness.Heard(read)
    status = agent.finish()[0]
    heard.join()
    return {"status": status, "lines": len(heard.lines)}


@behaviour
def a_reader_that_goes_away(rig):
    read, write = os.pipe()
    agent = rig.start("", "start out=first go lines=20000", stdout=write)
    os.close(write)
    rig.job.events.wait("start", 1)
    os.read(read, 6)
    os.close(read)
    rig.job.go()
    return {"status": agent.finish()[0]}


@behaviour
def a_full_device(rig):
    with open("/dev/full", "w") as full:
        return {"status": rig.end("", "start lines=10", stdout=full.fileno())[0]}


@behaviour
def stdout_and_stderr_into_one_pipe_keep_their_order(rig):
    read, write = os.pipe()
    words = " ".join(f"out={n} err={n} raw={n}" for n in range(50))
    agent = rig.start("", words, stdout=write, stderr=write)
    os.close(write)
    heard = harness.Heard(read)
    status = agent.finish()[0]
    heard.join()
    return {"status": status, "lines": heard.lines}


@behaviour
def each_workers_lines_into_one_file_keep_their_order(rig):
    with open(rig.job.tmp / "output", "w") as output:
        words = " ".join(f"out=o{n} err=e{n}" for n in range(20))
        status = rig.end("--nproc-per-node=2", f"rank=1 exit=0 {words}", stdout=output, stderr=output)[0]
    lines = (rig.job.tmp / "output").read_text().splitlines()
    return {"status": status, "lines": [line for line in lines if re.fullmatch(r"[oe]\d+", line)]}


def asks(rig, options, words):
    read, write = os.pipe()
    agent = rig.start(options, words, stdout=write)
    os.close(write)
    heard = harness.Heard(read)
    rig.job.events.wait("waits", 1)
    seen = bool(heard.until(lambda: b"? " in heard.raw, 30))
    rig.job.go()
    status = agent.finish()[0]
    heard.join()
    return {"status": status, "seen": seen}


@behaviour
def words_without_a_newline_are_seen(rig):
    return asks(rig, "", r"'raw=name?\x20' go")


@behaviour
def words_without_a_newline_of_one_of_two_workers_are_seen(rig):
    return asks(rig, "--nproc-per-node=2", r"rank=0 'raw=name?\x20' rank=1 exit=0 go")


class Terminal:
    """A pseudo-terminal of 100 columns and 30 lines, and what was written to it."""

    def __enter__(self):
        self.main, self.other = pty.openpty()
        fcntl.ioctl(self.main, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        return self

    def __exit__(self, *exc):
        if self.other is not None:
            os.close(self.other)

    def heard(self):
        os.close(self.other)
        self.other = None
        heard = harness.Heard(self.main)
        heard.join()
        return heard


def on_terminal(rig, options, words, in_order=False):
    with Terminal() as terminal:
        # Job's agents have standard error in a pipe; a shell joins them.
        agent = rig.start(options, words, stdin=terminal.other, stdout=terminal.other,
                          prefix=("sh", "-c", 'exec "$@" 2>&1', "sh"))
        heard = terminal.heard()
        status = agent.finish()[0]
    sees = sorted(" ".join(f"{k}={v}" for k, v in e.fields.items() if k.startswith("fd") or k == "rank")
                  for e in rig.job.events.all("sees"))
    # torchrun's own log lines and muster's own words are theirs.
    lines = [line for line in bytes(heard.raw).decode(errors="replace").split("\n")
             if line and not re.match(r"[WEI]\d{4} |muster: ", line)]
    return {"status": status, "sees": sees, "lines": lines if in_order else sorted(lines)}


@behaviour
def workers_on_a_terminal(rig):
    return on_terminal(rig, "", r"'sees' 'out=line' 'raw=10%\r20%\r\n' 'err=warning'")


@behaviour
def two_workers_on_a_terminal(rig):
    return on_terminal(rig, "--nproc-per-node=2", r"sees")


@behaviour
def teed_workers_on_a_terminal(rig):
    return on_terminal(rig, "-t3", r"sees out=line")


@behaviour
def redirected_workers_on_a_terminal(rig):
    return on_terminal(rig, "-r1 --log-dir=logs", r"sees out=line")


@behaviour
def order_on_a_terminal(rig):
    seen = on_terminal(rig, "", " ".join(f"out=o{n} err=e{n}" for n in range(50)), in_order=True)
    return {k: seen[k] for k in ("status", "lines")}


@behaviour
def a_worker_asks_and_reads_from_the_terminal(rig):
    with Terminal() as terminal:
        agent = rig.start("", r"'raw=name?\x20' read", stdin=terminal.other, stdout=terminal.other)
        asked = b""
        while b"? " not in asked:
            asked += os.read(terminal.main, 100)
        os.write(terminal.main, b"muster\n")
        status = agent.finish()[0]
        terminal.heard()
    return {"status": status, "asked": asked.decode(), "read": [e.fields["data"] for e in rig.job.events.all("read")]}


# What an interactive shell does with a job: it gives it the terminal, notices that it stopped, and continues it.
SHELL = r"""
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])
_, status = os.waitpid(pid, os.WUNTRACED)
if os.WIFSTOPPED(status):
    os.write(2, b"shell: stopped\n")
    os.tcsetpgrp(0, os.getpgrp())
    os.read(int(os.environ["LIKE_FG"]), 1)
    os.tcsetpgrp(0, pid)
    os.killpg(pid, signal.SIGCONT)
    _, status = os.waitpid(pid, 0)
os.tcsetpgrp(0, os.getpgrp())
os._exit(os.waitstatus_to_exitcode(status) & 255)
"""


@behaviour
def ctrl_z_and_fg(rig):
    fifo = rig.job.tmp / "fg"
    os.mkfifo(fifo)
    with Terminal() as terminal:
        agent = rig.start(
            "", "start go", stdin=terminal.other, stdout=terminal.other, env={"LIKE_FG": "7"},
            prefix=("sh", "-c", f'exec 7<>{fifo}; exec "$@"', "sh", "python3", "-c", SHELL))
        rig.job.events.wait("waits", 1)
        os.write(terminal.main, b"\x1a")
        stopped = bool(agent.err.until(lambda: "shell: stopped" in agent.said() or agent.process.poll() is not None, 10))
        stopped = stopped and "shell: stopped" in agent.said()
        with open(fifo, "r+b", buffering=0) as f:
            f.write(b"x")
            rig.job.go()
            status = agent.wait(30)
        terminal.heard()
    return {"stopped": stopped, "status": status, "told": rig.told()}


@behaviour
def ctrl_c_on_a_terminal(rig):
    with Terminal() as terminal:
        agent = rig.start("", "start go", stdin=terminal.other, stdout=terminal.other, env={"LIKE_FG": "7"},
                          prefix=("python3", "-c", SHELL))
        rig.job.events.wait("waits", 1)
        os.write(terminal.main, b"\x03")
        status = agent.wait(60)
        terminal.heard()
    return {"status": status, "told": rig.told()}


# --- what a worker gets --------------------------------------------------------------------------------------------


INHERITED = """
import json, os, re, resource
names = ("NOFILE", "CORE", "STACK", "MEMLOCK", "NPROC", "AS", "CPU", "FSIZE")
status = open("/proc/self/status").read()
print(json.dumps({
    "limits": {n: resource.getrlimit(getattr(resource, "RLIMIT_" + n)) for n in names},
    "no new privileges": re.search(r"NoNewPrivs:\\s*(\\d)", status)[1], "adjusted": open("/proc/self/oom_score_adj").read(),
    "scheduler": os.sched_getscheduler(0), "CPUs": len(os.sched_getaffinity(0)), "groups": os.getgroups(), "user": os.getresuid(),
    "slack": open("/proc/self/timerslack_ns").read(), "root": os.readlink("/proc/self/root"),
    "spaces": [os.readlink("/proc/self/ns/" + n) for n in ("mnt", "net", "pid", "user", "ipc")]}))
"""


@behaviour
def limits_and_other_properties_of_the_launcher_are_inherited(rig):
    """As a process that the shell itself starts."""
    (rig.job.tmp / "inherited.py").write_text(INHERITED)
    limits = ("sh", "-c", 'ulimit -n 512; ulimit -c 0; ulimit -s 4096; ulimit -f 100000; exec "$@"', "sh")
    _, direct, _ = rig.job.agent("shell", "inherited.py", program=["python3"], prefix=limits,
                                 env=like.environment(rig.job, {})).finish()
    status, out, _ = rig.end("", "", program_words=["inherited.py"], prefix=limits)
    direct, seen = json.loads(direct), json.loads(out)
    return {"status": status, "other": sorted(k for k in direct if direct[k] != seen.get(k))}


@behaviour
def odd_arguments_reach_the_script(rig):
    words = ["a\nb", "\udcff\udcfe", "x" * 100000, "\t", "-", "--", "=", "$", "%s%n", "\\\\"]
    status = rig.end("", "", program_words=["probe.py", *words])[0]
    argv = json.loads((rig.job.tmp / "saw" / "0.0").read_text())["argv"]
    return {"status": status, "same": argv[1:] == words, "number": len(argv)}


@behaviour
def a_large_environment_reaches_the_workers(rig):
    more = {f"LARGE_{n}": "x" * 100000 for n in range(10)}
    status = rig.end("--nproc-per-node=2", "", program_words=["probe.py"], env=more)[0]
    env = json.loads((rig.job.tmp / "saw" / "1.0").read_text())["env"]
    return {"status": status, "all there": all(env.get(k) == v for k, v in more.items())}


# --- what a worker leaves --------------------------------------------------------------------------------------------


@behaviour
def a_background_process_in_the_workers_session(rig):
    status = rig.end("", "child")[0]
    return {"status": status, "alive": rig.alive("left")}


@behaviour
def a_background_process_in_a_session_of_its_own(rig):
    status = rig.end("", "leave")[0]
    return {"status": status, "alive": rig.alive("left")}


@behaviour
def a_background_process_of_a_worker_that_is_ended(rig):
    status = failure(rig, "--nproc-per-node=2", "rank=0 child start rank=0 wait go exit=1", 2)["status"]
    return {"status": status, "alive": rig.alive("left")}


@behaviour
def a_launcher_under_a_launcher(rig):
    inner = " ".join(like.program(rig.launcher))
    status, _, err = rig.end("--nproc-per-node=2", f"rank=1 exit=0 start call {inner} --nproc-per-node=3 {rig.actor} start")
    return {"status": status, "told": rig.told(), "workers": len(rig.job.events.all("start"))}


# --- several agents --------------------------------------------------------------------------------------------------


def probes(rig, agents):
    """What the workers of several agents saw of their place."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_RANK",
             "ROLE_WORLD_SIZE", "ROLE_NAME", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID")
    statuses = [a.finish()[0] for a in agents]
    seen, masters = {}, set()
    for path in sorted((rig.job.tmp / "saw").glob("*.*")):
        env = json.loads(path.read_text())["env"]
        masters.add((env["MASTER_ADDR"], env["MASTER_PORT"]))
        seen[path.name] = {k: env[k] for k in names}
    return {"status": statuses, "saw": seen, "masters": len(masters)}


@behaviour
def two_agents_meet_by_c10d(rig):
    port = harness.free_port()
    options = f"--nnodes=2 --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=localhost:{port} --rdzv-id=j"
    return probes(rig, [rig.start(options, "", tag=tag, program_words=["probe.py"]) for tag in "ab"])


@behaviour
def two_agents_with_static_ranks(rig):
    port = harness.free_port()
    options = f"--nnodes=2 --nproc-per-node=2 --master-addr=127.0.0.1 --master-port={port}"
    seen = probes(rig, [rig.start(f"{options} --node-rank={n}", "", tag=str(n), program_words=["probe.py"]) for n in (1, 0)])
    first = json.loads((rig.job.tmp / "saw" / "0.0").read_text())["env"]
    return {**seen, "the given port": first["MASTER_PORT"] == str(port)}


@behaviour
def two_agents_with_different_numbers_of_workers(rig):
    port = harness.free_port()
    options = f"--nnodes=2 --master-addr=127.0.0.1 --master-port={port}"
    return probes(rig, [rig.start(f"{options} --node-rank={n} --nproc-per-node={n + 1}", "", tag=str(n),
                                  program_words=["probe.py"]) for n in (0, 1)])


@behaviour
def two_agents_with_different_roles(rig):
    port = harness.free_port()
    options = f"--nnodes=2 --nproc-per-node=2 --master-addr=127.0.0.1 --master-port={port}"
    return probes(rig, [rig.start(f"{options} --node-rank={n} --role=role{n}", "", tag=str(n), program_words=["probe.py"])
                        for n in (0, 1)])


@behaviour
def three_agents_meet_by_c10d(rig):
    port = harness.free_port()
    options = f"--nnodes=3 --rdzv-backend=c10d --rdzv-endpoint=localhost:{port} --rdzv-id=j"
    return probes(rig, [rig.start(options, "", tag=tag, program_words=["probe.py"]) for tag in "abc"])


@behaviour
def an_elastic_job_of_one_agent(rig):
    port = harness.free_port()
    options = (f"--nnodes=1:2 --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=localhost:{port} --rdzv-id=j "
               "--rdzv-conf=last_call_timeout=1")
    return probes(rig, [rig.start(options, "", program_words=["probe.py"])])


@behaviour
def an_agent_joins_a_running_job(rig):
    """torchrun ends the workers, but then each agent waits for keys that the other one does not write."""
    port = harness.free_port()
    options = (f"--nnodes=1:2 --rdzv-backend=c10d --rdzv-endpoint=localhost:{port} --rdzv-id=j "
               "--rdzv-conf=last_call_timeout=1,read_timeout=10 --monitor-interval=0.1")
    first = rig.start(options, "end=SIGTERM start go", tag="a")
    rig.job.events.wait("start", 1)
    second = rig.start(options, "end=SIGTERM start go", tag="b")
    second.err.until(lambda: "waits for a place" in second.said() or rig.job.events._all("signal", {}), 60)
    rig.job.go()
    return {"status": [a.wait(60) for a in (first, second)], "told": rig.told()}


def pair(rig, options=""):
    """Two agents of an elastic job of at most two nodes, whose workers wait, and how to start a third."""
    port = harness.free_port()

    def start(tag):
        return rig.start(f"--nnodes=1:2 --rdzv-backend=c10d --rdzv-endpoint=localhost:{port} --rdzv-id=j --max-restarts=1 "
                         f"--rdzv-conf=last_call_timeout=30,read_timeout=10 --monitor-interval=0.1 {options}",
                         "end=SIGTERM start go", tag=tag, env={"LOGLEVEL": "INFO"})

    first = start("a")
    first.wait_said(AWAITS_NODES, 60)  # so that it has the endpoint
    second = start("b")
    rig.job.events.wait("start", 2, 60)
    return first, second, start


def ended(rig, agent):
    """torchrun waits five minutes at the end for a node that is lost."""
    return agent.wait(10 / harness.SLOWER if rig.launcher == "torchrun" else 60)


@behaviour
def an_agent_of_an_elastic_job_is_killed(rig):
    first, second, _ = pair(rig)
    harness.kill(second.pid)
    again = rig.job.events.until(lambda: len(rig.job.events._all("start", {})) >= 3, 20 / harness.SLOWER if rig.launcher == "torchrun" else 60)
    rig.job.go()
    return {"status": ended(rig, first), "restarted": bool(again)}


@behaviour
def an_agent_of_an_elastic_job_gets_sigterm(rig):
    first, second, _ = pair(rig)
    second.signal(signal.SIGTERM)
    again = rig.job.events.until(lambda: len(rig.job.events._all("start", {})) >= 3, 20 / harness.SLOWER if rig.launcher == "torchrun" else 60)
    rig.job.go()
    return {"status": ended(rig, first), "restarted": bool(again), "of the other": second.wait(60)}


@behaviour
def an_agent_too_many(rig):
    first, second, start = pair(rig)
    third = start("c")
    third.wait_said(f"{AWAITS_NODES}|waits for a place", 60)
    if rig.launcher == "torchrun":
        third.wait(2 / harness.SLOWER)
    rig.job.go()
    return {"status": [a.wait(60) for a in (first, second, third)], "told": rig.told()}


@behaviour
def two_agents_one_worker_fails_and_restarts(rig):
    port = harness.free_port()
    options = (f"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=localhost:{port} --rdzv-id=j --max-restarts=1 "
               "--monitor-interval=0.1")
    words = "end=SIGTERM start rank=1 first=x gate=fail rank=1 first=y exit=1 go"
    os.mkfifo(rig.job.tmp / "fail")
    agents = [rig.start(options, words, tag=tag) for tag in "ab"]
    rig.job.events.wait("start", 2)
    with open(rig.job.tmp / "fail", "r+b", buffering=0):
        again = bool(rig.job.events.wait("start", 4))
    rig.job.go()
    return {"status": [a.finish()[0] for a in agents], "all again": again, "starts": rig.told("start")}


@behaviour
def two_agents_with_static_ranks_one_worker_fails_and_restarts(rig):
    port = harness.free_port()
    options = f"--nnodes=2 --master-addr=127.0.0.1 --master-port={port} --max-restarts=1 --monitor-interval=0.1"
    os.mkfifo(rig.job.tmp / "fail")
    words = "end=SIGTERM start rank=1 restart=0 gate=fail rank=1 restart=0 exit=1 go"
    agents = [rig.start(f"{options} --node-rank={n}", words, tag=str(n)) for n in (0, 1)]
    rig.job.events.wait("start", 2)
    with open(rig.job.tmp / "fail", "r+b", buffering=0):
        rig.job.events.wait("start", 1, rank=1, restart=1)
        if rig.launcher != "torchrun":
            rig.job.events.wait("start", 4)
    rig.job.go()
    return {"status": [a.finish()[0] for a in agents], "starts": rig.told("start")}


@behaviour
def two_agents_one_worker_fails_for_good(rig):
    port = harness.free_port()
    options = f"--nnodes=2 --master-addr=127.0.0.1 --master-port={port} --monitor-interval=0.1"
    agents = [rig.start(f"{options} --node-rank={n}", "end=SIGTERM start rank=0 wait go exit=1", tag=str(n)) for n in (0, 1)]
    rig.job.events.wait("waits", 2)
    rig.job.go()
    failed = agents[1].finish()
    # torchrun's runs on until its own workers fail.
    other = agents[0].wait(5 / harness.SLOWER if rig.launcher == "torchrun" else 60)
    return {"status": failed[0], "report": like.report(failed[2]), "other agent": other if other is not None else "runs on"}


@behaviour
def the_port_is_free_again_at_once(rig):
    port = harness.free_port()
    return {"status": [rig.end(f"--master-port={port}", "start")[0] for _ in range(3)]}


@behaviour
def a_run_id_is_used_again(rig):
    options = f"--nnodes=1:1 --rdzv-backend=c10d --rdzv-endpoint=localhost:{harness.free_port()} --rdzv-id=again"
    return {"status": [rig.end(options, "start")[0] for _ in range(3)]}


@behaviour
def a_stranger_has_the_port(rig):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        agent = rig.start(f"--master-addr=127.0.0.1 --master-port={port} --rdzv-conf=timeout=5,read_timeout=5", "start")
        status = agent.finish(120)[0]
    return {"fails": status not in (0, None), "told": rig.told()}


# --- PyTorch ---------------------------------------------------------------------------------------------------------

GROUP = r"""
import datetime, os, sys, torch, torch.distributed as dist
how = sys.argv[1].replace("PORT", os.environ["MASTER_PORT"]).replace("ADDR", os.environ["MASTER_ADDR"])
explicit = {} if how.startswith("env") else {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
dist.init_process_group("gloo", init_method=how, timeout=datetime.timedelta(seconds=60), **explicit)
x = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(x)
os.write(1, b"sum %d\n" % int(x))
dist.destroy_process_group()
"""


def group(rig, options, how):
    (rig.job.tmp / "group.py").write_text(GROUP)
    status, out, _ = rig.end(options, "", program_words=["group.py", how], seconds=120)
    return {"status": status, "stdout": sorted(out.split("\n"))}


@with_torch
def init_method_env(rig):
    return group(rig, "--nproc-per-node=2", "env://")


@with_torch
def init_method_tcp_to_the_master_port(rig):
    return group(rig, f"--nproc-per-node=2 --master-addr=127.0.0.1 --master-port={harness.free_port()}", "tcp://ADDR:PORT")


@with_torch
def init_method_tcp_without_a_port_given(rig):
    return group(rig, "--nproc-per-node=2", "tcp://ADDR:PORT")


@with_torch
def the_store_is_not_shared(rig):
    (rig.job.tmp / "group.py").write_text(GROUP)
    status, out, _ = rig.end("--nproc-per-node=2", "", program_words=["group.py", "env://"], seconds=120,
                             env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
    return {"status": status, "stdout": sorted(out.split("\n"))}

