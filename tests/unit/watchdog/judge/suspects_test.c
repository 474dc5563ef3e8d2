#include "watchdog/judge/suspects.h"

#include "base/json/json.h"
#include "rig/unit.h"
#include "suspects_rig.h"

/* Four ranks on two nodes. */
static struct suspects_rig four, *const r = &four;

static void begin(void) { suspects_rig_init(r, 4); }
static void end(void) { suspects_rig_fini(r); }
static void begin_with(uint32_t n_ranks) {
    suspects_rig_fini(r);
    suspects_rig_init(r, n_ranks);
}
TestSuite(suspects, .init = begin, .fini = end);

#define expect_line(text) cr_expect_str_eq(strbuf_text(&r->line), (text), "%s", strbuf_text(&r->line))
/* Of each rank's evidence. */
#define SET_ALL(field, value)                    \
    for (uint32_t rank = 0; rank < r->n; rank++) \
    rig_worker(r, rank)->field = (value)

/* Data, while the others wait in all_reduce. */
static void reads(uint32_t rank) {
    rig_does(r, rank, 'S', "read", "anon_pipe_read", "pipe", "load /home/u/data.py 20 main /home/u/train.py 70");
}

static void find_one(uint32_t rank, enum suspect_reason reason) {
    rig_find(r);
    cr_assert_eq(r->found.n_all, 1, "%u suspects: %s", r->found.n_all, strbuf_text(&r->line));
    cr_assert_eq(r->found.n_suspects, 1);
    const struct suspect *found = r->found.suspects;
    cr_expect(found->rank == rank && found->node == rank / 2);
    cr_expect_eq(found->reason, reason, "%s", suspect_reason_names[found->reason]);
}

/* And the line is this. */
static void find_line(uint32_t rank, enum suspect_reason reason, const char *line) {
    find_one(rank, reason);
    expect_line(line);
}

/* Whoever is named, the line is this. */
static void find_any(const char *line) {
    rig_find(r);
    expect_line(line);
}

/* Nobody is named. */
static void find_none(const char *line) {
    rig_find(r);
    cr_expect_eq(r->found.n_all, 0, "%s", strbuf_text(&r->line));
    if (line != NULL)
        expect_line(line);
}

static void find_together(uint32_t n) {
    rig_find(r);
    cr_expect_eq(r->found.n_together, n);
}

/* --- what a hang looks like from outside: the others wait in all_reduce */

#define OTHERS "ranks 0-1,3 wait in all_reduce from backward (train.py:76); rank 2 (node b, pid 12): "
#define THREADING "wait /usr/lib/python3.11/threading.py 320 "
#define DIST "/venv/lib/python3.11/site-packages/torch/dist.py "

