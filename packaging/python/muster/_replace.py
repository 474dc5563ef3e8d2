"""How muster replaces torch.distributed.run: when that module is imported, its main(), run() and get_args_parser() are replaced.
Run as a program (python -m, coverage run -m), the module runs muster. torch's elastic_launch() stays torch's; its first call
prints a warning. This file imports nothing of torch."""
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys

NAME = "torch.distributed.run"
LAUNCHER = "torch.distributed.launcher.api"
NAMES = {NAME: ("main", "run", "get_args_parser"), LAUNCHER: ("launch_agent",)}
_originals = {}
_program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run.py")


class _Loader(importlib.abc.Loader):
    """The module's own loader; afterwards the names are replaced."""

    def __init__(self, inner, origin):
        self.inner, self.origin = inner, origin

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def create_module(self, spec):
        spec.origin = self.origin
        return self.inner.create_module(spec)

    def exec_module(self, module):
        self.inner.exec_module(module)
        _patch(module)

    def get_code(self, name):  # runpy calls this, which runs a module as a program
        if name != NAME:
            return self.inner.get_code(name)
        return compile("import muster.run\nmuster.run._become()\n", "<muster>", "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name not in NAMES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, spec.origin)
            if name == NAME:
                spec.origin = _program  # coverage runs the file that is named here; an import restores it
        return spec


_finder = _Finder()


def _warns(launch_agent):
    @functools.wraps(launch_agent)
    def launch(*args, **kwargs):
        if not launch.has_warned:
            launch.has_warned = True
            print("muster: warning: elastic_launch() starts its workers with torch, not with muster. To use muster, start a "
                  "script with muster.run.main([OPTION, ..., SCRIPT])", file=sys.stderr, flush=True)
        return launch_agent(*args, **kwargs)

    launch.has_warned = False
    return launch


def _patch(module):
    name = module.__name__
    if name in _originals:
        return
    import muster.run
    _originals[name] = {key: getattr(module, key) for key in NAMES[name] if hasattr(module, key)}
    for key, value in _originals[name].items():
        setattr(module, key, _warns(value) if name == LAUNCHER else getattr(muster.run, key))


def install():
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    for name in NAMES:
        if name in sys.modules:
            _patch(sys.modules[name])


def uninstall():
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    for name, values in _originals.items():
        for key, value in values.items():
            setattr(sys.modules[name], key, value)
    _originals.clear()
