#include "cli/jobs/operate_io.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text/log.h"
#include "base/text/parse.h"
#include "base/text/strbuf.h"
#include "base/text/utf8.h"
#include "cli/jobs/shell_words.h"
#include "cli/options/commands.h"
#include "io/clock.h"

#define DIGITS "0123456789"

/* A line on standard error while samples are taken, which is rewritten on a terminal. */
struct progress {
    struct loop_timer *timer; /* NULL: there is no line */
    uint64_t begin_ns, length_ns;
    bool on_terminal;
};

static int read_values(struct operation *op, uint64_t max_s) {
    const struct option_value *values = op->parsed.values;
    op->place.run_id = values[OPERATE_RDZV_ID].text;
    op->place.conf = values[OPERATE_RDZV_CONF].text;
    op->timeout_ns = OPERATOR_TIMEOUT_NS;
    struct err err = {0};
    if (op->place.run_id != NULL &&
        utf8_check_line("--rdzv-id", op->place.run_id, RDZV_RUN_ID_MAX - 1, &err) < 0)
        return usage_error(op->set->command, "%s", err.text);
    const char *timeout = values[OPERATE_TIMEOUT].text;
    if (timeout != NULL && (parse_seconds_ns(timeout, &op->timeout_ns) != 0 ||
                            op->timeout_ns < NS_PER_MS || op->timeout_ns > max_s * NS_PER_S))
        return usage_error(op->set->command,
                           "--timeout=%s: must be a number of seconds from 0.001 to %" PRIu64,
                           timeout, max_s);
    op->place.timeout_ns = op->timeout_ns;
    const char *how = values[OPERATE_AUTH].text;
    op->auth_config =
        (struct operator_auth_config){.key_file = values[OPERATE_KEY_FILE].text,
                                      .mode = how == NULL || strcmp(how, "auto") == 0 ? AUTH_AUTO
                                              : strcmp(how, "on") == 0                ? AUTH_ON
                                                                                      : AUTH_NONE};
    return -1;
}

int operation_read(const struct option_set *set, int argc, char **argv, int max_operands,
                   uint64_t max_s, struct operation *ret) {
    *ret = (struct operation){.set = set, .argc = argc, .argv = argv};
    assert(max_operands <= (int)ARRAY_SIZE(ret->operands));
    int status = help_or_parse(set, argc, argv, ret->operands, max_operands, &ret->parsed);
    while (ret->n_operands < max_operands && ret->operands[ret->n_operands] != NULL)
        ret->n_operands++;
    return status >= 0 ? status : read_values(ret, max_s);
}

int operation_begin(struct operation *op) {
    struct err err = {0};
    int r = operator_auth_new(&op->auth_config, &op->auth, &err);
    return r == 0 ? -1 : usage_error(op->set->command, "%s", err.text);
}

void operation_end(struct operation *op) { operator_auth_free(TAKE_PTR(op->auth)); }

/* root can talk to the agents of other users here, but has not their keys. */
static void add_whose(uint32_t uid, struct err *err) {
    char why[ERR_TEXT_MAX];
    (void)snprintf(why, sizeof why, "%s", err->text);
    (void)err_set(err, err->code,
                  "it is a job of uid %" PRIu32 ": run this as that user; as root: %.400s", uid,
                  why);
}

static int ask_found(const struct operation *op, const struct command *command,
                     const struct job_found *found, struct operator_reply *ret_reply,
                     struct err *err) {
    int r = -ECONNREFUSED;
    if (found->arbiter_dir != NULL)
        operator_auth_add_job_dir(op->auth, found->arbiter_dir, found->run_id);
    if (command->kind != COMMAND_STATUS && op->place.run_id == NULL && found->n > 1 &&
        found->list[0].run_id[0] == '\0')
        return err_set(err, -EINVAL,
                       "\"%.200s\": other jobs can have some of these ports; select the job with "
                       "--rdzv-id",
                       op->place.endpoint);
    bool all_refused = true;
    for (size_t i = 0; i < found->n; i++) {
        const struct registry_entry *t = &found->list[i];
        struct operator_question q = {
            .host = t->addr, .port = t->port, .command = *command, .timeout_ns = op->timeout_ns};
        /* The agent that answers must be of the job for which it, or the arbiter, was found. */
        q.run_id = t->run_id[0] != '\0' ? t->run_id : op->place.run_id;
        bool other = operator_auth_add_user(op->auth, t->uid, q.run_id);
        r = operator_auth_ask(op->auth, &q, ret_reply, err);
        if (r == 0)
            return 0;
        all_refused = all_refused && r == -ECONNREFUSED;
        if (r == -EKEYREJECTED && other)
            add_whose(t->uid, err);
    }
    return r == -ECONNREFUSED && !all_refused ? -EHOSTUNREACH : r;
}

