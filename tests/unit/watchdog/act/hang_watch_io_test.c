/* The watchdog of a node. Its workers are made by this file. */
#include "watchdog/act/hang_watch_io.h"

#include <sys/resource.h>

#include "base/text/log.h"
#include "io/process/proc.h"
#include "launcher/supervise/sweep_io.h"
#include "rig/loop_rig.h"
#include "watchdog/act/hang_evidence_io.h"
#include "watchdog/act/hang_leader_io.h"
#include "watchdog/evidence/disturb.h"
#include "watchdog/evidence/gather_io.h"
#include "watchdog/look/signs.h"

#define WORKERS 2
#define FIRST_RANK 4

struct local_workers {
    pid_t pids[WORKERS];
    bool held[WORKERS];
};

static pid_t pid_of(const struct local_workers *w, uint32_t local_rank) { return w->pids[local_rank]; }
static bool any(const struct local_workers *w) { return w->pids[0] > 0; }
static struct worker_announced announced(const struct local_workers *w, uint32_t local_rank, uint64_t now_ns) {
    (void)w, (void)local_rank, (void)now_ns;
    return (struct worker_announced){0};
}
static bool is_held(const struct local_workers *w, uint32_t local_rank) { return w->held[local_rank]; }
static uint16_t store_port(const struct local_workers *w) { return 0; }
static bool env(const struct local_workers *w, uint32_t local_rank, struct envlist *ret) {
    (void)w, (void)local_rank, (void)ret;
    return false;
}
static const char *node_dir(const struct local_workers *w) { return NULL; }
static void spare(struct spare *s, pid_t pid) { (void)s, (void)pid; }
static bool spared(struct spare *s, const char *name) {
    (void)s, (void)name;
    return false;
}
static char *log_path(const struct local_workers *w, uint32_t local_rank, int stream) {
    (void)w, (void)local_rank, (void)stream;
    return NULL;
}

static const struct hang_workers_ops workers_ops = {.pid = pid_of,
                                                    .any = any,
                                                    .announced = announced,
                                                    .is_held = is_held,
                                                    .env = env,
                                                    .log_path = log_path,
                                                    .store_port = store_port,
                                                    .node_dir = node_dir,
                                                    .spare = spare,
                                                    .spared = spared};

static const struct generation running = {1, 1};
static struct local_workers workers;
static struct loop *loop;
static struct hang_watch *watch;
static uint64_t leader_now = 1;
static struct rdzv_signs told;              /* last */
static struct rdzv_evidence answer;         /* first */
static unsigned answered, gathered, refuse; /* refuse: so many pieces, before one is taken */
static struct rdzv_client *client = (struct rdzv_client *)&workers;

static void on_signs(struct rdzv_client *to, const struct rdzv_signs *signs) {
    cr_assert_eq(to, client);
    told = *signs;
    loop_quit(loop);
}
static uint64_t leader(const struct rdzv_client *of) {
    cr_assert_eq(of, client);
    return leader_now;
}
static bool on_evidence(struct rdzv_client *to, const struct rdzv_evidence *piece) {
    cr_assert_eq(to, client);
    if (refuse > 0) {
        refuse--;
        return false;
    }
    if (answered == 0) /* short ones come in one piece */
        answer = *piece;
    answered++;
    loop_quit(loop);
    return true;
}
static void on_gathered(void *arg) {
    cr_expect_eq(answered, 1U, "the answer comes first");
    gathered++;
    loop_quit(loop);
}

static void begin(void) {
    static const struct hang_watch_ops ops = {
        .signs = on_signs, .leader = leader, .evidence = on_evidence, .gathered = on_gathered};
    static const struct hang_watch_config config = {.client = &client,
                                                    .settings = {.action = HANG_ACTION_RESTART},
                                                    .nproc = WORKERS,
                                                    .host = "a",
                                                    .workers = {.ops = &workers_ops, .of = &workers}};
    cr_assert_eq(loop_new(&loop), 0);
    watch = hang_watch_new(loop, &config, &ops, NULL);
    for (uint32_t i = 0; i < WORKERS; i++) {
        workers.pids[i] = fork();
        cr_assert_geq(workers.pids[i], 0);
        for (; workers.pids[i] == 0;) {
            (void)alarm(120);
            (void)pause();
        }
    }
    hang_watch_start(watch, running, &(struct form){.first_rank = FIRST_RANK});
}

