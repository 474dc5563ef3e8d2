/* What stopped a group, from the first symptom to the first step after the next start: the event
 * `incident` (muster-files(5)). Pure. Times are of the leader's clock; 0: not known, or not yet. */
#pragma once

#include "base/text/strbuf.h"
#include "rendezvous/protocol/messages.h"

#define INCIDENT_CAUSE_MAX 384
#define INCIDENT_EVIDENCE_MAX 256 /* a longer path is left out */
#define INCIDENT_TEXT_MAX 768

enum incident_action {
    INCIDENT_ACTION_NONE = 0,
    INCIDENT_RESTART, /* the same nodes started again, perhaps with more */
    INCIDENT_SHRINK,  /* fewer nodes */
    INCIDENT_SPARE,   /* another node took a place */
    INCIDENT_END,     /* nothing was started again */
    INCIDENT_ACTION_COUNT,
};
extern const char *const incident_action_names[INCIDENT_ACTION_COUNT];

struct incident {
    uint32_t n; /* of the job: 1, 2, …; 0: it is not counted yet */
    enum incident_class class;
    struct generation generation, next; /* that was stopped, and that was started */
    /* WORKER, HANG, and HEALTH after one of them. Of others node and incarnation, or neither */
    struct failure failure;
    char taker[RDZV_HOST_MAX];      /* SPARE: a node that was not in the group before */
    bool left_out;                  /* the node is not in the next group */
    char cause[INCIDENT_CAUSE_MAX]; /* in one line */
    uint32_t xid;                   /* HEALTH: as in struct report */
    int32_t gpu;
    char evidence[INCIDENT_EVIDENCE_MAX]; /* a folder of the leader's node, or "" */
    enum incident_action action;
    uint32_t restarts_used, max_restarts; /* with this one */
    uint64_t began_ns;                    /* the start of the group that was stopped */
    /* A failure, the end of a connection, a last message, or the last time that most moved */
    uint64_t symptom_ns;
    uint64_t noticed_ns;          /* by the leader, */
    uint64_t stopped_ns;          /* all workers were gone, */
    uint64_t started_ns;          /* the next group started, */
    uint64_t first_step_ns;       /* and reported its first step */
    uint64_t last_step;           /* of the group that was stopped, or one before; 0: not known */
    uint64_t steps_lost;          /* if first_step_ns is set */
    uint32_t old_nodes;           /* of the group that was stopped */
    uint32_t n_nodes, world_size; /* of the next one */
};

/* leader: the name of its node. when: the time of the symptom. */
void incident_text(const struct incident *i, const char *leader, const char *when,
                   char ret[INCIDENT_TEXT_MAX]);

/* For the end of a job: "3 incidents; workers ran at most 99.6 % of 3 min 22 s; …", or "". */
void job_history_text(const struct job_history *h, struct strbuf *ret);
