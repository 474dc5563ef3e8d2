/* The machine alone. The simulator (tests/sim/world_ending.c) runs it together with member and group. */
#include "launcher/agent/agent_life.h"

#include "rig/unit.h"

/* Facts of an agent whose node is in a group that another node leads, */
#define NODE (LIFE_HAS_MEMBER | LIFE_HAS_LEADER)
/* with workers, */
#define RUNNING (NODE | LIFE_WORKERS_RUN | LIFE_PROCESSES)
/* and of one that leads at a fixed endpoint, with workers, */
#define LEADER (RUNNING | LIFE_LEADS | LIFE_SERVES)
/* and without. */
#define SERVES (NODE | LIFE_LEADS | LIFE_SERVES)

struct word {
    const char *text;
    unsigned value;
};

static const struct word facts[] = {{"none", 0},
                                    {"member", LIFE_HAS_MEMBER},
                                    {"node", NODE},
                                    {"running", RUNNING},
                                    {"leader", LEADER},
                                    {"serves", SERVES},
                                    {"leads", LIFE_LEADS},
                                    {"serving", LIFE_SERVES},
                                    {"arbiter", LIFE_HAS_ARBITER},
                                    {"processes", LIFE_PROCESSES},
                                    {"compares", LIFE_COMPARES},
                                    {"asks", LIFE_ASKS},
                                    {"closes", LIFE_JOB_CLOSES},
                                    {"succeeds", LIFE_JOB_SUCCEEDS},
                                    {"requeues", LIFE_MAY_REQUEUE}},
                         effects[] = {{"begin", LIFE_EFFECT_BEGIN},
                                      {"says-stops", LIFE_EFFECT_LOG_STOPS},
                                      {"says-kills", LIFE_EFFECT_LOG_KILLS},
                                      {"says-kills-left", LIFE_EFFECT_LOG_KILLS_LEFT},
                                      {"says-awaits-left", LIFE_EFFECT_LOG_AWAITS_LEFT},
                                      {"says-succeeded", LIFE_EFFECT_LOG_SUCCEEDED},
                                      {"says-output", LIFE_EFFECT_LOG_OUTPUT},
                                      {"leave", LIFE_EFFECT_LEAVE},
                                      {"stop-job", LIFE_EFFECT_STOP_JOB},
                                      {"resign", LIFE_EFFECT_RESIGN},
                                      {"kill", LIFE_EFFECT_KILL},
                                      {"pass-on", LIFE_EFFECT_PASS_ON},
                                      {"quit", LIFE_EFFECT_QUIT},
                                      {"end-output", LIFE_EFFECT_END_OUTPUT},
                                      {"leave-output", LIFE_EFFECT_LEAVE_OUTPUT},
                                      {"let-go", LIFE_EFFECT_LET_GO},
                                      {"requeue", LIFE_EFFECT_REQUEUE}},
                         events[] = {{"check", LIFE_EVENT_CHECK},  {"TERM", LIFE_EVENT_SIGNAL},
                                     {"INT", LIFE_EVENT_SIGNAL},   {"order", LIFE_EVENT_ORDER},
                                     {"drain", LIFE_EVENT_DRAIN},  {"usage", LIFE_EVENT_USAGE},
                                     {"fault", LIFE_EVENT_FAILURE}},
                         ends[] = {{"success", MEMBER_END_SUCCESS},
                                   {"failed", MEMBER_END_FAILED},
                                   {"left", MEMBER_END_LEFT},
                                   {"lost", MEMBER_END_LEADER_LOST}},
                         states[] = {{"joining", LIFE_JOINING},
                                     {"in-group", LIFE_IN_GROUP},
                                     {"stopping", LIFE_STOPPING},
                                     {"lingering", LIFE_LINGERING},
                                     {"over", LIFE_OVER}},
                         causes[] = {{"job", LIFE_CAUSE_JOB},
                                     {"signal", LIFE_CAUSE_SIGNAL},
                                     {"operator", LIFE_CAUSE_OPERATOR},
                                     {"usage", LIFE_CAUSE_USAGE}};

static struct agent_life life;
static uint64_t now_ns = NS_PER_S;

