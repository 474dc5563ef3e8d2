#include "launcher/starter/starter.h"

#include "rig/unit.h"

#define GRACE_NS (30 * NS_PER_S)

static struct starter h;
static struct starter_update u;
static uint64_t now;
static char said[256]; /* the effects of the last event, in words */

static void begin(void) {
    now = 100 * NS_PER_S;
    starter_init(&h, &(struct starter_config){.grace_ns = GRACE_NS});
}

TestSuite(starter, .init = begin);

static void describe(void) {
    size_t n = 0;
    said[0] = '\0';
    for (size_t i = 0; i < u.n_effects; i++) {
        const struct starter_effect *e = &u.effects[i];
        static const char *const names[] = {
            [STARTER_EFFECT_STOP] = "stop", [STARTER_EFFECT_ACK] = "ack",         [STARTER_EFFECT_SIGNAL] = "signal",
            [STARTER_EFFECT_KILL] = "kill", [STARTER_EFFECT_REQUEUE] = "requeue", [STARTER_EFFECT_END] = "end"};
        int number = e->kind == STARTER_EFFECT_STOP || e->kind == STARTER_EFFECT_SIGNAL   ? e->signo
                     : e->kind == STARTER_EFFECT_END || e->kind == STARTER_EFFECT_REQUEUE ? e->status
                                                                                          : (int)e->link;
        n += (size_t)snprintf(said + n, sizeof said - n, "%s%s %d", n > 0 ? ", " : "",
                              e->kind == STARTER_EFFECT_STOP && e->link == 0 ? "stop all" : names[e->kind], number);
    }
}

static const char *step(struct starter_event e) {
    e.now_ns = now;
    starter_step(&h, &e, &u);
    describe();
    return said;
}

static const char *leads(uint64_t link) {
    return step((struct starter_event){.kind = STARTER_EVENT_LEADER, .link = link});
}

static const char *gone(uint64_t link) {
    return step((struct starter_event){.kind = STARTER_EVENT_LEADER_GONE, .link = link});
}

static const char *verdict(uint64_t link, uint32_t status, uint32_t lost) {
    return step((struct starter_event){
        .kind = STARTER_EVENT_VERDICT, .link = link, .verdict = {.status = status, .lost = lost}});
}

static const char *got(int signo) {
    return step((struct starter_event){.kind = STARTER_EVENT_SIGNAL, .signo = signo, .ends = true});
}

static const char *exits(int code) { return step((struct starter_event){.kind = STARTER_EVENT_ENDED, .code = code}); }

static const char *killed(int signo) {
    return step((struct starter_event){.kind = STARTER_EVENT_ENDED, .signalled = true, .code = signo});
}

/* Nothing happens until the deadline, and then this. */
static const char *waits(void) {
    cr_assert_neq(u.deadline_ns, TIME_NEVER);
    now = u.deadline_ns - 1;
    cr_assert_str_eq(step((struct starter_event){.kind = STARTER_EVENT_TIME}), "");
    now = u.deadline_ns;
    return step((struct starter_event){.kind = STARTER_EVENT_TIME});
}

Test(starter, the_verdict_is_the_status_whatever_srun_says) {
    static const int codes[] = {0, 1, 137, 75};
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        begin();
        cr_assert_str_eq(leads(1), "");
        cr_assert_str_eq(verdict(1, 0, 0), "ack 1");
        cr_assert_eq(u.deadline_ns, TIME_NEVER);
        cr_assert_str_eq(gone(1), "");
        cr_assert_str_eq(exits(codes[i]), "end 0");
    }
    begin();
    leads(1);
    cr_assert_str_eq(verdict(1, 1, 0), "ack 1");
    cr_assert_str_eq(exits(0), "end 1");
}

Test(starter, the_verdict_of_a_job_that_srun_did_not_survive_counts) {
    leads(1);
    cr_assert_str_eq(exits(0), "stop 15"); /* the frame is still on its way */
    cr_assert_str_eq(verdict(1, 0, 0), "ack 1, end 0");
}

Test(starter, without_a_leader_the_status_is_sruns) {
    cr_assert_str_eq(exits(2), "end 2");
    begin();
    cr_assert_str_eq(exits(0), "end 0");
    begin();
    cr_assert_str_eq(killed(SIGKILL), "end 137");
}

