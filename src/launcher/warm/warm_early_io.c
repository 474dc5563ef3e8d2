#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/text/log.h"
#include "launcher/warm/warm_priv.h"

static void forget(struct warm_pool *p) {
    free(TAKE_PTR(p->earlier));
    p->earlier_bytes = 0;
}

static int write_record(const struct warm_pool *p, size_t n) {
    if (ftruncate(p->record_fd, 0) < 0)
        return -errno;
    ssize_t wrote = pwrite(p->record_fd, p->earlier, n, 0);
    return wrote < 0 ? -errno : (size_t)wrote < n ? -EIO : 0;
}

void warm_early_probed(struct warm_pool *p, const char *why_not) {
    p->told_bytes = p->earlier_bytes;
    forget(p);
    if (why_not != NULL) {
        log_info("what an earlier run imported is not used: %s", why_not);
        (void)!ftruncate(p->record_fd, 0);
        return;
    }
    log_info("what an earlier run imported is imported while nodes wait for each other");
    p->recorded = p->ahead = p->borrowed = true;
    warm_go_on(p);
    warm_set_timer(p);
}

static void drop_unready(struct warm_one *one) {
    if (one->state == WARM_STATE_WARMING)
        warm_drop(one);
}

void warm_drop_unready(struct warm_pool *p) {
    drop_unready(&p->template);
    for (uint32_t i = 0; i < p->config.n; i++)
        drop_unready(&p->ranks[i]);
}

void warm_early_end(struct warm_pool *p) {
    warm_drop(&p->probe);
    forget(p);
    if (!p->ahead)
        return;
    p->ahead = false;
    warm_drop_unready(p);
}

void warm_pool_foresee(struct warm_pool *p, uint32_t index, const struct child_spec *spec) {
    child_spec_free(p->specs[index]);
    p->specs[index] = child_spec_copy(spec);
}

/* It passes the gate as the workers' Python does, and has no script that it could run if it does
 * not. */
void warm_pool_expect(struct warm_pool *p, const char *record, size_t n) {
    char unbuffered[] = "-u", command[] = "-c", nothing[] = "";
    if (p->off || p->recording || p->recorded || p->specs[0] == NULL || p->earlier != NULL)
        return;
    char *argv[] = {p->specs[0]->argv[0], unbuffered, command, nothing, NULL};
    struct child_spec probe = *p->specs[0];
    struct err err = {0};
    probe.argv = argv;
    p->earlier = xcalloc(1, n + 1);
    p->earlier_bytes = n;
    memcpy(p->earlier, record, n);
    int r = write_record(p, n);
    if (r == 0)
        r = warm_start(&p->probe, &probe, &err);
    if (r < 0) {
        warm_drop(&p->probe);
        warm_early_probed(p, err.text[0] != '\0' ? err.text : strerror(-r));
        return;
    }
    warm_set_timer(p);
}
