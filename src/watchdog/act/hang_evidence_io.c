#include "watchdog/act/hang_evidence_io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/list.h"
#include "base/text/duration.h"
#include "base/text/parse.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/helper_call.h"
#include "rendezvous/protocol/wire.h"

/* ---- the group ---- */

void hang_group_fini(struct hang_group *g) {
    free(g->nodes);
    free(g->node_of);
    *g = (struct hang_group){0};
}

bool hang_group_make(struct generation generation, const struct hang_node *nodes, size_t n,
                     struct hang_group *ret) {
    struct hang_group g = {.generation = generation, .n_nodes = (uint32_t)n};
    bool fits = true;
    *ret = (struct hang_group){0};
    g.nodes = xcalloc(n, sizeof *g.nodes);
    for (size_t i = 0; i < n && fits; i++) {
        g.nodes[i] = nodes[i];
        g.nodes[i].first_rank = g.world_size;
        fits = nodes[i].nproc <= HANG_RANKS_MAX - g.world_size;
        g.world_size += nodes[i].nproc;
    }
    if (!fits || g.world_size == 0) {
        hang_group_fini(&g);
        return false;
    }
    g.node_of = xcalloc(g.world_size, sizeof *g.node_of);
    for (uint32_t i = 0; i < g.n_nodes; i++)
        for (uint32_t k = 0; k < g.nodes[i].nproc; k++)
            g.node_of[g.nodes[i].first_rank + k] = i;
    *ret = g;
    return true;
}

/* *ret is empty if it is. */
static void copy_group(const struct hang_group *g, struct hang_group *ret) {
    (void)!hang_group_make(g->generation, g->nodes, g->n_nodes, ret);
}

bool hang_group_read(const struct group *group, struct hang_group *ret) {
    size_t n = group_members(group, NULL, 0);
    _cleanup_(freep) uint64_t *members = xcalloc(n, sizeof *members);
    n = MIN2(group_members(group, members, n), n);
    _cleanup_(freep) struct hang_node *nodes = xcalloc(n, sizeof *nodes);
    for (size_t i = 0; i < n; i++) {
        const struct node_info *info = group_node_info(group, members[i]);
        nodes[i].incarnation = members[i];
        nodes[i].nproc = info == NULL ? 0 : info->nproc;
        group_node_name(group, members[i], nodes[i].name);
    }
    return hang_group_make(group_generation(group), nodes, n, ret);
}

uint32_t hang_group_find(const struct hang_group *g, uint64_t incarnation) {
    uint32_t i = 0;
    while (i < g->n_nodes && g->nodes[i].incarnation != incarnation)
        i++;
    return i;
}

/* What the nodes were asked, and have answered so far. */
struct hang_round {
    unsigned refs; /* the collection's, that of a callback, and that of a struct passing */
    uint32_t id;
    uint64_t timeout_ns; /* that the nodes were given */
    uint64_t end_ns;
    struct hang_answers answers;
    bool *open; /* [n_nodes] its answer is awaited */
    uint32_t n_open;
    size_t bytes; /* of all answers */
    bool holds;   /* the workers are being stopped, and the nodes look first */
};

struct hang_question {
    struct list link;
    uint64_t end_ns;
    hang_answers_fn *fn;
    void *arg;
};

/* A round and the questions that it answers. */
struct asked {
    struct hang_round *round; /* NULL: nothing is asked */
    struct list questions;
};
/* By enum rdzv_ask_what, and: native stacks of suspects that are about to be ended. */
enum { EVIDENCE = ASK_STACKS, ENDS = ASK_WHAT_COUNT, N_ASKED };

/* An answer to operators. */
struct passing {
    struct hang_evidence *of;
    enum rdzv_ask_what what;
    struct loop_timer *timer;
    struct hang_question *question; /* NULL: nothing is asked */
    struct hang_round *round;       /* referenced while its answers are passed on; NULL: none are */
    uint32_t next;                  /* node */
};
enum { N_PASSING = ASK_PROFILE + 1 };

