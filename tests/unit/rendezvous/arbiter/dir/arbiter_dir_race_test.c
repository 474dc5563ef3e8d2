/* Many claimants at once, on real files: one winner for each epoch, one outcome for each job. */
#include "rendezvous/arbiter/dir/arbiter_dir_io.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/ptrace.h>

#include "arbiter_dir_rig.h"
#include "base/prng.h"
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
    struct arbiter_dir_server server;
    arbiter_dir_server_init(&server, rig_dir, RIG_RUN_ID, false);
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
        arbiter_dir_serve(&server, &task, &result);
        if (result.result == ARBITER_UNREACHABLE) {
            (void)fprintf(stderr, "epoch %u: %s\n", epoch, result.text);
            atomic_store(&race->failed, true);
            _exit(1);
        }
        race->result[epoch][me] = (uint8_t)result.result;
        race->winner[epoch][me] = result.record.closed ? result.record.outcome : result.record.leader.incarnation;
    }
    arbiter_dir_server_fini(&server);
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
    for (unsigned i = 0; i < RACERS; i++) {
        cr_assert_eq(rig_status(pids[i]), 0);
    }
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
    struct arbiter_dir_server server; /* its deadline can be moved while it is paused */
    struct arbiter_dir_result result;
};

static void serve_in(struct traced *t, const char *run_id, const struct arbiter_request *q) {
    struct arbiter_dir_task task = {.deadline_ns = TIME_NEVER, .request = *q};
    arbiter_dir_server_init(&t->server, rig_dir, run_id, false);
    arbiter_dir_serve(&t->server, &task, &t->result);
    arbiter_dir_server_fini(&t->server);
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

/* FIRST's word of the outcome, asked again: the two agree on who has epoch 2, and so does everybody
 * else. */
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
        bool made = has_epoch(run_id, 2), begun = shared->server.deadline_ns != 0;
        shared->server.deadline_ns = 1;
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

#define CLAIMANTS 3
#define REQUESTS 150
#define EPOCHS_MAX 1000
#define HANG_NS (50 * NS_PER_MS)

struct told {
    uint64_t leader[EPOCHS_MAX]; /* of each epoch, in whatever answer; 0: not told yet */
    uint64_t winner[EPOCHS_MAX]; /* who was told that it won */
    enum outcome outcome;        /* of the close */
    uint32_t closed;             /* its epoch */
    uint32_t latest;             /* the highest told */
    unsigned results[ARBITER_RESULT_COUNT];
};

struct claimant {
    struct arbiter *arbiter;
    uint32_t knows; /* the latest that it was told */
    bool stopped;
    struct told *told;
    uint64_t floor; /* the highest epoch told to anybody before its request */
    uint64_t who;
};

static unsigned open_requests;

static void check_record(struct told *t, const struct arbiter_record *r) {
    cr_assert_lt(r->epoch, EPOCHS_MAX);
    t->latest = MAX2(t->latest, r->epoch);
    if (r->closed) {
        cr_assert(t->closed == 0 || (t->closed == r->epoch && t->outcome == r->outcome), "two outcomes");
        t->closed = r->epoch;
        t->outcome = r->outcome;
    } else if (r->epoch > 0) {
        cr_assert(t->leader[r->epoch] == 0 || t->leader[r->epoch] == r->leader.incarnation, "two leaders of epoch %u",
                  r->epoch);
        t->leader[r->epoch] = r->leader.incarnation;
        cr_assert(t->closed == 0 || r->epoch < t->closed, "epoch %u after the close", r->epoch);
    }
}

static void on_answer(void *arg, const struct arbiter_answer *answer) {
    struct claimant *c = arg;
    struct told *t = c->told;
    const struct arbiter_record *r = &answer->record;
    t->results[answer->result]++;
    if (answer->result != ARBITER_UNREACHABLE) {
        check_record(t, r);
        cr_assert_geq(r->epoch, c->floor, "%lu was told before this was asked", c->floor);
        c->knows = MAX2(c->knows, r->epoch);
    }
    if (answer->result == ARBITER_OK && answer->request.kind == ARBITER_CLAIM) {
        cr_assert_eq(r->epoch, answer->request.epoch);
        cr_assert(t->winner[r->epoch] == 0 || t->winner[r->epoch] == c->who, "two winners");
        t->winner[r->epoch] = c->who;
    }
    if (answer->result == ARBITER_OK && answer->request.kind == ARBITER_CLOSE)
        cr_assert(r->closed && r->outcome == answer->request.outcome);
    if (--open_requests == 0)
        loop_quit(rig_loop);
}

static void disturb(struct claimant *c, struct prng *rng) {
    pid_t pid = arbiter_dir_child_pid(c->arbiter);
    if (pid == 0)
        return;
    if (c->stopped) {
        (void)kill(pid, SIGCONT);
        c->stopped = false;
    } else if (prng_below(rng, 3) == 0) {
        (void)kill(pid, SIGSTOP);
        c->stopped = true;
    } else {
        (void)kill(pid, SIGKILL);
    }
}

static void ask_something(struct claimant *c, struct prng *rng, bool may_close) {
    static const enum arbiter_kind kinds[] = {ARBITER_READ, ARBITER_CLAIM, ARBITER_CLAIM, ARBITER_BEAT};
    struct arbiter_request q = rig_request(kinds[prng_below(rng, 4)], c->knows, c->who);
    if (q.kind == ARBITER_CLAIM)
        q.epoch = c->knows + 1 - (uint32_t)prng_below(rng, 2);
    if (may_close && prng_below(rng, 20) == 0) {
        q.kind = ARBITER_CLOSE;
        q.epoch = c->knows + (uint32_t)prng_below(rng, 2);
        q.outcome = prng_below(rng, 2) == 0 ? OUTCOME_SUCCESS : OUTCOME_FAILED;
    }
    c->floor = c->told->latest;
    open_requests++;
    arbiter_ask(c->arbiter, &q, on_answer, c);
}

static void run_seed(uint64_t seed) {
    struct prng rng = {.state = seed};
    static struct told told;
    struct claimant claimants[CLAIMANTS] = {0};
    memset(&told, 0, sizeof told);
    for (uint64_t i = 0; i < CLAIMANTS; i++)
        claimants[i] = (struct claimant){.arbiter = rig_arbiter(HANG_NS), .told = &told, .who = i + 1};
    for (unsigned n = 0; n < REQUESTS; n++) {
        if (prng_below(&rng, 6) == 0)
            disturb(&claimants[prng_below(&rng, CLAIMANTS)], &rng);
        /* All ask at once; one of them may be killed in the middle of it. */
        for (unsigned i = 0; i < CLAIMANTS; i++)
            ask_something(&claimants[i], &rng, n > REQUESTS / 2);
        for (uint64_t spin = prng_below(&rng, 3000); spin > 0; spin--)
            (void)sched_yield();
        if (prng_below(&rng, 4) == 0)
            disturb(&claimants[prng_below(&rng, CLAIMANTS)], &rng);
        cr_assert_eq(loop_run(rig_loop), 0);
    }
    for (unsigned i = 0; i < CLAIMANTS; i++) {
        if (claimants[i].stopped)
            disturb(&claimants[i], &rng);
        arbiter_free(claimants[i].arbiter);
    }
    /* What a new one finds is what was told. */
    struct arbiter *fresh = rig_arbiter(0);
    struct arbiter_answer answer = rig_read(fresh);
    cr_assert_eq(answer.result, ARBITER_OK, "%s", answer.text);
    cr_assert_geq(answer.record.epoch, told.latest);
    check_record(&told, &answer.record);
    arbiter_free(fresh);
    for (uint32_t e = 1; e < EPOCHS_MAX; e++)
        cr_assert(told.winner[e] == 0 || told.winner[e] == told.leader[e]);
    cr_assert_gt(told.results[ARBITER_OK], 0);
    cr_assert_gt(told.results[ARBITER_LOST], 0);
    cr_assert_gt(told.results[ARBITER_UNREACHABLE], 0, "nothing was disturbed");
    (void)fprintf(stderr, "seed %lu: %u epochs, %u ok, %u lost, %u unreachable, closed %u\n", (unsigned long)seed,
                  answer.record.epoch, told.results[ARBITER_OK], told.results[ARBITER_LOST],
                  told.results[ARBITER_UNREACHABLE], told.closed);
}

ParameterizedTestParameters(arbiter_dir_race, random_requests_and_deaths) {
    static uint64_t seeds[] = {1, 2, 3, 4};
    static uint64_t given;
    const char *text = getenv("SEED");
    given = text != NULL ? strtoull(text, NULL, 10) : 0;
    return text != NULL ? cr_make_param_array(uint64_t, &given, 1)
                        : cr_make_param_array(uint64_t, seeds, ARRAY_SIZE(seeds));
}
ParameterizedTest(uint64_t *seed, arbiter_dir_race, random_requests_and_deaths, .init = rig_begin_in_memory,
                  .fini = rig_finish) {
    run_seed(*seed);
}
