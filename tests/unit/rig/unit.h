/* What a unit test needs in any case: Criterion, and of the C library what most of them use. */
#pragma once

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"

/* Checks that a text has a part. */
#define assert_has(text, part) CHECK_HAS(cr_assert, text, part)
#define expect_has(text, part) CHECK_HAS(cr_expect, text, part)
#define CHECK_HAS(check, text, part)                                               \
    do {                                                                           \
        const char *text_ = (text), *part_ = (part);                               \
        check(strstr(text_, part_) != NULL, "\"%s\" is not in: %s", part_, text_); \
    } while (0)

/* Waits for the end of a child: its exit status, or minus the signal that ended it. */
static inline int rig_status(pid_t pid) {
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* A formatted text, valid until 64 more were made. */
static inline char *rig_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline char *rig_text(const char *fmt, ...) {
    static char texts[64][4096];
    static unsigned n;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(texts[++n % 64], sizeof texts[0], fmt, ap);
    va_end(ap);
    return texts[n % 64];
}

/* Where a value is, for what wants a pointer; WITH() sets fields of it before:
 *
 *     run(AT(config_of(2, 2)));
 *     run(WITH(config_of(2, 2), .epoch = 4, .idle = true));
 *
 * Valid until this place is reached again. */
#define AT(value)                                  \
    __extension__({                                \
        static __typeof__(((void)0, (value))) at_; \
        at_ = (value);                             \
        &at_;                                      \
    })
#define WITH(value, ...)                                                        \
    __extension__({                                                             \
        static __typeof__(((void)0, (value))) with_;                            \
        with_ = (value);                                                        \
        SET_OF(__VA_ARGS__, SET_5, SET_4, SET_3, SET_2, SET_1, 0)(__VA_ARGS__); \
        &with_;                                                                 \
    })
#define SET_OF(a1, a2, a3, a4, a5, set, ...) set
#define SET_1(a) with_ a
#define SET_2(a, ...) \
    with_ a;          \
    SET_1(__VA_ARGS__)
#define SET_3(a, ...) \
    with_ a;          \
    SET_2(__VA_ARGS__)
#define SET_4(a, ...) \
    with_ a;          \
    SET_3(__VA_ARGS__)
#define SET_5(a, ...) \
    with_ a;          \
    SET_4(__VA_ARGS__)
