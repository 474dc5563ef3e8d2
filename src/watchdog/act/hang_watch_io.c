#include "watchdog/act/hang_watch_io.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "base/text/log.h"
#include "base/text/strbuf.h"
#include "io/clock.h"
#include "io/process/helper_call.h"
#include "io/process/proc.h"
#include "rendezvous/protocol/wire.h"
#include "watchdog/act/hang_evidence_io.h"
#include "watchdog/evidence/disturb.h"
#include "watchdog/evidence/gather_io.h"
#include "watchdog/evidence/slow.h"
#include "watchdog/look/gpus.h"
#include "watchdog/profile/sampler_io.h"

#define TICK_NS (1 * NS_PER_S)
/* Workers that are looked at in one callback: 3 ms. */
#define PART 64
#define AGAIN_NS (20 * NS_PER_MS)     /* until an answer is sent further */
#define WATCHED_MAX SIGNS_WORKERS_MAX /* further workers count as moving */

/* A suspect that is to be ended. */
struct ending {
    uint32_t local_rank;
    bool signalled;   /* it, or its program, has got SIGABRT */
    pid_t program;    /* below the worker, which is stopped until that has ended; 0: none */
    uint64_t started; /* the program, proc_stat.start */
};

/* Work on an ASK or a SUSPECTS, and the answer. */
struct work {
    struct hang_watch *watch;
    struct helper_call *helper; /* NULL: none is under way */
    uint32_t id;
    bool holds;                    /* a stop waits for it */
    uint64_t began_ns, give_up_ns; /* the answer is not awaited then */
    struct strbuf answer;          /* what is not sent yet begins at `sent` */
    size_t sent;
    struct loop_timer *timer; /* of the next try */
};
/* By enum rdzv_ask_what, and: native stacks of suspects, which are read before these are ended. */
enum { EVIDENCE = ASK_STACKS, NATIVE = ASK_WHAT_COUNT, N_WORK };

struct hang_watch {
    struct loop *loop;
    struct hang_watch_config config;
    struct hang_watch_ops ops;
    void *arg;
    struct loop_timer *timer;
    struct generation generation; /* whose workers are watched; none: nothing is */
    uint64_t began_ns;            /* when they were started */
    uint32_t first_rank, n;       /* n: workers that are watched */
    bool alone;                   /* the job has one rank */
    struct signs **parts;         /* [n_parts], of PART workers each, */
    struct slow **slow;           /* and the closer look at these */
    uint32_t n_parts, next_part;
    uint64_t tick_ns; /* when the present round began */
    struct signs_report rows;
    struct gpu_watch *gpus;
    struct work work[N_WORK];
    bool warned_unseen, warned_of_prompt;
    struct ending ends[RDZV_SUSPECTS_MAX];
    uint32_t n_ends;
    uint64_t ends_leader; /* the one that sent them: another one's stop is not for a hang */
};

/* ---- what is reported to the leader ---- */

static void send_rows(struct hang_watch *w, const struct worker_signs *rows, size_t n) {
    struct rdzv_signs m = {.generation = w->generation};
    for (size_t i = 0; i < n; i++) {
        m.list[m.n++] = rows[i];
        if (m.n == RDZV_SIGNS_CHUNK || i + 1 == n) {
            w->ops.signs(*w->config.client, &m);
            m.n = 0;
        }
    }
}

static pid_t pid_of(const struct hang_watch *w, uint32_t local_rank) {
    return w->config.workers.ops->pid(w->config.workers.of, local_rank);
}

static struct worker_announced announced(const struct hang_watch *w, uint32_t local_rank) {
    return w->config.workers.ops->announced(w->config.workers.of, local_rank, clock_now_ns());
}

/* Once. A debugger's prompt goes to standard output. */
static void warn_of_hidden_prompt(struct hang_watch *w, uint32_t local_rank) {
    const char *why =
        w->warned_of_prompt ? NULL : w->config.hides_prompt(w->config.spec, local_rank);
    if (why == NULL)
        return;
    w->warned_of_prompt = true;
    log_warning("rank %u waits for input, but %s", w->first_rank + local_rank, why);
}

/* What is known of a worker that is watched. */
static struct signs_seen see(const struct hang_watch *w, uint32_t local_rank) {
    return w->n_parts == 0 ? (struct signs_seen){0}
                           : signs_see(w->parts[local_rank / PART], w->first_rank + local_rank);
}

/* Links that are silent show that a worker waits only if it can wait for other ranks: a kernel that
 * computes does not use them. */
