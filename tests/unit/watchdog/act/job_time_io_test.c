/* The record of a job's time in the leading agent; the nodes are the test. */
#include "watchdog/act/job_time_io.h"

#include "rendezvous/protocol/wire.h"
#include "rig/loop_rig.h"
#include "watchdog/profile/samples.h"

static struct loop *loop;
static struct hang_evidence *evidence;
static struct job_clock *job;
static struct rdzv_ask asked;
static unsigned n_asked, first_steps;
static struct attempt_start start;
static struct rdzv_server *the_server = (struct rdzv_server *)&asked;

static bool send_to(struct rdzv_server *server, uint64_t incarnation, const struct wire_message *m) {
    (void)server, (void)incarnation;
    cr_assert_eq(m->ask.what, ASK_TIME);
    asked = m->ask;
    n_asked++;
    loop_quit(loop);
    return true;
}

static void on_first_step(void *arg, const struct attempt_start *s) {
    start = *s;
    first_steps++;
    loop_quit(loop);
}

static void begin(void) {
    static const struct hang_evidence_ops evidence_ops = {.send = send_to};
    static const struct job_clock_ops ops = {.first_step = on_first_step};
    cr_assert_eq(loop_new(&loop), 0);
    evidence = hang_evidence_new(loop, &evidence_ops, &the_server);
    job = job_clock_new(loop, evidence, &ops, NULL);
    n_asked = first_steps = 0;
}

static void finish(void) {
    job_clock_free(job);
    hang_evidence_free(evidence);
    loop_free(loop);
}
TestSuite(job_time_io, .init = begin, .fini = finish);

static void run_group(void) {
    _cleanup_(hang_group_fini) struct hang_group g;
    struct hang_node nodes[] = {{.incarnation = 10, .nproc = 1, .name = "a"}};
    cr_assert(hang_group_make((struct generation){1, 4}, nodes, 1, &g));
    hang_evidence_begin(evidence, &g);
    job_clock_begin(job, 1);
}

static void until_asked(unsigned n) {
    while (n_asked < n)
        rig_loop_run(loop);
}

/* Ten ticks: imports, then backward. */
static void answer(void) {
    uint64_t first = clock_wall_ns() / asked.period_ns;
    _cleanup_(profile_fini) struct profile p = {.period_ns = asked.period_ns, .first_tick = first};
    _cleanup_(strbuf_fini) struct strbuf json = {0};
    uint32_t import[] = {(uint32_t)profile_add_frame(&p, "f", "<frozen importlib._bootstrap>", 1, 0)};
    uint32_t back[] = {(uint32_t)profile_add_frame(&p, "_engine_run_backward", "torch/autograd/graph.py", 2, 0)};
    int32_t ids[] = {profile_add_stack(&p, import, 1), profile_add_stack(&p, back, 1)};
    struct profile_rank *r = profile_add_rank(&p, 0);
    for (uint32_t k = 0; k < 10; k++)
        cr_assert_eq(profile_add_sample(&p, r, first + k, &(struct profile_sample){.stack = ids[k >= 4]}), 0);
    profile_write(&p, RDZV_EVIDENCE_MAX, &json);
    struct rdzv_evidence piece = {.id = asked.id, .first = true, .last = true};
    cr_assert_lt(json.len, sizeof piece.text);
    memcpy(piece.text, strbuf_text(&json), json.len);
    hang_evidence_piece(evidence, 10, &piece);
}

Test(job_time_io, windows_follow_one_another_and_make_the_record) {
    struct rdzv_time state;
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    run_group();
    until_asked(1);
    cr_assert(asked.timeout_ns == JOB_CLOCK_WINDOW_NS && asked.period_ns == JOB_CLOCK_PERIOD_NS);
    job_clock_state(job, &state);
    cr_assert(state.text[0] == '\0' && state.start.first_step_ns == 0);
    answer();
    until_asked(2);
    cr_assert_eq(asked.timeout_ns, 2 * JOB_CLOCK_WINDOW_NS);
    while (first_steps == 0)
        rig_loop_run(loop);
    cr_assert_eq(start.import_ns, 4 * NS_PER_S);
    cr_assert_gt(start.first_step_ns, 0);
    job_clock_state(job, &state);
    cr_assert_eq(strncmp(state.text, "training 60 % of ", 17), 0, "%s", state.text);
    cr_assert_eq(state.start.import_ns, start.import_ns);
    job_clock_report(job, &line);
    cr_assert_eq(line.len, 0, "a short job has no line at its end");
    job_clock_end(job);
    answer(); /* too late */
    rig_loop_turns(loop, 20);
    cr_assert(first_steps == 1 && n_asked == 2);
}

Test(job_time_io, an_answer_that_makes_no_sense_is_left_out) {
    struct rdzv_time state;
    run_group();
    until_asked(1);
    struct rdzv_evidence piece = {.id = asked.id, .first = true, .last = true, .text = "{\"ranks\":7}"};
    hang_evidence_piece(evidence, 10, &piece);
    until_asked(2);
    answer();
    while (first_steps == 0)
        rig_loop_run(loop);
    job_clock_state(job, &state);
    cr_assert_eq(strncmp(state.text, "training 60 % of ", 17), 0, "%s", state.text);
}

/* As a node does that has too few descriptors. */
Test(job_time_io, if_no_node_takes_samples_the_next_window_does_not_begin_at_once) {
    run_group();
    until_asked(1);
    hang_evidence_piece(evidence, 10, &(struct rdzv_evidence){.id = asked.id, .first = true, .last = true});
    rig_loop_turns(loop, 50);
    cr_assert_eq(n_asked, 1);
}

Test(job_time_io, without_a_record_nothing_happens) {
    struct rdzv_time state;
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    job_clock_begin(NULL, 1);
    job_clock_end(NULL);
    job_clock_state(NULL, &state);
    job_clock_report(NULL, &line);
    cr_assert(state.text[0] == '\0' && line.len == 0);
}
