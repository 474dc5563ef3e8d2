#include "launcher/srun/requeue_io.h"

#include "base/text/log.h"
#include "io/clock.h"
#include "launcher/srun/slurm_ask_io.h"

struct requeue {
    struct requeue_config config;
    requeue_fn *fn;
    void *arg;
    struct requeue_end end;
    char *lost;               /* of `end` */
    struct loop_timer *timer; /* no process could be created: it is told from the loop */
    uint32_t restarts;        /* how often the job was requeued before */
    char *avoided;            /* nodes that Slurm is to avoid from now on; NULL: none are new */
    char *why;                /* why not all of a request was carried out */
    struct helper_call *call; /* the question or request under way; NULL: none */
};

static void on_timer(void *arg);

struct requeue *requeue_new(const struct requeue_config *config, requeue_fn *fn, void *arg) {
    struct requeue *r = xcalloc(1, sizeof *r);
    r->config = *config;
    r->fn = fn;
    r->arg = arg;
    r->timer = loop_timer_new(config->loop, on_timer, r);
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
    const char *const words[] = {"show", "job", "--oneliner", r->config.id, NULL};
    helper_call_free(TAKE_PTR(r->call));
    return slurm_ask(r->config.loop, words, REQUEUE_ASK_NS, fn, r, &r->call);
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
        requeue_cannot(r->config.id, answer->data, &why);
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
              r->config.id, why, REQUEUE_EXIT_STATUS);
    r->fn(r->arg, REQUEUE_EXIT_STATUS);
}

static void requeued(struct requeue *r, bool avoids) {
    log_notice("job %s is back in Slurm's queue", r->config.id);
    if (avoids && r->avoided != NULL)
        log_notice("job %s avoids %s from now on (scontrol update ExcNodeList)", r->config.id,
                   r->avoided);
    else if (r->avoided != NULL)
        log_warning("Slurm may use the lost nodes again (scontrol update ExcNodeList): %s", r->why);
    r->fn(r->arg, r->end.status);
}

static void on_avoided(void *arg, const struct helper_answer *answer) {
    struct requeue *r = arg;
    _cleanup_(strbuf_fini) struct strbuf why = {0};
    r->call = NULL;
    bool avoids = slurm_told(answer, &why);
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
        xasprintf("update JobId=%s ExcNodeList=%s\nquit\n", r->config.id, r->avoided);
    if (slurm_tell(r->config.loop, lines, on_avoided, r, &r->call) < 0)
        requeued(r, false);
}

static void on_requeued(void *arg, const struct helper_answer *answer) {
    struct requeue *r = arg;
    _cleanup_(strbuf_fini) struct strbuf why = {0};
    r->call = NULL;
    if (slurm_told(answer, &why)) {
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
    log_notice("requeueing job %s: %s", r->config.id, why);
    strbuf_printf(&lines, "requeue %s\n", r->config.id);
    if (r->avoided != NULL)
        strbuf_printf(&lines, "update JobId=%s ExcNodeList=%s\n", r->config.id, r->avoided);
    strbuf_add(&lines, "quit\n");
    if (slurm_tell(r->config.loop, strbuf_text(&lines), on_requeued, r, &r->call) < 0)
        failed(r, "no process can be started");
}

static void decide(struct requeue *r, const char *job) {
    _cleanup_(strbuf_fini) struct strbuf why = {0};
    struct requeue_facts facts = {.asked = r->config.asked,
                                  .max = r->config.max,
                                  .status = r->end.status,
                                  .safe = r->end.safe,
                                  .restarts = r->config.restarts,
                                  .id = r->config.id,
                                  .job = job};
    struct slurm_queue_facts q = slurm_queue_facts(job != NULL ? job : "");
    _cleanup_(freep) char *excluded = slurm_excluded(job != NULL ? job : "");
    r->avoided = requeue_avoid(excluded, r->lost);
    r->restarts = q.known ? q.restarts : r->config.restarts;
    enum requeue_answer answer = requeue_decide(&facts, &why);
    /* Slurm takes a request for a cancelled job, too, which then runs again; an exit status does
     * not bring it back. Seen with Slurm 22.05 */
    if (answer == REQUEUE_YES && job == NULL && r->end.status != REQUEUE_EXIT_STATUS) {
        failed(r, "it does not report why the job ends, and a cancelled job must not run "
                  "again");
    } else if (answer == REQUEUE_YES) {
        requeue(r, strbuf_text(&why));
    } else {
        if (why.len > 0)
            log_notice("%s", strbuf_text(&why));
        r->fn(r->arg, r->end.status);
    }
}

static void on_job(void *arg, const struct helper_answer *answer) {
    struct requeue *r = arg;
    r->call = NULL;
    decide(r, answer->code == 0 && answer->len > 0 ? answer->data : NULL);
}

void requeue_begin(struct requeue *r, const struct requeue_end *end) {
    r->end = *end;
    r->lost = xstrdup(end->lost);
    r->end.lost = r->lost;
    if (ask_job(r, on_job) < 0)
        loop_timer_set(r->timer, clock_now_ns());
}

static void on_timer(void *arg) { decide(arg, NULL); }
