"""The command lines that test_like_torchrun.py runs under torchrun and under muster.

{port} is a free port, {folder} the folder that the launcher runs in. It has probe.py, probe.sh, pkg/mod.py,
pkg/__main__.py, folder/__main__.py, "a b/é.py" (all of them like_probe.py), archive.zip, link.py
(a link to probe.py), the file `plain`, and the program `cpus`,
which leaves only so many CPUs to the command behind it.
"""
import typing


class Line(typing.NamedTuple):
    text: str
    env: dict = {}
    prefix: tuple = ()

    @property
    def name(self):
        return " ".join([*self.prefix, *(f"{k}={v!r}" for k, v in self.env.items()), self.text]).strip() or "(nothing)"


TWO = "--nproc-per-node=2"
LOGS = "--nproc-per-node=2 --log-dir=logs"

PLAIN = """
probe.py
probe.py a b
./probe.py
{folder}/probe.py a
'a b/é.py' ü
folder
probe.py ''
probe.py 'a b' '*' '$HOME' '\\n' '"'
probe.py --nproc-per-node=7 -m --x=1 -r3
probe.py --log-dir logs --tee 3 --rdzv-id=x
probe.py -h
probe.py --help
probe.py -- a
probe.py a -- b
probe.py -- -- a
-- probe.py a
-- probe.py -- a
probe.py --d 3
probe.py --nproc 3
probe.py --no
probe.py -5 -- --zzz
--nproc-per-node=2 probe.py '${local_rank}' '$local_rank' '$$' '${other}' 'x${local_rank}y' '$'
--nproc-per-node=2 probe.py --local-rank='${local_rank}' '${rank}' '$1'
missing.py
plain
pkg

-m pkg.mod a
-m pkg a b
--module pkg.mod -m
-m missing.mod
-m pkg.mod --help
-m ./probe.py
-m folder
--no-python ./probe.py a
--no-python ./probe.sh a 'b c'
--no-python {folder}/probe.py
--no_python ./probe.py
--no-python true
--no-python false
--no-python sh -c 'exit 7'
--no-python ./missing
--no-python missing-program
--no-python ./plain
--no-python ./folder
--no-python python3 -u probe.py a
--no-python --module pkg.mod
-m --no-python ./probe.py
--run-path probe.py a
--run-path --nproc-per-node=2 probe.py
--run-path --no-python ./probe.py
--run-path missing.py
--run_path probe.py
--run-path --module pkg.mod
--no-python --virtual-local-rank --nproc-per-node=2 ./probe.py
--no-python env ./probe.py
link.py a
archive.zip a

--nproc-per-node 2 probe.py
--nproc-per-node=2 probe.py
--nproc_per_node 2 probe.py
--nproc_per_node=2 probe.py
--nproc-per 2 probe.py
--nproc_per=2 probe.py
--nproc-per-node=1 --nproc-per-node=2 probe.py
--nproc-per-node=3 probe.py
--nproc-per-node=CPU probe.py
--nproc-per-node=many probe.py
--nproc-per-node=0 probe.py
--nproc-per-node=-1 probe.py
--nproc-per-node=' 2 ' probe.py
--nproc-per-node=02 probe.py
--nproc-per-node=+2 probe.py
--nproc-per-node=0_2 probe.py
--nproc-per-node=2.0 probe.py
--nproc-per-node= probe.py
--nproc-per-node
--nproc 2 probe.py
--nnodes=1 probe.py
--nnodes 1:1 probe.py
--nnodes=' 1' probe.py
--nnodes='1: 1' probe.py
--nnodes=+1 probe.py
--nnodes=2:1 probe.py
--nnodes=0 probe.py
--nnodes=0:1 probe.py
--nnodes=-1 probe.py
--nnodes=a probe.py
--nnodes=1:2:3 probe.py
--nnodes= probe.py
--nnodes=: probe.py
--nnodes=1: probe.py
--nnodes=1.0 probe.py
--nnodes=2 --nnodes 1 probe.py

-r 3 --log-dir=logs probe.py
-r3 --log-dir logs probe.py
-r=3 --log-dir logs probe.py
-mr3 --log-dir logs pkg.mod
-mr 1 --log-dir logs pkg.mod
-r3 --nproc-per-node=2 --log-dir=logs probe.py
-r1 --nproc-per-node=2 --log-dir=logs probe.py
-r2 --nproc-per-node=2 --log_dir=logs probe.py
-r0 --nproc-per-node=2 --log-dir=logs probe.py
-t3 --nproc-per-node=2 --log-dir=logs probe.py
-t1 --nproc-per-node=2 --log-dir=logs probe.py
-t 2 --nproc-per-node=2 --log-dir=logs probe.py
-t 3 -r 3 --nproc-per-node=2 --log-dir=logs probe.py
-r 1 -t 2 --nproc-per-node=2 --log-dir=logs probe.py
-r 3 -t 1 --nproc-per-node=2 --log-dir=logs probe.py
-r 0:1,1:2 --nproc-per-node=2 --log-dir=logs probe.py
-t 0:3 --nproc-per-node=2 --log-dir=logs probe.py
-r 0:2,1:1 -t 0:1,1:2 --nproc-per-node=2 --log-dir=logs probe.py
-r 1:3,5:3 --nproc-per-node=2 --log-dir=logs probe.py
--redirects=3 --log-dir=logs probe.py
--redirect=3 --te=3 --log-dir=logs probe.py
--tee 3 --log-dir=logs/deep/er probe.py
--log-dir=logs probe.py
--log-dir=/dev/null -r3 probe.py
--log-dir=/dev/null -t3 probe.py
--log-dir=/dev/null probe.py
--log-dir=plain -r3 probe.py
--log-dir=plain/logs -r3 probe.py
--log-dir= -r3 probe.py
-t3 probe.py
-r3 probe.py
-r4 probe.py
-r x probe.py
-r 0:4 probe.py
-r 0:1, probe.py
-r -1 probe.py
-r 10:1 probe.py
-r '0:1, 1:2' probe.py
-r 0:1,0:2 --log-dir=logs probe.py
-r 0: probe.py
-r 0:1:2 probe.py
-r 33 probe.py
-r 03 --log-dir=logs probe.py
-r3 -r0 --log-dir=logs probe.py
-t 1 -t 2 --log-dir=logs probe.py
-mt1 --log-dir logs pkg.mod
-tm probe.py
--redirects= probe.py
-r
--nproc-per-node=2 --local-ranks-filter=0 probe.py
--nproc-per-node=2 --local-ranks-filter=1 -t3 --log-dir=logs probe.py
--nproc-per-node=2 --local-ranks-filter=1 -r1 --log-dir=logs probe.py
--nproc-per-node=2 --local_ranks_filter=0,1 probe.py
--nproc-per-node=2 --local-ranks-filter='0, 1' probe.py
--nproc-per-node=2 --local-ranks-filter=5 probe.py
--nproc-per-node=2 --local-ranks-filter= probe.py
--local-ranks-filter=a probe.py
--local-ranks-filter=0,,1 probe.py
--local-ranks-filter=-1 probe.py
--nproc-per-node=2 -t3 --log-dir=logs --duplicate-stdout-filters=out probe.py
--nproc-per-node=2 -t3 --log-dir=logs --duplicate-stderr-filters='err 1,zzz' probe.py
--nproc-per-node=2 -t3 --log-dir=logs --duplicate_stdout_filters=zzz --duplicate_stderr_filters=err probe.py
--nproc-per-node=2 -r3 --log-dir=logs --duplicate-stdout-filters=out probe.py
--nproc-per-node=2 --log-dir=logs --duplicate-stdout-filters=out probe.py
-t1 --log-dir=logs --duplicate-stdout-filters=,, probe.py
-t1 --log-dir=logs --duplicate-stdout-filters= probe.py
-t1 --log-dir=logs --duplicate-stdout-filters='a,,b,out' probe.py
-t1 --log-dir=logs --duplicate-stdout-filters=' out' probe.py
--nproc-per-node=2 -t3 --log-dir=logs --duplicate-stdout-filters=probe --local-ranks-filter=1 probe.py
--log-dir=/dev/null -t1 --duplicate-stdout-filters=out probe.py
--role trainer -t1 --log-dir=logs probe.py
--role 'a b' -t1 --log-dir=logs probe.py
--role= probe.py
--logs-specs=default -r3 --log-dir=logs probe.py
--logs_specs default -t3 --log-dir=logs --nproc-per-node=2 probe.py
--logs-specs=missing probe.py

--virtual-local-rank --nproc-per-node=2 probe.py
--virtual_local_rank probe.py
--virtual-local-rank --nproc-per-node=2 -t3 --log-dir=logs probe.py '${local_rank}'
--virtual-local-rank --nproc-per-node=2 -r1 --local-ranks-filter=1 --log-dir=logs probe.py
--standalone probe.py
--standalone --nproc-per-node=2 probe.py
--standalone --rdzv-backend=static --rdzv-endpoint=h:1 --rdzv-id=x probe.py
--standalone --rdzv-backend=zzz probe.py
--standalone --master-port={port} probe.py
--standalone=1 probe.py
-m=1 probe.py
--master-port={port} probe.py
--master_port {port} --nproc-per-node=2 probe.py
--master-addr=127.0.0.1 --master-port={port} probe.py
--master_addr=localhost --master_port={port} probe.py
--master-addr=127.0.0.1 probe.py
--master-addr=127.0.0.2 --master-port={port} probe.py
--nnodes=1 --node-rank=0 --master-addr=127.0.0.1 --master-port={port} probe.py
--node-rank=0 probe.py
--node-rank 0 --nnodes 1:1 --master-port {port} probe.py
--node_rank 0 probe.py
--node-rank=x probe.py
--node-rank=1 probe.py
--node-rank=-1 probe.py
--node-rank= probe.py
--master-port=0 probe.py
--master-port=70000 probe.py
--master-port=-1 probe.py
--master-addr= probe.py
--local-addr= probe.py
--master-port=x probe.py
--master-port=' {port} ' probe.py
--rdzv-backend=static --rdzv-endpoint=127.0.0.1:{port} probe.py
--rdzv-endpoint=127.0.0.1:{port} probe.py
--rdzv-endpoint=localhost:{port} --nproc-per-node=2 probe.py
--rdzv-endpoint=127.0.0.1 probe.py
--rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:{port} probe.py
--rdzv-backend=c10d --rdzv-endpoint=localhost:{port} --nproc-per-node=2 probe.py
--rdzv_backend c10d --rdzv_endpoint localhost:{port} --rdzv_id job7 probe.py
--rdzv-backend=c10d --rdzv-endpoint=localhost:0 probe.py
--rdzv-backend=c10d --rdzv-endpoint=[::1]:{port} probe.py
--rdzv-backend=c10d probe.py
--rdzv-backend=c10d --rdzv-endpoint=localhost probe.py
--rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:{port} --rdzv-id= probe.py
--rdzv-backend=C10D --rdzv-endpoint=127.0.0.1:{port} probe.py
--rdzv-backend= probe.py
--rdzv-backend=static probe.py
--rdzv-endpoint= probe.py
--rdzv-backend=c10d --rdzv-endpoint=h:65536 probe.py
--rdzv-backend=c10d --rdzv-endpoint=h: probe.py
--rdzv-backend=c10d --rdzv-endpoint='h h:1' probe.py
--rdzv-backend=c10d --rdzv-endpoint=:1 probe.py
--rdzv-backend=c10d --rdzv-endpoint=h:x probe.py
--rdzv-backend=zzz --rdzv-endpoint=127.0.0.1:{port} probe.py
--rdzv-id=job7 probe.py
--rdzv-id=job7 -r3 --log-dir=logs probe.py
--rdzv-id= probe.py
--rdzv-id='a b' --master-port={port} probe.py
--rdzv-id=none --master-port={port} probe.py
--rdzv-conf=timeout=5 probe.py
--rdzv-conf=join_timeout=5,last_call_timeout=1 probe.py
--rdzv-conf=' join_timeout=5 , last_call_timeout=1 ' probe.py
--rdzv-conf=unknown=1 probe.py
--rdzv-conf=a= probe.py
--rdzv-conf==b probe.py
--rdzv-conf=a probe.py
--rdzv-conf=a=1,,b=2 probe.py
--rdzv-conf=a=b=c probe.py
--rdzv-conf= probe.py
--rdzv-conf=join_timeout=0 probe.py
--rdzv-conf=join_timeout=x probe.py
--rdzv-conf=join_timeout=1.5 probe.py
--rdzv-conf=read_timeout=0 probe.py
--rdzv-conf=read_timeout=-1 probe.py
--rdzv-conf=is_host=1 probe.py
--rdzv-conf=is_host=true probe.py
--rdzv-conf=is_host=maybe probe.py
--rdzv-conf=store_type=tcp probe.py
--rdzv-conf=store_type=zzz probe.py
--rdzv-conf=use_libuv=0 probe.py
--rdzv-conf=use_libuv=1 probe.py
--rdzv_conf join_timeout=5 probe.py
--rdzv-conf=a=1 --rdzv-conf=join_timeout=5 probe.py
--rdzv-conf=join_timeout=x --rdzv-conf=join_timeout=5 probe.py
--rdzv-conf='"join_timeout=5,last_call_timeout=1,timeout=5"' probe.py
--rdzv-conf=rank=0 --master-port={port} probe.py
--rdzv-conf=timeout=x --master-port={port} probe.py
--rdzv-conf=timeout=0 probe.py
--rdzv-conf=last_call_timeout=0 probe.py
--rdzv-conf=close_timeout=-1 probe.py
--rdzv-conf=heartbeat_timeout=x probe.py
--rdzv-conf=keep_alive_interval=x probe.py
--rdzv-conf=read_timeout=x probe.py
--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=2,heartbeat_timeout=3,close_timeout=4 probe.py
--rdzv-backend=c10d --rdzv-endpoint={folder}/store --rdzv-conf=store_type=file probe.py
--rdzv-backend=c10d --rdzv-endpoint=localhost:{port} --nnodes=1:2 --rdzv-conf=last_call_timeout=1 probe.py

--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=localhost:{port} --rdzv-conf=join_timeout=2 probe.py
--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:{port} --rdzv-conf=is_host=0,read_timeout=2,join_timeout=2 probe.py
--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=no.such.host.invalid:{port} --rdzv-conf=read_timeout=2,join_timeout=2 probe.py
--nnodes=2 --master-addr=127.0.0.1 --master-port={port} --rdzv-conf=timeout=2 probe.py
--nnodes=2 --node-rank=1 --master-addr=127.0.0.1 --master-port={port} --rdzv-conf=timeout=2 probe.py
--nnodes=2 --node-rank=2 --master-addr=127.0.0.1 --master-port={port} --rdzv-conf=timeout=2 probe.py
--nnodes=2:3 --master-addr=127.0.0.1 --master-port={port} --rdzv-conf=timeout=2 probe.py

--max-restarts=3 probe.py
--max_restarts 3 probe.py
--max-restarts=0 probe.py
--max-restarts=-1 probe.py
--max-restarts=x probe.py
--max-restarts=1.5 probe.py
--max-restarts=' 3' probe.py
--max-restarts= probe.py
--max-restarts=1_0 probe.py
--monitor-interval=0.5 probe.py
--monitor_interval 1 probe.py
--monitor-interval=1e-1 probe.py
--monitor-interval=.1 probe.py
--monitor-interval=0 probe.py
--monitor-interval=-1 probe.py
--monitor-interval=x probe.py
--monitor-interval=' 0.1 ' probe.py
--monitor-interval=1_0e-1 probe.py
--monitor-interval=+.2 probe.py
--monitor-interval= probe.py
--monitor-interval=nan probe.py
--start-method=spawn probe.py
--start-method=fork probe.py
--start_method=forkserver probe.py
--start-method=thread probe.py
--start-method=FORK probe.py
--start-method= probe.py
--event-log-handler=null probe.py
--event-log-handler=console probe.py
--event_log_handler=zzz probe.py
--signals-to-handle=SIGTERM probe.py
--signals-to-handle=SIGTERM,SIGUSR1,SIGUSR2 probe.py
--signals_to_handle=SIGNOPE probe.py
--signals-to-handle= probe.py
--signals-to-handle='SIGTERM, SIGINT' probe.py
--signals-to-handle=TERM probe.py
--signals-to-handle=15 probe.py
--signals-to-handle=sigterm probe.py
--signals-to-handle=SIGKILL probe.py
--signals-to-handle=,SIGTERM, probe.py
--signals-to-handle=SIGTERM,SIGTERM probe.py
--shutdown-timeout=7 probe.py
--shutdown_timeout 0 probe.py
--shutdown-timeout=-1 probe.py
--shutdown-timeout=x probe.py
--shutdown-timeout=1.5 probe.py
--shutdown-timeout=' 7' probe.py
--shutdown-timeout= probe.py
--local-addr=127.0.0.1 probe.py
--local_addr 127.0.0.1 --rdzv-backend=c10d --rdzv-endpoint=localhost:{port} probe.py
--local-addr=localhost probe.py
--numa-binding=zzz probe.py

-h
--help
--help probe.py
--version
--zzz probe.py
-x probe.py
-rx
-
--standalone
--log-dir -a probe.py
--log-dir -- probe.py
-- -m pkg.mod
---
--
--nproc-per-node -1 probe.py
--role -x probe.py
--role=-x probe.py
-m
--log-line-prefix-template='${rank} ' -t1 --log-dir=logs probe.py
--print-completion=bash
"""

