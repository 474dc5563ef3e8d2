#!/usr/bin/python3
"""Each source file has a test.

    mirror_check.py SOURCE_ROOT

src/FOLDER/NAME.c is tested by tests/unit/FOLDER/NAME_test.c, or a row of COVERED says which other test does: the first row
whose pattern matches. A new file needs one of the two.
"""
import fnmatch
import pathlib
import sys

# Source files without a test of their name (below src/, without .c) -> what tests them, below tests/.
COVERED = [
    ("base/idmap", "unit/io/process/helper_test.c"),
    ("io/clock", "unit/io/loop_test.c"),
    ("io/net/netlink", "unit/topology/discover/net/netlink_test.c unit/io/peer/peer_word_test.c"),
    ("io/net/tls*", "unit/io/net/tls_psk_test.c unit/io/net/stream_tls_test.c e2e/test_etcd.py"),
    ("io/process/reaper", "unit/io/process/child_test.c"),
    ("topology/model/topology", "unit/topology/json/topology_json_test.c"),
    ("topology/nccl/nccl_graph_*", "unit/topology/nccl/nccl_graph_test.c"),
    ("topology/nccl/nccl_xml_*", "unit/topology/nccl/nccl_xml_test.c"),
    ("topology/render/render_*", "unit/topology/render/render_test.c"),
    ("topology/discover/*_io", "unit/topology/discover/discovery_test.c"),
    ("topology/discover/hwloc/hwloc_io", "unit/topology/discover/hwloc/hwloc_load_test.c"
                                         " unit/topology/discover/hwloc/hwloc_cpus_test.c"),
    ("topology/discover/net/*", "unit/topology/discover/net/netlink_test.c unit/topology/discover/net/route_test.c"),
    ("topology/discover/nvml/*", "unit/topology/discover/nvml/nvml_test.c"),
    ("topology/discover/sysfs/*", "unit/topology/discover/sysfs/sysfs_test.c"),
    ("nccl_env/rules/*", "unit/nccl_env/rules/resolve_test.c unit/nccl_env/golden_test.c"),
    ("rendezvous/store/store_*_io", "unit/rendezvous/store/store_io_test.c"),
    ("rendezvous/store/*", "unit/rendezvous/store/store_test.c"),
    ("rendezvous/auth/*", "unit/rendezvous/auth/auth_io_test.c unit/rendezvous/auth/keyring_io_test.c"),
    ("rendezvous/protocol/conn_*", "unit/rendezvous/protocol/conn_io_test.c"),
    ("rendezvous/protocol/*", "unit/rendezvous/protocol/wire_test.c"),
    ("rendezvous/arbiter/dir/*", "unit/rendezvous/arbiter/dir/arbiter_dir_child_test.c"),
    ("rendezvous/arbiter/*", "unit/rendezvous/arbiter/etcd/arbiter_etcd_test.c"),
    ("rendezvous/leader/*", "unit/rendezvous/leader/group_test.c unit/rendezvous/leader/group_leadership_test.c"
                            " sim/group_sim.c"),
    ("rendezvous/member/*", "unit/rendezvous/member/member_test.c unit/rendezvous/member/election_test.c"),
    ("rendezvous/operate/*", "unit/rendezvous/operate/operator_io_test.c"),
    ("rendezvous/server/*", "unit/rendezvous/server/server_io_test.c unit/rendezvous/server/node_listener_io_test.c"),
    ("rendezvous/client/*", "unit/rendezvous/client e2e/test_endpoint_ports.py sim"),
    ("watchdog/*", "unit/watchdog e2e/test_hang.py e2e/test_hang_evidence.py"),
    ("launcher/agent/*", "e2e/test_run.py e2e/test_elastic.py e2e/test_leader_loss.py"),
    ("launcher/contain/*", "unit/launcher/contain e2e/test_containers.py"),
    ("launcher/output/*", "unit/launcher/output e2e/test_output.py"),
    ("launcher/srun/*", "unit/launcher/srun e2e/test_slurm.py"),
    ("launcher/ssh*", "unit/launcher e2e/test_ssh.py e2e/test_ssh_head.py"),
    ("launcher/warm/*", "unit/launcher/warm e2e/test_warm.py"),
    ("launcher/*", "unit/launcher e2e/test_run.py"),
    ("cli/options/*", "unit/cli/options/job_options_test.c unit/cli/options/options_fill_test.c"),
    ("cli/help/help", "e2e/test_cli.py"),
    ("cli/jobs/columns", "unit/cli/jobs/status_text_test.c"),
    ("cli/jobs/*", "e2e/test_operate.py"),
    ("cli/logs/*", "unit/cli/logs/logs_io_test.c e2e/test_logs.py"),
    ("cli/profile/*", "unit/cli/profile/profile_pictures_test.c e2e/test_profile_pictures.py"),
    ("cli/commands/cmd_check", "unit/cli/commands/commands_test.c e2e/test_check.py"),
    ("cli/commands/cmd_env", "unit/cli/commands/commands_test.c e2e/test_env.py"),
    ("cli/commands/cmd_keygen", "unit/cli/commands/commands_test.c e2e/test_keygen.py"),
    ("cli/commands/cmd_logs", "unit/cli/commands/commands_test.c e2e/test_logs.py"),
    ("cli/commands/cmd_notify", "unit/cli/commands/commands_test.c e2e/test_notify.py"),
    ("cli/commands/cmd_stacks", "unit/cli/commands/commands_test.c e2e/test_stacks.py"),
    ("cli/commands/cmd_store", "unit/cli/commands/commands_test.c e2e/test_store.py"),
    ("cli/commands/*topo*", "unit/cli/commands/commands_test.c e2e/test_topo.py"),
    ("cli/commands/cmd_run", "e2e/test_run.py e2e/test_ssh_node.py"),
    ("cli/commands/*", "unit/cli/commands/commands_test.c e2e/test_cli.py e2e/test_operate.py"),
    ("cli/main", "unit/cli/commands/commands_test.c e2e/test_cli.py"),
]


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    tests = root / "tests"
    names = [p.relative_to(root / "src").with_suffix("").as_posix() for p in sorted((root / "src").rglob("*.c"))]
    if len(names) < 100:
        sys.exit(f"{root}: only {len(names)} source files found; is this the source tree?")
    faults = [f"mirror_check.py: {pattern} names tests/{test}, which does not exist"
              for pattern, where in COVERED for test in where.split() if not (tests / test).exists()]
    own = [n for n in names if (tests / "unit" / f"{n}_test.c").exists()]
    for name in sorted(set(names) - set(own)):
        if not any(fnmatch.fnmatch(name, pattern) for pattern, _ in COVERED):
            faults.append(f"src/{name}.c has no tests/unit/{name}_test.c and no row in tests/lint/mirror_check.py")
    print("\n".join(faults) or f"{len(names)} files: {len(own)} have a test of their name, the others a row")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
