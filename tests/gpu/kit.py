"""Runs checks beside each other within a limit of time, and writes a report after each one. tests/gpu/run.sh starts it."""
import argparse
import contextlib
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import traceback
import uuid
from collections import defaultdict

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CLOSE_S = 8     # of the limit, for the end of the jobs
MIN_LIMIT = 10  # seconds


class Skip(Exception):
    """A check can't be made here, for this reason."""


def json_of(text):
    """The last line that is a JSON object."""
    for line in reversed(text.splitlines()):
        with contextlib.suppress(ValueError):
            if line.startswith("{"):
                return json.loads(line)
    raise Skip("no JSON in the answer: " + text[-200:])


class Job:
    """A process in a session of its own whose lines are read with the time at which they came."""

    def __init__(self, kit, words, check, env=None, code=None, errors=True, user=None):
        self.kit, self.words, self.check = kit, [str(w) for w in words], check
        self.lines, self.ended, self.changed = [], False, threading.Condition()
        self.process = subprocess.Popen(
            self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT if errors else subprocess.DEVNULL,
            text=True, errors="replace", start_new_session=True, cwd=kit.work, env={**kit.env, **(env or {})}, user=user, group=user,
            extra_groups=None if user is None else [])
        kit.jobs.append(self)
        if code is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.write(code)
                self.process.stdin.close()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        threading.Thread(target=self._wait, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append((time.time(), line))
                self.changed.notify_all()

    def _wait(self):
        self.process.wait()
        self.reader.join(1)  # what it has left may hold the pipe
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    @property
    def text(self):
        """All output; the lines that muster has wrapped are whole again."""
        return re.sub(r"\n {8}(?=\S)", " ", "".join(line for _, line in list(self.lines)))

    def _until(self, what, seconds):
        end = time.monotonic() + min(seconds, self.kit.left())
        with self.changed:
            while True:
                answer = what()
                left = end - time.monotonic()
                if answer or self.ended or left <= 0:
                    return answer
                self.changed.wait(left)

    def wait(self, pattern, seconds):
        """The first match in the output, or None; returns as soon as there is one, or the process has ended."""
        return self._until(lambda: re.search(pattern, self.text), seconds)

    def at(self, pattern):
        """When the first line with this came."""
        return next((at for at, line in list(self.lines) if re.search(pattern, line)), None)

    def end(self, seconds):
        """Its exit status; None: it has not ended, and is stopped."""
        self._until(lambda: False, seconds)
        if not self.ended:
            self.stop()
            return None
        return self.process.returncode

    def stop(self):
        for signo, seconds in ((signal.SIGTERM, 8), (signal.SIGKILL, 3)):
            if self.ended:
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signo)
            self._until(lambda: False, seconds)