C10D = "--rdzv-backend=c10d --rdzv-endpoint=localhost:{port}"
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
LINES = [Line(""), *(Line(text) for text in PLAIN.splitlines() if text)]
LINES += [Line(text, env) for text, env in [
    ("probe.py", {"PET_NPROC_PER_NODE": "2"}),
    ("probe.py", {"PET_NPROC_PER_NODE": ""}),
    ("probe.py", {"PET_NPROC_PER_NODE": " 2 "}),
    ("--nproc-per-node=1 probe.py", {"PET_NPROC_PER_NODE": "2"}),
    ("probe.py", {"PET_NNODES": "1:1", "PET_RDZV_ID": "j", "PET_ROLE": "r", "PET_TEE": "3", "PET_LOG_DIR": "logs"}),
    ("probe.py", {"PET_NNODES": " 1 "}),
    ("probe.py", {"PET_NNODES": ""}),
    ("probe.py", {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "localhost:{port}", "PET_RDZV_ID": "j"}),
    ("probe.py", {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "localhost:{port}", "PET_RDZV_CONF": "read_timeout=9"}),
    ("probe.py", {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "{port}", "PET_NODE_RANK": "0"}),
    ("probe.py", {"PET_MASTER_PORT": ""}),
    ("probe.py", {"PET_NODE_RANK": " 0 "}),
    ("probe.py", {"PET_MAX_RESTARTS": "2"}),
    ("probe.py", {"PET_MAX_RESTARTS": " 2 "}),
    ("probe.py", {"PET_MAX_RESTARTS": "abc"}),
    ("probe.py", {"PET_MAX_RESTARTS": ""}),
    ("--max-restarts=1 probe.py", {"PET_MAX_RESTARTS": "abc"}),
    ("probe.py", {"PET_MONITOR_INTERVAL": "0.2"}),
    ("probe.py", {"PET_MONITOR_INTERVAL": " 0.2 "}),
    ("probe.py", {"PET_START_METHOD": "zzz"}),
    ("probe.py", {"PET_START_METHOD": "fork"}),
    ("probe.py", {"PET_EVENT_LOG_HANDLER": "zzz"}),
    ("probe.py", {"PET_STANDALONE": "1"}),
    ("probe.py", {"PET_STANDALONE": "0"}),
    ("probe.py", {"PET_STANDALONE": "true"}),
    ("probe.py", {"PET_STANDALONE": ""}),
    ("probe.py", {"PET_STANDALONE": " 1 "}),
    ("probe.py", {"PET_STANDALONE": "-1"}),
    ("pkg.mod", {"PET_MODULE": "1"}),
    ("probe.py", {"PET_MODULE": "0"}),
    ("./probe.py", {"PET_NO_PYTHON": "1"}),
    ("./probe.py", {"PET_NO_PYTHON": "1", "PET_MODULE": "1"}),
    ("probe.py", {"PET_RUN_PATH": "0"}),
    ("probe.py", {"PET_VIRTUAL_LOCAL_RANK": "1", "PET_NPROC_PER_NODE": "2"}),
    ("probe.py", {"PET_REDIRECTS": "3", "PET_LOG_DIR": "logs"}),
    ("probe.py", {"PET_REDIRECTS": "0:3", "PET_LOG_DIR": "logs", "PET_NPROC_PER_NODE": "2"}),
    ("probe.py", {"PET_TEE": "9"}),
    ("probe.py", {"PET_LOCAL_RANKS_FILTER": "1", "PET_NPROC_PER_NODE": "2"}),
    ("probe.py", {"PET_SIGNALS_TO_HANDLE": "SIGTERM"}),
    ("probe.py", {"PET_SIGNALS_TO_HANDLE": ""}),
    ("probe.py", {"PET_SHUTDOWN_TIMEOUT": "5"}),
    ("probe.py", {"PET_SHUTDOWN_TIMEOUT": "-1"}),
    ("probe.py", {"PET_SHUTDOWN_TIMEOUT": " 5 "}),
    ("probe.py", {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "5"}),
    ("probe.py", {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "x"}),
    ("probe.py", {"PET_DUPLICATE_STDOUT_FILTERS": "out", "PET_TEE": "1", "PET_LOG_DIR": "logs"}),
    ("probe.py", {"PET_LOCAL_ADDR": "127.0.0.1"}),
    ("probe.py", {"PET_LOG_DIR": ""}),
    ("probe.py", {"PET_ROLE": ""}),
    ("probe.py", {"PET_UNKNOWN": "1"}),
    ("probe.py", {"PET_LOGS_SPECS": "missing"}),
    ("probe.py", {"PET_NUMA_BINDING": "node"}),
    ("probe.py", {"PET_RUN_PATH": "1"}),
    ("probe.py", {"PET_RUN_PATH": "x"}),
    ("probe.py", {"PET_NO_PYTHON": "x"}),
    ("probe.py", {"PET_MODULE": ""}),
    ("probe.py", {"PET_VIRTUAL_LOCAL_RANK": "0"}),
    ("probe.py", {"PET_VIRTUAL_LOCAL_RANK": "yes"}),
    ("probe.py", {"PET_RDZV_BACKEND": "zzz"}),
    ("probe.py", {"PET_RDZV_ENDPOINT": ""}),
    ("probe.py", {"PET_RDZV_CONF": "join_timeout=0"}),
    ("probe.py", {"PET_RDZV_CONF": "a"}),
    ("probe.py", {"PET_MASTER_PORT": "x"}),
    ("probe.py", {"PET_MASTER_ADDR": ""}),
    ("probe.py", {"PET_NODE_RANK": ""}),
    ("probe.py", {"PET_NODE_RANK": "x"}),
    ("probe.py", {"PET_MONITOR_INTERVAL": "x"}),
    ("probe.py", {"PET_MONITOR_INTERVAL": ""}),
    ("probe.py", {"PET_MONITOR_INTERVAL": "0"}),
    ("probe.py", {"PET_SHUTDOWN_TIMEOUT": "x"}),
    ("probe.py", {"PET_SHUTDOWN_TIMEOUT": ""}),
    ("--shutdown-timeout=3 probe.py", {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "x"}),
    ("probe.py", {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": ""}),
    ("probe.py", {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "-1"}),
    ("probe.py", {"PET_REDIRECTS": ""}),
    ("probe.py", {"PET_TEE": ""}),
    ("probe.py", {"PET_LOCAL_RANKS_FILTER": ""}),
    ("probe.py", {"PET_LOCAL_RANKS_FILTER": "x"}),
    ("probe.py", {"PET_LOCAL_ADDR": ""}),
    ("probe.py", {"PET_DUPLICATE_STDERR_FILTERS": "err", "PET_TEE": "3", "PET_LOG_DIR": "logs"}),
    ("probe.py", {"PET_LOG_LINE_PREFIX_TEMPLATE": "${rank} ", "PET_TEE": "1", "PET_LOG_DIR": "logs"}),
    ("probe.py", {"PET_TRAINING_SCRIPT": "x", "PET_TRAINING_SCRIPT_ARGS": "y"}),
    ("--nproc-per-node=gpu probe.py", NO_GPU),
    ("--nproc-per-node=xpu probe.py", NO_GPU),
    ("--numa-binding=node probe.py", NO_GPU),
    ("--numa_binding exclusive probe.py", NO_GPU),
    ("--nproc-per-node=2 -t3 --log-dir=logs probe.py",
     {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "${role_name}-${local_rank}-${rank}: "}),
    ("-t1 --log-dir=logs probe.py", {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": ""}),
    ("-t1 --log-dir=logs probe.py", {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[${nothing}] "}),
    ("--nproc-per-node=2 probe.py", {"OMP_NUM_THREADS": "4"}),
    ("probe.py", {"OMP_NUM_THREADS": "4"}),
    ("--nproc-per-node=2 probe.py", {"OMP_NUM_THREADS": ""}),
    ("probe.py", {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    ("probe.py", {"RANK": "7", "WORLD_SIZE": "9", "LOCAL_RANK": "3", "MASTER_ADDR": "h", "MASTER_PORT": "1"}),
    ("probe.py", {"TORCHELASTIC_RUN_ID": "old", "TORCHELASTIC_RESTART_COUNT": "5", "TORCHELASTIC_ERROR_FILE": "{folder}/e.json"}),
    ("probe.py", {"TORCHELASTIC_USE_AGENT_STORE": "False"}),
    ("probe.py", {"TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM"}),
    ("probe.py", {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}),
    ("probe.py", {"TORCHELASTIC_ENABLE_FILE_TIMER": "0"}),
    ("probe.py", {"TORCHELASTIC_TIMER_FILE": "{folder}/timer"}),
    ("probe.py", {"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "60"}),
    ("probe.py", {"TORCHELASTIC_HEALTH_CHECK_PORT": "{port}"}),
    ("probe.py", {"TORCH_ELASTIC_WORKER_IDENTICAL": "1"}),
    ("probe.py", {"TORCHELASTIC_MAX_RESTARTS": "9", "GROUP_RANK": "4", "ROLE_NAME": "x", "LOCAL_WORLD_SIZE": "8"}),
    ("probe.py", {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "TORCH_CPP_LOG_LEVEL": "INFO"}),
    ("probe.py", {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}),
    (f"{C10D} --nproc-per-node=2 probe.py", {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}),
    ("--master-port={port} probe.py", {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}),
    ("probe.py", {"USE_LIBUV": "0"}),
    ("probe.py", {"LOGLEVEL": "INFO"}),
    ("probe.py", {"LOGLEVEL": "zzz"}),
    ("probe.py", {"LOGLEVEL": "info"}),
    ("probe.py", {"LOGLEVEL": ""}),
    ("probe.py", {"LOGLEVEL": "10"}),
    ("probe.py", {"PYTHON_EXEC": "/usr/bin/python3"}),
    ("probe.py", {"PYTHON_EXEC": "/missing/python"}),
    ("probe.py", {"PYTHON_EXEC": "python3"}),
    ("probe.py", {"PYTHON_EXEC": ""}),
    ("--no-python ./probe.py", {"PYTHON_EXEC": "/missing/python"}),
    ("probe.py", {"PYTHONPATH": "{folder}/folder"}),
    ("probe.py", {"PYTHONUNBUFFERED": ""}),
    ("probe.py", {"ODD": "a\nb", "EMPTY": "", "É": "ü", "a.b": "c d"}),
    ("probe.py", {"NCCL_DEBUG": "INFO", "CUDA_LAUNCH_BLOCKING": "1"}),
    ("--virtual-local-rank --nproc-per-node=2 probe.py", {"CUDA_VISIBLE_DEVICES": "3,5"}),
    ("--virtual-local-rank --nproc-per-node=2 probe.py", {"CUDA_VISIBLE_DEVICES": "3"}),
    ("--nproc-per-node=2 probe.py", {"CUDA_VISIBLE_DEVICES": "0"}),
    ("--nproc-per-node=2 probe.py", {"CUDA_VISIBLE_DEVICES": ""}),
    ("--virtual-local-rank --nproc-per-node=2 probe.py", {"CUDA_VISIBLE_DEVICES": ""}),
    ("--virtual-local-rank --nproc-per-node=2 probe.py", {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2,GPU-3"}),
    ("--virtual-local-rank --nproc-per-node=2 probe.py", {"CUDA_VISIBLE_DEVICES": "1, 2"}),
]]
LINES += [Line(text, {}, prefix) for text, prefix in [
    ("--nproc-per-node=2 probe.py", ("nice", "-n", "5")),
    ("probe.py", ("nohup",)),
    ("probe.py", ("sh", "-c", 'umask 077; exec "$@"', "sh")),
    ("probe.py", ("sh", "-c", 'trap "" INT QUIT; exec "$@"', "sh")),
    ("probe.py", ("sh", "-c", 'exec "$@" < plain', "sh")),
    ("probe.py", ("sh", "-c", 'exec "$@" <&-', "sh")),
    ("probe.py", ("sh", "-c", 'cd folder && exec "$@"', "sh")),
    ("__main__.py", ("sh", "-c", 'cd folder && exec "$@"', "sh")),
    ("--nproc-per-node=cpu probe.py", ("./cpus", "1")),
    ("--nproc-per-node=cpu probe.py", ("./cpus", "2")),
]]
LINES += [Line("--nproc-per-node=auto probe.py", NO_GPU, ("./cpus", "2")),
          Line("probe.py", {"PET_NPROC_PER_NODE": "cpu"}, ("./cpus", "2"))]
assert len({line.name for line in LINES}) == len(LINES)
