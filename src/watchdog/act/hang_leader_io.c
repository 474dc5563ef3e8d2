#include "watchdog/act/hang_leader_io.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/list.h"
#include "base/text/log.h"
#include "base/text/strbuf.h"
#include "base/text/utf8.h"
#include "io/clock.h"
#include "io/process/helper_call.h"

#define OPEN_MAX 4 /* cases; further reports have no evidence */

/* A report or a verdict whose evidence is being taken. */
struct open_case {
    struct list link;
    struct hang_leader *leader;
    struct hang_case *io;
    struct generation generation;
    struct hang_update update; /* without suspects */
    bool failed;               /* a worker did while others waited */
    bool let_go;               /* and its result is no longer awaited */
    bool recovered;            /* there were beats again meanwhile */
    bool over;                 /* its group has ended meanwhile: nothing is reported */
    bool alone;                /* no rank waits for others: nothing is stopped */
    struct strbuf signs;       /* whom the signs alone suspect, in words */
    struct failure suspect;    /* the first of them */
    bool suspect_ended;        /* that one has ended with 0 */
};

/* The native stacks of suspects, which are read before these are ended, and then added to the files
 * of the hang. */
struct native {
    bool *suspects;                 /* [world size] */
    char *path;                     /* of hang.txt */
    struct hang_question *question; /* one of the two is there */
    struct helper_call *call;
};

struct hang_leader {
    struct loop *loop;
    struct hang_leader_config config;
    struct hang_leader_ops ops;
    void *arg;
    struct loop_timer *timer;
    struct hang *hang;
    const struct hang_group *group; /* that runs, of the evidence */
    /* [world size] when it was last reported to have waited; 0: never. NULL: nothing is watched */
    uint64_t *waited_ns;
    uint64_t began_ns;
    struct list open; /* struct open_case */
    uint32_t n_open;
    struct native *native;        /* NULL: none are read */
    char own_name[RDZV_HOST_MAX]; /* of this node in the group, if it has others; else "" */
    bool files_failed;            /* and that was reported */
    struct rdzv_watchdog watchdog;
    bool reported; /* since the last beat the job was reported as quiet, or hanging */
};

static const char *sign_text(enum hang_sign sign) {
    switch (sign) {
    case HANG_SIGN_STOPPED: return "is stopped";
    case HANG_SIGN_BEHIND: return "is steps behind";
    case HANG_SIGN_ENDED: return "has ended with 0";
    case HANG_SIGN_ASKS: return "waits for input";
    case HANG_SIGN_HELD: return "waits for a reader of its output";
    case HANG_SIGN_TRACED: return "is stopped by a debugger";
    case HANG_SIGN_BUSY: return "is busy";
    }
    assert_not_reached();
}

#define SUSPECTS_NAMED 3

static void name_suspects(const struct hang_leader *l, const struct hang_update *u,
                          struct strbuf *ret) {
    for (uint32_t i = 0; i < MIN2(u->n_suspects, (uint32_t)SUSPECTS_NAMED); i++)
        strbuf_printf(ret, "; rank %u (node %s) %s", u->suspects[i].rank,
                      l->group->nodes[u->suspects[i].node].name, sign_text(u->suspects[i].sign));
    if (u->n_suspects > SUSPECTS_NAMED)
        strbuf_printf(ret, "; and %u more", u->n_suspects - SUSPECTS_NAMED);
}

static void close_case(struct open_case *c) {
    list_remove(&c->link);
    c->leader->n_open--;
    strbuf_fini(&c->signs);
    free(c);
}

static void blame(const struct hang_leader *l, uint32_t rank, uint32_t node, int32_t pid,
                  struct failure *ret) {
    const struct hang_node *n = &l->group->nodes[node];
    ret->rank = rank;
    ret->local_rank = rank - n->first_rank;
    ret->incarnation = n->incarnation;
    ret->pid = pid;
    (void)snprintf(ret->node, sizeof ret->node, "%s", n->name);
}

/* A full or dead disk is reported once. */
static void report_files(struct hang_leader *l, const struct hang_compared *seen) {
    if (seen->path != NULL) {
        log_notice("what each rank did is in %s%s%s%s", seen->path,
                   l->own_name[0] != '\0' ? " (node " : "", l->own_name,
                   l->own_name[0] != '\0' ? ")" : "");
        l->config.cases.workers.ops->keep_files(l->config.cases.workers.files);
        l->files_failed = false;
    } else if (seen->files_error != NULL && !l->files_failed) {
        log_warning("cannot save what each rank did: %s", seen->files_error);
        l->files_failed = true;
    }
}

