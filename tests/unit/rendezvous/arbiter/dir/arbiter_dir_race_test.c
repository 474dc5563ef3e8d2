/* Many claimants at once, on real files: one winner for each epoch, one outcome for each job. */
#include "rendezvous/arbiter/dir/arbiter_dir_io.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/ptrace.h>

#include "arbiter_dir_rig.h"
#include "io/clock.h"
#include "rig/unit.h"

#define RACERS 3
#define RACES 1000

struct race {
    atomic_uint arrived; /* at all starting lines together */
    atomic_bool failed;
    uint8_t result[RACES + 2][RACERS];
    uint64_t winner[RACES + 2][RACERS]; /* as each was told */
};

static _Noreturn void run_racer(struct race *race, unsigned me) {
    struct arbiter_folder folder;
    arbiter_folder_init(&folder, rig_dir, RIG_RUN_ID, false);
    for (uint32_t epoch = 1; epoch <= RACES + 1; epoch++) {
        struct arbiter_dir_task task = {.deadline_ns = TIME_NEVER,
                                        .request = rig_request(ARBITER_CLAIM, epoch, me + 1)};
        if (epoch == RACES + 1) { /* and at last, who has the last word */
            task.request.kind = ARBITER_CLOSE;
            task.request.outcome = me % 2 == 0 ? OUTCOME_SUCCESS : OUTCOME_FAILED;
        }
        struct arbiter_dir_result result;
        atomic_fetch_add(&race->arrived, 1);
        while (atomic_load(&race->arrived) < epoch * RACERS)
            if (atomic_load(&race->failed))
                _exit(1);
            else
                (void)sched_yield();
        arbiter_folder_serve(&folder, &task, &result);
        if (result.result == ARBITER_UNREACHABLE) {
            (void)fprintf(stderr, "epoch %u: %s\n", epoch, result.text);
            atomic_store(&race->failed, true);
            _exit(1);
        }
        race->result[epoch][me] = (uint8_t)result.result;
        race->winner[epoch][me] = result.record.closed ? result.record.outcome : result.record.leader.incarnation;
    }
    arbiter_folder_fini(&folder);
    _exit(0);
}

