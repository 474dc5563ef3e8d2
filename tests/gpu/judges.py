"""Decides by facts alone: each judge gets what a check has measured, and returns (passed, one line for the report).

Pure, so that tests give each of them right facts, recorded on a real GPU where there are some, and wrong ones.
"""
import re


def numbers(text):
    """{0, 1, 5} of "0-1,5"."""
    found = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def matrix(text):
    """{(row, column): cell} of the devices and affinities of `nvidia-smi topo -m` or `muster topo`."""
    lines = re.sub(r"\x1b\[\d*m", "", text).strip("\n").split("\n\n")[0].splitlines()
    names = dict(re.findall(r"^\s*(NIC\d+): (\S+)", text, re.M))  # nvidia-smi's legend
    def split(line):
        return [names.get(cell.strip(), cell.strip()) for cell in re.split(r"\t+|  +", line.strip()) if cell.strip()]
    header = split(lines[0]) if lines else []
    rows = [split(line) for line in lines[1:]]
    return {(row[0], column): cell for row in rows if row and row[0] in header for column, cell in zip(header, row[1:])}


def topo(f):
    ours, theirs = matrix(f["muster"]), matrix(f["smi"])
    differ = [f"{row} {column}: {ours.get((row, column))}, nvidia-smi: {cell}" for (row, column), cell in theirs.items()
              if ours.get((row, column)) != cell]
    if not theirs or differ:
        return False, "; ".join(differ[:3]) or "no matrix in nvidia-smi's output"
    return True, f"{len(theirs)} cells as in nvidia-smi topo -m; {f['seconds']:.2f} s"


def smi_gpus(text):
    """[{bus_id, name, uuid, recovery}], driver and CUDA's version, of `nvidia-smi -q`."""
    def one(part, name):
        found = re.search(rf"^\s*{name}\s*: (.*?)\s*$", part, re.M)
        return found[1] if found else None
    parts = re.split(r"^GPU (?=[0-9A-F]+:)", text, flags=re.M)
    return [{"bus_id": part.split()[0][-12:].lower(), "name": one(part, "Product Name"), "uuid": one(part, "GPU UUID"),
             "recovery": one(part, "GPU Recovery Action")} for part in parts[1:]], one(text, "Driver Version"), one(text, "CUDA Version")


def gpus(f):
    found, driver, cuda = smi_gpus(f["smi"])
    ours, theirs = ([(gpu["bus_id"], gpu["name"], gpu["uuid"]) for gpu in gpus_of] for gpus_of in (f["muster"]["gpus"], found))
    ours, theirs = (ours, f["muster"]["driver"], f["muster"]["cuda"]), (theirs, driver, cuda)
    if not found or ours != theirs:
        return False, f"muster: {ours}; nvidia-smi: {theirs}"
    return True, f"{len(found)} with bus id, name and uuid as in nvidia-smi -q; driver {driver}, CUDA {cuda}"


def nvml_child(f):
    line = (f"child {f['seconds'] * 1000:.0f} ms of {f['total_s'] * 1000:.0f}, {f['rss_kib'] / 1024:.1f} MiB; "
            f"nvmlInit {f['init_s'] * 1000:.0f} ms, one reading {f['read_s'] * 1000:.1f} ms")
    if f["in_parent"]:
        return False, "muster itself has loaded NVML, not only its child"
    return 0 < f["rss_kib"] < 256 << 10 and f["seconds"] < 2, line


def check(f):
    codes = {c["code"]: (c["level"], c["text"]) for c in f["checks"]}
    bad = {code: text for code, (level, text) in codes.items()
           if level != "ok" and re.match("GPU|NVML|NVLINK|PCIE|FABRIC|DISCOVERY", code)}
    wanted = f"{len(f['names'])} x {f['names'][0]}"
    if bad or codes.get("GPU") != ("ok", wanted) or codes.get("GPU-FREE", ("",))[0] != "ok":
        return False, f"{bad or codes}"
    others = ", ".join(code for code, (level, _) in codes.items() if level != "ok") or "none"
    return True, f"{wanted}, free; {f['seconds']:.2f} s; other warnings: {others}"


