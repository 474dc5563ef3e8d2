#include <string.h>

#include "io/process/helper_call.h"
#include "topology/discover/nvml/nvml_io.h"
#include "watchdog/look/gpus.h"
#include "watchdog/worker_signs.h"

struct gpu_watch {
    struct loop *loop;
    struct helper_call *call;           /* NULL: none is under way */
    uint64_t asked_ns;                  /* when it was last asked; 0: never */
    struct nvml_report *before, *after; /* owned; NULL: not known */
};

struct gpu_watch *gpu_watch_new(struct loop *loop) {
    struct gpu_watch *w = xcalloc(1, sizeof *w);
    *w = (struct gpu_watch){.loop = loop};
    return w;
}

void gpu_watch_free(struct gpu_watch *w) {
    if (w == NULL)
        return;
    helper_call_free(w->call);
    free(w->before);
    free(w->after);
    free(w);
}

static int run(int fd, void *arg) {
    struct nvml_report *r = xcalloc(1, sizeof *r);
    bool sent = nvml_read_load(r, NULL) == 0 && helper_send(fd, r, nvml_report_size(r->n));
    free(r);
    return sent ? 0 : 1;
}

static void on_answer(void *arg, const struct helper_answer *a) {
    struct gpu_watch *w = arg;
    w->call = NULL;
    if (a->code < 0 || a->len < nvml_report_size(0))
        return; /* nothing is concluded */
    free(w->before);
    w->before = w->after;
    w->after = xcalloc(1, sizeof *w->after);
    memcpy(w->after, a->data, a->len);
    nvml_report_clean(w->after);
}

void gpu_watch_tick(struct gpu_watch *w, uint64_t now_ns, bool wanted) {
    struct helper_call_config config = {.name = "muster-gpus",
                                        .run = run,
                                        .timeout_ns = GPU_WATCH_DEADLINE_NS,
                                        .max_bytes = sizeof(struct nvml_report)};
    if (!wanted || w->call != NULL ||
        (w->asked_ns != 0 && now_ns - w->asked_ns < GPU_WATCH_EVERY_NS) || !nvml_may_answer())
        return;
    w->asked_ns = now_ns;
    if (helper_call_new(w->loop, &config, on_answer, w, &w->call) < 0)
        w->call = NULL; /* it is tried again */
}

uint32_t gpu_watch_flags(const struct gpu_watch *w, pid_t pid, uint64_t now_ns) {
    bool seen = false;
    if (w->before == NULL || now_ns - w->after->when_ns > GPU_WATCH_AGE_MAX_NS ||
        w->after->when_ns - w->before->when_ns > GPU_WATCH_AGE_MAX_NS)
        return 0;
    bool moves = gpus_move(w->before, w->after, pid, &seen);
    return (moves ? (uint32_t)SIGN_GPU : 0U) | (seen ? (uint32_t)SIGN_GPU_SEEN : 0U);
}
