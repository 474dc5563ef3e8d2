"""The command lines of README and of the pages in docs/: those of blocks of kind sh, and those after "$ " in other blocks.

test_page_lines.py runs each of them in a sandbox, except those in RUN_BY and NOT_RUN; tests/lint/pages_check.py refuses a line
whose program the sandbox does not have, and entries that no line needs. A key is "PAGE: how the line begins"."""
import collections
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
Line = collections.namedtuple("Line", "page text")

# The programs of a line that the sandbox runs: the real ones, and a stand-in for docker.
PROGRAMS = ("muster", "torchrun", "git", "install", "docker", "exec docker")

# The test of tests/e2e that runs the line.
RUN_BY = {
    **{f"{page}.md: #!/bin/bash": "test_pages.py::test_the_batch_script_of_a_page"
       for page in ("slurm", "accelerate", "transformers", "deepspeed", "lightning", "jax")},
    "launchers.md: exec muster run train.py": "test_gridengine.py::test_workers_have_saved_before_the_job_is_killed",
    "launchers.md: mpiexec": "test_mpi.py::test_tasks_of_four_hosts_are_one_job",
    "slurm.md: salloc": "test_pages.py::test_the_lines_for_a_terminal",
    "slurm.md: srun": "test_pages.py::test_the_lines_for_a_terminal",
    "README.md: muster run train.py": "test_pages.py::test_the_lines_of_readme_in_a_job",
    "README.md: srun muster run train.py": "test_pages.py::test_the_lines_of_readme_in_a_job",
    "README.md: muster run -H": "test_page_lines.py::test_the_line_of_readme_over_ssh",
    "README.md: muster status": "test_page_lines.py::test_the_status_in_readme",
    "ssh.md: muster run -H": "test_ssh.py::test_the_page",
    "ssh.md: muster run --hostfile": "test_ssh.py::test_the_page",
    "reliability.md: examples/drill/drill.py": "test_drill.py::test_a_job_recovers_from_each_fault",
    "security.md: nft add": "test_pages.py::test_the_firewall_of_the_page_on_security",
    "profile.md: muster profile": "test_profile_pictures.py::test_the_lines_of_the_page",
    "warm.md: muster run -v --warm": "test_pages.py::test_the_line_of_the_page_on_warm_restarts",
    "README.md: examples/quickstart.sh": "test_examples.py::test_quickstart_shows_both_recoveries",
    "README.md: pip install .": "test_packages.py::test_pip_builds_and_installs_the_source",
    "install.md: pip install .": "test_packages.py::test_pip_builds_and_installs_the_source",
    "README.md: packaging/build.sh portable": "test_packages.py::test_the_portable_file_runs",
    "install.md: pipx install .": "test_packages.py::test_uv_and_pipx_install_the_source",
    "install.md: packaging/build.sh portable": "test_packages.py::test_the_portable_file_runs",
    "install.md: packaging/build.sh wheel": "test_packages.py::test_the_wheel_is_installed_and_used",
    "install.md: packaging/build.sh deb": "test_packages.py::test_the_deb_is_installed_used_and_removed",
    "install.md: dpkg-buildpackage": "test_packages.py::test_the_debian_packages_with_the_systems_libraries",
    "install.md: (cd DIR && sha256sum": "test_packages.py::test_the_portable_file_runs",
    "install.md: meson setup build": "test_packages.py::test_meson_installs_pages_completions_and_licence",
    "install.md: ninja -C build install": "test_packages.py::test_meson_installs_pages_completions_and_licence",
}
# Why no test runs the line.
NOT_RUN = {
    "nvl72.md: #!/bin/bash": "needs --segment of Slurm 24.05 and 36 nodes; test_domains.py has the job without Slurm",
    "install.md: apt install": "installs into the system; a failed build prints the same line, which a test compares",
}


def lines(root=ROOT):
    """Each command line without its remark. A block that begins with #! is one, and so is a line that is continued."""
    for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        for kind, block in re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(), re.M | re.S):
            found = re.sub(r"\s*\\\n\s*", " ", block).splitlines()
            if kind != "sh":
                found = [line[2:] for line in found if line.startswith("$ ")]
            elif block.startswith("#!"):
                found = [block]
            else:
                found = [re.sub(r"\s+# .*", "", line) for line in found]
            yield from (Line(path.name, text) for text in found if text)


def key_of(line, table):
    """The key of the table that the line has, or None."""
    return next((key for key in table if f"{line.page}: {line.text}".startswith(key)), None)


def listed(line):
    return key_of(line, RUN_BY) or key_of(line, NOT_RUN)


def faults(root=ROOT):
    """What the lint reports."""
    found = list(lines(root))
    used = {key_of(line, table) for line in found for table in (RUN_BY, NOT_RUN)}
    yield from (f"tests/e2e/page_lines.py: no page has the line of {key!r}" for key in [*RUN_BY, *NOT_RUN] if key not in used)
    for key, test in RUN_BY.items():
        name, _, function = test.partition("::")
        if not re.search(rf"^def {function}\(", (root / "tests/e2e" / name).read_text(), re.M):
            yield f"tests/e2e/page_lines.py: {key!r}: there is no test {test}"
    for line in found:
        if not listed(line) and not line.text.startswith(tuple(f"{program} " for program in PROGRAMS)):
            yield (f"{line.page}: no test runs {line.text!r}: let tests/e2e/test_page_lines.py or another test run it, "
                   "or give the reason in tests/e2e/page_lines.py")
