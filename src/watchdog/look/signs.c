#include "watchdog/look/signs.h"

#include <string.h>

/* The digits at *at, which end before `end`; false: none, or too large a number. */
static bool number(const char **at, const char *end, uint64_t *ret) {
    const char *p = *at;
    uint64_t v = 0;
    for (; p < end && *p >= '0' && *p <= '9'; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (v > (UINT64_MAX - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    if (p == *at || p == end)
        return false;
    *at = p;
    *ret = v;
    return true;
}

bool signs_ran(const char *schedstat, size_t len, uint64_t *ret_ns, uint64_t *ret_turns) {
    const char *at = schedstat, *end = schedstat + len;
    uint64_t ns, waited_ns, turns;
    if (!number(&at, end, &ns) || *at++ != ' ' || !number(&at, end, &waited_ns) || *at++ != ' ' ||
        !number(&at, end, &turns))
        return false;
    *ret_ns = ns;
    *ret_turns = turns;
    return true;
}

bool signs_number(const char *text, size_t len, const char *name, uint64_t *ret) {
    const char *at = memmem(text, len, name, strlen(name));
    if (at == NULL)
        return false;
    at += strlen(name);
    return number(&at, text + len, ret);
}

uint64_t signs_wrote(const char *io, size_t len) {
    uint64_t bytes, calls;
    bool found =
        signs_number(io, len, "wchar: ", &bytes) && signs_number(io, len, "syscw: ", &calls);
    return found ? bytes + calls + 1 : 0;
}

struct signs_track signs_track_of(uint64_t now_ns) {
    return (struct signs_track){.moved_ns = now_ns, .much_ns = now_ns};
}

static bool runs_little(const struct signs_track *t, const struct worker_tick *tick,
                        uint64_t now_ns) {
    uint64_t ran_ns = tick->ran_ns - t->ran_ns, turns = MAX2(tick->turns - t->turns, SIGNS_TURNS);
    return ran_ns < (now_ns - t->read_ns) / 100 * SIGNS_LITTLE_PERCENT &&
           ran_ns < turns * SIGNS_TURN_NS;
}

void signs_track_add(struct signs_track *t, const struct worker_tick *tick, uint64_t now_ns) {
    bool moved = tick->state == 0;
    if (tick->state != 0) {
        bool ran = t->known && tick->ran_ns - t->ran_ns >= SIGNS_MOVED_NS;
        bool little = !t->known || runs_little(t, tick, now_ns);
        bool wrote = t->wrote != 0 && tick->wrote != 0 && tick->wrote != t->wrote;
        bool received = t->known && t->receives && tick->turns != t->turns;
        t->moved_once |= ran || wrote;
        /* what it used before the first sample was not seen second by second */
        moved = ran || wrote || received || !t->known;
        t->little = little && !wrote ? t->little + 1 : 0;
        if (t->little == 0)
            t->much_ns = now_ns;
        t->wrote = tick->wrote;
        t->hot = ran && tick->ran_ns - t->ran_ns >= (now_ns - t->read_ns) / 2 ? t->hot + 1 : 0;
        t->read_ns = now_ns;
        t->ran_ns = tick->ran_ns;
        t->turns = tick->turns;
        t->known = true;
    }
    if (moved)
        t->moved_ns = now_ns;
    t->flags = (moved ? SIGN_MOVED : 0U) | (tick->state == 'T' ? SIGN_STOPPED : 0U) |
               (tick->state == 't' ? SIGN_TRACED : 0U);
}
