#include "watchdog/act/hang_case_io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/duration.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/helper_call.h"

/* ---- files ---- */

#define FOLDER "hangs"
#define TIME_LEN (sizeof "20261124-031038.123" - 1)
#define LISTED_MAX 1024 /* of the folders; more are not of our making */

void hang_files_name(uint64_t wall_ns, struct generation g, char ret[HANG_FILES_NAME_MAX]) {
    char t[UTC_TEXT_MAX]; /* "2026-11-24T03:10:38.123Z" */
    utc_text(wall_ns, t);
    (void)snprintf(ret, HANG_FILES_NAME_MAX, "%.4s%.2s%.2s-%.2s%.2s%.6s-%" PRIu32 ".%" PRIu32, t,
                   t + 5, t + 8, t + 11, t + 14, t + 17, g.epoch, g.counter);
}

struct kept {
    char name[HANG_FILES_NAME_MAX];
    uint64_t bytes;
};

static bool is_name(const char *name) {
    static const char form[TIME_LEN + 1] = "dddddddd-dddddd.ddd";
    size_t len = strlen(name);
    bool is = len > TIME_LEN + 1 && len < HANG_FILES_NAME_MAX && name[TIME_LEN] == '-';
    for (size_t i = 0; i < TIME_LEN && is; i++)
        is = form[i] == 'd' ? name[i] >= '0' && name[i] <= '9' : name[i] == form[i];
    return is && strspn(name + TIME_LEN + 1, "0123456789.") == len - TIME_LEN - 1;
}

static uint64_t size_of(const char *dir, const char *name, const char *file) {
    _cleanup_(freep) char *path = xasprintf("%s/%s/%s", dir, name, file);
    struct stat st;
    return stat(path, &st) == 0 && st.st_size > 0 ? (uint64_t)st.st_size : 0;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct kept *)a)->name, ((const struct kept *)b)->name);
}

/* By time. */
static size_t list_kept(const char *dir, struct kept *ret) {
    size_t n = 0;
    DIR *d = opendir(dir);
    if (d == NULL)
        return 0;
    for (struct dirent *e; n < LISTED_MAX && (e = readdir(d)) != NULL;)
        if (is_name(e->d_name))
            memcpy(ret[n++].name, e->d_name, strlen(e->d_name) + 1);
    (void)closedir(d);
    qsort(ret, n, sizeof *ret, by_name);
    for (size_t i = 0; i < n; i++)
        ret[i].bytes =
            size_of(dir, ret[i].name, "hang.txt") + size_of(dir, ret[i].name, "hang.json");
    return n;
}

static void remove_folder(const char *path) {
    DIR *d = opendir(path);
    if (d == NULL)
        return;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        (void)unlinkat(dirfd(d), e->d_name, 0);
    (void)closedir(d);
    (void)rmdir(path);
}

/* Makes room for `name` with so many bytes. What can't be removed stays. A time after this one is
 * of a clock that was set back since then: such a folder is older than those before it. */
static void prune(const char *dir, const char *name, uint64_t bytes) {
    _cleanup_(freep) struct kept *kept = xcalloc(LISTED_MAX, sizeof *kept);
    size_t n = list_kept(dir, kept), first = 0;
    for (size_t i = 0; i < n; i++)
        bytes += kept[i].bytes;
    while (first < n && strcmp(kept[first].name, name) <= 0)
        first++;
    for (size_t i = 0; i < n && (n - i >= HANG_FILES_KEPT || bytes > HANG_FILES_BYTES); i++) {
        const struct kept *oldest = &kept[(first + i) % n];
        _cleanup_(freep) char *path = xasprintf("%s/%s", dir, oldest->name);
        remove_folder(path);
        bytes -= oldest->bytes;
    }
}

static int make_folder(const char *path, uint32_t mode, struct err *err) {
    int r = own_folder_make(path, own_folder_mode(mode));
    if (r == 0 || r == -EEXIST)
        return 0;
    return err_set(err, r, "can't make the folder %s: %s", path, strerror(-r));
}

static int write_one(const char *path, uint32_t mode, const struct strbuf *text, struct err *err) {
    int r = file_write_atomic_as(path, strbuf_text(text), text->len, mode);
    return r == 0 ? 0 : err_set(err, r, "can't write %s: %s", path, strerror(-r));
}