struct work {
    const struct native *native;
    const struct hang_answers *answers;
};

static const struct evidence_worker *find(const struct evidence *e, uint32_t rank) {
    for (uint32_t i = 0; i < e->n_workers; i++)
        if (e->workers[i].rank == rank)
            return &e->workers[i];
    return NULL;
}

/* Of the ranks of one node. */
static void read_node(const struct work *k, uint32_t node, struct evidence *e, struct err *err,
                      struct suspects_native *list, uint32_t *n) {
    const struct hang_node *of = &k->answers->group.nodes[node];
    const struct hang_answer *answer = &k->answers->nodes[node];
    const char *missing = answer->missing;
    if (missing == NULL && evidence_read(strbuf_text(&answer->json), answer->json.len, e, err) < 0)
        missing = err->text;
    for (uint32_t r = of->first_rank; r < of->first_rank + of->nproc; r++) {
        if (!k->native->suspects[r])
            continue;
        const struct evidence_worker *worker = find(e, r);
        const char *why = missing != NULL ? missing : "it was not read: it had ended by then";
        list[(*n)++] = (struct suspects_native){
            .rank = r, .node = of->name, .worker = worker, .missing = worker != NULL ? NULL : why};
    }
}

/* In a helper. */
static int write_native(int fd, void *arg) {
    const struct work *k = arg;
    const struct hang_group *g = &k->answers->group;
    _cleanup_(strbuf_fini) struct strbuf text = {0}, json = {0};
    _cleanup_(freep) struct suspects_native *list = xcalloc(g->world_size, sizeof *list);
    _cleanup_(freep) struct evidence *evidence = xcalloc(g->n_nodes, sizeof *evidence);
    _cleanup_(freep) struct err *errors = xcalloc(g->n_nodes, sizeof *errors);
    struct err err = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        read_node(k, i, &evidence[i], &errors[i], list, &n);
    suspects_native_text(list, n, &text);
    suspects_native_json(list, n, &json);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        evidence_fini(&evidence[i]);
    int r = hang_files_amend(k->native->path, &text, &json, &err);
    const char *answer = r < 0 ? err.text : "";
    return helper_send(fd, answer, strlen(answer) + 1) ? 0 : 1;
}

static void forget_native(struct hang_leader *l) {
    struct native *n = TAKE_PTR(l->native);
    if (n == NULL)
        return;
    hang_question_free(n->question);
    helper_call_free(n->call);
    free(n->suspects);
    free(n->path);
    free(n);
}

/* error: why the files lack the stacks; NULL: they have them, or the reasons why there are none. */
static void end_native(struct hang_leader *l, const char *error) {
    if (error != NULL)
        log_warning("cannot save the native stacks: %s", error);
    forget_native(l);
    if (!hang_leader_is_busy(l))
        l->ops.idle(l->arg);
}

static void on_native_written(void *arg, const struct helper_answer *a) {
    struct hang_leader *l = arg;
    l->native->call = NULL;
    bool whole = a->len > 0 && a->data[a->len - 1] == '\0';
    end_native(l, !whole ? "the disk does not answer" : a->data[0] != '\0' ? a->data : NULL);
}

static void on_native_read(void *arg, const struct hang_answers *answers) {
    struct hang_leader *l = arg;
    struct work k = {.native = l->native, .answers = answers};
    l->native->question = NULL;
    struct helper_call_config config = {.name = HANG_ADD_NAME,
                                        .run = write_native,
                                        .arg = &k,
                                        .timeout_ns = l->config.cases.settings.evidence_timeout_ns,
                                        .max_bytes = sizeof(struct err),
                                        .may_linger = true};
    if (helper_call_new(l->loop, &config, on_native_written, l, &l->native->call) < 0)
        end_native(l, "no process could be started");
    else
        l->config.cases.workers.ops->spare(l->config.cases.workers.spare,
                                           helper_call_pid(l->native->call));
}

/* The stop need not wait for it here: each node reads first, within its time (hang_watch_io.h).
 * Takes suspects. */