static bool can_wait_in_nccl(const struct hang_watch *w, const struct worker_signs *row) {
    return !w->alone && slow_has_nccl(w->slow[(row->rank - w->first_rank) / PART], row->rank);
}

static void report(struct hang_watch *w, uint64_t now) {
    _cleanup_(freep) struct worker_signs *rows = xcalloc(MAX2(w->n, 1u), sizeof *rows);
    uint64_t still = 0;
    bool spins = false;
    size_t n = 0;
    for (uint32_t p = 0; p < w->n_parts; p++) {
        still = MAX2(still, signs_still_ns(w->parts[p], now));
        n += signs_rows(w->parts[p], now, rows + n, w->n - n);
    }
    for (size_t i = 0; i < n; i++)
        spins = spins || ((rows[i].flags & SIGN_SPINS) != 0 && can_wait_in_nccl(w, &rows[i]));
    gpu_watch_tick(w->gpus, now, spins);
    for (size_t i = 0; i < n; i++) {
        uint32_t local_rank = rows[i].rank - w->first_rank;
        if ((rows[i].flags & SIGN_ENDED) == 0) {
            if (can_wait_in_nccl(w, &rows[i]))
                rows[i].flags |= gpu_watch_flags(w->gpus, see(w, local_rank).pid, now);
            if (w->config.workers.ops->is_held(w->config.workers.of, local_rank))
                rows[i].flags |= SIGN_HELD;
            if ((rows[i].flags & SIGN_ASKS) != 0)
                warn_of_hidden_prompt(w, local_rank);
        }
        struct worker_announced a = announced(w, local_rank);
        signs_report_add(&w->rows, &rows[i], &a, now);
    }
    if (signs_report_due(&w->rows, still, w->ops.leader(*w->config.client)))
        send_rows(w, rows, n);
}

/* ---- looking ---- */

/* Once. r: why workers cannot be checked; a machine that is too busy for it is not reported. */
static void warn_unseen(struct hang_watch *w, int r) {
    struct rlimit files;
    if (r == 0 || r == -ETIMEDOUT || w->warned_unseen)
        return;
    w->warned_unseen = true;
    if (r == -EMFILE && getrlimit(RLIMIT_NOFILE, &files) == 0)
        log_warning("the limit of open files (%llu) is too low to watch the workers: a hang can "
                    "go unnoticed here; raise the limit with ulimit -n",
                    (unsigned long long)files.rlim_cur);
    else
        log_warning("cannot watch the workers, so a hang can go unnoticed here: %s",
                    helper_call_why(r));
}

/* Workers start in several turns of the loop, and end at any time. */
static void look_at_part(struct hang_watch *w, uint32_t p, uint64_t now) {
    for (uint32_t i = p * PART; i < MIN2((p + 1) * PART, w->n); i++) {
        uint32_t rank = w->first_rank + i;
        pid_t pid = pid_of(w, i), watched = see(w, i).pid;
        if (watched == 0 && pid > 0)
            (void)!signs_add(w->parts[p], rank, pid, now); /* or it comes with a later sample */
        else if (watched != 0 && pid == 0)
            signs_ended(w->parts[p], rank);
    }
    signs_sample(w->parts[p], now);
    slow_tick(w->slow[p], now);
    warn_unseen(w, signs_error(w->parts[p]));
    warn_unseen(w, slow_error(w->slow[p]));
}

static void on_timer(void *arg) {
    struct hang_watch *w = arg;
    uint64_t now = clock_now_ns();
    if (w->next_part == 0)
        w->tick_ns = now;
    look_at_part(w, w->next_part++, now);
    if (w->next_part < w->n_parts) {
        loop_timer_set(w->timer, now);
        return;
    }
    w->next_part = 0;
    loop_timer_set(w->timer, w->tick_ns + TICK_NS);
    report(w, now);
}

/* ---- evidence ---- */

static bool takes_samples(const struct work *k) {
    return k != &k->watch->work[EVIDENCE] && k != &k->watch->work[NATIVE];
}

static void drop_answer(struct work *k) {
    strbuf_fini(&k->answer);
    k->sent = 0;
    loop_timer_set(k->timer, TIME_NEVER);
}

/* Piece by piece, only as fast as the connection takes it, so that it delays no lease. */
static void send_answer(void *arg) {
    struct work *k = arg;
    struct hang_watch *w = k->watch;
    struct rdzv_evidence piece = {.id = k->id, .first = k->sent == 0};
    uint64_t now = clock_now_ns();
    bool sent = true;
    while (sent && !piece.last) {
        size_t n =
            rdzv_evidence_put(&piece, strbuf_text(&k->answer) + k->sent, k->answer.len - k->sent);
        sent = w->ops.evidence(*w->config.client, &piece);
        k->sent += sent ? n : 0;
        piece.first = k->sent == 0;
    }
    if (sent || now >= k->give_up_ns)
        drop_answer(k);
    else
        loop_timer_set(k->timer, now + AGAIN_NS);
}

