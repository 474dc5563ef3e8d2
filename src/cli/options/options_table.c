#include "cli/options/options_table.h"

#include <stddef.h>

#include "launcher/job/job.h"
#include "rendezvous/protocol/messages.h"
#include "topology/model/gpu_count.h"

#define ENV OPTION_ENV
#define OURS OPTION_OURS
#define SHORT OPTION_SHORT

/* The field of job_spec that an ordinary option fills in. */
#define FIELD(of_kind, field) .kind = of_kind, .at = offsetof(struct job_spec, field)
#define SWITCH(field) FIELD(OPTION_SWITCH, field)
#define SECONDS(field) FIELD(OPTION_SECONDS, field)
#define TEXT(field) FIELD(OPTION_TEXT, field)
#define RANGE(field, low, high, text) \
    FIELD(OPTION_COUNT, field), .least = low, .most = high, .must = text
#define COUNT(field) RANGE(field, 0, INT32_MAX, "a number, 0 or more")
/* The value of each of `choices`, in their order. */
#define CHOICE(field, ...) \
    FIELD(OPTION_CHOICE, field), .values = (const uint8_t[]) { __VA_ARGS__ }

static const struct option_def defs[] = {
    {"nnodes", "N|MIN:MAX", ENV | SHORT,
     "Number of nodes, or the smallest and the largest number with which the job may run",
     .brief = "number of nodes, or the fewest and the most (1)", .id = RUN_NNODES,
     .fallback = "1:1", .section = "The job"},
    {"nproc-per-node", "N", ENV | SHORT,
     "Workers of this node: a number, \"cpu\" (one per CPU this process may use), \"gpu\" (one per "
     "visible GPU) or \"auto\" (gpu where there is one, else cpu)",
     .brief = "workers of this node: a number, cpu, gpu or auto (1)", .offer = "auto cpu gpu",
     .id = RUN_NPROC_PER_NODE, .fallback = "1"},
    {"standalone", NULL, ENV,
     "Run on one node, with a free port and a run id of its own; the rendezvous options are "
     "ignored. A job of one node without an endpoint and a master port always runs like this",
     .id = RUN_STANDALONE},
    {"max-restarts", "N", ENV | SHORT,
     "How often the whole job may be restarted after failures of workers, counted over all nodes",
     .brief = "how often the whole job restarts after a failure (0)", COUNT(rdzv.max_restarts)},
    {"max-node-losses", "N", ENV | OURS,
     "How many nodes may be lost before the job ends; by default any number",
     COUNT(rdzv.max_node_losses)},
    {"exclude-after", "N", ENV | OURS,
     "Exclude a node on which a worker failed N times in a row; 0: never",
     COUNT(rdzv.exclude_after)},
    {"restart-backoff", "SECONDS", ENV | OURS,
     "Time to wait before a restart after a failure; doubled each time, up to 32 times as long",
     SECONDS(rdzv.restart_backoff_ns)},
    {"crash-loop", "SECONDS", ENV | OURS,
     "End the job, even if restarts remain, if the same failure comes twice in a row within "
     "SECONDS of a start, or if eight groups in a row end early without a failure; 0: never",
     SECONDS(rdzv.crash_loop_ns)},
    {"node-unit", "N", ENV | OURS, "Run with a multiple of N nodes; further nodes are spares",
     RANGE(rdzv.node_unit, 1, UINT32_MAX, "a number of nodes, 1 or more")},
    {"node-unit-of", "WHICH", ENV | OURS,
     "domain: each unit has nodes of one NVLink rack or Slurm block, and a spare replaces a node "
     "of its own, if every node is in one; any: this does not matter",
     .choices = "domain any", CHOICE(rdzv.unit_of, UNIT_OF_DOMAIN, UNIT_OF_ANY)},
    {"spares", "N", ENV | OURS,
     "How many nodes beyond the largest number may wait to replace a lost node; by default any "
     "number",
     COUNT(rdzv.spares)},
    {"grow", "WHEN", ENV | OURS,
     "When a running job adds more nodes, up to its largest number: now (it restarts for them), "
     "boundary (when a worker reports a safe point, or the job restarts anyway), or never (only "
     "when the job restarts anyway)",
     .choices = "now boundary never", CHOICE(rdzv.grow, GROW_NOW, GROW_BOUNDARY, GROW_NEVER)},
    {"regroup-wait", "SECONDS", ENV | OURS,
     "How long the slot of a lost node is kept for a replacement", .id = RUN_REGROUP_WAIT,
     SECONDS(rdzv.regroup_wait_ns), .key = "regroup_timeout"},
    {"host", "LIST", OURS | SHORT,
     "Hosts on which to start muster over ssh: NAME or USER@NAME, each with :N for N workers (for "
     "a port, see --ssh), separated by commas; names as in node[01-04], too",
     .brief = "start it on these hosts over ssh: node1,node2:4", .id = RUN_HOST, .letter = 'H'},
    {"hostfile", "FILE", OURS,
     "The same from a file: a host on each line, with slots=N or :N, as for mpirun, DeepSpeed and "
     "Slurm",
     .id = RUN_HOSTFILE},
    {"include", "HOSTS", OURS, "Only these hosts, and of a host only these GPUs: node1@node2:0,2",
     .id = RUN_INCLUDE},
    {"exclude", "HOSTS", OURS, "All but these hosts or GPUs: node1@node2:0,2", .id = RUN_EXCLUDE},
    {"ssh", "COMMAND", OURS, "The command that reaches a host, with its options; by default ssh",
     .id = RUN_SSH, TEXT(hosts.ssh)},
    {"export", "NAMES", OURS,
     "The variables that agents on other hosts get from here: ALL (all but those of this machine "
     "or login; the default), NONE, or names, NAME=VALUE and PREFIX*, separated by commas",
     .id = RUN_EXPORT, TEXT(hosts.export_names)},
    {"starter", "HOW", ENV | OURS,
     "What starts muster on all nodes: ssh, srun (from a batch script, salloc or an interactive "
     "step), the command of another batch system, or nothing (none). auto is ssh if hosts are "
     "given, and in a job of several nodes what that batch system has, unless an endpoint or "
     "--nnodes=1 is given",
     .id = RUN_STARTER, .choices = JOB_STARTER_WORDS,
     CHOICE(starter, JOB_STARTER_AUTO, JOB_STARTERS(JOB_STARTER_ENUM))},
    {"role", "NAME", ENV,
     "Name of the role of this node's workers (ROLE_NAME); ranks are also counted within a role",
     .fallback = "default", TEXT(role), .most = RDZV_ROLE_MAX - 1},
    {"module", NULL, ENV | SHORT, "SCRIPT is the name of a module: run it as python -m does",
     .brief = "SCRIPT is a module: run it as python -m does", .id = RUN_MODULE, .letter = 'm',
     .section = "The program"},
    {"no-python", NULL, ENV, "SCRIPT is a program: run it without python", .id = RUN_NO_PYTHON},
    {"run-path", NULL, ENV,
     "Run SCRIPT with python in a process of its own, also with --no-python; torchrun runs it "
     "inside the launcher",
     .id = RUN_RUN_PATH},
    {"virtual-local-rank", NULL, ENV,
     "Each worker sees only its own GPU, as device 0 (CUDA_VISIBLE_DEVICES), and LOCAL_RANK=0",
     SWITCH(virtual_local_rank)},
    {"start-method", "METHOD", ENV | OPTION_ENV_FREE,
     "Accepted without effect: every worker is a separate program", .fallback = "spawn",
     .choices = "spawn fork forkserver", TEXT(start_method)},
    {"bind", "HOW", ENV | OURS,
     "CPUs of each worker: those of its GPU's NUMA node or socket (without GPUs, nodes and sockets "
     "are distributed to the local ranks), or exclusive cores. The default is numa if GPUs are "
     "found, else none",
     .id = RUN_BIND, .choices = "none numa socket core", .section = "CPUs, memory and GPUs"},
    {"bind-memory", "HOW", ENV | OURS,
     "Memory of a bound worker comes from the same NUMA nodes, first or only (preferred, strict), "
     "or from where the kernel chooses (off)",
     .id = RUN_BIND_MEMORY, .choices = "preferred strict off",
     CHOICE(bind_memory, BIND_MEMORY_PREFERRED, BIND_MEMORY_STRICT, BIND_MEMORY_OFF)},
    {"numa-binding", "MODE", 0,
     "CPUs of each worker near the GPU of its local rank, as torchrun chooses them",
     .id = RUN_NUMA_BINDING, .choices = "node socket exclusive core-complex"},
    {"omp", "HOW", ENV | OURS,
     "OMP_NUM_THREADS if it is not set: 1 with several workers, or the number of a worker's cores",
     .choices = "torchrun cores", CHOICE(omp, JOB_OMP_TORCHRUN, JOB_OMP_CORES)},
    {"gpus-per-worker", "N", ENV | OURS,
     "Each worker sees N GPUs of its own (CUDA_VISIBLE_DEVICES)",
     RANGE(gpus_per_worker, 1, GPUS_MAX, "a number of GPUs, 1 to 256")},
    {"rdzv-backend", "NAME", ENV | SHORT,
     "How the nodes meet: \"c10d\" (at the endpoint), \"dir\" (in a shared directory), \"etcd\" or "
     "\"static\" (ranks by --node-rank). With dir and etcd the job survives the loss of any node. "
     "An endpoint that names a directory or etcd selects that backend",
     .brief = "how nodes meet: c10d, static, dir or etcd (static)", .offer = "c10d static dir etcd",
     .id = RUN_RDZV_BACKEND, .fallback = "static", .section = "Rendezvous"},
    {"rdzv-endpoint", "PLACE", ENV | SHORT,
     "Where the nodes meet. HOST[:PORT]: the agent on that host leads; PORT is 29400 for c10d, or "
     "a list like 29400-29415,30000, of which it takes the first that is free. dir:/PATH: a "
     "directory that all nodes see. etcd://HOST[:PORT],.../PREFIX (etcds:// for TLS): "
     "etcd; PORT is 2379, PREFIX /muster",
     .brief = "where: HOST[:PORT], dir:/PATH or etcd://HOST[:PORT]", .id = RUN_RDZV_ENDPOINT,
     .fallback = ""},
    {"rdzv-id", "ID", ENV | SHORT,
     "Name of the job, the same on all its nodes. Without it, a job of one node, or whose nodes "
     "muster starts, has the script's name with date and time",
     .brief = "name of the job (\"none\"; one node: script and time)", .id = RUN_RDZV_ID,
     .fallback = "none"},
    {"rdzv-conf", "KEY=VALUE,...", ENV | OPTION_COMMAS,
     "Further settings of the rendezvous: join_timeout, last_call_timeout, regroup_timeout, "
     "close_timeout, read_timeout, keep_alive_interval, keep_alive_max_attempt (seconds, and a "
     "number), is_host, store_type; for static: timeout; for etcd: protocol, etcd_prefix, cacert, "
     "ssl_cert, ssl_cert_key, etcd_user, etcd_password_file",
     .offer =
         "join_timeout= last_call_timeout= regroup_timeout= close_timeout= read_timeout= "
         "keep_alive_interval= keep_alive_max_attempt= timeout= is_host= store_type= protocol= "
         "etcd_prefix= cacert= ssl_cert= ssl_cert_key= etcd_user= etcd_password_file=",
     .id = RUN_RDZV_CONF, .fallback = ""},
    {"node-rank", "N", ENV | SHORT,
     "Rank of this node with static rendezvous; 0 leads. Otherwise its preferred position among "
     "the nodes",
     .brief = "rank of this node with static; 0 leads", .id = RUN_NODE_RANK},
    {"rank-order", "ORDER", ENV | OURS,
     "Order of nodes without --node-rank: by host name, in the order of joining, or by their "
     "position in the network (SLURM_TOPOLOGY_ADDR, or --topology-file)",
     .choices = "host join topology",
     CHOICE(rdzv.rank_order, RANK_ORDER_HOST, RANK_ORDER_JOIN, RANK_ORDER_TOPOLOGY)},
    {"topology-file", "FILE", ENV | OURS,
     "Which nodes are on which switch or in which block, if SLURM_TOPOLOGY_ADDR has neither: "
     "Slurm's topology.conf or topology.yaml, or lines \"SWITCH: NODE NODE\"",
     .id = RUN_TOPOLOGY_FILE},
    {"preflight", "HOW", ENV | OURS,
     "Check whether the nodes are healthy and alike and neighbours reach each other, of one node "
     "its GPUs, and report problems (warn), start no worker if there are any (strict), or don't "
     "check, nor ask for Xids (off)",
     .choices = "off warn strict",
     CHOICE(preflight, JOB_PREFLIGHT_OFF, JOB_PREFLIGHT_WARN, JOB_PREFLIGHT_STRICT)},
    {"health-check", "COMMAND", ENV | OURS,
     "A line for /bin/sh that checks this node before it joins, and again after one of its workers "
     "failed or hung; status 0: the node is fit, 1: it is not, others: not known",
     TEXT(health_check)},
    {"health-timeout", "SECONDS", ENV | OURS,
     "How long --health-check may take before it is killed and the result is not known",
     SECONDS(health_timeout_ns), .least = 1},
    {"sick-nodes", "WHAT", ENV | OURS,
     "A node that is not fit: leave it out of the next group if there are enough other nodes "
     "(exclude), or only report it (report)",
     .choices = "exclude report", CHOICE(rdzv.sick_nodes, SICK_NODES_EXCLUDE, SICK_NODES_REPORT)},
    {"master-addr", "ADDR", ENV | SHORT,
     "Host of node 0 with static rendezvous; otherwise, with --master-port, MASTER_ADDR of the "
     "workers",
     .brief = "host of node 0 with static (127.0.0.1)", .id = RUN_MASTER_ADDR,
     .fallback = "127.0.0.1"},
    {"master-port", "PORT", ENV,
     "Port of node 0 with static rendezvous (29500 if there are several nodes); otherwise "
     "MASTER_PORT of the workers, a free port by default",
     .id = RUN_MASTER_PORT},
    {"port-range", "LOW-HIGH", ENV | OURS,
     "The range from which muster takes free ports, for a firewall; the same on all nodes",
     .id = RUN_PORT_RANGE},
    {"local-addr", "ADDR", ENV,
     "Address at which the other nodes reach this one; determined automatically by default",
     TEXT(local_addr)},
    {"auth", "HOW", ENV | OURS,
     "Which processes may connect to the job. On its own machines: those of this user and root. "
     "From other machines: those with its key; if no node has a key, all (auto) or none (on). With "
     "none: any process, from any machine",
     .choices = "auto on none", CHOICE(auth, AUTH_AUTO, AUTH_ON, AUTH_NONE)},
    {"key-file", "FILE", OURS,
     "File with the job's key, as muster keygen writes it; the same key on all nodes. No other key "
     "is used then. MUSTER_KEY_FILE is the default, or MUSTER_KEY, which holds a key itself",
     TEXT(key_file)},
    {"store-check", "HOW", ENV | OURS,
     "Which clients the workers' store admits: processes of this user and root on the job's nodes "
     "(uid), any client from a node's address (member), or any client (none: for programs that are "
     "not the job's, such as torchft)",
     .choices = "uid member none",
     CHOICE(store_check, STORE_CHECK_UID, STORE_CHECK_MEMBER, STORE_CHECK_NONE)},
    {"heartbeat-interval", "SECONDS", ENV | OURS, "How often a node renews its lease (1)",
     .id = RUN_HEARTBEAT_INTERVAL},
    {"lease", "SECONDS", ENV | OURS,
     "How long the workers of a node run without a message from the leader (5, or 5 heartbeats)",
     .id = RUN_LEASE},
    {"arbiter-lease", "SECONDS", ENV | OURS,
     "How long the job continues while the directory or etcd can't be reached (60, or 2 leases)",
     .id = RUN_ARBITER_LEASE},
    {"hold", "SECONDS", ENV | OURS,
     "How long several nodes that become silent at once are probed before they are declared lost",
     SECONDS(rdzv.hold_ns)},
    {"log-dir", "DIR", ENV | SHORT,
     "Folder for the log files of -r and -t: DIR/RUN ID/GENERATION/NODE/RANK/; /dev/null: no files",
     .brief = "folder for the log files of -t and -r", .section = "Output", TEXT(log_dir)},
    {"log-mode", "MODE", ENV | OURS,
     "Permissions of log files and the event log, in octal: 0640 for a group, 0644 for all; users "
     "who may read the files may also enter their folders",
     .id = RUN_LOG_MODE, .offer = "0600 0640 0644", .fallback = "0600"},
    {"redirects", "STREAMS", ENV,
     "Write streams of the workers to files: 0 none, 1 stdout, 2 stderr, 3 both; or by local rank: "
     "0:3,1:1",
     .offer = "0 1 2 3", .id = RUN_REDIRECTS, .letter = 'r', .fallback = "0"},
    {"tee", "STREAMS", ENV | SHORT, "Write streams to files and, with a prefix, to the terminal",
     .brief = "to files and terminal: 1 stdout, 2 stderr, 3 both", .offer = "0 1 2 3",
     .id = RUN_TEE, .letter = 't', .fallback = "0"},
    {"local-ranks-filter", "RANK,...", ENV, "Only these local ranks write to the terminal",
     .id = RUN_LOCAL_RANKS_FILTER, .fallback = ""},
    {"prefix", "WHEN", ENV | OURS,
     "When lines of workers begin with a prefix, [rankN]:. auto: with --tee, on a terminal to "
     "which "
     "several workers of this node write, and where the output of several nodes comes together",
     .choices = "auto always never",
     CHOICE(prefix, JOB_PREFIX_AUTO, JOB_PREFIX_ALWAYS, JOB_PREFIX_NEVER)},
    {"log-line-prefix-template", "TEXT", ENV,
     "Another prefix, with ${role_name}, ${local_rank}, ${rank}; the default with -t or -r is "
     "torchrun's, [${role_name}${local_rank}]:",
     TEXT(line_prefix), .key = "line_prefix", .variable = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"},
    {"duplicate-stdout-filters", "TEXT,...", ENV,
     "Also write lines of --tee that contain one of these texts to the node's "
     "filtered_stdout.log; two commas mean one",
     .id = RUN_DUPLICATE_STDOUT_FILTERS, .fallback = ""},
    {"duplicate-stderr-filters", "TEXT,...", ENV,
     "The same for standard error: filtered_stderr.log", .id = RUN_DUPLICATE_STDERR_FILTERS,
     .fallback = ""},
    {"logs-specs", "NAME", 0, "Only \"default\": others are plug-ins written in Python",
     .id = RUN_LOGS_SPECS},
    {"output-spool", "SIZE", ENV | OURS,
     "How many bytes of output may wait in an unnamed file, in TMPDIR or /tmp, while the reader is "
     "slow, before workers must wait: a number, or one with K, M or G; 0: no file",
     .id = RUN_OUTPUT_SPOOL, .fallback = "1G"},
    {"event-log", "FILE", ENV | OURS,
     "Append a JSON line to FILE for each event of the job while this agent leads; - means "
     "standard error; the default with --log-dir is DIR/RUN_ID/events.jsonl",
     .id = RUN_EVENT_LOG},
    {"event-log-handler", "NAME", ENV, "console is the same as --event-log=-",
     .id = RUN_EVENT_LOG_HANDLER, .fallback = "null", .choices = "null console"},
    {"verbose", NULL, OURS, "Print more messages; -vv: all", .id = RUN_VERBOSE, .letter = 'v'},
    {"quiet", NULL, OURS, "Print failures only", .letter = 'q', SWITCH(quiet)},
    {"monitor-interval", "SECONDS", ENV,
     "Accepted without effect: every exit is noticed when it happens", .id = RUN_MONITOR_INTERVAL,
     .fallback = "0.1", .section = "Ending"},
    {"signals-to-handle", "NAME,...", ENV | OPTION_COMMAS, "Signals that end the job gracefully",
     .offer = "SIGTERM SIGINT SIGHUP SIGQUIT SIGUSR1 SIGUSR2", .id = RUN_SIGNALS_TO_HANDLE,
     .fallback = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
    {"shutdown-timeout", "SECONDS", ENV,
     "How long workers, and then the processes that they leave, have to end by themselves before "
     "they are killed",
     SECONDS(shutdown_timeout_ns), .variable = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"},
    {"hang-action", "WHAT", ENV | OURS,
     "What to do when the job hangs: restart it, which uses up a restart; report it and stop "
     "nothing; or do not watch (off). auto restarts if --max-restarts is not 0 and ranks wait for "
     "each other: one "
     "is in a collective, waits for the store, or is stopped; otherwise it reports. An endless "
     "loop and a long evaluation on one rank look alike: only --hang-timeout distinguishes them",
     .choices = "auto restart report off",
     CHOICE(hang.action, HANG_ACTION_AUTO, HANG_ACTION_RESTART, HANG_ACTION_REPORT,
            HANG_ACTION_OFF)},
    {"hang-timeout", "SECONDS", ENV | OURS,
     "How long most ranks may wait for one that is busy before the job counts as hung; 0: no limit",
     SECONDS(hang.limits.timeout_ns)},
    {"hang-still", "SECONDS", ENV | OURS,
     "The same while nothing moves on any node: each main thread uses less than 1 ms of CPU in a "
     "second (2 % of a core if it only polls) and writes nothing, other threads use less than 5 % "
     "of a core, and no child computes and no bytes are moved; 0: no limit",
     SECONDS(hang.limits.still_ns)},
    {"hang-report", "SECONDS", ENV | OURS,
     "Report that most ranks have not moved for this long, and again after 5 minutes; no process "
     "is stopped for it; 0: no report",
     SECONDS(hang.limits.report_ns)},
    {"evidence-timeout", "SECONDS", ENV | OURS,
     "How long a node may examine its workers when the job is quiet or hangs; 0: not at all",
     SECONDS(hang.evidence_timeout_ns)},
    {"profile", "HOW", ENV | OURS,
     "Take a sample of each worker once a second, and show where the time of the job goes in "
     "muster status and at the end: on or off. It costs at most 0.2 % of a core for 8 workers",
     .choices = "on off", CHOICE(profile, JOB_PROFILE_ON, JOB_PROFILE_OFF)},
    {"exit-code", "WHOSE", ENV | OURS,
     "Exit status of a job that failed: 1, as with torchrun, or that of the worker that failed "
     "first (128+N for signal N)",
     .choices = "torchrun worker", CHOICE(exit_code, JOB_EXIT_CODE_TORCHRUN, JOB_EXIT_CODE_WORKER)},
    {"requeue", "WHY,...", ENV | OURS | OPTION_COMMAS,
     "Put the Slurm job back into the queue when its workers have ended because it was preempted "
     "(preempt), lost nodes (node-fail) or has reached its time limit (timeout), if a worker has "
     "reported a safe point",
     .offer = "preempt node-fail timeout", .id = RUN_REQUEUE, .fallback = ""},
    {"max-requeues", "N", ENV | OURS, "How often a job is put back into the queue by --requeue",
     .id = RUN_MAX_REQUEUES, COUNT(max_requeues)},
    {"leave", "WHAT", ENV | OURS,
     "What may remain after a job that has succeeded: nothing (none), or processes that workers "
     "left in sessions of their own, such as uploads (detached)",
     .choices = "none detached", CHOICE(leave, JOB_LEAVE_NONE, JOB_LEAVE_DETACHED)},
    {"warm", "HOW", ENV | OURS,
     "Keep processes ready that have already imported what the script imports, so that a restart "
     "takes less time: forked from one process (fork, the same as --warm alone), separate "
     "processes (process), or none (off)",
     .choices = "off process fork", .bare = "fork",
     CHOICE(warm, JOB_WARM_OFF, JOB_WARM_PROCESS, JOB_WARM_FORK)},
    {"warm-after", "SECONDS", ENV | OURS,
     "How long workers run before --warm imports for the next start", SECONDS(warm_after_ns)},
    {"warm-skip", "NAMES", ENV | OURS, "Packages that --warm does not import, separated by commas",
     TEXT(warm_skip)},
    {"contain", "HOW", ENV | OURS,
     "What prevents workers from outliving muster when agent and guardian are killed at once: a "
     "cgroup, a pid namespace, none, or auto (a cgroup if one was delegated to muster)",
     .choices = "auto none cgroup pidns",
     CHOICE(contain, JOB_CONTAIN_AUTO, JOB_CONTAIN_NONE, JOB_CONTAIN_CGROUP, JOB_CONTAIN_PIDNS)},
    {"nccl-env", "HOW", ENV | OURS,
     "Which variables are set for NCCL, gloo and PyTorch if nothing else sets them: none (off), "
     "those that nodes need to find each other (minimal), or also those that help when something "
     "goes wrong (full); muster env shows them",
     .choices = "off minimal full", .section = "The workers' environment",
     CHOICE(nccl_env, NCCL_ENV_OFF, NCCL_ENV_MINIMAL, NCCL_ENV_FULL)},
    {"env", "NAME=VALUE", OURS | OPTION_REPEATS,
     "Set a variable for the workers, also if the environment has it; can be repeated",
     .id = RUN_ENV},
    {"env-file", "FILE", ENV | OURS | OPTION_REPEATS,
     "The same from a file, one NAME=VALUE per line, before those of --env", .id = RUN_ENV_FILE},
    {"nccl-comm-id", NULL, ENV | OURS,
     "Set NCCL_COMM_ID, for programs that exchange no id of their own; its port changes with each "
     "restart",
     SWITCH(nccl_comm_id)},
    {"nccl-debug", NULL, ENV | OURS,
     "Set NCCL_DEBUG=INFO; NCCL writes one file per worker in the log directory",
     SWITCH(nccl_debug)},
    {"dry-run", NULL, OURS | SHORT,
     "Print the command and the variables of each worker, as a shell takes them, and exit; nothing "
     "is started",
     .brief = "print how workers would start; start nothing", SWITCH(dry_run), .section = "Other"},
    {"print-config", NULL, OURS,
     "Print the settings that result from command line and environment, as one JSON object, and "
     "exit",
     .id = RUN_PRINT_CONFIG},
    {"version", NULL, OURS | OPTION_STOPS, "Print muster's version and exit", .id = RUN_VERSION,
     .letter = 'V'},
    {"help", NULL, OPTION_STOPS | SHORT, "Print the options that matter most and exit",
     .brief = "print this; --help-all: all options", .id = RUN_HELP, .letter = 'h'},
    {"help-all", NULL, OURS | OPTION_STOPS, "Print this and exit", .id = RUN_HELP_ALL},
};

/* ---- options of other launchers, and what muster has in their place ---- */

#define WORKERS "workers of each node: --nproc-per-node"
#define NODES "nodes of the job: --nnodes"
#define HOSTFILE "did you mean --hostfile?"

/* Names of accelerate, deepspeed, mpirun, srun, ft_launcher, torchx and torch's old launch. */
static const struct option_hint run_hints[] = {
    {"n", WORKERS},
    {"np", WORKERS},
    {"N", NODES},
    {"num-processes", WORKERS},
    {"num-procs", WORKERS},
    {"nprocs-per-node", WORKERS},
    {"num-gpus", WORKERS},
    {"ngpus", WORKERS},
    {"ngpus-per-node", WORKERS},
    {"gpus-per-node", WORKERS},
    {"ntasks", WORKERS},
    {"ntasks-per-node", WORKERS},
    {"world-size", WORKERS " and --nnodes"},
    {"num-machines", NODES},
    {"num-nodes", NODES},
    {"machine-rank", "did you mean --node-rank?"},
    {"main-process-ip", "did you mean --master-addr?"},
    {"main-process-port", "did you mean --master-port?"},
    {"hosts", "did you mean --host (-H)?"},
    {"machinefile", HOSTFILE},
    {"f", HOSTFILE},
    {"gpu-ids", "set CUDA_VISIBLE_DEVICES"},
    {"multi-gpu", "leave it out: " WORKERS},
    {"dist-url", "did you mean --rdzv-endpoint=HOST:PORT?"},
    {"dist-backend", "leave it out: the script chooses it"},
    {"timeout", "did you mean --rdzv-conf=join_timeout=SECONDS?"},
    {"rdzv-port", "the port is a part of --rdzv-endpoint=HOST:PORT"},
    {"rdzv-timeout", "did you mean --rdzv-conf=join_timeout=SECONDS?"},
    {"join-timeout", "did you mean --rdzv-conf=join_timeout=SECONDS?"},
    {"retries", "did you mean --max-restarts?"},
    {"use-env", "leave it out: workers get LOCAL_RANK in the environment"},
    {"use-libuv", "leave it out: the store is muster's own"},
    {"exit-barrier-timeout", "leave it out: nodes that are ready don't wait for each other"},
    {"print-completion", "see \"muster completion\""},
    {NULL, NULL},
};

const struct option_set run_options = {
    .command = "run",
    .operands = "SCRIPT [ARGS...]",
    .about = "Starts and watches the workers of this node; in a Slurm job, or with -H, of all "
             "nodes. If one fails, all are stopped; --max-restarts starts them again.",
    .example = "--nproc-per-node=gpu train.py --epochs 10",
    .more_of = "On two nodes, the same on each (or once, with -H node1,node2):",
    .more = "--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=node1 train.py",
    OPTION_DEFS(defs),
    .hints = run_hints,
    .defaults = &job_spec_default,
};
