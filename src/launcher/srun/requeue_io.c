#include "launcher/srun/requeue_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "base/text/parse.h"
#include "io/clock.h"

#define TELL_NS (10 * NS_PER_S)

/* Where the status line begins: at the start, or behind a line that may have no end. */
static const char *status_line(const char *text, size_t len) {
    static const char word[] = "status ";
    size_t n = strlen(word);
    for (size_t i = len >= n ? len - n + 1 : 0; i-- > 0;)
        if (memcmp(text + i, word, n) == 0)
            return text + i;
    return NULL;
}

/* Whether all was carried out; if not, *ret is why: scontrol's first line, or how it ended. */
static bool was_done(const struct helper_answer *answer, struct strbuf *ret) {
    uint32_t status;
    const char *line = status_line(answer->data, answer->len);
    _cleanup_(freep) char *number = NULL;
    strbuf_clear(ret);
    if (answer->code != 0 || line == NULL) {
        strbuf_add(ret, answer->code == -EMSGSIZE ? "scontrol prints without end"
                                                  : "scontrol does not end");
        return false;
    }
    number = xstrndup(line + strlen("status "), strcspn(line + strlen("status "), "\n"));
    if (parse_u32(number, &status) == 0 && status == 0)
        return true;
    size_t begin = strspn(answer->data, " \n");
    size_t n = strcspn(answer->data + begin, "\n");
    if (answer->data + begin < line)
        strbuf_add_bytes(ret, answer->data + begin, MIN2(n, (size_t)(line - answer->data) - begin));
    else
        strbuf_printf(ret, "scontrol ended with status %s and printed nothing", number);
    return false;
}

/* ==== requeueing ==== */

struct requeue {
    struct loop *loop;
    struct requeue_facts facts;
    requeue_fn *fn;
    void *arg;
    char *lost;               /* nodes, with commas; NULL: not known yet */
    struct loop_timer *timer; /* no process could be created: the loop decides without it */
    uint32_t restarts;        /* how often the job was requeued before */
    char *avoided;            /* nodes that Slurm is to avoid from now on; NULL: none are new */
    char *why;                /* why not all of a request was carried out */
    struct helper_call *call; /* the question or request under way; NULL: none */
};

static void on_timer(void *arg);

struct requeue *requeue_new(struct loop *loop, const struct job_spec *spec, requeue_fn *fn,
                            void *arg) {
    struct requeue *r = xcalloc(1, sizeof *r);
    *r = (struct requeue){.loop = loop,
                          .facts = {.id = spec->place.job_id,
                                    .asked = spec->requeue,
                                    .max = spec->max_requeues,
                                    .restarts = spec->place.restarts},
                          .fn = fn,
                          .arg = arg};
    r->timer = loop_timer_new(loop, on_timer, r);
    return r;
}

void requeue_free(struct requeue *r) {
    if (r == NULL)
        return;
    helper_call_free(r->call);
    loop_timer_free(r->timer);
    free(r->lost);
    free(r->avoided);
    free(r->why);
    free(r);
}

static int ask_job(struct requeue *r, helper_call_fn *fn) {
    const char *const words[] = {"scontrol", "show", "job", "--oneliner", r->facts.id, NULL};
    helper_call_free(TAKE_PTR(r->call));
    return helper_command(r->loop, words, false, REQUEUE_ASK_NS, fn, r, &r->call);
}

/* Requests, each a line, the last "quit", by one scontrol. It has failed if one of them has. The
 * answer is what it prints as errors, then "status N": of a shell, 128 and a signal. */
static int tell(struct requeue *r, const char *lines, helper_call_fn *fn) {
    static const char script[] =
        "command -v scontrol >/dev/null || echo \"scontrol can't be run (is it on PATH?)\"\n"
        "printf %s \"$1\" | timeout -s KILL 11 scontrol 2>&1 >/dev/null\n" /* behind TELL_NS */
        "echo status $?";
    const char *const words[] = {"sh", "-c", script, "sh", lines, NULL};
    return helper_command(r->loop, words, false, TELL_NS, fn, r, &r->call);
}

/* ---- the start ---- */

static void on_look(void *arg, const struct helper_answer *answer) {
    struct requeue *r = arg;
    _cleanup_(strbuf_fini) struct strbuf why = {0};
    r->call = NULL;
    if (answer->code != 0 || answer->len == 0)
        log_warning("--requeue: scontrol does not answer here; at the end of the job muster can "
                    "only exit with status %d (RequeueExit in slurm.conf)",
                    REQUEUE_EXIT_STATUS);
    else
        requeue_cannot(r->facts.id, answer->data, &why);
    if (why.len > 0)
        log_warning("%s", strbuf_text(&why));
}

