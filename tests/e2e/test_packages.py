"""What is installed, and the packages: files, links, what they need."""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import time

import pytest

from harness import HERE, MUSTER

ROOT = HERE.parent.parent
BUILD = pathlib.Path(MUSTER).resolve().parents[2] if MUSTER else None


def run(*argv, **more):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=120, **more)
    assert done.returncode == 0, (argv, done)
    return done.stdout


EASYCONFIG, = (ROOT / "packaging/easybuild").glob("*.eb")
CONDA = ROOT / "packaging/conda/recipe.yaml"


def test_the_recipes_have_the_versions_of_meson():
    meson = (ROOT / "meson.build").read_text()
    version = re.search(r"version: '(.+)'", meson).group(1)
    debian, conda = (ROOT / "debian/control").read_text(), CONDA.read_text()
    spack = (ROOT / "packaging/spack/package.py").read_text()
    compile(spack, "package.py", "exec")
    assert (ROOT / "debian/changelog").read_text().startswith(f"muster ({version}) ")
    assert f'\n  version: "{version}"\n' in conda
    assert EASYCONFIG.name.startswith(f"muster-{version}-") and f"\nversion = '{version}'\n" in EASYCONFIG.read_text()
    for name, deb, its_conda, its_spack in (
            ("libevent_core", "libevent-dev", "libevent", "libevent"), ("libcjson", "libcjson-dev", "cjson", "cjson"),
            ("hwloc", "libhwloc-dev", "libhwloc", "hwloc"), ("libcrypto", "libssl-dev", "openssl", "openssl")):
        least = re.search(rf"dependency\('{name}', version: '>=(.+?)'", meson).group(1)
        assert f"{deb} (>= {least})" in debian and f"- {its_conda} >={least}\n" in conda, name
        assert f'"{its_spack}@{least}:' in spack, name


LMOD = pathlib.Path("/usr/share/lmod/lmod/libexec/lmod")  # Debian's package lmod


@pytest.mark.slow
@pytest.mark.skipif(not LMOD.exists(), reason="no lmod, which EasyBuild needs")
def test_the_recipes_can_be_read(tmp_path):
    """By EasyBuild, which must find all that the recipe needs, and by rattler-build. Both are on PyPI; Spack is not."""
    run("/usr/bin/python3", "-m", "venv", tmp_path / "venv")
    subprocess.run([tmp_path / "venv/bin/pip", "install", "-q", "easybuild", "pycodestyle", "py-rattler-build"],
                   check=True, timeout=600)
    env = {**os.environ, "EASYBUILD_PREFIX": str(tmp_path), "EASYBUILD_ALLOW_USE_AS_ROOT_AND_ACCEPT_CONSEQUENCES": "1",
           "PATH": f"{tmp_path}/venv/bin:{os.environ['PATH']}", "LMOD_CMD": str(LMOD)}
    eb = [tmp_path / "venv/bin/eb", "--modules-tool=Lmod"]
    assert "All style checks PASSed" in run(*eb, "--check-style", EASYCONFIG, env=env)
    assert f"{EASYCONFIG} (module: muster/" in run(*eb, "--dry-run", "--robot", EASYCONFIG, env=env)
    (tmp_path / "variants.yaml").write_text('c_compiler: [gcc]\nc_stdlib: [sysroot]\nc_stdlib_version: ["2.28"]\n')
    render = ("import sys, rattler_build as r; "
              "variant, = r.Stage0Recipe.from_file(sys.argv[1]).render(r.VariantConfig.from_file(sys.argv[2])); "
              "print(variant.recipe.package.name, *variant.recipe.requirements.run)")
    shown = run(tmp_path / "venv/bin/python", "-c", render, CONDA, tmp_path / "variants.yaml")
    assert shown.startswith("muster libhwloc >=2.4")


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
        assert names[name].stat().st_size > 500
    completion = next(p for p in tmp_path.rglob("bash-completion/completions/muster"))
    assert "complete -o filenames -F _muster muster torchrun" in completion.read_text()


