#include "base/text/signal_name.h"

#include "rig/unit.h"

Test(signal_name, is_what_the_c_library_says) {
#if defined __GLIBC__ && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 32)
    for (int i = -2; i < NSIG + 2; i++) {
        const char *want = sigabbrev_np(i), *got = signal_abbrev(i);
        cr_assert((want == NULL) == (got == NULL), "%d", i);
        cr_assert(want == NULL || strcmp(want, got) == 0, "%d: %s", i, got);
    }
#endif
    cr_assert_str_eq(signal_abbrev(SIGTERM), "TERM");
    cr_assert_null(signal_abbrev(0));
}

Test(signal_name, every_signal_has_a_name) {
    char name[SIGNAL_TEXT_MAX];
    signal_text(SIGSEGV, name);
    cr_expect_str_eq(name, "SIGSEGV");
    signal_text(SIGRTMIN + 3, name);
    cr_expect_str_eq(name, "SIGRTMIN+3");
    signal_text(99, name);
    cr_expect_str_eq(name, "signal 99");
}
