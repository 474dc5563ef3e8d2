#include "launcher/srun/slurm_job.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"

#define WORD_MAX 64
/* What is left for muster itself after the workers' grace. */
#define OWN_NS (3 * NS_PER_S)

bool slurm_kill_wait(const char *config, uint64_t *ret_ns) {
    unsigned seconds;
    const char *line = config;
    while (*line != '\0' && strncmp(line, "KillWait ", strlen("KillWait ")) != 0)
        line = text_next_line(line);
    if (sscanf(line, "KillWait = %u sec", &seconds) != 1)
        return false;
    *ret_ns = seconds * NS_PER_S;
    return true;
}

uint64_t slurm_grace(uint64_t around_ns) {
    return around_ns > OWN_NS + SLURM_GRACE_MIN_NS ? around_ns - OWN_NS : SLURM_GRACE_MIN_NS;
}

/* The value of NAME=value; "": there is none. */
static void read_word(const char *job, const char *name, char ret[WORD_MAX]) {
    const char *at = strstr(job, name);
    size_t n = at != NULL ? strcspn(at + strlen(name), " \n") : 0;
    (void)snprintf(ret, WORD_MAX, "%.*s", (int)MIN2(n, (size_t)WORD_MAX - 1),
                   at != NULL ? at + strlen(name) : "");
}

bool slurm_step_waits(const char *steps, int srun) {
    for (const char *line = steps; *line != '\0'; line = text_next_line(line)) {
        char state[WORD_MAX], asker[WORD_MAX];
        _cleanup_(freep) char *step = xstrndup(line, strcspn(line, "\n"));
        read_word(step, " State=", state);
        read_word(step, " SrunHost:Pid=", asker);
        const char *pid = strrchr(asker, ':');
        if (strcmp(state, "PENDING") == 0 && pid != NULL && atoi(pid + 1) == srun)
            return true;
    }
    return false;
}

/* "1-02:03:04", days only if there are some, to seconds. False: UNLIMITED, or the like. */
static bool read_duration(const char *text, uint64_t *ret_s) {
    unsigned days = 0, hours, minutes, seconds;
    int n = 0;
    if (sscanf(text, "%6u-%2u:%2u:%2u%n", &days, &hours, &minutes, &seconds, &n) != 4) {
        days = 0;
        if (sscanf(text, "%2u:%2u:%2u%n", &hours, &minutes, &seconds, &n) != 3)
            return false;
    }
    *ret_s = ((days * UINT64_C(24) + hours) * 60 + minutes) * 60 + seconds;
    return text[n] == '\0';
}

static bool is_soon_over(const char *job) {
    char run[WORD_MAX], limit[WORD_MAX];
    uint64_t run_s, limit_s;
    read_word(job, " RunTime=", run);
    read_word(job, " TimeLimit=", limit);
    return read_duration(run, &run_s) && read_duration(limit, &limit_s) &&
           run_s + SLURM_SOON_S >= limit_s;
}

/* Slurm does not show the state before COMPLETING. A job that was cancelled has neither a reason
 * nor an exit code of its own, but its script may have died of SIGTERM by now; the allocation of
 * salloc ends with its shell. Seen with Slurm 22.05. */
static enum slurm_end end_of_completing(const char *job, const char *reason, uint32_t restarts) {
    struct slurm_queue_facts q = slurm_queue_facts(job);
    char code[WORD_MAX];
    read_word(job, " ExitCode=", code);
    if (q.known && q.restarts > restarts)
        return SLURM_END_REQUEUED;
    bool own_code = code[0] != '\0' && strcmp(code, "0:0") != 0 && strcmp(code, "0:15") != 0;
    return strcmp(reason, "None") != 0 || own_code || (q.known && !q.batch) ? SLURM_END_OVER
                                                                            : SLURM_END_CANCELLED;
}

