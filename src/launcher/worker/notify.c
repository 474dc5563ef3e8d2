#include "launcher/worker/notify.h"

#include <string.h>

#include "base/text/parse.h"

/* Whether the line sets this variable ("NAME=") to a number. */
static bool number(const char *line, const char *variable, uint64_t *ret) {
    return text_begins(line, variable) && parse_u64(line + strlen(variable), ret) == 0;
}

static void take_line(struct notify_message *m, const char *line) {
    uint64_t v;
    m->safe_point = m->safe_point || strcmp(line, "MUSTER_SAFE_POINT=1") == 0;
    m->alive = m->alive || strcmp(line, "WATCHDOG=1") == 0;
    if (number(line, "MUSTER_STEP=", &v)) {
        m->has_step = true;
        m->step = v;
    } else if (number(line, "WATCHDOG_USEC=", &v) && v <= UINT64_MAX / NS_PER_US) {
        m->has_limit = true;
        m->limit_ns = v * NS_PER_US;
    }
    m->any = m->safe_point || m->alive || m->has_step || m->has_limit;
}

struct notify_message notify_parse(const char *data, size_t len) {
    struct notify_message message = {0};
    char text[NOTIFY_BYTES_MAX + 1], *rest = text;
    if (len > NOTIFY_BYTES_MAX || memchr(data, '\0', len) != NULL)
        return message;
    memcpy(text, data, len);
    text[len] = '\0';
    for (const char *line; (line = strsep(&rest, "\n")) != NULL;)
        take_line(&message, line);
    return message;
}

static void take_step(struct announced *a, uint64_t step, uint64_t now_ns) {
    if (step == a->step && a->step_at_ns != 0)
        return;
    if (a->step_at_ns != 0 && step > a->step)
        a->took_ns[a->n_steps++ % ANNOUNCED_STEPS] = now_ns - a->step_at_ns;
    a->step = step;
    a->step_at_ns = now_ns;
    a->alive_ns = now_ns;
}

void announced_take(struct announced *a, const struct notify_message *m, uint64_t now_ns) {
    if (m->has_limit)
        a->limit_ns = m->limit_ns;
    if (m->has_limit || m->alive)
        a->alive_ns = now_ns;
    if (m->has_step)
        take_step(a, m->step, now_ns);
}

bool announced_limit(const struct announced *a, uint64_t now_ns, uint64_t *ret_limit_ns,
                     uint64_t *ret_since_ns) {
    uint64_t longest = 0;
    for (uint64_t i = 0; i < MIN2(a->n_steps, (uint64_t)ANNOUNCED_STEPS); i++)
        longest = MAX2(longest, a->took_ns[i]);
    if (a->limit_ns != 0)
        *ret_limit_ns = a->limit_ns;
    else if (a->n_steps >= ANNOUNCED_STEPS_KNOWN)
        *ret_limit_ns =
            MAX2(longest < UINT64_MAX / ANNOUNCED_STEP_TIMES ? longest * ANNOUNCED_STEP_TIMES
                                                             : UINT64_MAX,
                 ANNOUNCED_STEP_MIN_NS);
    else
        return false;
    *ret_since_ns = now_ns - a->alive_ns;
    return true;
}