struct hang_evidence {
    struct loop *loop;
    struct hang_evidence_ops ops;
    struct rdzv_server *const *server;
    struct loop_timer *timer;
    struct hang_group group; /* that runs; generation none: none does */
    uint32_t last_id;
    struct asked asked[N_ASKED];
    struct passing passing[N_PASSING]; /* by enum rdzv_ask_what */
    pid_t stuck;                       /* a helper that a dead disk held; 0: none */
};

static bool send_to(const struct hang_evidence *e, uint64_t incarnation,
                    const struct wire_message *m) {
    return *e->server != NULL && e->ops.send(*e->server, incarnation, m);
}

/* ---- a round ---- */

static void round_unref(struct hang_round *r) {
    if (r == NULL || --r->refs > 0)
        return;
    for (uint32_t i = 0; i < r->answers.group.n_nodes; i++)
        strbuf_fini(&r->answers.nodes[i].json);
    hang_group_fini(&r->answers.group);
    free(r->answers.nodes);
    free(r->open);
    free(r);
}

static void arm(struct hang_evidence *e) {
    uint64_t due = TIME_NEVER;
    for (int i = 0; i < N_ASKED; i++) {
        const struct asked *a = &e->asked[i];
        due = MIN2(due, a->round == NULL ? TIME_NEVER : a->round->end_ns);
        LIST_FOR_EACH(const struct hang_question, q, &a->questions, link)
            due = MIN2(due, q->end_ns);
    }
    loop_timer_set(e->timer, due);
}

/* Its questions are answered by the timer, never from inside a call. NULL: there is none. */
static void round_over(struct hang_evidence *e, struct hang_round *r) {
    if (r != NULL)
        r->end_ns = clock_now_ns();
    arm(e);
}

/* What a node has sent so far is not kept, and takes no room. */
static void drop_answer(struct hang_round *r, uint32_t node) {
    struct strbuf *json = &r->answers.nodes[node].json;
    r->bytes -= json->len;
    strbuf_fini(json);
}

static void close_answer(struct hang_evidence *e, struct hang_round *r, uint32_t node,
                         const char *missing) {
    r->open[node] = false;
    r->answers.nodes[node].missing = missing;
    if (missing != NULL)
        drop_answer(r, node);
    if (--r->n_open == 0)
        round_over(e, r);
}

static struct hang_round *new_round(struct hang_evidence *e, uint64_t timeout_ns,
                                    uint64_t late_ns) {
    uint32_t n = e->group.n_nodes;
    struct hang_round *r = xcalloc(1, sizeof *r);
    r->refs = 1;
    r->id = ++e->last_id;
    r->timeout_ns = timeout_ns;
    r->end_ns = clock_now_ns() + timeout_ns + late_ns;
    copy_group(&e->group, &r->answers.group);
    r->answers.asked_wall_ns = clock_wall_ns();
    r->answers.nodes = xcalloc(n, sizeof *r->answers.nodes);
    r->open = xcalloc(n, sizeof *r->open);
    r->n_open = n;
    memset(r->open, true, n);
    for (uint32_t i = 0; i < n; i++)
        r->answers.nodes[i].missing = "it did not answer in time";
    return r;
}

static void begin_round(struct hang_evidence *e, const struct rdzv_ask *ask) {
    struct hang_round *r = new_round(
        e, ask->timeout_ns, ask->period_ns > 0 ? RDZV_PROFILE_LATE_NS : HANG_ANSWERS_LATE_NS);
    e->asked[ask->what].round = r;
    r->holds = ask->holds;
    struct wire_message m = {.kind = WIRE_ASK, .ask = *ask};
    m.ask.generation = e->group.generation;
    m.ask.id = r->id;
    for (uint32_t i = 0; i < e->group.n_nodes; i++)
        if (!send_to(e, e->group.nodes[i].incarnation, &m))
            close_answer(e, r, i, "it is not connected");
}

