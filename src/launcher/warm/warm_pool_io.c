#include "launcher/warm/warm_pool_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/text/log.h"
#include "io/clock.h"
#include "io/file.h"
#include "launcher/warm/warm_priv.h"

/* ---- the end of a part ---- */

static void drop_all(struct warm_pool *p) {
    warm_drop(&p->template);
    for (uint32_t i = 0; i < p->config.n; i++) {
        warm_drop(&p->ranks[i]);
        warm_drop(&p->old[i]);
    }
}

static bool is_old(const struct warm_one *one) {
    return one->index < one->pool->config.n && one == &one->pool->old[one->index];
}

static void set_why(struct warm_pool *p, const char *why) {
    (void)snprintf(p->why, sizeof p->why, "%s", why);
}

static void end(struct warm_pool *p, const char *why) {
    set_why(p, why);
    p->off = true;
    drop_all(p);
    log_info("workers start cold from now on: %s", why);
}

void warm_one_failed(struct warm_one *one, const char *why, bool counts) {
    struct warm_pool *p = one->pool;
    bool forked = one->forked, old = is_old(one);
    char text[WARM_REASON_MAX];
    (void)snprintf(text, sizeof text, "%s", why);
    warm_drop(one);
    if (old) {
        loop_timer_set(p->tell, clock_now_ns());
        return;
    }
    set_why(p, text);
    p->failures += counts;
    if (p->failures >= WARM_FAILURES_MAX && (forked || p->form == WARM_FORK)) {
        log_info("processes for the next start are not forked: %s", text);
        p->form = WARM_PROCESS;
        p->failures = 0;
        warm_drop(&p->template);
    } else if (p->failures >= WARM_FAILURES_MAX) {
        end(p, text);
    }
    p->lost += p->made && p->lost < WARM_LOST_MAX; /* all at once: once */
    p->made = false;
    if (!p->off)
        p->look_ns = clock_now_ns() + (p->config.after_ns << p->lost);
    warm_set_timer(p);
}

/* ---- warming ---- */

/* Whether the template of rank 0 can stand for all; else why not. */
static bool can_fork(const struct warm_pool *p, char reason[WARM_REASON_MAX]) {
    const struct child_spec *first = p->specs[0];
    for (uint32_t i = 0; i < p->config.n; i++) {
        const struct child_spec *s = p->specs[i];
        struct child_spec unbound[2] = {*first, *s};
        for (unsigned k = 0; k < 2; k++) {
            unbound[k].cpuset = unbound[k].memory_nodes = NULL;
            unbound[k].memory = CHILD_MEMORY_DEFAULT;
        }
        if (!child_spec_alike(&unbound[0], &unbound[1])) {
            (void)snprintf(reason, WARM_REASON_MAX, "workers have different arguments");
            return false;
        }
        if (s->cpuset != NULL && env_get(s->envp, "OMP_NUM_THREADS") == NULL) {
            (void)snprintf(reason, WARM_REASON_MAX,
                           "workers are bound to CPUs, which imports count, and OMP_NUM_THREADS is "
                           "not set");
            return false;
        }
        if (!warm_may_go(first->envp, s->envp, reason))
            return false;
    }
    return true;
}

static void don_t_fork(struct warm_pool *p, const char *reason) {
    log_info("processes for the next start are not forked: %s", reason);
    p->form = WARM_PROCESS;
    warm_drop(&p->template);
}

/* How much is recorded; 0: nothing. */
static size_t recorded_bytes(const struct warm_pool *p) {
    struct stat st;
    return fstat(p->record_fd, &st) < 0 ? 0 : MIN2((size_t)st.st_size, WARM_RECORD_MAX);
}

/* Descriptors are for workers first: what waits has some, and as many again are open for a moment
 * while it becomes a worker. */
static int check_descriptors(const struct warm_pool *p, struct err *err) {
    struct rlimit limit;
    int fd = fcntl(p->zip_fd, F_DUPFD_CLOEXEC, 0);
    bool enough =
        fd >= 0 && (getrlimit(RLIMIT_NOFILE, &limit) < 0 || (rlim_t)fd < limit.rlim_cur / 2);
    file_close(&fd);
    return enough ? 0
                  : err_set(err, -EMFILE,
                            "half of the open files that this process may have are in use: raise "
                            "the limit with ulimit -n");
}