Test(starter, a_leader_without_a_verdict_was_lost) {
    static const int codes[] = {0, 1, 75, 137};
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        begin();
        leads(1);
        cr_assert_str_eq(gone(1), "");
        cr_assert_str_eq(exits(codes[i]), "end 75");
    }
}

Test(starter, a_signal_is_told_to_the_leader_and_is_the_status) {
    leads(1);
    cr_assert_str_eq(got(SIGINT), "stop 2");
    cr_assert_eq(u.deadline_ns, now + GRACE_NS + STARTER_MORE_NS);
    cr_assert_str_eq(got(SIGTERM), "", "a second one means the same");
    cr_assert_str_eq(verdict(1, 130, 0), "ack 1");
    cr_assert_str_eq(exits(130), "end 130");
    begin();
    leads(1);
    got(SIGTERM);
    verdict(1, 0, 0); /* it had succeeded before */
    cr_assert_str_eq(exits(0), "end 0");
}

Test(starter, without_a_leader_srun_passes_the_signal_on) {
    cr_assert_str_eq(got(SIGHUP), "stop all 1");
    cr_assert_str_eq(exits(143), "end 129");
    begin();
    leads(1);
    gone(1);
    cr_assert_str_eq(got(SIGTERM), "stop all 15");
    begin();
    leads(1);
    got(SIGTERM);
    cr_assert_str_eq(gone(1), "stop all 15", "the leader went before it had stopped the job");
}

Test(starter, a_leader_that_comes_later_is_told_too) {
    cr_assert_str_eq(got(SIGTERM), "stop all 15");
    cr_assert_str_eq(leads(4), "stop 15");
}

Test(starter, another_leader_takes_over) {
    leads(1);
    cr_assert_str_eq(leads(2), "");
    cr_assert_str_eq(gone(1), "");
    cr_assert_str_eq(got(SIGTERM), "stop 15");
    cr_assert_eq(u.effects[0].link, 2);
    cr_assert_str_eq(verdict(2, 143, 1), "ack 2");
    cr_assert_str_eq(verdict(2, 0, 1), "ack 2", "the first one counts");
    cr_assert_str_eq(exits(0), "end 143");
}

static void begin_with_requeue(void) {
    begin();
    starter_init(&h, &(struct starter_config){.grace_ns = GRACE_NS, .requeues = true});
    leads(1);
}

static const char *answered(int code) {
    return step((struct starter_event){.kind = STARTER_EVENT_REQUEUED, .code = code});
}

Test(starter, slurm_is_asked_with_the_verdict_and_waited_for) {
    begin_with_requeue();
    cr_assert_str_eq(verdict(1, 143, 0), "ack 1, requeue 143");
    cr_assert_str_eq(exits(0), "");
    cr_assert_str_eq(answered(143), "end 143");
    begin_with_requeue();
    cr_assert_str_eq(verdict(1, 143, 0), "ack 1, requeue 143");
    cr_assert_str_eq(answered(75), "");
    cr_assert_str_eq(answered(1), "", "once");
    cr_assert_str_eq(got(SIGTERM), "", "Slurm ends what is left of the job");
    cr_assert_str_eq(exits(0), "end 75");
    begin_with_requeue();
    got(SIGTERM);
    cr_assert_str_eq(verdict(1, 1, 0), "ack 1, requeue 143");
}

Test(starter, slurm_is_asked_where_the_leader_was_lost) {
    begin_with_requeue();
    gone(1);
    cr_assert_str_eq(exits(0), "requeue 75");
    cr_assert_eq(u.deadline_ns, TIME_NEVER);
    cr_assert_str_eq(answered(75), "end 75");
}

Test(starter, slurm_is_not_asked_for_a_job_that_is_over) {
    begin_with_requeue();
    cr_assert_str_eq(verdict(1, 0, 0), "ack 1");
    cr_assert_str_eq(exits(0), "end 0");
    begin_with_requeue();
    got(SIGINT);
    cr_assert_str_eq(verdict(1, 130, 0), "ack 1", "its user has ended it");
    begin();
    leads(1);
    cr_assert_str_eq(verdict(1, 143, 0), "ack 1", "nobody wants it");
    begin();
    starter_init(&h, &(struct starter_config){.grace_ns = GRACE_NS, .requeues = true});
    cr_assert_str_eq(exits(1), "end 1", "it never began");
}

