#include "world.h"

#include <stdarg.h>
#include <string.h>

#include "world_priv.h"

/* ---- chance, time ---- */

uint64_t world_below(struct world *w, uint64_t below) { return prng_below(&w->prng, below); }

bool world_chance(struct world *w, unsigned percent) { return world_below(w, 100) < percent; }

#define MILLION UINT64_C(1000000)

uint64_t world_clock(const struct world *w, uint32_t host) {
    uint64_t speed = (uint64_t)((int64_t)MILLION + w->p.rate_ppm[host]);
    return w->p.offset_ns[host] + w->now_ns / MILLION * speed + w->now_ns % MILLION * speed / MILLION;
}

uint64_t world_when_clock(const struct world *w, uint32_t host, uint64_t clock_ns) {
    if (clock_ns == TIME_NEVER)
        return TIME_NEVER;
    if (clock_ns <= w->p.offset_ns[host])
        return 0;
    uint64_t speed = (uint64_t)((int64_t)MILLION + w->p.rate_ppm[host]);
    uint64_t passed = clock_ns - w->p.offset_ns[host];
    return passed / speed * MILLION + passed % speed * MILLION / speed + 2; /* both ways round down */
}

/* ---- the queue: by time, then by order of planning ---- */

static bool item_before(const struct item *a, const struct item *b) {
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->sequence < b->sequence;
}

static void heap_push(struct world *w, struct item *it) {
    if (w->n_heap == w->cap_heap) {
        w->cap_heap = w->cap_heap == 0 ? 256 : w->cap_heap * 2;
        w->heap = xrealloc(w->heap, w->cap_heap * sizeof *w->heap);
    }
    size_t i = w->n_heap++;
    while (i > 0 && item_before(it, w->heap[(i - 1) / 2])) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = it;
}

static struct item *heap_pop(struct world *w) {
    struct item *top = w->heap[0], *last = w->heap[--w->n_heap];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= w->n_heap)
            break;
        if (child + 1 < w->n_heap && item_before(w->heap[child + 1], w->heap[child]))
            child++;
        if (!item_before(w->heap[child], last))
            break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return top;
}

struct item *world_plan(struct world *w, enum item_kind kind, struct life *l, uint64_t in_ns) {
    struct item *it = w->spare_items;
    if (it != NULL)
        w->spare_items = it->next;
    else
        it = xmalloc(sizeof *it);
    *it = (struct item){0};
    it->kind = kind;
    it->life = l;
    it->at_ns = in_ns > TIME_NEVER - w->now_ns ? TIME_NEVER : w->now_ns + in_ns;
    it->sequence = ++w->sequence;
    heap_push(w, it);
    return it;
}

static void plan_again(struct world *w, struct item *it, uint64_t at_ns) {
    it->at_ns = at_ns;
    it->sequence = ++w->sequence;
    heap_push(w, it);
}

void item_free(struct world *w, struct item *it) {
    word_free(it->word);
    if (it->conn != NULL)
        it->conn->items--;
    if (it->asked != NULL && --it->asked->users == 0)
        free(it->asked);
    it->next = w->spare_items;
    w->spare_items = it;
}

/* ---- what is said about a run ---- */

void world_broken(struct world *w, const char *fmt, ...) {
    if (w->failure[0] != '\0')
        return;
    int n = snprintf(w->failure, sizeof w->failure, "at %.6f s: ", (double)w->now_ns / 1e9);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(w->failure + n, sizeof w->failure - (size_t)n, fmt, ap);
    va_end(ap);
    world_trace(w, "BROKEN %s", w->failure);
}

void world_trace(struct world *w, const char *fmt, ...) {
    if (w->p.trace == NULL)
        return;
    (void)fprintf(w->p.trace, "%12.6f ", (double)w->now_ns / 1e9);
    va_list ap;
    va_start(ap, fmt);
    (void)vfprintf(w->p.trace, fmt, ap);
    va_end(ap);
    (void)fputc('\n', w->p.trace);
}

