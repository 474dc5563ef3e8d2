#include "io/pump.h"

#include "base/text/strbuf.h"
#include "io/clock.h"
#include "rig/unit.h"

/* An owner whose machine records its events; each is a letter. */
struct owner {
    struct pump pump;
    struct loop *loop;
    struct strbuf *seen;
    uint64_t deadline_ns;
    bool *freed;
};

struct event {
    char letter;
    const char *text; /* NULL, or the letter again */
    const int *number;
};

static void event(struct owner *o, char letter) {
    char text[] = {letter, '\0'};
    int number = letter;
    pump_event(&o->pump, &(struct event){letter, letter == 'a' ? text : NULL, &number});
}

/* A capital causes its small letter; "F" also frees the owner. */
static uint64_t step(void *arg, void *ev) {
    struct owner *o = arg;
    const struct event *e = ev;
    char letter = e->letter;
    cr_expect_eq(*e->number, letter);
    cr_expect(e->text == NULL || e->text[0] == letter);
    strbuf_add_char(o->seen, letter);
    if (letter >= 'A' && letter <= 'Z')
        event(o, (char)(letter - 'A' + 'a'));
    if (letter == 'F')
        pump_free(&o->pump);
    strbuf_add_char(o->seen, '.');
    return o->deadline_ns;
}

static void destroy(void *arg) {
    struct owner *o = arg;
    *o->freed = true;
    pump_fini(&o->pump);
    free(o);
}

static void on_timer(void *arg) {
    struct owner *o = arg;
    o->deadline_ns = TIME_NEVER;
    event(o, 't');
    loop_quit(o->loop);
}

static const struct pump_ops ops = {
    .step = step,
    .destroy = destroy,
    .event_size = sizeof(struct event),
    .pointers = {{offsetof(struct event, text), PUMP_TEXT}, {offsetof(struct event, number), sizeof(int)}},
};

struct fixture {
    struct loop *loop;
    struct strbuf seen;
    struct owner *owner;
    bool freed;
};

static void fixture_init(struct fixture *f) {
    *f = (struct fixture){0};
    cr_assert_eq(loop_new(&f->loop), 0);
    f->owner = calloc(1, sizeof *f->owner);
    pump_init(&f->owner->pump, f->loop, &ops, f->owner, on_timer);
    f->owner->loop = f->loop;
    f->owner->seen = &f->seen;
    f->owner->freed = &f->freed;
    f->owner->deadline_ns = TIME_NEVER;
}

static void fixture_fini(struct fixture *f) {
    if (!f->freed)
        pump_free(&f->owner->pump);
    cr_expect(f->freed);
    strbuf_fini(&f->seen);
    loop_free(f->loop);
}

#define FIXTURE(f)                            \
    _cleanup_(fixture_fini) struct fixture f; \
    fixture_init(&f)

Test(pump, what_a_step_causes_waits_until_it_is_over) {
    FIXTURE(f);
    event(f.owner, 'A');
    event(f.owner, 'x');
    cr_expect_str_eq(strbuf_text(&f.seen), "A.a.x.");
}

Test(pump, freed_by_a_step_it_ends_after_that_step) {
    FIXTURE(f);
    event(f.owner, 'F');
    cr_expect(f.freed);
    cr_expect_str_eq(strbuf_text(&f.seen), "F.", "what was queued is dropped");
}

Test(pump, what_a_held_callback_causes_waits_for_the_next_event) {
    FIXTURE(f);
    bool held = pump_hold(&f.owner->pump);
    event(f.owner, 'a');
    pump_release(&f.owner->pump, held);
    cr_expect_eq(f.seen.len, 0U);
    event(f.owner, 'b');
    cr_expect_str_eq(strbuf_text(&f.seen), "b.a.");
}

Test(pump, freed_by_a_held_callback_it_ends_with_the_next_event) {
    FIXTURE(f);
    bool held = pump_hold(&f.owner->pump);
    pump_free(&f.owner->pump);
    pump_release(&f.owner->pump, held);
    cr_expect_not(f.freed);
    event(f.owner, 'a');
    cr_expect(f.freed);
    cr_expect_eq(f.seen.len, 0U);
}

Test(pump, the_timer_is_what_the_last_step_wants) {
    FIXTURE(f);
    f.owner->deadline_ns = clock_now_ns();
    event(f.owner, 'a');
    cr_assert_eq(loop_run(f.loop), 0);
    cr_expect_str_eq(strbuf_text(&f.seen), "a.t.");
}