int hang_files_write(const char *dir, const char *name, uint32_t mode, const struct strbuf *text,
                     const struct strbuf *json, char **ret_path, struct err *err) {
    _cleanup_(freep) char *all = xasprintf("%s/" FOLDER, dir);
    _cleanup_(freep) char *own = xasprintf("%s/%s", all, name);
    _cleanup_(freep) char *text_path = xasprintf("%s/hang.txt", own);
    _cleanup_(freep) char *json_path = xasprintf("%s/hang.json", own);
    int r = make_folder(all, mode, err);
    if (r < 0)
        return r;
    prune(all, name, text->len + json->len);
    r = make_folder(own, mode, err);
    if (r == 0)
        r = write_one(text_path, mode, text, err);
    if (r == 0)
        r = write_one(json_path, mode, json, err);
    if (r < 0) {
        (void)rmdir(own); /* if nothing is in it */
        return r;
    }
    *ret_path = TAKE_PTR(text_path);
    return 0;
}

static int add_to(const char *path, size_t max, const char *closing, const struct strbuf *more,
                  struct err *err) {
    _cleanup_(freep) char *was = NULL;
    _cleanup_(strbuf_fini) struct strbuf all = {0};
    size_t was_len = 0, end_len = strlen(closing);
    int r = file_read_text(path, max, &was, &was_len);
    if (r == 0 && (was_len < end_len || strcmp(was + was_len - end_len, closing) != 0))
        r = -EINVAL;
    if (r < 0)
        return err_set(err, r, "can't read %s: %s", path, strerror(-r));
    strbuf_add_bytes(&all, was, was_len - end_len);
    strbuf_add_bytes(&all, strbuf_text(more), more->len);
    strbuf_add(&all, closing);
    /* the mode is that of the file that is there */
    return write_one(path, 0600, &all, err);
}

int hang_files_amend(const char *path, const struct strbuf *text, const struct strbuf *json,
                     struct err *err) {
    const char *name = strrchr(path, '/');
    _cleanup_(freep) char *json_path = xasprintf(
        "%.*s/hang.json", name == NULL ? 1 : (int)(name - path), name == NULL ? "." : path);
    int r = add_to(path, HANG_FILES_BYTES, "", text, err);
    return r < 0 ? r : add_to(json_path, HANG_FILES_BYTES, "}", json, err);
}

/* ---- a case ---- */

struct hang_case {
    struct hang_case_config config;
    struct suspects_input in; /* what is given; owned */
    uint64_t end_ns;
    struct hang_question *question; /* one of the two is there */
    struct helper_call *call;
    pid_t pid; /* of the helper */
    char *dir; /* for files; NULL: none */
    hang_compared_fn *fn;
    void *arg;
};

/* What the helper sends: this, a struct hang_rank for each rank, and the line with its NUL; and
 * when the files are written, '+' and a path, or '-' and a sentence. The reader is a copy of the
 * same program. */
struct head {
    struct hang_compared sums; /* without what it points to */
    size_t line_len;
};
#define TAIL_MAX ((size_t)8192)

static size_t head_size(const struct head *h) {
    return sizeof *h + h->sums.n_ranks * sizeof(struct hang_rank) + h->line_len + 1;
}

/* ---- the helper ---- */

struct work {
    const struct hang_case *of;
    const struct hang_answers *answers;
    struct evidence *evidence;   /* [n_nodes] */
    struct suspects_node *nodes; /* [n_nodes] */
    bool *came;                  /* [world_size] it has a connection to the store */
    uint64_t *collectives;       /* [world_size] by NCCL RAS */
    struct err *errors;          /* [n_nodes] */
    char generation[32];
    struct suspects_input in;
    struct suspects found;
};

static void read_answers(struct work *k) {
    const struct hang_answers *a = k->answers;
    for (uint32_t i = 0; i < a->group.n_nodes; i++) {
        const struct hang_answer *from = &a->nodes[i];
        struct suspects_node *node = &k->nodes[i];
        *node = (struct suspects_node){.name = a->group.nodes[i].name, .missing = from->missing};
        if (from->missing != NULL)
            continue;
        if (evidence_read(strbuf_text(&from->json), from->json.len, &k->evidence[i],
                          &k->errors[i]) == 0)
            node->evidence = &k->evidence[i];
        else
            node->missing = k->errors[i].text;
    }
}

/* Nothing is concluded about a rank of which nothing is known, and no rank lacks a connection that
 * no other is known to have. */
static void read_came(struct work *k) {
    const struct hang_group *g = &k->answers->group;
    _cleanup_(freep) bool *came = xcalloc(g->world_size, sizeof *came);
    bool any = false;
    memset(came, true, g->world_size);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t w = 0; w < k->evidence[i].n_workers; w++) {
            const struct evidence_worker *worker = &k->evidence[i].workers[w];
            if (worker->rank >= g->world_size || g->node_of[worker->rank] != i)
                continue;
            came[worker->rank] = !worker->not_at_store;
            any = any || worker->at_store;
        }
    if (any)
        k->came = TAKE_PTR(came);
}

