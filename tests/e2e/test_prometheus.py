"""`muster status -o prometheus` and examples/prometheus, with the real promtool, Prometheus and node_exporter."""
import itertools
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import pytest

from harness import HERE, MUSTER, deadline, free_port, kill
from test_operate import ask, endpoint, status, until

EXAMPLE = HERE.parents[1] / "examples/prometheus"
SERVERS = ("prometheus", "prometheus-node-exporter")
RUN_ID = 'a "quoted\\" Größe'
NAME = re.compile(r"\bmuster_[a-z_]+\b")
needs = {name: pytest.mark.skipif(not shutil.which(name), reason=f"no {name}") for name in ("promtool", *SERVERS)}


def promtool(*words, text=None):
    """What it prints; it must succeed."""
    done = subprocess.run(["promtool", *map(str, words)], input=text, capture_output=True, text=True, timeout=60, cwd=EXAMPLE)
    assert done.returncode == 0, (text, done)
    return done.stdout + done.stderr


def series_of(text):
    """{series: value} of an exposition."""
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def metrics(job, *words):
    """(series, the exposition) of `muster status -o prometheus`."""
    code, out, err = ask(job, "status", "-o", "prometheus", *words)
    assert (code, err) == (0, ""), err
    return series_of(out), out


def label(run_id, **more):
    text = re.sub(r'(["\\])', r"\\\1", run_id)
    return "{" + ",".join(f'{k}="{v}"' for k, v in {"run_id": text, **more}.items()) + "}"


@needs["promtool"]
def test_the_metrics_of_a_job_from_its_start_to_its_end(job):
    agent = job.agent("a", "--rdzv-id", RUN_ID, "--nproc-per-node=2", "--max-restarts=3", "--no-python", job.worker, "start", "go")
    job.events.wait("start", 2)
    until(job, lambda s: s["state"] == "running")
    series, text = metrics(job)
    assert promtool("check", "metrics", text=text) == ""
    assert len(series) <= 25
    expected = {"muster_job_info": "1", "muster_epoch": "1", "muster_group": "1", "muster_workers": "2",
                "muster_restarts_total": "0", "muster_restarts_limit": "3", "muster_node_losses_total": "0", "muster_hung": "0"}
    assert expected == {k: series[k + label(RUN_ID)] for k in expected}
    assert series["muster_nodes" + label(RUN_ID, place="member")] == "1"
    assert series["muster_job_state" + label(RUN_ID, state="running")] == "1"
    job.go()
    assert agent.wait() == 0
    series, text = metrics(job, RUN_ID)
    assert promtool("check", "metrics", text=text) == ""
    assert series.pop("muster_epoch" + label(RUN_ID), "1") == "1"
    assert series == {"muster_job_info" + label(RUN_ID): "1", "muster_job_state" + label(RUN_ID, state="succeeded"): "1"}


def test_a_job_that_waits_and_one_that_is_shown_every_second(job):
    agent, = job.pair(nnodes="2", tags="a")
    agent.wait_said("waiting for nodes: 1 of 2")
    series, _ = metrics(job, endpoint(agent))
    assert series["muster_nodes" + label("e2e", place="waiting")] == "1" and series["muster_workers" + label("e2e")] == "0"
    assert not [name for name in series if name.startswith(("muster_group", "muster_quiet", "muster_hung", "muster_step"))], series
    code, _, err = ask(job, "status", "-o", "prometheus", "-w")
    assert (code, err) == (2, "muster status: --output=prometheus and --watch cannot be combined\n")


@needs["promtool"]
def test_the_rules_their_tests_and_the_dashboard(tmp_path):
    assert "4 rules found" in promtool("check", "rules", "rules.yml")
    promtool("test", "rules", "rules_test.yml")
    board = json.loads((EXAMPLE / "dashboard.json").read_text())
    texts = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    texts += [note["expr"] for note in board["annotations"]["list"]]
    texts += re.findall(r"^```promql\n(.*?)^```$", (EXAMPLE / "README.md").read_text(), re.M | re.S)
    rules = tmp_path / "queries.yml"  # JSON is YAML
    rules.write_text(json.dumps({"groups": [{"name": "all", "rules": [{"record": f"q{n}", "expr": text}
                                                                    for n, text in enumerate(texts)]}]}))
    assert f"{len(texts)} rules found" in promtool("check", "rules", rules)


def test_the_loop_waits_for_the_job_and_not_for_an_earlier_one_of_its_id(job):
    assert job.run("--rdzv-id=twice", "--no-python", "true")[0] == 0
    file = job.tmp / "muster.prom"
    loop = start(job, [EXAMPLE / "textfile.sh", "twice", file, "0.05"], job.tmp / "loop.log")

    def wait(path, text):
        end = deadline(30)
        while not path.exists() or text not in path.read_text():
            assert deadline(0) < end, (job.tmp / "loop.log").read_text()
            select.select([], [], [], 0.05)

    wait(file.with_name("muster.prom.new"), 'state="succeeded"')
    assert not file.exists()
    agent = job.agent("b", "--rdzv-id=twice", "--no-python", job.worker, "start", "go")
    wait(file, 'state="running"')
    job.go()
    assert agent.wait() == 0
    wait(file, 'state="succeeded"')
    os.killpg(loop.pid, signal.SIGKILL)
    loop.wait()


