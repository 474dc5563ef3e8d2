#include "launcher/output/logdir_io.h"

#include "../../skip.h"
#include "launcher/output/tempdir_io.h"
#include "rig/unit.h"

static char base[64];

static void setup(void) {
    (void)snprintf(base, sizeof base, "/tmp/logdir-test-XXXXXX");
    cr_assert_not_null(mkdtemp(base));
}
static void teardown(void) { cr_assert(tempdir_remove(base)); }
TestSuite(logdir_io, .init = setup, .fini = teardown);

/* The name that the run gets below base. */
static char *claim(const char *run_id, uint64_t nonce) {
    char *dir = NULL;
    struct err err = {0};
    cr_assert_eq(logdir_claim_run(base, run_id, nonce, 0600, &dir, &err), 0, "%s", err.text);
    cr_assert_eq(strncmp(dir, base, strlen(base)), 0);
    char *name = xstrdup(dir + strlen(base) + 1);
    free(dir);
    return name;
}

#define EXPECT_NAME(run_id, nonce, want)                    \
    do {                                                    \
        _cleanup_(freep) char *got_ = claim(run_id, nonce); \
        cr_assert_str_eq(got_, want);                       \
    } while (0)

static size_t count_entries(const char *dir) {
    char text[32] = "";
    FILE *f = popen(rig_text("ls -A %s | wc -l", dir), "r");
    cr_assert_not_null(f);
    cr_assert_not_null(fgets(text, sizeof text, f));
    (void)pclose(f);
    return strtoul(text, NULL, 10);
}

Test(logdir_io, another_run_of_the_same_name_gets_a_suffix_and_the_same_run_does_not) {
    EXPECT_NAME("job", 1, "job");
    EXPECT_NAME("job", 1, "job");
    EXPECT_NAME("job", 2, "job.2");
    EXPECT_NAME("job", 3, "job.3");
    EXPECT_NAME("job", 2, "job.2");
    EXPECT_NAME("job", 1, "job");
    cr_assert_eq(count_entries(base), 3, "nothing else stays");
}

static void make_file(const char *path) {
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    cr_assert(fd >= 0);
    (void)close(fd);
}

Test(logdir_io, a_folder_or_file_of_others_is_not_touched) {
    cr_assert_eq(mkdir(rig_text("%s/job", base), 0755), 0);
    make_file(rig_text("%s/job/mine", base));
    make_file(rig_text("%s/job.2", base));
    EXPECT_NAME("job", 1, "job.3");
    cr_assert_eq(count_entries(rig_text("%s/job", base)), 1);
}

/* Claims that are made at once, by as many processes. want: the name that each must get; NULL: any. */
static void claim_at_once(uint64_t first_nonce, uint64_t step, const char *want) {
    pid_t pids[6];
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
        pids[i] = fork();
        cr_assert(pids[i] >= 0);
        if (pids[i] == 0) {
            char *dir = NULL;
            bool good = logdir_claim_run(base, "job", first_nonce + i * step, 0600, &dir, NULL) == 0;
            _exit(good && (want == NULL || strcmp(strrchr(dir, '/') + 1, want) == 0) ? 0 : 1);
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
        cr_assert_eq(rig_status(pids[i]), 0);
    }
}

Test(logdir_io, nodes_of_one_run_that_come_at_once_get_one_name_and_other_runs_their_own) {
    EXPECT_NAME("job", 99, "job");
    claim_at_once(7, 0, "job.2");
    cr_assert_eq(count_entries(base), 2);
    claim_at_once(100, 1, NULL);
    cr_assert_eq(count_entries(base), 2 + 6);
}

Test(logdir_io, all_folders_are_made_and_may_be_there) {
    struct stat st;
    const char *deep = rig_text("%s/a/b//c/", base);
    char *run = NULL, *node = NULL, *worker = NULL, *again = NULL;
    cr_assert_eq(logdir_claim_run(deep, "x", 1, 0600, &run, NULL), 0);
    cr_assert_eq(logdir_make_generation(run, "1.1", "host", 0600, &node, NULL), 0);
    cr_assert_eq(logdir_make_worker(node, 12, 0600, &worker, NULL), 0);
    cr_assert_eq(logdir_make_worker(node, 12, 0600, &again, NULL), 0);
    assert_has(worker, "/x/1.1/host/12");
    cr_assert(stat(worker, &st) == 0 && S_ISDIR(st.st_mode));
    free(run);
    free(node);
    free(worker);
    free(again);
}

