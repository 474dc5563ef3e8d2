/* Back into Slurm's queue, by the agent that leads, where no head does it: Slurm itself has started
 * the agents, or the head was killed. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "launcher/agent/agent_priv.h"

static bool is_asked(const struct agent *a) {
    return a->config.spec->requeue != 0 && (a->head == NULL || a->head_gone);
}

static void on_requeued(void *arg, uint32_t status) {
    struct agent *a = arg;
    a->requeue.state = REQUEUE_ANSWERED;
    a->requeue.status = (int)status;
    agent_check(a);
}

static void make(struct agent *a) {
    const struct place *place = &a->config.spec->place;
    struct requeue_config config = {.loop = a->loop,
                                    .id = place->job_id,
                                    .asked = a->config.spec->requeue,
                                    .max = a->config.spec->max_requeues,
                                    .restarts = place->restarts};
    if (a->requeue.io == NULL)
        a->requeue.io = requeue_new(&config, on_requeued, a);
}

void agent_requeue_begin(struct agent *a) {
    if (a->requeue.io != NULL || !is_asked(a) || !agent_leads(a))
        return;
    make(a);
    requeue_look(a->requeue.io);
}

void agent_requeue_safe(struct agent *a) {
    a->requeue.safe = true;
    starter_link_safe(a->head);
}

void agent_requeue_lost(struct agent *a, const char *host) {
    char *lost = a->requeue.lost;
    size_t n = strlen(lost), more = strlen(host);
    if (n + more + 1 < sizeof a->requeue.lost && requeue_is_name(host))
        (void)snprintf(lost + n, sizeof a->requeue.lost - n, "%s%s", n > 0 ? "," : "", host);
}

bool agent_may_requeue(const struct agent *a) {
    return is_asked(a) && a->requeue.state == REQUEUE_NOT_ASKED && a->leading != NULL &&
           leading_has_led(a->leading);
}

bool agent_is_requeueing(const struct agent *a) { return a->requeue.state == REQUEUE_ASKED; }

void agent_requeue_ask(struct agent *a) {
    struct requeue_end end = {
        .status = (uint32_t)agent_exit_status(a), .safe = a->requeue.safe, .lost = a->requeue.lost};
    make(a);
    a->requeue.state = REQUEUE_ASKED;
    requeue_begin(a->requeue.io, &end);
}

int agent_requeue_status(const struct agent *a, int status) {
    return a->requeue.state == REQUEUE_ANSWERED ? a->requeue.status : status;
}

void agent_requeue_free(struct agent *a) { requeue_free(TAKE_PTR(a->requeue.io)); }
