#include "launcher/hang/hang_compare_io.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json.h"
#include "io/process/helper_call.h"
#include "launcher/hang/hang_files_io.h"
#include "launcher/supervise/spare_io.h"

/* What the helper sends: this, the places, who has ended, then the texts, each with a NUL; and
 * when the files are written, an errno and a path or a sentence. The reader is a copy of the same
 * program. */
struct head {
    struct hang_compared sums; /* without what it points to */
    size_t line_len;
};
struct tail {
    int32_t code; /* of the files */
    uint32_t len; /* of what follows, with its NUL */
};
#define TAIL_MAX ((size_t)8192)

static size_t head_size(const struct head *h) {
    return sizeof *h + h->sums.n_ranks * (sizeof(uint64_t) + 2 * sizeof(bool)) + h->line_len +
           h->sums.text_len + h->sums.json_len + 3;
}

/* ---- the helper ---- */

struct work {
    const struct hang_compare_ask *ask;
    struct evidence *evidence;   /* [n_nodes] */
    struct suspects_node *nodes; /* [n_nodes] */
    bool *came;                  /* [world_size] it has a connection to the store */
    uint64_t *collectives;       /* [world_size] by NCCL RAS */
    struct err *errors;          /* [n_nodes] */
    struct suspects_input in;
    struct suspects found;
};

static void read_answers(struct work *k) {
    const struct hang_answers *a = k->ask->answers;
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

/* Of whom nothing is known, nothing is concluded; and nobody lacks what none is known to have. */
static void read_came(struct work *k) {
    const struct hang_group *g = &k->ask->answers->group;
    bool *came = xcalloc(g->world_size, sizeof *came), any = false;
    memset(came, true, g->world_size);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t w = 0; w < k->evidence[i].n_workers; w++) {
            const struct evidence_worker *worker = &k->evidence[i].workers[w];
            if (worker->rank >= g->world_size || g->node_of[worker->rank] != i)
                continue;
            came[worker->rank] = !worker->not_at_store;
            any = any || worker->at_store;
        }
    k->came = any ? came : NULL; /* memory goes with the process */
}

/* One node asks for the whole job: that of rank 0 (gather_sources_io.h). */
static void read_collectives(struct work *k) {
    const struct hang_group *g = &k->ask->answers->group;
    k->collectives = xcalloc(g->world_size, sizeof *k->collectives);
    evidence_counts(&k->evidence[g->node_of[0]], k->collectives, g->world_size);
}

static int compare(struct work *k) {
    const struct hang_compare_ask *ask = k->ask;
    const struct hang_group *g = &ask->answers->group;
    k->evidence = xcalloc(g->n_nodes, sizeof *k->evidence);
    k->nodes = xcalloc(g->n_nodes, sizeof *k->nodes);
    k->errors = xcalloc(g->n_nodes, sizeof *k->errors);
    read_answers(k);
    read_came(k);
    read_collectives(k);
    k->in = (struct suspects_input){.n_ranks = g->world_size,
                                    .nodes_of = g->node_of,
                                    .n_nodes = g->n_nodes,
                                    .nodes = k->nodes,
                                    .collectives = k->collectives,
                                    .came = k->came,
                                    .waited = ask->waited,
                                    .failed = ask->failed,
                                    .what = ask->what,
                                    .quiet_ns = ask->quiet_ns,
                                    .signs = ask->signs,
                                    .n_signs = ask->n_signs};
    return suspects_find(&k->in, &k->found);
}

static uint64_t place_of(const struct work *k, uint32_t rank) {
    const struct evidence_worker *w = k->found.worker_of[rank];
    const struct evidence *e = k->nodes[k->in.nodes_of[rank]].evidence;
    if (w == NULL || w->ended || w->n_threads == 0 || w->threads[0].stack < 0)
        return 0;
    return suspects_place(&e->stacks[w->threads[0].stack]);
}

/* For people: when, of which job. */
static void write_text(const struct work *k, struct strbuf *ret) {
    struct generation g = k->ask->answers->group.generation;
    char time[HANG_FILES_NAME_MAX];
    hang_files_time(k->ask->answers->asked_wall_ns, time);
    strbuf_printf(ret, "job %s, generation %" PRIu32 ".%" PRIu32 ", %s\n",
                  k->ask->job != NULL ? k->ask->job : "", g.epoch, g.counter, time);
    suspects_text(&k->in, &k->found, ret);
}

