#include "launcher/srun/slurm_job.h"

#include "rig/unit.h"

Test(slurm_words, the_grace_of_workers) {
    cr_expect_eq(slurm_grace(30 * NS_PER_S), 27 * NS_PER_S);
    cr_expect_eq(slurm_grace(5 * NS_PER_S), 2 * NS_PER_S);
    cr_expect_eq(slurm_grace(3 * NS_PER_S), 1 * NS_PER_S);
    cr_expect_eq(slurm_grace(0), 1 * NS_PER_S);
}

Test(slurm_words, kill_wait_is_a_line_of_its_own) {
    uint64_t ns;
    cr_expect(slurm_kill_wait("Configuration data as of 2026-01-01T00:00:00\n"
                              "KeepAliveTime           = SYSTEM_DEFAULT\n"
                              "KillOnBadExit           = 0\n"
                              "KillWait                = 30 sec\n"
                              "LaunchParameters        = (null)\n",
                              &ns));
    cr_expect_eq(ns, 30 * NS_PER_S);
    cr_expect(slurm_kill_wait("KillWait = 0 sec", &ns));
    cr_expect_eq(ns, 0);
}

Test(slurm_words, no_kill_wait_is_not_guessed) {
    static const char *const texts[] = {"",
                                        "KillWait",
                                        "KillWait ",
                                        "KillWait = INFINITE\n",
                                        "OverTimeLimit = 3 min\n",
                                        "# KillWait = 3 sec\n",
                                        "KillWaits = 3 sec\n"};
    uint64_t ns;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        cr_expect_not(slurm_kill_wait(texts[i], &ns), "%s", texts[i]);
}

Test(slurm_words, a_step_that_waits_is_that_of_the_srun) {
    static const char steps[] =
        "StepId=1.batch UserId=0 StartTime=2026-11-26T20:37:19 State=RUNNING SrunHost:Pid=(null):0\n"
        "StepId=1.0 UserId=0 State=RUNNING Partition=low Name=muster SrunHost:Pid=node1:23\n"
        "StepId=1.TDB UserId=0 StartTime=Unknown State=PENDING Partition=low SrunHost:Pid=node1:22\n";
    cr_expect(slurm_step_waits(steps, 22));
    cr_expect_not(slurm_step_waits(steps, 23) || slurm_step_waits(steps, 2) || slurm_step_waits(steps, 0));
    cr_expect_not(slurm_step_waits("", 22) || slurm_step_waits("No steps found\n", 22));
    cr_expect_not(slurm_step_waits("StepId=1.TDB State=PENDING\n", 22));
}