/* An empty text is an answer, too. */
static void answer(struct work *k, const struct strbuf *text) {
    drop_answer(k);
    strbuf_add_bytes(&k->answer, strbuf_text(text), text->len);
    send_answer(k);
}

static void stop_work(struct work *k) {
    helper_call_free(TAKE_PTR(k->helper));
    drop_answer(k);
    k->holds = false;
}

static void begin_work(struct work *k, uint32_t id, uint64_t timeout_ns) {
    stop_work(k);
    k->id = id;
    k->began_ns = clock_now_ns();
    k->give_up_ns = k->began_ns + timeout_ns + (takes_samples(k) ? RDZV_PROFILE_LATE_NS : NS_PER_S);
}

static void on_done(void *arg, const struct helper_answer *a) {
    struct work *k = arg;
    struct hang_watch *w = k->watch;
    _cleanup_(strbuf_fini) struct strbuf json = {0};
    size_t len;
    const char *line = helper_answer_line(a, &len);
    strbuf_add_bytes(&json, line, len);
    if (len == 0 && !takes_samples(k))
        gather_none(w->config.host, a->code, clock_now_ns() - k->began_ns, &json);
    bool held = hang_watch_holds(w);
    k->helper = NULL;
    k->holds = false;
    answer(k, &json);
    if (held && !hang_watch_holds(w))
        w->ops.gathered(w->arg);
}

/* Answers at once, because no helper could be started; r -ESRCH: there are no workers. */
static void answer_without(struct work *k, int r) {
    _cleanup_(strbuf_fini) struct strbuf none = {0};
    struct hang_watch *w = k->watch;
    bool samples = takes_samples(k);
    if (r == -EMFILE && !samples)
        warn_unseen(w, r);
    else if (r != -ESRCH && k != &w->work[ASK_TIME])
        log_warning("cannot %s: %s",
                    samples ? "take samples of the workers of this node"
                            : "check the workers of this node for the leader",
                    helper_call_why(r));
    if (r != -ESRCH && !samples)
        gather_none(w->config.host, r, 0, &none);
    answer(k, &none);
}

/* ask NULL: there are no workers. */
static void begin_gathering(struct work *k, uint32_t id, const struct gather_ask *ask,
                            uint64_t timeout_ns, bool holds) {
    begin_work(k, id, timeout_ns);
    int r = ask == NULL ? -ESRCH : gather_new(k->watch->loop, ask, on_done, k, &k->helper);
    k->holds = r == 0 && holds;
    if (r < 0)
        answer_without(k, r);
}

static void gather(struct hang_watch *w, uint32_t id, uint64_t timeout_ns, bool holds) {
    const struct hang_workers *from = &w->config.workers;
    _cleanup_(freep) struct gather_worker *workers = xcalloc(w->n + (size_t)1, sizeof *workers);
    _cleanup_(freep) char **logs = xcalloc((size_t)w->n * GATHER_LOGS_MAX + 1, sizeof(char *));
    for (uint32_t i = 0; i < w->n; i++) {
        pid_t pid = pid_of(w, i);
        const struct signs_seen seen = see(w, i);
        workers[i] = (struct gather_worker){
            .of.rank = w->first_rank + i,
            .of.local_rank = i,
            .of.pid = pid > 0 ? pid : seen.pid,
            .of.still_ns = seen.pid == 0 ? 0 : clock_now_ns() - seen.since_ns,
            .of.used_ns = seen.used_ns,
            .of.spins = seen.spins,
            .of.step = announced(w, i).step,
            .of.ended = pid <= 0,
            .ran_ns = seen.ran_ns,
        };
        for (int k = 0; k < GATHER_LOGS_MAX; k++)
            workers[i].logs[k] = logs[i * GATHER_LOGS_MAX + (uint32_t)k] =
                from->ops->log_path(from->of, i, k);
    }
    struct gather_ask ask = {.node = w->config.host,
                             .workers = workers,
                             .n = w->n,
                             .store_port = from->ops->store_port(from->of),
                             .since_ns = w->began_ns,
                             .timeout_ns = timeout_ns,
                             .keep_dir = from->ops->node_dir(from->of),
                             .from = from};
    begin_gathering(&w->work[EVIDENCE], id, &ask, timeout_ns, holds);
    for (uint32_t i = 0; i < w->n * GATHER_LOGS_MAX; i++)
        free(logs[i]);
}