void hang_evidence_piece(void *hang_evidence, uint64_t incarnation,
                         const struct rdzv_evidence *piece) {
    struct hang_evidence *e = hang_evidence;
    struct hang_round *r = NULL;
    for (int i = 0; i < N_ASKED && r == NULL; i++)
        if (e->asked[i].round != NULL && e->asked[i].round->id == piece->id)
            r = e->asked[i].round;
    if (r == NULL)
        return;
    uint32_t node = hang_group_find(&r->answers.group, incarnation);
    if (node == r->answers.group.n_nodes || !r->open[node])
        return;
    struct hang_answer *a = &r->answers.nodes[node];
    size_t len = strlen(piece->text);
    if (piece->first)
        drop_answer(r, node);
    if (a->json.len + len > RDZV_EVIDENCE_MAX || r->bytes + len > HANG_ANSWERS_MAX) {
        close_answer(e, r, node, "its answer is too long");
        return;
    }
    r->bytes += len;
    strbuf_add_bytes(&a->json, piece->text, len);
    if (piece->last)
        close_answer(e, r, node,
                     a->json.len == 0 ? "no workers run there, or they could not be examined"
                                      : NULL);
}

void hang_evidence_forgotten(void *hang_evidence, uint64_t incarnation) {
    struct hang_evidence *e = hang_evidence;
    for (int i = 0; i < N_ASKED; i++) {
        struct hang_round *r = e->asked[i].round;
        uint32_t node = r == NULL ? 0 : hang_group_find(&r->answers.group, incarnation);
        if (r != NULL && node < r->answers.group.n_nodes && r->open[node])
            close_answer(e, r, node, "it was lost");
    }
}

/* ---- questions ---- */

static void answer(struct hang_question *q, const struct hang_answers *answers) {
    hang_answers_fn *fn = q->fn;
    void *arg = q->arg;
    hang_question_free(q);
    fn(arg, answers);
}

/* fn can ask again, and can cancel the questions of others. */
static void answer_due(struct hang_evidence *e, struct asked *a, uint64_t now) {
    struct hang_round *r = a->round;
    if (r == NULL)
        return;
    bool over = now >= r->end_ns;
    struct list due = LIST_INIT(due);
    LIST_FOR_EACH(struct hang_question, q, &a->questions, link)
        if (over || now >= q->end_ns) {
            list_remove(&q->link);
            list_append(&due, &q->link);
        }
    if (over)
        a->round = NULL;
    else
        r->refs++;
    arm(e);
    while (!list_empty(&due))
        answer(LIST_FIRST(struct hang_question, &due, link), &r->answers);
    round_unref(r);
}

static void on_timer(void *arg) {
    struct hang_evidence *e = arg;
    uint64_t now = clock_now_ns();
    for (int i = N_ASKED - 1; i >= 0; i--)
        answer_due(e, &e->asked[i], now);
    arm(e);
}

/* Whether the nodes are asked again: they answer only the newest question. */
static bool needs_own_round(const struct hang_round *r, uint64_t timeout_ns, enum hang_ask why) {
    switch (why) {
    case HANG_FOR_OPERATOR: return false;
    case HANG_FOR_WATCHDOG: return r->timeout_ns != timeout_ns;
    case HANG_BEFORE_STOP: return !r->holds || r->timeout_ns != timeout_ns;
    }
    assert_not_reached();
}

static struct hang_question *new_question(struct asked *a, uint64_t timeout_ns, hang_answers_fn *fn,
                                          void *arg) {
    struct hang_question *q = xcalloc(1, sizeof *q);
    *q = (struct hang_question){
        .end_ns = clock_now_ns() + timeout_ns + HANG_ANSWERS_LATE_NS, .fn = fn, .arg = arg};
    list_append(&a->questions, &q->link);
    return q;
}

