#include "nccl_env/facts/conf.h"

#include <string.h>

/* NCCL copies name and value into arrays of 1024 bytes, so the rest of a longer one is lost. */
#define PART_MAX ((size_t)1023)

static void add_line(struct nccl_conf *c, const char *line, size_t len, uint32_t number) {
    const char *nul = memchr(line, '\0', len);
    if (nul != NULL) /* the line is a C string for NCCL, so it ends there */
        len = (size_t)(nul - line);
    const char *equals = len > 0 && line[0] != '#' ? memchr(line, '=', len) : NULL;
    /* setenv(3) refuses an empty name */
    if (equals == NULL || equals == line || c->n == NCCL_CONF_ENTRIES_MAX)
        return;
    size_t name_len = (size_t)(equals - line);
    struct nccl_conf_entry *e = &c->entries[c->n++];
    e->name = xstrndup(line, MIN2(name_len, PART_MAX));
    e->value = xstrndup(equals + 1, MIN2(len - name_len - 1, PART_MAX));
    e->line = number;
}

static uint32_t count_lines(const char *text, size_t len) {
    uint32_t n = 1;
    for (size_t i = 0; i < len; i++)
        n += text[i] == '\n';
    return n;
}

void nccl_conf_parse(const char *path, const char *text, size_t len, struct nccl_conf *ret) {
    len = MIN2(len, NCCL_CONF_MAX);
    struct nccl_conf c = {.path = xstrdup(path)};
    c.entries =
        xcalloc(MIN2(count_lines(text, len), (uint32_t)NCCL_CONF_ENTRIES_MAX), sizeof *c.entries);
    uint32_t number = 1;
    for (size_t at = 0; at < len; number++) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end != NULL ? (size_t)(end - text) - at : len - at;
        add_line(&c, text + at, n, number);
        at += n + 1;
    }
    *ret = c;
}

void nccl_conf_fini(struct nccl_conf *c) {
    for (uint32_t i = 0; i < c->n; i++) {
        free(c->entries[i].name);
        free(c->entries[i].value);
    }
    free(c->entries);
    free(c->path);
    *c = (struct nccl_conf){0};
}

const struct nccl_conf_entry *nccl_conf_find(const struct nccl_conf *c, const char *name) {
    for (uint32_t i = 0; i < c->n; i++)
        if (strcmp(c->entries[i].name, name) == 0)
            return &c->entries[i];
    return NULL;
}