static void begin(struct warm_pool *p, const struct warm_next *next) {
    struct warm_one *one = next->step == WARM_STEP_TEMPLATE ? &p->template : &p->ranks[next->rank];
    struct err err = {0};
    char reason[WARM_REASON_MAX];
    int r = next->step != WARM_STEP_NONE ? check_descriptors(p, &err) : 0;
    if (next->step == WARM_STEP_TEMPLATE || (next->step == WARM_STEP_PROCESS && next->rank == 0))
        p->record_bytes = recorded_bytes(p);
    p->told_wait &= next->step == WARM_STEP_NONE;
    switch (r < 0 ? WARM_STEP_NONE : next->step) {
    case WARM_STEP_NONE: break;
    case WARM_STEP_TEMPLATE:
        if (!can_fork(p, reason)) {
            don_t_fork(p, reason);
            p->look_ns = clock_now_ns();
            break;
        }
        r = warm_start(one, p->specs[0], &err);
        break;
    case WARM_STEP_PROCESS: r = warm_start(one, p->specs[next->rank], &err); break;
    case WARM_STEP_FORK: r = warm_fork(one, p->specs[next->rank], &err); break;
    }
    if (r < 0)
        warm_one_failed(one, err.text[0] != '\0' ? err.text : strerror(-r), true);
}

/* The script may import more. */
static void look_later(struct warm_pool *p) {
    if (p->n_later < WARM_LATER_MAX)
        p->look_ns = clock_now_ns() + (p->config.after_ns << p->n_later++);
}

static bool read_record(struct warm_pool *p) {
    char reason[WARM_REASON_MAX], name[128];
    if (p->recorded)
        return true;
    if (!p->recording)
        return false;
    size_t n = recorded_bytes(p);
    if ((n == 0 || n != p->record_bytes) && p->n_looks++ < WARM_LOOKS_MAX) {
        p->record_bytes = n; /* it still imports */
        p->look_ns = clock_now_ns() + p->config.after_ns / 2 + NS_PER_MS;
        return false;
    }
    _cleanup_(freep) char *text = xcalloc(1, n + 1);
    ssize_t got = pread(p->record_fd, text, n, 0);
    p->recorded = warm_record_ok(text, got > 0 ? (size_t)got : 0, reason);
    if (!p->recorded) {
        if (strcmp(p->why, reason) != 0)
            log_info("workers can't be warm: %s", reason);
        set_why(p, reason);
        look_later(p);
        return false;
    }
    warm_record_stop(text, (size_t)got, name, sizeof name);
    if (name[0] != '\0')
        log_info("the script sets %s: what it imports afterwards is not imported ahead", name);
    return true;
}

/* What waits serves on, until what replaces it waits. */
static void make_anew(struct warm_pool *p) {
    struct warm_one *ranks = p->ranks;
    p->ranks = p->old;
    p->old = ranks;
    warm_drop(&p->template);
    p->look_ns = clock_now_ns();
}

/* What the script imports later on belongs to the next start, too: it looks now and then. */
static void all_wait(struct warm_pool *p) {
    if (!p->told_wait) {
        log_info("%u processes wait for the next start", p->config.n);
        p->told_wait = true;
    } else if (recorded_bytes(p) > p->record_bytes) {
        log_info("the script has imported more meanwhile: what waits is made anew");
        make_anew(p);
        return;
    }
    look_later(p);
}

void warm_go_on(struct warm_pool *p) {
    const uint32_t n = p->config.n;
    if (p->off || !read_record(p))
        return;
    _cleanup_(freep) enum warm_state *states = xcalloc(n, sizeof *states);
    for (uint32_t i = 0; i < n; i++) {
        if (p->specs[i] == NULL)
            return;
        states[i] = p->ranks[i].state;
    }
    struct warm_view view = {
        .form = p->form, .template = p->template.state, .ranks = states, .n = n};
    struct warm_next next;
    warm_next(&view, &next);
    if (next.step == WARM_STEP_NONE && warm_all_wait(&view))
        all_wait(p);
    begin(p, &next);
}

