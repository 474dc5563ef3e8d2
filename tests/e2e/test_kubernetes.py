"""The examples for Kubernetes, checked without a cluster: their names fit together, and muster accepts their lines and
finds, in a pod as they describe it, where the pods meet."""
import json
import os
import subprocess

import pytest

import harness
from harness import MUSTER

yaml = pytest.importorskip("yaml", reason="needs python3-yaml")

EXAMPLES = harness.HERE.parent.parent / "examples" / "kubernetes"
CLUSTER = "team.svc.cluster.local"


def documents(name):
    return {doc["kind"]: doc for doc in yaml.safe_load_all((EXAMPLES / name).read_text())}


def indexed_job():
    """The Job, its name, and its pods' subdomain; the Service must be the one of these pods."""
    docs = documents("indexed-job.yaml")
    job, service = docs["Job"], docs["Service"]
    assert (job["apiVersion"], service["apiVersion"]) == ("batch/v1", "v1")
    name, pod = job["metadata"]["name"], job["spec"]["template"]["spec"]
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}, "the label that the Job sets"
    assert pod["subdomain"] == service["metadata"]["name"]
    return job["spec"], name, pod["subdomain"]


def jobset():
    docs = documents("jobset.yaml")
    jobset = docs["JobSet"]
    assert jobset["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    network, jobs = jobset["spec"]["network"], jobset["spec"]["replicatedJobs"]
    assert network["enableDNSHostnames"] is True and network["publishNotReadyAddresses"] is True
    assert len(jobs) == 1 and jobs[0]["replicas"] == 1, "an index means one node only within one Job"
    assert jobset["spec"]["failurePolicy"]["maxRestarts"] >= 1
    name = jobset["metadata"]["name"]
    assert "subdomain" not in network and "subdomain" not in jobs[0]["template"]["spec"]["template"]["spec"]
    return jobs[0]["template"]["spec"], f"{name}-{jobs[0]['name']}-0", name


ALL = pytest.mark.parametrize("example", [indexed_job, jobset])


@ALL
def test_the_job_is_one_that_kubernetes_takes(example):
    spec, name, subdomain = example()
    pod = spec["template"]["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"], "all nodes run at the same time"
    assert pod["restartPolicy"] == "Never", "podFailurePolicy demands it"
    container, = pod["containers"]
    assert set(container) == {"name", "image", "command", "resources", "securityContext", "volumeMounts"}
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    assert "/dev/shm" in {m["mountPath"] for m in container["volumeMounts"]}
    for label in (f"{name}-{spec['completions'] - 1}", subdomain):
        assert len(label) <= 63 and label.replace("-", "").isalnum() and label == label.lower(), label


@ALL
def test_pods_are_started_again_where_the_program_is_not_to_blame(example):
    spec, _, _ = example()
    container = spec["template"]["spec"]["containers"][0]["name"]
    rules = spec["podFailurePolicy"]["rules"]
    action = {}
    for rule in rules:
        assert set(rule) - {"action"} in ({"onExitCodes"}, {"onPodConditions"}), "one of the two"
        for condition in rule.get("onPodConditions", []):
            assert condition == {"type": "DisruptionTarget", "status": "True"} and rule["action"] == "Ignore"
        codes = rule.get("onExitCodes")
        if codes:
            assert codes["operator"] == "In" and codes["containerName"] == container
            assert codes["values"] == sorted(set(codes["values"])) and 0 not in codes["values"]
            action.update({code: rule["action"] for code in codes["values"]})
    assert rules[0]["action"] == "Ignore" and "onPodConditions" in rules[0]
    assert action[75] == action[143] == "Ignore"
    assert action.get(1) in (None, "FailJob") and action.get(2) in (None, "FailJob")


@ALL
def test_the_container_may_as_little_as_possible(example):
    pod = example()[0]["template"]["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    assert pod["containers"][0]["securityContext"] == {
        "readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@ALL
@pytest.mark.parametrize("index", [0, 3])
def test_muster_finds_its_place_in_such_a_pod(example, index, tmp_path):
    spec, name, subdomain = example()
    program, *words = spec["template"]["spec"]["containers"][0]["command"]
    assert program == "muster" and words[0] == "run"
    hosts = tmp_path / "hosts"
    hosts.write_text("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"
                     f"10.244.1.{index}\t{name}-{index}.{subdomain}.{CLUSTER}\t{name}-{index}\n")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "SLURM_"))}
    env.update(KUBERNETES_SERVICE_HOST="10.96.0.1", JOB_COMPLETION_INDEX=str(index))
    inside = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(hosts)]
    if os.geteuid() != 0 or subprocess.run([*inside, "true"], capture_output=True).returncode != 0:
        pytest.skip("needs root and a mount namespace")
    done = subprocess.run([*inside, MUSTER, "run", "--print-config", *words[1:]], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done
    config = json.loads(done.stdout)
    assert (config["min_nodes"], config["max_nodes"]) == (spec["completions"],) * 2
    assert config["backend"] == "c10d" and config["node_rank"] == index and config["run_id"] == name
    assert config["endpoint_host"] == f"{name}-0.{subdomain}.{CLUSTER}"
    assert config["script"] == "train.py" and not config["standalone"]
    assert len(config["derived"]) == 3 and all(" from " in line for line in config["derived"]), config["derived"]