def test_links_are_made_below_the_prefix_or_at_an_absolute_place(tmp_path):
    link = ROOT / "packaging/install_link.sh"
    env = {**os.environ, "DESTDIR": f"{tmp_path}/stage", "MESON_INSTALL_DESTDIR_PREFIX": f"{tmp_path}/stage/usr"}
    run(link, "bin/torchrun", "muster", env=env)
    run(link, "bin/torchrun", "muster", env=env)  # again, over the old one
    run(link, "/opt/man/man1/torchrun.1", "muster-run.1", env=env)
    assert os.readlink(tmp_path / "stage/usr/bin/torchrun") == "muster"
    assert os.readlink(tmp_path / "stage/opt/man/man1/torchrun.1") == "muster-run.1"


# --- the wheel, from any program that needs only glibc -----------------------------------------------------------------


def test_the_tag_of_a_wheel_is_that_of_its_program(tmp_path):
    """Not of the machine that packs it: e_machine of elf(5)."""
    program = bytearray(pathlib.Path("/bin/true").read_bytes())
    for machine, name in ((62, "x86_64"), (183, "aarch64")):
        program[18:20] = machine.to_bytes(2, "little")
        (tmp_path / "program").write_bytes(program)
        run(ROOT / "packaging/wheel.py", "1.2.3", tmp_path / "program", tmp_path)
        assert len(list(tmp_path.glob(f"muster-1.2.3-py3-none-manylinux_*_{name}.whl"))) == 1, list(tmp_path.iterdir())


def test_the_wheel_installs_program_package_and_torchrun(tmp_path):
    """With a copy of /bin/true as the program: the real one is built in the slow tests."""
    program = tmp_path / "program"
    shutil.copy("/bin/true", program)
    least = run(ROOT / "packaging/needs.py", program).strip()
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    run(ROOT / "packaging/wheel.py", "1.2.3", program, tmp_path, env=env)
    tag = "_".join(map(str, max(tuple(map(int, least.split("."))), (2, 17))))
    wheel = tmp_path / f"muster-1.2.3-py3-none-manylinux_{tag}_{os.uname().machine}.whl"
    assert wheel.exists(), list(tmp_path.iterdir())
    run("/usr/bin/python3", "-m", "venv", tmp_path / "venv")
    bin_ = tmp_path / "venv/bin"
    # Where the tests run on an older glibc than /bin/true's tag says, there is nothing to test: it is this machine's own.
    run(bin_ / "python", "-m", "pip", "install", "-q", "--no-index", "--find-links", tmp_path, "muster[torchrun]")
    assert (bin_ / "muster").read_bytes() == program.read_bytes() and os.access(bin_ / "muster", os.X_OK)
    where = run(bin_ / "python", "-c", "import muster; print(muster.__version__, muster.binary())", env=env)
    assert where == f"1.2.3 {bin_}/muster\n"
    assert (tmp_path / "venv/share/man/man1/muster-run.1").read_bytes() == (ROOT / "man/muster-run.1").read_bytes()
    # torchrun hands its words to the muster beside it, also through a link from elsewhere
    (bin_ / "muster").write_text('#!/bin/sh\necho "$0" "$@"\n')
    (tmp_path / "link").symlink_to(bin_ / "torchrun")
    assert run(tmp_path / "link", "--nnodes=1", "a b") == f"{bin_}/muster torchrun --nnodes=1 a b\n"


NO_RECORD = "none has a record of this file"
TORCHS = "#!/x/bin/python3\nimport sys\nfrom torch.distributed.run import main\nsys.exit(main())\n"


def installed(program, path, **env):
    """The lines of `muster version -v` about its installation: {name: text}."""
    text = run(program, "version", "-v", env={"PATH": f"{path}:/usr/bin:/bin", **env})
    lines = text[text.index("installed as\n"):text.index("built with\n")].splitlines()[1:]
    return {line[2:12].strip(): line[13:] for line in lines}


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """As pip leaves it, except that the program is then replaced by the one to test."""
    tmp = tmp_path_factory.mktemp("environment")
    shutil.copy("/bin/true", tmp / "program")
    run(ROOT / "packaging/wheel.py", "1.2.3", tmp / "program", tmp)
    run("/usr/bin/python3", "-m", "venv", tmp / "venv")
    run(tmp / "venv/bin/python", "-m", "pip", "install", "-q", "--no-index", "--find-links", tmp, "muster[torchrun]")
    shutil.copy(MUSTER, tmp / "venv/bin/muster")
    return tmp / "venv"


