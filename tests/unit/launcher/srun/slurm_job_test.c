#include "launcher/srun/slurm_job.h"

#include "rig/unit.h"

#define JOB(state, reason, preempted, queue)                                                            \
    "JobId=17 JobName=x JobState=" state " Reason=" reason " Dependency=(null) " queue " ExitCode=0:0 " \
    "PreemptEligibleTime=2026-01-01T00:00:00 PreemptTime=" preempted " ExcNodeList=(null) Command=/x\n"
#define QUEUE "Requeue=1 Restarts=2 BatchFlag=1"
#define PREEMPTED JOB("RUNNING", "None", "2026-01-01T00:00:00", QUEUE)
#define OVER JOB("COMPLETING", "TimeLimit", "None", QUEUE)
#define RUNNING JOB("RUNNING", "None", "None", QUEUE)
#define CANCELLED JOB("COMPLETING", "None", "None", QUEUE)
#define ALL (REQUEUE_PREEMPT | REQUEUE_NODE_FAIL | REQUEUE_TIMEOUT)

static struct requeue_facts facts(const char *job, uint32_t status) {
    return (struct requeue_facts){
        .asked = ALL, .max = 10, .status = status, .safe = true, .restarts = 2, .id = "17", .job = job};
}

static void expect(struct requeue_facts f, bool answer, const char *sentence) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    cr_expect_eq(requeue_decide(&f, &s), answer, "%s: %s", sentence, strbuf_text(&s));
    cr_expect_str_eq(strbuf_text(&s), sentence);
}

Test(requeue, words_are_bits) {
    static const struct {
        const char *text;
        unsigned bits;
    } rows[] = {{"preempt", REQUEUE_PREEMPT},
                {"node-fail", REQUEUE_NODE_FAIL},
                {"timeout", REQUEUE_TIMEOUT},
                {"timeout,preempt", REQUEUE_TIMEOUT | REQUEUE_PREEMPT},
                {"preempt, node-fail ,timeout", ALL}};
    static const char *const bad[] = {",", "preempt,", "nodefail", "preempt node-fail", "PREEMPT", "preemp"};
    unsigned bits = 0;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        cr_expect_eq(requeue_parse(rows[i].text, &bits), 0, "%s", rows[i].text);
        cr_expect_eq(bits, rows[i].bits, "%s", rows[i].text);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        cr_expect_lt(requeue_parse(bad[i], &bits), 0, "%s", bad[i]);
    cr_expect_str_eq(requeue_word(REQUEUE_NODE_FAIL), "node-fail");
    cr_expect_str_eq(requeue_word(8), "");
}

Test(requeue, a_job_goes_back_for_the_reason_that_was_asked_for) {
    expect(facts(PREEMPTED, 143), true, "the job is preempted (requeue 3 of at most 10)");
    expect(facts(OVER, 143), true, "the job has reached its time limit (requeue 3 of at most 10)");
    expect(facts(RUNNING, 75), true, "nodes of the job were lost (requeue 3 of at most 10)");
    expect(facts(PREEMPTED, 1), true, "the job is preempted (requeue 3 of at most 10)");
    struct requeue_facts other = *WITH(facts(PREEMPTED, 143), .asked = ALL & ~REQUEUE_PREEMPT);
    expect(other, false, "");
}

/* sbatch --signal=TERM@120 */
Test(requeue, a_signal_just_before_the_time_limit_is_its_beginning) {
    static const char soon[] = JOB("RUNNING", "None", "None", QUEUE " RunTime=00:58:00 TimeLimit=01:00:00");
    expect(facts(soon, 143), true, "the job's time is nearly over (requeue 3 of at most 10)");
    expect(facts(soon, 75), true, "nodes of the job were lost (requeue 3 of at most 10)");
    expect(facts(soon, 1), false, "");
    expect(facts(soon, 139), false, "");
}

Test(requeue, other_ends_are_no_matter_for_the_queue) {
    expect(facts(PREEMPTED, 0), false, "");
    expect(facts(RUNNING, 1), false, "");
    expect(facts(RUNNING, 143), false, "");
    expect(facts(CANCELLED, 143), false, "");
    expect(facts(CANCELLED, 75), false, "");
    expect(facts(JOB("OUT_OF_MEMORY", "None", "None", QUEUE), 75), false, "");
}