static void read_native(struct hang_leader *l, bool *suspects, const char *path) {
    l->native = xcalloc(1, sizeof *l->native);
    *l->native = (struct native){.suspects = suspects, .path = xstrdup(path)};
    hang_evidence_end_ranks(l->config.cases.evidence, suspects,
                            hang_case_native_ns(&l->config.cases.settings), on_native_read, l,
                            &l->native->question);
}

/* A worker without evidence is a suspect if its signs alone show it. If there is no suspect, no
 * worker is disturbed before the stop. Without files there is no place for native stacks. */
static void end_suspects(struct hang_leader *l, const struct open_case *c,
                         const struct hang_compared *seen) {
    _cleanup_(freep) bool *suspects = xcalloc(l->group->world_size, sizeof *suspects);
    bool any = true;
    if (seen != NULL && seen->n_suspects > 0 && seen->n_ranks == l->group->world_size)
        for (uint32_t r = 0; r < seen->n_ranks; r++)
            suspects[r] = seen->ranks[r].is_suspect;
    else if (c->suspect.incarnation != 0)
        suspects[c->suspect.rank] = true;
    else
        any = false;
    forget_native(l);
    if (any && hang_case_native_ns(&l->config.cases.settings) > 0 && seen != NULL &&
        seen->path != NULL)
        read_native(l, TAKE_PTR(suspects), seen->path);
    else
        hang_evidence_end_ranks(l->config.cases.evidence, suspects, 0, NULL, NULL, NULL);
}

static void write_event(struct hang_leader *l, enum timeline_kind kind, const struct failure *who,
                        const char *why, uint64_t quiet_ns) {
    uint64_t now = clock_now_ns();
    struct timeline_entry entry = {.kind = kind,
                                   .at_ns = now,
                                   .generation = l->group->generation,
                                   .from_ns = now > quiet_ns ? now - quiet_ns : 0};
    if (who != NULL) {
        entry.node = who->incarnation;
        (void)snprintf(entry.name, sizeof entry.name, "%s", who->node);
    }
    utf8_copy(entry.why, sizeof entry.why, why);
    l->ops.timeline(l->arg, &entry);
}

/* For the group. */
static void send_event(const struct hang_leader *l, const struct group_event *event) {
    if (*l->config.server != NULL)
        l->ops.event(*l->config.server, event);
}

/* evidence: a folder, or NULL. */
static void send_hang(const struct hang_leader *l, const struct open_case *c, const char *evidence,
                      bool only_reported) {
    send_event(l, &(struct group_event){.kind = GROUP_EVENT_HANG,
                                        .generation = c->generation,
                                        .failure = &c->suspect,
                                        .quiet_ns = l->watchdog.quiet_ns,
                                        .evidence = evidence,
                                        .only_reported = only_reported});
}

static bool is_to_restart(const struct hang_leader *l) {
    enum hang_action action = l->config.cases.settings.action;
    return action == HANG_ACTION_RESTART || (action == HANG_ACTION_AUTO && l->config.restarts);
}

/* What is done about a hang, where nothing is stopped for it. */
static const char *left_alone(const struct open_case *c) {
    bool restarts = is_to_restart(c->leader);
    if (!c->update.hung || (restarts && !c->alone) || c->recovered)
        return "";
    if (c->alone && restarts)
        return "; nothing is stopped: no rank waits in a collective or for the job's store; "
               "--hang-action=restart restarts anyway";
    return c->leader->config.cases.settings.action == HANG_ACTION_AUTO
               ? "; nothing is stopped, as there are no restarts (--max-restarts=0); \"muster "
                 "stop\" ends the job"
               : "; nothing is stopped (--hang-action=report)";
}

/* Nothing is stopped for it. */
static void report(struct open_case *c, const char *text, const char *evidence) {
    struct hang_leader *l = c->leader;
    bool hung = c->update.hung;
    const char *now = hung ? "hangs" : "is quiet";
    const char *before = hung ? "seemed to hang, and continues" : "was quiet, and continues";
    uint64_t quiet_ns = MAX2(c->update.quiet_ns, l->watchdog.quiet_ns);
    log_folded(LOG_LEVEL_WARNING, "the job %s: %s%s", c->recovered ? before : now, text,
               left_alone(c));
    if (hung)
        send_hang(l, c, evidence, true);
    else
        write_event(l, TIMELINE_QUIET, &c->suspect, text, quiet_ns);
    if (c->recovered)
        write_event(l, TIMELINE_RESUMED, NULL, "", quiet_ns);
    else
        l->reported = true;
}

