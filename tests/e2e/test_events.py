"""--event-log: the timeline of an incident; and the socket to which workers send."""
import datetime
import json


def read(*paths):
    return [json.loads(line) for path in paths if path.exists() for line in path.read_text().splitlines()]


def test_a_restart_reads_as_a_timeline(job, tmp_path):
    log = tmp_path / "events.jsonl"  # only the leader writes
    agents = job.pair("--max-restarts=1", f"--event-log={log}", nnodes="2",
                      worker=("start", "count=0", "rank=3", "exit=7", "count=0", "wait"))
    for agent in agents:
        assert agent.finish()[0] == 0, agent.said()
    lines = read(log)
    names = [line["event"] for line in lines]
    assert names[:2] == ["begins", "leads"] and names.count("node_joined") == 2
    assert [n for n in names if n not in ("begins", "leads", "node_joined", "successors")] == \
        ["formed", "started", "worker_failed", "stopping", "stopped", "formed", "incident", "started", "closed"]
    [failed] = [line for line in lines if line["event"] == "worker_failed"]
    assert (failed["rank"], failed["local_rank"], failed["exitcode"], failed["restarts_used"]) == (3, 1, 7, 0), failed
    assert failed["pid"] == int(job.events.all("start", rank=3, gen="1.1")[0].fields["pid"]) and "signal" not in failed, failed
    assert {line["run_id"] for line in lines} == {"e2e"}
    assert [int(line["monotonic_ns"]) for line in lines] == sorted(int(line["monotonic_ns"]) for line in lines)
    times = [datetime.datetime.strptime(line["time"], "%Y-%m-%dT%H:%M:%S.%fZ") for line in lines]
    assert (times[-1] - times[0]).total_seconds() < 60
    first, second = [line for line in lines if line["event"] == "started"]
    assert (first["generation"], second["generation"]) == ("1.1", "1.2")
    assert second["world_size"] == 4
    once, again = [line for line in lines if line["event"] == "formed"]
    assert "stopped_to_formed_ms" not in once and again["stopped_to_formed_ms"] >= 0
    assert lines[-1]["outcome"] == "success"


def test_with_log_folders_the_event_log_is_in_that_of_the_run(job, tmp_path):
    code, _, err = job.run("--nproc-per-node=2", "--max-restarts=1", f"--log-dir={tmp_path}/logs", "--rdzv-id=j", "--no-python",
                           job.worker, "count=0", "rank=1", "exit=7", env={"SECRET": "hush"})
    assert code == 0, err
    path = tmp_path / "logs/j/events.jsonl"
    first, *lines = read(path)
    assert first["event"] == "begins" and first["folder"] == str(job.tmp) and first["muster"], first
    assert "hush" not in path.read_text()
    assert [line["event"] for line in lines] == ["leads", "node_joined", "formed", "started", "worker_failed", "stopping", "stopped",
                                                 "formed", "incident", "started", "closed"]
    assert [line["time"] for line in (first, *lines)] == sorted(line["time"] for line in (first, *lines))


def test_a_full_disk_of_the_log_folder_ends_no_job(job, tmp_path):
    code, _, err = job.run("--max-restarts=3", "--crash-loop=0", "--exclude-after=0", f"--log-dir={tmp_path}/logs", "--rdzv-id=j", "--no-python", "/bin/sh", "-c",
                           'test "$TORCHELASTIC_RESTART_COUNT" = 3', prefix=("prlimit", "--fsize=1000"))
    assert code == 0, err
    assert err.count("can't write to") == 1 and "events.jsonl: " in err and "lost lines are counted" in err, err
    assert (tmp_path / "logs/j/events.jsonl").stat().st_size == 1000


def test_console_is_the_event_log_of_torchrun(job):
    code, _, err = job.run("--event-log-handler=console", "--no-python", "/bin/true")
    assert code == 0
    assert [json.loads(line)["event"] for line in err.splitlines() if line.startswith("{")][-1] == "closed"


def test_an_event_log_that_cannot_be_written_ends_no_job(job):
    code, _, err = job.run("--event-log=/dev/full", "--no-python", "/bin/true")
    assert code == 0, err
    assert err.count("No space left on device") == 1 and "lines were lost" in err
    code, _, err = job.run("--event-log=/no/such/folder/log", "--no-python", "/bin/true")
    assert code == 2 and "--event-log=/no/such/folder/log: can't open" in err


def test_workers_know_the_notify_socket_and_no_password(job):
    code, out, err = job.run("--no-python", "/bin/sh", "-c", "env | grep -e ^MUSTER_ -e ^NOTIFY_SOCKET | sort",
                             env={"MUSTER_ETCD_PASSWORD": "secret", "NOTIFY_SOCKET": "/run/systemd/notify"})
    assert code == 0, err
    told = dict(line.split("=", 1) for line in out.splitlines())
    assert told["MUSTER_NOTIFY_SOCKET"].startswith("@muster-notify-")
    assert told["NOTIFY_SOCKET"] == "/run/systemd/notify"
    assert told["MUSTER_GENERATION"] == "1.1" and told["MUSTER_EPOCH"] == "1"
    assert "MUSTER_ETCD_PASSWORD" not in told
    code, out, err = job.run("--no-python", "/bin/sh", "-c", 'test "$NOTIFY_SOCKET" = "$MUSTER_NOTIFY_SOCKET" && echo same')
    assert code == 0 and out == "same\n", err
