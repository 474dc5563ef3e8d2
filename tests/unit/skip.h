/* Criterion does not call .fini for a test that is skipped. SKIP_AFTER(fini, why, ...) does, then skips. */
#pragma once

#include "rig/unit.h"

#define SKIP_AFTER(fini, ...)      \
    do {                           \
        fini();                    \
        cr_skip_test(__VA_ARGS__); \
    } while (0)