void warm_one_is_ready(struct warm_one *one, const struct warm_heard *heard) {
    struct warm_pool *p = one->pool;
    char reason[WARM_REASON_MAX];
    bool template = one == &p->template;
    if (warm_refuses(template ? WARM_TEMPLATE : WARM_STANDBY, heard, reason)) {
        if (heard->devices[0] != '\0' || heard->moved[0] != '\0')
            end(p, reason);
        else
            don_t_fork(p, reason);
    } else if (!one->forked) {
        log_info("%s for the next start has imported %u modules in %.1f s (%u failed)",
                 template ? "a process that forks" : "a process", heard->modules, heard->seconds,
                 heard->failed);
    }
    if (!template && one->state == WARM_STATE_WAITS)
        warm_drop(&p->old[one->index]);
    if (!p->off)
        p->why[0] = '\0';
    p->failures = 0;
    p->made = true;
    warm_go_on(p);
    warm_set_timer(p);
}

/* ---- time ---- */

static void each_due(struct warm_one *one, uint64_t now_ns, uint64_t *next_ns) {
    if (one->state != WARM_STATE_WARMING)
        return;
    if (now_ns < one->due_ns) {
        *next_ns = MIN2(*next_ns, one->due_ns);
        return;
    }
    char why[WARM_REASON_MAX];
    (void)snprintf(why, sizeof why, "importing has taken more than %g s",
                   (double)one->pool->config.import_ns / (double)NS_PER_S);
    warm_one_failed(one, why, true);
}

void warm_set_timer(struct warm_pool *p) {
    uint64_t next_ns = p->off ? TIME_NEVER : p->look_ns;
    if (p->template.state == WARM_STATE_WARMING)
        next_ns = MIN2(next_ns, p->template.due_ns);
    for (uint32_t i = 0; i < p->config.n; i++)
        if (p->ranks[i].state == WARM_STATE_WARMING)
            next_ns = MIN2(next_ns, p->ranks[i].due_ns);
    loop_timer_set(p->timer, next_ns);
    loop_timer_set(p->tell, clock_now_ns());
}

static void on_timer(void *arg) {
    struct warm_pool *p = arg;
    uint64_t now_ns = clock_now_ns(), next_ns = TIME_NEVER;
    each_due(&p->template, now_ns, &next_ns);
    for (uint32_t i = 0; i < p->config.n; i++)
        each_due(&p->ranks[i], now_ns, &next_ns);
    if (now_ns >= p->look_ns) {
        p->look_ns = TIME_NEVER;
        warm_go_on(p);
    }
    warm_set_timer(p);
}

/* ---- a start ---- */

static uint32_t own_umask(void) {
    mode_t mask = umask(0);
    (void)umask(mask);
    return mask;
}

static void note_start(struct warm_pool *p, uint32_t index, const struct child_spec *spec) {
    if (index == 0) {
        p->n_warm = p->n_started = 0;
        p->untold = true;
        p->reason[0] = '\0';
        p->early_counted = false;
        p->n_later = p->lost = 0;
    }
    child_spec_free(p->specs[index]);
    p->specs[index] = child_spec_copy(spec);
    p->look_ns = clock_now_ns() + p->config.after_ns;
    warm_set_timer(p);
}

static void report(struct warm_pool *p, const char *cold_because) {
    if (cold_because == NULL)
        p->n_warm++;
    else if (p->reason[0] == '\0')
        (void)snprintf(p->reason, sizeof p->reason, "%s", cold_because);
    if (++p->n_started < p->config.n)
        return;
    loop_timer_set(p->tell, clock_now_ns());
    if (p->reason[0] == '\0')
        log_info("all %u workers start warm", p->config.n);
    else
        log_line(p->again ? LOG_LEVEL_NOTICE : LOG_LEVEL_INFO,
                 "%u of %u workers start warm; cold because %s", p->n_warm, p->config.n, p->reason);
    p->again = true;
}

