/* Policies: what a failure costs, who is kept out, when the group grows, what operators may ask. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"

#define BACKOFF_STEPS_MAX 5 /* 32 times */

/* ---- crash loops ---- */

/* A person's or a machine's kill says nothing about the program. */
static bool is_own_fault(const struct failure *f) {
    switch (f->kind) {
    case FAILURE_EXIT:
    case FAILURE_SPAWN: return true;
    case FAILURE_SIGNAL: /* SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV */
        return f->code == 4 || f->code == 6 || f->code == 7 || f->code == 8 || f->code == 11;
    case FAILURE_NONE:
    case FAILURE_OOM:
    case FAILURE_NODE:
    case FAILURE_KIND_COUNT: return false;
    }
    assert_not_reached();
}

/* Of what it said last, without numbers: those are ranks, addresses, times. */
static uint64_t hash_failure(const struct failure *f) {
    uint64_t h = UINT64_C(0xcbf29ce484222325) ^ ((uint64_t)f->kind << 32 | (uint32_t)f->code);
    size_t end = strnlen(f->text, sizeof f->text), begin;
    while (end > 0 && isspace((unsigned char)f->text[end - 1]))
        end--;
    for (begin = end; begin > 0 && f->text[begin - 1] != '\n';)
        begin--;
    for (size_t i = begin; i < end; i++)
        if (!isdigit((unsigned char)f->text[i]))
            h = (h ^ (uint8_t)f->text[i]) * UINT64_C(0x100000001b3);
    return h == 0 ? 1 : h;
}

void group_note_print(struct group *g, const struct failure *f) {
    bool early = g->config.crash_loop_ns > 0 && f->ran_ns < g->config.crash_loop_ns;
    uint64_t hash = early && is_own_fault(f) ? hash_failure(f) : 0;
    if (!g->print.any) {
        g->print = (struct fingerprint){.hash = hash, .any = true, .rank = f->rank};
    } else if (g->print.rank != f->rank) {
        g->print.spread = true;
        if (hash != g->print.hash)
            g->print.hash = 0; /* they failed differently */
    }
}

/* The same failure, early, for the second time; and not of one rank among several, which is rather
 * that rank's than the program's. (The first failure stops the others, which therefore seldom come
 * to fail by themselves: that it is not always the same rank says enough.) */
static bool is_crash_loop(const struct group *g) {
    const struct fingerprint *a = &g->last_print, *b = &g->print;
    if (a->hash == 0 || a->hash != b->hash)
        return false;
    return a->spread || b->spread || a->rank != b->rank || g->world_size == 1;
}

/* ---- the charge ---- */

static void back_off(struct group *g) {
    uint64_t step = g->config.restart_backoff_ns;
    if (step == 0)
        return;
    /* After a good run it begins anew. */
    if (g->stop_since_ns - g->started_ns > step << BACKOFF_STEPS_MAX)
        g->backoff_step = 0;
    g->not_before_ns = MAX2(g->not_before_ns, g->now_ns + (step << g->backoff_step));
    if (g->backoff_step < BACKOFF_STEPS_MAX)
        g->backoff_step++;
}

/* The same node failed again and again: another may take its place, if there is one. */
static void count_failures_of(struct group *g, uint64_t incarnation) {
    g->fail_count = incarnation == g->fail_node ? g->fail_count + 1 : 1;
    g->fail_node = incarnation;
    struct node *n = group_find(g, incarnation);
    if (n == NULL || g->config.exclude_after == 0 || g->fail_count < g->config.exclude_after ||
        g->tally[TALLY_HOPEFUL] <= g->need)
        return;
    char why[RDZV_HOST_MAX];
    (void)snprintf(why, sizeof why, "its workers failed %u times in a row", g->fail_count);
    group_exclude(g, n, why);
    g->fail_count = 0;
}

bool group_charge(struct group *g) {
    g->charge_pending = false;
    if (is_crash_loop(g)) {
        (void)snprintf(g->reason, sizeof g->reason,
                       "a crash loop: the same failure within %g s of the start, twice in a row; "
                       "not started again, though %u of %u restarts are left (--crash-loop)",
                       (double)g->config.crash_loop_ns / 1e9,
                       g->config.max_restarts - g->restarts_used, g->config.max_restarts);
        return false;
    }
    g->restarts_used++;
    g->last_print = g->print;
    count_failures_of(g, g->cause.incarnation);
    back_off(g);
    return true;
}

/* ---- exclusion ---- */

bool group_host_is_excluded(const struct group *g, const char *host) {
    for (size_t i = 0; i < g->n_excluded_hosts; i++)
        if (strcmp(g->excluded_hosts[i], host) == 0)
            return true;
    return false;
}

static void remember_host(struct group *g, const char *host) {
    if (group_host_is_excluded(g, host) || g->n_excluded_hosts == GROUP_EXCLUDED_HOSTS_MAX)
        return;
    g->excluded_hosts =
        xrealloc(g->excluded_hosts, (g->n_excluded_hosts + 1) * sizeof *g->excluded_hosts);
    (void)snprintf(g->excluded_hosts[g->n_excluded_hosts++], RDZV_HOST_MAX, "%s", host);
}

void group_exclude(struct group *g, struct node *n, const char *why) {
    char name[RDZV_HOST_MAX], text[2 * RDZV_HOST_MAX + 64];
    group_node_name(n, name);
    n->report.excluded = true;
    (void)snprintf(n->report.excluded_why, sizeof n->report.excluded_why, "%s", why);
    remember_host(g, n->info.host);
    group_recount(g, n);
    (void)snprintf(text, sizeof text, "node %s is excluded: %s", name, why);
    group_incident(g, text);
    (void)group_add_note(g, NOTE_NODE_EXCLUDED, n, why);
    if (!n->is_member)
        group_tell(g, n);
}

