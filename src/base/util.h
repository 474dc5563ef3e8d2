/* Small helpers for C, used everywhere. Nothing here is specific to muster. */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(ptr, type, member) \
    ((type *)(void *)((char *)(uintptr_t)(ptr)-offsetof(type, member)))
#define MIN2(a, b) ((a) < (b) ? (a) : (b))
#define MAX2(a, b) ((a) > (b) ? (a) : (b))

#define _must_use_ __attribute__((warn_unused_result))
#define _noreturn_ __attribute__((noreturn))
#define _printf_(fmt, args) __attribute__((format(printf, fmt, args)))
/* Frees a local at the end of its scope: _cleanup_(strbuf_fini) struct strbuf s = {0}; */
#define _cleanup_(fn) __attribute__((cleanup(fn)))
/* Hands an owned pointer over: returns it and sets the local to NULL. */
#define TAKE_PTR(p)                 \
    __extension__({                 \
        __typeof__(p) taken_ = (p); \
        (p) = NULL;                 \
        taken_;                     \
    })

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)
/* "Never", as a deadline in monotonic nanoseconds. */
#define TIME_NEVER UINT64_MAX

/* For a branch that only a bug of muster can reach. */
_noreturn_ void assert_not_reached_at(const char *file, int line);
#define assert_not_reached() assert_not_reached_at(__FILE__, __LINE__)

/* For memory whose size muster chooses: they print one line and abort if memory runs out. A size
 * that a peer chose is checked against a named limit and uses malloc(). */
_must_use_ void *xmalloc(size_t size);
_must_use_ void *xcalloc(size_t n, size_t size);
_must_use_ void *xrealloc(void *p, size_t size);
/* Makes room for one more after n elements of a list: its room is always the next power of two. */
_must_use_ void *xgrow(void *list, size_t n, size_t size);
_must_use_ char *xstrdup(const char *s);
_must_use_ char *xstrndup(const char *s, size_t n);
_must_use_ char *xasprintf(const char *fmt, ...) _printf_(1, 2);

/* Whether the text contains, begins with, or is one of these words. */
bool text_has_any(const char *text, const char *const *words, size_t n);
bool text_begins_with_any(const char *text, const char *const *words, size_t n);
bool text_is_any(const char *text, const char *const *words, size_t n);

/* Appends a malloc'ed word to a list of n words of this function and a NULL; NULL: empty. */
void words_add(char ***words, size_t *n, char *word);
/* Frees texts and their array, which ends with NULL. Takes NULL. */
void words_free(char **words);
static inline void words_freep(char ***words) { words_free(*words); }
/* The same as one thing, for sentences. */
struct words {
    char **list;
    size_t n;
};
#define words_printf(to, ...) words_add(&(to)->list, &(to)->n, xasprintf(__VA_ARGS__))

/* The text behind the last '/'. */
const char *path_name(const char *path);

/* For _cleanup_(freep): frees what the pointer variable holds. */
static inline void freep(void *pp) {
    void **p = pp;
    free(*p);
    *p = NULL;
}
