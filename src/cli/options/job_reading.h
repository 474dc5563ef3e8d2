/* What is shared by the readers of a job, each of which may use those before it:
 *
 *     job_reading.c      an option's value
 *     job_place.c        what follows from the place of this process
 *     job_rendezvous.c   how the nodes meet
 *     job_options.c      all the rest
 *
 * A function job_read_x() fills in spec->x. */
#pragma once

#include "cli/options/job_options.h"
#include "cli/options/options_table.h"
#include "cli/options/rdzv_text.h"
#include "launcher/place/place.h"

struct job_reading {
    struct options_parsed parsed;
    int argc;
    char *const *argv, *const *envp;
    const struct job_probes *probes;
    struct strbuf *warnings;
    struct job_spec *spec; /* the settings that are read so far */
    struct err *err;
    int place_code; /* of place_read() */
    struct err place_err;
    /* after job_read_launcher(), in a job of Slurm */
    struct place_given given;
    struct place_fill fill;
    struct rdzv_conf conf; /* after job_read_rendezvous() has begun */
    char *run_id;          /* which job_fill_in() has borrowed; owned */
};

/* ---- job_reading.c ---- */

/* The option's value, or its default, or NULL. */
const char *job_text(const struct job_reading *j, enum run_option row);
const struct option_value *job_value(const struct job_reading *j, enum run_option row);
/* The index of the option's value among its choices. The option must have a value. */
unsigned job_choice(const struct job_reading *j, enum run_option row);
/* Whether the user has set it, on the command line or in the environment. */
bool job_given(const struct job_reading *j, enum run_option row);
bool job_is_on(const struct job_reading *j, enum run_option row);
bool job_is_blank(const char *text);
bool job_env_is(const struct job_reading *j, const char *name, const char *value);
/* The backend of --rdzv-backend=NAME; 0: unknown. */
enum job_backend job_backend_of(const char *name);
#define JOB_ETCD_V2 "etcd-v2" /* torchrun's name for the older API of etcd */
/* "1": the workers have a store of their own. */
#define JOB_OWN_STORE_ENV "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
/* Sets the error to "--name=value: must be …" and returns -EINVAL. */
int job_bad_value(struct job_reading *j, enum run_option row, const char *must);

/* As if the user had given it, but job_given() stays false. Borrows the text for the reading. */
void job_fill_in(struct job_reading *j, enum run_option row, const char *text);
/* Adds a sentence to spec->derived: a value that the user did not give, and its source. */
#define job_derived(j, ...) job_add_derived(j, xasprintf(__VA_ARGS__))
void job_add_derived(struct job_reading *j, char *text); /* takes text */

/* Calls each, until one fails. */
typedef int job_step(struct job_reading *j);
_must_use_ int job_take_steps(struct job_reading *j, job_step *const *steps, size_t n);

/* ---- job_place.c ---- */

/* In a job of Slurm or of another launcher: finds out where this process is, and fills in the
 * number of nodes if it is not given, and j->fill. Needs the numbers of nodes. */
_must_use_ int job_read_launcher(struct job_reading *j);
/* Whether this process starts agents instead of being one; over ssh, also where they meet, if that
 * is at the first host. Needs job_read_launcher(). */
_must_use_ int job_read_starter(struct job_reading *j);
/* In a pod of an Indexed Job: fills in where nodes meet. Needs their numbers, and j->conf. */
_must_use_ int job_meet_by_index(struct job_reading *j);
/* The node rank by the pod's index; -1: there is none, or it does not count. Needs the backend. */
int32_t job_rank_by_index(struct job_reading *j);
void job_meet_in_step(struct job_reading *j);
/* A name for a run that has none, for its owner to free. */
_must_use_ char *job_made_run_id(const struct job_reading *j);
/* The ports at which they meet, if that is at one of the nodes. Needs --port-range. */
_must_use_ int job_choose_ports(struct job_reading *j);
/* "me@node1:4", or "node1:0,2" with GPUs: a host, as -H and --include take it. */
void job_host_text(const struct host *host, struct strbuf *out);

/* ---- job_rendezvous.c ---- */

/* Reads backend, endpoint, run id, node rank, all times except the shutdown's, and which nodes take
 * part. Needs the numbers of nodes. */
_must_use_ int job_read_rendezvous(struct job_reading *j);
/* What of that depends on this node, of a job that was read elsewhere, too: whether workers have a
 * store of their own, and its place in the network. */
_must_use_ int job_read_workers_store(struct job_reading *j);
_must_use_ int job_read_topology(struct job_reading *j);

/* ---- parts of an option's value, which both readers of a job share ---- */

/* 0 or -EINVAL; 0: no signal. */
_must_use_ int job_port_range_parse(const char *text, uint16_t *ret_low, uint16_t *ret_high);
_must_use_ int job_log_mode_parse(const char *text, uint32_t *ret);
int job_signal_by_name(const char *name);
extern const char *const job_nproc_words[JOB_NPROC_COUNT];
