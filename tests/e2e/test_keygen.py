"""`muster keygen`, and what becomes of a key: it is nowhere where others could read it."""
import os
import re
import stat
import subprocess

from harness import MUSTER

LINE = re.compile(r"muster-key-1:[0-9a-f]{64}\n")


def keygen(home, *words, env=None):
    run = subprocess.run([MUSTER, "keygen", *words], env={"HOME": str(home), "PATH": os.environ["PATH"], **(env or {})},
                         capture_output=True, text=True, timeout=60)
    return run.returncode, run.stdout, run.stderr


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_the_key_of_a_home_is_made_once(tmp_path):
    code, out, err = keygen(tmp_path)
    key = tmp_path / ".config/muster/key"
    assert (code, err) == (0, "") and LINE.fullmatch(key.read_text())
    assert mode(key) == 0o600 and mode(key.parent) == 0o700 and mode(key.parent.parent) == 0o700
    first = re.match(rf"wrote a new key to {key} \(its id: ([0-9a-f]{{16}})\)\n.*umask 077.*<{key}\nTo undo this: (rm {key})\n$", out, re.S)
    assert first, out
    assert "Your new jobs of several nodes use it: nodes and commands on other machines need it, too.\n" in out
    text = key.read_text()
    code, out, err = keygen(tmp_path)
    assert (code, out) == (1, "") and "exists already; --force replaces it" in err
    assert key.read_text() == text
    code, out, _ = keygen(tmp_path, "--force")
    assert code == 0 and key.read_text() != text and first.group(1) not in out
    assert out.startswith(f"replaced the key in {key} (its id: ")
    assert out.endswith(f"Running jobs keep the old key. To have no key: rm {key}\n")
    assert mode(key) == 0o600 and os.listdir(key.parent) == ["key"]
    subprocess.run(first.group(2), shell=True, check=True)
    assert os.listdir(key.parent) == []


def test_a_file_of_its_own(tmp_path):
    path = tmp_path / "of a job.key"
    code, out, _ = keygen(tmp_path, str(path))
    assert code == 0 and mode(path) == 0o600
    assert f"give each --key-file='{path}'\n" in out and out.endswith(f"To undo this: rm '{path}'\n")
    assert text_of(path) not in out
    code, _, err = keygen(tmp_path, str(tmp_path / "none" / "key"))
    assert code == 1 and "No such file or directory" in err


def test_a_home_that_is_not_known(tmp_path):
    run = subprocess.run([MUSTER, "keygen"], env={}, capture_output=True, text=True, timeout=60)
    assert run.returncode == 2 and run.stderr == "muster keygen: HOME is not set: name a file\n"
    code, _, _ = keygen(tmp_path, env={"XDG_CONFIG_HOME": str(tmp_path / "xdg")})
    assert code == 0 and (tmp_path / "xdg/muster/key").exists()


def text_of(path):
    return path.read_text().strip().split(":")[1]


def test_a_bad_key_file_is_an_error(tmp_path):
    bad = tmp_path / "bad"
    bad.write_text("hello\n")
    bad.chmod(0o600)
    run = subprocess.run([MUSTER, "status", f"--key-file={bad}"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 2
    assert run.stderr == (f"muster status: --key-file: the key file '{bad}' is not a key of muster, which begins with "
                          "\"muster-key-1:\"; \"muster keygen\" writes one\n")


def test_a_missing_key_file_is_an_error_also_on_one_machine(tmp_path):
    for words in (["run", f"--key-file={tmp_path}/none", "--no-python", "true"], ["status", f"--key-file={tmp_path}/none"]):
        run = subprocess.run([MUSTER, *words], capture_output=True, text=True, timeout=60)
        assert run.returncode == 2 and "--key-file: " in run.stderr and "No such file or directory" in run.stderr, run


def environments_of(pid):
    """Of a process and its children."""
    found = open(f"/proc/{pid}/environ", "rb").read()
    for child in open(f"/proc/{pid}/task/{pid}/children").read().split():
        found += environments_of(child)
    return found


def test_a_key_in_the_environment_is_wiped(job, tmp_path):
    path = tmp_path / "a.key"
    assert keygen(tmp_path, str(path))[0] == 0
    job.pair(tags="a", nnodes="1", nproc=1)
    job.events.wait("start", 1)
    watch = subprocess.Popen([MUSTER, "status", "--watch"], env=job.env("watch", {"MUSTER_KEY": path.read_text()}),
                             stdout=subprocess.PIPE, text=True)
    try:
        assert watch.stdout.readline()  # it has asked
        shown = environments_of(watch.pid)
        assert b"MUSTER_RUN_DIR=" in shown
        assert text_of(path).encode() not in shown and b"muster-key-1" not in shown
    finally:
        watch.kill()
        watch.communicate()
        job.go()
