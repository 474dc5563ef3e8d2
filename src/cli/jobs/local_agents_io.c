#include "cli/jobs/local_agents_io.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text/utf8.h"
#include "cli/jobs/shell_words.h"
#include "io/process/proc.h"
#include "launcher/place/place.h"
#include "rendezvous/operate/registry_io.h"

#define COMMAND_BYTES_MAX 4096
#define TIMEOUT_NS (2 * NS_PER_S)

void local_agents_free(struct ps_row *rows, size_t n) {
    for (size_t i = 0; i < n; i++)
        free(rows[i].command);
    free(rows);
}

/* The command line of a process, quoted for a shell, malloc'ed; NULL: it can't be read. */
static char *command_of(int32_t pid) {
    char text[COMMAND_BYTES_MAX];
    ssize_t n = proc_read(pid, "/cmdline", text, sizeof text - 1);
    if (n <= 0)
        return NULL;
    text[n] = '\0';
    struct strbuf out = {0};
    for (const char *word = text; word < text + n; word += strlen(word) + 1) {
        strbuf_add(&out, word > text ? " " : "");
        shell_add_word(&out, word);
    }
    char *command = strbuf_take(&out);
    utf8_clean(command, false);
    return command;
}

static void set_times(struct ps_row *row, uint64_t since_wall_ns) {
    struct timespec now = {0};
    struct tm tm;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    time_t since = (time_t)(since_wall_ns / NS_PER_S);
    uint64_t now_ns = (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
    row->running_ns = now_ns > since_wall_ns ? now_ns - since_wall_ns : 0;
    bool today = row->running_ns < UINT64_C(24) * 3600 * NS_PER_S;
    if (localtime_r(&since, &tm) != NULL)
        (void)strftime(row->since, sizeof row->since, today ? "%H:%M" : "%b %e", &tm);
    if (gmtime_r(&since, &tm) != NULL)
        (void)strftime(row->since_utc, sizeof row->since_utc, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static void describe(const struct registry_entry *e, struct ps_row *row) {
    const struct passwd *user = getpwuid(e->uid);
    (void)strcpy(row->run_id, e->run_id);
    (void)strcpy(row->host, e->host);
    (void)strcpy(row->addr, e->addr);
    row->port = e->port;
    row->head_nodes = e->head_nodes;
    row->pid = e->pid;
    row->uid = e->uid;
    row->command = e->foreign ? NULL : command_of(e->pid);
    if (user != NULL)
        (void)snprintf(row->user, sizeof row->user, "%s", user->pw_name);
    else
        (void)snprintf(row->user, sizeof row->user, "%u", e->uid);
    set_times(row, e->since_wall_ns);
}

static void take(const struct operator_reply *reply, struct ps_row *row) {
    row->answered = true;
    row->overview = reply->overview;
    for (uint32_t i = 0; i < reply->n_nodes; i++) {
        const struct overview_node *n = &reply->nodes[i];
        bool same_name = strcmp(n->name, row->host) == 0;
        if (n->pid != row->pid || (row->has_node && !same_name))
            continue;
        row->has_node = true;
        row->node = *n;
    }
}

int local_agents_ask(struct operator_auth *auth, const struct ps_row *row,
                     struct operator_reply *ret) {
    struct err err = {0};
    struct operator_question q = {.host = row->addr,
                                  .port = row->port,
                                  .run_id = row->run_id,
                                  .command = {.kind = COMMAND_STATUS},
                                  .timeout_ns = TIMEOUT_NS};
    (void)operator_auth_add_user(auth, row->uid, row->run_id);
    return operator_auth_ask(auth, &q, ret, &err);
}

static void ask(struct operator_auth *auth, struct ps_row *row) {
    _cleanup_(operator_reply_fini) struct operator_reply reply = {0};
    int r = local_agents_ask(auth, row, &reply);
    row->refused = r == -EKEYREJECTED;
    if (r == 0 && reply.has_overview)
        take(&reply, row);
}

int local_agents_list(struct operator_auth *auth, struct ps_row **ret, size_t *ret_n,
                      struct err *err) {
    _cleanup_(freep) struct registry_entry *entries = NULL;
    size_t n = 0;
    int r = registry_list_all(&entries, &n, err);
    if (r < 0)
        return r;
    struct ps_row *rows = xcalloc(n, sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        describe(&entries[i], &rows[i]);
        if (auth != NULL && rows[i].head_nodes == 0)
            ask(auth, &rows[i]);
    }
    *ret = rows;
    *ret_n = n;
    return 0;
}