int hang_evidence_ask(struct hang_evidence *e, enum hang_ask why, uint64_t timeout_ns,
                      hang_answers_fn *fn, void *arg, struct hang_question **ret) {
    struct asked *a = &e->asked[EVIDENCE];
    bool other = a->round != NULL &&
                 generation_compare(a->round->answers.group.generation, e->group.generation) != 0;
    if (generation_is_none(e->group.generation) || other)
        return -ESRCH; /* or those of the last group get their answers first */
    *ret = new_question(a, timeout_ns, fn, arg);
    if (a->round != NULL && needs_own_round(a->round, timeout_ns, why))
        round_unref(TAKE_PTR(a->round));
    if (a->round == NULL)
        begin_round(e,
                    &(struct rdzv_ask){.timeout_ns = timeout_ns, .holds = why == HANG_BEFORE_STOP});
    arm(e);
    return 0;
}

static void cancel(struct asked *a) {
    LIST_FOR_EACH(struct hang_question, q, &a->questions, link)
        hang_question_free(q);
    round_unref(TAKE_PTR(a->round));
}

int hang_evidence_samples(struct hang_evidence *e, enum rdzv_ask_what what, uint64_t period_ns,
                          uint64_t length_ns, hang_answers_fn *fn, void *arg,
                          struct hang_question **ret) {
    struct asked *a = &e->asked[what];
    if (generation_is_none(e->group.generation))
        return -ESRCH;
    cancel(a);
    *ret = new_question(a, length_ns + RDZV_PROFILE_LATE_NS, fn, arg);
    begin_round(e,
                &(struct rdzv_ask){.what = what, .timeout_ns = length_ns, .period_ns = period_ns});
    arm(e);
    return 0;
}

/* The nodes stop taking samples: they get a question of no group, which they answer at once. */
static void stop_samples(struct hang_evidence *e, enum rdzv_ask_what what) {
    struct asked *a = &e->asked[what];
    const struct wire_message m = {
        .kind = WIRE_ASK,
        .ask = {.what = what, .timeout_ns = 1, .period_ns = RDZV_PROFILE_PERIOD_MAX_NS}};
    for (uint32_t i = 0; a->round != NULL && i < a->round->answers.group.n_nodes; i++)
        if (a->round->open[i])
            (void)send_to(e, a->round->answers.group.nodes[i].incarnation, &m);
    cancel(a);
}

static void add_suspects_of(const struct hang_node *n, const bool *suspects,
                            struct rdzv_suspects *ret) {
    for (uint32_t k = 0; k < n->nproc && ret->n < RDZV_SUSPECTS_MAX; k++)
        if (suspects[n->first_rank + k])
            ret->ranks[ret->n++] = n->first_rank + k;
}

void hang_evidence_end_ranks(struct hang_evidence *e, const bool *suspects, uint64_t timeout_ns,
                             hang_answers_fn *fn, void *arg, struct hang_question **ret) {
    const struct hang_group *g = &e->group;
    struct asked *a = &e->asked[ENDS];
    uint32_t n = 0;
    cancel(a);
    struct hang_round *r =
        timeout_ns > 0 ? a->round = new_round(e, timeout_ns, HANG_ANSWERS_LATE_NS) : NULL;
    if (r != NULL)
        *ret = new_question(a, timeout_ns, fn, arg);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        struct wire_message m = {.kind = WIRE_SUSPECTS, .suspects = {.generation = g->generation}};
        struct rdzv_suspects *s = &m.suspects;
        add_suspects_of(&g->nodes[i], suspects, s);
        bool reads = r != NULL && s->n > 0 && n + s->n <= HANG_ENDS_READ_MAX;
        n += reads ? s->n : 0;
        s->id = reads ? r->id : ++e->last_id;
        s->timeout_ns = reads ? timeout_ns : 0;
        bool sent = s->n > 0 && send_to(e, g->nodes[i].incarnation, &m);
        if (r != NULL && !(reads && sent)) /* the stop alone ends those that were not reached */
            close_answer(e, r, i, !reads ? "there are too many suspects" : "it is not connected");
    }
    arm(e);
}