enum slurm_end slurm_end_of(const char *job, uint32_t restarts) {
    static const struct {
        const char *state, *reason; /* NULL: any */
        enum slurm_end end;
    } rows[] = {
        {"TIMEOUT", NULL, SLURM_END_TIME},        {NULL, "TimeLimit", SLURM_END_TIME},
        {"PREEMPTED", NULL, SLURM_END_PREEMPTED}, {"NODE_FAIL", NULL, SLURM_END_NODE},
        {NULL, "NodeDown", SLURM_END_NODE},       {"OUT_OF_MEMORY", NULL, SLURM_END_MEMORY},
        {"DEADLINE", NULL, SLURM_END_DEADLINE},   {"CANCELLED", NULL, SLURM_END_CANCELLED},
    };
    char state[WORD_MAX], reason[WORD_MAX], preempted[WORD_MAX];
    read_word(job, " JobState=", state);
    read_word(job, " Reason=", reason);
    read_word(job, " PreemptTime=", preempted);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if ((rows[i].state == NULL || strcmp(rows[i].state, state) == 0) &&
            (rows[i].reason == NULL || strcmp(rows[i].reason, reason) == 0))
            return rows[i].end;
    if (preempted[0] != '\0' && strcmp(preempted, "None") != 0)
        return SLURM_END_PREEMPTED;
    if (strcmp(state, "RUNNING") == 0 && is_soon_over(job))
        return SLURM_END_SOON;
    return strcmp(state, "COMPLETING") == 0 ? end_of_completing(job, reason, restarts)
                                            : SLURM_END_NONE;
}

static const struct {
    const char *text;
    unsigned requeue; /* the bit of --requeue; 0: it has none */
} ends[] = {
    [SLURM_END_NONE] = {NULL, 0},
    [SLURM_END_TIME] = {"the job has reached its time limit", REQUEUE_TIMEOUT},
    [SLURM_END_SOON] = {"the job's time is nearly over", REQUEUE_TIMEOUT},
    [SLURM_END_PREEMPTED] = {"the job is preempted", REQUEUE_PREEMPT},
    [SLURM_END_NODE] = {"a node of the job has failed", REQUEUE_NODE_FAIL},
    [SLURM_END_MEMORY] = {"the job is out of memory", 0},
    [SLURM_END_DEADLINE] = {"the job has reached its deadline", 0},
    [SLURM_END_CANCELLED] = {"the job is cancelled", 0},
    [SLURM_END_REQUEUED] = {"the job is requeued", 0},
    [SLURM_END_OVER] = {"the allocation has ended", 0},
};

const char *slurm_end_text(enum slurm_end end) { return ends[end].text; }

struct slurm_queue_facts slurm_queue_facts(const char *job) {
    struct slurm_queue_facts f = {0};
    char batch[WORD_MAX], requeue[WORD_MAX], restarts[WORD_MAX];
    read_word(job, " BatchFlag=", batch);
    read_word(job, " Requeue=", requeue);
    read_word(job, " Restarts=", restarts);
    if (batch[0] == '\0' || requeue[0] == '\0' || parse_u32(restarts, &f.restarts) < 0)
        return (struct slurm_queue_facts){0};
    f.known = true;
    f.batch = strcmp(batch, "0") != 0;
    f.requeue = strcmp(requeue, "0") != 0;
    return f;
}

char *slurm_excluded(const char *job) {
    static const char name[] = " ExcNodeList=";
    const char *at = strstr(job, name);
    const char *value = at != NULL ? at + strlen(name) : "";
    char *text = xstrndup(value, strcspn(value, " \n"));
    if (strcmp(text, "(null)") == 0)
        text[0] = '\0';
    return text;
}

/* ---- requeueing ---- */

#define TERM_STATUS 143 /* ended by SIGTERM */
#define ALL (REQUEUE_PREEMPT | REQUEUE_NODE_FAIL | REQUEUE_TIMEOUT)

static const char *const words[] = {"preempt", "node-fail", "timeout"};

const char *requeue_word(unsigned bit) {
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (bit == 1u << i)
            return words[i];
    return "";
}

int requeue_parse(const char *text, unsigned *ret) {
    unsigned bits = 0;
    const char *item;
    size_t len;
    for (size_t i = 0; (item = list_item(text, i, &len)) != NULL; i++) {
        unsigned bit = 0;
        for (size_t k = 0; k < ARRAY_SIZE(words); k++)
            if (strlen(words[k]) == len && strncmp(words[k], item, len) == 0)
                bit = 1u << k;
        if (bit == 0)
            return -EINVAL;
        bits |= bit;
    }
    *ret = bits;
    return 0;
}

/* Why the job ends: bits; several if only Slurm could tell, and did not answer. */
static unsigned reasons(const struct requeue_facts *f, enum slurm_end end) {
    bool may_go_on = end == SLURM_END_NONE || end == SLURM_END_SOON;
    if (may_go_on && f->status == REQUEUE_EXIT_STATUS)
        return REQUEUE_NODE_FAIL;
    if (may_go_on && f->status != TERM_STATUS)
        return 0;
    return f->job == NULL ? ALL : ends[end].requeue;
}