static void finish(void) {
    hang_watch_free(watch);
    loop_free(loop);
    for (uint32_t i = 0; i < WORKERS; i++)
        if (workers.pids[i] > 0) {
            (void)kill(workers.pids[i], SIGKILL);
            (void)waitpid(workers.pids[i], NULL, 0);
        }
}
TestSuite(hang_watch_io, .init = begin, .fini = finish);

static void send_suspect(struct generation g, uint32_t rank, uint64_t timeout_ns) {
    hang_watch_message(watch,
                       &(struct wire_message){
                           .kind = WIRE_SUSPECTS,
                           .suspects = {.generation = g, .id = 7, .timeout_ns = timeout_ns, .n = 1, .ranks = {rank}}});
}

/* The rank is a suspect, and the stop that follows is for the hang. */
static void end_rank(uint32_t rank) { send_suspect(running, rank, 0); }

Test(hang_watch_io, a_suspect_is_ended_by_sigabrt) {
    end_rank(FIRST_RANK + 1);
    cr_assert_eq(hang_watch_suspects(watch), 1);
    hang_watch_end_suspects(watch);
    cr_expect_eq(rig_status(workers.pids[1]), -SIGABRT);
    workers.pids[1] = 0;
    cr_expect_eq(hang_watch_suspects(watch), 0);
    cr_expect_eq(waitpid(workers.pids[0], NULL, WNOHANG), 0);
}

/* The leader was lost between its two words, and the next one stops the group for another reason. */
Test(hang_watch_io, the_stop_of_another_leader_ends_nobody_as_a_suspect) {
    end_rank(FIRST_RANK + 1);
    leader_now = 0;
    cr_expect_eq(hang_watch_suspects(watch), 0);
    leader_now = 2;
    cr_expect_eq(hang_watch_suspects(watch), 0);
    hang_watch_end_suspects(watch);
    leader_now = 1;
    cr_expect_eq(hang_watch_suspects(watch), 1, "it has got nothing");
}

Test(hang_watch_io, ranks_of_other_nodes_and_groups_are_no_suspects) {
    end_rank(FIRST_RANK - 1);
    cr_expect_eq(hang_watch_suspects(watch), 0);
    end_rank(FIRST_RANK + WORKERS);
    cr_expect_eq(hang_watch_suspects(watch), 0);
    send_suspect((struct generation){1, 2}, FIRST_RANK, 0);
    cr_expect_eq(hang_watch_suspects(watch), 0);
}

Test(hang_watch_io, a_worker_whose_output_nobody_reads_is_told_as_such) {
    workers.held[1] = true;
    rig_loop_until(loop, told.n == WORKERS); /* they have been still for some seconds */
    cr_expect_eq(told.list[0].flags & (SIGN_HELD | SIGN_MOVED), 0U);
    cr_expect_eq(told.list[1].flags & (SIGN_HELD | SIGN_MOVED), (uint32_t)SIGN_HELD);
}

static char logged[512];
static unsigned n_logged;

static void on_log(void *arg, const char *line, size_t len) {
    (void)snprintf(logged, sizeof logged, "%.*s", (int)len, line);
    n_logged++;
}

Test(hang_watch_io, too_few_descriptors_are_told_once_and_workers_are_seen_when_there_are_more) {
    struct wire_message ask = {.kind = WIRE_ASK, .ask = {.generation = running, .id = 7, .timeout_ns = 60 * NS_PER_S}};
    struct rlimit usual;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &usual), 0);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = 3, .rlim_max = usual.rlim_max}), 0);
    log_set_sink(on_log, NULL);
    rig_loop_until(loop, told.n == WORKERS);
    cr_expect_eq(told.list[0].flags, (uint32_t)(SIGN_MOVED | SIGN_UNSEEN));
    cr_expect_eq(n_logged, 1U);
    expect_has(logged, "the limit of open files (3) is too low to watch the workers");
    hang_watch_message(watch, &ask);
    cr_expect(answered == 1 && answer.last);
    expect_has(answer.text, "nothing could be gathered: the limit of open files is too low");
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &usual), 0);
    rig_loop_until(loop, (told.list[0].flags & SIGN_MOVED) == 0);
    cr_expect_eq(told.list[0].flags & SIGN_UNSEEN, 0U);
    cr_expect_eq(n_logged, 1U, "%s", logged);
    log_set_sink(NULL, NULL);
}