/* ---- samples ---- */

/* An empty answer: there are no workers, or a helper can't be started. */
static void on_samples(struct hang_watch *w, const struct rdzv_ask *ask) {
    struct work *k = &w->work[ask->what];
    uint64_t length_ns = MIN2(ask->timeout_ns, RDZV_PROFILE_MAX_NS);
    begin_work(k, ask->id, length_ns);
    uint32_t n_all = generation_compare(ask->generation, w->generation) == 0 ? w->n : 0;
    _cleanup_(freep) struct profile_worker *workers = xcalloc(n_all + (size_t)1, sizeof *workers);
    struct profile_ask sample = {
        .workers = workers, .period_ns = ask->period_ns, .length_ns = length_ns, .seed = ask->id};
    for (uint32_t i = 0; i < n_all; i++) {
        pid_t pid = pid_of(w, i);
        if (pid > 0)
            workers[sample.n++] = (struct profile_worker){
                .rank = w->first_rank + i, .pid = pid, .step = announced(w, i).step};
    }
    int r = sample.n == 0 ? -ESRCH : profile_sampler_new(w->loop, &sample, on_done, k, &k->helper);
    if (r < 0)
        answer_without(k, r);
}

/* ---- suspects that are ended ---- */

/* Reads their native stacks, if they are asked for. */
static void read_native(struct hang_watch *w, const struct rdzv_suspects *suspects) {
    struct gather_worker workers[RDZV_SUSPECTS_MAX];
    struct gather_ask ask = {.node = w->config.host,
                             .workers = workers,
                             .timeout_ns = MIN2(suspects->timeout_ns, HANG_LOOK_MAX_NS),
                             .native = true};
    for (uint32_t i = 0; i < w->n_ends; i++) {
        uint32_t local_rank = w->ends[i].local_rank;
        pid_t pid = pid_of(w, local_rank);
        if (pid > 0)
            workers[ask.n++] = (struct gather_worker){.of.rank = w->first_rank + local_rank,
                                                      .of.local_rank = local_rank,
                                                      .of.pid = disturb_program(pid)};
    }
    begin_gathering(&w->work[NATIVE], suspects->id, ask.n == 0 ? NULL : &ask, ask.timeout_ns, true);
}

static void on_suspects(struct hang_watch *w, const struct rdzv_suspects *suspects) {
    if (generation_compare(suspects->generation, w->generation) != 0)
        return;
    w->n_ends = 0;
    w->ends_leader = w->ops.leader(*w->config.client);
    for (uint32_t i = 0; i < suspects->n; i++)
        if (suspects->ranks[i] - w->first_rank < w->n)
            w->ends[w->n_ends++] =
                (struct ending){.local_rank = suspects->ranks[i] - w->first_rank};
    if (suspects->timeout_ns > 0)
        read_native(w, suspects);
}

/* The job is being ended: the stop of its workers continues at once. */
static void proceed(struct hang_watch *w) {
    bool held = hang_watch_holds(w);
    w->n_ends = 0;
    stop_work(&w->work[EVIDENCE]);
    stop_work(&w->work[NATIVE]);
    if (held)
        w->ops.gathered(w->arg);
}

static void on_ask(struct hang_watch *w, const struct rdzv_ask *ask) {
    uint64_t timeout_ns = MIN2(ask->timeout_ns, HANG_LOOK_MAX_NS);
    bool held = hang_watch_holds(w);
    stop_work(&w->work[EVIDENCE]);
    if (held && !hang_watch_holds(w))
        w->ops.gathered(w->arg);
    if (generation_compare(ask->generation, w->generation) == 0 &&
        w->config.workers.ops->any(w->config.workers.of))
        gather(w, ask->id, timeout_ns, ask->holds);
    else
        begin_gathering(&w->work[EVIDENCE], ask->id, NULL, timeout_ns, false);
}

void hang_watch_message(void *hang_watch, const struct wire_message *m) {
    struct hang_watch *w = hang_watch;
    if (m->kind == WIRE_ASK && m->ask.what != ASK_STACKS)
        on_samples(w, &m->ask);
    else if (m->kind == WIRE_ASK)
        on_ask(w, &m->ask);
    else if (m->kind == WIRE_SUSPECTS)
        on_suspects(w, &m->suspects);
    else if (m->kind == WIRE_PROCEED)
        proceed(w);
}

