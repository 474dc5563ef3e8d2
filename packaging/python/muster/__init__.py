"""muster, a launcher for distributed training, for programs in Python.

    muster.binary()     the path of the program, which the wheel installs beside the interpreter
    muster.install()    from now on torch.distributed.run starts its jobs with muster; so do `accelerate launch`,
                        `fabric run` and others that call it. MUSTER_REPLACE_TORCHRUN=1 does the same from outside.
    muster.run          main(), run() and get_args_parser() with torch.distributed.run's signatures

Importing this is cheap: neither torch nor argparse is imported.
"""
import os
import shutil
import sys
import sysconfig

__version__ = "0.0.0"  # written by packaging/wheel.py
__all__ = ["binary", "install", "uninstall"]


def binary():
    """The path of the program muster: $MUSTER_BINARY, else that of this installation, else that on PATH."""
    chosen = os.environ.get("MUSTER_BINARY")
    if chosen:
        return chosen
    folders = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable or "")]
    if "posix_user" in sysconfig.get_scheme_names():
        folders.append(sysconfig.get_path("scripts", "posix_user"))
    # pip install --target=DIR: DIR/muster and DIR/bin
    folders.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin"))
    for folder in folders:
        path = os.path.join(folder, "muster") if folder else ""
        if path and os.access(path, os.X_OK):
            return path
    found = shutil.which("muster")
    if found is None:
        raise FileNotFoundError(f"no program muster in {', '.join(filter(None, folders))} or on PATH; install the wheel "
                                "muster again, or set MUSTER_BINARY")
    return found


def install():
    """Lets torch.distributed.run start its jobs with muster, in this process. May be called before or after its import."""
    from muster import _replace
    _replace.install()


def uninstall():
    """Undoes install()."""
    from muster import _replace
    _replace.uninstall()
