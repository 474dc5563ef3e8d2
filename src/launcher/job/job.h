/* What the user requested: command line and environment, checked, with defaults filled in. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/peer_owner.h"
#include "base/text/strbuf.h"
#include "base/util.h"
#include "launcher/hosts/hosts.h"
#include "launcher/place/place.h"
#include "nccl_env/rules/resolve.h"
#include "rendezvous/auth/auth.h"
#include "rendezvous/protocol/messages.h"
#include "rendezvous/protocol/settings.h"
#include "topology/model/affinity.h"
#include "watchdog/worker_signs.h"

#define JOB_WORKERS_MAX 4096 /* workers of one node */
#define JOB_SIGNALS_MAX 16
#define JOB_RUN_ID_MAX 256
/* Ports of an endpoint, of which the leader takes the first that is free. */
#define JOB_ENDPOINT_PORTS_MAX 16

enum job_backend {
    JOB_BACKEND_STATIC = 1, /* --master-addr/-port and --node-rank: the user chooses the ranks */
    JOB_BACKEND_C10D,       /* an endpoint; the agent at its address leads */
    JOB_BACKEND_DIR,        /* arbiter: a directory that all nodes see; any node may lead */
    JOB_BACKEND_ETCD,       /* arbiter: etcd v3 */
    JOB_BACKEND_COUNT,
};

/* The properties of a backend. Code asks for these, not for a backend by its name. */
struct job_backend_row {
    const char *name;         /* --rdzv-backend */
    const char *example;      /* of an --rdzv-endpoint; NULL: none is needed */
    bool ranks_are_chosen;    /* by the user: --node-rank */
    bool any_node_leads;      /* an arbiter decides which; else the node at the endpoint leads */
    bool own_key;             /* the arbiter keeps a key of the job */
    bool own_tls;             /* the arbiter may be reached by TLS with certificates */
    bool takes_timeout;       /* --rdzv-conf timeout is the join timeout, */
    uint64_t join_timeout_ns; /* which is this without it; 0: the default */
};
extern const struct job_backend_row job_backends[JOB_BACKEND_COUNT];

/* Where the endpoint comes from. */
enum job_endpoint_from {
    JOB_ENDPOINT_GIVEN = 0, /* --rdzv-endpoint, or the place of this process */
    JOB_ENDPOINT_MASTER,    /* --master-addr and --master-port */
    JOB_ENDPOINT_ASSUMED,   /* static, and neither an endpoint nor a master address was given */
    JOB_ENDPOINT_OF_HOST,   /* over ssh: the first host, at a port that is free there */
};

/* Who knows the run's id. */
enum job_run_id {
    JOB_RUN_ID_OWN = 0, /* this process, which has made it; or it is "none", which many runs have */
    JOB_RUN_ID_COMMON,  /* all nodes, and other runs can use it: by the user, step or head */
};

/* Whether nodes are alike and reach each other: off, warn, or start no worker if not. */
enum job_preflight { JOB_PREFLIGHT_OFF = 0, JOB_PREFLIGHT_WARN, JOB_PREFLIGHT_STRICT };

/* muster check: no worker is started, and what was found is printed. */
enum job_check { JOB_CHECK_OFF = 0, JOB_CHECK_TEXT, JOB_CHECK_JSON };

#define JOB_ETCD_ENDPOINTS_MAX 16

enum job_entry {
    JOB_ENTRY_PYTHON = 1, /* python -u SCRIPT (also --run-path) */
    JOB_ENTRY_MODULE,     /* python -u -m SCRIPT */
    JOB_ENTRY_PROGRAM,    /* --no-python */
};

/* Which streams of a worker; bits as torchrun numbers them. */
enum { STD_NONE = 0, STD_OUT = 1, STD_ERR = 2, STD_BOTH = 3 };