static bool find(const struct word *words, size_t n, const char *text, unsigned *ret) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(words[i].text, text) == 0) {
            *ret = words[i].value;
            return true;
        }
    return false;
}
#define FIND(words, text, ret) find(words, ARRAY_SIZE(words), text, ret)
#define MUST_FIND(words, text, ret) cr_assert(FIND(words, text, ret), "\"%s\" is no word of " #words, text)

/* "EVENT FACTS > EFFECTS": it has these effects, in this order. Or "is STATE", "by CAUSE", "begin FACTS". */
static void happens(const char *text) {
    char words[256], *rest = words;
    unsigned wanted, n = 0;
    struct life_event e = {.now_ns = now_ns};
    struct life_update update;
    (void)snprintf(words, sizeof words, "%s", text);
    const char *what = strsep(&rest, " ");
    char *more = strsep(&rest, " ");
    if (strcmp(what, "is") == 0) {
        MUST_FIND(states, more, &wanted);
        cr_assert_eq(life.state, wanted, "not %s, but %d", text, (int)life.state);
        return;
    }
    if (strcmp(what, "by") == 0) {
        MUST_FIND(causes, more, &wanted);
        cr_assert_eq(life.cause, wanted, "not %s, but %d", text, (int)life.cause);
        return;
    }
    for (const char *fact; (fact = strsep(&more, "+")) != NULL; e.facts |= wanted)
        MUST_FIND(facts, fact, &wanted);
    if (strcmp(what, "begin") == 0) {
        agent_life_init(&life);
        what = "check";
    }
    e.signo = strcmp(what, "INT") == 0 ? SIGINT : SIGTERM;
    if (FIND(ends, what, &wanted)) {
        e.kind = LIFE_EVENT_END;
        e.end = (enum member_end_kind)wanted;
    } else {
        MUST_FIND(events, what, &wanted);
        e.kind = (enum life_event_kind)wanted;
    }
    agent_life_step(&life, &e, &update);
    for (const char *effect; (effect = strsep(&rest, " ")) != NULL;) {
        if (strcmp(effect, ">") == 0)
            continue;
        MUST_FIND(effects, effect, &wanted);
        cr_assert_lt(n, update.n_effects, "%s: %s is missing", text, effect);
        cr_assert_eq((unsigned)update.effects[n], wanted, "%s: effect %u is %d", text, n, (int)update.effects[n]);
        n++;
    }
    cr_assert_eq(update.n_effects, n, "%s: %zu effects, not %u", text, (size_t)update.n_effects, n);
}

static void play(const char *script) {
    char text[1024], *rest = text;
    (void)snprintf(text, sizeof text, "%s", script);
    for (char *event; (event = strsep(&rest, ";")) != NULL;)
        happens(event + strspn(event, " "));
}

#define STOPS " > begin says-stops "

static const char *const stories[] = {
    /* it follows its member into the group and out of it */
    "begin member; is joining; check node; is in-group; check member; is joining",
    /* it ends when the job has ended and nothing is awaited */
    "begin running; success node; is lingering; check node+processes; check node+serving; check node+compares; "
    "check node+asks; check node > quit; is over; by job; check node",
    /* a signal to the only leader stops the job; the others are not informed at first */
    "begin leader; TERM leader" STOPS "stop-job; failed serves; check serves; check node+leads > quit",
    /* that leaves too if its node has not joined */
    "begin member+leads; TERM member+leads" STOPS "stop-job leave",
    /* without a member a signal ends it at once */
    "begin none; TERM none" STOPS "leave; is lingering; check none > quit",
    /* a leader that leaves resigns, and waits until it is deposed */
    "begin serves+arbiter; TERM serves+arbiter" STOPS "leave; left serves+arbiter > resign; check serves+arbiter; "
    "check node+arbiter > quit",
    /* it does not serve nodes after its own node left or lost the leader */
    "begin leader; left serves; check serves > quit; begin leader; lost serves; check serves > quit",
    /* with a fixed endpoint a second interrupt does not wait */
    "begin running; TERM running" STOPS "leave; INT running > says-kills kill; check node > quit",
    /* success counts more than a signal, and a signal more than failure */
    "begin running; TERM running" STOPS "leave; success node; by job",
    "begin running; TERM running" STOPS "leave; failed node; by signal",
    "begin node; failed node+asks; TERM node+asks" STOPS "leave; by signal",
    /* a signal ends the wait for a comparison */
    "begin node+leads+compares; failed node+leads+compares; check node+leads+compares; TERM node+leads+compares" STOPS
    "stop-job; check node+leads+compares > quit",
    /* an operator drains it once, and a job that ends meanwhile counts */
    "begin running; drain running > leave; is stopping; drain running; left node; by operator",
    "begin running; drain running > leave; failed node; by job",
    /* an order is for the leader; the job's end comes by the member */
    "begin running; order running; begin leader; order leader > end-output stop-job; is in-group; failed leader; "
    "by job; order leader > let-go",
    "begin leads; order leads > end-output stop-job leave; is lingering",
    /* it asks Slurm to requeue a job that failed, and nothing that needs no other attempt */
    "begin node+leads+requeues; failed node+leads+requeues; check node+leads+requeues > requeue; "
    "check node+leads+asks; check node+leads > quit",
    "begin node+leads+requeues; success node+leads+requeues; check node+leads+requeues > quit",
    "begin node+leads+requeues; INT node+leads+requeues" STOPS "stop-job kill; failed node+leads+requeues; "
    "check node+leads+requeues > quit",
    "begin node+leads+requeues; fault node+leads+requeues > kill; check node+leads+requeues > quit",
    "begin node+leads+requeues; drain node+leads+requeues > leave; left node+leads+requeues; "
    "check node+leads+requeues > quit",
    /* signals at the end are for the output; not the same one again */
    "begin node; failed node; check node > quit; INT node > says-output; INT node > leave-output",
    "begin node; failed node; check node > quit; TERM node > leave-output",
    "begin node; TERM node" STOPS "leave; left node; check node > quit; TERM node",
};