void world_leader_file(struct world *w, enum world_leader_file leader_file, uint32_t host) {
    if (w->n_marks == w->cap_marks) {
        w->cap_marks = w->cap_marks == 0 ? 64 : w->cap_marks * 2;
        w->marks = xrealloc(w->marks, w->cap_marks * sizeof *w->marks);
    }
    w->marks[w->n_marks++] = (struct leader_file){leader_file, host, w->now_ns};
}

uint64_t world_when(const struct world *w, enum world_leader_file leader_file, uint32_t host, unsigned nth) {
    for (size_t i = 0; i < w->n_marks; i++)
        if (w->marks[i].leader_file == leader_file && (host == WORLD_HOSTS_MAX || w->marks[i].host == host) &&
            nth-- == 0)
            return w->marks[i].at_ns;
    return TIME_NEVER;
}

const char *world_failure(const struct world *w) { return w->failure[0] == '\0' ? NULL : w->failure; }
uint64_t world_now(const struct world *w) { return w->now_ns; }

const struct group *world_group(const struct world *w) {
    const struct life *l = leader_now(w);
    return l == NULL ? NULL : l->lead.group;
}

uint32_t world_leader(const struct world *w) {
    const struct life *l = leader_now(w);
    return l == NULL ? WORLD_HOSTS_MAX : l->host;
}

uint32_t world_epoch(const struct world *w) { return world_is_fixed(w) ? w->leader_file.epoch : w->record.epoch; }

enum outcome world_outcome(const struct world *w) {
    return world_is_fixed(w) ? w->jobs[w->job].outcome : w->record.outcome;
}

bool world_running(const struct world *w, uint32_t host) {
    const struct life *l = node_newest(w, host);
    return l != NULL && l->spawned && node_has_workers(l);
}

const struct member *world_member(const struct world *w, uint32_t host) {
    struct life *l = node_newest(w, host);
    return l == NULL ? NULL : l->member;
}

uint32_t world_groups_started(const struct world *w) {
    uint32_t n = 0;
    for (unsigned i = 0; i < w->n_groups; i++)
        n += w->groups[i].n_started > 0;
    return n;
}

/* ---- the run ---- */

struct world *world_new(const struct world_params *p, struct world_coverage *coverage) {
    struct world *w = xcalloc(1, sizeof *w);
    w->p = *p;
    w->coverage = coverage;
    w->prng.state = p->seed ^ UINT64_C(0x5bd1e9955bd1e995);
    w->next_port = 20000;
    coverage->worlds++;
    for (uint32_t h = 0; h < p->n_hosts; h++)
        w->hosts[h].up = true;
    for (size_t i = 0; i < p->n_faults; i++)
        world_plan(w, ITEM_FAULT, NULL, p->faults[i].at_ns)->local = (uint32_t)i;
    if (p->recover_ns > 0)
        world_plan(w, ITEM_RECOVERED, NULL, p->healed_ns + p->recover_ns);
    return w;
}

static void free_life(struct world *w, struct life *l) {
    for (struct item *it = l->pending_first, *next; it != NULL; it = next) {
        next = it->next;
        item_free(w, it);
    }
    member_free(l->member);
    member_update_fini(&l->update);
    group_free(l->lead.group);
    group_update_fini(&l->lead.update);
}

void world_free(struct world *w) {
    if (w == NULL)
        return;
    for (size_t i = 0; i < w->n_heap; i++)
        item_free(w, w->heap[i]);
    free(w->heap);
    for (unsigned i = 0; i < w->n_lives; i++)
        free_life(w, &w->lives[i]);
    for (struct item *it = w->spare_items, *next; it != NULL; it = next) {
        next = it->next;
        free(it);
    }
    for (struct conn *c = w->conns, *next; c != NULL; c = next) {
        next = c->next;
        net_free_conn(c);
    }
    free(w->marks);
    free(w);
}