/* One node asks for the whole job: that of rank 0 (gather_io.h). */
static void read_collectives(struct work *k) {
    const struct hang_group *g = &k->answers->group;
    k->collectives = xcalloc(g->world_size, sizeof *k->collectives);
    evidence_counts(&k->evidence[g->node_of[0]], k->collectives, g->world_size);
}

static void compare(struct work *k) {
    const struct hang_group *g = &k->answers->group;
    k->evidence = xcalloc(g->n_nodes, sizeof *k->evidence);
    k->nodes = xcalloc(g->n_nodes, sizeof *k->nodes);
    k->errors = xcalloc(g->n_nodes, sizeof *k->errors);
    read_answers(k);
    read_came(k);
    read_collectives(k);
    (void)snprintf(k->generation, sizeof k->generation, "%" PRIu32 ".%" PRIu32, g->generation.epoch,
                   g->generation.counter);
    k->in = k->of->in;
    k->in.nodes_of = g->node_of;
    k->in.n_nodes = g->n_nodes;
    k->in.nodes = k->nodes;
    k->in.collectives = k->collectives;
    k->in.came = k->came;
    k->in.job = k->of->config.run_id;
    k->in.generation = k->generation;
    k->in.wall_ns = k->answers->asked_wall_ns;
    suspects_find(&k->in, &k->found);
}

static uint64_t place_of(const struct work *k, uint32_t rank) {
    const struct evidence_worker *w = k->found.worker_of[rank];
    const struct evidence *e = k->nodes[k->in.nodes_of[rank]].evidence;
    if (w == NULL || w->ended || w->n_threads == 0 || w->threads[0].stack < 0)
        return 0;
    return suspects_place(&e->stacks[w->threads[0].stack]);
}

static bool send_head(int fd, const struct work *k) {
    _cleanup_(strbuf_fini) struct strbuf line = {0}, out = {0};
    suspects_line(&k->found, &line);
    struct head h = {.sums = {.n_ranks = k->in.n_ranks,
                              .n_suspects = k->found.n_all,
                              .n_debugged = k->found.n_debugged,
                              .debugged = k->found.debugged,
                              .reason = k->found.n_together + k->found.n_at_exit > 0,
                              .used_ns = k->found.used_ns},
                     .line_len = line.len};
    if (k->found.n_suspects > 0)
        h.sums.first = k->found.suspects[0];
    strbuf_add_bytes(&out, &h, sizeof h);
    for (uint32_t r = 0; r < h.sums.n_ranks; r++) {
        struct hang_rank rank = {.place = place_of(k, r),
                                 .is_suspect = k->found.is_suspect[r],
                                 .ended = k->found.ended[r]};
        strbuf_add_bytes(&out, &rank, sizeof rank);
    }
    strbuf_add_bytes(&out, strbuf_text(&line), h.line_len + 1);
    return helper_send(fd, strbuf_text(&out), out.len);
}

static bool write_files(int fd, const struct work *k) {
    _cleanup_(strbuf_fini) struct strbuf text = {0}, json = {0}, tail = {0};
    _cleanup_(freep) char *path = NULL;
    char name[HANG_FILES_NAME_MAX];
    struct err err = {0};
    suspects_text(&k->found, &text);
    suspects_json(&k->found, &json);
    hang_files_name(k->in.wall_ns, k->answers->group.generation, name);
    int r = hang_files_write(k->of->dir, name, k->of->config.log_mode, &text, &json, &path, &err);
    strbuf_printf(&tail, "%c%s", r == 0 ? '+' : '-', r == 0 ? path : err.text);
    return helper_send(fd, strbuf_text(&tail), tail.len + 1);
}

static void work_fini(struct work *k) {
    for (uint32_t i = 0; i < k->answers->group.n_nodes; i++)
        evidence_fini(&k->evidence[i]);
    suspects_fini(&k->found);
    free(k->evidence);
    free(k->nodes);
    free(k->errors);
    free(k->came);
    free(k->collectives);
}

static int run(int fd, void *arg) {
    struct work *k = arg;
    compare(k);
    bool sent = send_head(fd, k);
    if (sent && k->of->dir != NULL)
        sent = write_files(fd, k);
    work_fini(k);
    return sent ? 0 : 1;
}

/* ---- this process ---- */

/* The first part. False: it has not come whole. */
static bool read_head(const struct helper_answer *a, uint32_t n_ranks, struct head *h) {
    if (a->len < sizeof *h)
        return false;
    memcpy(h, a->data, sizeof *h);
    return h->sums.n_ranks == n_ranks && a->len >= head_size(h);
}

