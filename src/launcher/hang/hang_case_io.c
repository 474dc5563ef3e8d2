#include "launcher/hang/hang_case_io.h"

#include <errno.h>
#include <string.h>

#include "io/clock.h"

struct hang_case {
    struct hang_case_config config;
    char *what;
    uint64_t quiet_ns;
    struct hang_suspect *signs; /* [n_signs] */
    uint32_t n_signs;
    bool *waited; /* [world size] or NULL */
    uint32_t failed;
    uint64_t end_ns;
    struct hang_question *question; /* one of the two is there */
    struct hang_compare *compare;
    hang_compared_fn *fn;
    void *arg;
};

static void on_compared(void *arg, const struct hang_compared *compared) {
    struct hang_case *c = arg;
    c->compare = NULL;
    c->fn(c->arg, compared);
    hang_case_free(c);
}

static void on_answers(void *arg, const struct hang_answers *answers) {
    struct hang_case *c = arg;
    uint64_t now = clock_now_ns();
    c->question = NULL;
    struct hang_compare_ask ask = {
        .answers = answers,
        .what = c->what,
        .quiet_ns = c->quiet_ns,
        .signs = c->signs,
        .n_signs = c->n_signs,
        .waited = c->waited,
        .failed = c->failed,
        .job = c->config.spec->run_id,
        .dir = c->config.dir == NULL ? NULL : c->config.dir(c->config.arg),
        .log_mode = c->config.spec->log_mode,
        .timeout_ns = c->end_ns > now ? c->end_ns - now : 0,
    };
    int r = hang_compare_new(c->config.loop, &ask, on_compared, c, &c->compare);
    if (r < 0)
        on_compared(c, &(struct hang_compared){.code = r, .line = "", .text = "", .json = ""});
    else if (ask.dir != NULL && c->config.writes != NULL)
        c->config.writes(c->config.arg, hang_compare_pid(c->compare));
}

uint64_t hang_case_native_ns(const struct job_spec *spec) {
    return MIN2(spec->evidence_timeout_ns, HANG_LOOK_MAX_NS) / 4;
}

int hang_case_new(const struct hang_case_config *config, const struct hang_case_ask *ask,
                  hang_compared_fn *fn, void *arg, struct hang_case **ret) {
    uint64_t timeout_ns = MIN2(config->spec->evidence_timeout_ns, HANG_LOOK_MAX_NS);
    if (timeout_ns == 0)
        return -ECANCELED;
    if (ask->ends)
        timeout_ns -= hang_case_native_ns(config->spec);
    struct hang_case *c = xcalloc(1, sizeof *c);
    *c = (struct hang_case){.config = *config,
                            .quiet_ns = ask->quiet_ns,
                            .n_signs = ask->n_signs,
                            .failed = ask->failed,
                            .end_ns = clock_now_ns() + timeout_ns + HANG_CASE_LATE_NS,
                            .fn = fn,
                            .arg = arg};
    int r = ask->waited != NULL
                ? hang_evidence_ask_last(config->evidence, timeout_ns, on_answers, c, &c->question)
                : hang_evidence_ask(config->evidence, timeout_ns, on_answers, c, &c->question);
    if (r < 0) {
        free(c);
        return r;
    }
    uint32_t n_ranks = hang_evidence_group(config->evidence)->world_size;
    c->what = ask->what == NULL ? NULL : xstrdup(ask->what);
    c->signs = xcalloc(ask->n_signs + (size_t)1, sizeof *c->signs);
    if (ask->n_signs > 0)
        memcpy(c->signs, ask->signs, ask->n_signs * sizeof *c->signs);
    if (ask->waited != NULL) {
        c->waited = xcalloc(n_ranks, sizeof *c->waited);
        memcpy(c->waited, ask->waited, n_ranks * sizeof *c->waited);
    }
    *ret = c;
    return 0;
}

bool hang_case_has_answers(const struct hang_case *c) { return c->compare != NULL; }

void hang_case_free(struct hang_case *c) {
    if (c == NULL)
        return;
    hang_question_free(c->question);
    hang_compare_free(c->compare);
    free(c->what);
    free(c->signs);
    free(c->waited);
    free(c);
}
