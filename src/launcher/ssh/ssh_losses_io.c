#include <signal.h>
#include <stdio.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "launcher/ssh/ssh_head_priv.h"

#define SIGNAL_STATUS 128 /* and the signal's number */

static void end_too_few(struct ssh_head *h, const char *why) {
    if (h->losses.too_few || h->head.state == STARTER_DECIDED || h->head.state == STARTER_OVER ||
        h->head.signo != 0)
        return;
    h->losses.too_few = true;
    log_error("%s", why);
    ssh_head_step(
        h, &(struct starter_event){.kind = STARTER_EVENT_SIGNAL, .signo = SIGTERM, .ends = true});
    ssh_calls_nobody_else(h);
}

static void too_few(struct ssh_head *h) {
    char text[160];
    h->losses.is_naming = false;
    loop_timer_set(h->losses.naming, TIME_NEVER);
    uint32_t left = h->crew.n - h->crew.n_failed;
    (void)snprintf(text, sizeof text, "%u host%s left, and the job needs %u: ending it", left,
                   left == 1 ? " is" : "s are", h->crew.min);
    end_too_few(h, text);
}

void ssh_losses_too_few(struct ssh_head *h) {
    h->losses.is_naming = true;
    loop_timer_set(h->losses.naming, clock_now_ns() + SSH_HEAD_NAMING_NS);
}

static void on_naming(void *arg) {
    too_few(arg);
    ssh_head_advance(arg);
}

/* The job's end is known, and only hosts that were lost are left. */
static void leave_lost(struct ssh_head *h) {
    uint32_t left = h->crew.next - h->crew.n_gone;
    if (h->losses.is_leaving || h->head.state != STARTER_DECIDED || left > h->head.verdict.lost)
        return;
    h->losses.is_leaving = true;
    loop_timer_set(h->losses.leave, clock_now_ns() + SSH_HEAD_LOST_NS);
}

static void on_leave(void *arg) {
    struct ssh_head *h = arg;
    for (uint32_t i = 0; i < h->crew.n; i++)
        if (h->members[i].host != NULL)
            ssh_host_kill(h->members[i].host);
}

void ssh_losses_advance(struct ssh_head *h) {
    if (h->losses.is_naming && h->crew.in_flight == 0)
        too_few(h);
    leave_lost(h);
}

void ssh_losses_exit(struct ssh_head *h, uint32_t i, const struct ssh_exit *e) {
    int code = e->signalled ? SIGNAL_STATUS + (int)e->code : (int)e->code;
    if (code == 0 || h->head.signo != 0)
        return;
    if (i == h->first)
        h->losses.code_of_first = code;
    if (h->losses.code != 0)
        return;
    h->losses.code = code;
    h->losses.first_ended = i;
    loop_timer_set(h->losses.alone, clock_now_ns() + SSH_HEAD_ALONE_NS);
}

static void on_alone(void *arg) {
    struct ssh_head *h = arg;
    char why[STARTER_HOST_MAX + 128];
    (void)snprintf(why, sizeof why,
                   "host %s: muster ended there with status %d, and the others are too few: ending "
                   "the job",
                   ssh_head_host(h, h->losses.first_ended)->name, h->losses.code);
    if (h->crew.n - h->crew.n_gone < h->crew.min)
        end_too_few(h, why);
}

/* Nobody can take the place of the host at which the others meet. */
static void end_without_first(struct ssh_head *h, const char *why) {
    char text[STARTER_HOST_MAX + 128];
    int code = h->losses.code_of_first;
    bool by_itself = why == NULL && code <= SIGNAL_STATUS;
    (void)snprintf(text, sizeof text,
                   "host %s: muster ended there with status %d, and the others meet there: ending "
                   "the job",
                   ssh_head_host(h, h->first)->name, code);
    if (by_itself)
        h->losses.code = code;
    end_too_few(h, by_itself ? text
                             : "this was the host at which the others meet: ending the job (only "
                               "with --rdzv-endpoint=dir:/PATH, in a folder that all hosts share, "
                               "or etcd://HOST it could go on without any one host)");
}

void ssh_losses_gone(struct ssh_head *h, uint32_t i, const char *why) {
    if (i == h->first && h->config->spec->hosts.meet &&
        (why != NULL || h->losses.code_of_first != 0))
        end_without_first(h, why);
}

/* An agent that was killed is lost: the program is not to blame. */
int ssh_losses_code(const struct ssh_head *h) {
    int code = h->losses.code;
    bool is_lost = code > SIGNAL_STATUS || (code == 0 && h->crew.n_failed > 0);
    return is_lost ? STARTER_EXIT_LOST : code;
}

int ssh_losses_status(const struct ssh_head *h, int status) {
    bool failed = !h->head.has_verdict || h->head.verdict.status != 0;
    if (!h->losses.too_few || !failed)
        return status;
    int code = ssh_losses_code(h);
    return code != 0 ? code : STARTER_EXIT_LOST;
}

int ssh_losses_begin(struct ssh_head *h) {
    int r = loop_timer_new(h->loop, on_alone, h, &h->losses.alone);
    if (r == 0)
        r = loop_timer_new(h->loop, on_naming, h, &h->losses.naming);
    return r < 0 ? r : loop_timer_new(h->loop, on_leave, h, &h->losses.leave);
}

void ssh_losses_free(struct ssh_head *h) {
    loop_timer_free(h->losses.alone);
    loop_timer_free(h->losses.naming);
    loop_timer_free(h->losses.leave);
}