static bool write_go(const struct warm_one *one, const struct child_spec *spec, struct strbuf *out,
                     char reason[WARM_REASON_MAX]) {
    const char *marker = env_get(spec->envp, "MUSTER_WORKER_ID");
    _cleanup_(freep) char *here = spec->cwd == NULL ? getcwd(NULL, 0) : NULL;
    struct warm_to to = {.envp = spec->envp,
                         .marker = marker != NULL ? marker : "",
                         .cwd = spec->cwd != NULL ? spec->cwd : here,
                         .umask = own_umask()};
    return warm_go(one->spec->envp, &to, out, reason);
}

static bool move_into(int cgroup_fd, pid_t pid) {
    char text[16];
    int fd = openat(cgroup_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);
    int len = snprintf(text, sizeof text, "%d", (int)pid);
    bool moved = fd >= 0 && write(fd, text, (size_t)len) == len;
    file_close(&fd);
    return moved;
}

/* NULL: it has got the go. */
static const char *try_one(struct warm_one *one, const struct child_spec *spec,
                           char reason[WARM_REASON_MAX]) {
    const struct warm_pool *p = one->pool;
    if (p->off || (one->state == WARM_STATE_NONE && p->why[0] != '\0'))
        return p->why;
    if (one->state == WARM_STATE_NONE)
        return p->recorded ? "no process waits for it yet" : "its imports are not known yet";
    if (one->state == WARM_STATE_WARMING)
        return "its process still imports";
    if (!child_spec_alike(one->spec, spec))
        return "arguments, CPUs or limits have changed";
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    if (!write_go(one, spec, &text, reason))
        return reason;
    if (spec->cgroup_fd >= 0 && !move_into(spec->cgroup_fd, child_watch_pid(one->watch)))
        return "it can't be moved into its cgroup";
    return warm_send_go(one, spec, &text) < 0 ? "its process has ended" : NULL;
}

bool warm_pool_take(struct warm_pool *p, uint32_t index, const struct child_spec *spec,
                    struct warm_taken *ret) {
    struct warm_one *one = &p->ranks[index], *old = &p->old[index];
    char reason[WARM_REASON_MAX];
    note_start(p, index, spec);
    if (warm_takes_old(one->state, old->state))
        one = old;
    else
        warm_drop(old);
    const char *cold_because = try_one(one, spec, reason);
    report(p, cold_because);
    if (cold_because != NULL) {
        if (one->state == WARM_STATE_WAITS)
            warm_drop(one); /* it stands for something else */
        return false;
    }
    p->n_unanswered++;
    *ret = (struct warm_taken){.watch = TAKE_PTR(one->watch), .control_fd = one->fd};
    ret->pid = child_watch_pid(ret->watch);
    loop_watch_free(TAKE_PTR(one->heard));
    one->fd = -1;
    warm_drop(one);
    return true;
}

const struct child_spec *warm_pool_record(struct warm_pool *p, uint32_t index,
                                          const struct child_spec *spec,
                                          struct child_spec **ret_copy) {
    *ret_copy = NULL;
    if (index != 0 || p->off || p->recorded || ftruncate(p->record_fd, 0) < 0)
        return spec;
    p->record_bytes = 0;
    _cleanup_(envlist_fini) struct envlist env = {0};
    struct child_spec with_gate = warm_through_gate(p, WARM_RECORD, -1, spec, &env);
    p->recording = true;
    p->n_looks = 0;
    return *ret_copy = child_spec_copy(&with_gate);
}

void warm_pool_refused(struct warm_pool *p, uint32_t index, const char *reason) {
    log_info("local rank %u starts cold after all: %s", index, reason);
    p->n_warm -= p->n_warm > 0;
    if (p->reason[0] == '\0')
        (void)snprintf(p->reason, sizeof p->reason, "%s", reason);
    set_why(p, reason);
    drop_all(p);
    loop_timer_set(p->tell, clock_now_ns());
}