bool host_running(const struct world *w, uint32_t host) { return w->hosts[host].up && !w->hosts[host].frozen; }

/* Whose turn it is: the process that has to be awake for this item; NULL: nobody's. */
static struct life *item_agent(const struct item *it) {
    switch (it->kind) {
    case ITEM_WORD_TO_NODE: return it->conn->node;
    case ITEM_WORD_TO_LEADER: return it->conn->leader;
    case ITEM_TIMER:
    case ITEM_CONNECT_LEAVES:
    case ITEM_CONNECT_FAILED:
    case ITEM_RESOLVED:
    case ITEM_DESCRIBED:
    case ITEM_OTHER_HELLO:
    case ITEM_SEARCH_PROBED:
    case ITEM_SEARCH_TIMER:
    case ITEM_PROBE_ANSWER:
    case ITEM_PREPARED:
    case ITEM_PREPARE_FAILED:
    case ITEM_SPAWN_FAILED:
    case ITEM_GRACE_OVER:
    case ITEM_ALL_GONE:
    case ITEM_UNKILLABLE:
    case ITEM_EXIT_SEEN:
    case ITEM_GROUP_TIMER:
    case ITEM_STORE:
    case ITEM_FORGED_ACK:
    case ITEM_CROWD_PROBED:
    case ITEM_DEPOSED:
    case ITEM_GROUP_DONE:
    case ITEM_ARBITER_ANSWER:
    case ITEM_TOUCHED:
    case ITEM_AGENT_QUITS:
    case ITEM_LIFE_TIMER:
    case ITEM_DOMAIN:
    case ITEM_ANSWERED: return it->life;
    case ITEM_CONNECT_ARRIVES:
    case ITEM_PROBE:
    case ITEM_WORKER_EXIT:
    case ITEM_GROUP_FINISH:
    case ITEM_GUARD:
    case ITEM_SWEEP:
    case ITEM_FAULT:
    case ITEM_BOOT:
    case ITEM_ARBITER_HEARS:
    case ITEM_RECOVERED:
    case ITEM_RUIN_OVER:
    case ITEM_THAW_AGENT:
    case ITEM_THAW_HOST: return NULL;
    }
    assert_not_reached();
}

static void happen(struct world *w, struct item *it) {
    switch (it->kind) {
    case ITEM_CONNECT_LEAVES:
    case ITEM_CONNECT_ARRIVES:
    case ITEM_CONNECT_FAILED:
    case ITEM_RESOLVED:
    case ITEM_DESCRIBED:
    case ITEM_OTHER_HELLO:
    case ITEM_SEARCH_PROBED:
    case ITEM_SEARCH_TIMER: search_item(w, it); break;
    case ITEM_PROBE: net_probe_arrives(w, it); break;
    case ITEM_WORD_TO_LEADER: leader_word(w, it->conn, it->word); break;
    case ITEM_WORD_TO_NODE: node_word(w, it->conn->node, it->conn, it->word); break;
    case ITEM_PROBE_ANSWER:
        if (it->prober == PROBER_GROUP)
            leader_item(w, it);
        else
            node_item(w, it);
        break;
    case ITEM_GROUP_TIMER:
    case ITEM_STORE:
    case ITEM_DEPOSED:
    case ITEM_GROUP_DONE:
    case ITEM_CROWD_PROBED:
    case ITEM_FORGED_ACK: leader_item(w, it); break;
    case ITEM_ARBITER_HEARS:
    case ITEM_ARBITER_ANSWER:
    case ITEM_TOUCHED: arbiter_item(w, it); break;
    case ITEM_TIMER:
    case ITEM_PREPARED:
    case ITEM_PREPARE_FAILED:
    case ITEM_SPAWN_FAILED:
    case ITEM_GRACE_OVER:
    case ITEM_ALL_GONE:
    case ITEM_UNKILLABLE:
    case ITEM_EXIT_SEEN:
    case ITEM_WORKER_EXIT:
    case ITEM_GROUP_FINISH:
    case ITEM_GUARD:
    case ITEM_SWEEP:
    case ITEM_AGENT_QUITS:
    case ITEM_LIFE_TIMER:
    case ITEM_ANSWERED:
    case ITEM_DOMAIN:
    case ITEM_THAW_AGENT:
    case ITEM_THAW_HOST: node_item(w, it); break;
    case ITEM_BOOT: fault_boots(w, it->local, true); break;
    case ITEM_RECOVERED: oracle_recovered(w); break;
    case ITEM_RUIN_OVER: oracle_ruin_over(w); break;
    case ITEM_FAULT: fault_happens(w, &w->p.faults[it->local]); break;
    }
}