static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? NULL : xasprintf("%.*s", (int)(slash - path), path);
}

/* A reason to end the job is in the verdict: it needs none of the evidence. */
static bool is_reason(const struct open_case *c) {
    return c->leader->config.cases.settings.action == HANG_ACTION_RESTART ||
           c->update.why == HANG_WHY_STOPPED || c->update.why == HANG_WHY_ANNOUNCED;
}

/* seen NULL: there is no evidence. */
static void decide(struct open_case *c, const struct hang_compared *seen) {
    struct hang_leader *l = c->leader;
    const struct hang_update *u = &c->update;
    bool same = generation_compare(c->generation, l->group->generation) == 0;
    bool named = seen != NULL && seen->n_suspects > 0;
    c->alone = seen != NULL && seen->code == 0 && !seen->reason && !is_reason(c);
    bool ends = u->hung && is_to_restart(l) && !c->alone;
    bool debugged = seen != NULL && seen->n_debugged > 0;
    _cleanup_(freep) char *evidence =
        seen != NULL && seen->path != NULL ? folder_of(seen->path) : NULL;
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    strbuf_add(&text, u->text);
    if (seen != NULL && u->hung && u->why == HANG_WHY_STILL && !u->spins)
        strbuf_printf(&text, ": main threads used at most %.1f ms of CPU since they last moved",
                      (double)seen->used_ns / 1e6);
    if (seen != NULL && !named && c->suspect_ended) /* what they had to do, they did */
        c->suspect = (struct failure){0};
    if (!named)
        strbuf_add(&text, strbuf_text(&c->signs));
    if (seen != NULL && seen->line[0] != '\0')
        strbuf_printf(&text, "; %s", seen->line);
    if (debugged)
        strbuf_printf(&text, "; rank %u is in a debugger%s", seen->debugged,
                      ends ? ", so nothing is stopped" : "");
    if (named && same)
        blame(l, seen->first.rank, seen->first.node, seen->first.pid, &c->suspect);
    c->suspect.kind = FAILURE_HANG;
    c->suspect.wall_ns = clock_wall_ns();
    c->suspect.ran_ns = clock_now_ns() - l->began_ns;
    (void)snprintf(c->suspect.text, sizeof c->suspect.text, "%s", strbuf_text(&text));
    if (!c->failed && !c->recovered)
        utf8_copy(l->watchdog.said, sizeof l->watchdog.said, strbuf_text(&text));
    if (c->failed) {
        if (seen != NULL && seen->line[0] != '\0')
            log_folded(LOG_LEVEL_WARNING, "%s", seen->line);
    } else if (ends && !debugged && !c->recovered) {
        end_suspects(l, c, seen);
        send_hang(l, c, evidence, false);
    } else {
        report(c, strbuf_text(&text), evidence);
    }
    if (seen != NULL)
        report_files(l, seen);
}

static void step(struct hang_leader *l, struct hang_event *ev);

/* What the evidence has shown beyond the signs. */
static void update_machine(struct hang_leader *l, const struct hang_compared *seen) {
    for (uint32_t r = 0; r < seen->n_ranks; r++) {
        if (seen->ranks[r].ended)
            step(l, &(struct hang_event){.kind = HANG_EVENT_ENDED, .rank = r});
        else if (seen->ranks[r].place != 0)
            step(l, &(struct hang_event){
                        .kind = HANG_EVENT_PLACE, .rank = r, .place = seen->ranks[r].place});
    }
}

static void on_seen(void *arg, const struct hang_compared *seen) {
    struct open_case *c = arg;
    struct hang_leader *l = c->leader;
    struct generation of = c->generation;
    c->io = NULL;
    if (seen->code < 0 && !c->over)
        log_warning("cannot compare what each rank does: %s",
                    seen->code == -ETIMEDOUT ? "it took too long (--evidence-timeout)"
                                             : helper_call_why(seen->code));
    if (!c->over)
        decide(c, seen->code < 0 ? NULL : seen);
    close_case(c);
    if (!hang_leader_is_busy(l))
        l->ops.idle(l->arg);
    if (seen->code == 0 && generation_compare(of, l->group->generation) == 0)
        update_machine(l, seen);
}

