#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"
#include "io/clock.h"
#include "watchdog/evidence/gather_priv.h"
#include "watchdog/look/gpus.h"
#include "watchdog/look/kernel_log.h"
#include "watchdog/look/nics.h"
#include "watchdog/look/ras.h"
#include "watchdog/look/recorder.h"

#define NICS_APART_NS (250 * NS_PER_MS)

/* An empty text leaves the field as it is. */
static void take_text(char **to, struct strbuf *text) {
    if (text->len > 0) {
        free(*to);
        *to = strbuf_take(text);
    }
    strbuf_fini(text);
}

static void ask_recorder(struct evidence_worker *w, const char *socket, uint64_t deadline_ns,
                         uint32_t *without) {
    struct recorder rec;
    struct err err = {0};
    int r = source_recorder(socket, deadline_ns, &rec, &err);
    if (r == -ENOENT || r == -ECONNREFUSED) {
        ++*without;
        return;
    }
    if (r < 0) {
        evidence_worker_gap(w, "flight recorder: %s", err.text);
        return;
    }
    struct strbuf text = {0};
    recorder_summary(&rec, (double)clock_wall_ns() / 1e9, &text);
    take_text(&w->recorder, &text);
    w->collectives = recorder_collectives(&rec);
    recorder_fini(&rec);
}

static void ask_recorders(struct evidence *e, const struct gather_ask *ask, uint64_t end_ns) {
    uint32_t without = 0;
    for (uint32_t i = 0; i < e->n_workers; i++) {
        struct evidence_worker *w = &e->workers[i];
        _cleanup_(gather_env_fini) struct gather_env env = {0};
        uint64_t now = clock_now_ns();
        if (w->ended)
            continue;
        if (now >= end_ns) {
            evidence_worker_gap(w, "flight recorder: there was no time left");
            continue;
        }
        gather_env_read(ask, w, &env);
        const char *socket = gather_env_get(&env, "TORCH_WORKER_SERVER_SOCKET");
        /* One that does not answer costs the others less than all of the time. */
        if (socket != NULL)
            ask_recorder(w, socket, now + (end_ns - now) / 2, &without);
    }
    if (without > 0)
        evidence_gap(e,
                     "flight recorder: %u worker%s no server for it: the program does not use "
                     "worker_main() of torch.distributed.elastic.control_plane",
                     without, without == 1 ? " has" : "s have");
}

static const struct evidence_worker *first_rank(const struct evidence *e) {
    for (uint32_t i = 0; i < e->n_workers; i++)
        if (e->workers[i].rank == 0 && !e->workers[i].ended)
            return &e->workers[i];
    return NULL;
}

/* The processes of the workers, and their children: of a wrapper, one of these is the rank. */
static struct ras_own *own_of(const struct evidence *e, size_t *ret_n) {
    size_t n = 0;
    for (uint32_t i = 0; i < e->n_workers; i++)
        n += 1 + e->workers[i].n_children;
    struct ras_own *own = xcalloc(n + 1, sizeof *own);
    *ret_n = 0;
    for (uint32_t i = 0; i < e->n_workers; i++) {
        const struct evidence_worker *w = &e->workers[i];
        own[(*ret_n)++] = (struct ras_own){w->rank, w->pid};
        for (uint32_t k = 0; k < w->n_children; k++)
            own[(*ret_n)++] = (struct ras_own){w->rank, w->children[k].pid};
    }
    return own;
}

/* Of the ranks of all nodes: theirs may have no evidence. */
static void take_counts(struct evidence *e, const struct ras *ras, uint32_t world) {
    size_t n_own;
    _cleanup_(freep) struct ras_own *own = own_of(e, &n_own);
    _cleanup_(freep) uint64_t *counts = xcalloc(world + (size_t)1, sizeof *counts);
    (void)ras_counts(ras, world, own, n_own, counts);
    if (evidence_add_counts(e, counts, world) < 0)
        evidence_gap(e, "NCCL RAS: too many ranks differ: not all are compared");
}

