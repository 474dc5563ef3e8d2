#include "cli/jobs/ps_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json.h"
#include "cli/jobs/columns.h"
#include "cli/jobs/status_text.h"

#define COMMAND_MIN 16 /* columns of a command that is cut */

enum column { RUN, STATE, NODE, ATTEMPT, WORKERS, SINCE, USER, PID, LISTENER, COMMAND, COUNT };
static const char *const titles[COUNT] = {"JOB",   "STATE", "NODE", "ATTEMPT",  "WORKERS",
                                          "SINCE", "USER",  "PID",  "LISTENER", "COMMAND"};

static bool is_quiet(const struct ps_row *r) {
    const struct rdzv_watchdog *w = &r->overview.watchdog;
    return r->answered && (w->state == WATCHDOG_QUIET || w->state == WATCHDOG_HUNG);
}

/* The group's state, or the node's role if it is not a member. */
static const char *state_of(const struct ps_row *r) {
    if (r->head_nodes > 0)
        return "starter";
    if (!r->answered)
        return r->refused ? "no access" : "no answer";
    if (r->has_node && r->node.place != PLACE_MEMBER && r->overview.state == GROUP_RUNNING)
        return overview_place_names[r->node.place];
    /* A step can take a few seconds: only what was reported counts. */
    if (is_quiet(r) && r->overview.watchdog.said[0] != '\0')
        return watchdog_state_names[r->overview.watchdog.state];
    return group_state_names[r->overview.state];
}

static bool is_member(const struct ps_row *r) {
    return r->answered && r->has_node && r->node.place == PLACE_MEMBER;
}

static void add_cell(const void *row, size_t column, struct strbuf *out) {
    const struct ps_row *r = row;
    switch ((enum column)column) {
    case RUN: columns_add_clean(out, r->run_id); break;
    case STATE: strbuf_add(out, state_of(r)); break;
    case NODE:
        columns_add_clean(out, r->has_node && r->node.name[0] != '\0' ? r->node.name : r->host);
        break;
    case ATTEMPT:
        if (r->answered && !generation_is_none(r->overview.generation))
            strbuf_printf(out, "%" PRIu32, overview_attempt(&r->overview));
        break;
    case WORKERS: /* "8 of 16" */
        if (r->head_nodes > 0)
            strbuf_printf(out, "%" PRIu32 " node%s", r->head_nodes, r->head_nodes == 1 ? "" : "s");
        else if (is_member(r))
            strbuf_printf(out, "%" PRIu32 " of %" PRIu32, r->node.nproc, r->overview.world_size);
        else if (r->answered && r->has_node)
            strbuf_printf(out, "(%" PRIu32 ")", r->node.nproc);
        break;
    case SINCE: strbuf_add(out, r->since); break;
    case USER: columns_add_clean(out, r->user); break;
    case PID: strbuf_printf(out, "%" PRId32, r->pid); break;
    case LISTENER:
        if (r->head_nodes > 0)
            break;
        columns_add_clean(out, r->addr);
        strbuf_printf(out, ":%u", r->port);
        break;
    case COMMAND:
        if (r->command != NULL)
            columns_add_clean(out, r->command);
        break;
    case COUNT: assert_not_reached();
    }
    if (strbuf_text(out)[0] == '\0')
        strbuf_add_char(out, '-');
}

/* What Slurm's head knows of the run id is its beginning. */
static bool is_of(const struct ps_row *agent, const struct ps_row *head) {
    size_t len = strlen(head->run_id);
    return agent->head_nodes == 0 && strncmp(agent->run_id, head->run_id, len) == 0 &&
           (agent->run_id[len] == '\0' || agent->run_id[len] == '.');
}

/* A head whose job has agents here, too, adds nothing. */
static bool is_shown_row(const struct ps_row *rows, size_t n, size_t i) {
    bool found = false;
    for (size_t k = 0; k < n && rows[i].head_nodes > 0; k++)
        found = found || is_of(&rows[k], &rows[i]);
    return !found;
}