/* "3" or "0:3,1:1": one value for all local ranks, or a map with `fallback` STD_NONE. */
struct std_map {
    uint8_t fallback;
    uint8_t by_rank[10]; /* single-digit local ranks, as in torchrun's grammar; 0xff = not named */
};
uint8_t std_map_get(const struct std_map *map, uint32_t local_rank);
/* Reads such a text. 0 or -EINVAL. */
_must_use_ int std_map_parse(const char *text, struct std_map *ret);
#define STD_MAP_TEXT_MAX 48
void std_map_text(const struct std_map *map, char ret[STD_MAP_TEXT_MAX]);

enum job_contain { JOB_CONTAIN_AUTO = 0, JOB_CONTAIN_NONE, JOB_CONTAIN_CGROUP, JOB_CONTAIN_PIDNS };

/* What lives on after a job's success: nothing, or workers' processes in sessions of their own. */
enum job_leave { JOB_LEAVE_NONE = 0, JOB_LEAVE_DETACHED };

/* --warm: whether workers have imported before they are needed, each by itself or forked. */
enum job_warm { JOB_WARM_OFF = 0, JOB_WARM_PROCESS, JOB_WARM_FORK };

/* Who writes to this agent's standard output and error. */
enum job_output {
    JOB_OUTPUT_OWN = 0,  /* it alone */
    JOB_OUTPUT_SHARED,   /* agents that srun or ssh has started on several nodes */
    JOB_OUTPUT_PREFIXED, /* the same, and lines of workers begin with a prefix */
};

/* When workers' lines have a prefix. AUTO: of --tee, JOB_OUTPUT_PREFIXED, several on a terminal. */
enum job_prefix { JOB_PREFIX_AUTO = 0, JOB_PREFIX_ALWAYS, JOB_PREFIX_NEVER };
#define JOB_RANK_PREFIX "[rank${rank}]: " /* like PyTorch's own of a traceback */

/* The exit status of a job whose worker failed: 1, or that of the worker that failed first. */
enum job_exit_code { JOB_EXIT_CODE_TORCHRUN = 0, JOB_EXIT_CODE_WORKER };

enum job_profile { JOB_PROFILE_ON = 0, JOB_PROFILE_OFF };

/* What starts muster on the nodes of a job: ssh where the user names hosts, srun where Slurm has
 * given this one several nodes and the user arranges nothing else (AUTO), or what the user names.
 * Between SSH and NONE: launchers used in place of ssh (launchers.h). Behind NONE, where this
 * process is the agent of its node: those that start --nnodes agents. A row: an enumerator, the
 * word of --starter. */
#define JOB_STARTERS(row) \
    row(SRUN, "srun") row(SSH, "ssh") LAUNCHER_STARTERS(row) row(NONE, "none") row(LOCAL, "local")
#define JOB_STARTER_ENUM(name, word) JOB_STARTER_##name,
#define JOB_STARTER_WORD(name, word) " " word
enum job_starter { JOB_STARTER_AUTO = 0, JOB_STARTERS(JOB_STARTER_ENUM) };
#define JOB_STARTER_WORDS "auto" JOB_STARTERS(JOB_STARTER_WORD)

/* The hosts on which muster is started over ssh. */
struct job_hosts {
    struct hosts list;         /* n 0: not over ssh */
    char *ssh;                 /* --ssh; NULL: ssh */
    const struct launcher *by; /* whose command is used in place of ssh; NULL: ssh's */
    char *export_names;        /* --export; NULL: the default */
};

/* From what --nproc-per-node takes the number of workers, on each node. */
enum job_nproc {
    JOB_NPROC_NUMBER = 0,
    JOB_NPROC_CPU,
    JOB_NPROC_GPU,
    JOB_NPROC_AUTO, /* GPUs where there are some, else CPUs */
    JOB_NPROC_COUNT,
};

/* OMP_NUM_THREADS if it is not set: torchrun's value, or the number of cores that a worker has. */
enum job_omp { JOB_OMP_TORCHRUN = 0, JOB_OMP_CORES };

