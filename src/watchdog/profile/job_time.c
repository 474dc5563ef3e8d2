#include "watchdog/profile/job_time.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/text/duration.h"
#include "base/util.h"

#define SAMPLED_MIN_S 3
/* Weak signs that one rank is late add up over so many windows in a row: z of their mean. By chance
 * the same of R ranks leads in all of these once in R^3. */
#define TOP_WINDOWS 4
#define TOP_Z 4.5
#define TOP_SHARE 0.04
/* A rate of steps is compared only from so many on, in so much time. */
#define RATE_STEPS 10
#define RATE_NS (10 * NS_PER_S)
#define EFFICIENCY_LOW 0.8
#define SHOWN_MIN 0.01 /* smaller shares are not shown */
#define SHOWN_MAX 3    /* besides training */

static double rate_of(const struct job_rate *r) {
    uint64_t steps = r->last_step - r->first_step, ns = r->last_ns - r->first_ns;
    return steps < RATE_STEPS || ns < RATE_NS ? 0 : (double)steps * NS_PER_S / (double)ns;
}

void job_time_started(struct job_time *t, uint64_t now_ns, uint64_t wall_ns, uint32_t n_ranks) {
    job_time_stopped(t, now_ns);
    if (t->began_ns == 0)
        t->began_ns = now_ns;
    t->started_ns = now_ns;
    t->started_wall_ns = wall_ns;
    t->start = (struct attempt_start){0};
    t->n_top = 0;
    t->now.s = 0;
    if (rate_of(&t->rate) > 0 &&
        (t->smallest.n_ranks == 0 || t->rate.n_ranks <= t->smallest.n_ranks))
        t->smallest = t->rate;
    t->rate = (struct job_rate){.n_ranks = n_ranks};
}

void job_time_stopped(struct job_time *t, uint64_t now_ns) {
    if (t->started_ns != 0)
        t->ran_ns += now_ns - t->started_ns;
    t->started_ns = 0;
}

static void add_step(struct job_rate *r, const struct profile_findings *w) {
    if (w->step == 0)
        return;
    if (r->first_ns == 0 || w->step < r->last_step)
        *r = (struct job_rate){r->n_ranks, w->step, w->step, w->begin_ns, w->begin_ns};
    r->last_step = w->step;
    r->last_ns = w->begin_ns;
}

static bool add_start(struct job_time *t, const struct profile_findings *w) {
    struct attempt_start *s = &t->start;
    if (s->first_step_ns != 0)
        return false;
    s->import_ns += w->before.import_ns;
    s->init_ns += w->before.init_ns;
    s->load_ns += w->before.load_ns;
    if (w->first_step_wall_ns == 0)
        return false;
    s->first_step_ns = MAX2(w->first_step_wall_ns, t->started_wall_ns + 1) - t->started_wall_ns;
    return true;
}

/* The late rank itself does not wait: more than the average rank waits would make the shares of
 * job_time_text() exceed 100 %. The row of the least time makes room for a new one. */
static void add_late(struct job_time *t, const struct profile_findings *w, struct job_late late) {
    struct job_late *row = NULL, *least = &t->late[0];
    double s = MIN2(late.s, w->shares[PROFILE_LATE]) * ((double)w->span_ns / NS_PER_S);
    for (uint32_t i = 0; i < t->n_late; i++) {
        struct job_late *l = &t->late[i];
        bool same = l->rank == late.rank && l->why.cls == late.why.cls;
        row = same && strcmp(l->why.place, late.why.place) == 0 ? l : row;
        least = l->s < least->s ? l : least;
    }
    if (row == NULL) {
        row = t->n_late < JOB_TIME_LATE_MAX ? &t->late[t->n_late++] : least;
        *row = late;
        row->s = 0;
    }
    row->s += s;
}

static const struct profile_reason unknown = {.cls = PROFILE_CLASS_COUNT};

/* Evidence that is too weak in each window adds up if it is of the same rank. */
static void add_top(struct job_time *t, const struct profile_findings *w) {
    if (t->n_top == 0 || w->top != t->top || w->top_z <= 0)
        t->top_z = t->top_share = t->n_top = 0;
    if (w->top_z <= 0)
        return;
    t->top = w->top;
    t->n_top++;
    t->top_z += w->top_z;
    t->top_share += w->top_share;
    double share = t->top_share / t->n_top;
    if (t->n_top >= TOP_WINDOWS && t->top_z / sqrt(t->n_top) >= TOP_Z && share >= TOP_SHARE)
        t->now = (struct job_late){.rank = w->top, .why = unknown, .s = share};
}

