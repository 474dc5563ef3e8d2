#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/utf8.h"
#include "watchdog/judge/suspects_priv.h"

#define RANGES_MAX 100 /* bytes of a list of ranks in a line */
#define NAMED_MAX 4    /* suspects, or groups, in a line */

void suspects_ranges(const uint32_t *ranks, uint32_t n, size_t max, struct strbuf *ret) {
    size_t begin = ret->len;
    for (uint32_t i = 0; i < n;) {
        uint32_t end = i + 1;
        while (end < n && ranks[end] == ranks[end - 1] + 1)
            end++;
        char one[32];
        int len = ranks[i] == ranks[end - 1]
                      ? snprintf(one, sizeof one, "%" PRIu32, ranks[i])
                      : snprintf(one, sizeof one, "%" PRIu32 "-%" PRIu32, ranks[i], ranks[end - 1]);
        if (ret->len - begin + (i > 0) + (size_t)len + strlen(",...") > max) {
            strbuf_add(ret, ret->len > begin ? ",..." : "...");
            return;
        }
        strbuf_printf(ret, "%s%s", i > 0 ? "," : "", one);
        i = end;
    }
}

/* "rank 3", "ranks 0-1,3" */
static void add_ranks(const uint32_t *ranks, uint32_t n, struct strbuf *ret) {
    strbuf_add(ret, n == 1 ? "rank " : "ranks ");
    suspects_ranges(ranks, n, RANGES_MAX, ret);
}

static void add_still(uint64_t still_ns, struct strbuf *ret) {
    if (still_ns >= NS_PER_S)
        strbuf_printf(ret, ", still for %" PRIu64 " s", still_ns / NS_PER_S);
}

static void add_child(const struct evidence *e, const struct evidence_child *child,
                      struct strbuf *ret) {
    strbuf_printf(ret, "; its child %s %" PRId32 " %s elsewhere than its siblings: ",
                  child->name[0] != '\0' ? child->name : "process", child->pid,
                  suspects_wait(&child->main) == WAIT_RUNS ? "is" : "waits");
    suspects_describe(e, &child->main, NULL, ret);
}

/* Who a main thread in wait4() waits for, as a command that it has started: its only child but
 * those of a data loader. NULL: it waits for none, or nobody can tell which. */
static const struct evidence_child *awaited_child(const struct evidence_worker *w,
                                                  const struct evidence_thread *t) {
    static const char loader[] = "pt_data_";
    const struct evidence_child *found = NULL;
    if (strcmp(t->syscall, "wait4") != 0 && strcmp(t->syscall, "waitid") != 0)
        return NULL;
    for (uint32_t i = 0; i < w->n_children; i++) {
        if (strncmp(w->children[i].name, loader, sizeof loader - 1) == 0)
            continue;
        if (found != NULL)
            return NULL;
        found = &w->children[i];
    }
    return found;
}

/* What a rank does, and who it waits for if it is a child. */
static void add_main(const struct evidence *e, const struct evidence_worker *w,
                     const struct evidence_thread *t, bool child_said, struct strbuf *ret) {
    const struct evidence_child *child = child_said ? NULL : awaited_child(w, t);
    suspects_describe(e, t, w, ret);
    add_still(w->still_ns, ret);
    if (child == NULL)
        return;
    strbuf_printf(ret, "; it waits for its child %s %" PRId32 ": ",
                  child->name[0] != '\0' ? child->name : "process", child->pid);
    suspects_describe(e, &child->main, NULL, ret);
}

/* Its main thread is where that of the others is. */
static void tell_thread(const struct suspects_input *in, const struct suspects *s, uint32_t rank,
                        struct strbuf *ret) {
    const struct evidence_thread *odd = suspects_odd_thread(in, s, rank);
    strbuf_add(ret, "no thread of it waits in torch.distributed as those of others do");
    if (odd == NULL)
        return;
    strbuf_printf(ret, "; its thread %" PRId32 ": ", odd->tid);
    suspects_describe(suspects_evidence(in, rank), odd, NULL, ret);
    strbuf_add(ret, "; its main thread");
}

static void add_process(const struct suspects_input *in, uint32_t node, int32_t pid,
                        struct strbuf *ret) {
    strbuf_printf(ret, " (node %.60s", in->nodes[node].name);
    if (pid > 0)
        strbuf_printf(ret, ", pid %" PRId32, pid);
    strbuf_add(ret, "): ");
}

void suspects_tell(const struct suspects_input *in, const struct suspects *s, uint64_t of,
                   uint64_t others, const struct evidence_child *child, struct suspect *ret) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    const struct evidence_worker *w = s->worker_of[ret->rank];
    const struct evidence_thread *t = suspects_main(s, ret->rank);
    const struct evidence *e = suspects_evidence(in, ret->rank);
    strbuf_printf(&text, "rank %" PRIu32, ret->rank);
    add_process(in, ret->node, ret->pid, &text);
    switch (ret->reason) {
    case SUSPECT_ENDED: strbuf_add(&text, "has ended with 0 while others wait"); break;
    case SUSPECT_UNENDED: strbuf_add(&text, "still runs while others have ended with 0"); break;
    case SUSPECT_ABSENT: strbuf_add(&text, "has no connection to the store, others have"); break;
    case SUSPECT_COLLECTIVES:
        strbuf_printf(&text, "at collective %" PRIu64 ", others at %" PRIu64, of, others);
        break;
    case SUSPECT_STEPS:
        strbuf_printf(&text, "at step %" PRIu64 ", others at %" PRIu64, of, others);
        break;
    case SUSPECT_BUSY: strbuf_add(&text, "is busy while others wait"); break;
    case SUSPECT_THREAD: tell_thread(in, s, ret->rank, &text); break;
    case SUSPECT_STOPPED:
    case SUSPECT_UNMOVED:
    case SUSPECT_CHILD:
    case SUSPECT_ELSEWHERE: break;
    }
    bool led = text.data[text.len - 1] != ' ';
    if (t != NULL) {
        strbuf_add(&text, led ? ": " : "");
        add_main(e, w, t, child != NULL, &text);
    } else if (ret->reason != SUSPECT_ENDED) {
        strbuf_add(&text, led ? "; no evidence" : "no evidence");
    }
    if (child != NULL)
        add_child(e, child, &text);
    utf8_copy_line(ret->text, sizeof ret->text, strbuf_text(&text));
}