Test(starter, a_safe_point_is_remembered_whoever_leads) {
    begin_with_requeue();
    cr_assert_not(h.safe);
    cr_assert_str_eq(step((struct starter_event){.kind = STARTER_EVENT_SAFE}), "");
    leads(2);
    verdict(2, 75, 1);
    cr_assert(h.safe);
    begin_with_requeue();
    step((struct starter_event){.kind = STARTER_EVENT_VERDICT, .link = 1, .verdict = {.status = 75, .safe = true}});
    cr_assert(h.safe, "also told with the verdict only");
}

Test(starter, a_job_that_does_not_stop_is_killed) {
    leads(1);
    got(SIGTERM);
    cr_assert_str_eq(waits(), "kill 0");
    cr_assert_str_eq(waits(), "end 143");
}

Test(starter, a_second_interrupt_kills) {
    leads(1);
    got(SIGINT);
    cr_assert_str_eq(got(SIGINT), "kill 0");
    cr_assert_str_eq(got(SIGINT), "", "it is killed already");
    cr_assert_str_eq(gone(1), "");
    cr_assert_str_eq(exits(137), "end 130");
}

Test(starter, a_killed_srun_ends_the_job_in_order) {
    leads(1);
    cr_assert_str_eq(killed(SIGKILL), "stop 15");
    cr_assert_str_eq(verdict(1, 143, 0), "ack 1, end 143");
    begin();
    leads(1);
    killed(SIGKILL);
    cr_assert_str_eq(gone(1), "end 75");
    begin();
    leads(1);
    killed(SIGKILL);
    cr_assert_str_eq(waits(), "kill 0");
    cr_assert_str_eq(waits(), "end 75");
}

Test(starter, after_a_loss_the_step_is_not_waited_for_long) {
    leads(1);
    verdict(1, 0, 1);
    cr_assert_eq(u.deadline_ns, now + STARTER_LINGER_NS);
    cr_assert_str_eq(waits(), "stop all 15");
    cr_assert_str_eq(waits(), "kill 0");
    cr_assert_str_eq(waits(), "end 0");
}

Test(starter, signals_for_the_workers_go_through_srun) {
    const struct starter_event usr1 = {.kind = STARTER_EVENT_SIGNAL, .signo = SIGUSR1};
    begin();
    cr_assert_str_eq(step(usr1), "signal 10");
    leads(1);
    cr_assert_str_eq(step(usr1), "signal 10");
    cr_assert_eq(h.state, STARTER_RUNNING);
    verdict(1, 0, 0);
    cr_assert_str_eq(step(usr1), "", "no worker is left");
}

Test(starter, nothing_follows_the_end) {
    exits(0);
    cr_assert_str_eq(got(SIGTERM), "");
    cr_assert_str_eq(leads(1), "");
    cr_assert_str_eq(verdict(1, 0, 0), "");
    cr_assert_eq(u.deadline_ns, TIME_NEVER);
    cr_assert_eq(h.state, STARTER_OVER);
}

/* Whatever happens in whatever order: it ends once, and the deadlines lead there. */
Test(starter, every_order_of_events_ends) {
    for (unsigned seed = 1; seed < 20000; seed++) {
        unsigned x = seed, ends = 0;
        begin();
        for (int i = 0; i < 12; i++) {
            x = x * 1664525u + 1013904223u;
            struct starter_event e = {.kind = (enum starter_event_kind)(1 + (x >> 16) % 6),
                                      .link = 1 + (x >> 20) % 2,
                                      .signo = (x >> 24) % 2 ? SIGTERM : SIGINT,
                                      .ends = (x >> 25) % 4 != 0,
                                      .code = (int)(x >> 26) % 3};
            if (e.kind == STARTER_EVENT_ENDED && h.ended)
                continue;
            step(e);
            ends += h.state == STARTER_OVER && strstr(said, "end ") != NULL;
        }
        for (int i = 0; i < 4 && u.deadline_ns != TIME_NEVER; i++) {
            waits();
            ends += strstr(said, "end ") != NULL;
        }
        if (h.state != STARTER_OVER) {
            exits(0);
            ends += strstr(said, "end ") != NULL;
            for (int i = 0; i < 4 && u.deadline_ns != TIME_NEVER; i++) {
                waits();
                ends += strstr(said, "end ") != NULL;
            }
        }
        cr_assert_eq(ends, 1, "seed %u: ended %u times, state %d", seed, ends, (int)h.state);
    }
}
