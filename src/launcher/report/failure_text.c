#include "launcher/report/failure_text.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/json/json.h"
#include "base/text/duration.h"
#include "base/text/signal_name.h"
#include "base/text/utf8.h"

#define WIDTH_MAX 60
#define NOT_AVAILABLE "<N/A>"
/* The end of torchrun's traceback, for which scripts and people search logs. Python writes the
 * blank between the name and the message, which begins with a newline. */
#define EXCEPTION_LINE "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
/* The address that torch 2.13 prints if a worker left no error file. */
#define HELP_TEXT "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"

/* It says what happened; it is not the output of the worker. */
static bool has_own_text(const struct failure *f) {
    return f->kind == FAILURE_NODE || f->kind == FAILURE_SPAWN || f->kind == FAILURE_HANG;
}

static bool is_of_all(const struct failure *f) {
    return f->kind == FAILURE_HANG && f->node[0] == '\0';
}

int failure_exit_code(const struct failure *f) {
    if (failure_by_signal(f))
        return -f->code;
    if (f->kind == FAILURE_SPAWN) /* as a shell does */
        return f->code == ENOENT ? 127 : 126;
    return f->kind == FAILURE_EXIT ? f->code : 1;
}

int failure_shell_status(const struct failure *f) {
    int code = failure_exit_code(f);
    code = code < 0 ? 128 - code : code;
    return code >= 1 && code <= 255 ? code : 1;
}

void failure_set_text(struct failure *f, const char *text, bool is_traceback) {
    size_t len = strlen(text);
    if (len >= sizeof f->text) {
        text += len - (sizeof f->text - 1);
        const char *nl = strchr(text, '\n');
        if (nl != NULL && nl[1] != '\0')
            text = nl + 1;
        while (((uint8_t)*text & 0xc0) == 0x80) /* not from inside a UTF-8 character */
            text++;
    }
    memcpy(f->text, text, strlen(text) + 1);
    f->text_is_traceback = is_traceback && text[0] != '\0';
}

void failure_name_interpreter(struct failure *f, const char *python) {
    /* python -m: "/usr/bin/python3: No module named x" */
    if (strstr(f->text, "ModuleNotFoundError: ") == NULL &&
        strstr(f->text, ": No module named ") == NULL)
        return;
    size_t len = strlen(f->text);
    _cleanup_(freep) char *text =
        xasprintf("%s%s" FAILURE_INTERPRETER "%s (PYTHON_EXEC chooses another)", f->text,
                  f->text[len - 1] == '\n' ? "" : "\n", python);
    failure_set_text(f, text, f->text_is_traceback);
}

/* ---- one line -------------------------------------------------------------------------------- */

static void add_how_long(const struct failure *f, struct strbuf *ret) {
    if (f->kind == FAILURE_SPAWN)
        return;
    strbuf_add(ret, " after ");
    duration_text(f->ran_ns, ret);
}

/* "rank 3 (node b): ", "node b: ", "the job hangs: "; then the cause. */
static void add_who_and_what(const struct failure *f, struct exception exception,
                             struct strbuf *ret) {
    if (f->kind == FAILURE_HANG || f->kind == FAILURE_NODE) {
        failure_line(f, "", ret);
    } else {
        strbuf_printf(ret, "rank %" PRIu32 " (node %s): ", f->rank, f->node);
        if (f->kind == FAILURE_EXIT && exception.line.len > 0) {
            failure_add_exception("", exception, ret);
            return;
        }
        failure_cause_text(f, ret);
        add_how_long(f, ret);
        failure_add_exception(": ", exception, ret);
    }
}

/* The exit code of an exception that has taken its place. */
static void add_exit_code(const struct failure *f, struct exception exception, struct strbuf *ret) {
    if (f->kind != FAILURE_EXIT || exception.line.len == 0)
        return;
    strbuf_printf(ret, " (exit code %" PRIi32, f->code);
    add_how_long(f, ret);
    strbuf_add(ret, ")");
}

