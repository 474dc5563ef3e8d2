"""What the kit measures on the machine, for the judges of judges.py; and in which order."""
import contextlib
import glob
import json
import os
import pathlib
import re
import signal
import socket
import sys
import threading
import time

import judges
from kit import HERE, ROOT, Skip, json_of

NVML = HERE / "nvml.py"
HANG = ("--hang-report=5", "--hang-still=8", "--hang-timeout=15")


def read(path):
    try:
        return pathlib.Path(path).read_text(errors="replace")
    except OSError as error:
        return error.strerror


def nvml(kit, check, *words, seconds=15):
    status, text, _ = kit.run([sys.executable, NVML, *words], check, seconds, errors=False)
    if status is None:
        raise Skip("no time left" if kit.left() <= 0 else f"NVML did not answer in {seconds} s")
    answer = json_of(text)
    if "error" in answer:
        raise Skip(answer["error"])
    return answer


def as_user(kit, check, words, code):
    """A job of this Python code as the user nobody, or a sentence why not."""
    if os.geteuid() != 0:
        return "the kit does not run as root"
    for python in (sys.executable, "/usr/bin/python3"):
        with contextlib.suppress(OSError):
            return kit.start([python, "-", *words], check, code=code, user=65534, env={"HOME": "/"})
    return "the user nobody can't start Python"


# ---- without PyTorch, one after the other ----

def topo(kit, check):
    smi = kit.run([kit.tool("nvidia-smi"), "topo", "-m"], check)[1]
    _, ours, seconds = kit.run(kit.muster("topo"), check)
    return {"muster": ours, "smi": smi, "seconds": seconds}


def gpus(kit, check):
    smi = kit.run([kit.tool("nvidia-smi"), "-q"], check)[1]
    return {"muster": kit.json(kit.muster("topo", "--json"), check), "smi": smi}


def children(pid):
    """Of all threads, and theirs."""
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        for child in read(path).split():
            if child.isdigit():
                found += [int(child), *children(child)]
    return found


def nvml_child(kit, check):
    """Reads as often as possible which process of muster has NVML in its memory, for how long, and how much."""
    kit.run(kit.muster("topo"), check)  # its files are in memory then
    began = time.monotonic()
    job = kit.start(kit.muster("topo"), check)
    seen, rss, in_parent = [], 0, False
    while not job.ended and time.monotonic() < began + 10:
        in_parent = in_parent or "libnvidia-ml" in read(f"/proc/{job.process.pid}/maps")
        for pid in children(job.process.pid):
            if "libnvidia-ml" in read(f"/proc/{pid}/maps"):
                peak = re.search(r"^VmHWM:\s*(\d+)", read(f"/proc/{pid}/status"), re.M)
                seen.append(time.monotonic())
                rss = max(rss, int(peak[1]) if peak else 0)
    total = time.monotonic() - began
    if not seen:
        raise Skip("no child with NVML was seen")
    own = nvml(kit, check, "gpus")
    return {"seconds": seen[-1] - seen[0], "rss_kib": rss, "in_parent": in_parent, "total_s": total,
            "init_s": own["init_s"], "read_s": own["read_s"]}


def check_node(kit, check):
    status, text, seconds = kit.run(kit.muster("check", "--json"), check, errors=False)
    return {**json_of(text), "status": status, "seconds": seconds, "names": [gpu["name"] for gpu in kit.gpus]}


def busy(kit, check):
    holder = kit.start([sys.executable, NVML, "hold"], check)
    answer = holder.wait(r"\{.*\}", 20)
    if not answer or "error" in answer[0]:
        raise Skip("the GPU could not be held: " + holder.text)
    held = os.stat(f"/proc/{holder.process.pid}").st_mtime
    while time.time() < held + 0.05:  # a leftover is older than muster, by the kernel's clock of 10 ms
        time.sleep(0.01)
    status, text, _ = kit.run(kit.muster("check", "--json"), check, errors=False)
    holder.process.stdin.close()
    holder.end(10)
    return {**json_of(text), "status": status, "pid": holder.process.pid}