def test_version_reports_the_wheel_that_it_was_installed_from(environment):
    muster = environment / "bin/muster"
    info, = environment.rglob("muster-1.2.3.dist-info")
    found = installed(muster, "/")
    assert found["program"] == str(muster) and found["package"] == f"wheel: {info}"
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: meson\n")
    assert installed(muster, "/")["package"] == f"pip build: {info}"
    dynamic = b"libevent_core" in subprocess.run(["objdump", "-p", MUSTER], capture_output=True, check=True).stdout
    none = NO_RECORD if dynamic else f"{NO_RECORD}; its libraries are linked in, as in the portable file"
    shutil.copy(MUSTER, environment / "other")
    assert installed(environment / "other", "/")["package"] == none
    assert installed(MUSTER, "/")["package"] == f"none: it is in the build tree {BUILD}"


def test_version_reports_which_torchrun_runs(environment, tmp_path):
    muster, torchrun = environment / "bin/muster", environment / "bin/torchrun"
    ours = torchrun.read_text()
    try:
        assert installed(muster, environment / "bin")["torchrun"] == \
            f"{torchrun}: the script of muster[torchrun], runs this muster"
        assert installed(MUSTER, environment / "bin")["torchrun"] == \
            f"{torchrun}: the script of muster[torchrun], runs {muster}"
        torchrun.write_text(TORCHS)
        found = installed(muster, environment / "bin")
        assert found["torchrun"] == f"{torchrun}: PyTorch's script; MUSTER_REPLACE_TORCHRUN is not set"
        assert found[""].startswith("muster[torchrun] is installed, but a later installation of torch has overwritten its script")
        assert installed(muster, environment / "bin", MUSTER_REPLACE_TORCHRUN="1")["torchrun"] == \
            f"{torchrun}: PyTorch's script, which starts muster, because MUSTER_REPLACE_TORCHRUN=1"
    finally:
        torchrun.write_text(ours)
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin/torchrun"
    link.symlink_to(MUSTER)
    assert installed(MUSTER, link.parent)["torchrun"] == f"{link}: this muster"
    link.unlink()
    link.write_text(TORCHS)
    link.chmod(0o755)
    assert installed(MUSTER, link.parent) | {"torchrun": "", "": ""} == installed(MUSTER, "/") | {"torchrun": "", "": ""}
    assert installed(MUSTER, link.parent)["torchrun"] == f"{link}: PyTorch's script"
    assert "has no effect, because" in installed(MUSTER, link.parent, MUSTER_REPLACE_TORCHRUN="1")["torchrun"]
    link.write_text("#!/bin/sh\n")
    assert installed(MUSTER, link.parent)["torchrun"] == f"{link}: neither this muster nor PyTorch's script"
    if not shutil.which("torchrun", path="/usr/bin:/bin"):
        assert installed(MUSTER, "/")["torchrun"] == "none on PATH"


@pytest.mark.skipif(os.geteuid() != 0 or not pathlib.Path("/var/lib/dpkg/info").is_dir(), reason="needs a mount namespace and dpkg")
def test_version_reports_the_debian_package(tmp_path):
    program, info = tmp_path / "muster", tmp_path / "info"
    shutil.copy(MUSTER, program)
    info.mkdir()
    inside = f"mount --bind {info} /var/lib/dpkg/info && {program} version -v"
    for path, want in ((program, "Debian package: the file is in /var/lib/dpkg/info/muster.list"),
                       (f"{program}-else", NO_RECORD)):
        (info / "muster.list").write_text(f"/.\n{path}\n")
        assert f"\n  package    {want}" in run("unshare", "-m", "sh", "-c", inside)


def test_a_program_that_needs_more_than_glibc_is_refused(tmp_path):
    done = subprocess.run([ROOT / "packaging/needs.py", "/bin/true", "--at-most", "2.1"], capture_output=True, text=True)
    assert done.returncode == 1 and "at most 2.1 is wanted" in done.stderr
    if b"libevent_core" in subprocess.run(["objdump", "-p", MUSTER], capture_output=True, check=True).stdout:
        done = subprocess.run([ROOT / "packaging/needs.py", MUSTER], capture_output=True, text=True)
        assert done.returncode == 1 and "libevent_core" in done.stderr


