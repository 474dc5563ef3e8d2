#include "base/util.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void assert_not_reached_at(const char *file, int line) {
    (void)fprintf(stderr, "muster: bug: unreachable code reached at %s:%d\n", file, line);
    abort();
}

static void *checked(void *p) {
    if (p == NULL) {
        (void)fprintf(stderr, "muster: out of memory\n");
        abort();
    }
    return p;
}

void *xmalloc(size_t size) { return checked(malloc(size == 0 ? 1 : size)); }

void *xcalloc(size_t n, size_t size) {
    return checked(calloc(n == 0 ? 1 : n, size == 0 ? 1 : size));
}

void *xrealloc(void *p, size_t size) { return checked(realloc(p, size == 0 ? 1 : size)); }

void *xgrow(void *list, size_t n, size_t size) {
    return (n & (n - 1)) == 0 ? xrealloc(list, MAX2(n * 2, (size_t)1) * size) : list;
}

char *xstrdup(const char *s) { return checked(strdup(s)); }

char *xstrndup(const char *s, size_t n) { return checked(strndup(s, n)); }

char *xasprintf(const char *fmt, ...) {
    char *s = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    return checked(n < 0 ? NULL : s);
}

bool text_has_any(const char *text, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strstr(text, words[i]) != NULL)
            return true;
    return false;
}

bool text_begins_with_any(const char *text, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strncmp(text, words[i], strlen(words[i])) == 0)
            return true;
    return false;
}

bool text_is_any(const char *text, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(text, words[i]) == 0)
            return true;
    return false;
}

const char *path_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

void words_add(char ***words, size_t *n, char *word) {
    *words = xgrow(*words, *n + 1, sizeof **words);
    (*words)[(*n)++] = word;
    (*words)[*n] = NULL;
}

void words_free(char **words) {
    for (char **word = words; word != NULL && *word != NULL; word++)
        free(*word);
    free(words);
}