void requeue_look(struct requeue *r) {
    if (ask_job(r, on_look) < 0)
        log_debug("no process can be started to ask Slurm");
}

/* ---- the end ---- */

static void failed(struct requeue *r, const char *why) {
    log_error("Slurm did not requeue job %s: %s; muster exits with status %d, which requeues it "
              "where RequeueExit in slurm.conf has it",
              r->facts.id, why, REQUEUE_EXIT_STATUS);
    r->fn(r->arg, REQUEUE_EXIT_STATUS);
}

static void requeued(struct requeue *r, bool avoids) {
    log_notice("job %s is back in Slurm's queue", r->facts.id);
    if (avoids && r->avoided != NULL)
        log_notice("job %s avoids %s from now on (scontrol update ExcNodeList)", r->facts.id,
                   r->avoided);
    else if (r->avoided != NULL)
        log_warning("Slurm may use the lost nodes again (scontrol update ExcNodeList): %s", r->why);
    r->fn(r->arg, r->facts.status);
}

static void on_avoided(void *arg, const struct helper_answer *answer) {
    struct requeue *r = arg;
    _cleanup_(strbuf_fini) struct strbuf why = {0};
    r->call = NULL;
    bool avoids = was_done(answer, &why);
    free(r->why);
    r->why = xstrdup(strbuf_text(&why));
    requeued(r, avoids);
}

/* One of the two requests has failed: which, the job's own line tells. */
static void on_half(void *arg, const struct helper_answer *answer) {
    struct requeue *r = arg;
    struct slurm_queue_facts q =
        slurm_queue_facts(answer->code == 0 && answer->len > 0 ? answer->data : "");
    r->call = NULL;
    if (!q.known || q.restarts <= r->restarts) {
        failed(r, r->why);
        return;
    }
    _cleanup_(freep) char *lines =
        xasprintf("update JobId=%s ExcNodeList=%s\nquit\n", r->facts.id, r->avoided);
    if (tell(r, lines, on_avoided) < 0)
        requeued(r, false);
}

static void on_requeued(void *arg, const struct helper_answer *answer) {
    struct requeue *r = arg;
    _cleanup_(strbuf_fini) struct strbuf why = {0};
    r->call = NULL;
    if (was_done(answer, &why)) {
        requeued(r, true);
        return;
    }
    r->why = xstrdup(strbuf_text(&why));
    if (r->avoided == NULL || ask_job(r, on_half) < 0)
        failed(r, r->why);
}

/* Lost nodes are avoided until a person looks at them: Slurm may take minutes to notice. */
static void requeue(struct requeue *r, const char *why) {
    _cleanup_(strbuf_fini) struct strbuf lines = {0};
    log_notice("requeueing job %s: %s", r->facts.id, why);
    strbuf_printf(&lines, "requeue %s\n", r->facts.id);
    if (r->avoided != NULL)
        strbuf_printf(&lines, "update JobId=%s ExcNodeList=%s\n", r->facts.id, r->avoided);
    strbuf_add(&lines, "quit\n");
    if (tell(r, strbuf_text(&lines), on_requeued) < 0)
        failed(r, "no process can be started");
}

static void decide(struct requeue *r, const char *job) {
    _cleanup_(strbuf_fini) struct strbuf why = {0};
    struct slurm_queue_facts q = slurm_queue_facts(job != NULL ? job : "");
    _cleanup_(freep) char *excluded = slurm_excluded(job != NULL ? job : "");
    r->avoided = requeue_avoid(excluded, r->lost);
    r->restarts = q.known ? q.restarts : r->facts.restarts;
    r->facts.job = job;
    const bool again = requeue_decide(&r->facts, &why);
    /* Slurm takes a request for a cancelled job, too, which then runs again; an exit status does
     * not bring it back. Seen with Slurm 22.05 */
    if (again && job == NULL && r->facts.status != REQUEUE_EXIT_STATUS) {
        failed(r, "it does not report why the job ends, and a cancelled job must not run again");
    } else if (again) {
        requeue(r, strbuf_text(&why));
    } else {
        if (why.len > 0)
            log_notice("%s", strbuf_text(&why));
        r->fn(r->arg, r->facts.status);
    }
}

static void on_job(void *arg, const struct helper_answer *answer) {
    struct requeue *r = arg;
    r->call = NULL;
    decide(r, answer->code == 0 && answer->len > 0 ? answer->data : NULL);
}

void requeue_begin(struct requeue *r, uint32_t status, bool safe, const char *lost) {
    r->facts.status = status;
    r->facts.safe = safe;
    r->lost = xstrdup(lost);
    if (ask_job(r, on_job) < 0)
        loop_timer_set(r->timer, clock_now_ns());
}

static void on_timer(void *arg) { decide(arg, NULL); }
