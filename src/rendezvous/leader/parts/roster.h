/* The nodes of the job, and what is counted of them. Each is known by its incarnation. */
#pragma once

#include "base/idmap.h"
#include "base/list.h"
#include "base/util.h"
#include "rendezvous/leader/parts/group_config.h"
#include "rendezvous/protocol/messages.h"

struct node_clock {
    uint64_t asked_ns, answered_ns; /* its newest RENEW by its clock, our LEASE by ours */
    bool known;
    uint64_t measured_ns;
    int64_t offset_ns;
    uint64_t error_ns;
};

void node_clock_renew(struct node_clock *c, const struct renew *renew, uint64_t now_ns);
/* Converts to the leader's clock, give or take the error. */
int64_t node_clock_ours(const struct node_clock *c, uint64_t its_ns, uint64_t *ret_error_ns);

/* Distinct --role names in one job. */
#define GROUP_ROLES_MAX 64

/* What is counted of the nodes, so that no report costs a walk over all. */
enum tally {
    /* these are also counted for each domain */
    TALLY_CANDIDATE = 0, /* may be in the next group, now */
    TALLY_FIT,           /* the same, and it is not sick */
    TALLY_HOPEFUL,       /* may be, when it has stopped or has sent a message again */
    TALLY_GROWN,         /* a fit member, or WAITING: may be in the group when it grows */
    TALLY_OF_DOMAINS,

    TALLY_UNRESOLVED = TALLY_OF_DOMAINS, /* of the last group, and cut off */
    TALLY_WAITING,                       /* a fit candidate outside the present group */
    TALLY_PREPARED,                      /* members, by their report on the present generation */
    TALLY_FINISHED,
    TALLY_STOPPED,
    TALLY_SAFE,         /* members at a safe point */
    TALLY_CLOSED,       /* nodes that know the outcome */
    TALLY_OLD_FINISHED, /* members of the last leader's group that had finished */
    TALLY_SICK,         /* HOPEFUL */
    TALLY_NO_DOMAIN,    /* HOPEFUL, its domain is not known, and it need not wait for it */
    TALLY_COUNT,
};

/* The nodes of one domain (struct report). */
struct domain {
    uint64_t key;
    size_t n, tally[TALLY_OF_DOMAINS];
};

/* What a node reported last: struct report without the failure, which would be most of the memory
 * of a leader of thousands of nodes, and without counters. */
struct node_status {
    enum node_state state;
    struct generation generation;
    bool leaving, finished, at_safe_point, excluded;
    uint32_t reachability;
    char *unusable, *excluded_why, *leaving_why, *sick; /* owned; NULL: none, as in most nodes */
    char domain[RDZV_DOMAIN_MAX], fabric[RDZV_DOMAIN_MAX];
    uint32_t xid;
    int32_t gpu;
};

/* A member's place, of which group_desired() makes the struct form that it is sent. */
struct place {
    uint32_t node_rank, first_rank, role_first_rank, role_world_size, host_index;
};