Test(agent_life, each_event_has_its_effects) {
    for (size_t i = 0; i < ARRAY_SIZE(stories); i++)
        play(stories[i]);
}

Test(agent_life, a_signal_makes_the_node_leave) {
    play("begin running; TERM running" STOPS "leave; is stopping");
    cr_assert_eq(life.signo, SIGTERM);
    play("check node; left node; check node > quit; by signal"); /* only the member decides when it has left */
}

Test(agent_life, only_a_second_interrupt_kills_and_only_a_third_does_not_wait) {
    play("begin running+arbiter; INT running+arbiter" STOPS "leave");
    play("TERM running+arbiter"); /* Slurm and systemd repeat it */
    play("INT running+arbiter > says-kills kill; is stopping");
    cr_assert_eq(life.deadline_ns, now_ns + 2 * NS_PER_S);
    play("INT running+arbiter > kill; is lingering");
    play("check running+arbiter"); /* no agent leaves processes behind */
    play("check node > quit; by signal");
}

Test(agent_life, after_a_second_interrupt_it_leaves_in_order_for_two_seconds) {
    play("begin node+arbiter; INT node+arbiter" STOPS "leave kill; INT node+arbiter > says-kills kill");
    now_ns += 2 * NS_PER_S - 1;
    play("check node+arbiter");
    now_ns++;
    play("check node+arbiter > quit");
    cr_assert_eq(life.deadline_ns, TIME_NEVER);
}

Test(agent_life, signals_for_what_workers_left_do_not_change_the_end) {
    play("begin node+processes+closes; TERM node+processes+closes > says-awaits-left pass-on");
    play("TERM node+processes+closes+succeeds > says-awaits-left"); /* --leave=detached keeps them */
    play("INT node+processes+closes > says-kills-left kill");
    cr_assert_eq(life.signo, 0);
    play("failed node; by job");
}

Test(agent_life, a_job_that_has_succeeded_stays_a_success) {
    play("begin node; success node+asks; TERM node+asks"); /* only the output is left */
    cr_assert_eq(life.interrupts, 1);
    play("INT node+asks > begin says-succeeded kill; by job");
}

Test(agent_life, an_agent_that_cannot_continue_waits_only_for_its_processes) {
    play("begin leader+compares; usage leader+compares > kill");
    cr_assert(agent_life_failed(&life));
    play("check leader+compares; failed serves; by usage; fault leader > kill; by usage; check serves+compares > quit");
}

Test(agent_life, no_state_is_left_after_the_end) {
    for (enum life_state to = LIFE_JOINING; to < LIFE_STATE_COUNT; to++) {
        cr_assert_not(life_may_move(LIFE_OVER, to));
        cr_assert_eq(life_may_move(to, LIFE_OVER), to == LIFE_LINGERING);
    }
}
