#include "base/text/envlist.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NOT_FOUND SIZE_MAX

/* Whether the item is that of NAME, which has n > 0 bytes. Most items differ in the first byte. */
static bool is_of(const char *item, const char *name, size_t n) {
    return item[0] == name[0] && strncmp(item, name, n) == 0 && item[n] == '=';
}

/* Finds the entry of NAME, which has n bytes. */
static size_t find(char *const *items, size_t n_items, const char *name, size_t n) {
    for (size_t i = 0; i < n_items; i++)
        if (is_of(items[i], name, n))
            return i;
    return NOT_FOUND;
}

void envlist_add(struct envlist *e, char *item) {
    if (e->n + 2 > e->cap) {
        e->cap = MAX2(e->cap * 2, (size_t)64);
        e->items = xrealloc(e->items, e->cap * sizeof *e->items);
    }
    e->items[e->n++] = item;
    e->items[e->n] = NULL;
}

void envlist_fini(struct envlist *e) {
    for (size_t i = 0; i < e->n; i++)
        free(e->items[i]);
    free(e->items);
    *e = (struct envlist){0};
}

void envlist_copy(struct envlist *e, char *const *envp) {
    for (; envp != NULL && *envp != NULL; envp++) {
        const char *equals = strchr(*envp, '=');
        if (equals == NULL || equals == *envp)
            continue;
        if (find(e->items, e->n, *envp, (size_t)(equals - *envp)) == NOT_FOUND)
            envlist_add(e, xstrdup(*envp));
    }
}

void envlist_set(struct envlist *e, const char *name, const char *value) {
    size_t n_name = strlen(name), n_value = strlen(value);
    assert(n_name > 0 && memchr(name, '=', n_name) == NULL);
    char *item = xmalloc(n_name + 1 + n_value + 1);
    memcpy(item, name, n_name);
    item[n_name] = '=';
    memcpy(item + n_name + 1, value, n_value + 1);
    size_t i = find(e->items, e->n, name, n_name);
    if (i == NOT_FOUND) {
        envlist_add(e, item);
    } else {
        free(e->items[i]);
        e->items[i] = item;
    }
}

void envlist_setf(struct envlist *e, const char *name, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char *value = NULL;
    int n = vasprintf(&value, fmt, ap);
    va_end(ap);
    assert(n >= 0 && value != NULL); /* without memory the process ends, here as everywhere */
    envlist_set(e, name, value);
    free(value);
}

static void remove_at(struct envlist *e, size_t i) {
    free(e->items[i]);
    memmove(&e->items[i], &e->items[i + 1], (e->n - i) * sizeof *e->items);
    e->n--;
}

void envlist_unset(struct envlist *e, const char *name) {
    size_t i = find(e->items, e->n, name, strlen(name));
    if (i != NOT_FOUND)
        remove_at(e, i);
}

void envlist_unset_prefix(struct envlist *e, const char *prefix) {
    size_t n = strlen(prefix);
    for (size_t i = e->n; i > 0; i--)
        if (strncmp(e->items[i - 1], prefix, n) == 0)
            remove_at(e, i - 1);
}

void envlist_forget(struct envlist *e, const char *name) {
    size_t i = find(e->items, e->n, name, strlen(name));
    if (i == NOT_FOUND)
        return;
    explicit_bzero(e->items[i], strlen(e->items[i]));
    remove_at(e, i);
}

const char *envlist_get(const struct envlist *e, const char *name) {
    return env_get(e->items, name);
}

char *const *envlist_items(const struct envlist *e) {
    static char *const none[] = {NULL};
    return e->items != NULL ? e->items : none;
}

const char *env_get(char *const *envp, const char *name) {
    size_t n = strlen(name);
    for (; envp != NULL && *envp != NULL; envp++)
        if (is_of(*envp, name, n))
            return *envp + n + 1;
    return NULL;
}