void ps_text(const struct ps_row *rows, size_t n, bool wide, uint32_t columns, struct strbuf *out) {
    const unsigned all = (1U << COUNT) - 1, everyday = (1U << USER) - 1;
    const struct columns table = {.titles = titles,
                                  .n = COUNT,
                                  .shown = wide ? all : everyday | 1U << COMMAND,
                                  .right = 1U << PID,
                                  .add_cell = add_cell};
    _cleanup_(freep) const void **shown = xcalloc(MAX2(n, (size_t)1), sizeof *shown);
    size_t n_shown = 0, widths[COLUMNS_MAX];
    for (size_t i = 0; i < n; i++)
        if (is_shown_row(rows, n, i))
            shown[n_shown++] = &rows[i];
    size_t others = columns_measure(&table, shown, n_shown, widths);
    others -= widths[COMMAND] + COLUMNS_GAP;
    if (!wide && columns > 0)
        widths[COMMAND] = MAX2(columns, others + COMMAND_MIN) - others;
    columns_write(&table, shown, n_shown, widths, out);
}

static void write_number(struct json_writer *w, const char *key, bool known, uint64_t v) {
    if (known)
        json_write_u64(w, key, v);
    else
        json_write_null(w, key);
}

static void write_state(struct json_writer *w, const struct ps_row *r) {
    char generation[32];
    const struct overview *o = &r->overview;
    bool formed = r->answered && !generation_is_none(o->generation);
    (void)snprintf(generation, sizeof generation, "%" PRIu32 ".%" PRIu32, o->generation.epoch,
                   o->generation.counter);
    json_write_string(w, "state", r->answered ? group_state_names[o->state] : NULL);
    bool watched = r->answered && o->watchdog.state != WATCHDOG_NONE;
    json_write_string(w, "watchdog", watched ? watchdog_state_names[o->watchdog.state] : NULL);
    write_number(w, "quiet_seconds", is_quiet(r), o->watchdog.quiet_ns / NS_PER_S);
    json_write_string(w, "generation", formed ? generation : NULL);
    write_number(w, "world_size", r->answered, o->world_size);
    bool known = r->answered && r->has_node;
    json_write_string(w, "place", known ? overview_place_names[r->node.place] : NULL);
    write_number(w, "workers", known, r->node.nproc);
    write_number(w, "node_rank", is_member(r), r->node.node_rank);
    write_number(w, "first_rank", is_member(r), r->node.first_rank);
}

static void write_process(struct json_writer *w, const struct ps_row *r) {
    json_write_string(w, "since", r->since_utc);
    json_write_u64(w, "running_seconds", r->running_ns / NS_PER_S);
    json_write_string(w, "command", r->command);
}

static void write_row(struct json_writer *w, const struct ps_row *r) {
    json_write_object_begin(w, NULL);
    json_write_string(w, "run_id", r->run_id);
    write_state(w, r);
    json_write_string(w, "node", r->has_node && r->node.name[0] != '\0' ? r->node.name : r->host);
    json_write_string(w, "user", r->user);
    json_write_i64(w, "pid", r->pid);
    json_write_string(w, "address", r->addr);
    json_write_u64(w, "port", r->port);
    bool has_endpoint = r->answered && r->overview.endpoint[0] != '\0';
    json_write_string(w, "endpoint", has_endpoint ? r->overview.endpoint : NULL);
    write_process(w, r);
    json_write_object_end(w);
}

static void write_head(struct json_writer *w, const struct ps_row *r) {
    json_write_object_begin(w, NULL);
    json_write_string(w, "run_id", r->run_id);
    json_write_u64(w, "nodes", r->head_nodes);
    json_write_string(w, "node", r->host);
    json_write_string(w, "user", r->user);
    json_write_i64(w, "pid", r->pid);
    write_process(w, r);
    json_write_object_end(w);
}

void ps_json(const struct ps_row *rows, size_t n, struct strbuf *out) {
    struct json_writer w = json_writer_of(out);
    json_write_object_begin(&w, NULL);
    json_write_array_begin(&w, "agents");
    for (size_t i = 0; i < n; i++)
        if (rows[i].head_nodes == 0)
            write_row(&w, &rows[i]);
    json_write_array_end(&w);
    json_write_array_begin(&w, "heads");
    for (size_t i = 0; i < n; i++)
        if (rows[i].head_nodes > 0)
            write_head(&w, &rows[i]);
    json_write_array_end(&w);
    json_write_object_end(&w);
    strbuf_add_char(out, '\n');
}