static void open_case(struct hang_leader *l, const struct hang_update *u) {
    struct open_case *c = xcalloc(1, sizeof *c);
    *c = (struct open_case){.leader = l, .generation = l->group->generation, .update = *u};
    c->update.suspects = NULL;
    (void)snprintf(l->watchdog.said, sizeof l->watchdog.said, "%s", u->text);
    name_suspects(l, u, &c->signs);
    if (u->n_suspects > 0)
        blame(l, u->suspects[0].rank, u->suspects[0].node, 0, &c->suspect);
    c->suspect_ended = u->n_suspects > 0 && u->suspects[0].sign == HANG_SIGN_ENDED;
    list_append(&l->open, &c->link);
    struct suspects_input in = {
        .what = u->text, .quiet_ns = u->quiet_ns, .signs = u->suspects, .n_signs = u->n_suspects};
    bool asks =
        l->n_open++ < OPEN_MAX &&
        hang_case_new(&l->config.cases, &in, u->hung && is_to_restart(l), on_seen, c, &c->io) == 0;
    if (!asks) {
        decide(c, NULL);
        close_case(c);
    }
}

void hang_leader_failed(struct hang_leader *l, uint32_t rank, const char *what) {
    uint32_t n = 0, world = l->group->world_size;
    if (l->waited_ns == NULL || rank >= world)
        return;
    _cleanup_(freep) bool *waited = xcalloc(world, sizeof *waited);
    uint64_t now = clock_now_ns();
    for (uint32_t r = 0; r < world; r++) {
        waited[r] = l->waited_ns[r] != 0 && now - l->waited_ns[r] <= HANG_WAITED_LATELY_NS;
        n += r != rank && waited[r];
    }
    if (n == 0 || 2 * n < world - 1)
        return;
    struct open_case *c = xcalloc(1, sizeof *c);
    *c = (struct open_case){.leader = l, .generation = l->group->generation, .failed = true};
    list_append(&l->open, &c->link);
    struct suspects_input in = {.what = what, .waited = waited, .failed = rank};
    if (l->n_open++ >= OPEN_MAX ||
        hang_case_new(&l->config.cases, &in, false, on_seen, c, &c->io) < 0)
        close_case(c);
}

bool hang_leader_is_busy(const struct hang_leader *l) {
    LIST_FOR_EACH(const struct open_case, c, &l->open, link)
        if (c->failed && !c->let_go)
            return true;
    return l->native != NULL;
}

static void resumed(struct hang_leader *l, uint64_t quiet_ns) {
    LIST_FOR_EACH(struct open_case, c, &l->open, link)
        c->recovered = true;
    if (!l->reported)
        return;
    if (quiet_ns >= NS_PER_S)
        log_notice("the job continues: most workers move again, after %" PRIu64 " s of quiet",
                   quiet_ns / NS_PER_S);
    else /* one has asked for input, and that time is not counted */
        log_notice("the job continues: most workers move again");
    write_event(l, TIMELINE_RESUMED, NULL, "", quiet_ns);
}

static void note_state(struct hang_leader *l, const struct hang_update *u) {
    uint64_t quiet_ns = l->watchdog.quiet_ns;
    bool was_quiet = rdzv_watchdog_is_quiet(&l->watchdog);
    l->watchdog.state = u->state;
    l->watchdog.quiet_ns = u->quiet_ns;
    l->watchdog.limit_ns = u->limit_ns;
    if (was_quiet && !rdzv_watchdog_is_quiet(&l->watchdog))
        send_event(l, &(struct group_event){.kind = GROUP_EVENT_QUIET, .quiet_ns = quiet_ns});
    if (u->state != WATCHDOG_OK && u->state != WATCHDOG_NONE)
        return;
    if (u->state == WATCHDOG_OK)
        resumed(l, quiet_ns);
    l->watchdog.said[0] = '\0';
    l->reported = false;
}

void hang_leader_watchdog(void *hang_leader, struct rdzv_watchdog *ret) {
    const struct hang_leader *l = hang_leader;
    *ret = l->watchdog;
}

