"""What is installed, and the packages: files, links, what they need."""
import os
import pathlib
import shutil
import subprocess

import pytest

from harness import HERE, MUSTER

ROOT = HERE.parent.parent
BUILD = pathlib.Path(MUSTER).resolve().parents[2] if MUSTER else None


def run(*argv, **more):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=120, **more)
    assert done.returncode == 0, (argv, done)
    return done.stdout


@pytest.mark.skipif(not shutil.which("meson"), reason="no meson on PATH")
def test_meson_installs_pages_completions_and_licence(tmp_path):
    run("meson", "install", "-C", BUILD, "--no-rebuild", env={**os.environ, "DESTDIR": str(tmp_path)})
    names = {p.name: p for p in tmp_path.rglob("*") if not p.is_dir()}
    for name in ("muster", "muster.1", "muster-run.1", "muster-store.1", "muster_store.3", "muster_store_get.3", "muster-stop.1",
                 "_muster", "muster.fish", "LICENSE", "store.h", "muster-store.pc"):
        assert name in names, (name, sorted(names))
    assert "torchrun" not in names  # -Dtorchrun=false
    for page in (ROOT / "man").glob("*.[1-9]"):
        assert page.name in names, page
    for path in names.values():
        if path.is_symlink():
            assert path.exists(), f"{path} leads nowhere"
    for name, place in (("_muster", "zsh/site-functions"), ("muster.fish", "fish/vendor_completions.d"),
                        ("LICENSE", "licenses/muster")):
        assert str(names[name].parent).endswith(place)
        assert names[name].stat().st_size > 1000
    completion = next(p for p in tmp_path.rglob("bash-completion/completions/muster"))
    assert "complete -o filenames -F _muster muster" in completion.read_text()


def test_links_are_made_below_the_prefix_or_at_an_absolute_place(tmp_path):
    link = ROOT / "packaging/install_link.sh"
    env = {**os.environ, "DESTDIR": f"{tmp_path}/stage", "MESON_INSTALL_DESTDIR_PREFIX": f"{tmp_path}/stage/usr"}
    run(link, "bin/torchrun", "muster", env=env)
    run(link, "bin/torchrun", "muster", env=env)  # again, over the old one
    run(link, "/opt/man/man1/torchrun.1", "muster-run.1", env=env)
    assert os.readlink(tmp_path / "stage/usr/bin/torchrun") == "muster"
    assert os.readlink(tmp_path / "stage/opt/man/man1/torchrun.1") == "muster-run.1"
