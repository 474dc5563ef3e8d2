/* The pool with a real Python as its standby, where no end-to-end test can bring about the reason. */
#include "launcher/warm/warm_pool_io.h"

#include "base/text/log.h"
#include "io/clock.h"
#include "rig/unit.h"

#define LIST(...) ((char *const *)(uintptr_t)(const char *const[]){__VA_ARGS__, NULL})
enum { DEADLINE_MS = 20000 };

/* A pool of one rank, whose worker was started, and has recorded that it imports json. */
struct one_rank {
    struct loop *loop;
    struct child_reaper *reaper;
    struct loop_timer *doomsday;
    struct warm_pool *pool;
    struct child_spec spec;
    int record_fd; /* the pool's */
    const char *awaited;
    char path[4096], marker[32], level[32];
    char *env[4];
};

static void on_line(void *arg, const char *line, size_t len) {
    struct one_rank *o = arg;
    if (o->awaited != NULL && memmem(line, len, o->awaited, strlen(o->awaited)) != NULL)
        loop_quit(o->loop);
}

static void on_doomsday(void *arg) {
    const struct one_rank *o = arg;
    cr_assert_fail("nobody has said '%s'", o->awaited);
}

static void await(struct one_rank *o, const char *text) {
    o->awaited = text;
    loop_timer_set(o->doomsday, clock_now_ns() + DEADLINE_MS * NS_PER_MS);
    cr_assert_eq(loop_run(o->loop), 0);
    o->awaited = NULL;
}

/* A start that is cold, for this reason. The worker itself is not there. */
static void starts_cold(const struct one_rank *o, const struct child_spec *spec, const char *because) {
    struct warm_taken taken;
    struct rdzv_warm facts;
    cr_assert(!warm_pool_take(o->pool, 0, spec, &taken));
    warm_pool_facts(o->pool, &facts);
    cr_assert_str_eq(facts.reason, because);
}

static void record(struct one_rank *o, const char *text) {
    cr_assert_eq(write(o->record_fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void begin_record(struct one_rank *o) {
    struct child_spec *copy = NULL;
    int agent, zip, control;
    (void)warm_pool_record(o->pool, 0, &o->spec, &copy);
    cr_assert_not_null(copy);
    const char *text = env_get(copy->envp, "MUSTER_WARM");
    cr_assert_eq(sscanf(text, "record:%d:%d:%d:%d:", &agent, &zip, &control, &o->record_fd), 4);
    child_spec_free(copy);
    record(o, "gate 3\njson\n");
}

static void one_rank_init(struct one_rank *o, char *const *argv, enum job_warm form, uint64_t import_ns) {
    *o = (struct one_rank){.spec = CHILD_SPEC_INIT};
    cr_assert_eq(loop_new(&o->loop), 0);
    o->reaper = child_reaper_new(o->loop);
    o->doomsday = loop_timer_new(o->loop, on_doomsday, o);
    (void)snprintf(o->path, sizeof o->path, "PATH=%s", getenv("PATH"));
    o->spec.argv = argv;
    (void)snprintf(o->marker, sizeof o->marker, "MUSTER_WORKER_ID=1.0.ab");
    (void)snprintf(o->level, sizeof o->level, "NCCL_DEBUG=INFO");
    memcpy(o->env, (char *[]){o->path, o->marker, o->level, NULL}, sizeof o->env);
    o->spec.envp = o->env;
    struct warm_pool_config config = {
        .reaper = o->reaper, .n = 1, .form = form, .after_ns = NS_PER_MS, .import_ns = import_ns};
    cr_assert_eq(warm_pool_new(o->loop, &config, &o->pool), 0);
    log_set_level(LOG_LEVEL_INFO);
    log_set_sink(on_line, o);
    starts_cold(o, &o->spec, "its imports are not known yet");
    begin_record(o);
}

static void one_rank_fini(struct one_rank *o) {
    log_set_sink(NULL, NULL);
    warm_pool_free(o->pool);
    loop_timer_free(o->doomsday);
    child_reaper_free(o->reaper);
    loop_free(o->loop);
}

#define PYTHON LIST("python3", "-c", "print('the script')")

Test(warm_pool_io, importing_has_a_limit) {
    struct one_rank o;
    char path[] = "/tmp/muster-sleeps-XXXXXX"; /* whatever its arguments are */
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && dprintf(fd, "#!/bin/sh\nexec sleep 1000\n") > 0 && fchmod(fd, 0700) == 0);
    (void)close(fd);
    one_rank_init(&o, LIST(path, "script"), JOB_WARM_FORK, 20 * NS_PER_MS);
    for (unsigned i = 0; i < 2; i++) {
        await(&o, rig_text("%s: importing has taken more than 0.02 s",
                           i == 0 ? "processes for the next start are not forked" : "workers start cold from now on"));
        starts_cold(&o, &o.spec, "importing has taken more than 0.02 s");
    }
    (void)unlink(path);
    one_rank_fini(&o);
}

Test(warm_pool_io, another_environment_is_cold) {
    struct one_rank o;
    one_rank_init(&o, PYTHON, JOB_WARM_PROCESS, 0);
    await(&o, "1 processes wait for the next start");
    struct child_spec other = o.spec;
    other.envp = LIST(o.path, "MUSTER_WORKER_ID=2.0.ab", "NCCLX=1");
    starts_cold(&o, &other, "NCCLX has changed since the modules were imported");
    one_rank_fini(&o);
}

Test(warm_pool_io, other_limits_are_cold) {
    struct one_rank o;
    one_rank_init(&o, PYTHON, JOB_WARM_PROCESS, 0);
    await(&o, "1 processes wait for the next start");
    struct child_spec other = *WITH(o.spec, .nofile_soft = 100);
    starts_cold(&o, &other, "arguments, CPUs or limits have changed");
    one_rank_fini(&o);
}
