#include "launcher/job/job.h"

#include "rig/unit.h"

static void expect(const char *run_id, const char *next) {
    char got[JOB_RUN_ID_MAX];
    job_next_run_id(run_id, got);
    cr_expect_str_eq(got, next, "'%s' after '%s', not '%s'", got, run_id, next);
}

Test(job, the_next_name_counts_on) {
    expect("night", "night-2");
    expect("night-2", "night-3");
    expect("night-9", "night-10");
    expect("night-99", "night-100");
    expect("night-100", "night-100-2");
    expect("job-4711", "job-4711-2");
    expect("night-", "night--2");
    expect("night-2b", "night-2b-2");
    expect("", "-2");
}

Test(job, the_next_name_of_a_long_one_fits) {
    char long_id[JOB_RUN_ID_MAX], got[JOB_RUN_ID_MAX];
    memset(long_id, 'x', sizeof long_id - 1);
    long_id[sizeof long_id - 1] = '\0';
    job_next_run_id(long_id, got);
    cr_assert_eq(strlen(got), sizeof got - 1);
    cr_assert_str_eq(got + sizeof got - 3, "-2");
}