Test(slurm_words, the_reason_is_read_from_a_jobs_line) {
    static const struct {
        const char *state, *reason, *preempted, *text;
    } rows[] = {
        {"COMPLETING", "TimeLimit", "None", "the job has reached its time limit"},
        {"TIMEOUT", "TimeLimit", "None", "the job has reached its time limit"},
        {"COMPLETING", "None", "None", "the job is cancelled"},
        {"CANCELLED", "None", "None", "the job is cancelled"},
        {"RUNNING", "None", "2026-01-01T00:00:00", "the job is preempted"},
        {"PREEMPTED", "None", "None", "the job is preempted"},
        {"COMPLETING", "NodeDown", "None", "a node of the job has failed"},
        {"RUNNING", "None", "None", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char line[512];
        (void)snprintf(line, sizeof line,
                       "JobId=17 JobName=x UserId=me(1) Priority=1 JobState=%s Reason=%s Dependency=(null) "
                       "PreemptEligibleTime=2026-01-01T00:00:00 PreemptTime=%s Command=/x\n",
                       rows[i].state, rows[i].reason, rows[i].preempted);
        const char *text = slurm_end_text(slurm_end_of(line, 0));
        cr_expect_str_eq(text != NULL ? text : "-", rows[i].text != NULL ? rows[i].text : "-", "%s", line);
    }
}

/* What Slurm 22.05 shows when the processes of a job that ends get SIGTERM. */
Test(slurm_words, a_job_that_completes_is_not_always_cancelled) {
    static const struct {
        const char *reason, *code;
        unsigned restarts, batch;
        enum slurm_end end;
    } rows[] = {
        {"None", "0:0", 1, 1, SLURM_END_CANCELLED},         /* scancel */
        {"None", "0:15", 1, 1, SLURM_END_CANCELLED},        /* its script has died of it */
        {"None", "0:0", 2, 1, SLURM_END_REQUEUED},          /* scontrol requeue */
        {"JobLaunchFailure", "0:10", 1, 1, SLURM_END_OVER}, /* scancel -b -s USR1 */
        {"JobLaunchFailure", "0:15", 1, 1, SLURM_END_OVER}, /* scancel -b -s TERM */
        {"NonZeroExitCode", "3:0", 1, 1, SLURM_END_OVER},
        {"None", "0:0", 1, 0, SLURM_END_OVER}, /* the shell of salloc was left */
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char line[256];
        (void)snprintf(line, sizeof line,
                       "JobId=8 JobState=COMPLETING Reason=%s Requeue=1 Restarts=%u BatchFlag=%u ExitCode=%s "
                       "PreemptTime=None ",
                       rows[i].reason, rows[i].restarts, rows[i].batch, rows[i].code);
        cr_expect_eq(slurm_end_of(line, 1), rows[i].end, "%s", line);
    }
}

Test(slurm_words, a_job_is_soon_over_in_its_last_three_minutes) {
    static const struct {
        const char *run, *limit;
        bool soon;
    } rows[] = {
        {"00:00:10", "00:01:00", true},     {"00:57:00", "01:00:00", true},         {"00:56:59", "01:00:00", false},
        {"1-23:58:00", "2-00:00:00", true}, {"23:58:00", "2-00:00:00", false},      {"2-00:00:05", "2-00:00:00", true},
        {"00:00:10", "UNLIMITED", false},   {"00:00:10", "Partition_Limit", false}, {"00:00:10", "", false},
        {"10", "00:01:00", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char line[256];
        (void)snprintf(line, sizeof line,
                       "JobId=17 JobState=RUNNING Reason=None RunTime=%s TimeLimit=%s PreemptTime=None ", rows[i].run,
                       rows[i].limit);
        cr_expect_eq(slurm_end_of(line, 0), rows[i].soon ? SLURM_END_SOON : SLURM_END_NONE, "%s", line);
    }
}

Test(slurm_words, what_is_no_job_has_no_reason) {
    cr_expect_eq(slurm_end_of("", 0), SLURM_END_NONE);
    cr_expect_eq(slurm_end_of("slurm_load_jobs error: Invalid job id specified\n", 0), SLURM_END_NONE);
    cr_expect_eq(slurm_end_of(" JobState=", 0), SLURM_END_NONE);
}

Test(slurm_words, the_queue_is_read_from_a_jobs_line) {
    struct slurm_queue_facts f = slurm_queue_facts("JobId=17 Requeue=1 Restarts=3 BatchFlag=1 Reboot=0 ");
    cr_expect(f.known && f.batch && f.requeue && f.restarts == 3);
    f = slurm_queue_facts("JobId=17 Requeue=0 Restarts=0 BatchFlag=0 Reboot=0 ");
    cr_expect(f.known && !f.batch && !f.requeue && f.restarts == 0);
    cr_expect_not(slurm_queue_facts("JobId=17 JobState=RUNNING").known);
    cr_expect_not(slurm_queue_facts("").known);
}

Test(slurm_words, excluded_nodes_are_a_list_of_any_length) {
    static const char *const rows[][2] = {{"JobId=1 ExcNodeList=(null) A=1", ""},
                                          {"JobId=1 A=1", ""},
                                          {"JobId=1 ExcNodeList=n[1-3],x A=1", "n[1-3],x"},
                                          {"JobId=1 ExcNodeList=n7\n", "n7"}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_(freep) char *text = slurm_excluded(rows[i][0]);
        cr_expect_str_eq(text, rows[i][1]);
    }
}