def env(f):
    head = re.search(r"^[^\s:]+: (\d+) GPUs?, (.*?)(?:; NCCL ([\d.]+))?(?:; PyTorch (\S+))?$", f["text"], re.M)
    if not head:
        return False, "no line about GPUs: " + f["text"][:80]
    wanted = ("NCCL_RAS_ADDR=", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "TORCH_FR_BUFFER_SIZE=")
    missing = [name for name in wanted if name not in f["text"]]
    wrong = [f"{what} {ours}, really {theirs}" for what, ours, theirs in
             (("GPUs", int(head[1]), f["count"]), ("NCCL", head[3], f["nccl"]), ("PyTorch", head[4], f["torch"]))
             if theirs is not None and ours != theirs]
    if missing or wrong:
        return False, "; ".join(wrong + [f"does not set {name}" for name in missing])
    return True, f"{head[0].split(': ', 1)[1]}; {f['seconds']:.2f} s"


def binding(f):
    wrong = []
    for i, near in enumerate(f["near"]):
        cpus = numbers(f["workers"].get(str(i), ""))
        if not cpus or not cpus <= numbers(near):
            wrong.append(f"worker {i} may use {f['workers'].get(str(i))}, near its GPU are {near}")
    where = ", ".join(f"worker {i}: CPUs {cpus}" for i, cpus in f["workers"].items())
    if all(numbers(near) >= numbers(f["allowed"]) for near in f["near"]):
        where += " (all CPUs are near)"
    return not wrong, "; ".join(wrong) or where


ACTIONS = ("None", "GPU Reset", "Node Reboot", "Drain P2P", "Drain and Reset")


def recovery(f):
    """That a user may not read it is a fact of the machine, not a failure."""
    root, user, smi = f["root"], f["user"], f["smi"]
    kernel = f"kernel log: root {f['kmsg']['root']}, user {f['kmsg']['user']}"
    values = [r["value"] if r["result"] == 0 else f"error {r['result']}" for r in root]
    words = [ACTIONS[v] if v in range(len(ACTIONS)) else str(v) for v in values]
    if any(v not in range(8) for v in values if isinstance(v, int)):
        return False, f"root reads {values}"
    if smi and all(isinstance(v, int) for v in values) and [w == "None" for w in words] != [s == "None" for s in smi]:
        return False, f"field 230 is {words}, nvidia-smi -q: {smi}"
    if isinstance(user, list) and all(r["result"] == 0 for r in user) and user != root:
        return False, f"root reads {root}, a user {user}"
    return True, f"field 230 as root: {', '.join(words)}, as a user {'the same' if user == root else user}; {kernel}"


def events(f):
    parts, passed = [], True
    for who in ("root", "user"):
        e = f[who]
        if not isinstance(e, dict) or e.get("register") != 0:
            parts.append(f"{who}: not registered ({e if not isinstance(e, dict) else e.get('error', e.get('register'))})")
            passed = passed and who == "user"
        elif e.get("type") == 8:
            later = f" {(e['at'] - f['fault_at']) * 1000:.0f} ms after the kernel" if f["fault_at"] else ""
            parts.append(f"{who}: Xid {e['xid']}{later}")
        else:
            parts.append(f"{who}: registered, no Xid event")
            passed = passed and f["fault"] != 700  # CUDA_ERROR_ILLEGAL_ADDRESS
    kernel = "no kernel ran" if f["fault"] is None else f"wrong address in a kernel (CUDA error {f['fault']})"
    return passed, f"{kernel}: " + "; ".join(parts)


def busy(f):
    found = [c["text"] for c in f["checks"] if c["code"] == "GPU-BUSY" and c["level"] == "fail"]
    if f["status"] != 1 or not any(re.search(rf"\({f['pid']}\b", text) for text in found):
        return False, f"process {f['pid']} is not named: status {f['status']}, {found}"
    return True, found[0]


def example(f):
    return f["status"] == 0 and ": right;" in f["text"], f["text"]


def restarts(f):
    s = f["seconds"]
    line = ", ".join(f"{name} {value:.2f} s" if value is not None else f"{name} never" for name, value in s.items())
    line = f"from the kill to the first step: {line}; {f['imported']}"
    if None in s.values():
        return False, line
    if not f["warm_started"] or not f["warm_process_started"]:
        return False, "a worker of --warm was cold; " + line
    return s["warm"] < s["cold"] / 2 and s["warm-process"] < s["cold"] / 2 and s["cold"] < s["torchrun"] * 1.25, line


def warm_refused(f):
    why = f["cold_because"]
    passed = "importing opens /dev/nvidia" in (why or "") and f["seconds"] is not None
    return passed, f"cold because {why}; restarted in {f['seconds'] and round(f['seconds'], 1)} s"


def hung(f):
    return re.search(r"the job hangs: (.*)", f["text"])


def after(f):
    return ("not reported" if f["reported_s"] is None else f"reported {f['reported_s']:.1f} s after the kernel began") + (
        ", restarted" if f["restarted"] else ", not restarted")


