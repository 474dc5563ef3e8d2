#include "base/json/json.h"

#include "cli/options/job_options.h"
#include "job_reading.h"
#include "rig/unit.h"

/* A task of a step of Slurm on two nodes. */
#define STEP_OF_2                                                                                                 \
    "SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 SLURM_NNODES=2 SLURM_NTASKS=2 " \
    "SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_NODEID=1 SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_STEP_NODELIST=n[1-2] "

static uint32_t gpus;
static int gpus_error;

static int count_gpus(uint32_t *ret, struct err *err) {
    if (gpus_error != 0)
        return err_set(err, gpus_error, "NVML did not answer");
    *ret = gpus;
    return 0;
}

static char *fixed_cwd(void) { return xstrdup("/home/u"); }

static int read_file(enum job_file what, const char *path, char **ret, size_t *ret_len, struct err *err) {
    static const struct {
        enum job_file what;
        const char *path, *text;
    } files[] = {
        {JOB_FILE_SECRET, "/secret", "of the file"},
        {JOB_FILE_ENV, "/env", "# of the cluster\n\nNCCL_IB_HCA==mlx5_0,mlx5_1\nA=1 2\n  \nB="},
        {JOB_FILE_ENV, "/crlf", "A=1\n# of Windows\r\n\r\nB=2\r\nC=3\r"},
        {JOB_FILE_ENV, "/bad", "A=1\nexport B=2\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        if (files[i].what == what && strcmp(files[i].path, path) == 0) {
            *ret = xstrdup(files[i].text);
            *ret_len = strlen(*ret);
            return 0;
        }
    return err_set(err, -ENOENT, "can't read %s: No such file or directory", path);
}

static bool gpus_are_here;
static bool has_gpus(void) { return gpus_are_here; }

static const struct job_probes probes = {.count_cpus = reading_cpus,
                                         .count_gpus = count_gpus,
                                         .has_gpus = has_gpus,
                                         .stamp = reading_stamp,
                                         .cwd = fixed_cwd,
                                         .read_file = read_file,
                                         .serve_node = reading_no_more_cpus};

/* One command line; words of the environment come before "|". */
static struct reading read_line(const char *line) {
    char env[512] = "";
    const char *bar = strstr(line, " | ");
    (void)snprintf(env, sizeof env, "%.*s", bar != NULL ? (int)(bar - line) : 0, line);
    return read_job(env, bar != NULL ? bar + 3 : line, &probes);
}

Test(job_options, a_bare_run_is_alone_and_free) {
    READ("train.py --lr 3");
    assert_shown("a bare run", &g.spec,
                 "backend=c10d standalone=true endpoint_host=null endpoint_port=0 run_id=train-1126-1138-7c3f1a "
                 "run_id_given=false min_nodes=1 max_nodes=1 nproc_per_node=1 max_restarts=0 node_rank=-1 is_host=-1 "
                 "role=default entry=python script=train.py args=['--lr','3'] shutdown_timeout=30 "
                 "heartbeat_interval=1 lease=5 join_timeout=600 last_call_timeout=30 "
                 "signals_to_handle=['SIGTERM','SIGINT','SIGHUP','SIGQUIT'] log_dir=null local_ranks_filter=null "
                 "node_unit=1 spares=null grow=boundary rank_order=host max_node_losses=null exclude_after=3 "
                 "restart_backoff=0 crash_loop=5 hold=2 arbiter_lease=60 regroup_timeout=0 topology= event_log=null "
                 "hang_action=auto hang_timeout=1800 hang_still=180 hang_report=30 evidence_timeout=5 env=[] "
                 "nccl_env=full nccl_comm_id=false nccl_debug=false log_mode=0600 output_spool=1073741824");
    cr_assert_null(g.spec.block);
    cr_assert_eq(g.warnings.len, 0);
}

static const struct {
    const char *line, *shown;
} meanings[] = {
    /* where nodes meet */
    {"--rdzv-backend=static x", "standalone=true backend=c10d endpoint_host=null endpoint_port=0 max_nodes=1"},
    {"--rdzv-backend=c10d x", "standalone=true backend=c10d endpoint_host=null endpoint_port=0"},
    {"--master-addr=h x", "standalone=true backend=c10d endpoint_host=null endpoint_port=0"},
    {"--master-port=1234 x", "standalone=false backend=static endpoint_host=127.0.0.1 endpoint_port=1234"},
    {"--master-port=0 x", "standalone=false backend=static endpoint_host=127.0.0.1 endpoint_port=0"},
    {"--nnodes=2 --master-addr=h x", "standalone=false backend=static endpoint_host=h endpoint_port=29500"},
    {"--nnodes=2 --master-addr=[::1] x", "standalone=false backend=static endpoint_host=::1 endpoint_port=29500"},
    {"--nnodes=2 x", "standalone=false backend=static endpoint_host=127.0.0.1 endpoint_port=29500"},
    {"--nnodes=2 --rdzv-endpoint=h:5 x", "standalone=false backend=static endpoint_host=h endpoint_port=5"},
    {"--rdzv-endpoint=h:5 x", "standalone=false backend=static endpoint_host=h endpoint_port=5"},
    {"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=h x",
     "standalone=false backend=c10d endpoint_host=h endpoint_port=29400"},
    {"--rdzv-backend=c10d --rdzv-endpoint=h:0 x", "standalone=false backend=c10d endpoint_host=h endpoint_port=0"},
    {"--nnodes=2 --rdzv-backend=c10d x", "standalone=false backend=c10d endpoint_host=localhost endpoint_port=29400"},
    {"--standalone --rdzv-endpoint=h:5 --rdzv-backend=zzz x", "standalone=true backend=c10d endpoint_host=null"},
    {"--standalone --nnodes=1:4 x", "standalone=true backend=c10d endpoint_host=null max_nodes=1"},
    {"PET_STANDALONE=1 | --rdzv-endpoint=h:5 x", "standalone=true backend=c10d endpoint_host=null endpoint_port=0"},
    {"PET_STANDALONE=0 | --rdzv-endpoint=h:5 x", "standalone=false backend=static endpoint_host=h endpoint_port=5"},
    {"PET_MASTER_PORT=7 | x", "standalone=false backend=static endpoint_host=127.0.0.1 endpoint_port=7"},
    {"--nnodes=2 --rdzv-id=j --rdzv-endpoint=dir:/a/b x",
     "backend=dir standalone=false run_id=j run_id_given=true arbiter_dir=/a/b endpoint_host=null etcd_endpoints=[]"},
    {"--nnodes=1 --rdzv-id=j --rdzv-endpoint=dir:/a/b x", "backend=dir standalone=false arbiter_dir=/a/b"},
    {"--rdzv-id=j --rdzv-backend=dir --rdzv-endpoint=/a x", "backend=dir standalone=false arbiter_dir=/a"},
    {"--rdzv-id=j --rdzv-backend=dir --rdzv-endpoint=dir:29400 x", "backend=dir arbiter_dir=/home/u/29400"},
    {"PET_RDZV_ID=j PET_RDZV_ENDPOINT=dir:./a | x", "backend=dir run_id=j arbiter_dir=/home/u/a"},
    {"--rdzv-id=j --rdzv-endpoint=etcds://h --rdzv-conf=cacert=/a,cert=/c,key=/k x",
     "etcd_cacert=/a etcd_cert=/c etcd_key=/k"},
    {"--rdzv-id=j --rdzv-endpoint=etcds://h --rdzv-conf=ca_cert=/a,ssl_cert=/c,ssl_cert_key=/k x",
     "etcd_cacert=/a etcd_cert=/c etcd_key=/k"},
    {"--rdzv-id=j --rdzv-endpoint=etcds://h --rdzv-conf=ssl_cert=/both x", "etcd_cacert=null etcd_key=/both"},
    {"--rdzv-id=j --rdzv-endpoint=etcd://h x",
     "backend=etcd standalone=false etcd_endpoints=['h:2379'] etcd_prefix=/muster etcd_tls=false etcd_user=null"},
    {"--rdzv-id=j --rdzv-endpoint=etcds://h:1/p x",
     "backend=etcd standalone=false etcd_endpoints=['h:1'] etcd_prefix=/p etcd_tls=true etcd_user=null"},
    {"--rdzv-id=j --rdzv-backend=etcd --rdzv-endpoint=h x",
     "backend=etcd standalone=false etcd_endpoints=['h:2379'] etcd_prefix=/muster etcd_tls=false etcd_user=null"},
    {"--rdzv-id=j --rdzv-backend=etcd --rdzv-endpoint=etcd:7 x",
     "backend=etcd standalone=false etcd_endpoints=['etcd:7'] etcd_prefix=/muster etcd_tls=false etcd_user=null"},
    {"--rdzv-id=j --rdzv-backend=etcd-v2 --rdzv-endpoint=h:7 --rdzv-conf=protocol=https x",
     "backend=etcd standalone=false etcd_endpoints=['h:7'] etcd_prefix=/muster etcd_tls=true etcd_user=null"},
    {"--rdzv-id=j --rdzv-endpoint=etcd://h/p --rdzv-conf=etcd_prefix=q/,timeout=9 x",
     "backend=etcd standalone=false etcd_endpoints=['h:2379'] etcd_prefix=/q etcd_tls=false join_timeout=9 "
     "etcd_user=null"},
    {"--rdzv-id=j --rdzv-endpoint=etcd://h/p --rdzv-conf=etcd_prefix=/ x",
     "backend=etcd standalone=false etcd_endpoints=['h:2379'] etcd_prefix= etcd_tls=false join_timeout=600 "
     "etcd_user=null"},
    {"--rdzv-id=j --rdzv-endpoint=etcds://u:p@h x",
     "backend=etcd standalone=false etcd_endpoints=['h:2379'] etcd_prefix=/muster etcd_tls=true etcd_user=u"},
    {"MUSTER_ETCD_PASSWORD=e MUSTER_ETCD_USER=v | --rdzv-id=j --rdzv-endpoint=etcds://h x",
     "backend=etcd standalone=false etcd_endpoints=['h:2379'] etcd_prefix=/muster etcd_tls=true etcd_user=v"},
    {"MUSTER_ETCD_PASSWORD=e | --rdzv-id=j --rdzv-endpoint=etcds://u:p@h "
     "--rdzv-conf=etcd_user=w,etcd_password_file=/secret x",
     "backend=etcd standalone=false etcd_endpoints=['h:2379'] etcd_prefix=/muster etcd_tls=true etcd_user=w"},
    {"PET_RDZV_ENDPOINT=etcds://u:p@h | --rdzv-id=j x",
     "backend=etcd standalone=false etcd_endpoints=['h:2379'] etcd_prefix=/muster etcd_tls=true etcd_user=u"},
    {"--port-range=20000-20010 x", "port_range=20000-20010"},
    {"--port-range=7-7 x", "port_range=7-7"},
    {"--nnodes=2 --rdzv-id=r --rdzv-endpoint=h:7,5-6 x",
     "backend=c10d endpoint_host=h endpoint_port=7 endpoint_ports=[7,5,6]"},
    {"--nnodes=2 --rdzv-id=r --rdzv-backend=c10d --rdzv-endpoint=h:7,5-6 x", "backend=c10d endpoint_ports=[7,5,6]"},
    {"PET_RDZV_ENDPOINT=h:7,5-6 | --nnodes=2 --rdzv-id=r x", "backend=c10d endpoint_ports=[7,5,6]"},
    {"--nnodes=2 --rdzv-id=r --rdzv-endpoint=h:5-5 x", "endpoint_host=h endpoint_port=5 endpoint_ports=[]"},
    /* the workers' store */
    {"--rdzv-backend=c10d --rdzv-endpoint=h --master-addr=m --master-port=12 x", "store_host=m store_port=12"},
    {"--standalone --master-port=12 x", "store_host=null store_port=12"},
    {"--standalone --master-addr=m x", "store_host=null store_port=0"},
    {"--nnodes=2 --master-addr=m --master-port=12 x", "store_host=null store_port=0 endpoint_host=m endpoint_port=12"},
    {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 | --standalone x", "workers_store=true"},
    {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE=0 | --standalone x", "workers_store=false"},
    {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 | --master-port=1 x", "workers_store=false"},
    {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 | --rdzv-endpoint=dir:/a --rdzv-id=j x", "workers_store=false"},
    /* a run id is kept only where it is shared */
    {"--nnodes=2 x", "run_id=none run_id_given=false"},
    {"--nnodes=2 --rdzv-id=j7 x", "run_id=j7 run_id_given=true"},
    {"--rdzv-id=j7 x", "run_id=j7 run_id_given=false"},
    {"--standalone --rdzv-id=j7 x", "run_id=x-1126-1138-7c3f1a"},
    /* how the group changes */
    {"SLURM_TOPOLOGY_ADDR=b8.n1 SLURM_TOPOLOGY_ADDR_PATTERN=block.node | --topology-file=/f x",
     "topology=b8.n1 topology_file=/f"},
    {"SLURM_TOPOLOGY_ADDR=s1.s2.node3 PET_GROW=never PET_NODE_UNIT=2 | --nnodes=3:5 --rdzv-backend=c10d "
     "--rdzv-endpoint=h --spares=0 --rank-order=topology --max-node-losses=7 --exclude-after=0 --restart-backoff=1.5 "
     "--crash-loop=0 --hold=0 --arbiter-lease=90 --regroup-wait=4 --rdzv-conf=regroup_timeout=9 --node-rank=3 "
     "--event-log=/e x",
     "node_unit=2 spares=0 grow=never rank_order=topology max_node_losses=7 exclude_after=0 restart_backoff=1.5 "
     "crash_loop=0 hold=0 arbiter_lease=90 regroup_timeout=4 node_rank=3 topology=s1.s2.node3 event_log=/e"},
    {"--grow=now --rank-order=join --event-log-handler=console --lease=40 --rdzv-conf=regroup_timeout=9 x",
     "grow=now rank_order=join arbiter_lease=80 regroup_timeout=9 event_log=-"},
    {"--nnodes=3 --master-addr=h --node-rank=2 x", "node_rank=2 join_timeout=900"},
    {"--nnodes=2:3 --master-addr=h --rdzv-conf=rank=1,timeout=60 x", "node_rank=1 min_nodes=3 join_timeout=60"},
    {"--nnodes=2 --master-addr=h x", "node_rank=0"},
    /* abbreviations that torchrun accepts keep their meaning */
    {"--max 3 --event-l null --node-r 1 --nnodes=2 --rdzv-b c10d --start spawn x",
     "max_restarts=3 event_log=null node_rank=1"},
    /* times */
    {"--lease=2.5 x", "heartbeat_interval=1 lease=2.5 shutdown_timeout=30"},
    {"--heartbeat-interval=3 x", "heartbeat_interval=3 lease=15"},
    {"--heartbeat-interval=0.1 x", "heartbeat_interval=0.1 lease=5"},
    {"--rdzv-conf=keep_alive_interval=2 x", "heartbeat_interval=2 lease=6"},
    {"--rdzv-conf=keep_alive_max_attempt=4 x", "heartbeat_interval=5 lease=20"},
    {"--rdzv-conf=keep_alive_interval=0.5,keep_alive_max_attempt=2 x", "heartbeat_interval=0.5 lease=1"},
    {"--rdzv-conf=keep_alive_interval=2 --lease=9 x", "heartbeat_interval=2 lease=9"},
    {"PET_LEASE=4 | x", "heartbeat_interval=1 lease=4"},
    {"--shutdown-timeout=0 x", "shutdown_timeout=0"},
    {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=600 | x", "shutdown_timeout=600 lease=5"},
    {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=600 PET_SHUTDOWN_TIMEOUT=7 | x", "shutdown_timeout=7"},
    {"PET_SHUTDOWN_TIMEOUT=7 | --shutdown-timeout=2 x", "shutdown_timeout=2"},
    /* output */
    {"--nproc=3 -r 0:3,2:1,0:2 -t 1 --local-ranks-filter=0,2 --log-dir=/l -q -vv "
     "--log-line-prefix-template=[$rank]: x",
     "redirects=[2,0,1] tee=[1,1,1] local_ranks_filter=[0,2] log_dir=/l line_prefix=[$rank]: quiet=true verbose=2"},
    {"--output-spool=0 x", "output_spool=0"},
    {"--output-spool=1000 x", "output_spool=1000"},
    {"--output-spool=8k x", "output_spool=8192"},
    {"--output-spool=512M x", "output_spool=536870912"},
    {"--output-spool=4T x", "output_spool=4398046511104"},
    {"--log-mode=0640 x", "log_mode=0640"},
    {"--log-mode=644 x", "log_mode=0644"},
    {"PET_LOG_MODE=0664 | x", "log_mode=0664"},
    {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=old | x", "line_prefix=old"},
    {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=old | --log-line-prefix-template=new x", "line_prefix=new"},
    /* filters, parted as torchrun does */
    {"-t3 --duplicate-stdout-filters=apple,pear x",
     "duplicate_stdout_filters=['apple','pear'] duplicate_stderr_filters=[]"},
    {"-t3 --duplicate-stdout-filters=a,,b,c x", "duplicate_stdout_filters=['a,b','c']"},
    {"-t3 --duplicate-stdout-filters=a,,,b x", "duplicate_stdout_filters=['a,','b']"},
    {"-t3 --duplicate-stdout-filters=,, x", "duplicate_stdout_filters=[',']"},
    {"-t3 --duplicate-stdout-filters=, x", "duplicate_stdout_filters=['','']"},
    {"-t3 --duplicate-stdout-filters= x", "duplicate_stdout_filters=['']"},
    {"PET_DUPLICATE_STDOUT_FILTERS=a,b | -t3 x", "duplicate_stdout_filters=['a','b']"},
    {"-t3 --logs-specs=default x", "duplicate_stdout_filters=[]"},
    /* what is executed */
    {"-m x", "entry=module"},
    {"--no-python x", "entry=program"},
    {"--run-path x", "entry=python"},
    {"--run-path --no-python x", "entry=python"},
    {"--run-path -m x", "entry=python"},
    {"PET_MODULE=1 | x", "entry=module"},
    {"PET_MODULE=0 PET_NO_PYTHON=1 | x", "entry=program"},
    {"--signals-to-handle=SIGUSR1,SIGTERM,SIGUSR1 x", "signals_to_handle=['SIGUSR1','SIGTERM']"},
    {"--signals-to-handle= x", "signals_to_handle=[]"},
    /* how workers are bound, in the words of the options */
    {"x", "bind=null bind_memory=preferred omp=torchrun gpus_per_worker=0"},
    {"--bind=none x", "bind=none bind_memory=preferred"},
    {"--bind=numa x", "bind=numa bind_memory=preferred"},
    {"--bind=socket --bind-memory=strict x", "bind=socket bind_memory=strict"},
    {"--bind=core --bind-memory=off x", "bind=core bind_memory=off"},
    {"--numa-binding=node x", "bind=torchnode bind_memory=off"},
    {"--numa-binding=socket x", "bind=torchsocket"},
    {"--numa-binding=exclusive x", "bind=torchexclusive"},
    {"--numa-binding=core-complex x", "bind=torchcore-complex"},
    {"CUDA_VISIBLE_DEVICES=1 | --numa-binding=core-complex x", "bind=torchcore-complex"},
    {"PET_BIND=core PET_BIND_MEMORY=strict | x", "bind=core bind_memory=strict"},
    {"--omp=cores --gpus-per-worker=2 x", "omp=cores gpus_per_worker=2"},
    {"--gpus-per-worker=1 --virtual-local-rank x", "gpus_per_worker=1"},
    /* hangs, NCCL */
    {"PET_HANG_STILL=7 PET_HANG_ACTION=off | --hang-action=report --hang-timeout=0 --hang-report=0.5 "
     "--evidence-timeout=2 x",
     "hang_action=report hang_timeout=0 hang_still=7 hang_report=0.5 evidence_timeout=2"},
    {"--nccl-env=off x.py", "nccl_env=off nccl_comm_id=false nccl_debug=false env=[]"},
    {"--nccl-env minimal x.py", "nccl_env=minimal"},
    {"PET_NCCL_ENV=off | x.py", "nccl_env=off"},
    {"--nccl-comm-id --nccl-debug x.py", "nccl_comm_id=true nccl_debug=true"},
    {"--env A=x --env-file /env --env=C=a=b --env B=3 x.py --env D=4",
     "env=['NCCL_IB_HCA==mlx5_0,mlx5_1','A=x','B=3','C=a=b'] args=['--env','D=4']"},
    {"--env-file /crlf x.py", "env=['A=1','B=2','C=3']"},
};

Test(job_options, each_line_has_its_meaning) {
    gpus_are_here = true;
    for (size_t i = 0; i < ARRAY_SIZE(meanings); i++) {
        READ(meanings[i].line);
        assert_shown(meanings[i].line, &g.spec, meanings[i].shown);
        cr_expect_eq(job_is_given(&g.spec, "shutdown-timeout"), strcasestr(meanings[i].line, "shutdown") != NULL);
    }
}

/* What the table shows by the words that it was given in. */
Test(job_options, words_are_the_values_of_their_enums) {
    READ("SLURM_TOPOLOGY_ADDR=b8.n1 SLURM_TOPOLOGY_ADDR_PATTERN=block.node | --grow=now --rank-order=join "
         "--hang-action=report --nccl-env=off --omp=cores x");
    cr_assert(g.spec.rdzv.grow == GROW_NOW && g.spec.rdzv.rank_order == RANK_ORDER_JOIN);
    cr_assert(g.spec.hang.action == HANG_ACTION_REPORT && g.spec.nccl_env == NCCL_ENV_OFF);
    cr_assert_eq(g.spec.omp, JOB_OMP_CORES);
    cr_assert_str_eq(g.spec.block, "b8");
    _cleanup_(reading_fini) struct reading other = read_line("--grow=never --rank-order=topology --nccl-env=minimal x");
    cr_assert(other.spec.rdzv.grow == GROW_NEVER && other.spec.rdzv.rank_order == RANK_ORDER_TOPOLOGY);
    cr_assert_eq(other.spec.nccl_env, NCCL_ENV_MINIMAL);
    gpus_are_here = true;
    _cleanup_(reading_fini) struct reading bound = read_line("--bind=socket --bind-memory=strict x"),
                                           torch = read_line("--numa-binding=exclusive x");
    cr_assert(bound.spec.bind == BIND_SOCKET && bound.spec.bind_memory == BIND_MEMORY_STRICT);
    cr_assert(torch.spec.bind == BIND_TORCH_EXCLUSIVE && torch.spec.bind_memory == BIND_MEMORY_OFF);
}

Test(job_options, a_run_id_that_muster_makes_has_the_name_of_the_script) {
    static const char *const cases[][2] = {
        {"a/b/train.py --lr 3", "train"},
        {"./train.v2.py", "train-v2"},
        {"a/.hidden", "hidden"},
        {"folder/", "folder"},
        {"..", "job"},
        {"é+é.py", "job"},
        {"é1b.py", "1b"},
        {"-m axolotl.cli.train", "train"},
        {"--no-python /bin/sh -c x", "sh"},
        {"a_b~very~long~name~of~a~script.py", "a_b-very-long-name-of-a-"},
        /* no other node can be in such a job, and no other job at such an endpoint */
        {"--master-port=29501 train.py", "train"},
        {"--rdzv-backend=c10d --rdzv-endpoint=localhost:0 train.py", "train"},
        {"--rdzv-id= train.py", "train"},
        {"--starter=local --nnodes=2 train.py", "train"},
        {"--rdzv-backend=c10d --rdzv-endpoint=localhost:5 train.py", NULL},
        {"--rdzv-id=none --master-port=29501 train.py", NULL},
        {"--nnodes=1:2 --rdzv-backend=c10d --rdzv-endpoint=h:5 train.py", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        READ(cases[i][0]);
        _cleanup_(freep) char *want =
            cases[i][1] == NULL ? xstrdup("none") : xasprintf("%s-1126-1138-7c3f1a", cases[i][1]);
        cr_expect_str_eq(g.spec.run_id, want, "%s: %s", cases[i][0], g.spec.run_id);
    }
}

Test(job_options, a_run_id_has_a_limit) {
    char line[JOB_RUN_ID_MAX + 64];
    (void)snprintf(line, sizeof line, "--nnodes=2 --rdzv-id=%0*d x", JOB_RUN_ID_MAX - 1, 1);
    READ(line);
    (void)snprintf(line, sizeof line, "--nnodes=2 --rdzv-id=%0*d x", JOB_RUN_ID_MAX, 1);
    _cleanup_(reading_fini) struct reading too_long = read_line(line);
    cr_assert_eq(too_long.r, -EINVAL);
}

Test(job_options, counts_workers) {
    static const struct {
        const char *line;
        uint32_t gpus;
        int gpus_error;
        uint32_t n; /* 0: refused */
    } cases[] = {
        {"--nproc=4 x", 0, 0, 4},
        {"--nproc=4096 x", 0, 0, 4096},
        {"--nproc=4097 x", 0, 0, 0},
        {"--nproc=0 x", 0, 0, 0},
        {"--nproc -1 x", 0, 0, 0},
        {"--nproc=cpu x", 3, 0, 6},
        {"--nproc=gpu x", 3, 0, 3},
        {"--gpus-per-worker=3 --nproc=gpu x", 8, 0, 2},
        {"--nproc=auto x", 3, 0, 3},
        {"--nproc=auto x", 0, 0, 6},
        {"--nproc=gpu x", 0, 0, 0},
        {"--nproc=gpu x", 3, -ETIMEDOUT, 0},
        {"--nproc=auto x", 3, -ETIMEDOUT, 6},
        {"--nproc=xpu x", 3, 0, 0},
        {"--nproc=many x", 3, 0, 0},
        {"--nproc= x", 0, 0, 0},
        {"--nproc=2.5 x", 0, 0, 0},
        {"PET_NPROC_PER_NODE=2 | x", 0, 0, 2},
        {"PET_NPROC_PER_NODE= | x", 0, 0, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        gpus = cases[i].gpus;
        gpus_error = cases[i].gpus_error;
        _cleanup_(reading_fini) struct reading g = read_line(cases[i].line);
        cr_assert_eq(g.r == 0, cases[i].n > 0, "%s: %s", cases[i].line, g.err.text);
        cr_assert_eq(g.spec.nproc, cases[i].n, "%s", cases[i].line);
    }
}

/* The error is one sentence. */
static void refuses(const char *const (*cases)[2], size_t n) {
    for (size_t i = 0; i < n; i++) {
        gpus = 1;
        _cleanup_(reading_fini) struct reading g = read_line(cases[i][0]);
        cr_assert_lt(g.r, 0, "%s", cases[i][0]);
        cr_assert_not_null(strstr(g.err.text, cases[i][1]), "%s: %s", cases[i][0], g.err.text);
        cr_assert_null(strchr(g.err.text, '\n'));
        cr_assert_null(strstr(g.err.text, "pw"));
        cr_assert_null(g.spec.script);
    }
}

static const char *const refused[][2] = {
    {"", "no SCRIPT to run; usage"},
    {"--nproc-per-node ok.py", "no SCRIPT to run: \"ok.py\" was taken as the value of --nproc-per-node"},
    {"-q --env ok.py", "no SCRIPT to run: \"ok.py\" was taken as the value of --env"},
    {"--nproc-per-node=2", "no SCRIPT to run; usage"},
    {"--nnodes=2:1 x", "--nnodes=2:1: must be MIN:MAX with MIN not above MAX"},
    {"--nnodes=0 x", "--nnodes=0: must be at least 1"},
    {"--nnodes=0:2 x", "at least 1"},
    {"--nnodes=1:2:3 x", "or MIN:MAX"},
    {"--nnodes=a x", "or MIN:MAX"},
    {"--nnodes=:2 x", "or MIN:MAX"},
    {"--nnodes=100001 x", "at most 100000"},
    {"PET_NNODES=a | x", "PET_NNODES=a: must be"},
    {"--nproc=gpus x", "did you mean \"gpu\"?"},
    {"--max-restarts=-1 x", "0 or more"},
    {"--max-restarts=abc x", "0 or more"},
    {"PET_MAX_RESTARTS=abc | x", "PET_MAX_RESTARTS=abc"},
    {"--monitor-interval=0 x", "above 0"},
    {"--monitor-interval=-1 x", "above 0"},
    {"-m --no-python x", "exclude each other"},
    {"PET_MODULE=1 PET_NO_PYTHON=1 | x", "exclude each other"},
    {"--rdzv-backend=c10 x", "did you mean \"c10d\"?"},
    {"--rdzv-endpoint=h x", "needs a port"},
    {"--rdzv-endpoint=h:99999 x", "port must be"},
    {"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=h:0 x", "can't be found by other nodes"},
    {"--nnodes=2 --master-port=0 x", "can't be found by 2 nodes"},
    {"--nnodes=2 --master-port=99999 x", "--master-port=99999: must be"},
    {"--nnodes=2 --master-addr=h:1 x", "without a port"},
    {"--standalone --master-port=99999 x", "--master-port=99999: must be"},
    {"--standalone --master-addr=h:1 --master-port=1 x", "without a port"},
    {"--port-range=20000 x", "--port-range=20000: must be two ports, LOW-HIGH"},
    {"--port=2 x", "(one port: --master-port)"},
    {"--port-range=0-5 x", "must be two ports"},
    {"--port-range=6-5 x", "must be two ports"},
    {"--port-range=-5 x", "must be two ports"},
    {"--port-range=1-65536 x", "must be two ports"},
    {"--nnodes=2 --master-addr= x", "a host name or an address"},
    {"--nnodes=2 --node-rank=2 x", "from 0 to 1"},
    {"--nnodes=2 --node-rank=-1 x", "from 0 to 1"},
    {"--nnodes=2 --node-rank=a x", "must be a number"},
    {"--node-rank=1 --master-addr=h --master-port=1 x", "the job has one node, whose rank is 0; give --nnodes"},
    {"--standalone --nnodes=2 x", "--standalone is for one node"},
    {"-r 4 x", "--redirects=4: must be 0 (none)"},
    {"-r 0:3, x", "by local rank"},
    {"-r 10:3 x", "by local rank"},
    {"-t 0:3;1:2 x", "--tee="},
    {"--tee= x", "--tee="},
    {"--local-ranks-filter=0,a x", "local ranks with commas"},
    {"--local-ranks-filter=, x", "local ranks with commas"},
    {"--output-spool=lots x", "--output-spool=lots: must be a number of bytes"},
    {"--output-spool=1GG x", "must be a number of bytes"},
    {"--output-spool= x", "must be a number of bytes"},
    {"--output-spool=5T x", "at most 4T"},
    {"--log-mode=0700 x", "--log-mode=0700: must be the octal mode of a file"},
    {"--log-mode=0400 x", "must be the octal mode of a file"},
    {"--log-mode=0666 x", "must be the octal mode of a file"},
    {"--log-mode=00600 x", "must be the octal mode of a file"},
    {"--log-mode=0680 x", "must be the octal mode of a file"},
    {"--log-mode=rw x", "must be the octal mode of a file"},
    {"--log-mode= x", "must be the octal mode of a file"},
    {"--logs-specs=a x", "--logs-specs=a: must be default; others are plug-ins"},
    {"--numa-binding=node x", "this node has none; --bind=numa binds workers without GPUs"},
    {"--numa-binding=near x", "must be one of"},
    {"--duplicate-stdout-filters=a -t3 --log-dir=/dev/null x", "--log-dir=/dev/null means none"},
    {"--event-log-handler=kafka x", "must be one of: null console"},
    {"--shutdown-timeout=-1 x", "0 or more"},
    {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=x | x", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=x"},
    {"--lease=1 x", "the lease must be longer"},
    {"--heartbeat-interval=0 x", "above 0"},
    {"--rdzv-endpoint=dir:/a --rdzv-id=i --nnodes=2 --heartbeat-interval=1 --lease=2 x", "longer than two heartbeats"},
    {"--rdzv-conf=join_timeout=0 x", "above 0"},
    {"--rdzv-conf=heartbeat_timeout=0 x", "above 0"},
    {"--master-port=2 --rdzv-conf=timeout=x x", "above 0"},
    {"--rdzv-endpoint=etcd://h --rdzv-id=j --rdzv-conf=timeout=0 x", "above 0"},
    {"--rdzv-conf=keep_alive_interval=1e9,keep_alive_max_attempt=4294967295 x", "too large"},
    /* texts that other nodes may not get */
    {"--rdzv-id=pr\xfc"
     "fung x",
     "--rdzv-id: byte 3 (0xfc) is not valid UTF-8"},
    {"PET_RDZV_ID=a\x1b[2J | x", "--rdzv-id: must not contain control characters (byte 2)"},
    {"--rdzv-id=a\xc2\x9b x", "--rdzv-id: must not contain control characters (byte 2)"},
    {"--standalone --role=r\xff x", "--role: byte 2 (0xff) is not valid UTF-8"},
    {"PET_ROLE=r\x07 | x", "PET_ROLE: must not contain control characters (byte 2)"},
    {"--role=1234567890123456789012345678901234567890123456789012345678901234 x",
     "--role: the text has 64 bytes; at most 63 are possible"},
    /* places where no nodes can meet */
    {"--nnodes=2 --rdzv-endpoint=h:5,6 x", "with several ports, the nodes need a --rdzv-id"},
    {"--nnodes=2 --rdzv-id=r --rdzv-backend=static --rdzv-endpoint=h:5,6 x",
     "--rdzv-backend=static can't meet at h:5,6; use --rdzv-backend=c10d, or leave it out"},
    {"--nnodes=2 --rdzv-id=r --rdzv-endpoint=h:1-17 x", "at most 16 ports"},
    {"--nnodes=2 --rdzv-id=r --rdzv-endpoint=h:5,5 x", "a port is named twice"},
    {"--nnodes=2 --rdzv-id=r --rdzv-endpoint=h:0-5 x", "from 1 to 65535, or LOW-HIGH"},
    {"--rdzv-backend=etc x", "must be static, c10d, dir or etcd; did you mean \"etcd\"?"},
    {"--rdzv-backend=etcd --rdzv-endpoint=h:1 x", "by etcd need an --rdzv-id"},
    {"--rdzv-endpoint=dir:/a x", "by dir need an --rdzv-id"},
    {"--rdzv-endpoint=dir:/a --rdzv-id= x", "by dir need an --rdzv-id"},
    {"--rdzv-backend=etcd --rdzv-id=j x", "needs an --rdzv-endpoint, the same on all nodes"},
    {"--rdzv-backend=dir --rdzv-id=j x", "dir:/shared/path"},
    {"--rdzv-backend=c10d --rdzv-endpoint=dir:/a x", "use --rdzv-backend=dir, or leave it out"},
    {"--rdzv-backend=static --rdzv-endpoint=etcd://u:pw@h x", "etcd://u:***@h; use"},
    {"--rdzv-endpoint=etcd://h:0 --rdzv-id=j x", "no port 0"},
    {"--rdzv-endpoint=zk://h --rdzv-id=j x", "must be HOST:PORT, dir:/PATH"},
    {"PET_RDZV_ID=j PET_RDZV_ENDPOINT=./a | x", "the host must be a name"},
    {"--rdzv-endpoint=etcds://h --rdzv-id=j --rdzv-conf=protocol=http x", "contradicts"},
    {"--rdzv-endpoint=etcd://h --rdzv-id=j --rdzv-conf=cacert=/c x", "add protocol=https"},
    {"--rdzv-endpoint=etcds://h --rdzv-id=j --rdzv-conf=key=/k x", "needs its certificate"},
    {"--rdzv-endpoint=etcds://u@h --rdzv-id=j x", "etcd user \"u\" has no password"},
    {"MUSTER_ETCD_PASSWORD=p | --rdzv-endpoint=etcds://h --rdzv-id=j x", "and no user"},
    {"--rdzv-endpoint=etcds://u@h --rdzv-id=j --rdzv-conf=etcd_password_file=/x x",
     "etcd_password_file: can't read /x"},
    {"--rdzv-endpoint=etcd://h --rdzv-id=j --rdzv-conf=etcd_prefix=a? x", "no ? or #"},
    {"--rdzv-conf=protocol=ftp x", "must be http or https"},
    /* groups that cannot be */
    {"--nnodes=2 --rdzv-backend=c10d --node-rank=100000 x", "below 100000"},
    {"--node-unit=0 x", "1 or more"},
    {"--node-unit=2 x", "--node-unit=2: 1 node is no multiple"},
    {"--nnodes=3 --node-unit=2 x", "3 nodes are no multiple"},
    {"--nnodes=5:7 --node-unit=4 --rdzv-backend=c10d x", "no multiple of it lies in 5:7 nodes"},
    {"--nnodes=1:3 --node-unit=4 --rdzv-backend=c10d x", "no multiple of it lies in 1:3 nodes"},
    {"--spares=-1 x", "0 or more"},
    {"--spares=4294967295 x", "0 or more"},
    {"--max-node-losses=many x", "0 or more"},
    {"--exclude-after=a x", "0 or more"},
    {"--restart-backoff=-1 x", "--restart-backoff=-1: must be a number of seconds, 0 or more"},
    {"--crash-loop=soon x", "0 or more"},
    {"--hold= x", "0 or more"},
    {"PET_REGROUP_WAIT=x | x", "PET_REGROUP_WAIT=x: must be"},
    {"--arbiter-lease=5 x", "longer than a node's lease (5 s)"},
    {"--grow=later x", "must be one of: now boundary never"},
    {"--rank-order=random x", "must be one of: host join topology"},
    /* variables for workers */
    {"--env A x.py", "NAME=VALUE"},
    {"--env =1 x.py", "NAME=VALUE"},
    {"--env 1A=1 x.py", "NAME=VALUE"},
    {"--env RANK=3 x.py", "muster itself sets"},
    {"--env MUSTER_X=1 x.py", "itself"},
    {"--env-file /bad x.py", "/bad, line 2"},
    {"--env-file /none x.py", "can't read /none"},
    {"PET_ENV_FILE=/bad | x.py", "/bad, line 2"},
};

Test(job_options, refuses_with_one_line) { refuses(refused, ARRAY_SIZE(refused)); }

Test(job_options, refuses_what_can_not_be_bound) {
    static const char *const cases[][2] = {
        {"--bind=near x", "must be one of: none numa socket core"},
        {"--bind-memory=some x", "must be one of: preferred strict off"},
        {"--omp=all x", "must be one of: torchrun cores"},
        {"--bind=numa --numa-binding=node x", "--numa-binding and --bind exclude each other"},
        {"PET_BIND=numa | --numa-binding=node x", "exclude each other"},
        {"--bind-memory=off --numa-binding=node x", "--bind-memory goes with --bind"},
        {"CUDA_VISIBLE_DEVICES=-1 | --numa-binding=node x", "CUDA_VISIBLE_DEVICES lets them see none"},
        {"--gpus-per-worker=0 x", "a number of GPUs, 1 to 256"},
        {"--gpus-per-worker=257 x", "a number of GPUs, 1 to 256"},
        {"--gpus-per-worker=2 --virtual-local-rank x", "--gpus-per-worker=2 more"},
        {"--gpus-per-worker=9 --nproc=gpu x", "1 GPU is visible, too few for one worker"},
    };
    gpus_are_here = true;
    refuses(cases, ARRAY_SIZE(cases));
}

Test(job_options, a_file_store_is_a_directory_beside_the_file) {
    READ("--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=/a/f --rdzv-conf=store_type=File x");
    cr_assert_eq(g.spec.backend, JOB_BACKEND_DIR);
    cr_assert_str_eq(g.spec.arbiter_dir, "/a/f.muster");
    cr_assert_str_eq(g.spec.run_id, "none");
    assert_has(strbuf_text(&g.warnings), "meet in the directory /a/f.muster;");
    _cleanup_(reading_fini) struct reading alone = read_line("--rdzv-backend=c10d --rdzv-conf=store_type=file x");
    cr_assert(job_is_alone(&alone.spec));
    _cleanup_(reading_fini) struct reading fixed = read_line("--master-port=1 --rdzv-conf=store_type=file x");
    cr_assert_eq(fixed.spec.backend, JOB_BACKEND_STATIC);
    assert_has(strbuf_text(&fixed.warnings), "store_type has no effect with static");
}

Test(job_options, the_endpoint_is_the_users_or_the_masters) {
    _cleanup_(reading_fini) struct reading master = read_line("--nnodes=2 --master-addr=m --master-port=12 x"),
                                           given = read_line("--rdzv-endpoint=h:5 x");
    cr_assert_eq(master.spec.endpoint_from, JOB_ENDPOINT_MASTER);
    cr_assert_eq(given.spec.endpoint_from, JOB_ENDPOINT_GIVEN);
}

Test(job_options, warns_once_of_an_option_that_does_nothing) {
    static const struct {
        const char *line, *warning; /* NULL: none */
    } cases[] = {
        {"--gpus-per-worker=1 x", "--gpus-per-worker: this node has no GPU\n"},
        {"--virtual-local-rank x", "--virtual-local-rank: this node has no GPU\n"},
        {"--node-rank=1 x", "--node-rank: no effect, the job has one node; see --nnodes\n"},
        {"--node-rank=0 x", NULL},
        {"PET_NODE_RANK=1 | x", NULL},
        {"--nnodes=2 --node-rank=1 --master-addr=h x", NULL},
        {"--master-addr=h x", "--master-addr: no effect without --master-port\n"},
        {"--master-addr=h --master-port=7 x", NULL},
        {"--standalone --rdzv-endpoint=h:5 x", "--rdzv-endpoint: no effect with --standalone\n"},
        {"--warm x", "--warm: no effect without --max-restarts\n"},
        {"--warm --max-restarts=1 --warm-after=1 x", NULL},
        {"--warm-after=1 --warm-skip=a x",
         "--warm-after: no effect without --warm\n--warm-skip: no effect without --warm\n"},
        {"--hang-action=off --hang-still=9 x", "--hang-still: no effect with --hang-action=off\n"},
        {"--hang-still=9 x", NULL},
        {"--restart-backoff=9 x", "--restart-backoff: no effect without --max-restarts\n"},
        {"--restart-backoff=9 --exclude-after=1 --max-restarts=1 x", NULL},
        {"--arbiter-lease=20 x", "--arbiter-lease: no effect unless nodes meet in a directory or etcd\n"},
        {"--rdzv-endpoint=dir:/a --rdzv-id=j --arbiter-lease=20 x", NULL},
        {"--bind-memory=strict x", "--bind-memory: no effect without --bind\n"},
        {"--bind-memory=strict --bind=numa x", NULL},
        {"--log-line-prefix-template=a --prefix=never x",
         "--log-line-prefix-template: no effect with --prefix=never\n"},
        {"--log-line-prefix-template=a x", NULL},
        {"--log-dir=/l x", "--log-dir: the output of workers is not written there; add -t 3 (to files and terminal) "
                           "or -r 3 (to files only)\n"},
        {"--log-dir=/l -r 0 --tee=1 x", NULL},
        {"--health-timeout=5 x", "--health-timeout: no effect without --health-check\n"},
        {"--health-timeout=5 --health-check=true x", NULL},
        {"--log-dir=/l --nccl-debug x", NULL},
        {"--log-dir=/dev/null x", NULL},
        {"PET_LOG_DIR=/l | x", NULL},
        {"--log-mode=0640 x", "--log-mode: no effect, no file is written; see --log-dir and --event-log\n"},
        {"--log-mode=0640 --event-log=f x", NULL},
        {"--key-file=f --auth=none x", "--key-file: no effect with --auth=none\n"},
    };
    gpus_are_here = false;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        READ(cases[i].line);
        const char *expected = cases[i].warning != NULL ? cases[i].warning : "";
        cr_assert_str_eq(strbuf_text(&g.warnings), expected, "%s: %s", cases[i].line, strbuf_text(&g.warnings));
    }
    gpus_are_here = true;
    READ("--gpus-per-worker=1 --bind-memory=strict x");
    cr_assert_eq(g.warnings.len, 0, "%s", strbuf_text(&g.warnings));
}

Test(job_options, warns_where_torchrun_is_silent) {
    static const char *const cases[][2] = {
        {"--rdzv-conf=join_timout=3 x", "did you mean \"join_timeout\"?"},
        {"--rdzv-backend=c10d --rdzv-endpoint=h --rdzv-conf=timeout=3 x", "use join_timeout"},
        {"--rdzv-backend=c10d --rdzv-endpoint=h --rdzv-conf=timeout=5\" x", "use join_timeout"},
        {"--rdzv-conf=timeout=x,timeout=0 x", "no effect"},
        {"--rdzv-endpoint=dir:/a --rdzv-id=j --rdzv-conf=timeout=3 x", "no effect with dir"},
        {"--rdzv-backend=etcd-v2 --rdzv-endpoint=h --rdzv-id=j x", "version 3 of etcd's API"},
        {"--rdzv-endpoint=etcds://u:pw@h --rdzv-id=j x", "the password in --rdzv-endpoint is vis"},
        {"--rdzv-endpoint=etcds://u@h --rdzv-id=j --rdzv-conf=etcd_password=pw x",
         "the password in --rdzv-conf is visible"},
        {"MUSTER_ETCD_PASSWORD=p | --rdzv-endpoint=etcd://u@h --rdzv-id=j x", "unencrypted"},
        {"--rdzv-conf=etcd_prefix=/p x", "no effect without etcd"},
        {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 | --rdzv-endpoint=dir:/a --rdzv-id=j x", "has no effect with dir"},
        {"--nnodes=2 --rdzv-backend=c10d x", "no --rdzv-endpoint"},
        {"--nnodes=1:2 --master-addr=h x", "waits for all 2 nodes"},
        {"--signals-to-handle=SIGTERM,SIGFOO x", "unknown signal \"SIGFOO\""},
        {"--signals-to-handle=SIGKILL x", "can't be caught"},
        {"--local-ranks-filter=0,7 x", "no local rank 7"},
        {"--env-file /crlf x.py", "--env-file: /crlf, line 2: the carriage return"},
        {"--duplicate-stderr-filters=a -t1 x",
         "--duplicate-stderr-filters has no effect: only streams of --tee are filtered"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        READ(cases[i][0]);
        const char *warning = strbuf_text(&g.warnings);
        cr_assert_not_null(strstr(warning, cases[i][1]), "%s: %s", cases[i][0], warning);
        cr_assert_eq(strchr(warning, '\n') - warning, (long)strlen(warning) - 1, "%s", warning);
        cr_assert_null(strstr(warning, "pw"));
    }
}

Test(job_options, the_password_of_etcd_is_the_nearest) {
    static const char *const cases[][2] = {
        {"--rdzv-id=j --rdzv-endpoint=etcds://u:p%3a@h x", "p:"},
        {"MUSTER_ETCD_PASSWORD=e | --rdzv-id=j --rdzv-endpoint=etcds://u@h x", "e"},
        {"MUSTER_ETCD_PASSWORD=e | --rdzv-id=j --rdzv-endpoint=etcds://u:p@h "
         "--rdzv-conf=etcd_user=w,etcd_password_file=/secret x",
         "of the file"},
        {"PET_RDZV_ENDPOINT=etcds://u:p@h | --rdzv-id=j x", "p"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        READ(cases[i][0]);
        cr_assert_str_eq(g.spec.etcd_password, cases[i][1], "%s", cases[i][0]);
        cr_assert_eq(strstr(strbuf_text(&g.warnings), "visible") != NULL, i == 0 || i == 2, "%s", cases[i][0]);
    }
}

Test(job_options, limits_the_signals) {
    static const char sixteen[] =
        "--signals-to-handle=SIGHUP,SIGINT,SIGQUIT,SIGILL,SIGTRAP,SIGABRT,SIGBUS,SIGFPE,SIGUSR1,"
        "SIGSEGV,SIGUSR2,SIGPIPE,SIGALRM,SIGTERM,SIGCHLD,SIGCONT";
    char line[512];
    (void)snprintf(line, sizeof line, "%s x", sixteen);
    READ(line);
    cr_assert_eq(g.spec.n_signals, JOB_SIGNALS_MAX);
    (void)snprintf(line, sizeof line, "%s,SIGWINCH x", sixteen);
    _cleanup_(reading_fini) struct reading more = read_line(line);
    cr_assert_eq(more.r, -EINVAL);
}

Test(job_options, warns_of_an_environment_that_means_something_else) {
    static const char *const cases[][2] = {
        {"PET_NPROC=2 | x", "PET_NPROC: no such option; did you mean PET_NPROC_PER_NODE?\n"},
        {"PET_NNODE=2 | x", "PET_NNODE: no such option; did you mean PET_NNODES?\n"},
        {"PET_ENDPOINT=h | x", "PET_ENDPOINT: no such option; did you mean PET_RDZV_ENDPOINT?\n"},
        {"PET_ZZZ=h PET_=1 | x", "PET_ZZZ: no such option\nPET_: no such option\n"},
        {"PET_NUMA_BINDING=node | x",
         "PET_NUMA_BINDING has no effect: --numa-binding is taken from the command line only\n"},
        {"PET_NPROC_PER_NODE=2 PET_MAX_RESTARTS=1 PETS=1 | x", ""},
        {"SLURM_JOB_ID=1 SLURM_PROCID=0 PET_NNODES=1 SLURM_NNODES=4 | x",
         "PET_NNODES=1, but this Slurm job has 4 nodes, and the others stay idle; if it is to use them: unset "
         "PET_NNODES\n"},
        {STEP_OF_2 "PET_NNODES=1:1 | x",
         "PET_NNODES=1:1, but this Slurm step has 2 nodes: on each of them a job of its own runs; if it is to be one "
         "job: unset PET_NNODES\n"},
        /* a step of one node of a job of four; and what leaked from such a step into a batch script of four */
        {"SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=1 SLURM_NNODES=1 SLURM_NTASKS=1 "
         "SLURM_JOB_NUM_NODES=4 SLURM_STEP_TASKS_PER_NODE=1 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0 "
         "SLURM_STEP_NODELIST=n1 PET_NNODES=1 | x",
         ""},
        {"SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=1 SLURM_NNODES=4 SLURM_NTASKS=4 "
         "SLURM_NODEID=0 SLURM_PROCID=0 PET_NNODES=1 | x",
         "PET_NNODES=1, but this Slurm job has 4 nodes, and the others stay idle; if it is to use them: unset "
         "PET_NNODES\n"},
        {"SLURM_JOB_ID=1 SLURM_PROCID=0 PET_NNODES=1 SLURM_NNODES=1 | x", ""},
        {"SLURM_JOB_ID=1 SLURM_PROCID=0 PET_NNODES=1 SLURM_NNODES=4 | --nnodes=1 x", ""},
        {"SLURM_JOB_ID=1 SLURM_PROCID=0 SLURM_NNODES=4 | x", ""},
        {"PET_NNODES=1 SLURM_NNODES=4 SLURM_STEP_NUM_NODES=2 | x", ""}, /* no job */
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        READ(cases[i][0]);
        cr_assert_str_eq(strbuf_text(&g.warnings), cases[i][1], "%s", cases[i][0]);
    }
}

Test(job_options, answers_help_and_version_before_anything_else) {
    _cleanup_(reading_fini) struct reading help = read_line("PET_STANDALONE=zzz | --help");
    cr_assert_eq(help.r, JOB_OPTIONS_HELP);
    _cleanup_(reading_fini) struct reading version = read_line("--nnodes=zzz --version");
    cr_assert_eq(version.r, JOB_OPTIONS_VERSION);
}

Test(job_options, prints_the_job_as_one_json_object_without_a_password) {
    _cleanup_(reading_fini) struct reading g =
        read_line("--print-config --nproc=2 --local-ranks-filter=1 -t 1:2 --contain=none x.py a\"b\\ \tc");
    cr_assert_eq(g.r, JOB_OPTIONS_PRINT_CONFIG);
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    job_print_config(&g.spec, &out);
    _cleanup_(json_freep) struct json *doc = NULL;
    struct err err = {0};
    cr_assert_eq(json_parse(strbuf_text(&out), out.len, &JSON_LIMITS_DEFAULT, &doc, &err), 0, "%s", err.text);
    assert_has(strbuf_text(&out), "\n  \"args\": [\"a\\\"b\\\\\", \"\\u0009c\"],\n");
    assert_shown("", &g.spec, "nproc_per_node=2 tee=[0,2] local_ranks_filter=[1] leave=none contain=none");
    _cleanup_(reading_fini) struct reading etcd =
        read_line("--rdzv-id=j --rdzv-endpoint=etcds://me:hidden@h,g/p --spares=2 --event-log=- x");
    assert_shown("", &etcd.spec,
                 "backend=etcd etcd_endpoints=['h:2379','g:2379'] etcd_prefix=/p etcd_tls=true etcd_user=me "
                 "etcd_password=*** arbiter_dir=null spares=2 event_log=-");
    strbuf_clear(&out);
    job_print_config(&etcd.spec, &out);
    cr_assert_null(strstr(strbuf_text(&out), "hidden"));
    cr_assert_null(strstr(strbuf_text(&etcd.warnings), "hidden"));
}