/* The same at the front of the object. */
static void write_json(const struct work *k, struct strbuf *ret) {
    _cleanup_(strbuf_fini) struct strbuf rest = {0};
    struct generation g = k->ask->answers->group.generation;
    struct json_writer w = json_writer_of(ret);
    char generation[32], time[HANG_FILES_NAME_MAX];
    hang_files_time(k->ask->answers->asked_wall_ns, time);
    (void)snprintf(generation, sizeof generation, "%" PRIu32 ".%" PRIu32, g.epoch, g.counter);
    json_write_object_begin(&w, NULL);
    json_write_string(&w, "job", k->ask->job != NULL ? k->ask->job : "");
    json_write_string(&w, "generation", generation);
    json_write_string(&w, "time", time);
    json_write_object_end(&w);
    suspects_json(&k->in, &k->found, &rest);
    ret->data[ret->len - 1] = ','; /* two objects become one */
    strbuf_add(ret, strbuf_text(&rest) + 1);
}

static bool send_head(int fd, const struct work *k, const struct strbuf *text,
                      const struct strbuf *json) {
    _cleanup_(strbuf_fini) struct strbuf line = {0}, out = {0};
    bool wants_text = k->ask->wants_text, wants_json = k->ask->wants_json;
    suspects_line(&k->in, &k->found, &line);
    struct head h = {.sums = {.n_ranks = k->in.n_ranks,
                              .n_suspects = k->found.n_all,
                              .n_debugged = k->found.n_debugged,
                              .debugged = k->found.debugged,
                              .reason = k->found.n_together + k->found.n_at_exit > 0,
                              .used_ns = k->found.used_ns,
                              .text_len = wants_text ? text->len : 0,
                              .json_len = wants_json ? json->len : 0},
                     .line_len = line.len};
    if (k->found.n_suspects > 0)
        h.sums.first = k->found.suspects[0];
    strbuf_add_bytes(&out, &h, sizeof h);
    for (uint32_t r = 0; r < h.sums.n_ranks; r++) {
        uint64_t place = place_of(k, r);
        strbuf_add_bytes(&out, &place, sizeof place);
    }
    strbuf_add_bytes(&out, k->found.ended, h.sums.n_ranks * sizeof(bool));
    strbuf_add_bytes(&out, k->found.is_suspect, h.sums.n_ranks * sizeof(bool));
    strbuf_add_bytes(&out, strbuf_text(&line), h.line_len + 1);
    strbuf_add_bytes(&out, wants_text ? strbuf_text(text) : "", h.sums.text_len + 1);
    strbuf_add_bytes(&out, wants_json ? strbuf_text(json) : "", h.sums.json_len + 1);
    return helper_send(fd, strbuf_text(&out), out.len);
}

static bool send_tail(int fd, int code, const char *text) {
    struct tail t = {.code = code, .len = (uint32_t)strlen(text) + 1};
    return t.len <= TAIL_MAX - sizeof t && helper_send(fd, &t, sizeof t) &&
           helper_send(fd, text, t.len);
}

static bool write_files(int fd, const struct work *k, const char *name, const struct strbuf *text,
                        const struct strbuf *json) {
    struct hang_files_text parts[2] = {{strbuf_text(text), text->len},
                                       {strbuf_text(json), json->len}};
    _cleanup_(freep) char *path = NULL;
    struct err err = {0};
    int r =
        hang_files_write(k->ask->dir, name, k->ask->log_mode, &parts[0], &parts[1], &path, &err);
    return send_tail(fd, r, r == 0 ? path : err.text);
}

static int run(int fd, void *arg) {
    const struct hang_compare_ask *ask = arg;
    struct work k = {.ask = ask};
    _cleanup_(strbuf_fini) struct strbuf text = {0}, json = {0};
    char name[HANG_FILES_NAME_MAX];
    int r = compare(&k);
    if (r < 0)
        return helper_send(fd, &(struct head){.sums.code = r}, sizeof(struct head)) ? 0 : 1;
    hang_files_name(ask->answers->asked_wall_ns, ask->answers->group.generation, name);
    if (ask->wants_text || ask->dir != NULL)
        write_text(&k, &text);
    if (ask->wants_json || ask->dir != NULL)
        write_json(&k, &json);
    bool sent = send_head(fd, &k, &text, &json);
    if (sent && ask->dir != NULL)
        sent = write_files(fd, &k, name, &text, &json);
    return sent ? 0 : 1; /* all memory goes with the process */
}

