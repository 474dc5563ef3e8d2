#include "launcher/preflight/node_summary_io.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "io/clock.h"
#include "io/process/helper_call.h"
#include "launcher/preflight/node_summary_priv.h"

#define NICE 10

struct node_summary_gathering {
    struct helper_call *call; /* NULL: nothing can block */
    struct loop_timer *timer; /* then: the answer is known at once */
    struct node_summary known;
    node_summary_fn *fn;
    void *arg;
    char host[NODE_SUMMARY_HOST_MAX];
    bool discovered; /* the discovery did not fail */
};

/* Which node summaries have come so far; each has more than the one before. */
enum { TOLD_EARLY = 1, TOLD_DEVICES, TOLD_DISK, TOLD_ALL };

static int discover(int fd, void *arg) {
    const struct node_summary_config *c = arg;
    static struct node_summary d;
    (void)setpriority(PRIO_PROCESS, 0, NICE); /* workers that start meanwhile have precedence */
    node_summary_discovery_early(c, &d);
    if (!helper_send(fd, &d, sizeof d))
        return 1;
    node_summary_discovery_devices(c, &d);
    if (!helper_send(fd, &d, sizeof d))
        return 1;
    node_summary_discovery_disk(c, &d);
    if (!helper_send(fd, &d, sizeof d))
        return 1;
    node_summary_discovery_name(c, &d);
    return helper_send(fd, &d, sizeof d) ? 0 : 1;
}

void node_summary_stop(struct node_summary_gathering *g) {
    if (g == NULL)
        return;
    helper_call_free(g->call);
    loop_timer_free(g->timer);
    free(g);
}

/* The discovery has asked for the room of /dev/shm, too, and has got an answer. */
static bool can_block(const struct node_summary_config *c) {
    const struct nccl_facts *facts = node_discovery_facts(c->discovery);
    bool disk = c->log_dir != NULL && c->log_dir[0] != '\0';
    return disk || c->n_own_addrs == 0 || facts == NULL || facts->shm_bytes == 0 ||
           discover_has_gpus();
}

static void on_timer(void *arg) {
    struct node_summary_gathering *g = arg;
    struct node_summary d = g->known;
    node_summary_fn *fn = g->fn;
    bool whole = g->discovered;
    arg = g->arg;
    node_summary_stop(g);
    fn(arg, &d, whole);
}

/* Without a helper. */
static void gather_now(struct loop *loop, const struct node_summary_config *c,
                       struct node_summary_gathering *g) {
    g->timer = loop_timer_new(loop, on_timer, g);
    node_summary_discovery_early(c, &g->known);
    node_summary_discovery_devices(c, &g->known);
    node_summary_name(c->host, c->own_addrs, c->n_own_addrs, &g->known);
    loop_timer_set(g->timer, clock_now_ns());
}

/* Uses the last node summary that arrived complete. */
static void on_answer(void *arg, const struct helper_answer *answer) {
    struct node_summary_gathering *g = arg;
    size_t n = answer->len / sizeof(struct node_summary);
    struct node_summary best = {0};
    if (n > 0)
        memcpy(&best, answer->data + (n - 1) * sizeof best, sizeof best);
    if (n == TOLD_DEVICES)
        node_summary_add(&best, NODE_SUMMARY_FAIL, "DISK-BAD",
                         "the disk of the logs does not answer");
    else if (n == TOLD_DISK)
        node_summary_name_unresolved(g->host, "no answer", &best);
    node_summary_fn *fn = g->fn;
    bool whole = g->discovered;
    arg = g->arg;
    free(g);
    fn(arg, &best, whole && n >= TOLD_DEVICES); /* a finding reports what is missing */
}

int node_summary_start(struct loop *loop, const struct node_summary_config *config,
                       node_summary_fn *fn, void *arg, struct node_summary_gathering **ret) {
    struct node_summary_gathering *g = xcalloc(1, sizeof *g);
    struct node_summary_config copy = *config;
    uint64_t now_ns = clock_now_ns();
    uint64_t end_ns = (config->begun_ns > 0 ? config->begun_ns : now_ns) + NODE_SUMMARY_GATHER_NS;
    *g = (struct node_summary_gathering){
        .fn = fn, .arg = arg, .discovered = node_discovery_failure(config->discovery) == NULL};
    (void)snprintf(g->host, sizeof g->host, "%s", config->host);
    struct helper_call_config call = {
        .name = "muster-check",
        .run = discover,
        .arg = &copy,
        .timeout_ns = end_ns > now_ns ? end_ns - now_ns : 1,
        .max_bytes = TOLD_ALL * sizeof(struct node_summary),
    };
    int r = 0;
    if (can_block(config))
        r = helper_call_new(loop, &call, on_answer, g, &g->call);
    else
        gather_now(loop, config, g);
    if (r < 0) {
        node_summary_stop(g);
        return r;
    }
    *ret = g;
    return 0;
}
