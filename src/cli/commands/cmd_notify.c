/* "muster notify": reports something about the worker that runs it to its agent. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/log.h"
#include "base/text/strbuf.h"
#include "cli/help/help.h"
#include "cli/options/commands.h"
#include "launcher/worker/notify.h"
#include "launcher/worker/notify_send_io.h"

#define TIMEOUT_NS (5 * NS_PER_S)

static const struct option_def defs[] = {HELP_ROW(), HELP_ALL_ROW};

const struct option_set notify_options = {
    .command = "notify",
    .operands = "VARIABLE=VALUE...",
    .about = "Sends a report of the worker that runs it to muster: its step (MUSTER_STEP=1234), "
             "that it is alive (WATCHDOG=1), how long it may be silent (WATCHDOG_USEC=600000000, "
             "in microseconds), or a safe point for a restart (MUSTER_SAFE_POINT=1). For shell "
             "scripts; other programs can write to the socket in MUSTER_NOTIFY_SOCKET.",
    .example = "MUSTER_STEP=1234 MUSTER_SAFE_POINT=1",
    .defs = defs,
    .n = ARRAY_SIZE(defs),
};

/* One line for each argument. */
static int text_of(int argc, char **argv, int first, struct strbuf *ret, struct err *err) {
    if (first >= argc)
        return err_set(err, -EINVAL, "missing argument, for example MUSTER_STEP=1234");
    for (int i = first; i < argc; i++) {
        if (strchr(argv[i], '=') == NULL || strchr(argv[i], '\n') != NULL)
            return err_set(err, -EINVAL, "\"%s\": must be VARIABLE=VALUE, in one line", argv[i]);
        strbuf_printf(ret, "%s\n", argv[i]);
    }
    if (ret->len > NOTIFY_BYTES_MAX)
        return err_set(err, -EINVAL, "%zu bytes are too many for one message; at most %d", ret->len,
                       NOTIFY_BYTES_MAX);
    return 0;
}

int cmd_notify(int argc, char **argv) {
    struct options_parsed p;
    struct err err = {0};
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    if (options_parse(&notify_options, argc, argv, &p, &err) < 0)
        return usage_error("notify", "%s", err.text);
    int status = help_answer(&notify_options, &p);
    if (status >= 0)
        return status;
    if (text_of(argc, argv, p.operand, &text, &err) < 0)
        return usage_error("notify", "%s", err.text);
    const char *name = getenv("MUSTER_NOTIFY_SOCKET");
    if (name == NULL)
        name = getenv("NOTIFY_SOCKET");
    if (name == NULL || name[0] == '\0') {
        log_error("MUSTER_NOTIFY_SOCKET is not set: no muster run has started this");
        return EXIT_JOB_FAILED;
    }
    if (notify_send(name, strbuf_text(&text), text.len, TIMEOUT_NS, &err) < 0)
        return print_failure(&err);
    return 0;
}
