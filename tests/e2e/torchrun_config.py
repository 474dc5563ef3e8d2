"""How genuine torchrun reads command lines: JSON of [{"argv": […], "env": {…}}, …] on stdin, a list of results on
stdout: {"exit": 2} from argparse, {"error": "…"} for every exception after it, else the configuration it would run.
Nothing is started."""
import contextlib
import io
import json
import os
import sys

import torch.distributed.run as run
from torch.distributed.elastic.multiprocessing.api import Std, to_map
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint


class Launch:
    """In place of elastic_launch."""

    def __init__(self, config, entrypoint):
        self.config, self.entrypoint = config, entrypoint

    def __call__(self, *args):
        Launch.seen = (self.config, self.entrypoint, list(args))


def streams(value, nproc):
    return [int(to_map(value, max(nproc, 10)).get(i, Std.NONE)) for i in range(nproc)]


def entry(entrypoint, args):
    if callable(entrypoint):
        return "python", args[0], args[1:]
    if args[:2] == ["-u", "-m"] and len(args) > 2:
        return "module", args[2], args[3:]
    if entrypoint == sys.executable and args[:1] == ["-u"]:
        return "python", args[1], args[2:]
    return "program", entrypoint, args


def log_dir(path):
    """None if it is the folder that torchrun makes when none was given."""
    return None if path and os.path.basename(path).startswith("torchelastic_") else path


def described():
    c, entrypoint, args = Launch.seen
    kind, script, rest = entry(entrypoint, args)
    host, port = parse_rendezvous_endpoint(c.rdzv_endpoint, 29400 if c.rdzv_backend == "c10d" else -1)
    if port == -1:
        raise ValueError("static rendezvous checks this when it starts")
    specs = c.logs_specs
    filtered = specs._local_ranks_filter
    return {
        "min_nodes": c.min_nodes, "max_nodes": c.max_nodes, "nproc_per_node": c.nproc_per_node,
        "backend": c.rdzv_backend, "host": host, "port": port, "run_id": c.run_id, "role": c.role,
        "max_restarts": c.max_restarts, "entry": kind, "script": script, "args": rest,
        "start_method": c.start_method, "virtual_local_rank": c.virtual_local_rank, "local_addr": c.local_addr,
        "node_rank": c.rdzv_configs.get("rank", -1), "signals": c.signals_to_handle, "log_dir": log_dir(specs.root_log_dir),
        "redirects": streams(specs._redirects, c.nproc_per_node), "tee": streams(specs._tee, c.nproc_per_node),
        "local_ranks_filter": None if filtered is None else sorted(filtered),
        "shutdown_timeout": c.shutdown_timeout,
    }


def one(case):
    kept = dict(os.environ)
    os.environ.update(case["env"])
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            run.run(run.parse_args(case["argv"]))
            return described()
    except SystemExit as e:
        return {"exit": e.code}
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"}
    finally:
        os.environ.clear()
        os.environ.update(kept)


run.elastic_launch = Launch
json.dump([one(case) for case in json.load(sys.stdin)], sys.stdout)