/* For what changes a job, the beginning of an id does not end inside a number: exp-1 of exp-10. */
static int check_beginning(const struct operation *op, const struct command *command,
                           const struct job_found *found, struct err *err) {
    const char *wanted = op->place.run_id != NULL ? op->place.run_id : op->place.endpoint;
    const char *id = found->n > 0 ? found->list[0].run_id : found->head.run_id;
    bool reads = command->kind == COMMAND_STATUS || command->kind == COMMAND_STACKS;
    size_t n = wanted != NULL ? strlen(wanted) : 0;
    bool begins = n > 0 && strncmp(id, wanted, n) == 0;
    if (reads || !begins || strchr(DIGITS, id[n - 1]) == NULL || id[n] == '\0' ||
        strchr(DIGITS, id[n]) == NULL)
        return 0;
    return err_set(err, -ENOENT, "no job '%.100s' runs on this machine; did you mean '%s'?", wanted,
                   id);
}

int operation_ask(const struct operation *op, const struct command *command,
                  struct job_found *found, struct operator_reply *ret_reply, struct err *err) {
    int r = job_find(operator_auth_loop(op->auth), &op->place, found, err);
    int checked = r == 0 || r == -EREMOTE ? check_beginning(op, command, found, err) : 0;
    if (r < 0 || checked < 0 || found->closed)
        return checked < 0 ? checked : r;
    r = ask_found(op, command, found, ret_reply, err);
    const char *job = op->place.run_id == NULL ? op->place.endpoint : NULL;
    if (r < 0 && job != NULL && strpbrk(job, ":/") == NULL && found->list[0].pid == 0)
        err_prefix(err, "no job '%.100s' is known on this machine; as a host", job);
    if (r == 0 || found->n == 0 || found->list[0].pid == 0)
        return r;
    /* an agent of this machine can have ended meanwhile: it is not listed any more, then */
    job_await_end(&found->list[0]);
    struct job_found again = {0};
    struct err why = {0};
    int found_again = job_find(operator_auth_loop(op->auth), &op->place, &again, &why);
    if ((found_again == 0 && again.closed) || found_again == -ENOENT) {
        job_found_fini(found);
        *found = again;
        *err = why;
        return found_again;
    }
    job_found_fini(&again);
    return r;
}

/* The line with which to ask on a node of a job that was started from here. */
static void print_ask(const struct operation *op, const struct registry_entry *head) {
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    strbuf_printf(&line, "  %s %s", head->head_ask[0] != '\0' ? head->head_ask : "muster",
                  op->set->command);
    for (int i = 0; i < op->n_operands; i++) {
        if (op->operands[i] == op->place.endpoint)
            continue; /* the job, which is known there */
        strbuf_add_char(&line, ' ');
        shell_add_word(&line, op->operands[i]);
    }
    (void)fprintf(stderr, "%s\n", strbuf_text(&line));
}

/* Prints the command line with one of the jobs that it can mean: by its id, or, where others have
 * the same one, by the address of an agent. Each job, or address, once. */
static void print_choice(const struct operation *op, const struct job_found *found, size_t i) {
    const struct registry_entry *t = &found->list[i];
    const char *from = op->place.run_id != NULL ? op->place.run_id : op->place.endpoint;
    bool by_address = false;
    for (size_t k = 0; k < found->n; k++) {
        const struct registry_entry *o = &found->list[k];
        bool same = k != i && strcmp(o->run_id, t->run_id) == 0;
        if (same && k < i && o->uid == t->uid && !op->place.one_agent)
            return;
        by_address = by_address || (same && (o->uid != t->uid || op->place.one_agent));
    }
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    char address[RDZV_ADDRS_MAX + 8];
    (void)snprintf(address, sizeof address, "%s:%u", t->addr, t->port);
    if (by_address)
        shell_add_line(&line, op->argc, op->argv, op->place.endpoint, address);
    else
        shell_add_line(&line, op->argc, op->argv, from, t->run_id);
    utf8_clean(line.data, false);
    (void)fprintf(stderr, "  %s\n", line.data);
}

