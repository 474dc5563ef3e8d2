#include "launcher/starter/starter.h"

#include "rig/unit.h"

#define GRACE_NS (30 * NS_PER_S)

static struct starter h;
static struct starter_update u;
static uint64_t now;
static char said[256]; /* the effects of the last event, in words */

static void begin(bool requeues) {
    now = 100 * NS_PER_S;
    starter_init(&h, &(struct starter_config){.grace_ns = GRACE_NS, .requeues = requeues});
}

static void describe(void) {
    size_t n = 0;
    said[0] = '\0';
    for (size_t i = 0; i < u.n_effects; i++) {
        const struct starter_effect *e = &u.effects[i];
        char text[32] = "kill";
        switch (e->kind) {
        case STARTER_EFFECT_STOP:
            (void)snprintf(text, sizeof text, e->link == 0 ? "stop %d all" : "stop %d at %d", e->signo, (int)e->link);
            break;
        case STARTER_EFFECT_ACK: (void)snprintf(text, sizeof text, "ack %d", (int)e->link); break;
        case STARTER_EFFECT_SIGNAL: (void)snprintf(text, sizeof text, "signal %d", e->signo); break;
        case STARTER_EFFECT_REQUEUE: (void)snprintf(text, sizeof text, "requeue %d", e->status); break;
        case STARTER_EFFECT_END: (void)snprintf(text, sizeof text, "end %d", e->status); break;
        case STARTER_EFFECT_KILL: break;
        }
        n += (size_t)snprintf(said + n, sizeof said - n, "%s%s", n > 0 ? ", " : "", text);
    }
}

static const char *step(struct starter_event e) {
    e.now_ns = now;
    starter_step(&h, &e, &u);
    describe();
    return said;
}

/* Nothing happens until the deadline, and then this. */
static const char *waits(void) {
    cr_assert_neq(u.deadline_ns, TIME_NEVER);
    now = u.deadline_ns - 1;
    cr_assert_str_eq(step((struct starter_event){.kind = STARTER_EVENT_TIME}), "");
    now = u.deadline_ns;
    return step((struct starter_event){.kind = STARTER_EVENT_TIME});
}

/* Events, each with what it causes behind ">". leads LINK, gone LINK, verdict LINK STATUS LOST, got SIGNAL, exits CODE,
 * killed SIGNAL, answered STATUS, usr1; waits: until the deadline; due S: which is S seconds away, 0: there is none. */
static const struct {
    const char *name;
    bool requeues;
    const char *script;
} cases[] = {
    {"the verdict is the status, whatever srun says", false,
     "leads 1; verdict 1 0 0 > ack 1; due 0; gone 1; exits 137 > end 0"},
    {"a failure, too", false, "leads 1; verdict 1 1 0 > ack 1; exits 0 > end 1"},
    {"the verdict of a job that srun did not survive counts: its frame is on its way", false,
     "leads 1; exits 0 > stop 15 at 1; verdict 1 0 0 > ack 1, end 0"},
    {"without a leader the status is srun's", false, "exits 2 > end 2"},
    {"or success", false, "exits 0 > end 0"},
    {"or that of its signal", false, "killed 9 > end 137"},
    {"a leader without a verdict was lost", false, "leads 1; gone 1; exits 0 > end 75"},
    {"whatever srun says", false, "leads 1; gone 1; exits 137 > end 75"},
    {"a signal goes to the leader, and is the status; a second one means the same", false,
     "leads 1; got 2 > stop 2 at 1; due 40; got 15; verdict 1 130 0 > ack 1; due 10; exits 130 > end 130"},
    {"unless the job had succeeded before", false,
     "leads 1; got 15 > stop 15 at 1; verdict 1 0 0 > ack 1; exits 0 > end 0"},
    {"without a leader srun passes the signal on", false, "got 1 > stop 1 all; exits 143 > end 129"},
    {"also if it has gone", false, "leads 1; gone 1; got 15 > stop 15 all"},
    {"or goes before it has stopped the job", false, "leads 1; got 15 > stop 15 at 1; gone 1 > stop 15 all"},
    {"a leader that comes later gets the order, too", false, "got 15 > stop 15 all; leads 4 > stop 15 at 4"},
    {"another leader takes over, and the first verdict counts", false,
     "leads 1; leads 2; gone 1; got 15 > stop 15 at 2; verdict 2 143 1 > ack 2; verdict 2 0 1 > ack 2; exits 0 > end "
     "143"},
    {"Slurm is asked with the verdict, and waited for", true,
     "leads 1; verdict 1 143 0 > ack 1, requeue 143; exits 0; answered 143 > end 143"},
    {"it answers once, and ends what is left of the job", true,
     "leads 1; verdict 1 143 0 > ack 1, requeue 143; answered 75; answered 1; got 15; exits 0 > end 75"},
    {"it is asked after a signal", true, "leads 1; got 15 > stop 15 at 1; verdict 1 1 0 > ack 1, requeue 143"},
    {"and if the leader was lost", true, "leads 1; gone 1; exits 0 > requeue 75; due 0; answered 75 > end 75"},
    {"it is not asked for a job that has succeeded", true, "leads 1; verdict 1 0 0 > ack 1; exits 0 > end 0"},
    {"nor for one that its user has ended", true, "leads 1; got 2 > stop 2 at 1; verdict 1 130 0 > ack 1"},
    {"nor if no one wants it", false, "leads 1; verdict 1 143 0 > ack 1"},
    {"nor for one that never began", true, "exits 1 > end 1"},
    {"a job that does not stop is killed", false, "leads 1; got 15 > stop 15 at 1; waits > kill; waits > end 143"},
    {"a second interrupt kills, once", false,
     "leads 1; got 2 > stop 2 at 1; got 2 > kill; got 2; gone 1; exits 137 > end 130"},
    {"a killed srun ends the job in order", false,
     "leads 1; killed 9 > stop 15 at 1; verdict 1 143 0 > ack 1, end 143"},
    {"if the leader goes, it is lost", false, "leads 1; killed 9 > stop 15 at 1; gone 1 > end 75"},
    {"and not waited for", false, "leads 1; killed 9 > stop 15 at 1; waits > kill; waits > end 75"},
    {"after a loss the step is not waited for long", false,
     "leads 1; verdict 1 0 1 > ack 1; due 10; waits > stop 15 all; waits > kill; waits > end 0"},
    {"signals for the workers go through srun while there are some", false,
     "usr1 > signal 10; leads 1; usr1 > signal 10; verdict 1 0 0 > ack 1; usr1"},
    {"nothing follows the end", false, "exits 0 > end 0; got 15; leads 1; verdict 1 0 0; due 0"},
};