/* The ranks of a group that are no suspects. Returns how many. */
static uint32_t others_of(const struct suspects_input *in, const struct suspects *s, uint32_t group,
                          uint32_t *ranks) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < in->n_ranks; r++)
        if (s->group_of[r] == group && !s->is_suspect[r])
            ranks[n++] = r;
    return n;
}

static void add_group(const struct suspects_input *in, const struct suspects *s, uint32_t group,
                      uint32_t *ranks, struct strbuf *ret) {
    const struct suspects_group *g = &s->groups[group];
    uint32_t n = others_of(in, s, group, ranks);
    if (n == 0)
        return;
    strbuf_add(ret, ret->len > 0 ? "; " : "");
    if (n == in->n_ranks)
        strbuf_add(ret, n == 1 ? "the only rank" : "all ranks");
    else
        add_ranks(ranks, n, ret);
    if (g->n == 1 && (!s->majority || in->n_ranks == 1)) {
        /* Nobody says who waits for whom: so all that is known of each. */
        const struct evidence_worker *w = s->worker_of[g->first];
        add_process(in, in->nodes_of[g->first], w->pid, ret);
        add_main(suspects_evidence(in, g->first), w, suspects_main(s, g->first), false, ret);
        return;
    }
    strbuf_printf(ret, " %s", suspects_group_verb(s, g, n));
    if (g->where[0] != '\0')
        strbuf_printf(ret, " in %s", g->where);
}

static void add_groups(const struct suspects_input *in, const struct suspects *s, uint32_t *ranks,
                       struct strbuf *ret) {
    /* With a majority, those who are not in it are suspects, or nothing is said against them. */
    uint32_t n = s->majority && s->n_all > 0 ? 1 : MIN2(s->n_groups, NAMED_MAX);
    for (uint32_t g = 0; g < n; g++)
        add_group(in, s, g, ranks, ret);
    if (s->n_groups > n && !(s->majority && s->n_all > 0))
        strbuf_printf(ret, "; %" PRIu32 " more groups", s->n_groups - n);
}

static void add_suspects(const struct suspects_input *in, const struct suspects *s, uint32_t *ranks,
                         struct strbuf *ret) {
    uint32_t n = 0, seen = 0;
    for (uint32_t i = 0; i < MIN2(s->n_suspects, NAMED_MAX); i++)
        strbuf_printf(ret, "%s%s", ret->len > 0 ? "; " : "", s->suspects[i].text);
    for (uint32_t r = 0; r < in->n_ranks && s->n_all > NAMED_MAX; r++)
        if (s->is_suspect[r] && ++seen > NAMED_MAX)
            ranks[n++] = r;
    if (n > 0) {
        strbuf_add(ret, "; and ");
        add_ranks(ranks, n, ret);
    }
}

static void add_missing(const struct suspects_input *in, const struct suspects *s, uint32_t *ranks,
                        struct strbuf *ret) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < in->n_ranks; r++)
        if (suspects_is_missing(in, s, r))
            ranks[n++] = r;
    if (n == 0)
        return;
    const struct suspects_node *node = &in->nodes[in->nodes_of[ranks[0]]];
    strbuf_printf(ret, "%sno evidence from ", ret->len > 0 ? "; " : "");
    add_ranks(ranks, n, ret);
    strbuf_printf(ret, " (node %.60s%s", node->name,
                  in->nodes_of[ranks[0]] != in->nodes_of[ranks[n - 1]] ? " and others" : "");
    if (node->evidence == NULL)
        strbuf_printf(ret, ": %.100s",
                      node->missing != NULL ? node->missing : "it did not answer in time");
    strbuf_add(ret, ")");
}

/* Who failed, and who is known to have waited for the others then. */
static void add_failed(const struct suspects_input *in, const struct suspects *s, uint32_t *ranks,
                       struct strbuf *ret) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < in->n_ranks; r++)
        if (s->reacted[r] && r != in->failed)
            ranks[n++] = r;
    strbuf_printf(ret, "rank %" PRIu32 " failed while ", in->failed);
    if (n > 0)
        add_ranks(ranks, n, ret);
    strbuf_add(ret, n > 0 ? " waited" : "others waited");
}

void suspects_line(const struct suspects_input *in, const struct suspects *s, struct strbuf *ret) {
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    _cleanup_(freep) uint32_t *ranks = xcalloc(in->n_ranks + (size_t)1, sizeof *ranks);
    char out[SUSPECTS_LINE_MAX];
    if (in->waited != NULL)
        add_failed(in, s, ranks, &line);
    add_groups(in, s, ranks, &line);
    add_suspects(in, s, ranks, &line);
    add_missing(in, s, ranks, &line);
    utf8_copy_line(out, sizeof out, strbuf_text(&line));
    strbuf_add(ret, out);
}