def env(kit, check):
    _, text, seconds = kit.run(kit.muster("env", "--explain"), check)
    return {"text": text, "seconds": seconds, "count": len(kit.gpus), **{name: kit.facts.get(name) for name in ("nccl", "torch")}}


def binding(kit, check):
    near = [read(f"/sys/bus/pci/devices/{gpu['bus_id'][-12:]}/local_cpulist").strip() for gpu in kit.gpus]
    if any(not re.fullmatch(r"[\d,-]+", cpus) for cpus in near):
        raise Skip(f"sysfs does not show which CPUs are near the GPUs: {near[0]!r}")
    script = 'echo "worker $LOCAL_RANK may use $(sed -n "s/^Cpus_allowed_list:[[:space:]]*//p" /proc/self/status)"'
    words = ("run", "--bind=numa", f"--nproc-per-node={len(near)}", "--no-python", "sh", "-c", script)
    text = kit.run(kit.muster(*words), check, 30)[1]
    return {"near": near, "workers": dict(sorted(re.findall(r"worker (\d+) may use (\S+)", text))),
            "allowed": ",".join(map(str, sorted(os.sched_getaffinity(0))))}


KMSG = """
import os
try:
    fd, n = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK), 0
    try:
        while True:
            n += b"NVRM: Xid" in os.read(fd, 8192)
    except BlockingIOError:
        print(f"{n} Xids")
except OSError as error:
    print(error.strerror)
"""


def recovery(kit, check):
    root = [gpu["recovery_action"] for gpu in nvml(kit, check, "gpus")["gpus"]]
    user = as_user(kit, check, ["gpus"], NVML.read_text())
    if not isinstance(user, str):
        user.end(15)
        answer = json_of(user.text)
        user = answer.get("error") or [gpu["recovery_action"] for gpu in answer["gpus"]]
    smi = judges.smi_gpus(kit.run([kit.tool("nvidia-smi"), "-q"], check)[1])[0]
    kernel = {"root": kit.start([sys.executable, "-"], check, code=KMSG), "user": as_user(kit, check, [], KMSG)}
    for who, job in kernel.items():
        if not isinstance(job, str):
            job.end(10)
            kernel[who] = job.text.strip()[-80:]
    return {"root": root, "user": user, "smi": [gpu["recovery"] for gpu in smi if gpu["recovery"]], "kmsg": kernel}


def events(kit, check):
    """Registers for Xids as root and as a user; then a kernel writes to a wrong address, which is one (31)."""
    jobs = {"root": kit.start([sys.executable, NVML, "events", 12], check),
            "user": as_user(kit, check, ["events", "12"], NVML.read_text())}
    started = {who: job for who, job in jobs.items() if not isinstance(job, str)}
    for job in started.values():
        job.wait(r"\{.*\}", 15)
    fault = kit.json([sys.executable, NVML, "fault"], check, 30) if kit.torch_cuda else {}
    answers = dict(jobs)
    for who, job in started.items():
        job.end(15)
        answers[who] = {k: v for line in job.text.splitlines() if line.startswith("{") for k, v in json.loads(line).items()}
    return {**answers, "fault": fault.get("fault"), "fault_at": fault.get("at")}


# ---- with PyTorch ----

PROBE = """
import json, sys
import torch, torch.cuda.nccl
nccl = torch.cuda.nccl.version() if torch.distributed.is_nccl_available() else ()
print(json.dumps({"torch": torch.__version__, "nccl": ".".join(map(str, nccl))}), flush=True)
sys.stdin.readline()
print("CUDA:", torch.cuda.is_available())
"""


def torch_probe(kit):
    """Starts to import PyTorch; the answer about CUDA comes when finish_probe() lets it look."""
    return kit.start([sys.executable, "-c", PROBE], "probe")


