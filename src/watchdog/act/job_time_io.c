#include "watchdog/act/job_time_io.h"

#include <string.h>

#include "base/text/log.h"
#include "base/text/utf8.h"
#include "io/clock.h"
#include "io/process/helper_call.h"
#include "watchdog/profile/job_time.h"

#define HELPER_NAME "muster-job-time"
#define COMPARE_NS (10 * NS_PER_S)

struct job_clock {
    struct loop *loop;
    struct hang_evidence *evidence;
    struct job_clock_ops ops;
    void *arg;
    struct loop_timer *timer; /* of the next window */
    uint64_t window_ns;
    uint64_t end_ns;                /* of the window */
    struct hang_question *question; /* NULL: no window is open */
    struct helper_call *call;       /* NULL: nothing is compared */
    struct job_time time;
};

/* ---- in the helper ---- */

static int compare(int fd, void *arg) {
    const struct hang_answers *answers = arg;
    _cleanup_(profile_fini) struct profile job = {0};
    struct profile_findings found;
    for (uint32_t i = 0; i < answers->group.n_nodes; i++) {
        const struct hang_answer *a = &answers->nodes[i];
        struct err err = {0};
        if (a->missing == NULL && profile_read(strbuf_text(&a->json), a->json.len, &job, &err) < 0)
            log_debug("samples of node %s: %s", answers->group.nodes[i].name, err.text);
    }
    profile_infer(&job, &found);
    profile_findings_fini(&found);
    return helper_send(fd, &found, sizeof found) ? 0 : 1;
}

/* ---- windows ---- */

static void on_window(void *arg, const struct helper_answer *answer) {
    struct job_clock *c = arg;
    struct profile_findings found;
    c->call = NULL;
    if (answer->code != 0 || answer->len != sizeof found)
        return;
    memcpy(&found, answer->data, sizeof found);
    if (job_time_add(&c->time, &found))
        c->ops.first_step(c->arg, &c->time.start);
}

static void set_timer(struct job_clock *c, uint64_t after_ns) {
    loop_timer_set(c->timer, clock_now_ns() + after_ns);
}

static bool has_samples(const struct hang_answers *answers) {
    for (uint32_t i = 0; i < answers->group.n_nodes; i++)
        if (answers->nodes[i].missing == NULL)
            return true;
    return false;
}

/* The next window begins meanwhile, or, if no node can take samples, when this one would end. */
static void on_answers(void *arg, const struct hang_answers *answers) {
    struct job_clock *c = arg;
    struct helper_call_config config = {.name = HELPER_NAME,
                                        .run = compare,
                                        .arg = (void *)(uintptr_t)answers,
                                        .timeout_ns = COMPARE_NS,
                                        .max_bytes = sizeof(struct profile_findings)};
    c->question = NULL;
    helper_call_free(TAKE_PTR(c->call));
    if (helper_call_new(c->loop, &config, on_window, c, &c->call) < 0)
        c->call = NULL;
    if (c->time.started_ns != 0)
        loop_timer_set(c->timer, has_samples(answers) ? clock_now_ns() : c->end_ns);
}

static void on_timer(void *arg) {
    struct job_clock *c = arg;
    if (hang_evidence_samples(c->evidence, ASK_TIME, JOB_CLOCK_PERIOD_NS, c->window_ns, on_answers,
                              c, &c->question) < 0)
        c->question = NULL;
    c->end_ns = clock_now_ns() + c->window_ns;
    c->window_ns = MIN2(c->window_ns + JOB_CLOCK_WINDOW_NS, JOB_CLOCK_WINDOW_MAX_NS);
}

/* ---- the job ---- */

/* A window of an attempt that has ended is dropped: it shows how the workers ended. */
void job_clock_begin(struct job_clock *c, uint32_t n_ranks) {
    if (c == NULL)
        return;
    job_clock_end(c);
    job_time_started(&c->time, clock_now_ns(), clock_wall_ns(), n_ranks);
    c->window_ns = JOB_CLOCK_WINDOW_NS;
    set_timer(c, JOB_CLOCK_FIRST_NS);
}

void job_clock_end(struct job_clock *c) {
    if (c == NULL)
        return;
    job_time_stopped(&c->time, clock_now_ns());
    hang_question_free(TAKE_PTR(c->question));
    loop_timer_set(c->timer, TIME_NEVER);
}

void job_clock_state(void *job_clock, struct rdzv_time *ret) {
    const struct job_clock *c = job_clock;
    *ret = (struct rdzv_time){0};
    if (c == NULL)
        return;
    _cleanup_(strbuf_fini) struct strbuf text = {0}, late = {0};
    job_time_text(&c->time, clock_now_ns(), &text);
    job_time_late_text(&c->time, &late);
    utf8_copy(ret->text, sizeof ret->text, strbuf_text(&text));
    utf8_copy(ret->late, sizeof ret->late, strbuf_text(&late));
    ret->start = c->time.start;
    ret->step = c->time.rate.last_step;
}

void job_clock_report(const struct job_clock *c, struct strbuf *ret) {
    uint64_t now = clock_now_ns();
    if (c != NULL && c->time.began_ns != 0 && now - c->time.began_ns >= JOB_CLOCK_REPORT_NS)
        job_time_text(&c->time, now, ret);
}

struct job_clock *job_clock_new(struct loop *loop, struct hang_evidence *evidence,
                                const struct job_clock_ops *ops, void *arg) {
    struct job_clock *c = xcalloc(1, sizeof *c);
    *c = (struct job_clock){.loop = loop, .evidence = evidence, .ops = *ops, .arg = arg};
    c->timer = loop_timer_new(loop, on_timer, c);
    return c;
}

void job_clock_free(struct job_clock *c) {
    if (c == NULL)
        return;
    job_clock_end(c);
    helper_call_free(c->call);
    loop_timer_free(c->timer);
    free(c);
}