/* ---- growing ---- */

static size_t larger_group(const struct group *g) {
    size_t larger = group_wanted(g, g->n_members + g->tally[TALLY_WAITING]);
    return larger > g->n_members ? larger : 0;
}

static void stop_to_grow(struct group *g, size_t larger, const char *why) {
    char text[128];
    (void)snprintf(text, sizeof text, "the group grows from %zu to %zu nodes%s", g->n_members,
                   larger, why);
    g->detected_ns = g->now_ns;
    group_begin_stop(g, text);
    g->stop_wished = true;
}

void group_grow(struct group *g) {
    if (g->tally[TALLY_WAITING] == 0 || g->n_members >= g->config.max_nodes)
        return;
    size_t larger = larger_group(g);
    if (larger == 0 || g->now_ns < g->not_before_ns)
        return;
    /* Who comes and is lost again and again must not keep the others from working. */
    if (group_is_stalling(g) && !g->grow_asked)
        return;
    bool now = false;
    switch (g->config.grow) {
    case GROW_NOW: now = true; break;
    case GROW_BOUNDARY: now = g->tally[TALLY_SAFE] > 0; break;
    case GROW_NEVER: break;
    }
    if (g->grow_asked)
        stop_to_grow(g, larger, ": an operator asked");
    else if (now)
        stop_to_grow(g, larger, g->config.grow == GROW_BOUNDARY ? ", at a safe point" : "");
}

/* ---- operators ---- */

static void answer(struct group *g, bool ok, const char *text) {
    struct group_effect *e = group_emit(g, GROUP_EFFECT_ANSWER, 0);
    e->ok = ok;
    group_set_reason(g, e, text);
}

/* By name or incarnation; *ret_several: the name is not one node's. */
static struct node *find_named(const struct group *g, const char *name, bool *ret_several) {
    char text[RDZV_HOST_MAX];
    struct node *found = NULL;
    *ret_several = false;
    LIST_FOR_EACH(struct node, n, &g->nodes, by_all) {
        if (n->joined_ns == 0)
            continue;
        (void)snprintf(text, sizeof text, "%016" PRIx64, n->info.incarnation);
        if (strcmp(text, name) == 0)
            return n;
        group_node_name(n, text);
        if (strcmp(text, name) != 0)
            continue;
        *ret_several = found != NULL;
        found = n;
    }
    return found;
}

static void on_exclude(struct group *g, const struct command *c) {
    char text[3 * RDZV_HOST_MAX];
    bool several;
    struct node *n = find_named(g, c->node, &several);
    if (several) {
        (void)snprintf(text, sizeof text,
                       "several nodes are called \"%s\"; give the ID that \"muster status\" shows",
                       c->node);
        answer(g, false, text);
        return;
    }
    if (n == NULL) {
        (void)snprintf(text, sizeof text,
                       "no node \"%s\" here; \"muster status\" shows their names", c->node);
        answer(g, false, text);
        return;
    }
    bool member = n->is_member && group_is_live(g);
    char name[RDZV_HOST_MAX];
    group_node_name(n, name);
    group_exclude(g, n, c->reason[0] != '\0' ? c->reason : "an operator asked");
    (void)snprintf(text, sizeof text, "node %s is excluded%s", name,
                   member ? "; the group re-forms without it" : "");
    answer(g, true, text);
    if (member) {
        g->detected_ns = g->now_ns;
        (void)snprintf(text, sizeof text, "node %s was excluded", name);
        group_stop_for_lost_node(g, text);
        g->stop_wished = true;
    }
}

static void on_grow(struct group *g) {
    if (g->state != GROUP_RUNNING) {
        g->grow_asked = false;
        answer(g, g->state != GROUP_CLOSED,
               g->state == GROUP_CLOSED ? "the job is over"
                                        : "the next group takes whoever is there");
    } else if (larger_group(g) == 0) {
        answer(g, false,
               g->n_members >= g->config.max_nodes
                   ? "the group has as many nodes as it may have"
                   : "no node waits that would make the group larger");
    } else {
        g->grow_asked = true;
        answer(g, true, "the group re-forms with the nodes that wait");
    }
}

void group_operator_stop(struct group *g, const char *reason) {
    if (g->state == GROUP_CLOSED || (g->state == GROUP_STOPPING && g->closing))
        return;
    if (g->state == GROUP_GATHERING) {
        group_close_failed(g, reason);
        return;
    }
    g->closing = true;
    g->outcome = OUTCOME_FAILED;
    g->charge_pending = g->has_cause = g->cause_withheld = false;
    if (group_is_live(g)) {
        group_begin_stop(g, reason);
    } else {
        (void)snprintf(g->reason, sizeof g->reason, "%s", reason);
        group_tell_members(g);
    }
}

void group_on_command(struct group *g, const struct command *c) {
    char text[sizeof c->reason + 64];
    switch (c->kind) {
    case COMMAND_EXCLUDE: on_exclude(g, c); break;
    case COMMAND_GROW: on_grow(g); break;
    case COMMAND_STOP:
        answer(g, g->state != GROUP_CLOSED,
               g->state == GROUP_CLOSED ? "the job is over already" : "the job is being stopped");
        (void)snprintf(text, sizeof text, "an operator stopped the job%s%s",
                       c->reason[0] != '\0' ? ": " : "", c->reason);
        group_operator_stop(g, text);
        break;
    case COMMAND_STATUS: /* the server's */
    case COMMAND_LEAVE:  /* the agent's */
    case COMMAND_KIND_COUNT: answer(g, false, "that is nothing that a leader can do"); break;
    }
}
