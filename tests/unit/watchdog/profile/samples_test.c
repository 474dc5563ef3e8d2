/* Samples: built, sent, read and merged. */
#include "watchdog/profile/samples.h"

#include "rig/unit.h"

#define PERIOD (50 * NS_PER_MS)
#define MAX ((size_t)1 << 20)

static int32_t stack_of(struct profile *p, const char *function, uint32_t line) {
    int64_t inner = profile_add_frame(p, function, "/home/u/train.py", line, PROFILE_CALLS_WAIT);
    int64_t outer = profile_add_frame(p, "main", "/home/u/train.py", 90, 0);
    cr_assert(inner >= 0 && outer >= 0);
    return profile_add_stack(p, (uint32_t[]){(uint32_t)inner, (uint32_t)outer}, 2);
}

static void add(struct profile *p, uint32_t rank, uint64_t tick, int32_t stack) {
    struct profile_sample s = {.stack = stack, .sleeps = true, .syscall = PROFILE_OTHER, .helped = true};
    cr_assert_eq(profile_add_sample(p, profile_add_rank(p, rank), tick, &s), 0);
}

static struct profile node(uint64_t first, uint32_t rank, uint32_t n) {
    struct profile p = {.period_ns = PERIOD, .first_tick = first};
    for (uint32_t k = 0; k < n; k++)
        add(&p, rank, first + k, stack_of(&p, "load", 10 + k / 4));
    return p;
}

static int send_all(const struct profile *p, size_t max, struct profile *job) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct err err = {0};
    profile_write(p, max, &text);
    cr_assert_leq(text.len, max);
    int r = profile_read(strbuf_text(&text), text.len, job, &err);
    cr_assert_eq(r, err.code);
    return r;
}

Test(samples, names_are_short_and_have_no_control_characters) {
    _cleanup_(profile_fini) struct profile p = {.period_ns = PERIOD};
    char file[600];
    memset(file, 'x', sizeof file);
    memcpy(file + sizeof file - 5, "/a.py", 5);
    file[sizeof file - 1] = '\0';
    cr_assert_eq(profile_add_frame(&p, "a\033[31m\nb", file, 1, 0), 0);
    cr_assert_null(strpbrk(p.frames[0].function, "\033\n"));
    cr_assert_eq(strlen(p.frames[0].file), PROFILE_TEXT_MAX - 1);
    cr_assert_str_eq(p.frames[0].file + PROFILE_TEXT_MAX - 5, "/a.p");
}

Test(samples, ranks_are_in_order_and_ticks_between_are_absent) {
    _cleanup_(profile_fini) struct profile p = {.period_ns = PERIOD, .first_tick = 100};
    int32_t s = stack_of(&p, "load", 1);
    for (uint32_t rank = 40; rank-- > 0;)
        add(&p, rank, 100 + rank, s);
    cr_assert(p.n_ranks == 40 && p.n_ticks == 40);
    for (uint32_t i = 0; i < 40; i++) {
        cr_assert_eq(p.ranks[i].rank, i);
        for (uint32_t k = 0; k < 42; k++)
            cr_assert_eq(profile_at(&p, &p.ranks[i], k).stack, k == i ? s : PROFILE_ABSENT);
    }
    struct profile_sample one = {.stack = s};
    cr_assert_eq(profile_add_sample(&p, &p.ranks[0], 99, &one), -E2BIG);
    cr_assert_eq(profile_add_sample(&p, &p.ranks[0], 100 + PROFILE_TICKS_MAX, &one), -E2BIG);
}

Test(samples, what_is_sent_is_what_is_read) {
    _cleanup_(profile_fini) struct profile p = node(1000, 7, 30), got = {0};
    struct profile_rank *r = &p.ranks[0];
    r->step = 12;
    r->delay = 0.375;
    r->n_children = 2;
    (void)snprintf(r->gap, sizeof r->gap, "Python 3.8 is not known");
    profile_add_child(r, 1, 3);
    profile_add_child(r, PROFILE_NOT_READ, 4);
    profile_add_child(r, 1, 1);
    for (unsigned bits = 0; bits < 32; bits++)
        cr_assert_eq(profile_add_sample(&p, r, 1030 + bits,
                                        &(struct profile_sample){.stack = PROFILE_NOT_READ,
                                                                 .sleeps = bits & 1,
                                                                 .gc = bits & 2,
                                                                 .helped = bits & 4,
                                                                 .syscall = (enum profile_syscall)(bits >> 3)}),
                     0);
    cr_assert_eq(send_all(&p, MAX, &got), 0);
    cr_assert(got.n_ticks == 62 && got.first_tick == 1000 && got.period_ns == PERIOD && got.n_ranks == 1);
    const struct profile_rank *g = &got.ranks[0];
    cr_assert(g->step == 12 && g->delay == 0.375 && g->n_children == 2);
    cr_assert_str_eq(g->gap, r->gap);
    cr_assert(g->n_rows == 2 && g->children[0].samples == 4 && g->children[1].stack == PROFILE_NOT_READ);
    for (uint32_t k = 0; k < 62; k++) {
        struct profile_sample a = profile_at(&p, r, k), b = profile_at(&got, g, k);
        cr_assert(a.sleeps == b.sleeps && a.gc == b.gc && a.helped == b.helped && a.syscall == b.syscall, "%u", k);
        if (a.stack < 0) {
            cr_assert_eq(a.stack, b.stack);
            continue;
        }
        const struct profile_frame *f = &got.frames[got.stacks[b.stack].frame];
        cr_assert_eq(f->line, 10 + k / 4);
        cr_assert(f->calls == PROFILE_CALLS_WAIT && strcmp(f->function, "load") == 0);
    }
}

