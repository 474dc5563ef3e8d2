/* The options that functions of their own read. Shared only by job_options.c (the job),
 * job_options_group.c (how its group changes), job_rendezvous.c and job_options_place.c (how its
 * nodes meet). */
#pragma once

#include "cli/options/job_options.h"
#include "cli/options/options_table.h"
#include "cli/options/rdzv_text.h"
#include "launcher/place/fill.h"

struct job_reading {
    struct options_parsed parsed;
    const struct job_probes *probes;
    struct strbuf *warnings;
    struct job_spec *spec; /* the settings that are read so far */
    struct err *err;
    /* from the environment; NULL: not set */
    const char *visible_devices;                   /* CUDA_VISIBLE_DEVICES */
    const char *share_off_env;                     /* TORCH_DISABLE_SHARE_RDZV_TCP_STORE */
    const char *etcd_user_env, *etcd_password_env; /* MUSTER_ETCD_USER, MUSTER_ETCD_PASSWORD */
    char *const *envp;
    int place_code; /* of place_read() */
    struct err place_err;
    /* after job_read_slurm(), in a job of Slurm */
    struct place_given given;
    struct place_fill fill;
    /* texts that job_fill_in() has borrowed; owned */
    char *run_id, *first_host;
};

/* The option's value, or its default, or NULL. */
const char *job_text(const struct job_reading *j, enum run_option row);
const struct option_value *job_value(const struct job_reading *j, enum run_option row);
/* The index of the option's value among its choices. The option must have a value. */
unsigned job_choice(const struct job_reading *j, enum run_option row);
/* Whether the user has set it, on the command line or in the environment. */
bool job_given(const struct job_reading *j, enum run_option row);
/* Sets the error to "--name=value: must be …" and returns -EINVAL. */
int job_bad_value(struct job_reading *j, enum run_option row, const char *must);

/* As if the user had given it, but job_given() stays false. The text is borrowed for the reading.
 */
void job_fill_in(struct job_reading *j, enum run_option row, const char *text);
/* Fills in an --rdzv-id for the nodes that this process starts, unless the user gave one. */
void job_name_run(struct job_reading *j);
/* Adds a sentence to spec->derived: a value that nobody gave, and where it comes from. */
void job_derived(struct job_reading *j, const char *fmt, ...) _printf_(2, 3);

/* In a job of Slurm: finds out where this process is, and fills in the number of nodes if nobody
 * gave it. What else is filled in, j->fill says. Needs the numbers of nodes. */
_must_use_ int job_read_slurm(struct job_reading *j);
/* Whether this process starts agents instead of being one. Needs job_read_slurm(). */
_must_use_ int job_read_starter(struct job_reading *j);
/* After it is known where in Slurm this process is. */
_must_use_ int job_read_requeue(struct job_reading *j);
/* Whether this process starts agents over ssh. */
bool job_wants_ssh(const struct job_reading *j);
/* Reads on which hosts, for job_wants_ssh(). Needs job_read_slurm(). */
_must_use_ int job_read_hosts(struct job_reading *j);
/* Otherwise: warns of options that are only for them. */
void job_warn_of_no_hosts(struct job_reading *j);
/* And leaves the port open at which they meet. */
void job_leave_port_open(struct job_reading *j);
/* "me@node1:4", or "node1:0,2" with GPUs: a host, as -H and --include take it. */
void job_host_text(const struct host *host, struct strbuf *out);
/* The number of workers is counted on each node, and this process has no workers. */
bool job_counts_elsewhere(const struct job_reading *j);
/* What agents whose output goes to one place do about that. */
void job_share_output(struct job_reading *j);
/* The number of workers that Slurm's variables imply: only where j->fill has it. */
_must_use_ int job_count_workers_by_slurm(struct job_reading *j);
/* Where the nodes of a step meet. */
void job_meet_in_step(struct job_reading *j);
/* And the ports, if they meet at one of the nodes. Needs --port-range. */
void job_choose_ports(struct job_reading *j);

/* What depends on this node, of a job that was read elsewhere: its place in the network, its CPUs
 * and GPUs, whether workers have a store of their own. */
void job_read_topology(struct job_reading *j);
_must_use_ int job_resolve_binding(struct job_reading *j);
bool job_shares_no_store(struct job_reading *j);
/* The parts of an option's value, which both readers of a job share. 0 or -EINVAL; 0: no signal. */
_must_use_ int job_port_range_parse(const char *text, uint16_t *ret_low, uint16_t *ret_high);
_must_use_ int job_log_mode_parse(const char *text, uint32_t *ret);
int job_signal_by_name(const char *name);

/* Checks that it does not contradict --virtual-local-rank. */
_must_use_ int job_check_gpus_per_worker(struct job_reading *j);
/* Reads to which CPUs and memory workers are bound. */
_must_use_ int job_read_binding(struct job_reading *j);

/* Warns of options on the command line that do nothing in this job. Needs all else. */
void job_warn_of_idle_options(struct job_reading *j);
/* Warns of PET_ names that are no options, of PET_NNODES=1 on several nodes of Slurm, of a shell
 * that gets Slurm's signals, and of a line for torchrun that does not fit its step. Needs all else.
 */
void job_warn_of_environment(struct job_reading *j, char *const *envp);

/* Reads what is added to the workers' environment besides their ranks. */
_must_use_ int job_read_env(struct job_reading *j);

/* Reads which nodes take part, and when the group changes. Needs the numbers of nodes after the
 * backend has changed them, and the lease. */
_must_use_ int job_read_group(struct job_reading *j);

/* Reads where the nodes meet, if that is a file (store_type=file), a directory or etcd. */
_must_use_ int job_read_file(struct job_reading *j);
_must_use_ int job_read_arbiter(struct job_reading *j, const struct rdzv_conf *conf);
/* Warns of keys of --rdzv-conf about etcd that have no effect. */
void job_warn_etcd_conf(struct job_reading *j, const struct rdzv_conf *conf);

/* In a pod of an Indexed Job: fills in where several nodes meet, if nobody gave that. Needs the
 * numbers of nodes. */
_must_use_ int job_meet_by_index(struct job_reading *j, const struct rdzv_conf *conf);
/* The node rank by the pod's index; -1: the pod has none, or it does not count. Needs the backend.
 */
int32_t job_rank_by_index(struct job_reading *j);

/* The backend of --rdzv-backend=NAME; 0: unknown. */
enum job_backend job_backend_of(const char *name);
/* Reads backend, endpoint, run id, node rank and all times except the shutdown's. Needs the numbers
 * of nodes. */
_must_use_ int job_read_rendezvous(struct job_reading *j);