/* ---- this process ---- */

struct hang_compare {
    struct helper_call *call;
    pid_t pid;
    char *dir; /* NULL: no files */
    uint32_t n_ranks;
    hang_compared_fn *fn;
    void *arg;
};

/* The first part. False: it has not come whole. */
static bool read_head(const struct helper_answer *a, uint32_t n_ranks, struct head *h) {
    if (a->len < sizeof *h)
        return false;
    memcpy(h, a->data, sizeof *h);
    return h->sums.code != 0 || (h->sums.n_ranks == n_ranks && a->len >= head_size(h));
}

static void read_tail(const struct hang_compare *c, const struct helper_answer *a, size_t at,
                      struct hang_compared *ret) {
    struct tail t;
    bool whole = a->len >= at + sizeof t;
    if (whole)
        memcpy(&t, a->data + at, sizeof t);
    if (!whole || a->len < at + sizeof t + t.len) {
        ret->files_error = "the disk does not answer";
        ret->stuck = a->code == -ETIMEDOUT ? c->pid : 0;
    } else if (t.code < 0) {
        ret->files_error = a->data + at + sizeof t;
    } else {
        ret->path = a->data + at + sizeof t;
    }
}

static void on_answer(void *arg, const struct helper_answer *a) {
    struct hang_compare *c = arg;
    struct head h;
    struct hang_compared ret = {
        .code = a->code < 0 ? a->code : -EPROTO, .line = "", .text = "", .json = ""};
    _cleanup_(freep) uint64_t *places = xcalloc(c->n_ranks + (size_t)1, sizeof *places);
    _cleanup_(freep) bool *ended = xcalloc(c->n_ranks + (size_t)1, sizeof *ended);
    _cleanup_(freep) bool *suspects = xcalloc(c->n_ranks + (size_t)1, sizeof *suspects);
    bool whole = read_head(a, c->n_ranks, &h);
    if (whole && h.sums.code == 0) {
        const char *p = a->data + sizeof h;
        memcpy(places, p, c->n_ranks * sizeof *places);
        p += c->n_ranks * sizeof *places;
        memcpy(ended, p, c->n_ranks * sizeof *ended);
        p += c->n_ranks * sizeof *ended;
        memcpy(suspects, p, c->n_ranks * sizeof *suspects);
        ret = h.sums;
        ret.line = p + c->n_ranks * sizeof *suspects;
        ret.text = ret.line + h.line_len + 1;
        ret.json = ret.text + ret.text_len + 1;
        if (c->dir != NULL)
            read_tail(c, a, head_size(&h), &ret);
    } else if (whole) {
        ret.code = h.sums.code;
    }
    ret.n_ranks = c->n_ranks;
    ret.places = places;
    ret.ended = ended;
    ret.suspects = suspects;
    c->fn(c->arg, &ret);
    free(c->dir);
    free(c);
}

int hang_compare_new(struct loop *loop, const struct hang_compare_ask *ask, hang_compared_fn *fn,
                     void *arg, struct hang_compare **ret) {
    struct hang_compare *c = xcalloc(1, sizeof *c);
    struct hang_compare_ask copy = *ask;
    *c = (struct hang_compare){.n_ranks = ask->answers->group.world_size,
                               .dir = ask->dir == NULL ? NULL : xstrdup(ask->dir),
                               .fn = fn,
                               .arg = arg};
    struct helper_call_config config = {
        .name = SPARE_COMPARE_NAME,
        .run = run,
        .arg = &copy,
        .timeout_ns = ask->timeout_ns,
        .max_bytes = sizeof(struct head) + (size_t)c->n_ranks * 16 + SUSPECTS_LINE_MAX +
                     2 * SUSPECTS_TEXT_MAX + 2 * (size_t)SUSPECTS_JSON_MAX + TAIL_MAX,
        .may_linger = ask->dir != NULL,
    };
    int r = helper_call_new(loop, &config, on_answer, c, &c->call);
    if (r < 0) {
        free(c->dir);
        free(c);
        return r;
    }
    c->pid = helper_call_pid(c->call);
    *ret = c;
    return 0;
}

pid_t hang_compare_pid(const struct hang_compare *c) { return c->pid; }

void hang_compare_free(struct hang_compare *c) {
    if (c == NULL)
        return;
    helper_call_free(c->call);
    free(c->dir);
    free(c);
}