Test(samples, what_is_too_long_loses_its_last_ticks) {
    _cleanup_(profile_fini) struct profile p = node(5, 0, 4000), got = {0};
    cr_assert_eq(send_all(&p, 20000, &got), 0);
    cr_assert(got.n_ticks > 100 && got.n_ticks < 4000, "%u", got.n_ticks);
    cr_assert_lt(got.n_stacks, p.n_stacks);
}

/* 8 ranks, 20 times a second, ten minutes. */
Test(samples, the_longest_profile_of_a_node_fits) {
    _cleanup_(profile_fini) struct profile p = {.period_ns = PERIOD}, got = {0};
    for (uint32_t rank = 0; rank < 8; rank++)
        for (uint32_t k = 0; k < 12000; k++)
            add(&p, rank, k, stack_of(&p, "f", (k * 7919 + rank) % 150));
    cr_assert_eq(send_all(&p, MAX, &got), 0);
    cr_assert_eq(got.n_ticks, 12000);
}

Test(samples, nodes_merge_into_one_job) {
    _cleanup_(profile_fini) struct profile a = node(1000, 3, 20), b = node(995, 1, 20), c = node(1010, 9, 20),
                                           job = {0};
    cr_assert(a.n_stacks == 6 && a.n_frames == 6);
    cr_assert_eq(send_all(&a, MAX, &job), 0);
    cr_assert_eq(send_all(&b, MAX, &job), 0);
    cr_assert_eq(send_all(&c, MAX, &job), 0);
    cr_assert(job.first_tick == 995 && job.n_ticks == 35 && job.n_ranks == 3);
    cr_assert(job.n_stacks == 6 && job.n_frames == 6, "%u %u", job.n_stacks, job.n_frames);
    static const uint32_t ranks[] = {1, 3, 9}, from[] = {0, 5, 15};
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_eq(job.ranks[i].rank, ranks[i]);
        for (uint32_t k = 0; k < 35; k++) {
            int32_t s = profile_at(&job, &job.ranks[i], k).stack;
            cr_assert_eq(s >= 0, k >= from[i] && k < from[i] + 20);
            if (s >= 0)
                cr_assert_eq(job.frames[job.stacks[s].frame].line, 10 + (k - from[i]) / 4);
        }
    }
}

Test(samples, nodes_that_do_not_fit_are_refused) {
    _cleanup_(profile_fini) struct profile a = node(1000, 3, 20), same = node(1000, 3, 20), job = {0};
    _cleanup_(profile_fini) struct profile far = node(1000 + PROFILE_TICKS_MAX, 4, 20), other = node(1000, 5, 20);
    other.period_ns++;
    cr_assert_eq(send_all(&a, MAX, &job), 0);
    cr_assert_eq(send_all(&same, MAX, &job), -EINVAL);
    cr_assert_eq(send_all(&other, MAX, &job), -EINVAL);
    cr_assert_eq(send_all(&far, MAX, &job), -E2BIG);
    cr_assert(job.n_ranks == 1 && job.n_ticks == 20);
}

Test(samples, nodes_need_not_begin_at_the_same_tick_of_the_longest_profile) {
    _cleanup_(profile_fini) struct profile a = node(1000, 3, 1), b = node(1100, 4, 1), job = {0};
    add(&a, 3, 1000 + 59999, 0);
    add(&b, 4, 1100 + 59999, 0);
    cr_assert_eq(send_all(&a, MAX, &job), 0);
    cr_assert_eq(send_all(&b, MAX, &job), 0);
    cr_assert_eq(job.n_ticks, 60100);
}

#define HEAD "{\"period_ns\":\"50\",\"first_tick\":\"1\",\"n_ticks\":9,"
#define TABLES "\"frames\":[\"f\",\"a\",1,0],\"stacks\":[0,0],"
#define RANK(n, samples)                                                                             \
    "{\"rank\":" n ",\"step\":\"0\",\"delay\":0,\"n_children\":0,\"gap\":\"\",\"samples\":[" samples \
    "],\"children\":[]}"