/* There is nothing to gather. */
static void ask_about_others(uint32_t id) {
    hang_watch_message(watch, &(struct wire_message){.kind = WIRE_ASK, .ask = {.id = id, .timeout_ns = 1}});
}

Test(hang_watch_io, a_piece_that_is_refused_comes_again) {
    refuse = 3;
    ask_about_others(7);
    cr_assert_eq(answered, 0);
    rig_loop_until(loop, answered > 0);
    cr_expect(answer.id == 7 && answer.first && answer.last && answer.text[0] == '\0');
}

Test(hang_watch_io, an_answer_that_is_not_sent_yet_ends_with_the_next_question) {
    refuse = 1;
    ask_about_others(7);
    ask_about_others(8);
    cr_expect(answered == 1 && answer.id == 8);
    rig_loop_turns(loop, 50);
    cr_expect_eq(answered, 1U);
}

Test(hang_watch_io, an_answer_is_not_sent_for_ever) {
    uint64_t end_ns = clock_now_ns() + NS_PER_S + 100 * NS_PER_MS;
    refuse = UINT32_MAX;
    ask_about_others(7);
    rig_loop_until(loop, clock_now_ns() >= end_ns);
    cr_expect_lt(refuse, UINT32_MAX - 1);
    refuse = 0;
    rig_loop_turns(loop, 50);
    cr_expect_eq(answered, 0U);
}

/* Until it can be seen what a worker waits for, which has just been made. */
static void until_it_waits(pid_t pid) {
    char wchan[64] = "0";
    for (uint64_t end_ns = clock_now_ns() + 30 * NS_PER_S; strcmp(wchan, "0") == 0 && clock_now_ns() < end_ns;) {
        ssize_t n = proc_read(pid, "/wchan", wchan, sizeof wchan - 1);
        wchan[MAX2(n, 0)] = '\0';
    }
}

/* Without eu-stack that is said. */
Test(hang_watch_io, a_stop_waits_until_native_stacks_are_read) {
    (void)setenv("PATH", "/nowhere", 1);
    until_it_waits(workers.pids[1]);
    send_suspect(running, FIRST_RANK + 1, 60 * NS_PER_S);
    cr_expect(hang_watch_holds(watch));
    cr_expect_eq(hang_watch_suspects(watch), 1);
    hang_watch_stop(watch);
    rig_loop_until(loop, gathered > 0);
    cr_expect_not(hang_watch_holds(watch));
    cr_expect(answer.id == 7 && answer.first && answer.last);
    cr_expect(strstr(answer.text, "\"rank\":5") != NULL && strstr(answer.text, "\"rank\":4") == NULL, "%s",
              answer.text);
    expect_has(answer.text, "eu-stack is not installed");
    cr_expect_eq(kill(workers.pids[1], 0), 0, "it is ended by the caller");
}

/* The job is ended by its user. */
Test(hang_watch_io, nobody_waits_for_native_stacks_of_a_job_that_is_ended) {
    send_suspect(running, FIRST_RANK + 1, 60 * NS_PER_S);
    answered = 1; /* there is none */
    hang_watch_message(watch, &(struct wire_message){.kind = WIRE_PROCEED});
    cr_expect_eq(gathered, 1U);
    cr_expect_not(hang_watch_holds(watch));
    cr_expect_eq(hang_watch_suspects(watch), 0);
}

Test(hang_watch_io, helpers_that_a_disk_can_hold_have_the_names_by_which_they_are_spared) {
    cr_expect_eq(strncmp(HANG_COMPARE_NAME, "muster-", 7), 0);
    cr_expect_eq(strncmp(HANG_ADD_NAME, "muster-", 7), 0);
    cr_expect_eq(strncmp(GATHER_LOG_NAME, "muster-", 7), 0);
    cr_expect_eq(strncmp(GATHER_RECORDER_NAME, "muster-", 7), 0);
}
