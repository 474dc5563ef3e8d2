/* What the files of the agent share: agent_io.c (the glue), agent_show_io.c (what people
 * see). */
#pragma once

#include "base/idmap.h"
#include "io/reaper.h"
#include "io/resolve.h"
#include "launcher/agent_io.h"
#include "launcher/console_io.h"
#include "launcher/crew_io.h"
#include "launcher/worker.h"
#include "rendezvous/client_io.h"
#include "rendezvous/server_io.h"
#include "rendezvous/store_io.h"

struct agent {
    struct agent_config config;
    uint64_t incarnation;
    char host[FAILURE_NODE_MAX];
    uint64_t nofile_soft;         /* the user's soft RLIMIT_NOFILE, if ours was raised; else 0 */
    uint16_t node_port;           /* of the node's listener */

    struct loop *loop;
    struct child_reaper *reaper;
    struct console *console;
    struct crew *crew;
    struct rdzv_listener *listener;
    struct rdzv_server *server;   /* NULL: another node leads */
    struct rdzv_client *client;
    struct resolve *resolve;
    struct idmap stores;          /* generation → struct store_server */
    struct loop_signal *signals[JOB_SIGNALS_MAX];

    int signo;                    /* the first signal that told us to stop; 0 */
    unsigned interrupts;
    bool ended, server_done, failed_early;
    struct member_end end;

    /* agent_show_io.c */
    char shown[RDZV_REASON_MAX];  /* the last progress line, not to be repeated */
    uint64_t shown_ns;
    struct loop_timer *cause_timer; /* a cause that may be improved on is held back until then */
    struct desired held_cause;
    bool has_held_cause;
    struct failure shown_cause;   /* of the stop that was shown last */
    bool has_shown_cause;
};

/* What people see. Begin makes the console; end lets it take what is left, until the deadline. */
int agent_show_begin(struct agent *a);
void agent_show_end(struct agent *a, uint64_t deadline_ns);
void agent_show_waiting(struct agent *a, const char *text);
void agent_show_status(struct agent *a, const struct rdzv_status *status);
void agent_show_formed(struct agent *a, struct generation g, const struct form *form);
/* A stop begins, or its cause became better known. */
void agent_show_stop(struct agent *a, const char *reason, const struct desired *cause);
/* The verdict at the end, with torchrun's report block where a worker failed. */
void agent_show_outcome(struct agent *a);
