#include "rendezvous/leader/parts/roster.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"

/* The error of an offset is at least this: scheduling alone can cause as much. */
#define CLOCK_ERROR_MIN_NS (2 * NS_PER_MS)
/* The error before the first measured round trip. */
#define CLOCK_ERROR_UNKNOWN_NS (100 * NS_PER_MS)
/* The error of an old measurement grows: clocks drift by less than one part in this many. */
#define CLOCK_DRIFT_PART UINT64_C(2000)

/* A round trip ends with the LEASE, which the next RENEW names, with the duration; the leader read
 * its clock in the middle. (A RENEW alone may have waited in a socket while the leader slept.) */
void node_clock_renew(struct node_clock *c, const struct renew *renew, uint64_t now_ns) {
    if (renew->rtt_ns != 0 && renew->leader_clock_ns != 0 &&
        renew->leader_clock_ns == c->answered_ns) {
        uint64_t error = MAX2(renew->rtt_ns / 2, CLOCK_ERROR_MIN_NS);
        uint64_t aged = c->error_ns + (now_ns - c->measured_ns) / CLOCK_DRIFT_PART;
        if (!c->known || error <= aged + aged / 4) {
            c->offset_ns =
                (int64_t)c->answered_ns - (int64_t)c->asked_ns - (int64_t)(renew->rtt_ns / 2);
            c->error_ns = error;
            c->measured_ns = now_ns;
            c->known = true;
        }
    } else if (!c->known) {
        /* a rough value until the first round trip */
        c->offset_ns = (int64_t)now_ns - (int64_t)renew->clock_ns;
    }
    c->asked_ns = renew->clock_ns;
    c->answered_ns = now_ns;
}

int64_t node_clock_ours(const struct node_clock *c, uint64_t its_ns, uint64_t *ret_error_ns) {
    *ret_error_ns = c->known ? c->error_ns : CLOCK_ERROR_UNKNOWN_NS;
    return (int64_t)its_ns + c->offset_ns;
}

void roster_init(struct roster *r, uint64_t seed) {
    *r = (struct roster){.index.seed = seed, .domains.seed = seed};
    list_init(&r->nodes);
}

/* Never returns 0. */
static uint64_t key_of(const char *text) {
    uint64_t h = hash_text(HASH_BEGIN, text);
    return h == 0 ? 1 : h;
}

/* ---- domains ---- */

uint64_t domain_key(const char *name) { return name[0] == '\0' ? 0 : key_of(name); }

static void enter_domain(struct roster *r, struct node *n, uint64_t key) {
    if (n->domain != NULL && --n->domain->n == 0) {
        idmap_remove(&r->domains, n->domain->key);
        free(n->domain);
    }
    n->domain = key == 0 ? NULL : idmap_get(&r->domains, key);
    if (key != 0 && n->domain == NULL) {
        n->domain = xcalloc(1, sizeof *n->domain);
        n->domain->key = key;
        idmap_put(&r->domains, key, n->domain);
    }
    if (n->domain != NULL)
        n->domain->n++;
}

static void count_in_domain(struct roster *r, struct domain *d, unsigned tally, bool more) {
    size_t *n = &d->tally[tally], before = *n;
    *n = more ? *n + 1 : *n - 1;
    r->whole[tally] += *n - *n % r->unit;
    r->whole[tally] -= before - before % r->unit;
}

bool roster_has_domains(const struct roster *r) {
    return r->unit > 0 && r->tally[TALLY_NO_DOMAIN] == 0;
}

size_t roster_usable(const struct roster *r, enum tally tally) {
    return roster_has_domains(r) ? r->whole[tally] : r->tally[tally];
}

static void node_free(struct roster *r, struct node *n) {
    enter_domain(r, n, 0);
    free(n->report.unusable);
    free(n->report.excluded_why);
    free(n->report.leaving_why);
    free(n->report.sick);
    free(n->warm);
    free(n);
}