static void ask_ras(struct evidence *e, const struct gather_ask *gather, uint64_t end_ns) {
    const struct evidence_worker *first = first_rank(e);
    _cleanup_(gather_env_fini) struct gather_env env = {0};
    struct ras ras;
    struct err err = {0};
    uint32_t world = 0;
    if (first == NULL)
        return;
    gather_env_read(gather, first, &env);
    const char *size = gather_env_get(&env, "WORLD_SIZE");
    const char *address = gather_env_get(&env, "NCCL_RAS_ADDR");
    if (address == NULL) /* muster sets it where there are GPUs; another job may have the default */
        return;
    if (source_ras(address, end_ns, &ras, &err) < 0) {
        evidence_gap(e, "NCCL RAS: %s", err.text);
        return;
    }
    struct strbuf text = {0};
    ras_summary(&ras, &text);
    take_text(&e->ras, &text);
    if (size != NULL && parse_u32(size, &world) == 0 && world <= RAS_RANKS_MAX)
        take_counts(e, &ras, world);
    ras_fini(&ras);
}

/* Two readings at once would show nothing that moves. Returns at end_ns at the latest. */
static void wait_until(uint64_t when_ns, uint64_t end_ns) {
    for (uint64_t now; (now = clock_now_ns()) < MIN2(when_ns, end_ns);)
        (void)poll(NULL, 0, (int)((MIN2(when_ns, end_ns) - now) / NS_PER_MS) + 1);
}

static void look_at_nics(struct evidence *e, const struct nics *before, uint64_t end_ns) {
    struct nics *after = xcalloc(1, sizeof *after);
    struct err err = {0};
    struct strbuf text = {0};
    uint64_t now = clock_now_ns();
    wait_until(before->when_ns + NICS_APART_NS, now + (end_ns > now ? end_ns - now : 0) / 2);
    if (source_nics(NULL, end_ns, after, &err) < 0)
        evidence_gap(e, "NICs: %s", err.text);
    nics_summary(before, after, &text);
    take_text(&e->nics, &text);
    free(after);
}

static void read_kernel_log(struct evidence *e, uint64_t since_ns, uint64_t end_ns) {
    struct err err = {0};
    struct strbuf text = {0};
    if (source_kernel_log(NULL, since_ns, end_ns, &text, &err) < 0)
        evidence_gap(e, "kernel log: %s", err.text);
    take_text(&e->kernel_log, &text);
}

bool gather_gpus(struct evidence *e, uint64_t end_ns) {
    struct err err = {0};
    if (!source_gpus_may_answer() || clock_now_ns() >= end_ns)
        return false;
    struct gpus *before = xcalloc(2, sizeof *before), *after = before + 1;
    int r = source_gpus(before, &err);
    if (r == 0) {
        wait_until(before->when_ns + NICS_APART_NS, end_ns);
        r = source_gpus(after, &err);
    }
    if (r < 0)
        evidence_gap(e, "GPUs: %s", err.text);
    struct strbuf text = {0};
    gpus_summary(before, after, &text);
    take_text(&e->gpus, &text);
    free(before);
    return true;
}

void gather_sources_begin(struct nics *ret, uint64_t end_ns) {
    struct err unused = {0};
    (void)!source_nics(NULL, end_ns, ret, &unused); /* the second reading has the reason */
}

void gather_sources(struct evidence *e, const struct gather_ask *ask, const struct nics *before,
                    uint64_t end_ns) {
    uint64_t now = clock_now_ns(), left = end_ns > now ? end_ns - now : 0;
    ask_recorders(e, ask, now + left / 2);
    ask_ras(e, ask, now + left * 3 / 4);
    read_kernel_log(e, ask->since_ns, end_ns);
    look_at_nics(e, before, end_ns);
}

/* ---- the file of NCCL's recorder ---- */

