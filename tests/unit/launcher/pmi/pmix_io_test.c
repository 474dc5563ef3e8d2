#include "launcher/pmi/pmi_io.h"

#include "launcher/pmi/pmix_abi.h"
#include "rig/unit.h"

/* Tests against a library without a server (tests/tools/fake_pmix.c); tests/e2e/test_mpirun.py has the real ones. */

#if __has_include(<pmix_common.h>)
#include <pmix_common.h>
#define SAME(ours, theirs) static_assert((ours) == (theirs), #theirs)
SAME(sizeof(struct pmix_process), sizeof(pmix_proc_t));
SAME(offsetof(struct pmix_process, rank), offsetof(pmix_proc_t, rank));
SAME(sizeof(struct pmix_text), sizeof(pmix_value_t));
SAME(offsetof(struct pmix_text, data), offsetof(pmix_value_t, data));
SAME(sizeof(((struct pmix_text *)0)->type), sizeof(pmix_data_type_t));
SAME(sizeof(pmix_scope_t), sizeof(uint8_t));
SAME(PMIX_OK, PMIX_SUCCESS);
SAME(PMIX_FAILED, PMIX_ERROR);
SAME(PMIX_LATE, PMIX_ERR_TIMEOUT);
SAME(PMIX_NONE, PMIX_ERR_NOT_FOUND);
SAME(PMIX_DONE_ALREADY, PMIX_OPERATION_SUCCEEDED);
SAME(PMIX_TYPE_STRING, PMIX_STRING);
SAME(PMIX_TO_ALL, PMIX_GLOBAL);

Test(pmix, keys_are_those_of_the_header) { cr_assert_str_eq(PMIX_KEY_HOSTNAME, PMIX_HOSTNAME); }
#endif

static char folder[] = "/tmp/muster-pmix.XXXXXX", prefix[64];
static struct pmi_tasks tasks;
static struct err err;

/* What PMIX_PREFIX names: the folder "lib" in it has the library. */
static void setup(void) {
    const char *path = getenv("FAKE_PMIX_LIBRARY");
    cr_assert(path != NULL, "FAKE_PMIX_LIBRARY must be the path of the library");
    cr_assert(mkdtemp(folder) != NULL && chdir(folder) == 0);
    cr_assert(mkdir("lib", 0700) == 0 && symlink(path, "lib/libpmix.so.2") == 0);
    (void)snprintf(prefix, sizeof prefix, "PMIX_PREFIX=%s", folder);
    tasks = (struct pmi_tasks){.n = 4, .own = "first,the-key"};
}
static void teardown(void) {
    pmi_tasks_fini(&tasks);
    cr_assert(unlink("lib/libpmix.so.2") == 0 && rmdir("lib") == 0 && rmdir(folder) == 0);
    cr_assert(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD, "a child is left");
}
TestSuite(pmix, .init = setup, .fini = teardown);

/* As the task of this rank. */
static int ask(uint32_t rank, const char *fake) {
    tasks.rank = rank;
    (void)setenv("PMIX_RANK", rig_text("%u", rank), 1);
    (void)setenv("FAKE_PMIX", fake, 1);
    char *const envp[] = {prefix, (char[]){"PMIX_NAMESPACE=fake@1"}, (char[]){"PMIX_RANK=0"},
                          (char[]){"PMIX_SERVER_URI41=x"}, NULL};
    return pmix_read(envp, &tasks, &err);
}

static void expect_cards(const char *a, const char *b, const char *c, const char *d) {
    const char *const expected[] = {a, b, c, d};
    for (size_t i = 0; i < 4; i++)
        cr_assert_str_eq(tasks.cards[i], expected[i]);
    cr_assert_str_eq(tasks.run_id, "fake@1");
}

static void again(void) {
    pmi_tasks_fini(&tasks);
    tasks = (struct pmi_tasks){.n = 4, .own = "first,the-key"};
}

Test(pmix, hosts_are_the_servers_and_the_key_is_that_of_task_0) {
    for (uint32_t rank = 0; rank < 4; rank += 3) {
        cr_assert_eq(ask(rank, ""), 0, "%s", err.text);
        expect_cards("node0,the-key", "node0", "node1", "node1");
        again();
    }
}

/* slow-card: the fence did not wait for it, so it is asked for again. */
Test(pmix, hosts_that_the_server_has_forgotten_are_in_the_cards) {
    static const char *const servers[] = {"no-hosts", "no-hosts slow-card"};
    for (size_t i = 0; i < ARRAY_SIZE(servers); i++) {
        cr_assert_eq(ask(0, servers[i]), 0, "%s", err.text);
        expect_cards("first,the-key", "card1", "card2", "card3");
        again();
    }
}

Test(pmix, an_error_is_a_sentence) {
    static const char *const cases[][2] = {{"PMIx_Init=fail",
                                            "the PMIx server of this task (PMIX_NAMESPACE) does not answer: "
                                            "UNREACHABLE; give --standalone if it is of another job"},
                                           {"PMIx_Commit=fail", "does not answer: UNREACHABLE"},
                                           {"PMIx_Fence=fail", "waiting for all tasks by PMIx failed: UNREACHABLE"},
                                           {"PMIx_Get=fail", "PMIx_Get of task 0 failed: UNREACHABLE"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cr_assert_eq(ask(0, cases[i][0]), -EPROTO, "%s", cases[i][0]);
        assert_has(err.text, cases[i][1]);
        again();
    }
}

Test(pmix, a_library_that_crashes_ends_only_its_helper) {
    cr_assert_eq(ask(0, "PMIx_Init=crash"), -EIO);
    cr_assert_str_eq(err.text, "the process that asked the PMIx server crashed in libpmix.so.2");
    again();
    cr_assert_eq(ask(0, "PMIx_Finalize=crash"), -EIO);
}

static void expect_given_up(const char *server) {
    cr_assert_eq(ask(0, server), -ETIMEDOUT);
    cr_assert_str_eq(err.text, "the PMIx server of this task did not answer in 8 s");
}

Test(pmix, a_server_that_hangs_is_given_up) { expect_given_up("PMIx_Init=hang"); }

Test(pmix, a_server_that_hangs_later_is_given_up) { expect_given_up("PMIx_Get=hang"); }

Test(pmix, a_server_that_hangs_while_tasks_are_late_is_given_up) { expect_given_up("late PMIx_Get=hang"); }

Test(pmix, without_a_library_the_sentence_has_what_to_do) {
    char *const envp[] = {(char[]){"PMIX_NAMESPACE=fake@1"}, (char[]){"PMIX_RANK=0"}, (char[]){"PMIX_SERVER_URI2=x"},
                          (char[]){"OMPI_LIBDIR_LOC=relative"}, NULL};
    int r = pmix_read(envp, &tasks, &err);
    cr_assert_eq(r, -EPROTO); /* no library, or, where Debian's is installed, no server */
    cr_assert(strstr(err.text, "find each other by PMIx, but libpmix.so.2: ") != NULL ||
                  strstr(err.text, "does not answer") != NULL,
              "%s", err.text);
}

Test(pmix, without_a_servers_address_there_is_no_server) {
    char *const envp[] = {prefix, (char[]){"PMIX_NAMESPACE=fake@1"}, (char[]){"PMIX_RANK=0"}, NULL};
    cr_assert_eq(pmix_read(envp, &tasks, &err), -ENOENT);
}