int operation_failed(const struct operation *op, int code, const struct err *err,
                     const struct job_found *found) {
    if (code == -EINVAL)
        return usage_error(op->set->command, "%s", err->text);
    log_error("%s%s", err->text, code == -EREMOTE ? "; ask on one of its nodes:" : "");
    if (code == -EREMOTE)
        print_ask(op, &found->head);
    for (size_t i = 0; code == -EEXIST && i < found->n; i++)
        print_choice(op, found, i);
    return EXIT_JOB_FAILED;
}

/* From the loop: the job is found by then. */
static void show_progress(void *arg) {
    struct progress *p = arg;
    double length = (double)p->length_ns / NS_PER_S;
    double passed = MIN2((double)(clock_now_ns() - p->begin_ns) / NS_PER_S, length);
    if (!p->on_terminal) {
        (void)fprintf(stderr, "taking samples for %.0f s\n", length);
        return;
    }
    (void)fprintf(stderr, "\rtaking samples: %.0f of %.0f s", passed, length);
    loop_timer_set(p->timer, clock_now_ns() + NS_PER_S);
}

static void begin_progress(struct progress *p, struct loop *loop, uint64_t length_ns) {
    *p = (struct progress){.begin_ns = clock_now_ns(),
                           .length_ns = length_ns,
                           .on_terminal = isatty(STDERR_FILENO) == 1};
    p->timer = loop_timer_new(loop, show_progress, p);
    loop_timer_set(p->timer, p->begin_ns + NS_PER_S / 2);
}

static void end_progress(struct progress *p) {
    loop_timer_free(p->timer);
    if (p->on_terminal)
        (void)fprintf(stderr, "\r\033[K");
}

/* The job was started from here, and none of its agents is here. */
static int stop_by_head(const struct registry_entry *head, const char *reason) {
    struct err err = {0};
    if (job_stop_head(head, &err) < 0)
        return print_failure(&err);
    if (reason[0] != '\0')
        log_warning("--reason is ignored: the job is stopped with SIGTERM");
    printf("%s: the job is being stopped by process %d, which has started it\n", head->run_id,
           (int)head->pid);
    return finish_stdout();
}

static void print_over(const struct job_found *found, enum command_kind asked) {
    if (asked == COMMAND_STACKS)
        log_error("the job '%s' is over: no worker runs", found->run_id);
    else
        log_error("'%s' is over: %s", found->run_id,
                  found->overview.reason[0] != '\0'            ? found->overview.reason
                  : found->overview.outcome == OUTCOME_SUCCESS ? "the job succeeded"
                                                               : "the job failed");
}

int operation_run(struct operation *op, const struct command *command, operation_show_fn *show,
                  void *arg) {
    _cleanup_(job_found_fini) struct job_found found = {0};
    _cleanup_(operator_reply_fini) struct operator_reply reply = {0};
    struct err err = {0};
    struct progress progress = {0};
    int status = operation_begin(op);
    if (status >= 0)
        return status;
    status = EXIT_JOB_FAILED;
    if (command->period_ns > 0)
        begin_progress(&progress, operator_auth_loop(op->auth), command->timeout_ns);
    int r = operation_ask(op, command, &found, &reply, &err);
    end_progress(&progress);
    if (r == -EREMOTE && found.head.pid != 0 && command->kind == COMMAND_STOP)
        status = stop_by_head(&found.head, command->reason);
    else if (r < 0)
        status = operation_failed(op, r, &err, &found);
    else if (found.closed)
        print_over(&found, command->kind);
    else if (command->kind == COMMAND_STACKS && reply.stacks.n == 0)
        log_error("%s", reply.answer.text);
    else
        status = show(arg, &reply);
    operation_end(op);
    return status;
}