@pytest.mark.slow
def test_pip_builds_and_installs_the_source(tmp_path):
    """What "pip install ." and "pip install git+URL" do, in a fresh environment; the build needs PyPI for meson-python."""
    source, venv = tmp_path / "muster.tar.gz", tmp_path / "venv"
    run("git", "-C", ROOT, "archive", "--prefix=muster/", "-o", source, "HEAD")
    run("/usr/bin/python3", "-m", "venv", venv)
    env = {k: v for k, v in os.environ.items() if k not in ("CC", "CC_LD", "PKG_CONFIG_LIBDIR")}
    none = subprocess.run([venv / "bin/pip", "install", source], capture_output=True, text=True, timeout=600,
                          env={**env, "PKG_CONFIG_LIBDIR": str(tmp_path), "CMAKE_PREFIX_PATH": str(tmp_path)})
    assert none.returncode != 0 and "apt install gcc pkg-config libevent-dev" in none.stdout + none.stderr, none
    subprocess.run([venv / "bin/pip", "install", source], check=True, capture_output=True, timeout=600, env=env)
    version = run(venv / "bin/muster", "version").split()[1]
    assert run(venv / "bin/python", "-c", "import muster; print(muster.__version__, muster.binary())", cwd=tmp_path).split() == [
        version, str(venv / "bin/muster")]
    assert run(venv / "bin/python", "-m", "muster.run", "--no-python", "echo", "hello", cwd=tmp_path) == "hello\n"
    assert (venv / "share/man/man1/muster-run.1").exists()
    assert not list(venv.rglob("libmuster-store*")), "the store's C client is not part of it"
    run(venv / "bin/pip", "uninstall", "-y", "muster")
    assert not list(venv.rglob("*muster*"))


@pytest.mark.slow
def test_uv_and_pipx_install_the_source(tmp_path):
    source, venv = tmp_path / "muster.tar.gz", tmp_path / "venv"
    run("git", "-C", ROOT, "archive", "--prefix=muster/", "-o", source, "HEAD")
    run("tar", "-C", tmp_path, "-xf", source)
    run("/usr/bin/python3", "-m", "venv", venv)
    subprocess.run([venv / "bin/pip", "install", "-q", "uv", "pipx"], check=True, timeout=600)
    env = {**{k: v for k, v in os.environ.items() if k not in ("CC", "CC_LD")},
           "PATH": f"{venv}/bin:{os.environ['PATH']}", "UV_CACHE_DIR": f"{tmp_path}/uv", "PIPX_HOME": f"{tmp_path}/pipx",
           "PIPX_BIN_DIR": f"{tmp_path}/bin", "PIPX_MAN_DIR": f"{tmp_path}/man", "UV_SYSTEM_CERTS": "1"}

    def build(*argv):
        return subprocess.run(argv, cwd=tmp_path / "muster", env=env, check=True, capture_output=True, text=True,
                              timeout=900).stdout
    build("uv", "venv", "--python=/usr/bin/python3", tmp_path / "uv-venv")
    build("uv", "pip", "install", "--python", tmp_path / "uv-venv/bin/python", ".")
    build("pipx", "install", "--python=/usr/bin/python3", ".")
    for muster in (tmp_path / "uv-venv/bin/muster", tmp_path / "bin/muster"):
        assert run(muster, "run", "--no-python", "echo", "hello") == "hello\n"
    assert build("uvx", "--from", ".", "muster", "version") == run(tmp_path / "bin/muster", "version")


# --- the packages in a Debian of their own (slow) ----------------------------------------------------------------------

# Where build.sh and these tests keep their Debians, for the next run.
CACHE = pathlib.Path(os.environ.get("MUSTER_PACKAGING_CACHE") or pathlib.Path.home() / ".cache/muster-packaging")
MIRROR = [m for m in [os.environ.get("MUSTER_PACKAGING_MIRROR")] if m]  # else the tools' own