def finish_probe(kit, job):
    found = job.wait(r"\{.*\}", 60)
    if not found:
        kit.why_no_torch = "PyTorch can't be imported: " + (job.text.strip().splitlines() or ["it takes too long"])[-1]
        return
    versions = json.loads(found[0])
    kit.facts.update({k: re.sub(r"\+.*", "", v) for k, v in versions.items() if v})
    with contextlib.suppress(OSError):
        job.process.stdin.write("\n")
        job.process.stdin.close()
    job.end(30)
    kit.torch_cuda = "CUDA: True" in job.text
    kit.why_no_torch = None if kit.torch_cuda or kit.cpu else "PyTorch reports no CUDA device"


def example(kit, check):
    def made(words, **more):
        status, text, _ = kit.run(words, check, 60, **more)
        if status != 0:
            raise Skip("it can't be built: " + text.strip()[-300:])
        return text.split()

    folder, program = ROOT / "examples/nccl-allreduce", kit.work / "nccl-allreduce"
    found = made([sys.executable, folder / "find.py", kit.tool("nvcc")], env={"MUSTER_TEST_PYTHON": sys.executable})
    cuda, cuda_lib, nccl, nccl_lib = found[-4:]
    made([kit.tool("cc"), "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-I", ROOT / "include", "-I", ROOT / "src", "-isystem", cuda,
          "-isystem", nccl, folder / "main.c", *(ROOT / "src/client").glob("*.c"), "-o", program, nccl_lib, f"-L{cuda_lib}",
          "-lcudart", f"-Wl,-rpath,{cuda_lib}:{os.path.dirname(nccl_lib)}"])
    status, text, _ = kit.run(kit.muster("run", "--no-python", program, "256"), check, 60)
    line = [line for line in text.splitlines() if line.startswith(("sum of", "nccl-allreduce:"))]
    return {"status": status, "text": (line or [text[-200:]])[-1]}


def restarts(kit, check):
    """All begin at once; then one after the other is killed, so that none disturbs another one's restart."""
    package = kit.work / "site-packages/gpukit_opens"
    package.mkdir(parents=True, exist_ok=True)
    package.joinpath("__init__.py").write_text(
        "import torch; torch.cuda.init()\n" if not kit.cpu else "import os; held = os.open('/dev/nvidia0', os.O_RDONLY)\n")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1", "--max-restarts=3"]
    warm = ("-v", "--max-restarts=3", "--warm-after=1")
    jobs = {"torchrun": kit.start([*torchrun, "--monitor-interval=0.1", HERE / "worker.py", "step"], check),
            "cold": kit.job(check, "--max-restarts=3", kind=["step"]),
            "warm": kit.job(check, *warm, "--warm", kind=["step"]),
            "warm-process": kit.job(check, *warm, "--warm=process", kind=["step"]),
            "opens": kit.job(check, *warm, "--warm", kind=["opens"], env={"PYTHONPATH": str(package.parent)})}
    took, began = dict.fromkeys(jobs), {name: job.wait(r"c0\] first step pid (\d+)", 90) for name, job in jobs.items()}
    for name, job in jobs.items():
        if name not in ("torchrun", "cold"):
            job.wait("start cold from now on" if name == "opens" else "wait for the next start", 60)
    for name, job in jobs.items():
        if began[name]:
            at = time.time()
            os.kill(int(began[name][1]), signal.SIGKILL)
            again = job.wait(r"\[([\d.]+) r0 c1\] first step", 60)
            took[name] = float(again[1]) - at if again else None
        job.end(15)
    cold = re.search(r"cold because (importing .*)", jobs["opens"].text)
    modules = re.search(r"imported \d+ modules in [\d.]+ s", jobs["warm"].text)
    return {"seconds": {name: took[name] for name in ("warm", "warm-process", "cold", "torchrun")},
            "imported": modules[0] if modules else "",
            "warm_started": "all 1 workers start warm" in jobs["warm"].text,
            "warm_process_started": "all 1 workers start warm" in jobs["warm-process"].text,
            "refused": {"cold_because": cold[1] if cold else None, "seconds": took["opens"]}}