/* An ordinary option of muster run is a field that src/cli/options/options_table.c names. */
struct job_spec {
    /* who */
    uint32_t nproc; /* workers of this node */
    enum job_nproc nproc_by;
    enum job_backend backend;
    enum job_starter starter;
    /* this process is the head of so many nodes, and starts no worker; 0: it is an agent */
    uint32_t start_nodes;
    struct job_hosts hosts; /* where, if by ssh; else by srun */
    char *endpoint_host;    /* name or literal, brackets removed; NULL: this node alone */
    uint16_t endpoint_port; /* 0: any free one */
    /* The ports that are tried in order: endpoint_port is the first; n 0: the only one. */
    uint16_t endpoint_ports[JOB_ENDPOINT_PORTS_MAX];
    unsigned n_endpoint_ports;
    /* rank 0 opens the workers' store at MASTER_PORT itself (TORCH_DISABLE_SHARE_RDZV_TCP_STORE) */
    bool workers_store;
    /* of the workers, if not the endpoint's, 0: any; and MASTER_ADDR with it, NULL: the leader's */
    uint16_t store_port;
    char *store_host;
    uint16_t port_low, port_high; /* ports that muster chooses; 0: the kernel's range */
    enum job_endpoint_from endpoint_from;
    char *arbiter_dir;     /* DIR: the directory; else NULL */
    char **etcd_endpoints; /* ETCD: "host:port", NULL-terminated; else NULL */
    bool etcd_tls;         /* https */
    char *etcd_prefix;     /* of all keys: begins with '/', no '/' at its end; "": the root */
    char *etcd_user, *etcd_password;          /* NULL: none */
    char *etcd_cacert, *etcd_cert, *etcd_key; /* PEM files, or NULL */
    char *topology;                           /* this node's place in the network, "" : not known */
    char *block;                              /* of Slurm, which has this node; NULL: none */
    char *topology_file;                      /* which may have them, too; or NULL */
    enum job_preflight preflight;
    bool dry_run; /* print what workers would be started with, and start nothing */
    enum job_check check;
    const char *check_disk; /* muster check: the disk that must have room; borrowed */
    int is_host;            /* 1, 0, or -1: decide by the address */
    int32_t node_rank;      /* --node-rank, -1: not given */
    char *local_addr;       /* --local-addr or NULL */
    char *run_id;           /* never NULL, never empty */
    enum job_run_id run_id_is;
    /* sentences on values that the user did not give: their sources; NULL-terminated, or NULL */
    char **derived;
    /* names of the options that the user gave, also by PET_NAME; NULL-terminated, or NULL */
    char **given;
    struct place place; /* where in Slurm this process is */
    enum place_nodes nodes;
    char *role;

    /* when */
    struct rdzv_settings rdzv;
    /* if it is not given: the default, where nothing around muster kills it */
    uint64_t shutdown_timeout_ns;
    struct hang_settings hang;
    char *health_check;         /* --health-check, a shell's command line; NULL: none */
    uint64_t health_timeout_ns; /* > 0 */
    enum job_profile profile;   /* whether the record of the job's time is kept */
    enum job_exit_code exit_code;
    unsigned requeue; /* REQUEUE_* of launcher/srun/slurm_job.h: where Slurm is asked to requeue */
    uint32_t max_requeues;
    int signals[JOB_SIGNALS_MAX]; /* --signals-to-handle */
    uint32_t n_signals;

    /* what */
    enum job_entry entry;
    char *script;
    char **args; /* NULL-terminated, after SCRIPT, untouched */
    char *start_method;
    bool virtual_local_rank;
    enum auth_mode auth; /* who may connect */
    char *key_file;      /* --key-file, NULL: not given */
    enum store_check store_check;
    enum job_contain contain;
    enum job_leave leave;
    enum job_warm warm;
    uint64_t warm_after_ns; /* workers run so long before standbys are made */
    char *warm_skip;        /* packages with commas that are not imported ahead; NULL: none */
    enum bind_mode bind;    /* --bind, --numa-binding; 0: none unless GPUs are found */
    enum bind_memory bind_memory;
    enum job_omp omp;
    uint32_t gpus_per_worker;    /* 0: not requested */
    enum nccl_env_mode nccl_env; /* 0: as NCCL_ENV_OFF */
    char **env; /* --env-file, then --env: NAME=VALUE, a name once, NULL-terminated; or NULL */
    bool nccl_comm_id, nccl_debug;

