/* Any bytes as the samples of a node: refused with a sentence, or accepted; then they are written and read again with
 * the same result, merge with those of another node, and have findings: each sample has a class, and shares are shares. */
#include <string.h>

#include "watchdog/profile/infer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok) {
    if (!ok)
        abort();
}

/* Each number that the findings follow is one of the tables. */
static void check_indexes(const struct profile *p) {
    for (uint32_t i = 0; i < p->n_stacks; i++)
        check(p->stacks[i].frame < p->n_frames && p->stacks[i].outer < (int32_t)i &&
              p->stacks[i].depth <= PROFILE_FRAMES_MAX);
    for (uint32_t r = 0; r < p->n_ranks; r++) {
        check(r == 0 || p->ranks[r - 1].rank < p->ranks[r].rank);
        for (uint32_t k = 0; k < p->n_ticks; k++) {
            int32_t stack = profile_at(p, &p->ranks[r], k).stack;
            check(stack >= PROFILE_ABSENT && stack < (int32_t)p->n_stacks);
        }
        for (uint32_t k = 0; k < p->ranks[r].n_rows; k++)
            check(p->ranks[r].children[k].stack >= PROFILE_NOT_READ &&
                  p->ranks[r].children[k].stack < (int32_t)p->n_stacks);
    }
}

static void check_findings(const struct profile *p) {
    struct profile_findings f;
    double all = 0;
    profile_infer(p, &f);
    check(f.n_rows == p->n_ranks && f.n_late <= PROFILE_LATE_MAX);
    for (size_t i = 0; i < (size_t)f.n_rows * p->n_ticks; i++)
        check(f.classes[i] < PROFILE_CLASS_COUNT);
    for (int c = 0; c < PROFILE_CLASS_COUNT; c++)
        all += f.shares[c];
    check(f.n_ticks == 0 ? all == 0 : all > 0.999 && all < 1.001);
    profile_findings_fini(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char other[] = "{\"period_ns\":\"50000000\",\"first_tick\":\"1002\",\"n_ticks\":3,\"frames\":[\"f\","
                                "\"a\",1,0],\"stacks\":[0,0],"
                                "\"ranks\":[{\"rank\":5,\"step\":\"0\",\"delay\":0,\"n_children\":0,\"gap\":\"\","
                                "\"samples\":[64,3],\"children\":[]}]}";
    _cleanup_(profile_fini) struct profile p = {0}, again = {0}, job = {0};
    _cleanup_(strbuf_fini) struct strbuf text = {0}, twice = {0};
    struct err err = {0};
    int r = profile_read((const char *)data, size, &p, &err);
    if (r != 0) {
        check(err.code == r && err.text[0] != '\0' && p.n_ranks == 0);
        return 0;
    }
    check_indexes(&p);
    check_findings(&p);
    profile_write(&p, 1u << 20, &text);
    check(text.len <= 1u << 20 && profile_read(strbuf_text(&text), text.len, &again, &err) == 0);
    check(again.n_ranks == p.n_ranks && again.first_tick == p.first_tick);
    profile_write(&again, 1u << 20, &twice);
    check(strcmp(strbuf_text(&text), strbuf_text(&twice)) == 0);

    check(profile_read(other, sizeof other - 1, &job, &err) == 0);
    r = profile_read((const char *)data, size, &job, &err);
    check(r == 0 ? job.n_ranks == p.n_ranks + 1 : err.code == r && job.n_ranks == 1 && job.n_ticks == 3);
    check(profile_read(other, sizeof other - 1, &job, &err) < 0 && job.n_ranks == (r == 0 ? p.n_ranks + 1 : 1));
    check_indexes(&job);
    check_findings(&job);
    return 0;
}