void hang_watch_start(struct hang_watch *w, struct generation generation, const struct form *form) {
    hang_watch_stop(w);
    stop_work(&w->work[NATIVE]);
    w->n_ends = 0;
    w->generation = generation;
    w->began_ns = clock_now_ns();
    w->first_rank = form->first_rank;
    w->alone = form->world_size == 1;
    w->n = MIN2(w->config.nproc, WATCHED_MAX);
    if (w->config.settings.action == HANG_ACTION_OFF)
        return;
    w->n_parts = (w->n + PART - 1) / PART;
    signs_report_init(&w->rows, w->n, w->first_rank);
    w->gpus = gpu_watch_new(w->loop);
    w->parts = xcalloc(w->n_parts, sizeof *w->parts);
    w->slow = xcalloc(w->n_parts, sizeof(struct slow *));
    for (uint32_t p = 0; p < w->n_parts; p++) {
        w->parts[p] = signs_new();
        w->slow[p] = slow_new(w->loop, w->parts[p]);
    }
    loop_timer_set(w->timer, clock_now_ns() + TICK_NS);
}

bool hang_watch_holds(const struct hang_watch *w) {
    return w->work[EVIDENCE].holds || w->work[NATIVE].holds;
}

static uint32_t n_ends(const struct hang_watch *w) {
    return w->ops.leader(*w->config.client) == w->ends_leader ? w->n_ends : 0;
}

uint32_t hang_watch_suspects(const struct hang_watch *w) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_ends(w); i++)
        n += pid_of(w, w->ends[i].local_rank) > 0;
    return n;
}

static bool is_there(const struct ending *d) {
    struct proc_stat stat;
    return proc_read_stat(d->program, &stat) && stat.start == d->started && stat.state != 'Z';
}

/* A Python program below a shell prints its stacks before the shell ends, or continues. */
static bool begin_below(struct ending *d, pid_t pid) {
    struct proc_stat stat;
    pid_t program = disturb_program(pid);
    if (program == pid || !proc_read_stat(program, &stat) || disturb_abort_below(pid, program) < 0)
        return false;
    d->program = program;
    d->started = stat.start;
    return true;
}

static void end_suspect(struct ending *d, pid_t pid) {
    if (!d->signalled && begin_below(d, pid)) {
        d->signalled = true;
        return;
    }
    if (d->signalled && (d->program == 0 || is_there(d)))
        return;
    d->signalled = true;
    d->program = 0;
    int r = disturb_abort(pid);
    if (r < 0)
        log_debug("cannot send SIGABRT to process %d, which hangs: %s", (int)pid, strerror(-r));
}

void hang_watch_end_suspects(struct hang_watch *w) {
    uint32_t n = n_ends(w), kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct ending d = w->ends[i];
        pid_t pid = pid_of(w, d.local_rank);
        if (pid > 0 && !d.signalled && !disturb_can_handle(disturb_program(pid)))
            continue; /* it prints nothing, and only SIGKILL ends it */
        if (pid > 0)
            end_suspect(&d, pid);
        w->ends[kept++] = d;
    }
    if (n > 0)
        w->n_ends = kept;
}

void hang_watch_stop(struct hang_watch *w) {
    for (uint32_t p = 0; p < w->n_parts; p++) {
        slow_free(w->slow[p]);
        signs_free(w->parts[p]);
    }
    free(TAKE_PTR(w->slow));
    free(TAKE_PTR(w->parts));
    w->n = w->n_parts = w->next_part = 0;
    signs_report_fini(&w->rows);
    gpu_watch_free(TAKE_PTR(w->gpus));
    w->generation = (struct generation){0, 0};
    loop_timer_set(w->timer, TIME_NEVER);
}

struct hang_watch *hang_watch_new(struct loop *loop, const struct hang_watch_config *config,
                                  const struct hang_watch_ops *ops, void *arg) {
    struct hang_watch *w = xcalloc(1, sizeof *w);
    *w = (struct hang_watch){.loop = loop, .config = *config, .ops = *ops, .arg = arg};
    w->timer = loop_timer_new(loop, on_timer, w);
    for (int i = 0; i < N_WORK; i++) {
        w->work[i].watch = w;
        w->work[i].timer = loop_timer_new(loop, send_answer, &w->work[i]);
    }
    return w;
}

void hang_watch_free(struct hang_watch *w) {
    if (w == NULL)
        return;
    hang_watch_stop(w);
    for (int i = 0; i < N_WORK; i++) {
        stop_work(&w->work[i]);
        loop_timer_free(w->work[i].timer);
    }
    loop_timer_free(w->timer);
    free(w);
}
