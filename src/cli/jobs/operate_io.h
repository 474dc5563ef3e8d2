/* What operators' commands have in common: their options, asking the job, reporting errors. */
#pragma once

#include "cli/help/help.h"
#include "cli/jobs/find_job_io.h"
#include "cli/jobs/operator_auth_io.h"
#include "cli/options/options.h"
#include "rendezvous/operate/operator_io.h"

#define JOB_IS                                                                                  \
    " JOB is a run id as muster ps shows it, or a unique prefix of one, or the job's address: " \
    "HOST:PORTS (its endpoint or any agent's listener), dir:/path or etcd://HOST:PORT. "        \
    "Without JOB: the only job of this machine."

/* The rows with which each of their tables begins. */
enum {
    OPERATE_RDZV_ID,
    OPERATE_RDZV_CONF,
    OPERATE_TIMEOUT,
    OPERATE_KEY_FILE,
    OPERATE_AUTH,
    OPERATE_HELP,
    OPERATE_HELP_ALL,
    OPERATE_OWN
};
/* All but OPERATE_TIMEOUT, for a command in which it means more. */
#define OPERATE_JOB_ROWS                                                                         \
    [OPERATE_RDZV_ID] = {"rdzv-id",                                                              \
                         "ID",                                                                   \
                         OPTION_SHORT,                                                           \
                         "the job's run id; needed with dir: and etcd:",                         \
                         .offer = OFFER_RUN_IDS,                                                 \
                         .brief = "the job's run id"},                                           \
    [OPERATE_RDZV_CONF] = {"rdzv-conf", "CONF", 0,                                               \
                           "settings for etcd as with muster run: KEY=VALUE,KEY=VALUE"},         \
    [OPERATE_KEY_FILE] = {"key-file", "FILE", 0,                                                 \
                          "file with the job's key, if it is in none of the usual places; on a " \
                          "node of the job no key is needed"},                                   \
    [OPERATE_AUTH] = {"auth", "HOW", 0,                                                          \
                      "how an agent on another machine is asked: with a key, or without one if " \
                      "it has none either (auto); only with a key (on); without one (none)",     \
                      .choices = "auto on none"},                                                \
    [OPERATE_HELP] = HELP_ROW(), [OPERATE_HELP_ALL] = HELP_ALL_ROW
#define OPERATE_ROWS                                                            \
    OPERATE_JOB_ROWS, [OPERATE_TIMEOUT] = {                                     \
                          "timeout",       "SECONDS",                           \
                          OPTION_SHORT,    "how long to wait for each address", \
                          .fallback = "5", .brief = "how long to wait for each address (5)"}

#define OPERATE_TIMEOUT_MAX_S (OPERATOR_TIMEOUT_MAX_NS / NS_PER_S)

struct operation {
    const struct option_set *set;
    int argc; /* the command's words, as main() got them */
    char *const *argv;
    struct options_parsed parsed;
    const char *operands[2];
    int n_operands;
    struct job_place place;
    uint64_t timeout_ns;
    struct operator_auth_config auth_config;
    struct operator_auth *auth; /* of operation_begin() */
};

/* Reads a command line on which options and operands come in any order. max_s: the limit of
 * --timeout. -1: *ret is filled in, except place.endpoint. Otherwise returns the exit status: help
 * or an error was printed. */
_must_use_ int operation_read(const struct option_set *set, int argc, char **argv, int max_operands,
                              uint64_t max_s, struct operation *ret);

/* Prints an answer, and returns the exit status. */
typedef int operation_show_fn(void *arg, const struct operator_reply *reply);
/* Asks one question, and prints the answer, or why there is none. A question for stacks has an
 * answer of at least one node. Returns the exit status. */
_must_use_ int operation_run(struct operation *op, const struct command *command,
                             operation_show_fn *show, void *arg);

/* ---- its parts, for more than one question ---- */

/* Before the first question: looks for keys. -1: done, and operation_end() must
 * be called. Otherwise the exit status: an error was printed. */
_must_use_ int operation_begin(struct operation *op);
void operation_end(struct operation *op);

/* Finds the job and asks it. 0: *ret_reply is filled in, for operator_reply_fini(); or the job is
 * closed: found->closed. Or a negative errno with a sentence, of job_find() or operator_ask(). */
_must_use_ int operation_ask(const struct operation *op, const struct command *command,
                             struct job_found *found, struct operator_reply *ret_reply,
                             struct err *err);
/* Prints the reason, and returns the exit status. */
_must_use_ int operation_failed(const struct operation *op, int code, const struct err *err,
                                const struct job_found *found);
