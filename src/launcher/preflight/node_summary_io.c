#include "launcher/preflight/node_summary_io.h"

#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/process/helper.h"
#include "launcher/preflight/node_summary_priv.h"

#define HELPER_NAME "muster-look"
#define NICE 10

struct node_summary_gathering {
    struct loop_watch *watch;
    struct loop_timer *timer;
    int fd; /* read end: node summaries as they lie in memory, each better than the one before */
    struct helper helper;
    node_summary_fn *fn;
    void *arg;
    char host[NODE_SUMMARY_HOST_MAX];
    size_t got; /* bytes of `coming` */
    struct node_summary coming, best;
    unsigned n_node_summaries; /* that have come whole */
};

enum { TOLD_EARLY = 1, TOLD_DEVICES, TOLD_DISK, TOLD_ALL }; /* n_node_summaries */

static int look(int fd, void *arg) {
    const struct node_summary_config *c = arg;
    static struct node_summary d;
    (void)setpriority(PRIO_PROCESS, 0, NICE); /* workers that start meanwhile go first */
    node_summary_discovery_early(c, &d);
    if (!helper_tell(fd, &d, sizeof d))
        return 1;
    node_summary_discovery_devices(c, &d);
    if (!helper_tell(fd, &d, sizeof d))
        return 1;
    node_summary_discovery_disk(c, &d);
    if (!helper_tell(fd, &d, sizeof d))
        return 1;
    node_summary_discovery_name(c, &d);
    return helper_tell(fd, &d, sizeof d) ? 0 : 1;
}

void node_summary_stop(struct node_summary_gathering *g) {
    if (g == NULL)
        return;
    loop_watch_free(g->watch);
    loop_timer_free(g->timer);
    helper_end(&g->helper);
    (void)close(g->fd);
    free(g);
}

static void finish(struct node_summary_gathering *g) {
    node_summary_fn *fn = g->fn;
    void *arg = g->arg;
    struct node_summary best = g->best;
    bool whole = g->n_node_summaries >= TOLD_DEVICES; /* of the rest that is said */
    if (g->n_node_summaries == TOLD_DEVICES)
        node_summary_add(&best, NODE_SUMMARY_FAIL, "DISK-BAD",
                         "the disk of the logs does not answer");
    else if (g->n_node_summaries == TOLD_DISK)
        node_summary_name_unresolved(g->host, "no answer", &best);
    helper_let_go(&g->helper); /* a library of a sick GPU may hang below it */
    node_summary_stop(g);
    fn(arg, &best, whole);
}

static void on_timeout(void *arg) { finish(arg); }

static void on_bytes(void *arg, int fd, unsigned events) {
    (void)events;
    struct node_summary_gathering *g = arg;
    ssize_t n = read(fd, (char *)&g->coming + g->got, sizeof g->coming - g->got);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        finish(g);
        return;
    }
    g->got += (size_t)n;
    if (g->got < sizeof g->coming)
        return;
    g->got = 0;
    g->best = g->coming;
    if (++g->n_node_summaries == TOLD_ALL)
        finish(g);
}

int node_summary_start(struct loop *loop, const struct node_summary_config *config,
                       node_summary_fn *fn, void *arg, struct node_summary_gathering **ret) {
    int fd, write_fd;
    int r = child_pipe(&fd, &write_fd);
    if (r < 0)
        return r;
    struct node_summary_gathering *g = xcalloc(1, sizeof *g);
    *g = (struct node_summary_gathering){.fd = fd, .helper = HELPER_INIT, .fn = fn, .arg = arg};
    (void)snprintf(g->host, sizeof g->host, "%s", config->host);
    r = loop_watch_new(loop, g->fd, LOOP_READ, LOOP_PRIO_CHILD, on_bytes, g, &g->watch);
    if (r == 0)
        r = loop_timer_new(loop, on_timeout, g, &g->timer);
    struct node_summary_config copy = *config;
    if (r == 0)
        r = helper_start(loop, HELPER_NAME, look, &copy, write_fd, &g->helper);
    (void)close(write_fd);
    if (r < 0) {
        node_summary_stop(g);
        return r;
    }
    uint64_t timeout_ns = config->timeout_ns > 0 ? config->timeout_ns : NODE_SUMMARY_GATHER_NS;
    loop_timer_set(g->timer, clock_now_ns() + timeout_ns);
    *ret = g;
    return 0;
}