struct node {
    struct list by_all; /* in roster.nodes: as they came */
    /* in liveness.heard, the longest silent first; or in liveness.watched */
    struct list by_contact;
    bool watched; /* silent or not connected */
    bool held;    /* due, while several are silent at once */
    struct node_info info;
    struct node_status report;
    unsigned tallied;      /* bits of enum tally that it is counted under */
    struct domain *domain; /* the same; NULL: none */
    uint64_t join_order;   /* 1, 2, … */
    uint64_t joined_ns;    /* its newest JOIN; 0: an inherited one that has not come back */
    uint64_t known_ns;     /* its first JOIN */
    bool connected;
    bool reached;              /* its listener has accepted us: "refused" means gone from here on */
    bool probing;              /* a probe is under way */
    uint64_t reach_ns;         /* not reached: when to probe it again; 0: no probe has ended */
    uint64_t probe_wait_ns;    /* before the next: doubles */
    uint64_t probe_ns;         /* when the next is due, while it is watched; TIME_NEVER */
    uint64_t contact_ns;       /* leader's clock at its last RENEW or JOIN */
    uint64_t cut_ns;           /* when its last connection ended; 0: none has */
    uint64_t longest_stall_ns; /* as it reported last */
    uint32_t stalls;
    uint64_t echo_ns;    /* our newest clock that has come back from it; 0: none */
    uint64_t lost_at_ns; /* inherited, not yet back: counts as lost then */
    bool in_order;       /* of the last group */
    bool was_old_member; /* of the last leader's group */
    bool is_member;      /* of the present generation (FORMING, RUNNING, STOPPING) */
    bool is_newcomer;    /* member: it was not in the group before */
    bool lease_pending;  /* member: its last RENEW got no lease */
    /* that it is sick was logged, and what follows */
    enum { SICK_NOT_LOGGED = 0, SICK_LEFT_OUT, SICK_TAKEN } sick_logged;
    struct rdzv_warm *warm; /* as it has told last, owned; NULL: without --warm */
    struct place place;     /* valid while is_member */
    struct node_clock clock;
};

struct roster {
    struct idmap index; /* incarnation → struct node */
    struct list nodes;  /* all of them */
    size_t n;
    size_t tally[TALLY_COUNT];
    uint64_t join_counter;
    struct idmap roles; /* hash of a --role → a node had it, ever */
    /* this many nodes of one domain are a unit; 0: domains do not count. Set before the first node
     * is added */
    uint32_t unit;
    bool sick_are_fit;              /* --sick-nodes=report. Set likewise */
    struct idmap domains;           /* key → struct domain, while it has a node */
    size_t whole[TALLY_OF_DOMAINS]; /* as tally, of nodes in whole units */
};

void roster_init(struct roster *r, uint64_t seed);
void roster_fini(struct roster *r);
struct node *roster_find(const struct roster *r, uint64_t incarnation);
struct node *roster_add(struct roster *r, const struct node_info *info);
void roster_remove(struct roster *r, struct node *n);
void roster_count(struct roster *r, struct node *n, unsigned tallies);
/* Whether a group is made of units of one domain: TALLY_NO_DOMAIN is 0. */
bool roster_has_domains(const struct roster *r);
/* If there are domains, only those in whole units. */
size_t roster_usable(const struct roster *r, enum tally tally);
/* Identifies a domain; 0: "", no domain. */
uint64_t domain_key(const char *name);
/* Why this node can't be admitted, or NULL. *ret_for_now: it may try again later. */
const char *roster_refusal(struct roster *r, const struct group_config *c,
                           const struct node_info *info, bool *ret_for_now);
void roster_status(const struct roster *r, const struct group_config *c, struct rdzv_status *ret);

bool node_is(const struct node *n, enum tally tally);
/* None ever ran there, or it reported that all had stopped. */
bool node_has_stopped(const struct node *n);
/* Replaces a text of node_status. False if it is the same. */
bool node_set_text(char **text, const char *now);
bool node_may_take_part(const struct node *n);
/* The next group leaves it out, if there are enough others. */
bool node_is_sick(const struct roster *r, const struct node *n);
#define NODE_SICK_TEXT_MAX (RDZV_SICK_MAX + 16)
/* "a worker ended 80 ms after Xid 79 on GPU 4 (0000:9d:00.0)", "GPU 3 is bad"; "": it is fit. */
void node_sick_text(const struct node *n, char ret[NODE_SICK_TEXT_MAX]);
/* The node as people know it: host name, "-2" for a second agent of that host. */
void node_name(const struct node *n, char out[RDZV_HOST_MAX]);
/* Why it can't take part any more: a sentence with its name. */
void node_unusable_text(const struct node *n, char out[RDZV_REASON_MAX]);
/* Why it leaves: the same. */
void node_leaving_text(const struct node *n, char out[RDZV_REASON_MAX]);