void hang_evidence_let_go(struct hang_evidence *e, const struct hang_group *group) {
    struct wire_message m = {.kind = WIRE_PROCEED};
    for (uint32_t i = 0; i < group->n_nodes; i++)
        (void)send_to(e, group->nodes[i].incarnation, &m); /* else its own time ends it */
    for (int i = 0; i < N_ASKED; i++)
        round_over(e, e->asked[i].round);
}

void hang_question_free(struct hang_question *q) {
    if (q == NULL)
        return;
    list_remove(&q->link);
    free(q);
}

void hang_evidence_begin(struct hang_evidence *e, const struct hang_group *group) {
    hang_group_fini(&e->group);
    round_over(e, e->asked[EVIDENCE].round);
    round_over(e, e->asked[ENDS].round);
    copy_group(group, &e->group);
}

const struct hang_group *hang_evidence_group(const struct hang_evidence *e) { return &e->group; }

void hang_evidence_end(struct hang_evidence *e) {
    hang_group_fini(&e->group);
    struct hang_round *r = e->asked[EVIDENCE].round;
    if (r != NULL && !r->holds)
        round_over(e, r);
}

/* ---- for operators ---- */

static void drop(struct passing *p) {
    round_unref(TAKE_PTR(p->round));
    p->next = 0;
}

/* An answer that is missing can still come meanwhile; one that is whole does not change. */
static void pass_on(struct passing *p, uint32_t i) {
    struct hang_evidence *e = p->of;
    const struct hang_group *g = &p->round->answers.group;
    const struct hang_answer *answer = &p->round->answers.nodes[i];
    struct rdzv_stacks head = {.generation = g->generation,
                               .world_size = g->world_size,
                               .n_nodes = g->n_nodes,
                               .node = i,
                               .first_rank = g->nodes[i].first_rank,
                               .nproc = g->nodes[i].nproc};
    (void)snprintf(head.name, sizeof head.name, "%s", g->nodes[i].name);
    if (answer->missing != NULL) {
        (void)snprintf(head.missing, sizeof head.missing, "%s", answer->missing);
        e->ops.add(*e->server, p->what, &head, "", 0);
    } else {
        e->ops.add(*e->server, p->what, &head, strbuf_text(&answer->json), answer->json.len);
    }
}

static void on_stacks_timer(void *arg) {
    struct passing *p = arg;
    uint32_t n = p->round->answers.group.n_nodes;
    while (p->next < n && !loop_slice_is_over(p->of->loop))
        pass_on(p, p->next++);
    if (p->next < n) {
        loop_timer_set(p->timer, clock_now_ns());
        return;
    }
    drop(p);
    p->of->ops.end(*p->of->server, p->what, NULL);
}

/* They can be long, and others may wait for the same ones. */
static void on_stacks(void *arg, const struct hang_answers *answers) {
    struct passing *p = arg;
    p->question = NULL;
    p->round = CONTAINER_OF(answers, struct hang_round, answers);
    p->round->refs++;
    loop_timer_set(p->timer, clock_now_ns());
}

void hang_stacks_ask(void *hang_evidence, uint64_t period_ns, uint64_t timeout_ns) {
    struct hang_evidence *e = hang_evidence;
    enum rdzv_ask_what what = period_ns > 0 ? ASK_PROFILE : ASK_STACKS;
    struct passing *p = &e->passing[what];
    hang_stacks_cancel(e, what);
    int r = period_ns > 0
                ? hang_evidence_samples(e, what, period_ns, timeout_ns, on_stacks, p, &p->question)
                : hang_evidence_ask(e, HANG_FOR_OPERATOR, timeout_ns, on_stacks, p, &p->question);
    if (r < 0)
        e->ops.end(*e->server, what,
                   "no worker runs at the moment; \"muster status\" shows what the job does");
}

static void forget(struct passing *p) {
    hang_question_free(TAKE_PTR(p->question));
    loop_timer_set(p->timer, TIME_NEVER);
    drop(p);
}

void hang_stacks_cancel(void *hang_evidence, enum rdzv_ask_what what) {
    struct hang_evidence *e = hang_evidence;
    bool is_open = e->passing[what].question != NULL;
    forget(&e->passing[what]);
    if (is_open && what == ASK_PROFILE)
        stop_samples(e, what);
}