class Kit:
    def __init__(self, args):
        self.args, self.began = args, time.monotonic()
        self.out = pathlib.Path(args.out)
        self.out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self.out):  # an error before there is anything to remove
            self.work = pathlib.Path(tempfile.mkdtemp(prefix="muster-gpu-kit."))
        self.work.chmod(0o755)  # also for the checks as another user
        self.mark, self.jobs, self.results, self.lock = f"GPU_KIT_RUN={uuid.uuid4().hex}", [], {}, threading.Lock()
        mine = re.compile("RANK$|LOCAL_|WORLD_SIZE|MASTER_|GROUP_|TORCHELASTIC|PET_|MUSTER_(?!NVML)")
        self.env = {k: v for k, v in os.environ.items() if not mine.match(k)}
        self.env.update({"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHON_EXEC": sys.executable,
                         "TMPDIR": str(self.work), **dict([self.mark.split("=")])})
        self.cpu = os.environ.get("GPU_KIT_DEVICE") == "cpu"
        self.facts = {"date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "kernel": platform.release(),
                      "cpus": os.cpu_count(), "python": platform.python_version()}

    def left(self):
        return max(0.0, self.args.limit - CLOSE_S - (time.monotonic() - self.began))

    def start(self, words, check, **more):
        if self.left() <= 0:
            raise Skip("no time left")
        return Job(self, words, check, **more)

    def run(self, words, check, seconds=20, **more):
        """(exit status, output, seconds) of a short program."""
        began = time.monotonic()
        job = self.start(words, check, **{"code": "", **more})
        return job.end(seconds), job.text, time.monotonic() - began

    def muster(self, *words):
        return [self.args.muster, *words]

    def json(self, words, check, seconds=20, **more):
        """The last JSON object that a short program writes to its standard output."""
        return json_of(self.run(words, check, seconds, errors=False, **more)[1])

    def job(self, check, *words, nproc=1, kind=(), env=None):
        """`muster run` of a worker of worker.py."""
        return self.start(self.muster("run", f"--nproc-per-node={nproc}", "--shutdown-timeout=5", "--crash-loop=0", *words,
                                      HERE / "worker.py", *kind), check, env=env)

    def tool(self, name):
        found = shutil.which(name)
        if not found:
            raise Skip(f"no {name} on PATH")
        return found

    # ---- checks ----

    def measure(self, names, measure, judges, limit):
        """One measurement, and a result for each check that judges it."""
        began, box = time.monotonic(), {}

        def work():
            try:
                box["facts"] = measure(self, names[0])
            except Skip as why:
                box["skip"] = str(why)
            except Exception as error:  # pylint: disable=broad-except
                box["fail"] = "".join(traceback.format_exception_only(type(error), error)).strip() + "".join(
                    f"; line {f.lineno}" for f in traceback.extract_tb(error.__traceback__)[-1:])

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(min(limit, self.left()))
        if thread.is_alive():
            for job in [j for j in self.jobs if j.check == names[0]]:
                job.stop()
            thread.join(2)
            box = {"skip": "no time left"} if self.left() <= 0 else {"fail": f"took more than {limit:.0f} s"}
        if self.left() <= 0 and "facts" not in box:
            box = {"skip": "no time left"}
        for name in names:
            self.record(name, judges[name], box, time.monotonic() - began)

    def record(self, name, judge, box, seconds):
        state, reason = "skipped", box.get("skip")
        if "fail" in box:
            state, reason = "failed", box["fail"]
        elif "facts" in box:
            try:
                passed, reason = judge(box["facts"])
                state = "passed" if passed else "failed"
            except Exception as error:  # pylint: disable=broad-except
                state, reason = "failed", f"its facts could not be judged: {error!r}"
        with self.lock:
            self.results[name] = {"name": name, "state": state, "reason": " ".join(str(reason).split()),
                                  "figures": box.get("facts"), "seconds": round(seconds, 2)}
            with contextlib.suppress(OSError):  # the last write reports it
                self.write()

    def report(self):
        """{file name: its text} of the results so far."""
        results, f = list(self.results.values()), defaultdict(lambda: "?", self.facts)
        whole = json.dumps({"format": 1, **self.facts, "seconds": round(time.monotonic() - self.began, 1), "checks": results},
                           indent=1, default=str)
        counts = {state: sum(r["state"] == state for r in results) for state in ("passed", "failed", "skipped")}
        lines = ["muster on a GPU", "",
                 f"{f['date']}; kernel {f['kernel']}, {f['cpus']} CPUs; {f['muster']}",
                 f"{self.facts.get('gpu', 'no GPU')}; driver {f['driver']}, CUDA {f['cuda']}; PyTorch {f['torch']}, NCCL {f['nccl']}, "
                 f"Python {f['python']}",
                 ", ".join(f"{n} {state}" for state, n in counts.items()) + f", in {time.monotonic() - self.began:.0f} s", ""]
        for r in results:
            lines += textwrap.wrap(f"{r['state']:8}{r['name']:15}{r['reason'][:600]}", 118, subsequent_indent=" " * 23,
                                   break_on_hyphens=False)
        return {"report.json": whole, "report.txt": "\n".join(lines) + "\n"}

    def write(self, texts=None):
        for name, text in (texts or self.report()).items():
            new = self.out / f".{name}.{os.getpid()}"  # another run may write here, too
            new.write_text(text)
            new.replace(self.out / name)

    def keep(self, path, name):
        """A copy of a file of a job, beside the report."""
        with contextlib.suppress(OSError):
            shutil.copyfile(path, self.out / name)

    def close(self):
        """Ends what is left of the jobs, and removes their folder."""
        for job in self.jobs:
            if not job.ended:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(job.process.pid, signal.SIGTERM)
        end = time.monotonic() + 5
        while any(not job.ended for job in self.jobs) and time.monotonic() < end:
            time.sleep(0.05)
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if self.mark.encode() in pathlib.Path(f"/proc/{name}/environ").read_bytes() and int(name) != os.getpid():
                    os.kill(int(name), signal.SIGKILL)
        shutil.rmtree(self.work, ignore_errors=True)

    def write_jobs(self):
        """The output of all jobs."""
        with open(self.out / "jobs.txt", "w", encoding="utf-8") as f:
            for job in self.jobs:
                f.write(f"##### {job.check}: {' '.join(job.words)[:300]}\n{job.text[:60000]}\n")


