#include "watchdog/verdict/steps.h"

void steps_told(struct steps *s, uint64_t now_ns, uint64_t step) {
    if (step == s->step)
        return;
    if (s->step != 0) {
        s->took_ns[s->next] = now_ns > s->told_ns ? now_ns - s->told_ns : 0;
        s->next = (s->next + 1) % STEPS_KEPT;
        s->n = MIN2(s->n + 1, STEPS_KEPT);
    }
    s->step = step;
    s->told_ns = now_ns;
}

uint64_t steps_deadline(const struct steps *s) {
    uint64_t longest = 0;
    for (uint32_t i = 0; i < s->n; i++)
        longest = MAX2(longest, s->took_ns[i]);
    if (s->n == 0)
        return 0;
    if (longest > TIME_NEVER / STEPS_TIMES)
        return TIME_NEVER;
    return MAX2(STEPS_TIMES * longest, STEPS_DEADLINE_MIN_NS);
}
