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
    struct hang_reply *reply;
};
/* By enum rdzv_ask_what, and: native stacks of suspects, which are read before these are ended. */
enum { EVIDENCE = ASK_STACKS, NATIVE = ASK_WHAT_COUNT, N_WORK };

enum watched { WATCHED_NOT = 0, WATCHED_RUNS, WATCHED_ENDED };

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
    uint8_t *watched;             /* [n] enum watched */
    pid_t *pids;                  /* [n] 0: it was not started yet */
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

/* ---- a long answer ---- */

struct hang_reply {
    struct loop_timer *timer;
    hang_reply_fn *send;
    void *arg;
    struct strbuf text;
    size_t sent; /* of it */
    bool over;
    uint32_t id;
    uint64_t give_up_ns;
};

/* How much of the rest fits into a piece, cut between characters. */
static size_t piece_len(const struct hang_reply *r) {
    const char *rest = strbuf_text(&r->text) + r->sent;
    size_t left = r->text.len - r->sent, n = MIN2(left, RDZV_EVIDENCE_CHUNK_MAX - 1);
    while (n < left && n > 1 && ((uint8_t)rest[n] & 0xc0) == 0x80)
        n--;
    return n;
}

static bool send_piece(struct hang_reply *r) {
    struct rdzv_evidence piece = {.id = r->id, .first = r->sent == 0};
    size_t n = piece_len(r);
    memcpy(piece.text, strbuf_text(&r->text) + r->sent, n);
    piece.last = r->sent + n == r->text.len;
    if (!r->send(r->arg, &piece))
        return false;
    r->sent += n;
    r->over = piece.last;
    return true;
}

static void send_some(struct hang_reply *r) {
    bool room = true;
    while (!r->over && room)
        room = send_piece(r);
    uint64_t now = clock_now_ns();
    if (r->over || now >= r->give_up_ns)
        hang_reply_stop(r);
    else
        loop_timer_set(r->timer, now + HANG_REPLY_AGAIN_NS);
}

static void on_reply_timer(void *arg) { send_some(arg); }

void hang_reply_start(struct hang_reply *r, uint32_t id, const char *text, size_t len,
                      uint64_t give_up_ns) {
    hang_reply_stop(r);
    strbuf_add_bytes(&r->text, text, len);
    r->id = id;
    r->over = false;
    r->give_up_ns = give_up_ns;
    send_some(r);
}

void hang_reply_stop(struct hang_reply *r) {
    strbuf_fini(&r->text);
    r->sent = 0;
    r->over = true;
    loop_timer_set(r->timer, TIME_NEVER);
}

struct hang_reply *hang_reply_new(struct loop *loop, hang_reply_fn *send, void *arg) {
    struct hang_reply *r = xcalloc(1, sizeof *r);
    *r = (struct hang_reply){.send = send, .arg = arg, .over = true};
    r->timer = loop_timer_new(loop, on_reply_timer, r);
    return r;
}

void hang_reply_free(struct hang_reply *r) {
    if (r == NULL)
        return;
    hang_reply_stop(r);
    loop_timer_free(r->timer);
    free(r);
}

/* ---- what is reported to the leader ---- */