def test_only_metrics_that_exist_are_used_and_the_manual_has_each():
    manual = set(re.findall(r"^\.It Li (muster_\w+) Ta", (HERE.parents[1] / "man/muster-status.1").read_text(), re.M))
    source = set(re.findall(r'"(muster_\w+)", "(?:gauge|counter)"', (HERE.parents[1] / "src/cli/jobs/status_prometheus.c").read_text()))
    assert len(source) == 14 and manual == source
    for path in EXAMPLE.iterdir():
        assert set(NAME.findall(path.read_text())) <= source, path


# --- real servers ----------------------------------------------------------------------------------------------------


class Prometheus:
    """A Prometheus that scrapes a node_exporter, which reads `folder`. All end with the job."""

    def __init__(self, job, folder):
        self.port, exporter = free_port(), free_port()
        config = job.tmp / "prometheus.yml"
        config.write_text(json.dumps({"global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
                                      "scrape_configs": [{"job_name": "node", "static_configs": [
                                          {"targets": [f"127.0.0.1:{exporter}"]}]}]}))
        self.log = job.tmp / "servers.log"
        for words in ([SERVERS[1], f"--web.listen-address=127.0.0.1:{exporter}", "--collector.disable-defaults",
                       "--collector.textfile", f"--collector.textfile.directory={folder}"],
                      [SERVERS[0], f"--config.file={config}", f"--storage.tsdb.path={job.tmp / 'tsdb'}",
                       f"--web.listen-address=127.0.0.1:{self.port}"]):
            start(job, words, self.log)

    def query(self, text):
        """What a query returns: [(labels, value or samples)]."""
        url = f"http://127.0.0.1:{self.port}/api/v1/query?" + urllib.parse.urlencode({"query": text})
        with urllib.request.urlopen(url, timeout=20) as answer:
            found = json.load(answer)["data"]["result"]
        return [(row["metric"], row.get("values") or float(row["value"][1])) for row in found]

    def wait(self, text, seconds=60):
        """Until a query returns something."""
        end = deadline(seconds)
        while True:
            found = []
            try:
                found = self.query(text)
            except (urllib.error.URLError, ConnectionError):
                pass  # it does not listen yet
            if found:
                return found
            assert deadline(0) < end, (text, self.log.read_text())
            select.select([], [], [], 0.05)


def start(job, words, log):
    with open(log, "a", encoding="utf-8") as out:
        return subprocess.Popen([str(word) for word in words], env=job.env("servers", {
            "PATH": f"{pathlib.Path(MUSTER).resolve().parent}:{os.environ['PATH']}"}), cwd=job.tmp, stdin=subprocess.DEVNULL,
            stdout=out, stderr=subprocess.STDOUT, start_new_session=True)


@needs["promtool"]
@needs["prometheus"]
@needs["prometheus-node-exporter"]
def test_counters_of_a_scraped_job_survive_a_dead_worker_and_a_dead_leader(job):
    folder = job.tmp / "textfile"
    folder.mkdir()
    for tag in "ab":
        job.agent(tag, "--nnodes=1:2", "--nproc-per-node=1", f"--rdzv-endpoint=dir:{job.tmp}/shared", "--rdzv-id", RUN_ID,
                  "--rdzv-conf=last_call_timeout=60", "--max-restarts=3", "--preflight=off", "--no-python", job.worker, "start", "go")
    loop = start(job, [EXAMPLE / "textfile.sh", RUN_ID, folder / "muster.prom", "0.1"], job.tmp / "loop.log")
    prometheus = Prometheus(job, folder)
    first = job.events.wait("start", 2, world=2)
    prometheus.wait('muster_job_state{state="running"} and on(run_id) muster_nodes{place="member"} == 2')
    kill(int(first[0].fields["pid"]))
    prometheus.wait('muster_restarts_total == 1 and on(run_id) muster_job_state{state="running"}'
                    ' and on(run_id) muster_incidents_total{class="worker"} == 1')
    seen = until(job, lambda s: s["state"] == "running" and all(n["state"] == "running" for n in s["nodes"]))
    kill(next(n["pid"] for n in seen["nodes"] if n["id"] == seen["leader"]))
    prometheus.wait(f'muster_epoch > {seen["epoch"]} and on(run_id) muster_node_losses_total == 1'
                    ' and on(run_id) muster_job_state{state="running"} and on(run_id) muster_incidents_total{class="node_lost"} == 1')
    epochs = dict(prometheus.query("muster_epoch[1h]")[0][1])
    counters = prometheus.query('{__name__=~"muster_.*_total"}[1h]')
    assert len(counters) == 2 + 6 + 5, counters
    for labels, samples in counters:
        falls = [(at, old, new) for (was, old), (at, new) in itertools.pairwise(samples)
                 if float(new) < float(old) and (labels["__name__"] != "muster_phase_seconds_total" or epochs[was] == epochs[at])]
        assert not falls, (labels, falls)
    assert prometheus.query("count({run_id!=''}) by (run_id) <= 25") != []
    assert [v for _, v in prometheus.query("node_textfile_scrape_error[1h]")[0][1] if v != "0"] == []
    assert "level=error" not in prometheus.log.read_text()
    job.go()
    prometheus.wait('muster_job_state{state="succeeded"}')
    os.killpg(loop.pid, signal.SIGKILL)  # it waits until the last state was scraped
    loop.wait()