Test(logdir_io, workers_hear_of_absolute_paths) {
    char *run = NULL, *node = NULL, *want = xasprintf("%s/logs/x/1.1/host", base);
    cr_assert_eq(chdir(base), 0);
    cr_assert_eq(logdir_claim_run("logs", "x", 1, 0600, &run, NULL), 0);
    cr_assert_str_eq(run, "logs/x");
    cr_assert_eq(logdir_make_generation(run, "1.1", "host", 0600, &node, NULL), 0);
    cr_assert_str_eq(node, want);
    cr_assert_eq(chdir("/"), 0);
    free(run);
    free(node);
    free(want);
}

static mode_t mode_of(const char *folder, const char *name) {
    _cleanup_(freep) char *path = xasprintf("%s/%s", folder, name);
    struct stat st;
    cr_assert_eq(lstat(path, &st), 0, "%s", path);
    return st.st_mode & 07777;
}

Test(logdir_io, folders_are_private_whatever_the_umask_is) {
    static const struct {
        uint32_t mode;
        mode_t folder, file;
    } cases[] = {{0600, 0700, 0600}, {0640, 0750, 0640}, {0664, 0775, 0664}};
    static const mode_t umasks[] = {0, 022, 077};
    for (size_t i = 0; i < ARRAY_SIZE(cases) * ARRAY_SIZE(umasks); i++) {
        uint32_t mode = cases[i / ARRAY_SIZE(umasks)].mode;
        mode_t folder = cases[i / ARRAY_SIZE(umasks)].folder, file = cases[i / ARRAY_SIZE(umasks)].file;
        _cleanup_(freep) char *own = xasprintf("%s/%zu", base, i), *run = NULL, *node = NULL, *worker = NULL;
        (void)umask(umasks[i % ARRAY_SIZE(umasks)]);
        cr_assert_eq(logdir_claim_run(own, "x", 1, mode, &run, NULL), 0);
        cr_assert_eq(logdir_make_generation(run, "1.1", "n", mode, &node, NULL), 0);
        cr_assert_eq(logdir_make_worker(node, 0, mode, &worker, NULL), 0);
        cr_assert_eq(logdir_set_ended(run, mode), 0);
        cr_expect_eq(mode_of(own, ""), folder);
        cr_expect_eq(mode_of(own, "x"), folder);
        cr_expect_eq(mode_of(run, "1.1"), folder);
        cr_expect_eq(mode_of(run, "1.1/n"), folder);
        cr_expect_eq(mode_of(run, "1.1/n/0"), folder);
        cr_expect_eq(mode_of(run, ".muster-run"), file);
        cr_expect_eq(mode_of(run, ".muster-ended"), file);
    }
}

Test(logdir_io, a_folder_of_the_user_keeps_its_mode) {
    _cleanup_(freep) char *own = xasprintf("%s/own", base), *run = NULL;
    cr_assert_eq(mkdir(own, 0755), 0);
    cr_assert_eq(chmod(own, 02775), 0);
    cr_assert_eq(logdir_claim_run(own, "x", 1, 0640, &run, NULL), 0);
    cr_expect_eq(mode_of(own, ""), 02775);
    cr_expect_eq(mode_of(own, "x"), 02750, "files of such a folder get its group");
}

Test(logdir_io, the_log_folder_may_be_a_link_but_nothing_below_it) {
    _cleanup_(freep) char *real = xasprintf("%s/real", base), *link = xasprintf("%s/link", base);
    _cleanup_(freep) char *squat = xasprintf("%s/real/x", base), *other = xasprintf("%s/other", base);
    _cleanup_(freep) char *run = NULL, *node = NULL, *below = NULL;
    struct err err = {0};
    cr_assert_eq(mkdir(real, 0700), 0);
    cr_assert_eq(mkdir(other, 0700), 0);
    cr_assert_eq(symlink(real, link), 0);
    cr_assert_eq(symlink(other, squat), 0);
    cr_assert_eq(logdir_claim_run(link, "x", 1, 0600, &run, NULL), 0);
    expect_has(run, "/link/x.2");
    below = xasprintf("%s/1.1", run);
    cr_assert_eq(symlink(other, below), 0);
    cr_expect_eq(logdir_make_generation(run, "1.1", "n", 0600, &node, &err), -ENOTDIR);
    cr_expect_eq(count_entries(other), 0);
}

/* No user of this machine needs this number. */
#define STRANGER 4321

static void make_strange(const char *path) {
    if (lchown(path, STRANGER, (gid_t)-1) < 0)
        SKIP_AFTER(teardown, "only root can give files to another user");
}