Test(requeue, each_refusal_says_why) {
    struct requeue_facts f = *WITH(facts(PREEMPTED, 143), .safe = false);
    expect(f, false,
           "job 17 is not requeued: no worker has reported a safe point (MUSTER_SAFE_POINT=1) since it started, so "
           "nothing "
           "new would be saved");
    f = facts(PREEMPTED, 143);
    f.max = 2;
    expect(f, false, "job 17 is not requeued: it was 2 times already (--max-requeues=2)");
    f = facts(JOB("RUNNING", "None", "2026-01-01T00:00:00", "Requeue=0 Restarts=0 BatchFlag=1"), 143);
    expect(f, false, "job 17 is not requeued: it was submitted with --no-requeue, or this cluster forbids it");
    f = facts(JOB("RUNNING", "None", "2026-01-01T00:00:00", "Requeue=1 Restarts=0 BatchFlag=0"), 143);
    expect(f, false, "job 17 is not requeued: it is not a batch job");
}

Test(requeue, what_slurm_has_requeued_is_not_requeued_again) {
    expect(facts(JOB("COMPLETING", "None", "None", "Requeue=1 Restarts=3 BatchFlag=1"), 143), false,
           "Slurm has put job 17 back into the queue");
}

Test(requeue, without_an_answer_the_environment_counts) {
    expect(facts(NULL, 143), true, "the job was ordered to end (requeue 3 of at most 10)");
    expect(facts(NULL, 75), true, "nodes of the job were lost (requeue 3 of at most 10)");
    expect(facts(NULL, 1), false, "");
    struct requeue_facts f = *WITH(facts(NULL, 143), .restarts = 10);
    expect(f, false, "job 17 is not requeued: it was 10 times already (--max-requeues=10)");
}

Test(requeue, what_can_never_be_is_said_at_the_start) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    requeue_cannot("17", RUNNING, &s);
    cr_expect_eq(s.len, 0);
    requeue_cannot("17", "", &s);
    cr_expect_eq(s.len, 0);
    requeue_cannot("17", "JobId=17 Requeue=0 Restarts=0 BatchFlag=1 ", &s);
    expect_has(strbuf_text(&s), "--no-requeue");
    requeue_cannot("17", "JobId=17 Requeue=1 Restarts=0 BatchFlag=0 ", &s);
    expect_has(strbuf_text(&s), "only batch jobs");
}

Test(requeue, an_end_that_was_not_asked_for_names_the_option) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    requeue_not_asked(SLURM_END_PREEMPTED, 0, PREEMPTED, &s);
    cr_expect_str_eq(strbuf_text(&s),
                     "it is not requeued when it ends now; --requeue=preempt puts it back into the queue");
    requeue_not_asked(SLURM_END_TIME, REQUEUE_PREEMPT, OVER, &s);
    expect_has(strbuf_text(&s), "--requeue=timeout");
    requeue_not_asked(SLURM_END_PREEMPTED, ALL, PREEMPTED, &s);
    cr_expect_eq(s.len, 0);
    requeue_not_asked(SLURM_END_CANCELLED, 0, CANCELLED, &s);
    cr_expect_eq(s.len, 0);
    requeue_not_asked(SLURM_END_PREEMPTED, 0, "JobId=17 Requeue=0 Restarts=0 BatchFlag=1 ", &s);
    cr_expect_eq(s.len, 0);
}

Test(requeue, only_names_of_nodes_are_told_to_slurm) {
    cr_expect(requeue_is_name("gpu-r1.n_07"));
    cr_expect_not(requeue_is_name(""));
    cr_expect_not(requeue_is_name("a,b"));
    cr_expect_not(requeue_is_name("n[1-3]"));
    cr_expect_not(requeue_is_name("a b"));
}

Test(requeue, lost_nodes_join_those_that_are_avoided) {
    static const char *const rows[][3] = {{"", "n3", "n3"},   {"n1", "n3,n4", "n1,n3,n4"},
                                          {"n3", "n3", NULL}, {"n[1-2]", "n7,n7", "n[1-2],n7"},
                                          {"", "", NULL},     {"n1", "", NULL}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_(freep) char *list = requeue_avoid(rows[i][0], rows[i][1]);
        cr_expect_str_eq(list != NULL ? list : "-", rows[i][2] != NULL ? rows[i][2] : "-");
    }
}