/* False: it waits (the item is kept) or is lost (it is freed). */
static bool may_happen(struct world *w, struct item *it) {
    if ((it->kind == ITEM_WORD_TO_LEADER || it->kind == ITEM_WORD_TO_NODE) && !net_arrives(w, it))
        return false;
    struct life *l = item_agent(it);
    if (l != NULL) {
        if (!l->process) {
            item_free(w, it);
            return false;
        }
        if (l->frozen || !host_running(w, l->host)) {
            it->next = NULL;
            *(l->pending_last == NULL ? &l->pending_first : &l->pending_last->next) = it;
            l->pending_last = it;
            return false;
        }
    }
    bool below = it->kind == ITEM_WORKER_EXIT || it->kind == ITEM_GUARD || it->kind == ITEM_SWEEP;
    if (below && w->hosts[it->life->host].frozen) {
        plan_again(w, it, w->hosts[it->life->host].frozen_until_ns + 1 + world_below(w, 3 * NS_PER_MS));
        return false;
    }
    return true;
}

/* A thawed agent finds everything that came meanwhile, in an order of its loop's choosing: timers
 * may come first or last. */
void node_take_pending(struct world *w, struct life *l) {
    bool timers_first = world_chance(w, 50);
    struct item *list = l->pending_first;
    l->pending_first = l->pending_last = NULL;
    for (int round = 0; round < 2; round++) {
        for (struct item **at = &list; *at != NULL;) {
            struct item *it = *at;
            bool timer = it->kind == ITEM_TIMER || it->kind == ITEM_GROUP_TIMER || it->kind == ITEM_SEARCH_TIMER;
            if (timer == (timers_first == (round == 0))) {
                *at = it->next;
                plan_again(w, it, w->now_ns);
            } else {
                at = &it->next;
            }
        }
    }
}

#define AT_ONCE_MAX 10000u
#define STEPS_MAX 1000000u

bool world_run_to(struct world *w, uint64_t until_ns) {
    while (w->n_heap > 0 && w->failure[0] == '\0') {
        if (w->heap[0]->at_ns > MIN2(until_ns, w->p.end_ns))
            break;
        struct item *it = heap_pop(w);
        w->n_at_once = it->at_ns == w->now_ns ? w->n_at_once + 1 : 0;
        w->now_ns = it->at_ns;
        if (w->n_at_once > AT_ONCE_MAX || ++w->n_steps > STEPS_MAX)
            world_broken(w, "I7: %u steps at one moment, %u in all", w->n_at_once, w->n_steps);
        if (!may_happen(w, it))
            continue;
        w->coverage->steps++;
        happen(w, it);
        item_free(w, it);
        if (w->failure[0] == '\0')
            oracle_step(w);
    }
    if (w->failure[0] == '\0' && until_ns >= w->p.end_ns)
        oracle_end(w);
    else if (w->failure[0] == '\0' && until_ns != TIME_NEVER)
        w->now_ns = MAX2(w->now_ns, until_ns);
    return w->failure[0] == '\0';
}
