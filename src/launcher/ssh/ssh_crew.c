#include "launcher/ssh/ssh_crew.h"

void ssh_crew_init(struct ssh_crew *c, uint32_t n, uint32_t min, bool meets) {
    *c = (struct ssh_crew){.n = n, .min = min};
    c->meeting = meets ? SSH_CREW_MEETS_UNASKED : SSH_CREW_MEETS_ELSEWHERE;
    c->states = xcalloc(n, sizeof *c->states);
    c->ready = xcalloc(n, sizeof *c->ready);
    for (uint32_t i = 0; i < n; i++)
        c->states[i] = SSH_CREW_WAITING;
}

void ssh_crew_fini(struct ssh_crew *c) {
    free(c->states);
    free(c->ready);
    *c = (struct ssh_crew){0};
}

/* A host leaves the stack of READY ones by its state. */
static bool pop_ready(struct ssh_crew *c, uint32_t *ret) {
    while (c->n_ready > 0) {
        *ret = c->ready[--c->n_ready];
        if (c->states[*ret] == SSH_CREW_READY)
            return true;
    }
    return false;
}

static bool leader_answered(const struct ssh_crew *c) {
    return c->leader < c->n && c->states[c->leader] >= SSH_CREW_READY;
}

enum ssh_crew_do ssh_crew_next(struct ssh_crew *c, uint32_t *ret) {
    if (c->n - c->n_failed < c->min && !c->closed) {
        c->closed = true;
        return SSH_CREW_DO_TOO_FEW;
    }
    if (c->closed)
        return SSH_CREW_DO_NOTHING;
    if (leader_answered(c) && c->meeting == SSH_CREW_MEETS_UNASKED) {
        c->meeting = SSH_CREW_MEETS_ASKED;
        *ret = c->leader;
        return SSH_CREW_DO_LISTEN;
    }
    if (leader_answered(c) && c->meeting != SSH_CREW_MEETS_ASKED && pop_ready(c, ret)) {
        c->states[*ret] = SSH_CREW_BOOTED;
        return SSH_CREW_DO_BOOT;
    }
    if (c->next == c->n || c->in_flight == SSH_IN_FLIGHT)
        return SSH_CREW_DO_NOTHING;
    *ret = c->next++;
    c->states[*ret] = SSH_CREW_CALLED;
    c->in_flight++;
    return SSH_CREW_DO_CALL;
}

bool ssh_crew_is_called(const struct ssh_crew *c, uint32_t host) {
    return c->states[host] == SSH_CREW_CALLED || c->states[host] == SSH_CREW_HANGS;
}

void ssh_crew_hangs(struct ssh_crew *c, uint32_t host) {
    if (c->states[host] != SSH_CREW_CALLED)
        return;
    c->in_flight--;
    c->n_hanging++;
    c->states[host] = SSH_CREW_HANGS;
}

/* What it counted as is over. */
static void answered(struct ssh_crew *c, uint32_t host) {
    c->in_flight -= c->states[host] == SSH_CREW_CALLED;
    c->n_hanging -= c->states[host] == SSH_CREW_HANGS;
}

bool ssh_crew_can_pass_over(const struct ssh_crew *c) {
    uint32_t ready = 0;
    if (c->closed || c->leader == c->n || !ssh_crew_is_called(c, c->leader))
        return false;
    for (uint32_t i = c->leader + 1; i < c->next && ready < c->min; i++)
        ready += c->states[i] == SSH_CREW_READY;
    return ready >= c->min;
}

void ssh_crew_pass_over(struct ssh_crew *c) {
    for (; c->leader < c->n && c->states[c->leader] != SSH_CREW_READY; c->leader++)
        ssh_crew_hangs(c, c->leader);
}

void ssh_crew_hello(struct ssh_crew *c, uint32_t host) {
    if (!ssh_crew_is_called(c, host))
        return;
    answered(c, host);
    c->states[host] = SSH_CREW_READY;
    c->ready[c->n_ready++] = host;
}

bool ssh_crew_listens(struct ssh_crew *c, uint32_t host) {
    if (c->meeting != SSH_CREW_MEETS_ASKED || host != c->leader)
        return false;
    c->meeting = SSH_CREW_MEETS_THERE;
    return true;
}

void ssh_crew_gone(struct ssh_crew *c, uint32_t host, bool failed) {
    if (c->states[host] == SSH_CREW_ENDED || c->states[host] == SSH_CREW_FAILED)
        return;
    answered(c, host);
    c->states[host] = failed ? SSH_CREW_FAILED : SSH_CREW_ENDED;
    c->n_gone++;
    c->n_failed += failed;
    if (host == c->leader && c->meeting == SSH_CREW_MEETS_ASKED)
        c->meeting = SSH_CREW_MEETS_UNASKED; /* the next leader is asked */
    while (c->leader < c->n && c->states[c->leader] == SSH_CREW_FAILED)
        c->leader++;
}

void ssh_crew_close(struct ssh_crew *c) { c->closed = true; }

bool ssh_crew_is_over(const struct ssh_crew *c) {
    return c->n_gone == (c->closed ? c->next : c->n);
}