void warm_pool_answered(struct warm_pool *p) {
    p->n_unanswered--;
    loop_timer_set(p->tell, clock_now_ns());
}

uint32_t warm_pool_ended(const struct warm_pool *p) { return p->n_ended; }

void warm_pool_failed(struct warm_pool *p, uint64_t ran_ns) {
    if (p->early_counted)
        return;
    p->early_counted = true;
    p->early = ran_ns < WARM_EARLY_NS ? p->early + 1 : 0;
    if (p->early >= WARM_EARLY_MAX && !p->off)
        end(p, "two warm starts in a row have failed within 10 s");
    warm_set_timer(p);
}

/* ---- what is told ---- */

void warm_pool_facts(const struct warm_pool *p, struct warm_facts *ret) {
    *ret = (struct warm_facts){.warm = p->n_warm, .cold = p->n_started - p->n_warm};
    for (uint32_t i = 0; i < p->config.n; i++)
        ret->waiting +=
            p->ranks[i].state == WARM_STATE_WAITS || p->old[i].state == WARM_STATE_WAITS;
    ret->reason = ret->cold > 0 ? p->reason : ret->waiting == 0 ? p->why : "";
}

static void on_tell(void *arg) {
    struct warm_pool *p = arg;
    struct warm_facts now;
    bool starts = p->n_started % p->config.n != 0 || p->n_unanswered > 0;
    if (starts || p->config.on_facts == NULL)
        return;
    warm_pool_facts(p, &now);
    uint64_t reason = hash_text(HASH_BEGIN, now.reason);
    if (now.warm == p->told.warm && now.cold == p->told.cold && now.waiting == p->told.waiting &&
        reason == p->told_reason && !p->untold)
        return;
    p->told = now;
    p->told_reason = reason;
    p->untold = false;
    p->config.on_facts(p->config.arg);
}

/* ---- the pool ---- */

static int open_files(struct warm_pool *p) {
    _cleanup_(strbuf_fini) struct strbuf zip = {0};
    warm_zip(&zip);
    p->zip_fd = warm_memfd("muster-gate", &zip);
    p->record_fd = p->zip_fd < 0 ? -1 : warm_memfd("muster-record", NULL);
    return p->zip_fd < 0 ? p->zip_fd : MIN2(p->record_fd, 0);
}

int warm_pool_new(struct loop *loop, const struct warm_pool_config *config,
                  struct warm_pool **ret) {
    struct warm_pool *p = xcalloc(1, sizeof *p);
    p->loop = loop;
    p->config = *config;
    p->form = config->form;
    if (p->config.import_ns == 0)
        p->config.import_ns = WARM_IMPORT_NS;
    p->look_ns = TIME_NEVER;
    p->ranks = xcalloc(config->n, sizeof *p->ranks);
    p->old = xcalloc(config->n, sizeof *p->old);
    p->specs = xcalloc(config->n, sizeof *p->specs);
    p->template = (struct warm_one){.pool = p, .index = WARM_TEMPLATE_INDEX, .fd = -1};
    for (uint32_t i = 0; i < config->n; i++)
        p->ranks[i] = p->old[i] = (struct warm_one){.pool = p, .index = i, .fd = -1};
    if (config->never != NULL) {
        p->off = true;
        set_why(p, config->never);
    }
    int r = open_files(p);
    if (r == 0)
        r = loop_timer_new(loop, on_timer, p, &p->timer);
    if (r == 0)
        r = loop_timer_new(loop, on_tell, p, &p->tell);
    if (r < 0) {
        warm_pool_free(p);
        return r;
    }
    *ret = p;
    return 0;
}

void warm_pool_free(struct warm_pool *p) {
    if (p == NULL)
        return;
    drop_all(p);
    loop_timer_free(p->timer);
    loop_timer_free(p->tell);
    for (uint32_t i = 0; i < p->config.n; i++)
        child_spec_free(p->specs[i]);
    if (p->zip_fd >= 0)
        (void)close(p->zip_fd);
    if (p->record_fd >= 0)
        (void)close(p->record_fd);
    free(p->ranks);
    free(p->old);
    free(p->specs);
    free(p);
}