void requeue_cannot(const char *id, const char *job, struct strbuf *ret_sentence) {
    struct slurm_queue_facts q = slurm_queue_facts(job);
    strbuf_clear(ret_sentence);
    if (q.known && !q.batch)
        strbuf_printf(ret_sentence,
                      "--requeue: Slurm requeues only batch jobs, and job %s is none; submit it "
                      "with sbatch",
                      id);
    else if (q.known && !q.requeue)
        strbuf_printf(ret_sentence,
                      "--requeue: job %s was submitted with --no-requeue, or this cluster has "
                      "JobRequeue=0; submit it with sbatch --requeue",
                      id);
}

void requeue_not_asked(enum slurm_end end, unsigned asked, const char *job,
                       struct strbuf *ret_sentence) {
    struct slurm_queue_facts q = slurm_queue_facts(job);
    unsigned bit = ends[end].requeue;
    strbuf_clear(ret_sentence);
    if (bit == 0 || (asked & bit) != 0 || !q.known || !q.batch || !q.requeue)
        return;
    strbuf_printf(ret_sentence,
                  "it is not requeued when it ends now; --requeue=%s puts it back into the queue",
                  requeue_word(bit));
}

static void say_why(enum slurm_end end, bool lost, struct strbuf *ret) {
    const char *text = slurm_end_text(end);
    if (lost && (end == SLURM_END_NONE || end == SLURM_END_SOON))
        text = "nodes of the job were lost";
    strbuf_add(ret, text != NULL ? text : "the job was ordered to end");
}

bool requeue_decide(const struct requeue_facts *f, struct strbuf *ret) {
    struct slurm_queue_facts q = slurm_queue_facts(f->job != NULL ? f->job : "");
    enum slurm_end end = f->job != NULL ? slurm_end_of(f->job, f->restarts) : SLURM_END_NONE;
    uint32_t restarts = q.known ? q.restarts : f->restarts;
    strbuf_clear(ret);
    if (f->asked == 0 || f->status == 0)
        return false;
    if (q.known && q.restarts > f->restarts) {
        strbuf_printf(ret, "Slurm has put job %s back into the queue", f->id);
        return false;
    }
    unsigned why = reasons(f, end);
    if ((why & f->asked) == 0)
        return false;
    if (q.known && (!q.batch || !q.requeue)) {
        strbuf_printf(ret, "job %s is not requeued: %s", f->id,
                      q.batch ? "it was submitted with --no-requeue, or this cluster forbids it"
                              : "it is not a batch job");
        return false;
    }
    if (!f->safe) {
        strbuf_printf(ret,
                      "job %s is not requeued: no worker has reported a safe point "
                      "(MUSTER_SAFE_POINT=1) since it started, so nothing new would be saved",
                      f->id);
        return false;
    }
    if (restarts >= f->max) {
        strbuf_printf(ret,
                      "job %s is not requeued: it was %" PRIu32 " time%s already "
                      "(--max-requeues=%" PRIu32 ")",
                      f->id, restarts, restarts == 1 ? "" : "s", f->max);
        return false;
    }
    say_why(end, f->status == REQUEUE_EXIT_STATUS, ret);
    strbuf_printf(ret, " (requeue %" PRIu32 " of at most %" PRIu32 ")", restarts + 1, f->max);
    return true;
}

bool requeue_is_name(const char *text) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return text[0] != '\0' && text[strspn(text, letters)] == '\0';
}

/* Whether the list has this very item. In brackets it may have it too; once more does no harm. */
static bool has_item(const char *list, const char *item, size_t len) {
    const char *at;
    size_t n;
    for (size_t i = 0; (at = list_item(list, i, &n)) != NULL; i++)
        if (n == len && strncmp(at, item, len) == 0)
            return true;
    return false;
}

char *requeue_avoid(const char *excluded, const char *lost) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    const char *item;
    size_t len;
    bool more = false;
    strbuf_add(&s, excluded);
    for (size_t i = 0; (item = list_item(lost, i, &len)) != NULL; i++) {
        if (len == 0 || has_item(strbuf_text(&s), item, len))
            continue;
        strbuf_printf(&s, "%s%.*s", s.len > 0 ? "," : "", (int)len, item);
        more = true;
    }
    return more ? xstrdup(strbuf_text(&s)) : NULL;
}
