"""Before workers start: nodes that differ, and pairs that can't communicate, are named. Four hosts with different
NICs."""
import contextlib
import re
import subprocess

import pytest
from harness import command, nvml_env
from hosts import hosts_or_skip
from test_operate import ask, until

LEADER = 0


def on(hosts, n, *lines):
    """Runs each command line on host n."""
    for line in lines:
        subprocess.run([*hosts.enter(n), "sh", "-c", line], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def four(**more):
    """host1: eth0, a veth. host2: a macvlan. host3: a bridge that has the address, as on hosts of virtual machines.
    host4: eth0, and interfaces that containers leave."""
    with hosts_or_skip(4, names=True, **more) as hosts:
        for n in range(4):  # each sees the interfaces of its own namespace there
            on(hosts, n, "mount -t sysfs none /sys")
        on(hosts, 1, "ip link add macv0 link eth0 type macvlan mode bridge", "ip addr flush dev eth0 scope global",
           "ip addr add 10.88.0.2/24 dev macv0", "ip -6 addr add fd88::2/64 dev macv0 nodad", "ip link set macv0 up")
        on(hosts, 2, "ip link add br7 type bridge", "ip addr flush dev eth0 scope global", "ip link set eth0 master br7",
           "ip addr add 10.88.0.3/24 dev br7", "ip -6 addr add fd88::3/64 dev br7 nodad", "ip link set br7 up")
        on(hosts, 3, "ip link add docker0 type bridge", "ip addr add 172.17.0.1/16 dev docker0", "ip link set docker0 up",
           "ip link add vethc0 type veth peer name vethc1", "ip addr add 169.254.9.1/24 dev vethc0",
           "ip link set vethc0 up", "ip link set vethc1 up")
        yield hosts


def start(job, hosts, *words, numbers=range(4), worker=("start", "go"), at=None, env=None, nnodes=None, program=None):
    place = at or f"{hosts.address(LEADER)}:29400"
    return [job.agent(f"h{n}", f"--nnodes={nnodes or len(numbers)}", "--nproc-per-node=1", "--rdzv-backend=c10d",
                      f"--rdzv-endpoint={place}", "--rdzv-id=pre", "--rdzv-conf=join_timeout=30", *words, "--no-python",
                      job.worker, *worker, prefix=hosts.enter(n), env=env, program=program) for n in numbers]


def seen(job, name, count):
    """The value of a variable on each rank."""
    events = [e for e in job.events.wait("env", count, name=name)]
    return [e.fields["value"] for e in sorted(events, key=lambda e: int(e.fields["rank"]))]


def finish(job, agents, code=0):
    job.go()
    for agent in agents:
        got, _, err = agent.finish()
        assert got == code, f"{got}\n{err}"


def rows(text):
    """The rows of the table: {(node, what): (has, others)}."""
    found = {}
    for line in text.splitlines():
        m = re.search(r"preflight: (\S.*?)  +(\S.*?)  +(\S.*?)  +(the other.*?)  \[[A-Z-]+\]$", line)
        if m:
            found[m[1], m[2]] = m[3], m[4]
    return found


def test_the_odd_nodes_are_named_in_one_table(job):
    with four() as hosts:
        on(hosts, 2, "ip link set eth0 mtu 1400", "ip link set br7 mtu 1400")
        agents = start(job, hosts)
        job.events.wait("start", 4, world=4)
        agents[LEADER].wait_said(r"MTU-DIFFERS")
        finish(job, agents)
        said = agents[LEADER].said()
        table = rows(said)
        assert table["host3", "mtu"] == ("1400", "the other 3: 1500"), said
        assert table["host2", "interface"] == ("macv0", "the other 2: eth0"), said
        assert table["host3", "interface"] == ("br7", "the other 2: eth0"), said
        assert said.count("MTU-DIFFERS") == 1, said
        assert "docker0" not in said and "veth" not in said, said
        for agent in agents[1:]:
            assert "DIFFERS" not in agent.said()
        for agent in agents:
            assert "RING" not in agent.said(), agent.said()


def part(hosts, a, b):
    """Host a drops what it sends to host b, its answers, too: neither reaches the other, with IPv4 or IPv6."""
    on(hosts, a, f"ip route add blackhole 10.88.0.{b + 1}/32", f"ip -6 route add blackhole fd88::{b + 1}/128")


def test_a_blocked_pair_is_named_with_addresses_and_interfaces_by_both_sides_and_the_leader(job):
    with four() as hosts:
        part(hosts, 1, 2)
        agents = start(job, hosts)
        job.events.wait("start", 4, world=4)
        ends = r"host2 \(10\.88\.0\.2 on macv0\)", r"host3 \(10\.88\.0\.3 on br7\)"
        agents[1].wait_said(rf"RING-BLOCKED: {ends[0]} can't reach {ends[1]}: ")
        agents[2].wait_said(rf"RING-BLOCKED: {ends[1]} can't reach {ends[0]}: no answer within 2 s")
        agents[LEADER].wait_said(rf"node host2 reports: RING-BLOCKED: {ends[0]} can't reach {ends[1]}")
        agents[LEADER].wait_said(rf"node host3 reports: RING-BLOCKED: {ends[1]} can't reach {ends[0]}")
        finish(job, agents)
        assert "RING" not in agents[3].said(), "its neighbours are reached"


def test_a_pair_that_talks_by_ipv6_alone_is_told_how(job):
    with four() as hosts:
        on(hosts, 1, "ip route add blackhole 10.88.0.3/32")
        agents = start(job, hosts, worker=("start", "env=NCCL_SOCKET_FAMILY", "go"))
        job.events.wait("start", 4, world=4)
        agents[1].wait_said(r"RING-OTHER-FAMILY: host2 \(10\.88\.0\.2 on macv0\) can't reach host3 \(10\.88\.0\.3 on br7\)"
                            r".*; it does from fd88::2 to fd88::3 \(NCCL_SOCKET_FAMILY=AF_INET6, if all do\)")
        assert seen(job, "NCCL_SOCKET_FAMILY", 4) == ["AF_INET6"] * 4, "by IPv6 all reach their neighbours"
        finish(job, agents)


def test_a_host_with_ipv6_alone_is_named(job):
    with four() as hosts:
        on(hosts, 3, "ip addr flush dev eth0 scope global", "ip -6 addr add fd88::4/64 dev eth0 nodad")
        for n in range(4):
            on(hosts, n, "echo fd88::1 host1 >> /etc/hosts")
        agents = start(job, hosts, at="host1:29400", worker=("start", "env=NCCL_SOCKET_FAMILY", "go"))
        job.events.wait("start", 4, world=4)
        assert seen(job, "NCCL_SOCKET_FAMILY", 4) == ["AF_INET6"] * 3 + [""], "host4 has no other"
        agents[3].wait_said(r"host4 \(fd88::4 on eth0\) can't reach host3 \(10\.88\.0\.3 on br7\): there is no IPv4 address "
                            r"on this side; it does from fd88::4 to fd88::3")
        agents[LEADER].wait_said(r"node host4 reports: RING-OTHER-FAMILY: host4 \(fd88::4 on eth0\)")
        finish(job, agents)


@contextlib.contextmanager
def with_ib0(*numbers):
    """Three hosts, some of which have an interface of a second network, with a name like InfiniBand's."""
    with hosts_or_skip(3, names=True) as hosts:
        for n in range(3):
            on(hosts, n, "mount -t sysfs none /sys")
        for n in numbers:
            on(hosts, n, "ip link add ib0 link eth0 type macvlan mode bridge", f"ip addr add 10.77.0.{n + 1}/24 dev ib0",
               "ip link set ib0 up")
        yield hosts


def start_with_ib0(job, hosts, *words, **more):
    worker = ("start", "env=NCCL_SOCKET_IFNAME", "env=GLOO_SOCKET_IFNAME", "go")
    agents = start(job, hosts, *words, numbers=range(3), worker=worker, **more)
    job.events.wait("start", 3, world=3)
    return agents


def test_a_faster_network_is_preferred_where_every_node_reaches_its_neighbours_by_it(job):
    with with_ib0(0, 1, 2) as hosts:
        agents = start_with_ib0(job, hosts, "-v")
        assert seen(job, "NCCL_SOCKET_IFNAME", 3) == ["=ib0"] * 3
        assert seen(job, "GLOO_SOCKET_IFNAME", 3) == ["ib0"] * 3
        agents[1].wait_said(r"NCCL_SOCKET_IFNAME==ib0\b.*: every node has an interface of such a fast network")
        finish(job, agents)
        assert all("RING" not in a.said() for a in agents)


def test_a_faster_network_that_one_node_lacks_is_not_taken(job):
    with with_ib0(0, 2) as hosts:
        agents = start_with_ib0(job, hosts)
        assert seen(job, "NCCL_SOCKET_IFNAME", 3) == ["=eth0"] * 3
        finish(job, agents)
        assert all("RING" not in a.said() for a in agents)


def test_a_faster_network_that_is_cut_is_not_taken_and_not_tried_again(job):
    with with_ib0(0, 1, 2) as hosts:
        on(hosts, 1, "ip route add blackhole 10.77.0.3/32")
        agents = start_with_ib0(job, hosts, "-v")
        assert seen(job, "NCCL_SOCKET_IFNAME", 3) == ["=eth0"] * 3
        agents[1].wait_said(r"host2 \(10\.77\.0\.2 on ib0\) can't reach host3 \(10\.77\.0\.3 on ib0\)")
        finish(job, agents)
        assert all("RING" not in a.said() for a in agents)


def test_the_users_word_goes_before_a_faster_network(job):
    with with_ib0(0, 1, 2) as hosts:
        agents = start_with_ib0(job, hosts, env={"NCCL_SOCKET_IFNAME": "=eth0"})
        assert seen(job, "NCCL_SOCKET_IFNAME", 3) == ["=eth0"] * 3
        finish(job, agents)


def test_the_rest_of_the_network_may_differ_without_a_word_about_the_ring(job):
    """No message mentions an interface that is not used between nodes."""
    with four() as hosts:
        on(hosts, 3, "ip link set docker0 mtu 9000")
        agents = start(job, hosts)
        job.events.wait("start", 4, world=4)
        agents[LEADER].wait_said(r"NETIF-DIFFERS")
        finish(job, agents)
        assert all("MTU" not in a.said() and "docker0" not in a.said() for a in agents)


def test_off_looks_at_nothing(job):
    with four() as hosts:
        on(hosts, 2, "ip link set eth0 mtu 1400", "ip link set br7 mtu 1400")
        part(hosts, 1, 2)
        agents = start(job, hosts, "--preflight=off")
        job.events.wait("start", 4, world=4)
        finish(job, agents)
        assert all("preflight" not in a.said() for a in agents)


def test_strict_starts_no_worker_where_nodes_differ(job):
    with four() as hosts:
        on(hosts, 2, "ip link set eth0 mtu 1400", "ip link set br7 mtu 1400")
        agents = start(job, hosts, "--preflight=strict")
        for agent in agents:
            code, _, err = agent.finish()
            assert code == 1, err
            assert re.search(r"preflight \(--preflight=strict\): MTU-DIFFERS: host3 has mtu 1400, the other 3: 1500", err)
        assert job.events.all("start") == []


def test_strict_starts_no_worker_where_neighbours_do_not_talk(job):
    with four() as hosts:
        part(hosts, 1, 2)
        agents = start(job, hosts, "--preflight=strict")
        for agent in agents:
            code, _, err = agent.finish()
            assert code == 1, err
        assert re.search(r"--preflight=strict\): RING-BLOCKED: host[23]", agents[LEADER].said())
        assert job.events.all("start") == []


def test_strict_runs_where_interfaces_have_other_names_alone(job):
    with four() as hosts:
        agents = start(job, hosts, "--preflight=strict")
        job.events.wait("start", 4, world=4)
        finish(job, agents)


def test_strict_names_the_node_that_does_not_say_what_it_is(job):
    with hosts_or_skip(2) as hosts:
        place = f"{hosts.address(LEADER)}:29400"
        agents = [job.agent(f"h{n}", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=two",
                            f"--rdzv-endpoint={place}", f"--preflight={how}", "--no-python", job.worker, "start", "go",
                            prefix=hosts.enter(n)) for n, how in enumerate(["strict", "off"])]
        for agent in agents:
            code, _, err = agent.finish()
            assert code == 1, err
            assert "DIGEST-MISSING: host2 did not send its description within 10 s" in err
        assert job.events.all("start") == []


def test_ranks_change_the_switch_as_seldom_as_they_can(job, tmp_path):
    """Ordered by name, host1 to host4 would alternate between the two switches."""
    switches = tmp_path / "topology.conf"
    switches.write_text("SwitchName=s1 Nodes=host[1,3]\nSwitchName=s2 Nodes=host[2,4]\nSwitchName=top Switches=s[1-2]\n")
    with hosts_or_skip(4, names=True) as hosts:
        agents = start(job, hosts, "--rank-order=topology", f"--topology-file={switches}",
                       env={"SLURM_TOPOLOGY_ADDR": "host9"})  # what Slurm sets without a topology plugin
        starts = job.events.wait("start", 4, world=4)
        by_rank = [e.fields["tag"].split(".")[0] for e in sorted(starts, key=lambda e: int(e.fields["rank"]))]
        assert by_rank == ["h0", "h2", "h1", "h3"], by_rank
        finish(job, agents)


def test_nodes_of_one_nvlink_domain_stand_together(job, tmp_path):
    """The domains are from NVML; ordered by name, the two would alternate."""
    gpu = ('driver 570.1\ncount 1\ngpu 0 name "NVIDIA GB200" cc 10.0 busid 00000008:01:00.0 uuid GPU-g\n'
           "gpu 0 fabric {0}{0}{0}{0} clique 7 state 3 status 0\n")
    with hosts_or_skip(4, names=True) as hosts:
        agents = []
        for n in range(4):
            env = nvml_env(tmp_path, gpu.format(["3f8e2a10", "4c5d4b6e"][n % 2]))
            agents += start(job, hosts, "--rank-order=topology", "--bind=none", env=env, numbers=[n], nnodes=4)
        starts = job.events.wait("start", 4, world=4)
        by_rank = [e.fields["tag"].split(".")[0] for e in sorted(starts, key=lambda e: int(e.fields["rank"]))]
        assert by_rank == ["h0", "h2", "h1", "h3"], by_rank
        finish(job, agents)


def test_a_topology_file_that_makes_no_sense_is_a_usage_error(job, tmp_path):
    bad = tmp_path / "bad"
    bad.write_text("s1: a b\nwhat is this\n")
    wild, large = tmp_path / "wild", tmp_path / "large"
    wild.write_bytes(b"\x1b]0;x\x07\xff\n")
    large.write_bytes(b"#" * (5 << 20))
    for file, why in ((bad, "line 2 is neither"), (tmp_path / "none", "No such file"), (wild, ": ?]0;x??\n"),
                      (tmp_path, "it is not a regular file"), (large, "it holds more than 4 MiB")):
        code, _, err = job.run(f"--topology-file={file}", "--no-python", "true")
        assert code == 2 and why in err, err


def test_an_interface_that_the_user_names_is_the_one_that_is_tried(job):
    """host1 and host2 have a second link with a network of its own; only the user knows that it is better."""
    with hosts_or_skip(2) as hosts:
        for n in range(2):
            on(hosts, n, "mount -t sysfs none /sys", "ip link add fast0 link eth0 type macvlan mode bridge",
               f"ip addr add 10.99.0.{n + 1}/24 dev fast0", "ip link set fast0 up")
        on(hosts, 1, "ip link set fast0 down")
        agents = [job.agent(f"h{n}", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=two",
                            f"--rdzv-endpoint={hosts.address(LEADER)}:29400", "--no-python", job.worker, "start", "go",
                            prefix=hosts.enter(n), env={"NCCL_SOCKET_IFNAME": "=fast0"}) for n in range(2)]
        job.events.wait("start", 2, world=2)
        agents[0].wait_said(r"RING-BLOCKED: host1 \(10\.99\.0\.1 on fast0\) can't reach host2 \(10\.99\.0\.2 on fast0\)")
        finish(job, agents)


def test_strict_starts_no_worker_where_nodes_differ_and_the_leader_is_no_member(job):
    """host1 still leads when it is excluded; host3, which takes its place, has another MTU than host2."""
    with hosts_or_skip(3, names=True) as hosts:
        for n in range(3):
            on(hosts, n, "mount -t sysfs none /sys")
        on(hosts, 2, "ip link set eth0 mtu 1400")
        words = ("--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-endpoint=10.88.0.1:29400", "--rdzv-id=pre",
                 "--rdzv-conf=join_timeout=30", "--preflight=strict", "--no-python", job.worker, "start", "go")
        agents = [job.agent(f"h{n}", *words, prefix=hosts.enter(n)) for n in range(2)]
        job.events.wait("start", 2, world=2)
        agents.append(job.agent("h2", *words, prefix=hosts.enter(2)))
        until(job, lambda s: s["spares"] == 1, "10.88.0.1", prefix=hosts.enter(0))
        code, _, err = ask(job, "exclude", "host1", "10.88.0.1", prefix=hosts.enter(0))
        assert code == 0, err
        for agent in agents[1:]:
            code, _, err = agent.finish()
            assert code == 1 and "MTU-DIFFERS: host2 has mtu 1500, the other one: 1400" in err, err
        agents[0].finish()
        assert len(job.events.all("start")) == 2, "none of the second group"


TWO_GPUS = """
driver 550.54.15
count 2
gpu 0-1 name "NVIDIA H100 80GB HBM3" cc 9.0 pcie 5 16 5 16
gpu 0-1 nvlink 0-17 remote FFFFFFFF:FF:FF.F type switch
gpu 0 busid 00000001:00:00.0 uuid GPU-a
gpu 1 busid 00000002:00:00.0 uuid GPU-b
"""


def start_with_gpus(job, hosts, tmp_path, lines, *words):
    """Two hosts with two GPUs according to NVML; these lines are added for the second host."""
    scripts = [TWO_GPUS, TWO_GPUS + lines]
    return [start(job, hosts, "--bind=none", *words, env=nvml_env(tmp_path, scripts[n]), numbers=[n], nnodes=2)[0]
            for n in range(2)]


TRAY = """
driver 580.95
count 1
gpu 0 name "NVIDIA GB200" cc 10.0 busid 00000008:01:00.0 uuid GPU-g
gpu 0 fabric 3f8e2a104c5d4b6e9f00112233445566 clique 7 state 3 status 0 health 0xaa
"""


@pytest.mark.parametrize("mnnvl", [None, "0"])
def test_a_rack_without_imex_channels_starts_no_worker_unless_nccl_does_without(job, tmp_path, mnnvl):
    devices = tmp_path / "devices"
    devices.write_text("Character devices:\n234 nvidia-caps-imex-channels\n")
    with hosts_or_skip(2, names=True) as hosts:
        env = nvml_env(tmp_path, TRAY) | ({"NCCL_MNNVL_ENABLE": mnnvl} if mnnvl else {})
        program = ["sh", "-c", f'mount --bind {devices} /proc/devices && exec "$@"', "sh", *command()]
        agents = start(job, hosts, "--bind=none", "--preflight=strict", numbers=range(2), env=env, program=program)
        if mnnvl:
            job.events.wait("start", 2, world=2)
            finish(job, agents)
            assert "IMEX" not in "".join(a.said() for a in agents)
            return
        for agent in agents:
            code, _, err = agent.finish()
            assert code == 1 and re.search(r"IMEX-MISSING: host1, host2 has IMEX channel missing, .*NVreg_CreateImexChannel0=1"
                                           r".*NCCL_MNNVL_ENABLE=0", err), err
        assert job.events.all("start") == []


def test_a_lost_gpu_ends_a_strict_job_before_workers(job, tmp_path):
    with hosts_or_skip(2, names=True) as hosts:
        agents = start_with_gpus(job, hosts, tmp_path, "fail nvmlDeviceGetNvLinkCapability 1 15\n", "--preflight=strict")
        for agent in agents:
            code, _, err = agent.finish()
            assert code == 1, err
            assert re.search(r"preflight \(--preflight=strict\): (GPU-LOST: GPU 1 \(0002:00:00\.0\) is lost|GPUS-DIFFER)", err)
        assert job.events.all("start") == []


@pytest.mark.parametrize("lines, said", [
    ("fail nvmlDeviceGetNvLinkCapability 1 15\n", r"GPU-LOST: GPU 1 \(0002:00:00\.0\) is lost"),
    ("hang nvmlDeviceGetNvLinkCapability 1\n", r"NVML-HUNG: NVML did not answer in 2\.0 s"),
])
def test_a_sick_gpu_is_said_and_the_job_runs(job, tmp_path, lines, said):
    """An NVML that hangs causes only a message, too."""
    with hosts_or_skip(2, names=True) as hosts:
        agents = start_with_gpus(job, hosts, tmp_path, lines)
        job.events.wait("start", 2, world=2)
        agents[1].wait_said(said)
        agents[0].wait_said("node host2 reports: " + said)
        finish(job, agents)
