#include "launcher/preflight/digest_io.h"

#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/process/helper.h"
#include "launcher/preflight/digest_look_priv.h"

#define HELPER_NAME "muster-look"
#define NICE 10

struct digest_gathering {
    struct loop_watch *watch;
    struct loop_timer *timer;
    int fd; /* read end: digests as they lie in memory, each better than the one before */
    struct helper helper;
    digest_fn *fn;
    void *arg;
    char host[DIGEST_HOST_MAX];
    size_t got;         /* bytes of `coming` */
    struct digest coming, best;
    unsigned n_digests; /* that have come whole */
};

enum { TOLD_EARLY = 1, TOLD_DEVICES, TOLD_DISK, TOLD_ALL }; /* n_digests */

static int look(int fd, void *arg) {
    const struct digest_config *c = arg;
    static struct digest d;
    (void)setpriority(PRIO_PROCESS, 0, NICE); /* workers that start meanwhile go first */
    digest_look_early(c, &d);
    if (!helper_tell(fd, &d, sizeof d))
        return 1;
    digest_look_devices(c, &d);
    if (!helper_tell(fd, &d, sizeof d))
        return 1;
    digest_look_disk(c, &d);
    if (!helper_tell(fd, &d, sizeof d))
        return 1;
    digest_look_name(c, &d);
    return helper_tell(fd, &d, sizeof d) ? 0 : 1;
}

void digest_stop(struct digest_gathering *g) {
    if (g == NULL)
        return;
    loop_watch_free(g->watch);
    loop_timer_free(g->timer);
    helper_end(&g->helper);
    (void)close(g->fd);
    free(g);
}

static void finish(struct digest_gathering *g) {
    digest_fn *fn = g->fn;
    void *arg = g->arg;
    struct digest best = g->best;
    bool whole = g->n_digests >= TOLD_DEVICES; /* of the rest that is said */
    if (g->n_digests == TOLD_DEVICES)
        digest_add(&best, DIGEST_FAIL, "DISK-BAD", "the disk of the logs does not answer");
    else if (g->n_digests == TOLD_DISK)
        digest_name_unresolved(g->host, "no answer", &best);
    helper_let_go(&g->helper); /* a library of a sick GPU may hang below it */
    digest_stop(g);
    fn(arg, &best, whole);
}

static void on_timeout(void *arg) { finish(arg); }

static void on_bytes(void *arg, int fd, unsigned events) {
    (void)events;
    struct digest_gathering *g = arg;
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
    if (++g->n_digests == TOLD_ALL)
        finish(g);
}

int digest_start(struct loop *loop, const struct digest_config *config, digest_fn *fn, void *arg,
                 struct digest_gathering **ret) {
    int fd, write_fd;
    int r = child_pipe(&fd, &write_fd);
    if (r < 0)
        return r;
    struct digest_gathering *g = xcalloc(1, sizeof *g);
    *g = (struct digest_gathering){.fd = fd, .helper = HELPER_INIT, .fn = fn, .arg = arg};
    (void)snprintf(g->host, sizeof g->host, "%s", config->host);
    r = loop_watch_new(loop, g->fd, LOOP_READ, LOOP_PRIO_CHILD, on_bytes, g, &g->watch);
    if (r == 0)
        r = loop_timer_new(loop, on_timeout, g, &g->timer);
    struct digest_config copy = *config;
    if (r == 0)
        r = helper_start(loop, HELPER_NAME, look, &copy, write_fd, &g->helper);
    (void)close(write_fd);
    if (r < 0) {
        digest_stop(g);
        return r;
    }
    uint64_t timeout_ns = config->timeout_ns > 0 ? config->timeout_ns : DIGEST_GATHER_NS;
    loop_timer_set(g->timer, clock_now_ns() + timeout_ns);
    *ret = g;
    return 0;
}