def shorter(text, most=24):
    lines = [line if len(line) <= 400 else f"{line[:400]} ...\n" for line in text.splitlines(keepends=True)]
    return "".join(lines if len(lines) <= most else [*lines[:most], f"... {len(lines) - most} more lines\n"])


def in_debian(test):
    return pytest.mark.slow(pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mmdebstrap"),
                                               reason="needs root and mmdebstrap")(test))


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The folder with all that build.sh makes."""
    out = tmp_path_factory.mktemp("packages")
    for kind in ("wheel", "deb"):
        subprocess.run([ROOT / "packaging/build.sh", kind, out], check=True, timeout=3600,
                       env={**os.environ, "MUSTER_PACKAGING_CACHE": str(CACHE)})
    return out


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mmdebstrap") or not shutil.which("newuidmap"),
                    reason="needs root, mmdebstrap and uidmap")
def test_without_root_the_wheel_is_the_same(packages):
    """As nobody, with ranges of ids of its own, a second build gives the same bytes."""
    if run("git", "-C", ROOT, "status", "--porcelain"):
        pytest.skip("the source has changes that are not committed")
    with tempfile.TemporaryDirectory() as name:  # pytest closes its own folder to other users at each start
        folder = pathlib.Path(name)
        folder.chmod(0o711)
        source, home, out = folder / "source", folder / "home", folder / "out"
        run("git", "clone", "-q", ROOT, source)
        home.mkdir()
        out.mkdir()
        (folder / "ids").write_text("nobody:200000:65536\n")
        run("chown", "-R", "nobody:nogroup", source, home, out)
        script = ('mount --bind "$1/ids" /etc/subuid && mount --bind "$1/ids" /etc/subgid && HOME=$1/home exec setpriv --reuid=nobody '
                  '--regid=nogroup --clear-groups "$1/source/packaging/build.sh" wheel "$1/out"')
        env = {k: v for k, v in os.environ.items() if k not in ("MUSTER_PACKAGING_CACHE", "XDG_CACHE_HOME")}
        subprocess.run(["unshare", "--mount", "sh", "-ec", script, "-", folder], check=True, timeout=3600, env=env)
        ours, = out.glob("muster-*.whl")
        assert ours.read_bytes() == (packages / ours.name).read_bytes()


class Debian:
    """A minimal Debian with Python and without libevent, hwloc and OpenSSL's headers; a copy for each test."""

    def __init__(self, suite, folder):
        base = CACHE / f"test-{suite}"
        if not base.exists():
            half = base.with_suffix(".half")
            shutil.rmtree(half, ignore_errors=True)
            half.parent.mkdir(parents=True, exist_ok=True)
            # Only the release itself: its updates change, and a mirror may lack the newest.
            done = subprocess.run(["mmdebstrap", "--variant=minbase", "--include=python3,python3-venv,ca-certificates",
                                   '--setup-hook=sed -i 1q "$1/etc/apt/sources.list"', suite, half, *MIRROR],
                                  capture_output=True, text=True, timeout=1800)
            if re.search("Failed to fetch|Could not connect|Could not resolve", done.stderr):
                pytest.skip(f"no mirror of Debian's {suite} can be reached")
            assert done.returncode == 0, done.stderr[-2000:]
            half.rename(base)
        self.root = folder / suite
        subprocess.run(["cp", "-a", base, self.root], check=True)
        assert not list(self.root.rglob("libevent*")) and not list(self.root.rglob("libhwloc*"))

    def __call__(self, *argv, status=0, limit=300):
        # /proc and /sys are there for this command alone: a mount that outlived the test would be dangerous.
        mounts = 'mount --rbind /proc "$0/proc"; mount --rbind /sys "$0/sys"; exec chroot "$0" "$@"'
        begin = time.monotonic()
        done = subprocess.run(["unshare", "--mount", "sh", "-ec", mounts, self.root, "env", "-i",
                               "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", *map(str, argv)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit)
        took = time.monotonic() - begin  # pytest -rP shows it
        print(f"{self.root.name}# {shlex.join(map(str, argv))}  # {took:.1f} s\n{shorter(done.stdout)}")
        assert done.returncode == status, (argv, done)
        return done.stdout

    def install(self, *packages):
        """From its mirror."""
        for path in ("etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt"):
            if pathlib.Path("/", path).exists():
                shutil.copy(f"/{path}", self.root / path)
        try:
            self("apt-get", "-q", "-o", "APT::Update::Error-Mode=any", "update")
        except AssertionError as error:
            if re.search("Could not (resolve|connect)", str(error)):
                pytest.skip("no mirror of Debian can be reached")
            raise
        self("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "install", "-y", *packages, limit=900)

    def put_source(self):
        """The committed source: as an archive, and unpacked. Returns the archive."""
        run("git", "-C", ROOT, "archive", "--prefix=muster/", "-o", self.root / "root/muster.tar.gz", "HEAD")
        self("tar", "-C", "/root", "-xf", "/root/muster.tar.gz")
        return "/root/muster.tar.gz"

    def put(self, path):
        shutil.copy(path, self.root / "root")
        return f"/root/{path.name}"


@pytest.fixture(params=["bullseye", "bookworm", "trixie"])
def debian(request, tmp_path):
    system = Debian(request.param, tmp_path)
    yield system
    shutil.rmtree(system.root)


def use(debian, packages, muster, torchrun):
    """Trains, runs as torchrun, and looks at the node."""
    digits = debian.put(packages / "c-digits")
    data = debian.put(ROOT / "examples/data/digits.csv")
    debian("test", "-x", digits)
    out = debian(muster, "run", "--nproc-per-node=2", "--no-python", digits, "--data", data, "--epochs", "3")
    assert float(re.search(r"\ntest accuracy: ([0-9.]+) %\n", out).group(1)) > 90 and "world size 2" in out, out
    (debian.root / "root/t.py").write_text("import os; print('rank', os.environ['RANK'], flush=True)\n")
    assert sorted(debian(*torchrun, "--nproc-per-node=2", "/root/t.py").split("\n")) == ["", "rank 0", "rank 1"]
    debian(*torchrun, "--nproc-per-node=2", "--no-python", "/bin/false", status=1)
    node = json.loads(debian(muster, "topo", "--json"))
    assert len(node["cores"]) >= 1 and node["numa"] and "lo" in [i["name"] for i in node["interfaces"]]
    assert re.search(r"package 0\n.*NUMA node 0: CPUs 0", debian(muster, "topo", "--tree"))
    found = debian(muster, "version", "-v")
    assert found.count("OpenSSL 3.") == 2, found  # built with, and found here: the one inside


@in_debian
def test_the_portable_file_runs(debian, packages):
    program = next(packages.glob("muster-*-linux-x86_64"))
    assert run("sha256sum", "-c", f"{program.name}.sha256", cwd=packages) == f"{program.name}: OK\n"
    muster = debian.put(program)
    (debian.root / "root/torchrun").symlink_to(muster)
    use(debian, packages, muster, ["/root/torchrun"])


@in_debian
def test_the_deb_is_installed_used_and_removed(debian, packages):
    debs = [debian.put(path) for path in sorted(packages.glob("*.deb"))]
    torchrun = debian.root / "usr/bin/torchrun"
    torchrun.write_text("#!/bin/sh\necho PyTorch's\n")
    debian("dpkg", "-i", *debs)
    debian("dpkg", "-i", *debs)  # again, as an upgrade
    use(debian, packages, "/usr/bin/muster", ["torchrun"])
    assert re.search(r"\nDepends: libc6 \(>= 2\.\d+\)\n", debian("dpkg", "-s", "muster"))
    assert_the_debian_packages_are_whole(debian, "/usr/share/doc/muster/licences.gz")
    debian("dpkg", "-P", *DEBS)
    assert torchrun.read_text().endswith("PyTorch's\n") and not (debian.root / "usr/bin/muster").exists()
    assert "libmuster-store" not in debian("ldconfig", "-p")


DEBS = ["muster-torchrun", "libmuster-store-dev", "libmuster-store0", "muster"]


def assert_the_debian_packages_are_whole(debian, *more):
    listed = debian("dpkg", "-L", *DEBS)
    for path in ("/usr/share/man/man1/muster-run.1.gz", "/usr/share/bash-completion/completions/muster",
                 "/usr/share/zsh/vendor-completions/_muster", "/usr/share/fish/vendor_completions.d/muster.fish",
                 "/usr/share/man/man1/muster-store.1.gz", "/usr/share/man/man3/muster_store.3.gz",
                 "/usr/share/man/man1/muster-stop.1.gz", "/usr/share/man/man3/muster_store_get.3.gz",
                 "/usr/bin/torchrun", "/usr/share/doc/muster/copyright", "/usr/include/muster/store.h", *more):
        assert f"\n{path}\n" in listed
    for name in ("bash-completion/completions/torchrun", "fish/vendor_completions.d/torchrun.fish"):
        assert "torchrun" in (debian.root / "usr/share" / name).read_text()
    assert "libmuster-store.so.0" in debian("ldconfig", "-p")


@in_debian
def test_the_debian_packages_with_the_systems_libraries(tmp_path):
    """dpkg-buildpackage, lintian, installation, use, removal."""
    debian = Debian("bookworm", tmp_path)
    try:
        debian.put_source()
        debian.install("build-essential", "lintian")
        debian("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "build-dep", "-y", "/root/muster", limit=900)
        debian("sh", "-c", "cd /root/muster && dpkg-buildpackage -us -uc -b", limit=900)
        print(debian("sh", "-c", "lintian --allow-root --fail-on error,warning /root/*.changes"))
        debian("apt-get", "-q", "purge", "-y", "libevent-dev", "libhwloc-dev")
        debian("apt-get", "-q", "autoremove", "-y")
        for library in ("libevent*", "libhwloc*"):
            assert not list((debian.root / "usr/lib").rglob(library))
        debian("sh", "-c", "apt-get -q install -y $(ls /root/*.deb | grep -v dbgsym)")
        assert_the_debian_packages_are_whole(debian)
        assert debian("torchrun", "--no-python", "echo", "hello") == "hello\n"
        assert "not found" not in debian("muster", "version", "-v").replace("NVML       not found", "")
        assert json.loads(debian("muster", "topo", "--json"))["cores"]
        debian("muster", "keygen")
        debian("dpkg", "-P", *DEBS)
        assert not (debian.root / "usr/bin/muster").exists() and not (debian.root / "usr/bin/torchrun").is_symlink()
    finally:
        shutil.rmtree(debian.root)


@in_debian
def test_pip_installs_the_source_and_the_quickstart_runs(debian):
    """First without the headers, then with the packages that the error names, as a new user would."""
    source = debian.put_source()
    debian.install("ca-certificates")
    debian("python3", "-m", "venv", "/root/venv")
    pip = ["env", "PIP_CERT=/etc/ssl/certs/ca-certificates.crt", "/root/venv/bin/pip", "install", source]
    error = debian(*pip, status=1, limit=600)
    debian.install(*re.search(r"Ubuntu 22.04 or later: apt install (.*)", error).group(1).split())
    debian(*pip, limit=900)
    muster, module = "/root/venv/bin/muster", ["/root/venv/bin/python", "-m", "muster.run"]
    assert debian(muster, "run", "--nproc-per-node=2", "--no-python", "echo", "hello") == "hello\nhello\n"
    (debian.root / "root/t.py").write_text("import os; print('rank', os.environ['RANK'], flush=True)\n")
    assert sorted(debian(*module, "--nproc-per-node=2", "/root/t.py").split("\n")) == ["", "rank 0", "rank 1"]
    assert "not found" not in debian(muster, "version", "-v").replace("NVML       not found", "")
    assert "one worker and one agent lost on the way" in debian("/root/muster/examples/quickstart.sh", limit=1200)


@in_debian
def test_the_wheel_is_installed_and_used(debian, packages):
    (debian.root / "root/wheels").mkdir()
    for path in packages.glob("*.whl"):
        shutil.copy(path, debian.root / "root/wheels")
    debian("python3", "-m", "venv", "/root/venv")
    debian("/root/venv/bin/python", "-m", "pip", "install", "-q", "--no-index", "--find-links", "/root/wheels", "muster[torchrun]")
    use(debian, packages, "/root/venv/bin/muster", ["/root/venv/bin/torchrun"])
    use(debian, packages, "/root/venv/bin/muster", ["/root/venv/bin/python", "-m", "muster.run"])
