#include "launcher/srun/requeue.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"

#define TERM_STATUS 143 /* told to end by SIGTERM */
#define ALL (REQUEUE_PREEMPT | REQUEUE_NODE_FAIL | REQUEUE_TIMEOUT)

static const char *const words[] = {"preempt", "node-fail", "timeout"};

const char *requeue_word(unsigned bit) {
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (bit == 1u << i)
            return words[i];
    return "";
}

int requeue_parse(const char *text, unsigned *ret) {
    unsigned bits = 0;
    const char *item;
    size_t len;
    for (size_t i = 0; (item = list_item(text, i, &len)) != NULL; i++) {
        unsigned bit = 0;
        for (size_t k = 0; k < ARRAY_SIZE(words); k++)
            if (strlen(words[k]) == len && strncmp(words[k], item, len) == 0)
                bit = 1u << k;
        if (bit == 0)
            return -EINVAL;
        bits |= bit;
    }
    *ret = bits;
    return 0;
}

static unsigned bit_of(enum slurm_end end) {
    switch (end) {
    case SLURM_END_TIME:
    case SLURM_END_SOON: return REQUEUE_TIMEOUT;
    case SLURM_END_PREEMPTED: return REQUEUE_PREEMPT;
    case SLURM_END_NODE: return REQUEUE_NODE_FAIL;
    case SLURM_END_NONE:
    case SLURM_END_MEMORY:
    case SLURM_END_DEADLINE:
    case SLURM_END_CANCELLED:
    case SLURM_END_REQUEUED:
    case SLURM_END_OVER: return 0;
    }
    assert_not_reached();
}

/* Why the job ends: bits; several if only Slurm could tell, and did not answer. */
static unsigned reasons(const struct requeue_facts *f, enum slurm_end end) {
    bool may_go_on = end == SLURM_END_NONE || end == SLURM_END_SOON;
    if (may_go_on && f->status == REQUEUE_EXIT_STATUS)
        return REQUEUE_NODE_FAIL;
    if (may_go_on && f->status != TERM_STATUS)
        return 0;
    return f->job == NULL ? ALL : bit_of(end);
}

void requeue_cannot(const char *id, const char *job, struct strbuf *ret_sentence) {
    struct slurm_queue_facts q = slurm_queue_facts(job);
    strbuf_clear(ret_sentence);
    if (q.known && !q.batch)
        strbuf_printf(ret_sentence,
                      "--requeue: Slurm requeues only batch jobs, and job %s is none; submit it "
                      "with sbatch",
                      id);
    else if (q.known && !q.requeue)
        strbuf_printf(ret_sentence,
                      "--requeue: job %s was submitted with --no-requeue, or this cluster has "
                      "JobRequeue=0; submit it with sbatch --requeue",
                      id);
}

void requeue_not_asked(enum slurm_end end, unsigned asked, const char *job,
                       struct strbuf *ret_sentence) {
    struct slurm_queue_facts q = slurm_queue_facts(job);
    unsigned bit = bit_of(end);
    strbuf_clear(ret_sentence);
    if (bit == 0 || (asked & bit) != 0 || !q.known || !q.batch || !q.requeue)
        return;
    strbuf_printf(ret_sentence,
                  "it is not requeued when it ends now; --requeue=%s puts it back into the queue",
                  requeue_word(bit));
}

static void say_why(enum slurm_end end, bool lost, struct strbuf *ret) {
    const char *text = slurm_end_text(end);
    if (lost && (end == SLURM_END_NONE || end == SLURM_END_SOON))
        text = "nodes of the job were lost";
    strbuf_add(ret, text != NULL ? text : "the job was ordered to end");
}

enum requeue_answer requeue_decide(const struct requeue_facts *f, struct strbuf *ret) {
    struct slurm_queue_facts q = slurm_queue_facts(f->job != NULL ? f->job : "");
    enum slurm_end end = f->job != NULL ? slurm_end_of(f->job, f->restarts) : SLURM_END_NONE;
    uint32_t restarts = q.known ? q.restarts : f->restarts;
    strbuf_clear(ret);
    if (f->asked == 0 || f->status == 0)
        return REQUEUE_NO_MATTER;
    if (q.known && q.restarts > f->restarts) {
        strbuf_printf(ret, "Slurm has put job %s back into the queue", f->id);
        return REQUEUE_ALREADY;
    }
    unsigned why = reasons(f, end);
    if ((why & f->asked) == 0)
        return REQUEUE_NO_MATTER;
    if (q.known && (!q.batch || !q.requeue)) {
        strbuf_printf(ret, "job %s is not requeued: %s", f->id,
                      q.batch ? "it was submitted with --no-requeue, or this cluster forbids it"
                              : "it is not a batch job");
        return REQUEUE_NOT;
    }
    if (!f->safe) {
        strbuf_printf(ret,
                      "job %s is not requeued: no worker has reported a safe point "
                      "(MUSTER_SAFE_POINT=1) since it started, so nothing new would be saved",
                      f->id);
        return REQUEUE_NOT;
    }
    if (restarts >= f->max) {
        strbuf_printf(ret,
                      "job %s is not requeued: it was %" PRIu32 " time%s already "
                      "(--max-requeues=%" PRIu32 ")",
                      f->id, restarts, restarts == 1 ? "" : "s", f->max);
        return REQUEUE_NOT;
    }
    say_why(end, f->status == REQUEUE_EXIT_STATUS, ret);
    strbuf_printf(ret, " (requeue %" PRIu32 " of at most %" PRIu32 ")", restarts + 1, f->max);
    return REQUEUE_YES;
}

bool requeue_is_name(const char *text) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return text[0] != '\0' && text[strspn(text, letters)] == '\0';
}

/* Whether the list has this very item. In brackets it may have it too; once more does no harm. */
static bool has_item(const char *list, const char *item, size_t len) {
    const char *at;
    size_t n;
    for (size_t i = 0; (at = list_item(list, i, &n)) != NULL; i++)
        if (n == len && strncmp(at, item, len) == 0)
            return true;
    return false;
}

char *requeue_avoid(const char *excluded, const char *lost) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    const char *item;
    size_t len;
    bool more = false;
    strbuf_add(&s, excluded);
    for (size_t i = 0; (item = list_item(lost, i, &len)) != NULL; i++) {
        if (len == 0 || has_item(strbuf_text(&s), item, len))
            continue;
        strbuf_printf(&s, "%s%.*s", s.len > 0 ? "," : "", (int)len, item);
        more = true;
    }
    return more ? xstrdup(strbuf_text(&s)) : NULL;
}
