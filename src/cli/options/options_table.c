#include "cli/options/options_table.h"

#define ENV OPTION_ENV
#define OURS OPTION_OURS

static const struct option_def defs[RUN_OPTION_COUNT] = {
    [RUN_NNODES] = {"nnodes", 0, "N|MIN:MAX", "1:1", NULL, ENV, "The job",
                    "Number of nodes, or the smallest and the largest number the job may run with"},
    [RUN_NPROC_PER_NODE] =
        {"nproc-per-node", 0, "N", "1", NULL, ENV, NULL,
         "Workers of this node: a number, \"cpu\" (one per CPU this process may use), \"gpu\" (one "
         "per visible GPU) or \"auto\" (gpu where there is one, else cpu)"},
    [RUN_STANDALONE] =
        {"standalone", 0, NULL, NULL, NULL, ENV, NULL,
         "One node with a port and a run id of its own; the rendezvous options are ignored. A job "
         "of one node without an endpoint and a master port runs like this anyway"},
    [RUN_MAX_RESTARTS] =
        {"max-restarts", 0, "N", "0", NULL, ENV, NULL,
         "How often the whole job may be started again after a worker failed, counted over all "
         "nodes"},
    [RUN_MAX_NODE_LOSSES] =
        {"max-node-losses", 0, "N", NULL, NULL, ENV | OURS, NULL,
         "How many nodes may be lost before the job ends; any number otherwise"},
    [RUN_EXCLUDE_AFTER] = {"exclude-after", 0, "N", "3", NULL, ENV | OURS, NULL,
                           "A node that failed N times in a row is excluded; 0: never"},
    [RUN_RESTART_BACKOFF] =
        {"restart-backoff", 0, "SECONDS", "0", NULL, ENV | OURS, NULL,
         "Wait before a restart after a failure; twice as long each time, up to 32 times"},
    [RUN_CRASH_LOOP] =
        {"crash-loop", 0, "SECONDS", "5", NULL, ENV | OURS, NULL,
         "The same failure within the first SECONDS twice in a row ends the job although restarts "
         "are left, and so do eight groups in a row that ended early without a failure; 0: never"},
    [RUN_NODE_UNIT] = {"node-unit", 0, "N", "1", NULL, ENV | OURS, NULL,
                       "The job runs with a multiple of N nodes; nodes beyond it are spares"},
    [RUN_SPARES] =
        {"spares", 0, "N", NULL, NULL, ENV | OURS, NULL,
         "How many nodes beyond the largest number may wait to take a lost node's place; any "
         "number otherwise"},
    [RUN_GROW] =
        {"grow", 0, "WHEN", "boundary", "now boundary never", ENV | OURS, NULL,
         "When a running job takes in more nodes, up to its largest number: now (it restarts), at "
         "a boundary (a worker reports a safe point, or it restarts anyway), or never but then"},
    [RUN_REGROUP_WAIT] = {"regroup-wait", 0, "SECONDS", NULL, NULL, ENV | OURS, NULL,
                          "How long the place of a lost node is kept for another (0)"},
    [RUN_ROLE] = {"role", 0, "NAME", "default", NULL, ENV, NULL,
                  "Name of this node's workers (ROLE_NAME); ranks are also counted within a role"},
    [RUN_MODULE] = {"module", 'm', NULL, NULL, NULL, ENV, "The program",
                    "SCRIPT is the name of a module: run it as python -m does"},
    [RUN_NO_PYTHON] = {"no-python", 0, NULL, NULL, NULL, ENV, NULL,
                       "SCRIPT is a program: run it without python"},
    [RUN_RUN_PATH] =
        {"run-path", 0, NULL, NULL, NULL, ENV, NULL,
         "Run SCRIPT by a python of its own, also with --no-python; torchrun runs it inside the "
         "launcher"},
    [RUN_VIRTUAL_LOCAL_RANK] =
        {"virtual-local-rank", 0, NULL, NULL, NULL, ENV, NULL,
         "Each worker sees only its own GPU, as device 0 (CUDA_VISIBLE_DEVICES), and LOCAL_RANK=0"},
    [RUN_START_METHOD] = {"start-method", 0, "METHOD", "spawn", "spawn fork forkserver", ENV, NULL,
                          "Accepted, and without effect: every worker is a program of its own"},
    [RUN_BIND] =
        {"bind", 0, "HOW", NULL, "none numa socket core", ENV | OURS, "CPUs, memory and GPUs",
         "CPUs of each worker: those of its GPU's NUMA node or socket (without GPUs nodes and "
         "sockets are dealt to local ranks), or cores of its own. numa where GPUs are found, else "
         "none"},
    [RUN_BIND_MEMORY] =
        {"bind-memory", 0, "HOW", "preferred", "preferred strict off", ENV | OURS, NULL,
         "Memory of a worker that is bound comes from the same NUMA nodes: first, only, or "
         "as the kernel likes"},
    [RUN_NUMA_BINDING] =
        {"numa-binding", 0, "MODE", NULL, "node socket exclusive core-complex", 0, NULL,
         "CPUs of each worker near the GPU of its local rank, as torchrun chooses them"},
    [RUN_OMP] =
        {"omp", 0, "HOW", "torchrun", "torchrun cores", ENV | OURS, NULL,
         "OMP_NUM_THREADS where it is not set: 1 with several workers, or the cores that a worker "
         "has"},
    [RUN_GPUS_PER_WORKER] = {"gpus-per-worker", 0, "N", NULL, NULL, ENV | OURS, NULL,
                             "Each worker sees N GPUs of its own (CUDA_VISIBLE_DEVICES)"},
    [RUN_RDZV_BACKEND] =
        {"rdzv-backend", 0, "NAME", "static", NULL, ENV, "Finding each other",
         "How the nodes meet: \"c10d\" (at the endpoint), \"dir\" (in a shared directory), "
         "\"etcd\" or \"static\" (ranks by --node-rank). With dir and etcd the job outlives the "
         "loss of any node. An endpoint that names a directory or etcd chooses it by itself"},
    [RUN_RDZV_ENDPOINT] =
        {"rdzv-endpoint", 0, "PLACE", "", NULL, ENV, NULL,
         "Where the nodes meet. HOST[:PORT]: the agent on that host leads; PORT is 29400 for c10d. "
         "dir:/PATH: a directory that all nodes see. etcd://HOST[:PORT],.../PREFIX (etcds:// for "
         "TLS): etcd; PORT is 2379, PREFIX /muster"},
    [RUN_RDZV_ID] = {"rdzv-id", 0, "ID", "none", NULL, ENV, NULL,
                     "Name of the job, the same on all its nodes"},
    [RUN_RDZV_CONF] =
        {"rdzv-conf", 0, "KEY=VALUE,...", "", NULL, ENV, NULL,
         "More about meeting: join_timeout, last_call_timeout, regroup_timeout, close_timeout, "
         "read_timeout, keep_alive_interval, keep_alive_max_attempt (seconds, and a number), "
         "is_host; for etcd: protocol, etcd_prefix, cacert, ssl_cert, ssl_cert_key, etcd_user, "
         "etcd_password_file"},
    [RUN_NODE_RANK] =
        {"node-rank", 0, "N", NULL, NULL, ENV, NULL,
         "Rank of this node with static rendezvous; 0 leads. Otherwise its place in the order of "
         "the nodes, as a wish"},
    [RUN_RANK_ORDER] =
        {"rank-order", 0, "ORDER", "host", "host join topology", ENV | OURS, NULL,
         "Order of nodes without --node-rank: by host name, as they join, or by their place in the "
         "network (SLURM_TOPOLOGY_ADDR, or --topology-file)"},
    [RUN_TOPOLOGY_FILE] =
        {"topology-file", 0, "FILE", NULL, NULL, ENV | OURS, NULL,
         "Which nodes are on which switch, for --rank-order=topology where SLURM_TOPOLOGY_ADDR is "
         "not set: Slurm's topology.conf, or lines \"SWITCH: NODE NODE\""},
    [RUN_PREFLIGHT] =
        {"preflight", 0, "HOW", "warn", "off warn strict", ENV | OURS, NULL,
         "Jobs of several nodes: look whether the nodes are alike and neighbours reach each other, "
         "and report what is wrong (warn), start no worker then (strict), or don't check (off)"},
    [RUN_MASTER_ADDR] = {"master-addr", 0, "ADDR", "127.0.0.1", NULL, ENV, NULL,
                         "Host of node 0 with static rendezvous"},
    [RUN_MASTER_PORT] = {"master-port", 0, "PORT", NULL, NULL, ENV, NULL,
                         "Its port; 29500 when there are several nodes"},
    [RUN_LOCAL_ADDR] =
        {"local-addr", 0, "ADDR", NULL, NULL, ENV, NULL,
         "Address at which the other nodes reach this one; found by itself otherwise"},
    [RUN_HEARTBEAT_INTERVAL] = {"heartbeat-interval", 0, "SECONDS", NULL, NULL, ENV | OURS, NULL,
                                "How often a node renews its lease (1)"},
    [RUN_LEASE] =
        {"lease", 0, "SECONDS", NULL, NULL, ENV | OURS, NULL,
         "How long the workers of a node live without news from the leader (5, or 5 heartbeats)"},
    [RUN_ARBITER_LEASE] =
        {"arbiter-lease", 0, "SECONDS", NULL, NULL, ENV | OURS, NULL,
         "How long the job runs on while the directory or etcd can't be reached (60, or 2 leases)"},
    [RUN_HOLD] =
        {"hold", 0, "SECONDS", "2", NULL, ENV | OURS, NULL,
         "Several nodes that fall silent at once are probed for so long before they count as "
         "lost"},
    [RUN_LOG_DIR] =
        {"log-dir", 0, "DIR", NULL, NULL, ENV, "Output",
         "Where log files go: DIR/RUN ID/GENERATION/NODE/RANK/; /dev/null: no files at all"},
    [RUN_REDIRECTS] =
        {"redirects", 'r', "STREAMS", "0", NULL, ENV, NULL,
         "Write streams of the workers to files: 0 none, 1 stdout, 2 stderr, 3 both; or by local "
         "rank: 0:3,1:1"},
    [RUN_TEE] = {"tee", 't', "STREAMS", "0", NULL, ENV, NULL,
                 "The same, and to the terminal with a prefix"},
    [RUN_LOCAL_RANKS_FILTER] = {"local-ranks-filter", 0, "RANK,...", "", NULL, ENV, NULL,
                                "Only these local ranks write to the terminal"},
    [RUN_LOG_LINE_PREFIX_TEMPLATE] = {"log-line-prefix-template", 0, "TEXT", NULL, NULL, ENV, NULL,
                                      "Prefix of --tee with ${role_name}, ${local_rank}, ${rank}; "
                                      "[${role_name}${local_rank}]: otherwise"},
    [RUN_DUPLICATE_STDOUT_FILTERS] =
        {"duplicate-stdout-filters", 0, "TEXT,...", "", NULL, ENV, NULL,
         "Copy lines with such a text to a file; not supported by this version, and refused"},
    [RUN_DUPLICATE_STDERR_FILTERS] = {"duplicate-stderr-filters", 0, "TEXT,...", "", NULL, ENV,
                                      NULL, "Likewise, for stderr"},
    [RUN_LOGS_SPECS] = {"logs-specs", 0, "NAME", NULL, NULL, 0, NULL,
                        "A Python plug-in of torchrun; refused"},
    [RUN_EVENT_LOG] =
        {"event-log", 0, "FILE", NULL, NULL, ENV | OURS, NULL,
         "Append a JSON line to FILE for each thing that happens to the group, while this agent "
         "leads; -: standard error"},
    [RUN_EVENT_LOG_HANDLER] = {"event-log-handler", 0, "NAME", "null", "null console", ENV, NULL,
                               "console is the same as --event-log=-"},
    [RUN_VERBOSE] = {"verbose", 'v', NULL, NULL, NULL, OURS, NULL, "Say more; twice: everything"},
    [RUN_QUIET] = {"quiet", 'q', NULL, NULL, NULL, OURS, NULL, "Only failures are reported"},
    [RUN_MONITOR_INTERVAL] =
        {"monitor-interval", 0, "SECONDS", "0.1", NULL, ENV, "Ending",
         "Accepted, and without effect: every exit is noticed when it happens"},
    [RUN_SIGNALS_TO_HANDLE] = {"signals-to-handle", 0, "NAME,...", "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
                               NULL, ENV, NULL,
                               "Signals that end the job in good order when muster gets them"},
    [RUN_SHUTDOWN_TIMEOUT] = {"shutdown-timeout", 0, "SECONDS", NULL, NULL, ENV, NULL,
                              "Time for workers to end by themselves before they are killed "
                              "(TORCH_ELASTIC_SHUTDOWN_TIMEOUT, or 30)"},
    [RUN_CONTAIN] =
        {"contain", 0, "HOW", "auto", "auto none cgroup pidns", ENV | OURS, NULL,
         "What keeps workers from outliving muster when agent and guardian are killed at once: a "
         "cgroup, a pid namespace, none, or auto: a cgroup where one was given to us"},
    [RUN_NCCL_ENV] =
        {"nccl-env", 0, "HOW", "full", "off minimal full", ENV | OURS, "The workers' environment",
         "What is set for NCCL, gloo and PyTorch where nothing else sets it: off nothing, minimal "
         "what nodes "
         "need to find each other, full also what helps when something goes wrong; muster env "
         "shows "
         "it"},
    [RUN_ENV] = {"env", 0, "NAME=VALUE", NULL, NULL, OURS | OPTION_REPEATS, NULL,
                 "Set a variable for the workers, whatever its value elsewhere; may be repeated"},
    [RUN_ENV_FILE] = {"env-file", 0, "FILE", NULL, NULL, ENV | OURS | OPTION_REPEATS, NULL,
                      "The same from a file, one NAME=VALUE a line, before those of --env"},
    [RUN_NCCL_COMM_ID] =
        {"nccl-comm-id", 0, NULL, NULL, NULL, ENV | OURS, NULL,
         "Set NCCL_COMM_ID, for programs that exchange no id of their own; its port changes with "
         "each restart"},
    [RUN_NCCL_DEBUG] = {"nccl-debug", 0, NULL, NULL, NULL, ENV | OURS, NULL,
                        "NCCL_DEBUG=INFO, into a file per worker in the log directory"},
    [RUN_PRINT_CONFIG] =
        {"print-config", 0, NULL, NULL, NULL, OURS, "Other",
         "Print what the command line and the environment come to, as JSON lines, and exit"},
    [RUN_VERSION] = {"version", 'V', NULL, NULL, NULL, OURS | OPTION_STOPS, NULL,
                     "Print muster's version and exit"},
    [RUN_HELP] = {"help", 'h', NULL, NULL, NULL, OPTION_STOPS, NULL, "Print this and exit"},
};

const struct option_set run_options = {
    .command = "run",
    .operands = "SCRIPT [ARGS...]",
    .about = "Starts the workers of one node of a job, watches them, and with its peers on the "
             "other nodes restarts all of them when one fails. What follows SCRIPT is SCRIPT's.",
    .defs = defs,
    .n = RUN_OPTION_COUNT,
};