Test(suspects, what_the_odd_rank_does) {
    static const struct {
        char state;
        const char *syscall, *wchan, *target, *stack;
        enum suspect_reason reason;
        const char *text;
    } cases[] = {
        {'S', "read", "anon_pipe_read", "pipe", "load /home/u/data.py 20 main /home/u/train.py 70", SUSPECT_ELSEWHERE,
         "read() in load (data.py:20), pipe, still for 31 s"},
        {'T', "futex", "do_signal_stop", "", "", SUSPECT_STOPPED,
         "stopped (T) in all_reduce from backward (train.py:76), still for 31 s"},
        {'S', "clock_nanosleep", "hrtimer_nanosleep", "", "", SUSPECT_ELSEWHERE, /* the same stack */
         "clock_nanosleep"
         "() in all_reduce from backward (train.py:76), still for 31 s"},
        {'S', "clock_nanosleep", "hrtimer_nanosleep", "", "nap /home/u/data.py 9", SUSPECT_ELSEWHERE,
         "clock_nanosleep"
         "() in nap (data.py:9), still for 31 s"},
        {'D', "openat", "request_wait_answer", "/mnt/dead/x", "load /home/u/data.py 20", SUSPECT_ELSEWHERE,
         "openat() in load (data.py:20), uninterruptible (D), /mnt/dead/x, still for 31 s"},
        {'S', "", "request_wait_answer", "", NULL, SUSPECT_ELSEWHERE, "request_wait_answer, still for 31 s"},
        {'S', "futex", "futex_do_wait", "",
         THREADING "all_gather " DIST "99 backward /home/u/train.py 76 main /home/u/train.py 120", SUSPECT_ELSEWHERE,
         "futex() in backward (train.py:76), still for 31 s"},
        {'S', "futex", "futex_do_wait", "",
         THREADING "all_reduce " DIST "2501 evaluate /home/u/train.py 90 main /home/u/train.py 120", SUSPECT_ELSEWHERE,
         "futex() in evaluate (train.py:90), still for 31 s"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(freep) char *expected = xasprintf(OTHERS "%s", cases[i].text);
        begin_with(4);
        rig_does(r, 2, cases[i].state, cases[i].syscall, cases[i].wchan, cases[i].target,
                 cases[i].stack != NULL ? cases[i].stack : "");
        if (cases[i].stack == NULL)
            rig_main(r, 2)->stack = -1;
        find_one(2, cases[i].reason);
        cr_expect(r->found.majority);
        expect_line(expected);
    }
}

Test(suspects, an_endless_loop) {
    rig_does(r, 2, 'R', "", "0", "", "crunch /home/u/data.py 33 main /home/u/train.py 70");
    rig_worker(r, 2)->still_ns = 0;
    find_line(2, SUSPECT_ELSEWHERE, OTHERS "runs in crunch (data.py:33)");
}

Test(suspects, of_others_at_its_place_it_is_not_said_that_they_are_traced) {
    reads(2);
    rig_does(r, 0, 't', "futex", "ptrace_stop", "", "");
    find_line(2, SUSPECT_ELSEWHERE, OTHERS "read() in load (data.py:20), pipe, still for 31 s");
    rig_does(r, 1, 't', "futex", "ptrace_stop", "", "");
    rig_does(r, 3, 't', "futex", "ptrace_stop", "", "");
    find_any("ranks 0-1,3 are traced in all_reduce from backward (train.py:76); "
             "rank 2 (node b, pid 12): read() in load (data.py:20), pipe, still for 31 s");
}

/* The kernel's R says no more than that a thread would run if it could. */
Test(suspects, ranks_that_get_no_cpu_are_not_said_to_run) {
    rig_does(r, 2, 'R', "", "0", "", "crunch /home/u/data.py 33 main /home/u/train.py 70");
    find_any(OTHERS "waits for a "
                    "CPU in crunch "
                    "(data.py:33), still for 31 s");
    for (uint32_t rank = 0; rank < 4; rank++)
        rig_does(r, rank, 'R', "", "0", "", "crunch /home/u/data.py 33");
    find_any("all ranks wait for a CPU in crunch (data.py:33)");
    SET_ALL(still_ns, NS_PER_S);
    find_any("all ranks run in crunch (data.py:33)");
    SET_ALL(spins, true);
    find_any("all ranks seem to wait for their GPUs in crunch (data.py:33)");
}

Test(suspects, the_stuck_child_of_a_data_loader_is_named) {
    for (uint32_t rank = 0; rank < 4; rank++) {
        rig_child(r, rank, "futex", "futex_do_wait", "");
        rig_child(r, rank, "read", "anon_pipe_read", "pipe"); /* a tracker of resources: every rank has one */
        if (rank != 2)
            rig_child(r, rank, "futex", "futex_do_wait", "");
    }
    rig_child(r, 2, "openat", "request_wait_answer", "/mnt/dead/x");
    rig_does(r, 2, 'S', "poll", "do_poll", "", "get /usr/lib/python3.11/queue.py 5 next_batch /home/u/train.py 60");
    find_line(2, SUSPECT_CHILD,
              OTHERS "poll() in next_batch "
                     "(train.py:60), still for 31 s; its child pt_data_worker 5023 waits elsewhere than its siblings: "
                     "openat(), /mnt/dead/x");
}

Test(suspects, the_command_for_which_a_rank_waits_is_said) {
    rig_does(r, 2, 'S', "wait4", "do_wait", "", "upload /home/u/train.py 60");
    rig_child(r, 2, "futex", "futex_do_wait", ""); /* of its data loader */
    rig_child(r, 2, "recvfrom", "wait_woken", "tcp 10.0.0.1:5 -> 10.0.0.2:443 established");
    (void)strcpy(rig_worker(r, 2)->children[1].name, "gsutil");
    find_any(OTHERS "wait4() in "
                    "upload (train.py:60), "
                    "still for 31 s; it waits for its child gsutil 5022: recvfrom(), "
                    "tcp 10.0.0.1:5 -> 10.0.0.2:443 established");
    (void)strcpy(rig_worker(r, 2)->children[0].name, "other"); /* one of two */
    rig_find(r);
    cr_expect_null(strstr(strbuf_text(&r->line), "it waits for"), "%s", strbuf_text(&r->line));
}

Test(suspects, a_stuck_child_alone_is_enough_if_all_main_threads_poll) {
    for (uint32_t rank = 0; rank < 4; rank++) {
        rig_does(r, rank, 'S', "poll", "do_poll", "", "next_batch /home/u/train.py 60");
        rig_child(r, rank, "futex", "futex_do_wait", "");
        rig_child(r, rank, rank == 1 ? "read" : "futex", rank == 1 ? "nfs_wait" : "futex_do_wait", "");
    }
    find_one(1, SUSPECT_CHILD);
}

Test(suspects, children_that_wait_alike_are_no_suspects) {
    for (uint32_t rank = 0; rank < 4; rank++) {
        rig_child(r, rank, "futex", "futex_do_wait", "");
        rig_child(r, rank, "read", "anon_pipe_read", "pipe");
    }
    find_none(NULL);
}

Test(suspects, a_rank_that_ended_with_0_while_others_wait) {
    rig_worker(r, 3)->ended = true;
    find_line(3, SUSPECT_ENDED,
              "ranks 0-2 wait in all_reduce from backward (train.py:76); "
              "rank 3 (node b, pid 13): has ended with 0 while others wait");
    rig_worker(r, 3)->ended = false; /* the verdict's own word counts, too */
    r->in.signs = &(struct hang_suspect){.rank = 1, .node = 0, .sign = HANG_SIGN_ENDED};
    r->in.n_signs = 1;
    find_one(1, SUSPECT_ENDED);
}

Test(suspects, if_most_have_ended_those_who_have_not_are_not_waiting_for_them) {
    for (uint32_t rank = 0; rank < 3; rank++)
        rig_worker(r, rank)->ended = true;
    find_none("rank 3 waits in all_reduce from backward (train.py:76)");
}

Test(suspects, a_rank_without_a_connection_to_the_store) {
    SET_ALL(at_store, rank != 1);
    rig_worker(r, 1)->not_at_store = true;
    rig_does(r, 1, 'S', "read", "nfs_wait", "", "imports /home/u/train.py 3");
    find_line(1, SUSPECT_ABSENT,
              "ranks 0,2-3 wait in all_reduce from backward (train.py:76); rank 1 (node a, pid 11): has no "
              "connection to the store, "
              "others have: read() in imports (train.py:3), still for 31 s");
    SET_ALL(at_store, false); /* a program that does not use it */
    find_one(1, SUSPECT_ELSEWHERE);
}

/* --- what is stronger than the largest group */

Test(suspects, fewer_collectives_beat_the_majority) {
    SET_ALL(collectives, rank == 3 ? 42 : 41);
    rig_does(r, 3, 'S', "poll", "do_poll", "", "x /home/u/train.py 1");
    rig_find(r);
    cr_expect_eq(r->found.n_all, 3);
    cr_expect_eq(r->found.suspects[0].reason, SUSPECT_COLLECTIVES);
    expect_has(strbuf_text(&r->line), "rank 0 (node a, pid 10): at collective 41, others at 42: futex() in "
                                      "all_reduce from backward (train.py:76), still for 31 s");
    rig_worker(r, 0)->collectives = 0; /* not known: not compared */
    rig_worker(r, 1)->collectives = 42;
    find_one(2, SUSPECT_COLLECTIVES);
}

Test(suspects, the_recorder_is_asked_before_ras_and_both_before_steps) {
    cr_assert_eq(evidence_add_counts(&r->nodes[0], (const uint64_t[]){7, 6, 7, 7}, 4), 0);
    SET_ALL(step, rank == 0 ? 5 : 6);
    find_one(1, SUSPECT_COLLECTIVES);
    SET_ALL(collectives, rank == 3 ? 1 : 2);
    find_one(3, SUSPECT_COLLECTIVES);
    SET_ALL(collectives, 9);
    r->nodes[0].n_counts = 0;
    find_one(0, SUSPECT_STEPS);
    expect_has(strbuf_text(&r->line), "at step 5, others at 6");
}

Test(suspects, a_rank_that_has_ended_is_named_before_one_that_is_stopped) {
    rig_does(r, 0, 'T', "", "", "", "");
    rig_worker(r, 3)->ended = true;
    find_one(3, SUSPECT_ENDED);
}

Test(suspects, half_of_the_ranks_can_be_stopped_and_are_named) {
    rig_does(r, 1, 'T', "", "", "", "");
    rig_does(r, 2, 'T', "", "", "", "");
    rig_find(r);
    cr_assert_eq(r->found.n_all, 2);
    cr_expect(r->found.suspects[0].rank == 1 && r->found.suspects[0].reason == SUSPECT_STOPPED);
    cr_expect(r->found.suspects[1].rank == 2 && r->found.suspects[1].reason == SUSPECT_STOPPED);
}

Test(suspects, a_stopped_rank_is_named_before_those_that_are_behind) {
    SET_ALL(collectives, rank == 1 ? 41 : 42);
    rig_does(r, 0, 'T', "", "", "", "");
    find_one(0, SUSPECT_STOPPED);
}

Test(suspects, who_is_busy_is_named_if_nothing_else_tells) {
    r->in.signs = &(struct hang_suspect){.rank = 2, .node = 1, .sign = HANG_SIGN_BUSY};
    r->in.n_signs = 1;
    find_one(2, SUSPECT_BUSY);
    rig_does(r, 1, 'S', "poll", "", "", "x /home/u/train.py 1");
    find_one(1, SUSPECT_ELSEWHERE);
}

/* --- groups */

Test(suspects, two_against_two_is_no_majority_and_both_are_shown) {
    rig_does(r, 1, 'S', "futex", "futex_do_wait", "", "evaluate /home/u/train.py 90");
    rig_does(r, 3, 'S', "futex", "futex_do_wait", "", "evaluate /home/u/train.py 90");
    find_none(NULL);
    cr_expect_not(r->found.majority);
    cr_expect_eq(r->found.n_groups, 2);
    expect_line("ranks 0,2 wait in all_reduce from backward (train.py:76); ranks 1,3 wait in evaluate (train.py:90)");
}

Test(suspects, of_two_ranks_nobody_is_named_and_all_that_is_known_is_said) {
    begin_with(2);
    rig_does(r, 1, 'S', "read", "anon_pipe_read", "pipe", "load /home/u/data.py 20 main /home/u/train.py 70");
    find_none("rank 0 (node a, pid 10): futex() in all_reduce from backward (train.py:76), still for 31 s; "
              "rank 1 (node a, pid 11): read() in load (data.py:20), pipe, still for 31 s");
}

Test(suspects, of_an_only_rank_all_that_is_known_is_said) {
    begin_with(1);
    find_any("the only rank (node a, pid 10): futex() in all_reduce from backward (train.py:76), still for 31 s");
}

Test(suspects, all_in_one_place_is_said_and_nobody_named) {
    find_none("all ranks wait in all_reduce from backward (train.py:76)");
}

Test(suspects, waiters_of_which_some_spin_or_wake_are_one_group_if_there_is_none_otherwise) {
    rig_does(r, 0, 'R', "", "0", "", "");
    rig_does(r, 1, 'S', "sched_yield", "", "", "");
    rig_does(r, 2, 'S', "read", "pipe_read", "pipe", "load /home/u/data.py 20");
    find_one(2, SUSPECT_ELSEWHERE);
    cr_expect_eq(r->found.groups[0].n, 3);
}

#define FRAMES_76(line) "wait /usr/lib/python3.11/x.py " #line " backward /home/u/train.py 76 main /home/u/train.py 120"

Test(suspects, the_same_stack_is_tried_before_the_same_line) {
    for (uint32_t rank = 0; rank < 4; rank++)
        rig_does(r, rank, rank == 0 ? 'R' : 'S', rank == 1 ? "sched_yield" : "futex", "", "",
                 rank == 2 ? FRAMES_76(9) : FRAMES_76(5));
    find_one(2, SUSPECT_ELSEWHERE);
}

Test(suspects, at_the_same_line_the_one_that_is_blocked_is_apart) {
    for (uint32_t rank = 0; rank < 4; rank++) {
        static const char *const frames[] = {FRAMES_76(1), FRAMES_76(2), FRAMES_76(3), FRAMES_76(4)};
        rig_does(r, rank, rank == 1 ? 'D' : 'S', "ioctl", "", "", frames[rank]);
    }
    find_one(1, SUSPECT_ELSEWHERE);
}

Test(suspects, who_runs_is_apart_from_those_who_sleep_without_a_word) {
    for (uint32_t rank = 0; rank < 4; rank++) {
        rig_does(r, rank, rank == 3 ? 'R' : 'S', "", "", "", "");
        rig_main(r, rank)->stack = -1;
    }
    find_one(3, SUSPECT_ELSEWHERE);
}

Test(suspects, children_are_compared_with_their_siblings_first) {
    rig_does(r, 2, 'S', "poll", "do_poll", "", "next_batch /home/u/train.py 60");
    rig_child(r, 2, "futex", "futex_do_wait", "");
    rig_child(r, 2, "futex", "futex_do_wait", "");
    rig_child(r, 2, "read", "nfs_wait", "/mnt/x"); /* no other rank has children */
    find_one(2, SUSPECT_CHILD);
    rig_child(r, 2, "read", "nfs_wait", "/mnt/x"); /* two of them are none that stands out */
    rig_child(r, 0, "futex", "futex_do_wait", "");
    find_one(2, SUSPECT_ELSEWHERE);
}

Test(suspects, of_two_busy_ones_of_four_neither_is_named) {
    const struct hang_suspect signs[] = {{.rank = 1, .node = 0, .sign = HANG_SIGN_BUSY},
                                         {.rank = 2, .node = 1, .sign = HANG_SIGN_BUSY}};
    r->in.signs = signs;
    r->in.n_signs = 2;
    find_none(NULL);
}

Test(suspects, waiters_at_one_line_of_the_user_are_one_group_if_there_is_none_otherwise) {
    for (uint32_t rank = 0; rank < 3; rank++) {
        rig_does(r, rank, 'S', "futex", "futex_do_wait", "",
                 rig_text("poll /venv/lib/python3.11/site-packages/torch/x.py %u backward /u/train.py 76", rank + 1));
    }
    rig_does(r, 3, 'S', "futex", "futex_do_wait", "", "load /home/u/data.py 20");
    find_one(3, SUSPECT_ELSEWHERE);
}

Test(suspects, a_rank_at_the_same_line_that_the_kernel_holds_is_apart) {
    rig_does(r, 2, 'D', "ioctl", "nvidia_wait", "/dev/nvidia0", "");
    find_one(2, SUSPECT_ELSEWHERE);
}

Test(suspects, without_python_stacks_the_kernels_words_group_them) {
    for (uint32_t rank = 0; rank < 4; rank++) {
        rig_main(r, rank)->stack = -1;
        /* kernels call it differently */
        rig_does(r, rank, 'S', "futex", rank < 2 ? "futex_do_wait" : "futex_wait_queue", "", "");
    }
    rig_does(r, 3, 'S', "poll", "do_poll", "", "");
    find_line(3, SUSPECT_ELSEWHERE, "ranks 0-2 wait in futex(); rank 3 (node b, pid 13): poll(), still for 31 s");
}

/* --- what is missing, and limits */

Test(suspects, a_node_without_evidence_is_said_and_not_suspected) {
    begin_with(8);
    r->list[2].evidence = NULL;
    find_none(NULL);
    cr_expect_eq(r->found.n_missing, 2);
    expect_line("ranks 0-3,6-7 wait in all_reduce from backward (train.py:76); "
                "no evidence from ranks 4-5 (node c: it did not answer in time)");
    r->list[3].evidence = NULL;
    r->list[2].missing = "it is gone";
    find_any("ranks 0-3 wait in all_reduce from backward (train.py:76); "
             "no evidence from ranks 4-7 (node c and others: it is gone)");
    for (int i = 0; i < 4; i++)
        r->list[i].evidence = NULL;
    rig_find(r);
    cr_expect_eq(r->found.n_missing, 8);
    cr_expect_eq(r->found.n_groups, 0);
    r->list[0].evidence = &r->nodes[0];
}

Test(suspects, a_rank_of_another_node_or_of_none_is_ignored) {
    r->nodes[0].workers[1].rank = 3;
    r->nodes[1].workers[0].rank = 4000000000;
    r->nodes[1].workers[0].n_threads = 0;
    rig_find(r);
    cr_expect_eq(r->found.n_missing, 2);
    r->nodes[1].workers[0].rank = 0; /* a later node speaks of the first one's */
    rig_find(r);
    cr_expect_eq(r->found.worker_of[0], &r->nodes[0].workers[0]);
    r->nodes[1].workers[0].n_threads = 1;
    cr_expect_eq(r->found.worker_of[3], &r->nodes[1].workers[1]);
    r->nodes[1].workers[1].threads[0].stack = 77; /* no such stack */
    rig_find(r);
}

Test(suspects, many_suspects_are_folded) {
    begin_with(32);
    for (uint32_t rank = 20; rank < 32; rank++) {
        rig_does(r, rank, 'S', "read", "pipe_read", "pipe", rig_text("load /home/u/data.py %u", rank));
    }
    rig_find(r);
    cr_expect_eq(r->found.n_all, 12);
    cr_expect_eq(r->found.n_groups, 13);
    expect_has(strbuf_text(&r->line), "; and ranks 24-31");
}

Test(suspects, ranges) {
    static const uint32_t ranks[] = {0, 1, 3, 7, 8, 9, 4000000000};
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    suspects_ranges(ranks, 7, 100, &s);
    cr_expect_str_eq(strbuf_text(&s), "0-1,3,7-9,4000000000");
    strbuf_clear(&s);
    suspects_ranges(ranks, 7, 12, &s);
    cr_expect_str_eq(strbuf_text(&s), "0-1,3,...");
    strbuf_clear(&s);
    suspects_ranges(ranks, 0, 12, &s);
    cr_expect_str_eq(strbuf_text(&s), "");
}

Test(suspects, the_users_frame_is_the_innermost_outside_of_libraries) {
    static const struct {
        const char *frames, *function;
    } cases[] = {
        {"a /usr/lib/python3.11/threading.py 1 b /home/u/x.py 2", "b"},
        {"a <frozen 3 b /home/u/x.py 2", "b"},
        {"a /usr/lib/python3/dist-packages/numpy/x.py 1 b /home/u/x.py 2", "b"},
        {"a /home/u/lib/python/mine.py 1 b /home/u/x.py 2", "a"},
        {"a /usr/lib/python3.11/threading.py 1", "a"},
        {"a /opt/site-packages/x.py 1 b /home/u/x.py 2", "b"},
        {"a /opt/dist-packages/x.py 1 b /home/u/x.py 2", "b"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int32_t n = rig_stack(r, 0, cases[i].frames);
        cr_expect_str_eq(suspects_user_frame(&r->nodes[0].stacks[n])->function, cases[i].function, "%s",
                         cases[i].frames);
    }
    cr_expect_null(suspects_user_frame(NULL));
    cr_expect_null(suspects_user_frame(&(struct evidence_stack){0}));
}

Test(suspects, a_place_is_the_same_in_all_runs_of_a_program) {
    int32_t a = rig_stack(r, 0, "f /tmp/1/x.py 1 g /tmp/1/x.py 2"),
            b = rig_stack(r, 0, "f /tmp/2/x.py 1 g /tmp/2/x.py 2");
    int32_t c = rig_stack(r, 0, "f /tmp/1/x.py 1 g /tmp/1/x.py 3"),
            d = rig_stack(r, 0, "g /tmp/1/x.py 1 f /tmp/1/x.py 2");
    int32_t e = rig_stack(r, 0, "f /tmp/1/y.py 1 g /tmp/1/x.py 2");
    const struct evidence_stack *s = r->nodes[0].stacks;
    cr_expect(s[a].place == s[b].place && s[a].place != 0);
    cr_expect(s[a].place != s[c].place && s[a].place != s[d].place && s[a].place != s[e].place);
}

Test(suspects, the_text_has_the_line_the_stacks_and_what_is_missing) {
    reads(2);
    rig_child(r, 2, "futex", "futex_do_wait", "");
    struct evidence_worker *w = rig_worker(r, 2);
    w->kernel_stack = xstrdup("pipe_read\nvfs_read");
    w->log_tail = xstrdup("step 41\nstep 42\n");
    w->recorder = xstrdup("entries");
    evidence_worker_gap(w, "recorder: no answer");
    w->threads_cut = w->children_cut = true;
    r->nodes[0].gpus = xstrdup("gpu 0: 100 %");
    r->nodes[0].took_ns = 12 * NS_PER_MS;
    evidence_gap(&r->nodes[1], "kernel log: no right");
    rig_find(r);
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    suspects_text(&r->found, &text);
    static const char *const parts[] = {
        "nothing has moved for 180 s (--hang-still)\nranks 0-1,3 wait in all_reduce from backward (train.py:76); rank "
        "2",
        "\nsuspect: rank 2 (node b, pid 12): read() in load",
        "      load  /home/u/data.py:20\n      main  /home/u/train.py:70\n",
        "    child 5021 pt_data_worker: S futex() futex_do_wait\n",
        "  kernel stack of the main thread:\n    pipe_read\n    vfs_read\n",
        "  last lines of its log:\n    step 41\n    step 42\n",
        "  missing: recorder: no answer\n",
        "more threads are left out",
        "more children are left out",
        "\nranks 0-1,3: wait in all_reduce from backward (train.py:76)\n  of rank 0 (node a):\n    main thread 10 "
        "python3: S futex()",
        "\nnode a, in 12 ms\n  GPUs:\n    gpu 0: 100 %\n",
        "  missing: kernel log: no right\n",
    };
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        cr_expect_not_null(strstr(strbuf_text(&text), parts[i]), "%s\nis not in\n%s", parts[i], strbuf_text(&text));
}

static uint32_t times_in(const char *text, const char *part) {
    uint32_t n = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++)
        n++;
    return n;
}

Test(suspects, the_text_has_nothing_twice) {
    reads(2);
    for (uint32_t node = 0; node < 2; node++) {
        r->nodes[node].machine = r->nodes[node].network = 7;
        r->nodes[node].nics = xstrdup("eth0 (up)\n");
        r->nodes[node].kernel_log = xstrdup("[1.0] oops\n");
    }
    rig_find(r);
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    suspects_text(&r->found, &text);
    cr_expect_eq(times_in(strbuf_text(&text), "      load  /home/u/data.py:20\n"), 1, "%s", strbuf_text(&text));
    expect_has(text.data, "\nrank 2: waits in load (data.py:20)\n  rank 2 is shown above\n");
    cr_expect_eq(times_in(text.data, "eth0 (up)"), 1, "%s", text.data);
    cr_expect_eq(times_in(text.data, "oops"), 1, "%s", text.data);
    expect_has(text.data, "  network devices: as on node a\n  kernel log: as on node a\n");
    r->nodes[1].network = 8; /* in a container */
    strbuf_clear(&text);
    suspects_text(&r->found, &text);
    cr_expect_eq(times_in(text.data, "eth0 (up)"), 2, "%s", text.data);
    cr_expect_eq(times_in(text.data, "oops"), 1, "%s", text.data);
    r->nodes[0].machine = r->nodes[1].machine = 0; /* not known */
    strbuf_clear(&text);
    suspects_text(&r->found, &text);
    cr_expect_eq(times_in(text.data, "oops"), 2, "%s", text.data);
}

Test(suspects, the_json_is_json_and_holds_the_evidence) {
    static const struct json_limits limits = {SUSPECTS_JSON_MAX, 12, 100000};
    reads(2);
    r->list[0].evidence = NULL;
    rig_does(r, 3, 'S', "poll", "do_poll", "", "load /home/u/data.py 21 main /home/u/train.py 70");
    rig_find(r);
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    suspects_json(&r->found, &text);
    _cleanup_(json_freep) struct json *doc = NULL;
    struct err err = {0};
    cr_assert_eq(json_parse(text.data, text.len, &limits, &doc, &err), 0, "%s", err.text);
    cr_expect_eq(json_count(json_member(doc, "nodes")), 2);
    const struct json *node = json_first(json_member(doc, "nodes"));
    cr_expect(json_has(node, "missing"));
    cr_expect_not_null(json_member(json_next(node), "evidence"));
    cr_expect_eq(json_count(json_member(doc, "groups")), 2);
    const char *verdict;
    cr_assert_eq(json_get_string(doc, "verdict", 200, &verdict, &err), 0);
    cr_expect_str_eq(verdict, r->in.what);
    r->in.what = NULL;
    r->in.quiet_ns = 0;
    strbuf_clear(&text);
    suspects_json(&r->found, &text);
    cr_expect_eq(strncmp(text.data, "{\"verdict\":null,", 16), 0, "%.60s", text.data);
    expect_has(text.data, ",\"quiet_s\":null,");
}

Test(suspects, the_largest_job_has_a_line_that_fits) {
    static struct evidence e[64];
    static struct suspects_node nodes[64];
    uint32_t *nodes_of = xcalloc(65536, sizeof *nodes_of);
    for (uint32_t n = 0; n < 64; n++) {
        e[n].workers = xcalloc(1024, sizeof *e[n].workers);
        for (uint32_t i = 0; i < 1024; i++) {
            struct evidence_worker *w = &e[n].workers[e[n].n_workers++];
            w->rank = 1024 * n + i;
            w->n_threads = 1;
            w->threads = xcalloc(1, sizeof *w->threads);
            w->threads[0] = (struct evidence_thread){.state = i % 5 < 2 ? 'S' : 'R', .stack = -1};
            (void)snprintf(w->threads[0].wchan, sizeof w->threads[0].wchan, "w%u", i % 3000);
            nodes_of[w->rank] = n;
        }
        nodes[n] = (struct suspects_node){.name = "a-node-with-a-name-of-some-length", .evidence = &e[n]};
    }
    struct suspects_input in = {.n_ranks = 65536, .nodes_of = nodes_of, .n_nodes = 64, .nodes = nodes};
    struct suspects found;
    suspects_find(&in, &found);
    cr_expect(found.majority);
    cr_expect_eq(found.n_suspects, SUSPECTS_KEPT);
    cr_expect(found.n_all > 20000);
    _cleanup_(strbuf_fini) struct strbuf line = {0}, text = {0}, json = {0};
    suspects_line(&found, &line);
    cr_expect(line.len > 100 && line.len < SUSPECTS_LINE_MAX, "%zu", line.len);
    suspects_text(&found, &text);
    cr_expect(text.len <= SUSPECTS_TEXT_MAX + 100);
    suspects_json(&found, &json);
    cr_expect(json.len <= SUSPECTS_JSON_MAX + 64 * 200);
    suspects_fini(&found);
    for (uint32_t n = 0; n < 64; n++)
        evidence_fini(&e[n]);
    free(nodes_of);
}

/* --- a worker failed while others waited */

static void fails(uint32_t rank) {
    static const bool all_waited[4] = {true, true, true, true};
    r->in.waited = all_waited;
    r->in.failed = rank;
}

Test(suspects, who_does_not_move_when_another_fails_is_named) {
    fails(1);
    rig_worker(r, 1)->n_threads = 0; /* it has ended */
    rig_worker(r, 0)->still_ns = 0;
    rig_does(r, 0, 'R', "", "0", "", "print /usr/lib/python3.11/traceback.py 5");
    rig_worker(r, 3)->ended = true;
    reads(2);
    find_one(2, SUSPECT_UNMOVED);
    cr_expect_eq(r->found.n_missing, 0);
    expect_line("rank 1 failed while ranks 0,3 waited; "
                "rank 2 (node b, pid 12): read() in load (data.py:20), pipe, still for 31 s");
}

Test(suspects, who_has_ended_with_0_before_another_fails_is_named) {
    const struct hang_suspect signs[] = {{.rank = 3, .node = 1, .sign = HANG_SIGN_ENDED}};
    fails(1);
    r->in.signs = signs;
    r->in.n_signs = 1;
    rig_worker(r, 1)->ended = rig_worker(r, 3)->ended = true;
    rig_worker(r, 2)->still_ns = 0;
    find_one(3, SUSPECT_ENDED);
}

/* Its connection may be gone already. */
Test(suspects, who_reacts_is_not_absent_from_the_store) {
    fails(1);
    rig_worker(r, 0)->not_at_store = rig_worker(r, 1)->not_at_store = true;
    rig_worker(r, 2)->at_store = rig_worker(r, 3)->at_store = true;
    rig_worker(r, 1)->ended = true;
    rig_worker(r, 0)->still_ns = rig_worker(r, 3)->still_ns = 0;
    find_one(2, SUSPECT_UNMOVED);
}

Test(suspects, who_was_busy_when_another_fails_is_named_too) {
    static const bool waited[4] = {true, true, false, true};
    fails(1);
    r->in.waited = waited;
    rig_worker(r, 0)->still_ns = rig_worker(r, 1)->still_ns = rig_worker(r, 3)->still_ns = 0;
    rig_does(r, 2, 'R', "", "0", "", "crunch /home/u/data.py 33");
    rig_worker(r, 2)->still_ns = 0;
    find_line(2, SUSPECT_UNMOVED,
              "rank 1 failed while ranks 0,3 waited; rank 2 (node b, pid 12): runs in crunch (data.py:33)");
}

/* NCCL's waiters notice nothing: then their places tell, as in a hang. */
Test(suspects, the_places_tell_if_nobody_moves_when_one_fails) {
    fails(1);
    rig_worker(r, 1)->n_threads = 0;
    reads(2);
    find_line(2, SUSPECT_ELSEWHERE,
              "rank 1 failed while others waited; ranks 0,3 wait in all_reduce from backward (train.py:76); "
              "rank 2 (node b, pid 12): read() in load (data.py:20), pipe, still for 31 s");
}

Test(suspects, nobody_is_named_if_too_few_have_moved) {
    fails(1);
    rig_worker(r, 1)->n_threads = 0;
    rig_worker(r, 0)->still_ns = 0;
    reads(2);
    find_none("rank 1 failed while rank 0 waited; "
              "rank 2 (node b, pid 12): read() in load (data.py:20), pipe, still for 31 s; "
              "rank 3 (node b, pid 13): futex() in all_reduce from backward (train.py:76), still for 31 s");
}

Test(suspects, a_node_without_evidence_is_said_to_be_missing_after_a_failure) {
    fails(0);
    r->list[1].evidence = NULL;
    rig_worker(r, 0)->n_threads = 0;
    rig_worker(r, 1)->still_ns = 0;
    rig_find(r);
    cr_expect_eq(r->found.n_missing, 2);
    expect_line("rank 0 failed while rank 1 waited; no evidence from ranks 2-3 (node b: it did not answer in time)");
}

/* --- thousands of ranks, each with sixteen data loaders */

#define LOADERS 16
#define CROWD_NODES 512
#define CROWD_RANKS 8 /* of each node */
#define ODD_RANK 4001

static void add_loaders(struct evidence *e, struct evidence_worker *w) {
    struct pystack_frame frames[EVIDENCE_FRAMES_MAX];
    for (uint32_t i = 0; i < LOADERS; i++) {
        struct evidence_child *c = evidence_add_child(w);
        uint32_t number;
        for (size_t k = 0; k < ARRAY_SIZE(frames); k++) {
            frames[k] = (struct pystack_frame){.function = "transform", .line = 10 + i};
            (void)snprintf(frames[k].file, sizeof frames[k].file, "/home/u/project/of/mine/stage-%zu/data.py", k);
        }
        if (w->rank == ODD_RANK && i == 7)
            frames[0].line = 9; /* and no sibling does the same */
        cr_assert_eq(evidence_add_stack(e, frames, ARRAY_SIZE(frames), &number), 0);
        *c = (struct evidence_child){.pid = (int32_t)(100 + i), .name = "loader", .main = {.state = 'S'}};
        (void)snprintf(c->main.syscall, sizeof c->main.syscall, "futex");
        c->main.stack = (int32_t)number;
    }
}

/* Each is compared with those of 64 ranks; that took minutes. */
Test(suspects, one_loader_of_very_many_is_found, .timeout = 60) {
    static struct suspects_node nodes[CROWD_NODES];
    static struct evidence seen[CROWD_NODES];
    static uint32_t nodes_of[CROWD_NODES * CROWD_RANKS];
    struct suspects_input in = {
        .n_ranks = ARRAY_SIZE(nodes_of), .nodes_of = nodes_of, .n_nodes = CROWD_NODES, .nodes = nodes};
    struct suspects found;
    for (uint32_t rank = 0; rank < in.n_ranks; rank++) {
        struct evidence *e = &seen[rank / CROWD_RANKS];
        struct evidence_worker *w = evidence_add_worker(e);
        nodes_of[rank] = rank / CROWD_RANKS;
        nodes[nodes_of[rank]] = (struct suspects_node){.name = "n", .evidence = e};
        w->rank = rank;
        *evidence_add_thread(w) = (struct evidence_thread){.state = 'S', .syscall = "poll", .stack = -1};
        add_loaders(e, w);
    }
    suspects_find(&in, &found);
    cr_assert_eq(found.n_all, 1);
    cr_expect(found.suspects[0].rank == ODD_RANK && found.suspects[0].reason == SUSPECT_CHILD);
    suspects_fini(&found);
    for (uint32_t i = 0; i < CROWD_NODES; i++)
        evidence_fini(&seen[i]);
}

Test(suspects, who_is_in_a_debugger_is_counted) {
    static const char *const stacks[] = {
        "readline /usr/lib/python3.11/pdb.py 5 cmdloop /usr/lib/python3.11/cmd.py 126",
        "wait /usr/lib/python3.11/threading.py 320 cmdloop /v/site-packages/IPython/terminal/debugger.py 135",
        "wait /usr/lib/python3.11/threading.py 320 _wait_for_attach /v/debugpy/_vendored/pydevd/pydevd.py 3040",
        "wait /v/pydev_monkey.py 5 _do_wait_suspend /v/site-packages/debugpy/_vendored/pydevd/pydevd.py 2330",
    };
    for (size_t i = 0; i < ARRAY_SIZE(stacks); i++) {
        begin_with(4);
        rig_find(r);
        cr_expect_eq(r->found.n_debugged, 0);
        rig_does(r, 3, 'S', "futex", "futex_do_wait", "", stacks[i]);
        rig_find(r);
        cr_expect(r->found.n_debugged == 1 && r->found.debugged == 3, "%zu", i);
    }
}

Test(suspects, a_debugger_below_a_shell_counts_and_a_function_of_its_name_does_not) {
    begin_with(4);
    rig_does(r, 1, 'S', "wait4", "do_wait", "", "");
    rig_child(r, 1, "futex", "futex_do_wait", "");
    rig_does(r, 2, 'S', "futex", "futex_do_wait", "", "cmdloop /home/u/train.py 7 _wait_for_attach /home/u/rpc.py 9");
    rig_find(r);
    cr_expect_eq(r->found.n_debugged, 0);
    rig_worker(r, 1)->children[0].main.stack = rig_stack(r, 1, "_wait_for_attach /v/pydevd/pydevd.py 3040");
    rig_find(r);
    cr_expect(r->found.n_debugged == 1 && r->found.debugged == 1);
}

/* ---- the reason for which a hang may be ended */

static void all_are(struct suspects_rig *of, const char *syscall, const char *target, const char *frames) {
    for (uint32_t rank = 0; rank < 4; rank++)
        rig_does(of, rank, 'S', syscall, "", target, frames);
}

Test(suspects, who_waits_in_a_collective_waits_for_others) {
    find_together(4);
    all_are(r, "futex", "", "backward /venv/site-packages/torch/autograd/__init__.py 395 main /home/u/train.py 9");
    find_together(4);
}

Test(suspects, who_waits_for_work_from_outside_waits_for_no_rank) {
    all_are(r, "futex", "", "get /usr/lib/python3.11/queue.py 171 drive /home/u/driver.py 9");
    find_together(0);
    all_are(r, "clock_nanosleep", "", "wait /venv/site-packages/torch/utils/file_baton.py 49 build /home/u/train.py 9");
    find_together(0);
    /* its own code, called by a library of collectives */
    all_are(r, "clock_nanosleep", "",
            "nap /home/u/m.py 3 run /venv/site-packages/torch/nn/parallel/ddp.py 9 m /t.py 1");
    find_together(0);
    /* the agent of torchrun serves nobody but its workers */
    all_are(r, "poll", "", "wait /venv/site-packages/torch/distributed/elastic/agent.py 9 m /home/u/t.py 1");
    find_together(0);
}

Test(suspects, who_waits_for_the_store_or_another_rank_or_is_stopped_is_a_reason) {
    all_are(r, "clock_nanosleep", "", "main /home/u/train.py 9");
    rig_worker(r, 1)->awaits_rank = true;
    find_together(1);
    rig_worker(r, 1)->awaits_rank = false;
    rig_does(r, 2, 'T', "", "", "", "");
    find_together(1);
}

Test(suspects, a_connection_to_a_rank_of_another_node_is_a_reason) {
    all_are(r, "poll", "", "main /home/u/train.py 9");
    rig_does(r, 0, 'S', "recvfrom", "", "tcp 10.0.0.1:42 -> 10.0.0.2:9 established", "");
    rig_does(r, 1, 'S', "recvfrom", "", "tcp 10.0.0.1:43 -> 10.0.0.9:9 established", "");
    find_together(0);
    rig_does(r, 2, 'S', "recvfrom", "", "tcp 10.0.0.2:44 -> 10.0.0.9:9 established", "");
    find_together(1);
}

Test(suspects, a_kernel_of_nccl_is_waited_for) {
    all_are(r, "futex", "", "item /home/u/train.py 9");
    struct evidence_thread *watchdog = evidence_add_thread(rig_worker(r, 0));
    (void)snprintf(watchdog->name, sizeof watchdog->name, "pt_nccl_watchdg");
    find_together(0);
    rig_does(r, 0, 'R', "", "", "", "");
    find_together(1);
}

Test(suspects, who_hangs_at_its_exit_is_named_and_not_who_has_ended) {
    rig_worker(r, 0)->ended = rig_worker(r, 1)->ended = rig_worker(r, 3)->ended = true;
    rig_does(r, 2, 'S', "pause", "", "", "");
    rig_main(r, 2)->stack = -1;
    find_one(2, SUSPECT_UNENDED);
    cr_expect(r->found.n_at_exit == 1 && r->found.n_together == 0);
    expect_line("rank 2 (node b, pid 12): still runs while others have ended with 0: pause(), still for 31 s");
    rig_does(r, 2, 'S', "futex", "", "",
             "destroy_process_group /venv/site-packages/torch/distributed/c10d.py 9 m /t.py 1");
    find_one(2, SUSPECT_UNENDED);
    cr_expect_eq(r->found.n_at_exit, 1);
    /* atexit calls what the program gave it, and has no frame itself */
    rig_does(r, 2, 'S', "poll", "", "", "join /venv/site-packages/wandb/run.py 9 flush /t.py 7");
    rig_find(r);
    cr_expect_eq(r->found.n_at_exit, 1);
    rig_does(r, 2, 'S', "poll", "", "", "accept /lib/socket.py 9 serve /t.py 7 <module> /t.py 30");
    rig_find(r);
    cr_expect_eq(r->found.n_at_exit, 0);
    /* a program that is not Python may still serve somebody */
    evidence_worker_gap(rig_worker(r, 2), "Python stack: it is not Python");
    rig_main(r, 2)->stack = -1;
    find_one(2, SUSPECT_UNENDED);
    cr_expect_eq(r->found.n_at_exit, 0);
}
