"""Where muster differs from torchrun on purpose. The table in docs/from-torchrun.md is made from this one (tests/tools/differences.py); a
difference that test_like_torchrun.py finds and no row explains is a failure, and so is a row that is not seen any more.
"""
import json
import re
import typing


class Difference(typing.NamedTuple):
    what: str      # a few words
    torchrun: str  # what torchrun does
    muster: str
    reason: str
    paths: str     # the leaves of an observation, as a regular expression for the whole path
    example: str   # a command line or behaviour that shows it
    cases: str = ".*"   # the command lines and behaviours in which it may show, likewise
    theirs: str = ".*"  # torchrun's and muster's value as JSON, likewise
    ours: str = ".*"

    def explains(self, name, path, theirs, ours):
        return all(re.fullmatch(pattern, text, re.S) for pattern, text in (
            (self.cases, name), (self.paths, path), (self.theirs, json.dumps(theirs)), (self.ours, json.dumps(ours))))


NOTHING = r'"\(none\)"'
RUN, REFUSED = r'"run, status 0"', r'"do not run, status [12]"'

DIFFERENCES = [
    # --- the command line
    Difference(
        "options that look like torchrun's, after the script; `--nproc`",
        "refused as ambiguous", "the script's own; `--nproc` is `--nproc-per-node`",
        "what follows the script belongs to the script, and both spellings of an option are one option",
        r"workers", "probe.py --d 3", r"probe\.py --(d|nproc|no)( 3)?|--nproc 2 probe\.py|--no-p \./probe\.py", REFUSED, RUN),
    Difference(
        "mistakes in options", "status 2 from the parser, else 1 with a traceback", "status 2 and one line",
        "a script can distinguish a mistake from a job that failed",
        r"status without workers", "--nnodes=2:1 probe.py", theirs="1", ours="2"),
    Difference(
        "fractions of seconds in `--rdzv-conf` and `--shutdown-timeout`", "refused", "taken", "there is no reason to refuse them",
        r"workers", "--rdzv-conf=join_timeout=1.5 probe.py", r"--(rdzv-conf=.*|shutdown-timeout)=1\.5 .*", REFUSED, RUN),
    Difference(
        "`TORCH_ELASTIC_SHUTDOWN_TIMEOUT=-1`", "taken", "refused", "as `--shutdown-timeout=-1`", r"workers",
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT='-1' probe.py", r"TORCH_ELASTIC_SHUTDOWN_TIMEOUT='-1'.*", RUN, REFUSED),
    Difference(
        "signals that no program can handle, `--signals-to-handle=SIGKILL`", "a traceback when workers start", "a warning",
        "as for names that are not signals", r"workers", "--signals-to-handle=SIGKILL probe.py", r"--signals-to-handle=SIGKILL.*",
        REFUSED, RUN),
    Difference(
        "`TORCHELASTIC_SIGNALS_TO_HANDLE` in workers", "the text of the option", "the signals that are handled",
        "a worker that reads it can rely on it", r"workers/.*/env/TORCHELASTIC_SIGNALS_TO_HANDLE",
        "--signals-to-handle=TERM probe.py", r".*signals.to.handle=.*"),
    Difference(
        "`LOGLEVEL` that is none", "a traceback", "ignored", "no job should fail for it", r"workers", "LOGLEVEL='zzz' probe.py",
        r"LOGLEVEL=.*", REFUSED, RUN),
    Difference(
        "`--log-line-prefix-template`", "not before 2.14", "taken", "the same option as in 2.14", r"workers",
        "--log-line-prefix-template='${rank} ' -t1 --log-dir=logs probe.py", r"--log-line-prefix-template=.*", REFUSED, RUN),
    Difference(
        "`PET_LOG_LINE_PREFIX_TEMPLATE`", "ignored", "taken", "as for other options", r"stdout",
        "PET_LOG_LINE_PREFIX_TEMPLATE='${rank} ' PET_TEE='1' PET_LOG_DIR='logs' probe.py", r"PET_LOG_LINE_PREFIX_TEMPLATE=.*"),
    Difference(
        "an empty `PYTHON_EXEC`", "a program without a name, which fails", "as if it was not set",
        "a script sets it so to take it back", r"workers", "PYTHON_EXEC='' probe.py", r"PYTHON_EXEC=''.*", REFUSED, RUN),
    Difference(
        "`--version`", "unknown", "prints muster's", "people look for it", r"stdout|status without workers", "--version", r"--version"),

    # --- the environment of workers
    Difference(
        "`MUSTER_*` in workers", "absent",
        "`MUSTER_GENERATION`, `MUSTER_NOTIFY_SOCKET` and others; `NOTIFY_SOCKET`, unless it is set",
        "what torchrun has no name for", r"workers/.*/env/(MUSTER_.*|NOTIFY_SOCKET)", "probe.py", theirs=NOTHING, ours='"<set>"'),
    Difference(
        "`TORCH_WORKER_SERVER_SOCKET`", "absent", "a path of its own for each worker, if it runs Python",
        "a program with `worker_main()` then asks its flight recorder, when the job hangs",
        r"workers/.*/env/TORCH_WORKER_SERVER_SOCKET", "probe.py", theirs=NOTHING, ours='"<socket>"'),
    Difference(
        "`PYTHONFAULTHANDLER` in workers", "absent", "1, unless it is set",
        "a worker that dies of a signal writes its Python stacks to stderr first",
        r"workers/.*/env/PYTHONFAULTHANDLER", "probe.py", theirs=NOTHING, ours='"1"'),
    Difference(
        "`MASTER_ADDR`", "the name of the host, or `localhost`", "an address, unless `--master-addr` is a name; for IPv6 the endpoint's name, if it is one",
        "workers need no resolver, and none of them can find another address under the name",
        r"workers/.*/env/MASTER_ADDR", "probe.py", r".*--standalone.*|(?!.*(master.port|PET_MASTER_PORT)).*", theirs='"<host>"', ours=r'"127\.0\.0\.1"|"::1"'),
    Difference(
        "`--rdzv-id` of a job of one node without an endpoint", "replaced by a random one", "kept",
        "it names the folder of the logs, and the job in `muster status`", r"workers/.*/env/TORCHELASTIC_RUN_ID",
        "--rdzv-id=job7 probe.py", r".*(--rdzv-id=job7|PET_RDZV_ID='j').*", theirs='"<id>"'),
    Difference(
        "`--master-port` with `--standalone`", "has no effect", "workers get that port", "who names a port wants it",
        r"workers/.*/env/MASTER_PORT", "--standalone --master-port={port} probe.py", r"--standalone --master-port.*",
        '"<port>"', r'"\{port\}"'),
    Difference(
        "`--rdzv-backend=c10d` without an endpoint", "the run id `none`, and port 29400", "a run id of its own, and a free port",
        "two jobs on one machine are not taken for one", r"workers/.*/env/TORCHELASTIC_RUN_ID", "--rdzv-backend=c10d probe.py",
        r"--rdzv-backend=c10d (--rdzv-endpoint=localhost )?probe\.py", '"none"', '"<id>"'),
    Difference(
        "no `--rdzv-id`, and one node with `--master-port`, static ranks or port 0", "the run id `none`",
        "the script's name with date and time: `train-1126-1138-7c3f1a`", "`muster ps` and log folders show which job it is",
        r"workers/.*/env/TORCHELASTIC_RUN_ID", "--master-port={port} probe.py",
        r"(?!.*--rdzv-backend=c10d --rdzv-endpoint=\S*\{port\}).*", '"none"', '"<id>"'),
    Difference(
        "an empty `--rdzv-id` with an endpoint", "a random one on each node", "`none`", "nodes with random ones never meet",
        r"workers/.*/env/TORCHELASTIC_RUN_ID", "--rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:{port} --rdzv-id= probe.py",
        r"--rdzv-backend=c10d --rdzv-endpoint=127\.0\.0\.1:\{port\} --rdzv-id= probe\.py", '"<id>"', '"none"'),
    Difference(
        "`TORCHELASTIC_ENABLE_FILE_TIMER=1`", "a watchdog in the launcher", "not there", "few scripts use its client",
        r"workers/.*/env/TORCHELASTIC_TIMER_FILE|tmp", "TORCHELASTIC_ENABLE_FILE_TIMER='1' probe.py",
        r"TORCHELASTIC_ENABLE_FILE_TIMER.*"),
    Difference(
        "`TORCHINDUCTOR_CACHE_DIR` in workers", "set when the launcher happens to import the compiler", "as the user set it",
        "the launcher imports no PyTorch", r"workers/.*/env/TORCHINDUCTOR_CACHE_DIR", "--signals-to-handle=TERM probe.py",
        theirs='"<folder>/tmp/torchinductor_.*"', ours=NOTHING),
    Difference(
        "`--run-path`", "the script runs inside a copy of the launcher, with its descriptors", "a python of its own",
        "the launcher has no interpreter", r"workers/.*/(fds|leads a session|path|unbuffered)", "--run-path probe.py a",
        r"--run[-_]path.*|PET_RUN_PATH='1'.*"),
    Difference(
        "SIGHUP that the launcher inherited as ignored (`nohup`)", "ends the job", "remains ignored",
        "`nohup` asks for it", r"workers/.*/ignored|status|told", "nohup probe.py",
        r"nohup.*|behaviour: an_ignored_sighup_stays_ignored"),
    Difference(
        "a closed standard input", "closed in workers", "`/dev/null` in workers",
        "else the first file that a worker opens is its standard input", r"workers/.*/(fds|stdin|tty)",
        'sh -c exec "$@" <&- sh probe.py', r"sh -c exec .* <&- .*"),

    # --- files and output
    Difference(
        "folders of logs", "`DIR/<run id>_<random>/attempt_<n>/<local rank>/`",
        "`DIR/<run id>/<generation>/<node>/<rank>/`; none without logs; hidden files for `muster logs`; `events.jsonl`",
        "nodes can share DIR; all logs of a job are in one folder, in the order of time, and none is overwritten",
        r"logs(/.*)?/(\.[^/]*|events\.jsonl)|logs/logs", "-r3 --log-dir logs probe.py"),
    Difference(
        "without `--log-dir`", "a folder in `$TMPDIR` remains for each run", "nothing remains except log files that were asked for",
        "no program removes it", r"tmp", "probe.py", theirs=r".*<folder of the launcher>.*", ours=r"\[\]"),
    Difference(
        "`--tee` with `--log-dir=/dev/null`", "lines without a prefix", "lines with the prefix",
        "the option asks for it", r"stdout|stderr", "--log-dir=/dev/null -t3 probe.py", r"--log-dir=/dev/null -t3 .*"),
    Difference(
        "several workers on one terminal", "lines without a prefix",
        "lines begin with `[rank0]: ` (`--prefix=never`: without), and a worker's terminal is narrower by that",
        "otherwise it is not known whose line it is", r"sees(/.*)?", "behaviour: two_workers_on_a_terminal",
        r"behaviour: two_workers_on_a_terminal"),

    # --- behaviour
    Difference(
        "the same failure within 5 s of the start, twice in a row", "restarted until `--max-restarts` is used up",
        "ends the job (`--crash-loop`)", "the restarts are for failures that a restart heals", r"told",
        "behaviour: a_worker_fails_at_once_in_every_attempt_of_many",
        r"behaviour: a_worker_fails_at_once_in_every_attempt_of_many"),

    Difference(
        "an exception, without an error file", "a link to a page that describes `@record`", "the traceback that the worker wrote to stderr",
        "the report has the cause", r"report/root/(traceback|RuntimeError)",
        "behaviour: an_exception_without_an_error_file",
        r"behaviour: an_exception_without_an_error_file", r'"To enable traceback see: .*"|"\(none\)"', r'"Traceback .*"|"no luck"'),
    Difference(
        "an error file that is not valid", "a traceback of the launcher", "the report, and why the file is not valid",
        "otherwise the failed worker is unknown", r"(no message|no JSON|empty)/report.*", "behaviour: error_files_of_other_forms",
        r"behaviour: error_files_of_other_forms"),
    Difference(
        "a worker fails with static ranks on several nodes, and the job may restart", "the workers of its node restart",
        "the workers of all nodes restart", "the others wait for it in a collective operation that cannot end", r"starts",
        "behaviour: two_agents_with_static_ranks_one_worker_fails_and_restarts",
        r"behaviour: two_agents_with_static_ranks_one_worker_fails_and_restarts"),
    Difference(
        "`TORCHELASTIC_RESTART_COUNT`", "the failures of its own node", "the restarts of the job, the same on all nodes",
        "all workers of an attempt agree on its number", r"starts", "behaviour: two_agents_one_worker_fails_and_restarts",
        r"behaviour: two_agents_one_worker_fails_and_restarts"),
    Difference(
        "a signal to the launcher ends the job", "status 1", "128 and the signal's number",
        "as for any program: the scheduler and the shell can distinguish it from a failure", r"status",
        "behaviour: sigterm_reaches_the_workers", r"behaviour: (sig|ctrl_c|a_listed|a_second|a_signal_is|workers_that_ignore).*", "1",
        r"1(29|30|31|38|43)"),
    Difference(
        "too few nodes come, nodes are lost, or no leader is found", "status 1", "status 75",
        "the program is not to blame: a scheduler may run the job again as it is",
        r"status( without workers)?", "behaviour: too_few_nodes_come",
        r"behaviour: too_few_nodes_come|--nnodes=2(:3)? .*timeout=2 probe\.py", "1", "75"),
    Difference(
        "SIGUSR1 and others that are not in `--signals-to-handle`", "kill the launcher; workers live on",
        "are passed on to the workers, and the job continues", "schedulers announce with them that the time is nearly over",
        r"status|told|alive", "behaviour: sigusr1_that_is_not_listed", r"behaviour: sigusr1_that_is_not_listed"),
    Difference(
        "the launcher is killed", "workers live on", "workers end", "they would be unsupervised and keep the GPUs", r"alive",
        "behaviour: the_agent_is_killed", r"behaviour: the_agent_is_killed", "1", "0"),
    Difference(
        "processes that a worker started and left", "live on", "end with the job (`--leave=detached`: may live on)",
        "they keep GPUs and ports that the next job needs", r"alive",
        "behaviour: a_background_process_in_a_session_of_its_own", r"behaviour: a_background_process_.*", "1", "0"),
    Difference(
        "a worker fails for good on one of two nodes", "the other node runs on", "the other node ends, too, and reports why",
        "it would wait for a peer that does not come back", r"other agent", "behaviour: two_agents_one_worker_fails_for_good",
        r"behaviour: two_agents_one_worker_fails_for_good"),
    Difference(
        "the reader of standard output goes away, as `head` does", "status 1", "that of the workers, who notice nothing",
        "the reader left on purpose", r"status", "behaviour: a_reader_that_goes_away", r"behaviour: a_reader_that_goes_away", "1", "0"),
    Difference(
        "a last line without a newline, with `--tee`", "has none", "gets one", "the next line is of another worker",
        r"stdout", "behaviour: a_last_line_without_a_newline_is_teed", r"behaviour: a_last_line_without_a_newline_is_teed"),

    Difference(
        "carriage returns, with `--tee`", "end a line: each step of a progress bar is a line of its own", "pass within their line",
        "a progress bar remains one line", r"bytes", "behaviour: carriage_returns_are_teed", r"behaviour: carriage_returns_are_teed"),
    Difference(
        "bytes that are not UTF-8, with `--tee`", "replaced on the terminal", "pass as they are",
        "what a worker writes is its own", r"bytes", "behaviour: bytes_that_are_no_text_are_teed",
        r"behaviour: bytes_that_are_no_text_are_teed"),
    Difference(
        "an agent of an elastic job is killed, or gets a signal",
        "the other nodes' workers run on with the old world size; at the end their launchers wait for it for five minutes",
        "the workers restart with the remaining nodes", "a collective operation with a lost peer does not end",
        r"status|restarted|of the other", "behaviour: an_agent_of_an_elastic_job_is_killed",
        r"behaviour: an_agent_of_an_elastic_job_.*"),
    Difference(
        "an agent that got no place in a job that succeeds", "fails: the connection is lost", "ends with 0",
        "a scheduler takes no node for a failed one", r"status", "behaviour: an_agent_too_many", r"behaviour: an_agent_too_many"),
    Difference(
        "an agent joins a running elastic job",
        "all workers are ended; then the agents wait for each other until the store's time-out, and the job fails",
        "it waits until a worker reports a safe point, or the job restarts anyway (`--grow=now`: at once)",
        "no step since the last checkpoint is lost", r"status|told", "behaviour: an_agent_joins_a_running_job",
        r"behaviour: an_agent_joins_a_running_job"),
]


def table(rows=DIFFERENCES):
    """The table of docs/from-torchrun.md, in Markdown."""
    lines = ["| | torchrun 2.13 | muster | why |", "| --- | --- | --- | --- |"]
    return lines + [f"| {d.what} | {d.torchrun} | {d.muster} | {d.reason} |" for d in rows]