def hang_sync(f):
    named = re.search(r"rank 1 \(node [^)]*\)[^;]*\(worker\.py:\d+\)", f["text"])
    passed = bool(hung(f) and named and f["restarted"] and f["done"] == 2 and f["status"] == 0)
    return passed, f"{after(f)}, status {f['status']}; {named[0] if named else 'rank 1 is not named'}"


def hang_item(f):
    """No rank waits for another one: the hang is reported, and nothing is stopped."""
    passed = bool(hung(f) and "nothing is stopped" in f["text"] and not f["restarted"])
    return passed, after(f) + ("" if passed else "; " + f["text"][-200:])


def hang_nccl(f):
    passed = bool(hung(f) and f["restarted"] and f["done"] == 1 and f["status"] == 0)
    return passed, f"{after(f)}, status {f['status']}"


def healthy(f):
    kernels = re.search(r"done (kernels of .*)", f["text"])
    found = hung(f)
    return bool(kernels and not found and f["status"] == 0), f"{kernels[1] if kernels else 'did not end'}; " + (
        "counted as hung: " + found[1] if found else "not counted as still")


def nccl_worker(f):
    bad = [line for line in f["warnings"] if re.search("deprecated|open files", line)]
    if not f["communicates"]:
        return False, "no communicator: " + f["text"][-200:]
    return not bad, "; ".join(bad[:2]) or f"{f['communicates']}; no warning because of muster's variables"


def evidence(f):
    """NVML's counters of each GPU, and NCCL's RAS as the kit itself could ask it."""
    if not f["gpus"] or not re.search(r"[0-9a-f]:[0-9a-f]{2}\.\d: busy \d+ %", f["gpus"], re.I):
        return False, f"no counters of GPUs: {f['gpus']}, {f['gaps']}"
    gap = [g for g in f["gaps"] if g.startswith("NCCL RAS")]
    if f["own_ras_json"] and not f["ras"]:
        return False, f"NCCL's RAS answers ({f['own_ras'][:60]!r}), but is not in the evidence: {gap}"
    if not f["ras"] and not gap:
        return False, "NCCL's RAS is not in the evidence, which does not say why"
    form = "JSON" if f["own_ras_json"] else "text, which muster does not read"
    return True, f"{f['gpus'].splitlines()[0]}; RAS ({form}): {f['ras'].splitlines()[0] if f['ras'] else gap or 'no answer'}"


def recorder(f):
    passed = bool(f["dump"] and f["dump"]["bytes"] > 0 and any("all_reduce" in name for name in f["dump"]["collectives"]))
    return passed, f"{f['dump']['bytes']} bytes with {', '.join(f['dump']['collectives'])}" if f["dump"] else "no file"


def killed(f):
    """The memory of a worker killed in a kernel is free when the next one begins."""
    if f["restart_s"] is None or not f["works"]:
        return False, "the job did not restart"
    free = f["free_restart"] > f["free_start"] - (f["free_start"] - f["free_held"]) / 4
    freed = f"free for NVML after {f['freed_s']:.2f} s" if f["freed_s"] is not None else "NVML did not see it freed"
    return free, (f"{f['free_start'] - f['free_held']} MiB held, {freed}; new worker after {f['restart_s']:.1f} s with "
                  f"{f['free_restart']} of {f['free_start']} MiB")


def leftover(f):
    if None in (f["failed_at"], f["ended_at"], f["restart_at"]):
        return False, f"failed {f['failed_at']}, leftover ended {f['ended_at']}, new group {f['restart_at']}: {f['text'][-200:]}"
    line = (f"the leftover ended {f['ended_at'] - f['failed_at']:.1f} s after the failure, "
            f"the new group began after {f['restart_at'] - f['failed_at']:.1f} s")
    return f["restart_at"] >= f["ended_at"] and f["second"] and f["status"] == 0, line


def main_thread(f):
    """At least 10 samples a second of each way to wait."""
    few = [name for name, p in f["places"].items()
           if p["samples"] < 10 * f["seconds"] or abs(sum(p["share"].values()) - 1) > 0.01]
    if few or len(f["places"]) < 4:
        return False, f"too few samples: {few or sorted(f['places'])} {f['text']}"
    return True, "; ".join(
        f"{name}: " + ", ".join(f"{state} {share:.0%}" for state, share in list(p["share"].items())[:3]) +
        f", CPU {p['main_cpu']:.0%}, other threads {p['other_cpu']:.0%}" for name, p in f["places"].items())