Test(logdir_io, squatted_names_are_not_used) {
    _cleanup_(freep) char *taken = xasprintf("%s/x", base), *copied = xasprintf("%s/y", base), *run = NULL;
    _cleanup_(freep) char *marker = xasprintf("%s/y/.muster-run", base), *again = NULL;
    cr_assert_eq(mkdir(taken, 0777), 0);
    make_strange(taken);
    cr_assert_eq(logdir_claim_run(base, "y", 7, 0600, &run, NULL), 0);
    make_strange(copied); /* with the right number in it */
    make_strange(marker);
    cr_assert_eq(chmod(base, 01777), 0);
    EXPECT_NAME("y", 7, "y.2");
    cr_assert_eq(logdir_claim_run(base, "x", 1, 0600, &again, NULL), 0);
    cr_expect_eq(mode_of(base, strrchr(again, '/') + 1), 0700);
    struct stat st;
    cr_assert_eq(stat(again, &st), 0);
    cr_expect_eq(st.st_uid, geteuid());
}

Test(logdir_io, a_squatted_log_folder_is_refused_with_a_sentence) {
    _cleanup_(freep) char *squat = xasprintf("%s/logs", base), *run = NULL;
    struct err err = {0};
    cr_assert_eq(mkdir(squat, 0777), 0);
    cr_assert_eq(chmod(base, 01777), 0);
    make_strange(squat);
    cr_assert_eq(logdir_claim_run(squat, "x", 1, 0600, &run, &err), -EPERM);
    expect_has(err.text, "uid 4321");
    cr_expect_eq(count_entries(squat), 0);
}

Test(logdir_io, a_plain_file_as_folder_is_refused_with_a_sentence) {
    const char *path = rig_text("%s/file", base);
    make_file(path);
    char *dir = NULL;
    struct err err = {0};
    cr_assert_eq(logdir_claim_run(path, "x", 1, 0600, &dir, &err), -ENOTDIR);
    assert_has(err.text, "is a file");
    cr_assert_eq(logdir_claim_run(rig_text("%s/below", path), "x", 1, 0600, &dir, &err), -ENOTDIR);
    cr_assert(logdir_is_null("/dev/null") && !logdir_is_null("/dev/nul"));
}

Test(logdir_io, latest_names_the_newest_generation) {
    static const struct {
        const char *set, *want;
    } steps[] = {{"1.1", "1.1"},   {"1.2", "1.2"}, {"1.10", "1.10"}, {"1.9", "1.10"},
                 {"1.10", "1.10"}, {"2.1", "2.1"}, {"1.11", "2.1"}};
    char got[64];
    const char *link = rig_text("%s/latest", base);
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        cr_assert_eq(logdir_set_latest(base, steps[i].set), 0);
        ssize_t n = readlink(link, got, sizeof got - 1);
        cr_assert(n > 0);
        got[n] = '\0';
        cr_assert_str_eq(got, steps[i].want);
    }
    cr_assert_eq(count_entries(base), 1);
}

Test(logdir_io, names_become_one_harmless_component) {
    static const struct {
        const char *name, *want;
    } cases[] = {
        {"job-1", "job-1"}, {"a/b", "a_b"},  {"../..", "_._.."}, {".", "_"},         {"", "_"},
        {"-rf", "_rf"},     {"a\nb", "a_b"}, {"/", "_"},         {"a.b c", "a.b c"},
    };
    char got[LOGDIR_NAME_MAX + 1];
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        logdir_sanitise(cases[i].name, got);
        cr_assert_str_eq(got, cases[i].want);
    }
    char name[LOGDIR_NAME_MAX + 3];
    memset(name, 'x', sizeof name);
    name[LOGDIR_NAME_MAX] = '\0';
    logdir_sanitise(name, got);
    cr_assert_str_eq(got, name, "at the limit");
    memcpy(name + LOGDIR_NAME_MAX - 1, "\xc3\xa9", 3);
    logdir_sanitise(name, got);
    cr_assert_eq(strlen(got), LOGDIR_NAME_MAX - 1, "no half character");
}

Test(logdir_io, further_agents_of_a_host_get_a_number) {
    char got[LOGDIR_NAME_MAX + 1], name[LOGDIR_NAME_MAX + 1];
    logdir_node_name("n1", 0, got);
    cr_assert_str_eq(got, "n1");
    logdir_node_name("n1", 1, got);
    cr_assert_str_eq(got, "n1-2");
    memset(name, 'x', sizeof name);
    name[LOGDIR_NAME_MAX] = '\0';
    logdir_node_name(name, 11, got);
    cr_assert_eq(strlen(got), LOGDIR_NAME_MAX);
    cr_assert_str_eq(got + LOGDIR_NAME_MAX - 3, "-12");
}