def hang(kit, check, kind, nproc=1, *words):
    """A job in which a rank waits for a kernel that does not end, from the fault to its end."""
    job = kit.job(check, *HANG, "--max-restarts=1", *words, nproc=nproc, kind=[kind])
    job.wait(r"c0\] fault", 60)
    return job


def hang_facts(job, status):
    fault, reported = re.search(r"\[([\d.]+) r\d c0\] fault", job.text), job.at("the job hangs")
    return {"text": job.text[-6000:], "status": status, "restarted": bool(re.search(r"restart 1 of 1", job.text)),
            "done": len(re.findall(r"c1\] done", job.text)),
            "reported_s": reported - float(fault[1]) if fault and reported else None}


def hang_sync(kit, check):
    job = hang(kit, check, "sync", 2)
    return hang_facts(job, job.end(75))


def hang_item(kit, check):
    job = hang(kit, check, "item")
    job.wait("the job hangs", 40)
    job.wait("nothing is stopped", 3)
    facts = hang_facts(job, None)
    job.stop()
    return facts


def own_ras(address):
    """What NCCL's status service answers to the kit itself."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), 3) as s:
            s.settimeout(3)
            s.sendall(b"CLIENT PROTOCOL 2\n")
            s.recv(256)
            s.sendall(b"SET FORMAT json\n")
            as_json = s.recv(256).startswith(b"OK")
            s.sendall(b"VERBOSE STATUS\n")
            answer = b""
            with contextlib.suppress(OSError):
                while part := s.recv(65536):
                    answer += part
            return answer.decode(errors="replace"), as_json
    except (OSError, ValueError):
        return "", False


def dump_of(folder, kit):
    """Of the flight recorder's file, a pickle, only the names of the collectives are read."""
    for path in sorted(folder.glob("**/nccl_trace_rank_*")):
        kit.keep(path, "nccl_trace_rank_0")
        data = path.read_bytes()
        texts = re.finditer(rb"X(.)\0\0\0(?=nccl:)", data, re.S)  # BINUNICODE, its length
        return {"bytes": len(data), "collectives": sorted({data[t.end():t.end() + t[1][0]].decode() for t in texts})}
    return None


def nccl(kit, check):
    """A communicator of one rank that waits for a kernel: verdict, evidence, flight recorder, warnings."""
    logs = kit.work / "logs"
    job = hang(kit, check, "nccl", 1, f"--log-dir={logs}", "--tee=3", "--rdzv-id=gpukit")
    worker = re.search(r"communicates (.*) pid (\d+)", job.text)
    address = re.search(r"NCCL_RAS_ADDR=([^\0]*)", read(f"/proc/{worker[2]}/environ")) if worker else None
    answer, as_json = own_ras(address[1]) if address else ("", False)
    (kit.out / "ras.txt").write_text(answer)
    status = job.end(75)
    node = {"gpus": None, "ras": None, "gaps": []}
    for path in sorted(logs.glob("gpukit*/hangs/*/hang.json")):
        evidence = json.loads(path.read_text())["nodes"][0].get("evidence") or {}
        node = {key: evidence.get(key) or node[key] for key in node}
        kit.keep(path, "hang.json")
        kit.keep(path.with_name("hang.txt"), "hang.txt")
    warnings = [line.strip() for line in job.text.splitlines() if re.search(r"warn", line, re.I) and "the job " not in line]
    return {**hang_facts(job, status), **node, "own_ras": answer[:2000], "own_ras_json": as_json, "dump": dump_of(logs, kit),
            "communicates": worker[1] if worker else None, "warnings": warnings}


def healthy(kit, check):
    job = kit.job(check, "--hang-report=5", "--hang-still=10", "--hang-timeout=60", "--max-restarts=1", kind=["healthy", "33"])
    status = job.end(100)
    return {"text": job.text[-3000:], "status": status}


