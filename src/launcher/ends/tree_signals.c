#include "launcher/ends/tree_signals.h"

static struct tree_news news(enum tree_answer answer, int signo, uint64_t at_ns) {
    return (struct tree_news){.answer = answer, .signo = signo, .at_ns = at_ns};
}

static struct tree_signal *find(struct tree_signals *t, int signo) {
    assert(signo > 0 && signo < TREE_SIGNALS_MAX);
    return &t->signals[signo];
}

struct tree_news tree_signals_came(struct tree_signals *t, int signo, enum tree_copy how,
                                   bool witnessed, uint64_t now_ns) {
    struct tree_signal *s = find(t, signo);
    unsigned copy = 1U << how;
    if (how == TREE_COPY_ALONE)
        return news(TREE_ALONE, signo, now_ns);
    if (s->came_ns != 0) {
        s->copies |= copy;
        return news(TREE_NOTHING, signo, now_ns);
    }
    if (s->all_ns != 0 && now_ns < s->all_ns + TREE_ECHO_NS && (s->copies & copy) == 0) {
        bool first = s->copies == 0;
        s->copies |= copy;
        return news(first ? TREE_ALL : TREE_NOTHING, signo, s->all_ns);
    }
    *s = (struct tree_signal){.copies = copy};
    if (witnessed)
        s->came_ns = now_ns;
    else
        s->all_ns = now_ns;
    return news(witnessed ? TREE_WAIT : TREE_ALONE, signo, now_ns);
}

struct tree_news tree_signals_witnessed(struct tree_signals *t, int signo, uint64_t at_ns) {
    struct tree_signal *s = find(t, signo);
    bool awaited = s->came_ns != 0;
    s->all_ns = at_ns;
    s->came_ns = 0;
    if (!awaited)
        s->copies = 0;
    return news(awaited ? TREE_ALL : TREE_NOTHING, signo, at_ns);
}

uint64_t tree_signals_deadline(const struct tree_signals *t) {
    uint64_t first = TIME_NEVER;
    for (int i = 1; i < TREE_SIGNALS_MAX; i++)
        if (t->signals[i].came_ns != 0)
            first = MIN2(first, t->signals[i].came_ns + TREE_WAIT_NS);
    return first;
}

struct tree_news tree_signals_time(struct tree_signals *t, uint64_t now_ns) {
    for (int i = 1; i < TREE_SIGNALS_MAX; i++) {
        struct tree_signal *s = &t->signals[i];
        uint64_t came_ns = s->came_ns;
        if (came_ns == 0 || now_ns < came_ns + TREE_WAIT_NS)
            continue;
        s->came_ns = 0;
        return news(TREE_ALONE, i, came_ns);
    }
    return news(TREE_NOTHING, 0, now_ns);
}