struct hang_evidence *hang_evidence_new(struct loop *loop, const struct hang_evidence_ops *ops,
                                        struct rdzv_server *const *server) {
    struct hang_evidence *e = xcalloc(1, sizeof *e);
    *e = (struct hang_evidence){.loop = loop, .ops = *ops, .server = server};
    for (int i = 0; i < N_ASKED; i++)
        list_init(&e->asked[i].questions);
    for (int i = 0; i < N_PASSING; i++) {
        e->passing[i] = (struct passing){.of = e, .what = (enum rdzv_ask_what)i};
        e->passing[i].timer = loop_timer_new(loop, on_stacks_timer, &e->passing[i]);
    }
    e->timer = loop_timer_new(loop, on_timer, e);
    return e;
}

void hang_evidence_free(struct hang_evidence *e) {
    if (e == NULL)
        return;
    for (int i = 0; i < N_PASSING; i++) {
        forget(&e->passing[i]);
        loop_timer_free(e->passing[i].timer);
    }
    for (int i = 0; i < N_ASKED; i++)
        cancel(&e->asked[i]);
    hang_group_fini(&e->group);
    loop_timer_free(e->timer);
    free(e);
}

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

static int is_kept(const struct dirent *e) {
    static const char form[TIME_LEN + 1] = "dddddddd-dddddd.ddd";
    const char *name = e->d_name;
    size_t len = strlen(name);
    bool is = len > TIME_LEN + 1 && len < HANG_FILES_NAME_MAX && name[TIME_LEN] == '-';
    for (size_t i = 0; i < TIME_LEN && is; i++)
        is = form[i] == 'd' ? name[i] >= '0' && name[i] <= '9' : name[i] == form[i];
    return is && strspn(name + TIME_LEN + 1, "0123456789.") == len - TIME_LEN - 1;
}

static uint64_t bytes_of(const char *dir, const char *name) {
    static const char *const files[] = {"hang.txt", "hang.json"};
    uint64_t bytes = 0;
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        _cleanup_(freep) char *path = xasprintf("%s/%s/%s", dir, name, files[i]);
        struct stat st;
        bytes += stat(path, &st) == 0 && st.st_size > 0 ? (uint64_t)st.st_size : 0;
    }
    return bytes;
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
    _cleanup_(freep) struct dirent **kept = NULL; /* by time */
    const int found = scandir(dir, &kept, is_kept, alphasort);
    size_t n = (size_t)MIN2(MAX2(found, 0), LISTED_MAX), first = 0;
    for (size_t i = 0; i < n; i++)
        bytes += bytes_of(dir, kept[i]->d_name);
    while (first < n && strcmp(kept[first]->d_name, name) <= 0)
        first++;
    for (size_t i = 0; i < n && (n - i >= HANG_FILES_KEPT || bytes > HANG_FILES_BYTES); i++) {
        _cleanup_(freep) char *path = xasprintf("%s/%s", dir, kept[(first + i) % n]->d_name);
        const uint64_t gone = bytes_of(dir, kept[(first + i) % n]->d_name); /* it may have grown */
        bytes -= MIN2(bytes, gone);
        remove_folder(path);
    }
    for (int i = 0; i < found; i++)
        free(kept[i]);
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

/* ---- a case: the answers are compared ---- */

#define CASE_LATE_NS NS_PER_S /* for the helper */

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

/* The helper sends a struct hang_compared without what it points to, a struct hang_rank for each
 * rank, and, when the files are written, this. The reader is a copy of the same program. */
struct written {
    int code;
    char text[8192]; /* the path of hang.txt; or why there is none */
};

/* ---- the helper ---- */