    /* where output goes */
    char *log_dir; /* NULL: none; "/dev/null": no files at all */
    /* of log files and the event log; folders can be entered by who may read */
    uint32_t log_mode;
    struct std_map redirects, tee;
    /* lines of stdout, stderr with one of these texts are written once more; as `env` */
    char **filters[2];
    enum job_output output;
    enum job_prefix prefix;
    char *line_prefix;   /* template; NULL: torchrun's with -t or -r, else JOB_RANK_PREFIX */
    bool *console_ranks; /* [JOB_WORKERS_MAX], NULL: all (--local-ranks-filter) */
    uint64_t
        output_spool; /* bytes of output in a file that a reader has not taken, for each stream */
    char *event_log;  /* JSON lines of what happens to the group; "-": stderr; NULL */
    bool quiet;
    int verbose; /* number of -v */
};

static inline const struct job_backend_row *job_backend(const struct job_spec *spec) {
    return &job_backends[spec->backend];
}

static inline bool job_id_is_common(const struct job_spec *spec) {
    return spec->run_id_is == JOB_RUN_ID_COMMON;
}

/* Over ssh the nodes meet at the first host. */
static inline bool job_meets_at_host(const struct job_spec *spec) {
    return spec->endpoint_from == JOB_ENDPOINT_OF_HOST;
}

/* One node, at a free port that is closed to other nodes. */
static inline bool job_is_alone(const struct job_spec *spec) {
    return spec->endpoint_host == NULL && !job_backend(spec)->any_node_leads;
}

/* The defaults, which are torchrun's. */
extern const struct job_spec job_spec_default;
void job_spec_fini(struct job_spec *spec);
/* Whether the user gave the option: "shutdown-timeout". */
bool job_is_given(const struct job_spec *spec, const char *option);
/* Whether --signals-to-handle has this one. */
bool job_is_ended_by(const struct job_spec *spec, int signo);
/* The value that workers will have of a variable: of --env, or inherited; NULL: it is not set. */
const char *job_worker_value(const struct job_spec *spec, char *const *envp, const char *name);

/* "node1:29400", "node1:29400-29403,30000": as the user could have written it; malloc'ed. */
_must_use_ char *job_endpoint_text(const struct job_spec *spec);

/* Another run's name: "night-2" after "night", then "night-3"; a scheduler's numbers are kept. */
void job_next_run_id(const char *run_id, char ret[JOB_RUN_ID_MAX]);

/* The variables, beside MUSTER_*, by which a launcher tells a worker its place in the job: each
 * worker gets its own, and --env can't set them. Ends with a NULL. */
struct job_worker_variable {
    const char *name;
    bool changes; /* from one start to the next */
};
extern const struct job_worker_variable job_worker_variables[];

/* ==== the program, for other nodes ==== */

/* What this node runs, as it sends it to the leader when it joins, so that another job under the
 * same run id is detected.
 *
 *     struct rdzv_program p; program_of(spec, &p);     p.shown: "train.py --lr=... --resume ..."
 *
 * Names are compared, folders, which can differ, are not. A step of Slurm that has as many agents
 * as the group has nodes is all of the group: then its name counts, too, so that two jobs of one
 * script, with the same run id and endpoint, don't mix. Arguments may contain secrets, so only
 * names of options are shown; of "-x5" the first letter. */
void program_of(const struct job_spec *spec, struct rdzv_program *ret);

/* ==== doubts of a line in a job of Slurm ==== */

/* What in a line that was written for torchrun does not fit the step or the job in which it runs.
 * Such a line runs as it is, and these doubts are warnings. Each names what will happen and what to
 * write instead. Adds each with a newline: in a step, or in a batch script whose line starts no
 * step.
 *
 * Only for a group that the user arranges (place_given.meets): a group of the step needs none of
 * what these lines get wrong. One task of the step warns, not each. from_batch: srun runs in the
 * batch script, on the job's first node. */
void slurm_doubt(const struct job_spec *spec, const struct place_given *given, bool from_batch,
                 struct strbuf *warnings);