def used_mib(library, handle):
    import ctypes  # pylint: disable=import-outside-toplevel
    memory = (ctypes.c_ulonglong * 3)()
    return memory[2] >> 20 if library.nvmlDeviceGetMemoryInfo(handle, memory) == 0 else None


def killed(kit, check):
    """Kills a worker in a kernel, and looks at the GPU's memory until it is free."""
    job = kit.job(check, "--max-restarts=1", kind=["killed"])
    began = job.wait(r"c0\] at start (\d+) MiB free pid (\d+)", 60)
    held = job.wait(r"c0\] holds (\d+) MiB free", 30)
    if not held:
        raise Skip("the worker did not get to its kernel: " + job.text[-200:])
    size, freed = int(began[1]) - int(held[1]), None
    time.sleep(1)  # in the kernel
    library = handle = None
    with contextlib.suppress(OSError, AttributeError, IndexError):
        import nvml as own  # pylint: disable=import-outside-toplevel
        library, handles = own.load()
        handle = handles[0]
    before = used_mib(library, handle) if handle else None
    at = time.time()
    os.kill(int(began[2]), signal.SIGKILL)
    while before and freed is None and time.time() < at + 10:
        if used_mib(library, handle) < before - size * 3 // 4:
            freed = time.time() - at
        time.sleep(0.005)
    again = job.wait(r"\[([\d.]+) r0 c1\] at start (\d+) MiB free", 60)
    works = job.wait(r"c1\] works again", 30)
    job.end(20)
    return {"free_start": int(began[1]), "free_held": int(held[1]), "freed_s": freed, "works": bool(works),
            "restart_s": float(again[1]) - at if again else None, "free_restart": int(again[2]) if again else None}


def leftover(kit, check):
    job = kit.job(check, "--max-restarts=1", "--shutdown-timeout=30", kind=["leftover"])
    status = job.end(90)
    ended = re.search(r"\[([\d.]+)\] the leftover ends", job.text)
    return {"text": job.text[-3000:], "status": status, "failed_at": job.at("child holds"), "restart_at": job.at("attempt 2: "),
            "ended_at": float(ended[1]) if ended else None, "second": "c1] second group" in job.text}


CALLS = {"0": "read", "7": "poll", "16": "ioctl", "24": "sched_yield", "35": "nanosleep", "202": "futex", "230": "nanosleep",
         "232": "epoll", "271": "ppoll", "running": ""}  # of x86-64


