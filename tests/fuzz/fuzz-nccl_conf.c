/* NCCL's configuration files: with any text, each entry is a line of the text, cut at the limits, and each line that
 * sets a variable is an entry. */
#include <string.h>

#include "nccl_env/facts/facts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The n-th line, counted from 1; *ret_end is set to its end. NULL: there are fewer lines. */
static const char *line_at(const char *text, size_t len, uint32_t n, const char **ret_end) {
    const char *p = text, *end = text + len;
    for (; n > 1 && p < end; n--) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        p = newline != NULL ? newline + 1 : end;
    }
    if (p >= end)
        return NULL;
    const char *newline = memchr(p, '\n', (size_t)(end - p));
    *ret_end = newline != NULL ? newline : end;
    return p;
}

static bool sets_something(const char *line, const char *end) {
    const char *nul = memchr(line, '\0', (size_t)(end - line));
    end = nul != NULL ? nul : end;
    return line < end && line[0] != '#' && line[0] != '=' && memchr(line, '=', (size_t)(end - line)) != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data, *end;
    struct nccl_conf c;
    uint32_t n = 0, at = 0;
    nccl_conf_parse("/etc/nccl.conf", text, size, &c);
    for (const char *line; (line = line_at(text, size, ++at, &end)) != NULL;)
        n += sets_something(line, end);
    if (c.n != (n < NCCL_CONF_ENTRIES_MAX ? n : NCCL_CONF_ENTRIES_MAX))
        abort();
    for (uint32_t i = 0; i < c.n; i++) {
        const struct nccl_conf_entry *e = &c.entries[i];
        const char *line = line_at(text, size, e->line, &end);
        size_t name = strlen(e->name), value = strlen(e->value);
        if (line == NULL || name == 0 || name > 1023 || value > 1023 || strchr(e->name, '=') != NULL)
            abort();
        if (memcmp(line, e->name, name) != 0 || (name < 1023 && line[name] != '='))
            abort();
        if (name < 1023 && memcmp(line + name + 1, e->value, value) != 0)
            abort();
        if (nccl_conf_find(&c, e->name) == NULL)
            abort();
    }
    nccl_facts_fini(&(struct nccl_facts){.user_conf = c});
    return 0;
}