Test(samples, what_makes_no_sense_is_refused) {
    static const struct {
        const char *text;
        bool ok;
    } cases[] = {
        {HEAD TABLES "\"ranks\":[" RANK("0", "65,9") "]}", true},
        {HEAD TABLES "\"ranks\":[" RANK("0", "") "]}", true},
        {HEAD TABLES "\"ranks\":[" RANK("0", "65,10") "]}", false},
        {HEAD TABLES "\"ranks\":[" RANK("0", "96,1") "]}", false},
        {HEAD TABLES "\"ranks\":[" RANK("0", "-1,1") "]}", false},
        {HEAD TABLES "\"ranks\":[" RANK("0", "65") "]}", false},
        {HEAD TABLES "\"ranks\":[" RANK("0", "65,9,65,1") "]}", false},
        {HEAD TABLES "\"ranks\":[" RANK("0", "\"65\",1") "]}", false},
        {HEAD TABLES "\"ranks\":[" RANK("0", "65,1") "," RANK("0", "65,1") "]}", false},
        {HEAD "\"frames\":[\"f\",\"a\",1],\"stacks\":[],\"ranks\":[]}", false},
        {HEAD "\"frames\":[],\"stacks\":[0,0],\"ranks\":[]}", false},
        {HEAD "\"frames\":[\"f\",\"a\",1,0],\"stacks\":[1,0],\"ranks\":[]}", false},
        {HEAD "\"frames\":[\"f\",\"a\",1,0],\"stacks\":[0],\"ranks\":[]}", false},
        {HEAD "\"frames\":[],\"stacks\":[],\"ranks\":[]}", true},
        {"{\"period_ns\":\"0\",\"first_tick\":\"1\",\"n_ticks\":9,\"frames\":[],\"stacks\":[],\"ranks\":[]}", false},
        {"{\"period_ns\":\"50\",\"first_tick\":\"18446744073709551615\",\"n_ticks\":9,\"frames\":[],\"stacks\":[],"
         "\"ranks\":[]}",
         false},
        {"[]", false},
        {"", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct profile p = {0};
        struct err err = {0};
        cr_assert_eq(profile_read(cases[i].text, strlen(cases[i].text), &p, &err) == 0, cases[i].ok, "%s: %s",
                     cases[i].text, err.text);
        profile_fini(&p);
    }
}

/* 60,000 equal samples are eight bytes of JSON. */
Test(samples, a_short_text_takes_no_more_memory_than_a_node_needs) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct profile p = {0};
    struct err err = {0};
    strbuf_add(&text, "{\"period_ns\":\"50\",\"first_tick\":\"1\",\"n_ticks\":60000," TABLES "\"ranks\":[");
    for (uint32_t i = 0; i < 18; i++)
        strbuf_printf(&text, "%s" RANK("%u", "65,60000"), i > 0 ? "," : "", i);
    strbuf_add(&text, "]}");
    cr_assert_eq(profile_read(strbuf_text(&text), text.len, &p, &err), -E2BIG);
    cr_assert(p.n_ranks == 0 && p.ranks == NULL);
}

/* 128 ranks of one node, 20 times a second, ten minutes, which hardly change. */
Test(samples, what_is_written_can_be_read) {
    _cleanup_(profile_fini) struct profile p = {.period_ns = PERIOD}, got = {0};
    int32_t s = stack_of(&p, "f", 1);
    for (uint32_t rank = 0; rank < 128; rank++)
        for (uint32_t k = 0; k < 12000; k++)
            add(&p, rank, k, s);
    cr_assert_eq(send_all(&p, MAX, &got), 0);
    cr_assert(got.n_ranks == 128 && got.n_ticks == (PROFILE_SAMPLES_MAX / 64) / 128, "%u", got.n_ticks);
}

Test(samples, of_too_many_stacks_of_children_the_frequent_ones_stay) {
    struct profile p = {.period_ns = 1};
    struct profile_rank *r = profile_add_rank(&p, 0);
    uint32_t total = 0, often = 0;
    for (int32_t i = 0; i < 1000; i++) {
        profile_add_child(r, 7, 2);
        profile_add_child(r, 100 + i, 1);
    }
    cr_assert_eq(r->n_rows, PROFILE_CHILDREN_MAX);
    for (uint32_t i = 0; i < r->n_rows; i++) {
        total += r->children[i].samples;
        often += r->children[i].stack == 7 ? r->children[i].samples : 0;
    }
    cr_expect_eq(total, 3000);
    cr_expect_eq(often, 2000);
    profile_fini(&p);
}

/* A peer that is not trusted could make stacks without end. */
Test(samples, a_stack_is_not_deeper_than_the_limit) {
    for (uint32_t depth = PROFILE_FRAMES_MAX; depth <= PROFILE_FRAMES_MAX + 1; depth++) {
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        struct profile p = {0};
        struct err err = {0};
        strbuf_add(&text, HEAD "\"frames\":[\"f\",\"a\",1,0],\"stacks\":[0,0");
        for (uint32_t i = 1; i < depth; i++)
            strbuf_printf(&text, ",%u,0", i);
        strbuf_add(&text, "],\"ranks\":[" RANK("0", "65,1") "]}");
        cr_expect_eq(profile_read(strbuf_text(&text), text.len, &p, &err), depth > PROFILE_FRAMES_MAX ? -E2BIG : 0);
        cr_expect_eq(p.n_ranks, depth <= PROFILE_FRAMES_MAX);
        profile_fini(&p);
    }
}