static void send_rows(struct hang_watch *w, const struct worker_signs *rows, size_t n) {
    struct rdzv_signs m = {.generation = w->generation};
    for (size_t i = 0; i < n; i++) {
        m.list[m.n++] = rows[i];
        if (m.n == RDZV_SIGNS_CHUNK || i + 1 == n) {
            w->ops.signs(w->arg, &m);
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
                rows[i].flags |= gpu_watch_flags(w->gpus, w->pids[local_rank], now);
            if (w->config.workers.ops->is_held(w->config.workers.of, local_rank))
                rows[i].flags |= SIGN_HELD;
            if ((rows[i].flags & SIGN_ASKS) != 0)
                warn_of_hidden_prompt(w, local_rank);
        }
        struct worker_announced a = announced(w, local_rank);
        signs_report_add(&w->rows, &rows[i], &a, now);
    }
    if (signs_report_due(&w->rows, still, w->ops.leader(w->arg)))
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
        pid_t pid = pid_of(w, i);
        w->pids[i] = pid > 0 ? pid : w->pids[i];
        if (w->watched[i] == WATCHED_NOT && pid > 0) {
            w->watched[i] = WATCHED_RUNS;
            (void)!signs_add(w->parts[p], rank, pid, now); /* or it comes with a later sample */
        } else if (w->watched[i] == WATCHED_RUNS && pid == 0) {
            w->watched[i] = WATCHED_ENDED;
            signs_ended(w->parts[p], rank);
        }
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

/* For how long its main thread has not moved; 0: that is not known. */
static void add_still(struct hang_watch *w, struct gather_worker *workers, uint64_t now) {
    for (uint32_t p = 0; p < w->n_parts; p++) {
        struct worker_signs rows[PART];
        size_t n = signs_rows(w->parts[p], now, rows, PART);
        for (size_t i = 0; i < n; i++)
            if (rows[i].rank - w->first_rank < w->n) {
                struct gather_worker *worker = &workers[rows[i].rank - w->first_rank];
                worker->of.still_ns = rows[i].still_ns;
                worker->ran_ns = signs_ran_ns(w->parts[p], rows[i].rank);
                worker->of.used_ns = signs_used_ns(w->parts[p], rows[i].rank);
                worker->of.spins = (rows[i].flags & SIGN_SPINS) != 0;
            }
    }
}

static bool takes_samples(const struct work *k) {
    return k != &k->watch->work[EVIDENCE] && k != &k->watch->work[NATIVE];
}

static void stop_work(struct work *k) {
    helper_call_free(TAKE_PTR(k->helper));
    hang_reply_stop(k->reply);
    k->holds = false;
}

static void begin_work(struct work *k, uint32_t id, uint64_t timeout_ns) {
    stop_work(k);
    k->id = id;
    k->began_ns = clock_now_ns();
    k->give_up_ns = k->began_ns + timeout_ns + (takes_samples(k) ? RDZV_PROFILE_LATE_NS : NS_PER_S);
}

static void on_done(void *arg, const struct helper_answer *answer) {
    struct work *k = arg;
    struct hang_watch *w = k->watch;
    _cleanup_(strbuf_fini) struct strbuf json = {0};
    size_t len;
    const char *line = helper_answer_line(answer, &len);
    strbuf_add_bytes(&json, line, len);
    if (len == 0 && !takes_samples(k))
        gather_none(w->config.host, answer->code, clock_now_ns() - k->began_ns, &json);
    bool held = hang_watch_holds(w);
    k->helper = NULL;
    k->holds = false;
    hang_reply_start(k->reply, k->id, strbuf_text(&json), json.len, k->give_up_ns);
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
    hang_reply_start(k->reply, k->id, strbuf_text(&none), none.len, k->give_up_ns);
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

/* In the helper. */
static bool env_of(void *arg, uint32_t local_rank, struct envlist *ret) {
    const struct hang_watch *w = arg;
    return w->config.workers.ops->env(w->config.workers.of, local_rank, ret);
}

static bool held(void *arg, const char *name) {
    const struct hang_watch *w = arg;
    return w->config.workers.ops->spared(w->config.workers.spare, name);
}

static void touches_disk(void *arg, pid_t pid) {
    const struct hang_watch *w = arg;
    w->config.workers.ops->spare(w->config.workers.spare, pid);
}

static void gather(struct hang_watch *w, uint32_t id, uint64_t timeout_ns, bool holds) {
    const struct hang_workers *from = &w->config.workers;
    _cleanup_(freep) struct gather_worker *workers = xcalloc(w->n + (size_t)1, sizeof *workers);
    _cleanup_(freep) char **logs = xcalloc((size_t)w->n * GATHER_LOGS_MAX + 1, sizeof(char *));
    for (uint32_t i = 0; i < w->n; i++) {
        pid_t pid = pid_of(w, i);
        workers[i] = (struct gather_worker){
            .of.rank = w->first_rank + i,
            .of.local_rank = i,
            .of.pid = pid > 0 ? pid : w->pids[i],
            .of.step = announced(w, i).step,
            .of.ended = pid <= 0,
        };
        for (int k = 0; k < GATHER_LOGS_MAX; k++)
            workers[i].logs[k] = logs[i * GATHER_LOGS_MAX + (uint32_t)k] =
                from->ops->log_path(from->of, i, k);
    }
    add_still(w, workers, clock_now_ns());
    struct gather_ask ask = {.node = w->config.host,
                             .workers = workers,
                             .n = w->n,
                             .store_port = from->ops->store_port(from->of),
                             .since_ns = w->began_ns,
                             .timeout_ns = timeout_ns,
                             .keep_dir = from->ops->node_dir(from->of),
                             .env = env_of,
                             .env_arg = w,
                             .held = held,
                             .touches_disk = touches_disk};
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
    w->ends_leader = w->ops.leader(w->arg);
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
    w->pids = xcalloc(w->n, sizeof *w->pids);
    if (w->config.settings.action == HANG_ACTION_OFF)
        return;
    w->n_parts = (w->n + PART - 1) / PART;
    w->watched = xcalloc(w->n, sizeof *w->watched);
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
    return w->ops.leader(w->arg) == w->ends_leader ? w->n_ends : 0;
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
    free(TAKE_PTR(w->watched));
    free(TAKE_PTR(w->pids));
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
    for (int i = 0; i < N_WORK; i++)
        w->work[i] = (struct work){.watch = w, .reply = hang_reply_new(loop, ops->evidence, arg)};
    return w;
}

void hang_watch_free(struct hang_watch *w) {
    if (w == NULL)
        return;
    hang_watch_stop(w);
    for (int i = 0; i < N_WORK; i++) {
        stop_work(&w->work[i]);
        hang_reply_free(w->work[i].reply);
    }
    loop_timer_free(w->timer);
    free(w);
}
