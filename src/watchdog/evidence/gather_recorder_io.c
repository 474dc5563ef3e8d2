#include "watchdog/evidence/gather_recorder_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "io/clock.h"
#include "watchdog/evidence/gather_disk_io.h"
#include "watchdog/evidence/gather_env_io.h"
#include "watchdog/look/recorder.h"

#define COPY_NS NS_PER_S /* at most, for copies, when nothing more is waited for */
#define WHAT "flight recorder of NCCL: "

struct gather_recorder {
    struct helper_call *call;
    size_t n;
    struct source_recorder_dump *dumps; /* [n] */
    uint32_t *workers;                  /* [n] of each, its number in the evidence */
    uint64_t end_ns, copied_ns;
};

/* What the helper sends, one for each. */
struct told {
    int32_t code;
    uint64_t bytes;
    char why[256];
};

static void recorder_free(struct gather_recorder *r) {
    for (size_t i = 0; i < r->n; i++) {
        free((void *)(uintptr_t)r->dumps[i].fifo);
        free((void *)(uintptr_t)r->dumps[i].dump);
        free((void *)(uintptr_t)r->dumps[i].keep);
    }
    helper_call_free(r->call);
    free(r->dumps);
    free(r->workers);
    free(r);
}

/* ---- in its helper ---- */

static int run(int fd, void *arg) {
    const struct gather_recorder *r = *(const struct gather_recorder *const *)arg;
    struct told *told = xcalloc(r->n, sizeof *told); /* memory goes with the process */
    source_recorder_dumps(r->dumps, r->n, r->end_ns, r->copied_ns);
    for (size_t i = 0; i < r->n; i++) {
        told[i].code = r->dumps[i].code;
        told[i].bytes = r->dumps[i].bytes;
        (void)snprintf(told[i].why, sizeof told[i].why, "%.255s", r->dumps[i].err.text);
    }
    return helper_send(fd, told, r->n * sizeof *told) ? 0 : 1;
}

/* ---- beginning ---- */

static bool is_below(const char *path, const char *dir) {
    size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && path[n] == '/';
}

static void add(struct gather_recorder *r, const struct gather_ask *ask, const struct evidence *e,
                uint32_t i) {
    const struct evidence_worker *w = &e->workers[i];
    struct source_recorder_dump *d = &r->dumps[r->n];
    _cleanup_(gather_env_fini) struct gather_env env = {0};
    gather_env_read(ask, w, &env);
    const char *fifo = gather_env_get(&env, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE");
    const char *dump = gather_env_get(&env, "TORCH_FR_DUMP_TEMP_FILE");
    if (dump == NULL)
        dump = gather_env_get(&env, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE");
    if (fifo == NULL)
        return;
    *d = (struct source_recorder_dump){.fifo = xasprintf("%s%u.pipe", fifo, w->rank)};
    if (dump != NULL)
        d->dump = xasprintf("%s%u", dump, w->rank);
    if (dump != NULL && ask->keep_dir != NULL && !is_below(dump, ask->keep_dir))
        d->keep = xasprintf("%s/nccl_trace_rank_%u", ask->keep_dir, w->rank);
    r->workers[r->n++] = i;
}

struct gather_recorder *gather_recorder_begin(struct evidence *e, const struct gather_ask *ask,
                                              uint64_t deadline_ns) {
    struct gather_recorder *r = xcalloc(1, sizeof *r);
    r->dumps = xcalloc(e->n_workers + (size_t)1, sizeof *r->dumps);
    r->workers = xcalloc(e->n_workers + (size_t)1, sizeof *r->workers);
    for (uint32_t i = 0; i < e->n_workers; i++)
        if (!e->workers[i].ended)
            add(r, ask, e, i);
    uint64_t now = clock_now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
    uint64_t more = MIN2(left / 4, COPY_NS);
    r->end_ns = deadline_ns;
    r->copied_ns = deadline_ns + more / 2; /* the rest is for the answer */
    struct helper_call_config config = {.name = GATHER_RECORDER_NAME,
                                        .run = run,
                                        .arg = &r,
                                        .timeout_ns = left + more,
                                        .max_bytes = r->n * sizeof(struct told)};
    int code = r->n > 0 ? gather_disk_call(ask, &config, &r->call) : 0;
    if (code < 0)
        evidence_gap(e, WHAT "%s", gather_disk_why(code));
    if (r->n > 0 && code == 0)
        return r;
    recorder_free(r);
    return NULL;
}

/* ---- the end ---- */

static void tell(const struct source_recorder_dump *d, const struct told *told,
                 struct evidence_worker *w) {
    struct strbuf text = {0};
    strbuf_add(&text, w->recorder != NULL ? w->recorder : "");
    if (d->dump == NULL)
        strbuf_add(&text, "NCCL's recorder was asked to write its file\n");
    else
        strbuf_printf(&text, "NCCL's recorder has written %.1024s, %llu bytes\n", d->dump,
                      (unsigned long long)told->bytes);
    if (told->code == 0 && d->keep != NULL)
        strbuf_printf(&text, "copied to %.1024s\n", d->keep);
    free(w->recorder);
    w->recorder = strbuf_take(&text);
}

void gather_recorder_end(struct gather_recorder *r, struct evidence *e) {
    struct helper_answer answer;
    if (r == NULL)
        return;
    helper_call_wait(r->call, &answer);
    bool whole = answer.len == r->n * sizeof(struct told);
    if (!whole)
        evidence_gap(e, WHAT "%s",
                     answer.code == -ETIMEDOUT ? "the disk of its files does not answer"
                     : answer.code < 0         ? strerror(-answer.code)
                                               : "the process that asks it has ended");
    for (size_t i = 0; i < r->n && whole; i++) {
        struct evidence_worker *w = &e->workers[r->workers[i]];
        struct told told;
        memcpy(&told, answer.data + i * sizeof told, sizeof told);
        told.why[sizeof told.why - 1] = '\0';
        if (told.code == 0 || told.bytes > 0)
            tell(&r->dumps[i], &told, w);
        if (told.code < 0 && told.code != -ENOENT)
            evidence_worker_gap(w, WHAT "%s", told.why);
    }
    recorder_free(r);
}