Test(arbiter_dir_race, each_epoch_has_one_winner, .init = rig_begin_in_memory, .fini = rig_finish) {
    struct race *race = mmap(NULL, sizeof *race, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(race, MAP_FAILED);
    pid_t pids[RACERS];
    for (unsigned i = 0; i < RACERS; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            run_racer(race, i);
    }
    for (unsigned i = 0; i < RACERS; i++)
        cr_assert_eq(rig_status(pids[i]), 0);
    unsigned wins[RACERS] = {0};
    for (uint32_t epoch = 1; epoch <= RACES; epoch++) {
        unsigned won = 0;
        for (unsigned i = 0; i < RACERS; i++) {
            won += race->result[epoch][i] == ARBITER_OK;
            wins[i] += race->result[epoch][i] == ARBITER_OK;
            cr_assert_eq(race->winner[epoch][i], race->winner[epoch][0], "epoch %u", epoch);
            cr_assert_eq(race->result[epoch][i] == ARBITER_OK, race->winner[epoch][i] == i + 1);
        }
        cr_assert_eq(won, 1, "epoch %u has %u winners", epoch, won);
    }
    for (unsigned i = 0; i < RACERS; i++) {
        cr_assert_eq(race->winner[RACES + 1][i], race->winner[RACES + 1][0], "two outcomes");
        cr_assert_lt(wins[i], RACES, "nobody else ever won: that was no race");
    }
    (void)munmap(race, sizeof *race);
}

/* In memory that a traced process shares with its tracer. */
struct traced {
    struct arbiter_folder folder; /* its deadline can be moved while it is paused */
    struct arbiter_dir_result result;
};

static void serve_in(struct traced *t, const char *run_id, const struct arbiter_request *q) {
    struct arbiter_dir_task task = {.deadline_ns = TIME_NEVER, .request = *q};
    arbiter_folder_init(&t->folder, rig_dir, run_id, false);
    arbiter_folder_serve(&t->folder, &task, &t->result);
    arbiter_folder_fini(&t->folder);
}

/* Does one request in this process. */
static struct arbiter_dir_result serve(const char *run_id, const struct arbiter_request *q) {
    struct traced t;
    serve_in(&t, run_id, q);
    return t.result;
}

static struct arbiter_dir_result claim(const char *run_id, uint32_t epoch, uint64_t who) {
    return serve(run_id, AT(rig_request(ARBITER_CLAIM, epoch, who)));
}

/* A process that does a request and is stopped at the n-th entry into, or return from, the kernel.
 * False: it was done before that. */
static bool start_traced(const char *run_id, const struct arbiter_request *q, unsigned n, struct traced *shared,
                         pid_t *ret) {
    pid_t pid = fork();
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
            _exit(2);
        (void)raise(SIGSTOP);
        serve_in(shared, run_id, q);
        _exit(0);
    }
    int status;
    for (unsigned i = 0; i <= n; i++) {
        cr_assert_eq(waitpid(pid, &status, 0), pid);
        if (!WIFSTOPPED(status)) {
            cr_assert_eq(status, 0, "status %x: can't be traced?", (unsigned)status);
            return false;
        }
        if (i < n)
            cr_assert_eq(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
    }
    *ret = pid;
    return true;
}

enum { LEADER = 1, FIRST, SECOND };

/* What FIRST is at when it is cut or paused. */
static struct arbiter_request request_of(bool close) {
    struct arbiter_request q = *WITH(rig_request(close ? ARBITER_CLOSE : ARBITER_CLAIM, 2, FIRST),
                                     .outcome = close ? OUTCOME_SUCCESS : OUTCOME_NONE);
    return q;
}

/* FIRST's word of the outcome, asked again: the two agree on who has epoch 2, and so does everybody else. */
static void assert_settled(const char *run_id, const struct arbiter_request *q,
                           const struct arbiter_dir_result *second) {
    struct arbiter_dir_result again = serve(run_id, q);
    cr_assert_neq(again.result, ARBITER_UNREACHABLE, "%s", again.text);
    cr_assert_neq(again.result, second->result, "one of them");
    cr_assert_eq(again.record.leader.incarnation, second->record.leader.incarnation);
    cr_assert_eq(again.record.closed, second->record.closed);
    cr_assert_eq(again.record.epoch, 2);
    struct arbiter_dir_result old = serve(run_id, AT(rig_request(ARBITER_BEAT, 1, LEADER)));
    cr_assert_eq(old.result, ARBITER_OK, "%s", old.text);
    cr_assert_eq(old.record.epoch, 2);
    cr_assert_eq(old.record.leader.incarnation, second->record.leader.incarnation);
    struct arbiter_dir_result third = claim(run_id, 3, LEADER);
    cr_assert_eq(third.result, old.record.closed ? ARBITER_LOST : ARBITER_OK, "%s", third.text);
}

static struct traced *share(void) {
    struct traced *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(shared, MAP_FAILED);
    return shared;
}

/* Returns how many points there were. */
static unsigned cut_everywhere(bool close, bool pause) {
    struct traced *shared = share();
    struct arbiter_request q = request_of(close);
    unsigned n = 1;
    for (;; n++) {
        pid_t pid;
        const char *run_id = rig_text("cut-%d%d-%u", close, pause, n);
        cr_assert_eq(claim(run_id, 1, LEADER).result, ARBITER_OK);
        *shared = (struct traced){0};
        if (!start_traced(run_id, &q, n, shared, &pid))
            break;
        if (!pause)
            cr_assert_eq(kill(pid, SIGKILL), 0);
        int status;
        if (!pause)
            cr_assert_eq(waitpid(pid, &status, 0), pid);
        struct arbiter_dir_result second = claim(run_id, 2, SECOND);
        cr_assert_neq(second.result, ARBITER_UNREACHABLE, "at %u: %s", n, second.text);
        if (pause) {
            cr_assert_eq(ptrace(PTRACE_DETACH, pid, NULL, NULL), 0);
            cr_assert_eq(rig_status(pid), 0);
            cr_assert_neq(shared->result.result, second.result, "at %u: two winners, or none", n);
            cr_assert_eq(shared->result.record.leader.incarnation, second.record.leader.incarnation);
        }
        assert_settled(run_id, &q, &second);
    }
    cr_assert_eq(shared->result.result, ARBITER_OK);
    (void)munmap(shared, sizeof *shared);
    return n;
}

#define CUT_TEST(name, close, pause)                                                \
    Test(arbiter_dir_race, name, .init = rig_begin_in_memory, .fini = rig_finish) { \
        cr_assert_gt(cut_everywhere(close, pause), 50);                             \
    }
CUT_TEST(a_claimant_may_die_between_any_two_system_calls, false, false)
CUT_TEST(a_closer_may_die_between_any_two_system_calls, true, false)
CUT_TEST(a_claimant_may_be_paused_between_any_two_system_calls, false, true)
CUT_TEST(a_closer_may_be_paused_between_any_two_system_calls, true, true)

static bool has_epoch(const char *run_id, unsigned epoch) {
    return access(rig_text("%s/muster-%s/epoch-%u", rig_dir, run_id, epoch), F_OK) == 0;
}

/* Its time is over while it is between two system calls: it does not go on to its link, and once it
 * is linked it does not say that it won. */
Test(arbiter_dir_race, no_claim_is_made_or_won_after_its_time, .init = rig_begin_in_memory, .fini = rig_finish) {
    struct traced *shared = share();
    struct arbiter_request q = request_of(false);
    unsigned made_late = 0, late = 0, won = 0;
    for (unsigned n = 1;; n++) {
        pid_t pid;
        const char *run_id = rig_text("late-%u", n);
        cr_assert_eq(claim(run_id, 1, LEADER).result, ARBITER_OK);
        *shared = (struct traced){0};
        if (!start_traced(run_id, &q, n, shared, &pid))
            break;
        bool made = has_epoch(run_id, 2), begun = shared->folder.deadline_ns != 0;
        shared->folder.deadline_ns = 1;
        cr_assert_eq(ptrace(PTRACE_DETACH, pid, NULL, NULL), 0);
        cr_assert_eq(rig_status(pid), 0);
        if (!begun)
            continue; /* it set its deadline after us */
        made_late += !made && has_epoch(run_id, 2);
        late += shared->result.result == ARBITER_UNREACHABLE;
        won += shared->result.result == ARBITER_OK;
        cr_assert(shared->result.result == ARBITER_UNREACHABLE || made, "at %u", n);
        cr_assert_eq(serve(run_id, &q).result, ARBITER_OK);
    }
    cr_assert_leq(made_late, 3, "at most where it had entered the kernel with it");
    cr_assert_gt(late, 50);
    cr_assert_lt(won, 20, "only where nothing was left to do");
    (void)munmap(shared, sizeof *shared);
}