void roster_fini(struct roster *r) {
    LIST_FOR_EACH(struct node, n, &r->nodes, by_all)
        node_free(r, n);
    idmap_fini(&r->domains);
    idmap_fini(&r->index);
    idmap_fini(&r->roles);
}

struct node *roster_find(const struct roster *r, uint64_t incarnation) {
    return incarnation == 0 ? NULL : idmap_get(&r->index, incarnation);
}

bool node_is(const struct node *n, enum tally tally) { return (n->tallied & 1u << tally) != 0; }

bool node_has_stopped(const struct node *n) {
    switch (n->report.state) {
    case NODE_JOINED:
    case NODE_STOPPED: return true;
    case NODE_PREPARED:
    case NODE_RUNNING:
    case NODE_FINISHED:
    case NODE_FAILED:
    case NODE_CLOSED:
    case NODE_STATE_COUNT: return false;
    }
    assert_not_reached();
}

bool node_set_text(char **text, const char *now) {
    if (strcmp(*text != NULL ? *text : "", now) == 0)
        return false;
    free(*text);
    *text = now[0] != '\0' ? xstrdup(now) : NULL;
    return true;
}

bool node_may_take_part(const struct node *n) {
    return !n->report.leaving && n->report.unusable == NULL && !n->report.excluded &&
           n->report.state != NODE_CLOSED;
}

bool node_is_sick(const struct roster *r, const struct node *n) {
    return n->report.sick != NULL && !r->sick_are_fit;
}

void node_sick_text(const struct node *n, char ret[NODE_SICK_TEXT_MAX]) {
    (void)snprintf(ret, NODE_SICK_TEXT_MAX, "%s%s", n->report.xid != 0 ? "a worker ended " : "",
                   n->report.sick != NULL ? n->report.sick : "");
}

void node_name(const struct node *n, char out[RDZV_HOST_MAX]) {
    if (n->is_member && n->place.host_index > 0)
        (void)snprintf(out, RDZV_HOST_MAX, "%.110s-%u", n->info.host, n->place.host_index + 1);
    else
        (void)snprintf(out, RDZV_HOST_MAX, "%s", n->info.host);
}

void node_unusable_text(const struct node *n, char out[RDZV_REASON_MAX]) {
    char name[RDZV_HOST_MAX];
    node_name(n, name);
    (void)snprintf(out, RDZV_REASON_MAX, "node %s can't take part any more: %.1800s", name,
                   n->report.unusable);
}

void node_leaving_text(const struct node *n, char out[RDZV_REASON_MAX]) {
    char name[RDZV_HOST_MAX];
    const char *why = n->report.leaving_why;
    node_name(n, name);
    (void)snprintf(out, RDZV_REASON_MAX, "node %s %s", name,
                   why != NULL ? why : "was asked to stop");
}

/* ---- nodes are added and removed ---- */

static void count(struct roster *r, struct node *n, unsigned now) {
    unsigned changed = n->tallied ^ now;
    n->tallied = now;
    for (unsigned t = 0; changed != 0; t++, changed >>= 1) {
        bool more = (now & 1u << t) != 0;
        if ((changed & 1) == 0)
            continue;
        r->tally[t] = more ? r->tally[t] + 1 : r->tally[t] - 1;
        if (t < TALLY_OF_DOMAINS && n->domain != NULL)
            count_in_domain(r, n->domain, t, more);
    }
}

void roster_count(struct roster *r, struct node *n, unsigned now) {
    uint64_t key = r->unit == 0 ? 0 : domain_key(n->report.domain);
    if (key != (n->domain == NULL ? 0 : n->domain->key)) {
        count(r, n, 0);
        enter_domain(r, n, key);
    }
    count(r, n, now);
}

struct node *roster_add(struct roster *r, const struct node_info *info) {
    struct node *n = xcalloc(1, sizeof *n);
    n->info = *info;
    n->join_order = ++r->join_counter;
    n->probe_ns = n->lost_at_ns = TIME_NEVER;
    n->report.state = NODE_JOINED;
    n->report.gpu = -1;
    list_init(&n->by_all);
    list_init(&n->by_contact);
    list_append(&r->nodes, &n->by_all);
    idmap_put(&r->index, info->incarnation, n);
    r->n++;
    return n;
}

