#include "base/text/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text/strbuf.h"
#include "base/text/utf8.h"

static enum log_level current_level = LOG_LEVEL_NOTICE;
static log_sink_fn *sink;
static void *sink_arg;
static const char *own_name;

void log_set_level(enum log_level level) { current_level = level; }
bool log_enabled(enum log_level level) { return level <= current_level; }

void log_set_sink(log_sink_fn *fn, void *arg) {
    sink = fn;
    sink_arg = arg;
}

void log_set_name(const char *name) { own_name = name; }

int log_level_parse(const char *name, enum log_level *ret) {
    static const struct {
        const char *name;
        enum log_level level;
    } names[] = {
        {"DEBUG", LOG_LEVEL_DEBUG},     {"INFO", LOG_LEVEL_INFO},   {"NOTICE", LOG_LEVEL_NOTICE},
        {"WARNING", LOG_LEVEL_WARNING}, {"ERROR", LOG_LEVEL_ERROR}, {"CRITICAL", LOG_LEVEL_ERROR},
    };
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (strcasecmp(name, names[i].name) == 0) {
            *ret = names[i].level;
            return 0;
        }
    }
    return -EINVAL;
}

static const char *word(enum log_level level) {
    switch (level) {
    case LOG_LEVEL_ERROR: return "error: ";
    case LOG_LEVEL_WARNING: return "warning: ";
    case LOG_LEVEL_DEBUG: return "debug: ";
    case LOG_LEVEL_NOTICE:
    case LOG_LEVEL_INFO: return "";
    }
    assert_not_reached();
}

/* Few users know the remedy, which is always the same, from the kernel's error text. */
static void add_hint(struct strbuf *line, const char *text) {
    const char *found = strstr(text, "Too many open files");
    if (found == NULL || strstr(text, "ulimit") != NULL)
        return;
    if (strstr(found, "in system") != NULL)
        strbuf_add(line, " (the machine's limit: sysctl fs.file-max)");
    else
        strbuf_add(line, " (this process's limit: raise it with ulimit -n)");
}

#define COLUMNS 100
#define INDENT "        " /* as wide as "muster: " */

/* Where to break a text of which `room` bytes fit: behind the last "; " or blank. 0: nowhere. */
static size_t break_at(const char *text, size_t room) {
    size_t at = 0, len = strlen(text);
    if (len <= room)
        return 0;
    for (size_t i = 0; i < room; i++)
        if (text[i] == ';' && text[i + 1] == ' ')
            at = i + 1;
    for (size_t i = MIN2(room, len - 1); at == 0 && i > 0; i--)
        at = text[i] == ' ' ? i : 0;
    return at;
}

void log_line(enum log_level level, const char *fmt, ...) {
    if (!log_enabled(level))
        return;
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    strbuf_printf(&line, "muster: %s", word(level));
    if (own_name != NULL)
        strbuf_printf(&line, "%s: ", own_name);
    char text[4096];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    /* the text can come from files, devices and other nodes, and goes to a terminal */
    utf8_clean(text, true);
    strbuf_add(&line, text);
    add_hint(&line, text);
    strbuf_add_char(&line, '\n');
    if (sink != NULL)
        sink(sink_arg, line.data, line.len);
    else
        (void)fwrite(line.data, 1, line.len, stderr);
}

void log_folded(enum log_level level, const char *fmt, ...) {
    _cleanup_(strbuf_fini) struct strbuf folded = {0};
    char text[4096];
    const char *rest = text;
    size_t used =
        strlen(INDENT) + strlen(word(level)) + (own_name != NULL ? strlen(own_name) + 2 : 0);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (size_t at; (at = break_at(rest, COLUMNS - MIN2(used, COLUMNS - 1))) > 0; rest += at + 1) {
        strbuf_add_bytes(&folded, rest, at);
        strbuf_add(&folded, "\n" INDENT);
        used = strlen(INDENT);
    }
    log_line(level, "%s%s", strbuf_text(&folded), rest);
}

void log_warning_line(void *arg, const char *line) { log_warning("%s", line); }
