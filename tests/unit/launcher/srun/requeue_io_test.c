#include "launcher/srun/requeue_io.h"

#include "base/text/strbuf.h"
#include "io/file.h"
#include "io/process/reaper.h"
#include "rig/tree.h"

/* Notes what it is asked. Refuses a request as often as a file of its name has lines. */
#define SCONTROL                                                                                              \
    "#!/bin/sh\n"                                                                                             \
    "d=${0%/*}\n"                                                                                             \
    "ask() {\n"                                                                                               \
    "    echo \"$*\" >> $d/asked\n"                                                                           \
    "    if [ -s $d/$1 ]; then sed -i 1d $d/$1; echo \"no $1\" >&2; return 1; fi\n"                           \
    "    [ $1 != requeue ] || echo 3 > $d/restarts\n"                                                         \
    "    [ $1 != show ] || echo \"JobId=17 JobState=RUNNING Reason=None Requeue=1 Restarts=$(cat "            \
    "$d/restarts)\" \"BatchFlag=1 PreemptTime=None ExcNodeList=node9 Command=/x\"\n"                          \
    "}\n"                                                                                                     \
    "echo begin >> $d/asked\n"                                                                                \
    "if [ $# -gt 0 ]; then ask \"$@\"; exit; fi\n"                                                            \
    "status=0\n"                                                                                              \
    "while read -r line && [ \"$line\" != quit ]; do echo \"scontrol: $line\"; ask $line || status=1; done\n" \
    "exit $status\n"

#define SHOW "begin\nshow job --oneliner 17\n"
#define BOTH "begin\nrequeue 17\nupdate JobId=17 ExcNodeList=node9,node2\n"

static struct tree tree;
static struct loop *loop;
static struct child_reaper *reaper;
static uint32_t status;

static void setup(void) {
    tree_new(&tree);
    tree_write(&tree, "scontrol", SCONTROL);
    tree_write(&tree, "restarts", "2\n");
    cr_assert_eq(chmod(tree_at(&tree, "scontrol"), 0755), 0);
    cr_assert_eq(setenv("PATH", rig_text("%s:%s", tree.root, getenv("PATH")), 1), 0);
    cr_assert_eq(loop_new(&loop), 0);
    reaper = child_reaper_new(loop);
}

static void teardown(void) {
    child_reaper_free(reaper);
    loop_free(loop);
    tree_remove(&tree);
}

TestSuite(requeue_io, .init = setup, .fini = teardown);

static void on_done(void *arg, uint32_t s) {
    status = s;
    loop_quit(loop);
}

/* The end of a job whose nodes were lost: what scontrol was asked. */
static char *asked_of(const char *lost, uint32_t end_status) {
    static char id[] = "17";
    static const struct job_spec spec = {
        .requeue = REQUEUE_NODE_FAIL, .max_requeues = 10, .place = {.job_id = id, .restarts = 2}};
    struct requeue *r;
    char *text = NULL;
    size_t len;
    const char *path = tree_at(&tree, "asked");
    r = requeue_new(loop, &spec, on_done, NULL);
    requeue_begin(r, end_status, true, lost);
    cr_assert_eq(loop_run(loop), 0);
    requeue_free(r);
    cr_assert_eq(file_read_text(path, 4096, &text, &len), 0);
    return text;
}

Test(requeue_io, nothing_is_asked_twice_without_lost_nodes) {
    _cleanup_(freep) char *asked = asked_of("", REQUEUE_EXIT_STATUS);
    cr_assert_str_eq(asked, SHOW "begin\nrequeue 17\n");
    cr_assert_eq(status, REQUEUE_EXIT_STATUS);
}

/* Slurm kills the job soon after it has taken the first one. */
Test(requeue_io, one_scontrol_requeues_and_tells_which_nodes_to_avoid) {
    _cleanup_(freep) char *asked = asked_of("node2", REQUEUE_EXIT_STATUS);
    cr_assert_str_eq(asked, SHOW BOTH);
}

Test(requeue_io, nodes_to_avoid_are_told_again_if_only_that_failed) {
    tree_write(&tree, "update", "once\n");
    _cleanup_(freep) char *asked = asked_of("node2", REQUEUE_EXIT_STATUS);
    cr_assert_str_eq(asked, SHOW BOTH SHOW "begin\nupdate JobId=17 ExcNodeList=node9,node2\n");
    cr_assert_eq(status, REQUEUE_EXIT_STATUS);
}

Test(requeue_io, a_job_that_slurm_does_not_requeue_ends_so_that_it_may) {
    tree_write(&tree, "requeue", "once\n");
    _cleanup_(freep) char *asked = asked_of("node2", REQUEUE_EXIT_STATUS);
    cr_assert_str_eq(asked, SHOW BOTH SHOW);
    cr_assert_eq(status, REQUEUE_EXIT_STATUS);
}

Test(requeue_io, nothing_is_asked_of_a_job_that_a_worker_ended) {
    _cleanup_(freep) char *asked = asked_of("node2", 1);
    cr_assert_str_eq(asked, SHOW);
    cr_assert_eq(status, 1);
}
