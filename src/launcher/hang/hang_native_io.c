#include "launcher/hang/hang_native_io.h"

#include <stdio.h>
#include <string.h>

#include "io/process/helper_call.h"
#include "launcher/hang/hang_files_io.h"
#include "launcher/supervise/spare_io.h"
#include "watchdog/judge/suspects_native.h"

struct hang_native {
    struct loop *loop;
    struct hang_evidence *evidence;
    bool *suspects;
    char *path;
    uint64_t files_timeout_ns;
    void (*writes)(void *arg, pid_t pid);
    struct helper_call *call;
    hang_native_fn *fn;
    void *arg;
};

/* ---- the helper ---- */

struct work {
    const struct hang_native *native;
    const struct hang_answers *answers;
};

static const struct evidence_worker *find(const struct evidence *e, uint32_t rank) {
    for (uint32_t i = 0; i < e->n_workers; i++)
        if (e->workers[i].rank == rank)
            return &e->workers[i];
    return NULL;
}

/* Of the ranks of one node. */
static void read_node(const struct work *k, uint32_t node, struct suspects_native *list,
                      uint32_t *n) {
    const struct hang_node *of = &k->answers->group.nodes[node];
    const struct hang_answer *answer = &k->answers->nodes[node];
    struct evidence *e = xcalloc(1, sizeof *e); /* memory goes with the process */
    struct err *err = xcalloc(1, sizeof *err);
    const char *missing = answer->missing;
    if (missing == NULL && evidence_read(strbuf_text(&answer->json), answer->json.len, e, err) < 0)
        missing = err->text;
    for (uint32_t r = of->first_rank; r < of->first_rank + of->nproc; r++) {
        if (!k->native->suspects[r])
            continue;
        const struct evidence_worker *worker = find(e, r);
        const char *why = missing != NULL ? missing : "it was not read: it had ended by then";
        list[(*n)++] = (struct suspects_native){
            .rank = r, .node = of->name, .worker = worker, .missing = worker != NULL ? NULL : why};
    }
}

static int run(int fd, void *arg) {
    const struct work *k = arg;
    const struct hang_group *g = &k->answers->group;
    _cleanup_(strbuf_fini) struct strbuf text = {0}, json = {0};
    struct suspects_native *list = xcalloc(g->world_size, sizeof *list);
    struct err err = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        read_node(k, i, list, &n);
    suspects_native_text(list, n, &text);
    suspects_native_json(list, n, &json);
    free(list);
    int r =
        hang_files_amend(k->native->path, &(struct hang_files_text){strbuf_text(&text), text.len},
                         &(struct hang_files_text){strbuf_text(&json), json.len}, &err);
    const char *said = r < 0 ? err.text : "";
    return helper_send(fd, said, strlen(said) + 1) ? 0 : 1;
}

/* ---- this process ---- */

static void say(struct hang_native *n, const char *error) {
    hang_native_fn *fn = n->fn;
    void *arg = n->arg;
    hang_native_free(n);
    fn(arg, error);
}

static void on_written(void *arg, const struct helper_answer *a) {
    struct hang_native *n = arg;
    n->call = NULL;
    bool whole = a->len > 0 && a->data[a->len - 1] == '\0';
    say(n, !whole ? "the disk does not answer" : a->data[0] != '\0' ? a->data : NULL);
}

static void on_answers(void *arg, const struct hang_answers *answers) {
    struct hang_native *n = arg;
    struct work k = {.native = n, .answers = answers};
    struct helper_call_config config = {.name = SPARE_ADD_NAME,
                                        .run = run,
                                        .arg = &k,
                                        .timeout_ns = n->files_timeout_ns,
                                        .max_bytes = sizeof(struct err),
                                        .may_linger = true};
    if (helper_call_new(n->loop, &config, on_written, n, &n->call) < 0)
        say(n, "no process could be started");
    else if (n->writes != NULL)
        n->writes(n->arg, helper_call_pid(n->call));
}

void hang_native_new(struct loop *loop, const struct hang_native_ask *ask, hang_native_fn *fn,
                     void *arg, struct hang_native **ret) {
    uint32_t world = hang_evidence_group(ask->evidence)->world_size;
    struct hang_native *n = xcalloc(1, sizeof *n);
    *n = (struct hang_native){.loop = loop,
                              .evidence = ask->evidence,
                              .suspects = xcalloc(world + (size_t)1, sizeof *n->suspects),
                              .path = xstrdup(ask->path),
                              .files_timeout_ns = ask->files_timeout_ns,
                              .writes = ask->writes,
                              .fn = fn,
                              .arg = arg};
    memcpy(n->suspects, ask->suspects, world * sizeof *n->suspects);
    *ret = n;
    hang_evidence_end_ranks(ask->evidence, ask->suspects, ask->timeout_ns, on_answers, n);
}

void hang_native_free(struct hang_native *n) {
    if (n == NULL)
        return;
    if (n->call == NULL)
        hang_evidence_forget_ends(n->evidence);
    helper_call_free(n->call);
    free(n->suspects);
    free(n->path);
    free(n);
}