#define COPY_NS NS_PER_S /* at most, for copies, when nothing more is waited for */
#define NCCL_RECORDER "flight recorder of NCCL: "

struct gather_recorder {
    struct helper_call *call;
    size_t n;
    struct source_recorder_dump *dumps; /* [n] */
    uint32_t *workers;                  /* [n] of each, its number in the evidence */
    uint64_t end_ns, copied_ns;
};

/* What the helper sends, one for each. */
struct dump_result {
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

static int run(int fd, void *arg) {
    const struct gather_recorder *r = *(const struct gather_recorder *const *)arg;
    _cleanup_(freep) struct dump_result *results = xcalloc(r->n, sizeof *results);
    source_recorder_dumps(r->dumps, r->n, r->end_ns, r->copied_ns);
    for (size_t i = 0; i < r->n; i++) {
        results[i].code = r->dumps[i].code;
        results[i].bytes = r->dumps[i].bytes;
        (void)snprintf(results[i].why, sizeof results[i].why, "%.255s", r->dumps[i].err.text);
    }
    return helper_send(fd, results, r->n * sizeof *results) ? 0 : 1;
}

static bool is_below(const char *path, const char *dir) {
    size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && path[n] == '/';
}

static void add_dump(struct gather_recorder *r, const struct gather_ask *ask,
                     const struct evidence *e, uint32_t i) {
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
            add_dump(r, ask, e, i);
    uint64_t now = clock_now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
    uint64_t more = MIN2(left / 4, COPY_NS);
    r->end_ns = deadline_ns;
    r->copied_ns = deadline_ns + more / 2; /* the rest is for the answer */
    struct helper_call_config config = {.name = GATHER_RECORDER_NAME,
                                        .run = run,
                                        .arg = &r,
                                        .timeout_ns = left + more,
                                        .max_bytes = r->n * sizeof(struct dump_result)};
    int code = r->n > 0 ? gather_disk_call(ask, &config, &r->call) : 0;
    if (code < 0)
        evidence_gap(e, NCCL_RECORDER "%s", gather_disk_why(code));
    if (r->n > 0 && code == 0)
        return r;
    recorder_free(r);
    return NULL;
}

static void add_result(const struct source_recorder_dump *d, const struct dump_result *result,
                       struct evidence_worker *w) {
    struct strbuf text = {0};
    strbuf_add(&text, w->recorder != NULL ? w->recorder : "");
    if (d->dump == NULL)
        strbuf_add(&text, "NCCL's recorder was asked to write its file\n");
    else
        strbuf_printf(&text, "NCCL's recorder has written %.1024s, %llu bytes\n", d->dump,
                      (unsigned long long)result->bytes);
    if (result->code == 0 && d->keep != NULL)
        strbuf_printf(&text, "copied to %.1024s\n", d->keep);
    take_text(&w->recorder, &text);
}

void gather_recorder_end(struct gather_recorder *r, struct evidence *e) {
    struct helper_answer answer;
    if (r == NULL)
        return;
    helper_call_wait(r->call, &answer);
    bool whole = answer.len == r->n * sizeof(struct dump_result);
    if (!whole)
        evidence_gap(e, NCCL_RECORDER "%s",
                     answer.code == -ETIMEDOUT ? "the disk of its files does not answer"
                     : answer.code < 0         ? strerror(-answer.code)
                                               : "the process that asks it has ended");
    for (size_t i = 0; i < r->n && whole; i++) {
        struct evidence_worker *w = &e->workers[r->workers[i]];
        struct dump_result result;
        memcpy(&result, answer.data + i * sizeof result, sizeof result);
        result.why[sizeof result.why - 1] = '\0';
        if (result.code == 0 || result.bytes > 0)
            add_result(&r->dumps[i], &result, w);
        if (result.code < 0 && result.code != -ENOENT)
            evidence_worker_gap(w, NCCL_RECORDER "%s", result.why);
    }
    recorder_free(r);
}