bool job_time_add(struct job_time *t, const struct profile_findings *w) {
    double s = (double)w->span_ns / NS_PER_S;
    bool stepped = add_start(t, w);
    add_step(&t->rate, w);
    if (w->span_ns == 0)
        return stepped;
    t->sampled_s += s;
    for (int c = 0; c < PROFILE_CLASS_COUNT; c++)
        t->s[c] += w->shares[c] * s;
    t->now.s = 0;
    add_top(t, w);
    for (uint32_t i = 0; i < w->n_late; i++) {
        const struct profile_late *l = &w->late[i];
        struct job_late late = {l->rank, l->n_reasons > 0 ? l->reasons[0] : unknown, l->share};
        if (l->how == PROFILE_MOST_WORK)
            continue; /* a stage of a pipeline: the job is built so */
        add_late(t, w, late);
        t->now = late.s > t->now.s ? late : t->now;
    }
    if (w->n_late == 0 && t->now.s > 0)
        add_late(t, w, t->now);
    return stepped;
}

static int percent(double share) { return (int)(share * 100 + 0.5); }

static const struct job_late *most_late(const struct job_time *t) {
    const struct job_late *most = NULL;
    for (uint32_t i = 0; i < t->n_late; i++)
        if (most == NULL || t->late[i].s > most->s)
            most = &t->late[i];
    return most;
}

/* What it does meanwhile, if that is known. */
static void add_why(const struct job_late *l, const char *before, const char *behind,
                    struct strbuf *ret) {
    if (l->why.cls != PROFILE_CLASS_COUNT)
        strbuf_printf(ret, "%s%s%s%s%s", before, profile_class_names[l->why.cls],
                      l->why.place[0] == '\0' ? "" : ", ", l->why.place, behind);
}

static bool is_training(int c) {
    return c == PROFILE_FORWARD || c == PROFILE_BACKWARD || c == PROFILE_OPTIMIZER;
}

/* The class besides training that takes most of what remains in s[]; PROFILE_CLASS_COUNT: none. */
static int largest(const double *s, double least) {
    int most = PROFILE_CLASS_COUNT;
    for (int c = 0; c < PROFILE_CLASS_COUNT; c++)
        if (!is_training(c) && s[c] >= least && (most == PROFILE_CLASS_COUNT || s[c] > s[most]))
            most = c;
    return most;
}

static void add_rate(const struct job_time *t, struct strbuf *ret) {
    double rate = rate_of(&t->rate), alone = rate_of(&t->smallest);
    if (rate <= 0)
        return;
    strbuf_printf(ret, "; %.3g steps/s", rate);
    if (alone <= 0 || t->rate.n_ranks <= t->smallest.n_ranks)
        return;
    strbuf_printf(ret, ", %d %% of the rate with %" PRIu32 " rank%s", percent(rate / alone),
                  t->smallest.n_ranks, t->smallest.n_ranks == 1 ? "" : "s");
    int why = largest(t->s, t->sampled_s * SHOWN_MIN);
    if (rate / alone < EFFICIENCY_LOW && why != PROFILE_CLASS_COUNT)
        strbuf_printf(ret, " (mostly %s)", profile_class_names[why]);
}

void job_time_text(const struct job_time *t, uint64_t now_ns, struct strbuf *ret) {
    if (t->sampled_s < SAMPLED_MIN_S)
        return;
    uint64_t ran_ns = t->ran_ns + (t->started_ns == 0 ? 0 : now_ns - t->started_ns);
    uint64_t wall_ns = MAX2(now_ns - t->began_ns, 1);
    /* What was not sampled while workers ran was like the rest. */
    double scale = (double)ran_ns / (double)wall_ns / t->sampled_s, training = 0;
    double s[PROFILE_CLASS_COUNT];
    memcpy(s, t->s, sizeof s);
    for (int c = 0; c < PROFILE_CLASS_COUNT; c++)
        training += is_training(c) ? s[c] : 0;
    strbuf_printf(ret, "training %d %% of ", percent(training * scale));
    duration_text(wall_ns, ret);
    const struct job_late *late = most_late(t);
    if (late != NULL && late->s * scale >= SHOWN_MIN) {
        strbuf_printf(ret, "; %d %% waiting for rank %" PRIu32, percent(late->s * scale),
                      late->rank);
        add_why(late, " (", ")", ret);
        s[PROFILE_LATE] -= late->s;
    }
    for (int i = 0; i < SHOWN_MAX; i++) {
        int c = largest(s, SHOWN_MIN / scale);
        if (c == PROFILE_CLASS_COUNT)
            break;
        strbuf_printf(ret, "; %d %% %s", percent(s[c] * scale), profile_class_names[c]);
        s[c] = 0;
    }
    add_rate(t, ret);
}

void job_time_late_text(const struct job_time *t, struct strbuf *ret) {
    if (t->now.s <= 0)
        return;
    strbuf_printf(ret, "rank %" PRIu32 ", %d %%", t->now.rank, percent(t->now.s));
    add_why(&t->now, ", ", "", ret);
}