static void read_tail(const struct hang_case *c, const struct helper_answer *a, size_t at,
                      struct hang_compared *ret) {
    const char *text = a->data + at;
    if (memchr(text, '\0', a->len - at) == NULL) {
        ret->files_error = "the disk does not answer";
        ret->stuck = a->code == -ETIMEDOUT ? c->pid : 0;
    } else if (text[0] == '-') {
        ret->files_error = text + 1;
    } else {
        ret->path = text + 1;
    }
}

static void on_compared(void *arg, const struct helper_answer *a) {
    struct hang_case *c = arg;
    struct head h;
    struct hang_compared ret = {.code = a->code < 0 ? a->code : -EPROTO, .line = ""};
    _cleanup_(freep) struct hang_rank *ranks = xcalloc(c->in.n_ranks, sizeof *ranks);
    c->call = NULL;
    if (read_head(a, c->in.n_ranks, &h)) {
        const char *rows = a->data + sizeof h;
        memcpy(ranks, rows, c->in.n_ranks * sizeof *ranks);
        ret = h.sums;
        ret.line = rows + c->in.n_ranks * sizeof *ranks;
        if (c->dir != NULL)
            read_tail(c, a, head_size(&h), &ret);
    }
    ret.ranks = ranks;
    c->fn(c->arg, &ret);
    hang_case_free(c);
}

static void on_answers(void *arg, const struct hang_answers *answers) {
    struct hang_case *c = arg;
    uint64_t now = clock_now_ns();
    const char *dir = c->config.dir == NULL ? NULL : c->config.dir(c->config.arg);
    struct work k = {.of = c, .answers = answers};
    c->question = NULL;
    c->dir = dir == NULL ? NULL : xstrdup(dir);
    struct helper_call_config config = {
        .name = HANG_COMPARE_NAME,
        .run = run,
        .arg = &k,
        .timeout_ns = c->end_ns > now ? c->end_ns - now : 0,
        .max_bytes =
            sizeof(struct head) + (size_t)c->in.n_ranks * 16 + SUSPECTS_LINE_MAX + TAIL_MAX,
        .may_linger = dir != NULL,
    };
    int r = helper_call_new(c->config.loop, &config, on_compared, c, &c->call);
    if (r < 0) {
        on_compared(c, &(struct helper_answer){.code = r});
        return;
    }
    c->pid = helper_call_pid(c->call);
    if (dir != NULL && c->config.writes != NULL)
        c->config.writes(c->config.arg, c->pid);
}

uint64_t hang_case_native_ns(const struct hang_settings *settings) {
    return MIN2(settings->evidence_timeout_ns, HANG_LOOK_MAX_NS) / 4;
}

/* A copy of n bytes; NULL: of none. */
static void *copy_of(const void *from, size_t n) {
    return from == NULL ? NULL : memcpy(xmalloc(MAX2(n, (size_t)1)), from, n);
}

int hang_case_new(const struct hang_case_config *config, const struct suspects_input *in, bool ends,
                  hang_compared_fn *fn, void *arg, struct hang_case **ret) {
    uint64_t timeout_ns = MIN2(config->settings->evidence_timeout_ns, HANG_LOOK_MAX_NS);
    if (timeout_ns == 0)
        return -ECANCELED;
    if (ends)
        timeout_ns -= hang_case_native_ns(config->settings);
    struct hang_case *c = xcalloc(1, sizeof *c);
    *c = (struct hang_case){.config = *config,
                            .in = *in,
                            .end_ns = clock_now_ns() + timeout_ns + HANG_CASE_LATE_NS,
                            .fn = fn,
                            .arg = arg};
    int r = hang_evidence_ask(config->evidence,
                              in->waited != NULL ? HANG_BEFORE_STOP : HANG_FOR_WATCHDOG, timeout_ns,
                              on_answers, c, &c->question);
    if (r < 0) {
        free(c);
        return r;
    }
    c->in.n_ranks = hang_evidence_group(config->evidence)->world_size;
    c->in.what = copy_of(in->what, in->what == NULL ? 0 : strlen(in->what) + 1);
    c->in.signs = copy_of(in->signs, in->n_signs * sizeof *in->signs);
    c->in.waited = copy_of(in->waited, c->in.n_ranks * sizeof *in->waited);
    *ret = c;
    return 0;
}

bool hang_case_has_answers(const struct hang_case *c) { return c->call != NULL; }

void hang_case_free(struct hang_case *c) {
    if (c == NULL)
        return;
    hang_question_free(c->question);
    helper_call_free(c->call);
    free(c->dir);
    free((void *)(uintptr_t)c->in.what);
    free((void *)(uintptr_t)c->in.signs);
    free((void *)(uintptr_t)c->in.waited);
    free(c);
}