static void add_consequence(const struct failure *f, const struct failure_counts *counts,
                            struct strbuf *ret) {
    if (counts->stopping > 0 && f->kind == FAILURE_HANG)
        strbuf_printf(ret, "; stopping %" PRIu32 " worker%s", counts->stopping,
                      counts->stopping == 1 ? "" : "s");
    else if (counts->stopping > 0)
        strbuf_printf(ret, "; stopping %" PRIu32 " other%s", counts->stopping,
                      counts->stopping == 1 ? "" : "s");
    if (counts->will_restart && f->kind == FAILURE_NODE)
        strbuf_add(ret, "; continuing without it");
    else if (counts->will_restart)
        strbuf_printf(ret, "; restart %" PRIu32 " of %" PRIu32, counts->restarts_used,
                      counts->max_restarts);
    else if (f->kind == FAILURE_NODE)
        strbuf_add(ret, "; the job ends");
    else if (counts->max_restarts == 0)
        strbuf_add(ret, "; no restarts (--max-restarts=0)");
    else if (counts->restarts_used >= counts->max_restarts)
        strbuf_printf(ret, "; no restarts left (%" PRIu32 " used)", counts->max_restarts);
    else
        strbuf_add(ret, "; no restart");
}

void failure_headline(const struct failure *f, const struct failure_counts *counts,
                      struct strbuf *ret) {
    struct exception exception = failure_exception(f);
    if (!has_own_text(f) || f->kind == FAILURE_SPAWN)
        strbuf_add(ret, "failed: ");
    add_who_and_what(f, exception, ret);
    add_exit_code(f, exception, ret);
    add_consequence(f, counts, ret);
}

void failure_last_line(const struct failure *f, struct strbuf *ret) {
    strbuf_add(ret, "failed: ");
    add_who_and_what(f, failure_exception(f), ret);
}

/* --- torchrun's block ------------------------------------------------------------------------- */

static void add_time(const struct failure *f, int64_t utc_offset_s, struct strbuf *ret) {
    time_t at = (time_t)((int64_t)(f->wall_ns / NS_PER_S) + utc_offset_s);
    struct tm tm = {0};
    char text[32];
    (void)gmtime_r(&at, &tm);
    (void)strftime(text, sizeof text, "%Y-%m-%d_%H:%M:%S", &tm);
    strbuf_add(ret, text);
}

/* cut: without a newline at the end. torchrun's has one, if the error file has. */
static void add_indented(const char *text, bool cut, struct strbuf *ret) {
    for (const char *p = text; *p != '\0' && !(cut && strcmp(p, "\n") == 0); p++) {
        strbuf_add_char(ret, *p);
        if (*p == '\n')
            strbuf_add(ret, "  ");
    }
}

static void add_traceback(const struct failure *f, struct strbuf *ret) {
    char name[SIGNAL_TEXT_MAX];
    const char *from_stderr = failure_traceback(f);
    if (f->text_is_traceback || has_own_text(f)) {
        add_indented(f->text, false, ret);
    } else if (from_stderr != NULL) {
        add_indented(from_stderr, true, ret);
    } else if (failure_by_signal(f)) {
        signal_text(f->code, name);
        strbuf_printf(ret, "Signal %" PRIi32 " (%s) received by PID %" PRIi32 "%s", f->code, name,
                      f->pid, f->kind == FAILURE_OOM ? " (out of memory)" : "");
    } else {
        strbuf_add(ret, HELP_TEXT);
    }
}

static void add_entry(const struct failure *f, int64_t utc_offset_s, struct strbuf *ret) {
    strbuf_add(ret, "[0]:\n  time      : ");
    add_time(f, utc_offset_s, ret);
    strbuf_printf(ret, "\n  host      : %s", is_of_all(f) ? "all" : f->node);
    if (is_of_all(f) || f->kind == FAILURE_NODE) {
        strbuf_printf(ret, "\n  rank      : %s\n  exitcode  : " NOT_AVAILABLE,
                      is_of_all(f) ? "all" : NOT_AVAILABLE);
    } else {
        strbuf_printf(ret, "\n  rank      : %" PRIu32 " (local_rank: %" PRIu32 ")", f->rank,
                      f->local_rank);
        /* torchrun's text has a blank after the pid, followed by nothing or by a second blank. */
        strbuf_printf(ret, "\n  exitcode  : %d (pid: %" PRIi32 ") ", failure_exit_code(f), f->pid);
    }
    if (failure_by_signal(f)) {
        char name[SIGNAL_TEXT_MAX];
        signal_text(f->code, name);
        strbuf_printf(ret, " (%s)", name);
    }
    strbuf_printf(ret, "\n  error_file: %s\n  traceback : ",
                  f->error_file[0] == '\0' ? NOT_AVAILABLE : f->error_file);
    add_traceback(f, ret);
}

