"""How muster takes the place of torch.distributed.run: when that is imported, its main(), run() and get_args_parser() are
replaced; `python -m torch.distributed.run` runs muster. Nothing of torch is imported here."""
import importlib.abc
import importlib.machinery
import importlib.util
import sys

NAME = "torch.distributed.run"
NAMES = ("main", "run", "get_args_parser")
_originals = {}


class _Loader(importlib.abc.Loader):
    """The module's own loader; afterwards the names are replaced."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def create_module(self, spec):
        return self.inner.create_module(spec)

    def exec_module(self, module):
        self.inner.exec_module(module)
        _patch(module)

    def get_code(self, name):  # only runpy asks: python -m torch.distributed.run
        return compile("import muster.run\nmuster.run._become()\n", "<muster>", "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != NAME:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


_finder = _Finder()


def _patch(module):
    if _originals:
        return
    import muster.run
    _originals.update({name: getattr(module, name) for name in NAMES if hasattr(module, name)})
    for name in NAMES:
        setattr(module, name, getattr(muster.run, name))


def install():
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    if NAME in sys.modules:
        _patch(sys.modules[NAME])


def uninstall():
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    for name, value in _originals.items():
        setattr(sys.modules[NAME], name, value)
    _originals.clear()