struct work {
    const struct hang_case *of;
    const struct hang_answers *answers;
    struct evidence *evidence;   /* [n_nodes] */
    struct suspects_node *nodes; /* [n_nodes] */
    struct err *errors;          /* [n_nodes] */
    char generation[32];
    struct suspects_input in;
    struct suspects found;
    bool plain; /* one rank failed, and no rank is known to have waited for it or another */
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

/* Whether it may wait for others although its Python stack, which would show that, is missing. */
static bool is_unread(const struct evidence_worker *w) {
    static const char *const not_python[] = {"no Python is loaded", "no thread of Python"};
    bool unread = false;
    for (uint32_t i = 0; w != NULL && i < w->n_gaps; i++)
        unread |= text_begins(w->gaps[i], "Python stack:") &&
                  !text_has_any(w->gaps[i], not_python, ARRAY_SIZE(not_python));
    return unread;
}

static void compare(struct work *k) {
    const struct hang_group *g = &k->answers->group;
    k->evidence = xcalloc(g->n_nodes, sizeof *k->evidence);
    k->nodes = xcalloc(g->n_nodes, sizeof *k->nodes);
    k->errors = xcalloc(g->n_nodes, sizeof *k->errors);
    read_answers(k);
    (void)snprintf(k->generation, sizeof k->generation, "%" PRIu32 ".%" PRIu32, g->generation.epoch,
                   g->generation.counter);
    k->in = k->of->in;
    k->in.nodes_of = g->node_of;
    k->in.n_nodes = g->n_nodes;
    k->in.nodes = k->nodes;
    k->in.job = k->of->config.run_id;
    k->in.generation = k->generation;
    k->in.wall_ns = k->answers->asked_wall_ns;
    suspects_find(&k->in, &k->found);
    const struct suspects *found = &k->found;
    k->plain = k->in.waited != NULL && found->n_reacted == 1 && /* the failed one */
               found->n_all + found->n_together + found->n_at_exit + found->n_missing == 0;
    for (uint32_t r = 0; r < k->in.n_ranks && k->plain; r++)
        k->plain = r == k->in.failed || !is_unread(found->worker_of[r]);
}

static uint64_t place_of(const struct work *k, uint32_t rank) {
    const struct evidence_worker *w = k->found.worker_of[rank];
    const struct evidence *e = k->nodes[k->in.nodes_of[rank]].evidence;
    if (w == NULL || w->ended || w->n_threads == 0 || w->threads[0].stack < 0)
        return 0;
    return e->stacks[w->threads[0].stack].place;
}

static bool send_compared(int fd, const struct work *k) {
    const struct suspects *found = &k->found;
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    _cleanup_(freep) struct hang_rank *ranks = xcalloc(k->in.n_ranks, sizeof *ranks);
    struct hang_compared c = {.n_suspects = found->n_all,
                              .n_debugged = found->n_debugged,
                              .debugged = found->debugged,
                              .reason = found->n_together + found->n_at_exit > 0,
                              .used_ns = found->used_ns,
                              .n_ranks = k->in.n_ranks};
    if (!k->plain)
        suspects_line(found, &line);
    (void)snprintf(c.line, sizeof c.line, "%s", strbuf_text(&line));
    if (found->n_suspects > 0)
        c.first = found->suspects[0];
    for (uint32_t r = 0; r < c.n_ranks; r++)
        ranks[r] = (struct hang_rank){
            .place = place_of(k, r), .is_suspect = found->is_suspect[r], .ended = found->ended[r]};
    return helper_send(fd, &c, sizeof c) && helper_send(fd, ranks, c.n_ranks * sizeof *ranks);
}

static bool write_files(int fd, const struct work *k) {
    _cleanup_(strbuf_fini) struct strbuf text = {0}, json = {0};
    _cleanup_(freep) char *path = NULL;
    char name[HANG_FILES_NAME_MAX];
    struct written written = {0};
    struct err err = {0};
    suspects_text(&k->found, &text);
    suspects_json(&k->found, &json);
    hang_files_name(k->in.wall_ns, k->answers->group.generation, name);
    if (!k->plain)
        written.code =
            hang_files_write(k->of->dir, name, k->of->config.log_mode, &text, &json, &path, &err);
    (void)snprintf(written.text, sizeof written.text, "%s", path != NULL ? path : err.text);
    return helper_send(fd, &written, sizeof written);
}

static void work_fini(struct work *k) {
    for (uint32_t i = 0; i < k->answers->group.n_nodes; i++)
        evidence_fini(&k->evidence[i]);
    suspects_fini(&k->found);
    free(k->evidence);
    free(k->nodes);
    free(k->errors);
}

static int run(int fd, void *arg) {
    struct work *k = arg;
    compare(k);
    bool sent = send_compared(fd, k);
    if (sent && k->of->dir != NULL)
        sent = write_files(fd, k);
    work_fini(k);
    return sent ? 0 : 1;
}

/* ---- this process ---- */

static void on_compared(void *arg, const struct helper_answer *a) {
    struct hang_case *c = arg;
    struct hang_compared ret = {.code = a->code < 0 ? a->code : -EPROTO};
    struct written written;
    size_t rows = c->in.n_ranks * sizeof(struct hang_rank);
    _cleanup_(freep) struct hang_rank *ranks = xcalloc(c->in.n_ranks, sizeof *ranks);
    c->call = NULL;
    if (a->len >= sizeof ret + rows) {
        memcpy(&ret, a->data, sizeof ret);
        memcpy(ranks, a->data + sizeof ret, rows);
    }
    if (ret.code == 0 && c->dir != NULL && a->len == sizeof ret + rows + sizeof written) {
        memcpy(&written, a->data + sizeof ret + rows, sizeof written);
        if (written.text[0] != '\0')
            *(written.code < 0 ? &ret.files_error : &ret.path) = written.text;
    } else if (ret.code == 0 && c->dir != NULL) {
        ret.files_error = "the disk does not answer";
        if (a->code == -ETIMEDOUT)
            c->config.evidence->stuck = c->pid;
    }
    ret.ranks = ranks;
    c->fn(c->arg, &ret);
    hang_case_free(c);
}

/* A disk that still holds a helper gets no other one. NULL: there is no folder. */
static const char *dir_of(const struct hang_case *c) {
    const struct hang_workers *w = &c->config.workers;
    pid_t stuck = c->config.evidence->stuck;
    bool held = stuck != 0 && w->ops->is_named(stuck, HANG_COMPARE_NAME);
    return held ? NULL : w->ops->hang_dir(w->files);
}

static void on_answers(void *arg, const struct hang_answers *answers) {
    struct hang_case *c = arg;
    const struct hang_workers *workers = &c->config.workers;
    uint64_t now = clock_now_ns();
    const char *dir = dir_of(c);
    struct work k = {.of = c, .answers = answers};
    c->question = NULL;
    c->dir = dir == NULL ? NULL : xstrdup(dir);
    struct helper_call_config config = {
        .name = HANG_COMPARE_NAME,
        .run = run,
        .arg = &k,
        .timeout_ns = c->end_ns > now ? c->end_ns - now : 0,
        .max_bytes = sizeof(struct hang_compared) + c->in.n_ranks * sizeof(struct hang_rank) +
                     sizeof(struct written),
        .may_linger = dir != NULL,
    };
    int r = helper_call_new(c->config.evidence->loop, &config, on_compared, c, &c->call);
    if (r < 0) {
        on_compared(c, &(struct helper_answer){.code = r});
        return;
    }
    c->pid = helper_call_pid(c->call);
    if (dir != NULL)
        workers->ops->spare(workers->spare, c->pid);
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
    uint64_t timeout_ns = MIN2(config->settings.evidence_timeout_ns, HANG_LOOK_MAX_NS);
    if (timeout_ns == 0)
        return -ECANCELED;
    if (ends)
        timeout_ns -= hang_case_native_ns(&config->settings);
    struct hang_case *c = xcalloc(1, sizeof *c);
    *c = (struct hang_case){.config = *config,
                            .in = *in,
                            .end_ns = clock_now_ns() + timeout_ns + CASE_LATE_NS,
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