static size_t width_of(const char *text) {
    size_t most = 0, n = 0;
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '\n')
            n = 0;
        else if (((uint8_t)*p & 0xc0) != 0x80)
            n++;
        most = MAX2(most, n);
    }
    return most;
}

static void add_rule(char c, size_t width, struct strbuf *ret) {
    while (width-- > 0)
        strbuf_add_char(ret, c);
    strbuf_add_char(ret, '\n');
}

static void add_tail(const struct failure_report *sheet, struct strbuf *ret) {
    const struct failure *root = sheet->failure;
    const char *tail = sheet->stderr_tail;
    if (has_own_text(root) || failure_traceback(root) != NULL)
        return;
    if (tail == NULL)
        tail = root->text_is_traceback ? "" : root->text;
    if (tail[0] == '\0')
        return;
    const char *end = tail == root->text ? failure_interpreter(root) : NULL;
    strbuf_printf(ret, "Last lines of rank %" PRIu32 "'s standard error (node %s):\n", root->rank,
                  root->node);
    for (bool begins = true; *tail != '\0' && tail != end; tail++) {
        if (begins)
            strbuf_add(ret, "  ");
        strbuf_add_char(ret, *tail);
        begins = *tail == '\n';
    }
    if (tail[-1] != '\n')
        strbuf_add_char(ret, '\n');
}

void failure_report_text(const struct failure_report *sheet, struct strbuf *ret) {
    size_t begin = ret->len;
    _cleanup_(strbuf_fini) struct strbuf root = {0};
    add_entry(sheet->failure, sheet->utc_offset_s, &root);
    size_t width = strlen(sheet->entrypoint) + strlen(" FAILED");
    width = MIN2(MAX2(width, width_of(strbuf_text(&root))), (size_t)WIDTH_MAX);

    strbuf_add(ret, EXCEPTION_LINE);
    add_rule('=', width, ret);
    strbuf_printf(ret, "%s FAILED\n", sheet->entrypoint);
    add_rule('-', width, ret);
    strbuf_add(ret, "Failures:\n  <NO_OTHER_FAILURES>\n");
    add_rule('-', width, ret);
    strbuf_printf(ret, "Root Cause (first observed failure):\n%s\n", strbuf_text(&root));
    add_rule('=', width, ret);
    add_tail(sheet, ret);
    const char *interpreter = failure_interpreter(sheet->failure);
    bool in_block = sheet->failure->text_is_traceback || failure_traceback(sheet->failure) != NULL;
    if (interpreter != NULL && !in_block)
        strbuf_printf(ret, "%s\n", interpreter);
    utf8_clean(ret->data + begin, true);
}

void failure_json(const char *entrypoint, const struct failure *f, struct strbuf *ret) {
    struct json_writer w = json_writer_of(ret);
    _cleanup_(strbuf_fini) struct strbuf cause = {0};
    failure_cause_text(f, &cause);
    json_write_object_begin(&w, NULL);
    json_write_string(&w, "entrypoint", entrypoint);
    json_write_string(&w, "node", f->node);
    json_write_string(&w, "cause", strbuf_text(&cause));
    if (f->kind != FAILURE_NODE && (f->kind != FAILURE_HANG || f->node[0] != '\0')) {
        json_write_u64(&w, "rank", f->rank);
        json_write_u64(&w, "local_rank", f->local_rank);
        json_write_i64(&w, "pid", f->pid);
        json_write_i64(&w, "exitcode", failure_exit_code(f));
    }
    json_write_string(&w, "error_file", f->error_file);
    json_write_string(&w, "text", f->text);
    json_write_object_end(&w);
    strbuf_add_char(ret, '\n');
}
