"""torchrun's options as an argparse parser, and a parsed namespace as muster's command line.

The parser is for callers that build or change a namespace, as Accelerate does: it knows the options of torch 2.13 with their
destinations and defaults. muster.run.main() does not need it: muster reads the words itself, with all its own options.
"""
import argparse
import os

# name, letter, type, default, choices
_VALUES = [
    ("nnodes", None, str, "1:1", None),
    ("nproc-per-node", None, str, "1", None),
    ("rdzv-backend", None, str, "static", None),
    ("rdzv-endpoint", None, str, "", None),
    ("rdzv-id", None, str, "none", None),
    ("rdzv-conf", None, str, "", None),
    ("max-restarts", None, int, 0, None),
    ("monitor-interval", None, float, 0.1, None),
    ("start-method", None, str, "spawn", ["spawn", "fork", "forkserver"]),
    ("event-log-handler", None, str, "null", None),
    ("role", None, str, "default", None),
    ("log-dir", None, str, None, None),
    ("redirects", "r", str, "0", None),
    ("tee", "t", str, "0", None),
    ("local-ranks-filter", None, str, "", None),
    ("duplicate-stdout-filters", None, list, [], None),
    ("duplicate-stderr-filters", None, list, [], None),
    ("node-rank", None, int, 0, None),
    ("master-addr", None, str, "127.0.0.1", None),
    ("master-port", None, int, None, None),
    ("local-addr", None, str, None, None),
    ("logs-specs", None, str, None, None),
    ("numa-binding", None, str, None, ["node", "socket", "exclusive", "core-complex"]),
    ("signals-to-handle", None, str, "SIGTERM,SIGINT,SIGHUP,SIGQUIT", None),
    ("shutdown-timeout", None, int, None, None),
]
_SWITCHES = [("standalone", None), ("module", "m"), ("no-python", None), ("run-path", None), ("virtual-local-rank", None)]
_NO_ENVIRONMENT = {"logs-specs", "numa-binding"}  # torchrun has no PET_ for these


def _words(text):
    return [word for word in text.split(",") if word]


def _dest(name):
    return name.replace("-", "_")


def _flags(name, letter):
    flags = [f"-{letter}"] if letter else []
    flags.append(f"--{name}")
    if "-" in name:
        flags.append(f"--{_dest(name)}")
    return flags


def get_args_parser():
    """An argparse.ArgumentParser for torchrun's options. Defaults come from PET_NAME, as torchrun's do."""
    parser = argparse.ArgumentParser(description="muster, through torchrun's interface; muster run --help-all has all options")
    for name, letter, kind, default, choices in _VALUES:
        if name not in _NO_ENVIRONMENT:
            default = os.environ.get(f"PET_{_dest(name).upper()}", default)
        parser.add_argument(*_flags(name, letter), dest=_dest(name), type=_words if kind is list else kind, default=default,
                            choices=choices, help=argparse.SUPPRESS if kind is list else None)
    for name, letter in _SWITCHES:
        on = os.environ.get(f"PET_{_dest(name).upper()}", "0") not in ("", "0")
        parser.add_argument(*_flags(name, letter), dest=_dest(name), action="store_true", default=on)
    parser.add_argument("training_script", type=str, help="the script, module or program")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser


def _from_environment(name):
    variable = f"PET_{_dest(name).upper()}"
    return variable if variable in os.environ and name not in _NO_ENVIRONMENT else None


def turned_off(args):
    """The PET_ variables which are set but do not hold: the namespace has None, "" or False there, which no option can say."""
    values = {name: getattr(args, _dest(name), ...) for name, *_ in [*_VALUES, *_SWITCHES]}
    off = [name for name, value in values.items() if value is None or value is False or value == ""]
    return list(filter(None, map(_from_environment, off)))


def words_of(args):
    """The command line of `muster run` that means what the namespace says. A value that is the default is left out, so
    that muster's own rules for it hold (rdzv_conf of a static rendezvous, …), unless PET_NAME says another one."""
    words = []
    for name, _, _, default, _ in _VALUES:
        value = getattr(args, _dest(name), default)
        if value is None or (value == default and not _from_environment(name)) or (value == "" and name == "rdzv-endpoint"):
            continue
        if isinstance(value, (list, tuple)):
            value = ",".join(map(str, value))
        words.append(f"--{name}={value}")
    words += [f"--{name}" for name, _ in _SWITCHES if getattr(args, _dest(name), False)]
    script, rest = args.training_script, list(getattr(args, "training_script_args", None) or [])
    if getattr(args, "use_env", True):
        return [*words, script, *rest]
    # torch.distributed.launch without --use-env: the script gets --local-rank=N.
    words = [word for word in words if word not in ("--module", "--no-python", "--run-path")]
    line = [script] if getattr(args, "no_python", False) else ["-u", *(["-m"] if getattr(args, "module", False) else []), script]
    if line[0] == "-u":
        from muster.run import python
        line.insert(0, python())
    names = [f"w{i}" for i in range(len(line))]
    shell = "".join(f"{name}=$1; shift; " for name in names)
    shell += "exec " + " ".join(f'"${name}"' for name in names) + ' "--local-rank=$LOCAL_RANK" "$@"'
    return [*words, "--no-python", "/bin/sh", "-c", shell, "sh", *line, *rest]