void roster_remove(struct roster *r, struct node *n) {
    roster_count(r, n, 0);
    idmap_remove(&r->index, n->info.incarnation);
    list_remove(&n->by_contact);
    list_remove(&n->by_all);
    r->n--;
    node_free(r, n);
}

static const char *static_refusal(const struct roster *r, const struct group_config *c,
                                  const struct node_info *info, bool *ret_for_now) {
    if (info->node_rank < 0)
        return "this job gives ranks by --node-rank, and this node has none";
    if ((uint32_t)info->node_rank >= c->rdzv.max_nodes)
        return "its --node-rank is not below the number of nodes (--nnodes)";
    LIST_FOR_EACH(struct node, n, &r->nodes, by_all)
        if (n->info.node_rank == info->node_rank && n->connected) {
            /* The same host: its agent was restarted, and the old one is not lost yet. */
            *ret_for_now = strcmp(n->info.host, info->host) == 0;
            return "another node has the same --node-rank; give each its own";
        }
    return NULL;
}

const char *roster_refusal(struct roster *r, const struct group_config *c,
                           const struct node_info *info, bool *ret_for_now) {
    *ret_for_now = false;
    if (info->nproc == 0 || info->nproc > RDZV_WORKERS_MAX)
        return "its number of workers is out of range";
    if (r->n >= RDZV_NODES_MAX)
        return "the job has as many nodes as it can hold";
    if (idmap_get(&r->roles, key_of(info->role)) == NULL) {
        if (r->roles.len >= GROUP_ROLES_MAX)
            return "the job has as many different roles as it can hold";
        idmap_put(&r->roles, key_of(info->role), r);
    }
    if (c->static_ranks)
        return static_refusal(r, c, info, ret_for_now);
    if (c->rdzv.spares != UINT32_MAX &&
        r->tally[TALLY_HOPEFUL] - r->tally[TALLY_SICK] >=
            (size_t)c->rdzv.max_nodes + c->rdzv.spares &&
        roster_usable(r, TALLY_HOPEFUL) >=
            c->rdzv.max_nodes - c->rdzv.max_nodes % c->rdzv.node_unit) {
        *ret_for_now = true;
        return "the job has all its nodes, and as many spares as it wants (--spares)";
    }
    return NULL;
}

void roster_status(const struct roster *r, const struct group_config *c, struct rdzv_status *ret) {
    _cleanup_(freep) bool *ranks =
        c->static_ranks ? xcalloc(c->rdzv.max_nodes, sizeof *ranks) : NULL;
    bool full = false;
    LIST_FOR_EACH(struct node, n, &r->nodes, by_all) {
        if (full && ranks == NULL)
            break;
        bool candidate = node_is(n, TALLY_CANDIDATE);
        if (!candidate && !n->connected && ret->n_missing < RDZV_STATUS_NAMES_MAX)
            (void)snprintf(ret->missing[ret->n_missing++], RDZV_HOST_MAX, "%s", n->info.host);
        if (candidate && ret->n_names < RDZV_STATUS_NAMES_MAX)
            (void)snprintf(ret->names[ret->n_names++], RDZV_HOST_MAX, "%s", n->info.host);
        /* The rank of an inherited node was not checked; it may have none. */
        if (candidate && ranks != NULL && (uint32_t)n->info.node_rank < c->rdzv.max_nodes)
            ranks[n->info.node_rank] = true;
        full = ret->n_names == RDZV_STATUS_NAMES_MAX && r->tally[TALLY_UNRESOLVED] == 0;
    }
    for (uint32_t k = 0; ranks != NULL && k < c->rdzv.max_nodes; k++)
        if (!ranks[k] && ret->n_missing < RDZV_STATUS_NAMES_MAX)
            (void)snprintf(ret->missing[ret->n_missing++], RDZV_HOST_MAX, "node rank %u", k);
}