def seconds_of(text):
    value = float(text)
    if not MIN_LIMIT <= value < float("inf"):
        raise ValueError
    return value


def version_of(muster, parser):
    """Of a muster that works; else an error for the user."""
    try:
        done = subprocess.run([muster, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=20)
    except OSError as error:
        parser.error(f"{muster} can't be executed: {error.strerror}")
    except subprocess.SubprocessError as error:
        parser.error(f"{muster} does not work: {error}")
    return done.stdout.strip()


def main():
    import checks  # pylint: disable=import-outside-toplevel
    parser = argparse.ArgumentParser(
        prog="tests/gpu/run.sh", formatter_class=argparse.RawDescriptionHelpFormatter, description="Checks what only a GPU can show.",
        usage="%(prog)s [--out DIR] [--only NAME,...] [--muster FILE] [--limit SECONDS]\n"
              "       %(prog)s --pack FILE [--muster FILE]    writes one file that does the same elsewhere",
        epilog=textwrap.fill("checks: " + " ".join(checks.NAMES), 78, subsequent_indent="        ", break_on_hyphens=False))
    parser.add_argument("--out", default="gpu-report", metavar="DIR", help="where the report is written (gpu-report)")
    parser.add_argument("--only", default="", metavar="NAME,...", help="only these checks")
    parser.add_argument("--muster", required=True, metavar="FILE", help="the muster to check (build/src/cli/muster)")
    parser.add_argument("--limit", type=seconds_of, default=480, metavar="SECONDS",
                        help=f"after that, the rest is skipped (480; at least {MIN_LIMIT})")
    args = parser.parse_args()
    only = [name.strip() for name in args.only.split(",")] if args.only else checks.NAMES
    unknown = sorted(set(only) - set(checks.NAMES))
    if unknown:
        parser.error("no such check: " + ", ".join(repr(name) for name in unknown))
    args.muster, args.out = os.path.abspath(args.muster), os.path.abspath(args.out)
    version = version_of(args.muster, parser)
    try:
        kit = Kit(args)
    except OSError as error:
        parser.error(f"can't write to {args.out}: {error.strerror}")
    kit.facts["muster"] = version
    ends = []  # ^C of a packed kit is followed by SIGTERM from its shell

    def end(*_):
        if not ends:
            ends.append(True)
            sys.exit(143)

    for signo in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signo, end)
    try:
        checks.run(kit, only)
    finally:
        ends.append(True)
        kit.close()
        texts = kit.report()
        print(texts["report.txt"], end="", flush=True)
        try:
            with kit.lock:
                kit.write(texts)
            kit.write_jobs()
        except OSError as error:
            print(f"run.sh: can't write to {kit.out}: {error.strerror}", file=sys.stderr, flush=True)
            os._exit(2)
    os._exit(any(r["state"] == "failed" for r in kit.results.values()))  # threads may hang


if __name__ == "__main__":
    import kit as module  # the one that checks.py imports
    module.main()