def cpu_times(pid):
    """CPU seconds of the main thread and of the others."""
    def of(path):
        words = read(path).rsplit(")", 1)[-1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK") if len(words) > 12 else 0.0
    main = of(f"/proc/{pid}/task/{pid}/stat")
    return main, of(f"/proc/{pid}/stat") - main


def sample(pid, seconds):
    """Where the main thread is, 20 times a second."""
    counts, began, first, n = {}, time.monotonic(), cpu_times(pid), 0
    while time.monotonic() < began + seconds:
        state, call, where = (read(f"/proc/{pid}/task/{pid}/{name}") for name in ("stat", "syscall", "wchan"))
        state, call, where = state.rsplit(")", 1)[-1].split()[0], (call.split() or [""])[0], where.strip("\0\n ")
        place = " ".join(filter(None, [state, CALLS.get(call, call), where if where != "0" else ""]))
        counts[place], n = counts.get(place, 0) + 1, n + 1
        time.sleep(max(0.0, began + n / 20 - time.monotonic()))
    wall, last = time.monotonic() - began, cpu_times(pid)
    share = {place: count / n for place, count in sorted(counts.items(), key=lambda item: -item[1])}
    return {"share": share, "samples": n, "main_cpu": (last[0] - first[0]) / wall, "other_cpu": (last[1] - first[1]) / wall}


def main_thread(kit, check, seconds=4):
    job = kit.job(check, "--hang-action=off", kind=["places", seconds + 1])
    found = {}
    for name in ("item", "event", "backward", "nccl"):
        place = job.wait(rf"place {name} pid (\d+)", 60)
        if not place:
            break
        found[name] = sample(int(place[1]), seconds)
    job.end(20)
    return {"places": found, "seconds": seconds, "text": "" if len(found) == 4 else job.text[-1000:]}


# ---- all of it ----

# (stage, measurement, limit in seconds, needs, {check: judge}). The stages follow each other. Measurements of one stage
# run side by side, except in the first stage, where muster must find the GPU free.
TABLE = [
    (0, topo, 30, "gpu", {"topo": judges.topo}),
    (0, gpus, 30, "gpu", {"gpus": judges.gpus}),
    (0, nvml_child, 40, "gpu", {"nvml-child": judges.nvml_child}),
    (0, check_node, 30, "gpu", {"check": judges.check}),
    (0, busy, 40, "gpu", {"gpu-busy": judges.busy}),
    (0, binding, 40, "gpu", {"binding": judges.binding}),
    (0, recovery, 60, "gpu", {"recovery": judges.recovery}),
    (1, env, 30, "gpu", {"env": judges.env}),
    (1, events, 60, "gpu", {"events": judges.events}),
    (1, example, 120, "torch", {"nccl-example": judges.example}),
    (2, restarts, 200, "torch", {"restarts": judges.restarts, "warm-refused": lambda f: judges.warm_refused(f["refused"])}),
    (3, healthy, 110, "torch", {"healthy": judges.healthy}),
    (4, hang_sync, 140, "torch", {"hang-sync": judges.hang_sync}),
    (4, hang_item, 120, "torch", {"hang-item": judges.hang_item}),
    (4, nccl, 140, "torch", {"hang-nccl": judges.hang_nccl, "evidence": judges.evidence, "recorder": judges.recorder,
                             "nccl-worker": judges.nccl_worker}),
    (4, killed, 120, "torch", {"killed": judges.killed}),
    (4, leftover, 120, "torch", {"leftover": judges.leftover}),
    (5, main_thread, 110, "torch", {"main-thread": judges.main_thread}),
]
NAMES = [name for row in TABLE for name in row[4]]


def find_gpus(kit):
    """Why there is no GPU for the kit; None: there is one."""
    try:
        kit.gpus = nvml(kit, "probe", "gpus")["gpus"]
    except Skip as why:
        return f"no GPU: {why}"
    return None if kit.gpus else "no GPU: NVML knows none"


def run(kit, names):
    kit.gpus, kit.torch_cuda, kit.why_no_torch = [], False, "PyTorch was not looked for"
    judge_of = {name: judge for row in TABLE for name, judge in row[4].items()}
    for name in names:  # what a kit that is cut off has not reached
        kit.record(name, judge_of[name], {"skip": "not reached"}, 0)
    probe = torch_probe(kit) if any(row[3] == "torch" and set(row[4]) & set(names) for row in TABLE) else None
    why = find_gpus(kit)
    if kit.gpus:
        kit.facts["gpu"] = f"{len(kit.gpus)} x {kit.gpus[0]['name']}"
        with contextlib.suppress(Skip):
            topology = kit.json(kit.muster("topo", "--json"), "probe")
            kit.facts.update({"driver": topology.get("driver"), "cuda": topology.get("cuda")})
    for stage in sorted({row[0] for row in TABLE}):
        if stage == 1 and probe and (kit.cpu or not why):
            finish_probe(kit, probe)
        threads = []
        for _, measure, limit, needs, judge in [row for row in TABLE if row[0] == stage]:
            wanted = [name for name in judge if name in names]
            reason = (why if needs == "gpu" else None if kit.cpu else why or kit.why_no_torch) or (
                "no time left" if kit.left() <= 0 else None)
            if reason:
                for name in wanted:
                    kit.record(name, judge[name], {"skip": reason}, 0)
            elif wanted:
                threads.append(threading.Thread(target=kit.measure, args=(wanted, measure, judge, limit), daemon=True))
                threads[-1].start()
                if stage == 0:
                    threads[-1].join()
        for thread in threads:
            thread.join()
