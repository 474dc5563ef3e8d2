/* Signals the processes below this one, in pieces, so that the loop can serve others in between. */
#include <stdio.h>
#include <string.h>

#include "io/clock.h"
#include "launcher/supervise/cgroup_io.h"
#include "launcher/supervise/spare_io.h"
#include "launcher/supervise/worker_priv.h"

/* If children change while their list is read, the list can miss one (proc(5)). So several passes
 * must agree that nothing is left. */
#define ORPHANS_QUIET_PASSES 4
/* How long a piece may take. It is less than a slice, because other work has already used a part of
 * the callback's time. */
#define PIECE_NS (2 * NS_PER_MS)

/* ---- which processes are spared ---- */

struct pid_list {
    const struct pid_list *without; /* sorted; NULL: none */
    pid_t *pids;
    uint32_t n, cap;
};

static void pid_list_fini(struct pid_list *l) { free(l->pids); }

static int compare_pids(const void *a, const void *b) {
    const pid_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void add_pid(void *arg, pid_t pid) {
    struct pid_list *l = arg;
    const struct pid_list *without = l->without;
    if (without != NULL && without->n > 0 &&
        bsearch(&pid, without->pids, without->n, sizeof pid, compare_pids) != NULL)
        return;
    if (l->n == l->cap) {
        l->cap = MAX2(16, l->cap * 2);
        l->pids = xrealloc(l->pids, l->cap * sizeof *l->pids);
    }
    l->pids[l->n++] = pid;
}

static void sort(struct pid_list *l) {
    if (l->n > 0)
        qsort(l->pids, l->n, sizeof *l->pids, compare_pids);
}

static struct sweep_except sorted(struct pid_list *l, struct worker_group *g) {
    sort(l);
    return (struct sweep_except){
        .pids = l->pids, .n = l->n, .seen = worker_seen, .sent = worker_sent, .arg = g};
}

/* ---- beginning ---- */

static struct sweep_walk *walk_of(struct worker_group *g) {
    if (g->walk == NULL)
        g->walk = sweep_walk_new();
    return g->walk;
}

/* A helper's own helper, which a disk holds, and whose parent has ended. */
static void add_spared(struct worker_group *g, struct pid_list *l) {
    struct spare_list spared;
    if (g->config.spare == NULL)
        return;
    spare_read(g->config.spare, 0, &spared);
    for (uint32_t i = 0; i < spared.except.n; i++)
        add_pid(l, spared.pids[i]);
}

/* The index of the worker of which this is the marker; g->n: it is not of this group. */
static uint32_t owner(const struct worker_group *g, const char *value) {
    const char *dot = strchr(value, '.'); /* generation.index.random */
    unsigned long i = dot != NULL ? strtoul(dot + 1, NULL, 10) : g->n;
    if (i >= g->n || g->workers[i].marker == NULL ||
        strcmp(g->workers[i].marker + strlen(WORKER_MARKER "="), value) != 0)
        return g->n;
    return (uint32_t)i;
}

bool worker_group_owns(const struct worker_group *g, const char *marker) {
    return owner(g, marker) < g->n;
}

static bool is_of_group(void *arg, pid_t pid, const char *value) {
    (void)pid;
    return worker_group_owns(arg, value);
}

/* Every child that the reaper watches and that is not one of our workers is a helper. Beside
 * another group only what has our marker counts. */
static void begin_all(struct worker_group *g, enum worker_pass pass) {
    _cleanup_(pid_list_fini) struct pid_list own = {0}, helpers = {.without = &own};
    for (uint32_t i = 0; i < g->n; i++)
        if (worker_group_pid(g, i) != 0)
            add_pid(&own, worker_group_pid(g, i));
    sort(&own);
    child_reaper_each(g->reaper, add_pid, &helpers);
    add_spared(g, &helpers);
    struct sweep_except except = sorted(&helpers, g);
    g->n_kept = 0;
    worker_pass_begins(g, pass);
    if (g->machine.released)
        sweep_walk_begin_orphans(walk_of(g), &except, WORKER_MARKER, is_of_group, g);
    else
        sweep_walk_begin(walk_of(g), &except);
    g->walk_kind = WORKER_WALK_ALL;
}

static bool is_looked_for(void *arg, pid_t pid, const char *value) {
    struct worker_group *g = arg;
    uint32_t i = owner(g, value);
    if (i == g->n || !g->workers[i].looked_for || (worker_keeps(g) && worker_is_kept(g, pid)))
        return false;
    g->workers[i].met = true;
    return true;
}

/* What is due for what this worker left. */
static enum worker_pass pass_of(const struct worker *w, uint64_t now_ns) {
    if (!w->orphans)
        return WORKER_PASS_NONE;
    if (now_ns >= w->left_until_ns)
        return WORKER_PASS_KILL;
    return !w->asked && now_ns >= w->term_ns ? WORKER_PASS_TERM : WORKER_PASS_LOOK;
}

/* The other workers, and their daemons, are spared. A pass does one thing: with what several
 * workers left, SIGTERM before SIGKILL, because that is sent once, and SIGKILL until all are gone.
 */
static void begin_orphans(struct worker_group *g) {
    _cleanup_(pid_list_fini) struct pid_list known = {0};
    const uint64_t now_ns = clock_now_ns();
    enum worker_pass pass = WORKER_PASS_NONE;
    child_reaper_each(g->reaper, add_pid, &known);
    struct sweep_except except = sorted(&known, g);
    for (uint32_t i = 0; i < g->n; i++)
        pass = MAX2(pass, pass_of(&g->workers[i], now_ns));
    g->orphans_again = false;
    for (uint32_t i = 0; i < g->n; i++) {
        struct worker *w = &g->workers[i];
        enum worker_pass own = pass_of(w, now_ns);
        w->looked_for = own == pass;
        w->met = false;
        g->orphans_again |= own > WORKER_PASS_LOOK && own != pass;
        if (!w->looked_for)
            continue;
        w->asked |= pass == WORKER_PASS_TERM;
        if (pass == WORKER_PASS_KILL && w->cgroup_fd >= 0 && !worker_keeps(g))
            (void)cgroup_kill(w->cgroup_fd);
    }
    worker_pass_begins(g, pass);
    sweep_walk_begin_orphans(walk_of(g), &except, WORKER_MARKER, is_looked_for, g);
    g->walk_kind = WORKER_WALK_ORPHANS;
}

/* ---- continuing ---- */

static void orphans_walked(struct worker_group *g, const struct sweep_result *result) {
    bool left = false;
    for (uint32_t i = 0; i < g->n; i++) {
        struct worker *w = &g->workers[i];
        if (w->looked_for) {
            w->met |= w->cgroup_fd >= 0 && !worker_keeps(g) && cgroup_populated(w->cgroup_fd) == 1;
            w->quiet_passes = w->met || result->undecided > 0 ? 0 : w->quiet_passes + 1;
            w->orphans = w->quiet_passes < ORPHANS_QUIET_PASSES;
        }
        left |= w->orphans;
    }
    uint64_t wait_ns = g->orphans_again ? 0 : g->orphan_wait_ns;
    loop_timer_set(g->orphan_timer, left ? clock_now_ns() + wait_ns : TIME_NEVER);
    g->orphan_wait_ns = MIN2(g->orphan_wait_ns * 2, WORKER_RETRY_MAX_NS);
}

static void all_walked(struct worker_group *g, const struct sweep_result *result) {
    g->last = *result;
    if (!g->walk_answers)
        return;
    g->walk_answers = false;
    worker_step(g, &(struct worker_event){.kind = WORKER_EVENT_SWEPT,
                                          .now_ns = clock_now_ns(),
                                          .left = result->alive + result->undecided,
                                          .blocking = g->blocking});
}

static void on_walk_turn(void *arg);

static void go_on(struct worker_group *g) {
    struct sweep_result result;
    enum worker_walk kind = g->walk_kind;
    if (!sweep_walk_go_on(g->walk, clock_now_ns() + PIECE_NS, &result)) {
        worker_put_off(g, &g->walk_due, LOOP_PRIO_BULK, on_walk_turn);
        return;
    }
    g->walk_kind = WORKER_WALK_NONE;
    worker_pass_over(g);
    if (kind == WORKER_WALK_ALL)
        all_walked(g, &result);
    else
        orphans_walked(g, &result);
}

void worker_find_orphans(struct worker_group *g) {
    if (g->walk_kind != WORKER_WALK_NONE || g->machine.n_left == 0)
        return;
    begin_orphans(g);
    go_on(g);
}

static void on_walk_turn(void *arg) {
    struct worker_group *g = arg;
    if (!worker_arrived(g, &g->walk_due))
        return;
    if (g->walk_kind != WORKER_WALK_NONE)
        go_on(g);
    else
        worker_find_orphans(g);
}

/* ---- the calls ---- */

void worker_sweep_all(struct worker_group *g, enum worker_pass pass, bool answer) {
    if (g->walk_kind == WORKER_WALK_ALL && !answer)
        return; /* it is running; the next one finds what it has already passed */
    begin_all(g, pass);
    g->walk_answers = answer;
    go_on(g);
}

void worker_sweep_now(struct worker_group *g) {
    struct sweep_result result;
    begin_all(g, WORKER_PASS_KILL);
    bool over = sweep_walk_go_on(g->walk, TIME_NEVER, &result);
    assert(over);
    g->walk_kind = WORKER_WALK_NONE;
    worker_pass_over(g);
}

void worker_sweep_orphans_of(struct worker *w) {
    struct worker_group *g = w->group;
    w->orphans = true;
    w->quiet_passes = 0;
    g->orphans_again = true;
    g->orphan_wait_ns = WORKER_RETRY_MIN_NS;
    /* if one is running, this is called again when it is over */
    if (g->walk_kind == WORKER_WALK_NONE)
        worker_put_off(g, &g->walk_due, LOOP_PRIO_BULK, on_walk_turn);
}
