"""`python -m muster.run OPTIONS SCRIPT ARGS`, and main(), run() and get_args_parser() with torch.distributed.run's signatures.

    main(args=None)       a list of words, or sys.argv; all options of `muster run`
    run(args)             a namespace from get_args_parser(), or from torch's
    get_args_parser()     an argparse.ArgumentParser with torchrun's options

main() and run() start muster as a child, wait for it, and return when the job has succeeded. Otherwise they raise what
torch.distributed.run raises: ChildFailedError (a subclass of torch's, if torch is there), SignalException after a signal,
SystemExit(2) for a wrong command line. `python -m muster.run` becomes muster by exec.
"""
import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

import muster
from muster._parser import get_args_parser, turned_off, words_of

__all__ = ["ChildFailedError", "get_args_parser", "main", "run"]

_FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_SI_KERNEL = 128  # siginfo's si_code for a signal of the terminal, asm-generic/siginfo.h
_PR_SET_PDEATHSIG = 1


# --- how the program is started ---------------------------------------------------------------------------------------


def python():
    """The interpreter of the workers: as under torch.distributed.run, PYTHON_EXEC or this one."""
    return os.environ.get("PYTHON_EXEC") or sys.executable


def _in_environment():
    """Whether muster finds this interpreter by itself, beside argv[0]: then no variable is needed, which workers would get."""
    folder, name = os.path.split(sys.executable or "")
    marks = [os.path.join(os.path.dirname(folder), mark) for mark in ("pyvenv.cfg", "conda-meta")]
    best = "python3" if os.path.exists(os.path.join(folder, "python3")) else "python"
    same = os.path.join(folder, best)
    return any(map(os.path.exists, marks)) and (
        name == best or os.path.realpath(same) == os.path.realpath(sys.executable))


def _command(words):
    """(the program, its words from argv[0] on, its environment)"""
    env = dict(os.environ)
    name = "muster"
    if not env.get("PYTHON_EXEC") and sys.executable:
        if _in_environment():
            name = os.path.join(os.path.dirname(sys.executable), "muster")
        else:
            env["PYTHON_EXEC"] = sys.executable
    return muster.binary(), [name, "run", *map(str, words)], env


def _become(words=None):
    """Replaces this process with muster, if it runs only the calling module (python -m, python FILE). Below coverage, cProfile or
    a debugger, which act when the module has returned, muster is started as a child."""
    words = sys.argv[1:] if words is None else words
    frame, depth = sys._getframe(1), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    if depth > 2:  # python -m: the module, and two frames of runpy
        main(words)
        return
    program, argv, env = _command(words)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(program, argv, env)


# --- what went wrong --------------------------------------------------------------------------------------------------


def _torch_errors():
    """torch's module of errors, or None. It is asked for only when a job has failed."""
    try:
        import torch.distributed.elastic.multiprocessing.errors as errors
        return errors
    except ImportError:
        return None


class ChildFailedError(Exception):
    """A job failed. With torch, what is raised is also torch's ChildFailedError. name: the script; failures: global rank to
    torch's ProcessFailure, without torch to a dictionary; exitcode: muster's exit status."""

    def __init__(self, name, failures, exitcode):
        Exception.__init__(self, f"{name} FAILED; the report is above")
        self.name, self.failures, self.exitcode = name, failures, exitcode

    def get_first_failure(self):
        return min(self.failures.items(), key=lambda item: item[1].timestamp)


def _failed(words, status, record):
    """The exception for a job that failed. record: MUSTER_FAILURE_FILE's content, or None."""
    record = record or {"entrypoint": words[-1] if words else "muster", "cause": f"ended with status {status}"}
    name, rank = record["entrypoint"], record.get("rank", 0)
    errors = _torch_errors()
    if errors is None:
        return ChildFailedError(name, {rank: record}, status)
    failure = errors.ProcessFailure(local_rank=record.get("local_rank", 0), pid=record.get("pid", 0),
                                    exitcode=record.get("exitcode", status), error_file=record.get("error_file") or "<N/A>")

    class Failed(ChildFailedError, errors.ChildFailedError):
        __doc__ = ChildFailedError.__doc__

        def __str__(self):  # torch's would repeat the report that muster has printed
            return f"{self.name} FAILED; the report is above"

        get_first_failure = errors.ChildFailedError.get_first_failure

    Failed.__name__ = Failed.__qualname__ = "ChildFailedError"
    return Failed(name, {rank: failure}, status)


def _signalled(signo):
    try:
        from torch.distributed.elastic.multiprocessing.api import SignalException
    except ImportError:
        return KeyboardInterrupt() if signo == signal.SIGINT else SystemExit(128 + signo)
    return SignalException(f"Process {os.getpid()} got signal: {signo}", sigval=signal.Signals(signo))


# --- waiting for it ---------------------------------------------------------------------------------------------------


def _is_in_foreground():
    """Whether the terminal sends its signals to this process group, and so to the child as well."""
    try:
        fd = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(fd)


def _start(program, argv, env, foreground):
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def prepare():
        if not foreground:
            os.setpgid(0, 0)  # what is sent to our group reaches the child once: from us
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return subprocess.Popen(argv, executable=program, env=env, preexec_fn=prepare)


def _wait(child, foreground):
    """The child's status as subprocess has it, and the first signal that was passed on to it, or None."""
    if threading.current_thread() is not threading.main_thread():
        return child.wait(), None
    got = []

    def pass_on(signo):
        got.append(signo)
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signo)

    signals = [getattr(signal, name) for name in _FORWARDED]
    signals = [s for s in signals if signal.getsignal(s) != signal.SIG_IGN]
    # Another thread that does not block a signal gets it; then Python calls the handler here.
    before = {s: signal.signal(s, lambda signo, _: pass_on(signo)) for s in signals}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [*signals, signal.SIGCHLD])
    try:
        while child.poll() is None:
            info = signal.sigtimedwait([*signals, signal.SIGCHLD], 0.5)
            if info is None or info.si_signo == signal.SIGCHLD:
                continue
            if foreground and info.si_code == _SI_KERNEL:
                got.append(info.si_signo)  # the terminal has sent it to the child, too
            else:
                pass_on(info.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for s, handler in before.items():
            signal.signal(s, handler if handler is not None else signal.SIG_DFL)
    ending = [s for s in got if s not in (signal.SIGUSR1, signal.SIGUSR2)]
    return child.returncode, ending[0] if ending else None


def _launch(words, without=()):
    program, argv, env = _command(words)
    for name in without:
        env.pop(name, None)
    folder = tempfile.mkdtemp(prefix="muster-run-")
    try:
        env["MUSTER_FAILURE_FILE"] = os.path.join(folder, "failure.json")
        sys.stdout.flush()
        sys.stderr.flush()
        foreground = _is_in_foreground()
        status, signo = _wait(_start(program, argv, env, foreground), foreground)
        record = None
        with contextlib.suppress(OSError, ValueError), open(env["MUSTER_FAILURE_FILE"], encoding="utf-8") as f:
            record = json.load(f)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if status == 0:
        return
    if signo is not None:
        raise _signalled(signo)
    if status == 2 and record is None:
        raise SystemExit(2)
    raise _failed(argv[2:], status, record)


# --- torch.distributed.run's names ------------------------------------------------------------------------------------


def main(args=None):
    _launch(sys.argv[1:] if args is None else args)


def run(args):
    _launch(words_of(args), turned_off(args))


if __name__ == "__main__":
    _become()