static void step(struct hang_leader *l, struct hang_event *ev) {
    struct hang_update u;
    ev->now_ns = clock_now_ns();
    hang_step(l->hang, ev, &u);
    loop_timer_set(l->timer, u.deadline_ns);
    note_state(l, &u);
    if (u.report_due || u.hung)
        open_case(l, &u);
}

static void on_timer(void *arg) { step(arg, &(struct hang_event){.kind = HANG_EVENT_TIMER}); }

/* A comparison that is under way continues. */
static void forget_answers(struct open_case *c) {
    if (hang_case_has_answers(c->io))
        return;
    hang_case_free(c->io);
    close_case(c);
}

/* Workers that are gone cannot answer: they would be reported as not answering in time. What is
 * being compared is still kept in files. The case that is just decided has no io. */
static void forget_cases(struct hang_leader *l) {
    LIST_FOR_EACH(struct open_case, c, &l->open, link) {
        if (c->failed || c->io == NULL)
            continue;
        c->over = true;
        forget_answers(c);
    }
}

void hang_leader_let_go(struct hang_leader *l) {
    LIST_FOR_EACH(struct open_case, c, &l->open, link) {
        if (!c->failed || c->io == NULL)
            continue;
        c->let_go = true;
        forget_answers(c);
    }
    forget_native(l);
}

void hang_leader_end(struct hang_leader *l) {
    if (l->waited_ns != NULL) {
        step(l, &(struct hang_event){.kind = HANG_EVENT_END});
        forget_cases(l);
        free(TAKE_PTR(l->waited_ns));
    }
    hang_evidence_end(l->config.cases.evidence);
}

void hang_leader_begin(struct hang_leader *l, const struct hang_group *group) {
    hang_leader_end(l);
    hang_evidence_begin(l->config.cases.evidence, group);
    if (l->config.cases.settings.action == HANG_ACTION_OFF)
        return;
    uint32_t own = hang_group_find(group, l->config.incarnation);
    (void)snprintf(l->own_name, sizeof l->own_name, "%s",
                   group->n_nodes > 1 && own < group->n_nodes ? group->nodes[own].name : "");
    l->waited_ns = xcalloc(group->world_size, sizeof *l->waited_ns);
    l->began_ns = clock_now_ns();
    step(l, &(struct hang_event){
                .kind = HANG_EVENT_START, .n = l->group->world_size, .nodes = l->group->node_of});
}

void hang_leader_signs(void *hang_leader, uint64_t incarnation, const struct rdzv_signs *signs) {
    struct hang_leader *l = hang_leader;
    uint32_t node = hang_group_find(l->group, incarnation);
    if (l->waited_ns == NULL || generation_compare(signs->generation, l->group->generation) != 0 ||
        node == l->group->n_nodes)
        return;
    for (uint32_t i = 0; i < signs->n; i++) {
        const struct worker_signs *row = &signs->list[i];
        if (row->rank < l->group->world_size && l->group->node_of[row->rank] == node &&
            (row->flags & (SIGN_MOVED | SIGN_ENDED)) == 0 && row->still_ns >= HANG_WAITED_NS)
            l->waited_ns[row->rank] = clock_now_ns();
    }
    step(l, &(struct hang_event){
                .kind = HANG_EVENT_SIGNS, .node = node, .rows = signs->list, .n = signs->n});
}

struct hang_leader *hang_leader_new(struct loop *loop, const struct hang_leader_config *config,
                                    const struct hang_leader_ops *ops, void *arg) {
    struct hang_leader *l = xcalloc(1, sizeof *l);
    *l = (struct hang_leader){.loop = loop,
                              .config = *config,
                              .ops = *ops,
                              .arg = arg,
                              .group = hang_evidence_group(config->cases.evidence)};
    list_init(&l->open);
    l->timer = loop_timer_new(loop, on_timer, l);
    l->hang = hang_new(&config->cases.settings.limits);
    return l;
}

void hang_leader_free(struct hang_leader *l) {
    if (l == NULL)
        return;
    LIST_FOR_EACH(struct open_case, c, &l->open, link) {
        hang_case_free(c->io);
        close_case(c);
    }
    forget_native(l);
    free(l->waited_ns);
    hang_free(l->hang);
    loop_timer_free(l->timer);
    free(l);
}
