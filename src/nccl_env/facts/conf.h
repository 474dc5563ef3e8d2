/* NCCL's configuration files, by NCCL's own grammar (src/misc/param.cc, 2.30.7): one NAME=value per
 * line, split at the first '='; nothing is trimmed, and there are no quotes. A line with '#' in
 * column 0 is a comment; a line without '=' is ignored. Pure. */
#pragma once

#include <stdbool.h>

#include "base/util.h"

#define NCCL_CONF_MAX ((size_t)1 << 20) /* bytes of a file */
#define NCCL_CONF_ENTRIES_MAX 1024

struct nccl_conf_entry {
    char *name, *value; /* owned */
    uint32_t line;
};
struct nccl_conf {
    char *path;                      /* owned; NULL: there is none */
    struct nccl_conf_entry *entries; /* owned */
    uint32_t n;
};
void nccl_conf_parse(const char *path, const char *text, size_t len, struct nccl_conf *ret);
void nccl_conf_fini(struct nccl_conf *c);
/* The first entry of that name, or NULL. */
const struct nccl_conf_entry *nccl_conf_find(const struct nccl_conf *c, const char *name);
