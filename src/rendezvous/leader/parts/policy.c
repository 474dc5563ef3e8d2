#include "rendezvous/leader/parts/policy.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

#define BACKOFF_STEPS_MAX 5 /* 32 times */

void policy_fini(struct policy *p) {
    free(p->hosts);
    *p = (struct policy){0};
}

void policy_keep_counters(struct policy *p, uint32_t restarts_used, uint32_t losses) {
    p->restarts_used = MAX2(p->restarts_used, restarts_used);
    p->losses = MAX2(p->losses, losses);
}

bool policy_losses_spent(const struct policy *p) {
    return p->losses > p->config->rdzv.max_node_losses;
}

/* A kill by a person or by the system does not show that the program is wrong. */
static bool is_own_fault(const struct failure *f) {
    switch (f->kind) {
    case FAILURE_EXIT:
    case FAILURE_SPAWN: return true;
    case FAILURE_SIGNAL: /* SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS */
        return (f->code >= 4 && f->code <= 8) || f->code == 11 || f->code == 31;
    case FAILURE_NONE:
    case FAILURE_OOM:
    case FAILURE_NODE:
    case FAILURE_HANG:
    case FAILURE_KIND_COUNT: return false;
    }
    assert_not_reached();
}

/* Without numbers, which are ranks, addresses and times. 0: not early, or not the program's
 * fault. */
static uint64_t hash_failure(const struct group_config *c, const struct failure *f) {
    if (f->ran_ns >= c->rdzv.crash_loop_ns || !is_own_fault(f))
        return 0;
    uint64_t h = HASH_BEGIN ^ ((uint64_t)f->kind << 32 | (uint32_t)f->code);
    size_t end = strnlen(f->text, sizeof f->text), begin;
    while (end > 0 && isspace((unsigned char)f->text[end - 1]))
        end--;
    for (begin = end; begin > 0 && f->text[begin - 1] != '\n';)
        begin--;
    bool hex = false;
    for (size_t i = begin; i < end; i++) {
        unsigned char byte = (unsigned char)f->text[i];
        hex = hex ? isxdigit(byte) : byte == 'x' && i > begin && f->text[i - 1] == '0';
        if (!hex && !isdigit(byte))
            h = hash_bytes(h, &byte, 1);
    }
    return h == 0 ? 1 : h;
}

bool policy_is_crash_loop(const struct policy *p, const struct failure *f, bool others) {
    uint64_t hash = hash_failure(p->config, f);
    bool will_be_excluded =
        others && p->config->rdzv.exclude_after > 0 && f->incarnation == p->fail_node;
    return hash != 0 && hash == p->last_hash && !will_be_excluded;
}

void policy_charge(struct policy *p, const struct failure *f) {
    p->restarts_used++;
    p->last_hash = hash_failure(p->config, f);
}

uint32_t policy_count_node(struct policy *p, uint64_t incarnation, bool others) {
    p->fail_count = incarnation == p->fail_node ? p->fail_count + 1 : 1;
    p->fail_node = incarnation;
    if (p->config->rdzv.exclude_after == 0 || p->fail_count < p->config->rdzv.exclude_after ||
        !others)
        return 0;
    uint32_t count = p->fail_count;
    p->fail_count = 0;
    return count;
}

uint64_t policy_backoff_ns(struct policy *p, uint64_t ran_ns) {
    uint64_t step = p->config->rdzv.restart_backoff_ns;
    if (step == 0)
        return 0;
    /* After a long run the pause is the shortest again. */
    if (ran_ns > step << BACKOFF_STEPS_MAX)
        p->backoff_step = 0;
    uint64_t pause_ns = step << p->backoff_step;
    if (p->backoff_step < BACKOFF_STEPS_MAX)
        p->backoff_step++;
    return pause_ns;
}

bool policy_host_is_excluded(const struct policy *p, const char *host) {
    for (size_t i = 0; i < p->n_hosts; i++)
        if (strcmp(p->hosts[i], host) == 0)
            return true;
    return false;
}

void policy_exclude_host(struct policy *p, const char *host) {
    if (policy_host_is_excluded(p, host) || p->n_hosts == POLICY_HOSTS_MAX)
        return;
    p->hosts = xrealloc(p->hosts, (p->n_hosts + 1) * sizeof *p->hosts);
    (void)snprintf(p->hosts[p->n_hosts++], RDZV_HOST_MAX, "%s", host);
}

/* In a row. A group does not count if it leaves the job smaller than ever: that ends some time. */
#define STALLS_MAX 8
/* Losses often come together: after this many such groups, the next one has to wait. */
#define STALLS_FREE 2
#define PAUSE_STEPS_MAX 4 /* 16 times */

/* How long a group has to run to count as progress; what ends it is noticed later. */
static uint64_t soon_ns(const struct group_config *c) {
    return c->rdzv.crash_loop_ns + c->rdzv.lease_ns + c->rdzv.margin_ns;
}

bool stalls_go_on(const struct stalls *s, uint64_t started_ns, uint64_t now_ns) {
    return s->in_a_row > 0 && (started_ns == 0 || now_ns - started_ns < soon_ns(s->config));
}

uint64_t stalls_count(struct stalls *s, const struct group_end *end) {
    bool ran = end->started_ns != 0 && end->stopped_ns - end->started_ns >= soon_ns(s->config);
    if (ran)
        s->in_a_row = s->counted = 0;
    if (ran || end->worker_failed || end->wished || s->config->rdzv.crash_loop_ns == 0)
        return 0;
    if (s->in_a_row++ > 0 && end->nodes_left < s->fewest)
        s->fewest = end->nodes_left;
    else if (s->counted++ == 0)
        s->fewest = end->nodes_left;
    if (s->counted >= STALLS_MAX)
        return TIME_NEVER;
    if (s->in_a_row <= STALLS_FREE)
        return 0;
    return s->config->rdzv.crash_loop_ns / 2
           << MIN2(s->in_a_row - STALLS_FREE - 1, (uint32_t)PAUSE_STEPS_MAX);
}

void stalls_pause_text(const struct stalls *s, uint64_t pause_ns, char *out, size_t size) {
    (void)snprintf(out, size,
                   "%u groups in a row ended before they had run for %g s, although no worker "
                   "failed: the next one waits %g s",
                   s->in_a_row, (double)soon_ns(s->config) / 1e9, (double)pause_ns / 1e9);
}

void stalls_end_text(const struct stalls *s, const char *why, char *out, size_t size) {
    (void)snprintf(out, size,
                   "no group lasts: the last %u ended before they had run for %g s, although no "
                   "worker failed, the last one because %s; remove that cause, or give "
                   "--crash-loop=0 to keep trying",
                   s->in_a_row, (double)soon_ns(s->config) / 1e9, why);
}