static const char *happens(const char *text) {
    char word[16];
    unsigned a = 0, b = 0, c = 0;
    cr_assert_geq(sscanf(text, "%15[a-z0-9] %u %u %u", word, &a, &b, &c), 1);
    struct starter_event e = {.link = a, .signo = (int)a, .code = (int)a};
    if (strcmp(word, "waits") == 0)
        return waits();
    if (strcmp(word, "due") == 0) {
        cr_assert_eq(u.deadline_ns, a == 0 ? TIME_NEVER : now + a * NS_PER_S, "%s", text);
        return "";
    }
    e.verdict = (struct starter_verdict){.status = b, .lost = c};
    e.ends = strcmp(word, "got") == 0;
    e.signalled = strcmp(word, "killed") == 0;
    e.signo = strcmp(word, "usr1") == 0 ? SIGUSR1 : e.signo;
    e.kind = strcmp(word, "leads") == 0            ? STARTER_EVENT_LEADER
             : strcmp(word, "gone") == 0           ? STARTER_EVENT_LEADER_GONE
             : strcmp(word, "verdict") == 0        ? STARTER_EVENT_VERDICT
             : strcmp(word, "answered") == 0       ? STARTER_EVENT_REQUEUED
             : e.ends || strcmp(word, "usr1") == 0 ? STARTER_EVENT_SIGNAL
                                                   : STARTER_EVENT_ENDED;
    return step(e);
}

Test(starter, each_event_has_its_effects) {
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[256], *rest = text;
        (void)snprintf(text, sizeof text, "%s", cases[i].script);
        begin(cases[i].requeues);
        for (char *event; (event = strsep(&rest, ";")) != NULL;) {
            char *effects = strstr(event, " > ");
            if (effects != NULL)
                *effects = '\0';
            event += strspn(event, " ");
            cr_assert_str_eq(happens(event), effects != NULL ? effects + 3 : "", "%s: %s: %s", cases[i].name, event,
                             said);
        }
    }
}

Test(starter, a_safe_point_is_remembered_whoever_leads_and_in_the_verdict_alone) {
    begin(true);
    (void)happens("leads 1");
    cr_assert_not(h.safe);
    cr_assert_str_eq(step((struct starter_event){.kind = STARTER_EVENT_SAFE}), "");
    (void)happens("leads 2");
    (void)happens("verdict 2 75 1");
    cr_assert(h.safe);
    begin(true);
    step((struct starter_event){.kind = STARTER_EVENT_VERDICT, .link = 1, .verdict = {.status = 75, .safe = true}});
    cr_assert(h.safe);
}

/* Whatever happens in whatever order: it ends once, and the deadlines lead there. */
Test(starter, every_order_of_events_ends) {
    for (unsigned seed = 1; seed < 20000; seed++) {
        unsigned x = seed, ends = 0;
        begin(false);
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
        for (int i = 0; i < 4 && (h.state != STARTER_OVER || u.deadline_ns != TIME_NEVER); i++) {
            (void)(u.deadline_ns != TIME_NEVER ? waits() : happens("exits 0"));
            ends += strstr(said, "end ") != NULL;
        }
        cr_assert_eq(ends, 1, "seed %u: ended %u times, state %d", seed, ends, (int)h.state);
    }
}
