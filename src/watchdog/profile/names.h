/* The names of modules, functions and calls by which profile/infer.h recognizes what a stack does:
 * data, with the reason and the version of the library beside each row. */
#pragma once

#include <stdbool.h>

#include "watchdog/profile/infer.h"

/* What a frame's names show, as bits; bits 0 to PROFILE_START are enum profile_class. */
enum {
    NAME_TRANSPARENT = 1 << 20, /* a wrapper: the frame outside of it is the leaf (R2) */
    NAME_COMM = 1 << 21,        /* a library of collectives: it waits if it sleeps (R3) */
    NAME_OVERLAPS = 1 << 22,    /* such a library that also computes: DDP, FSDP, pipelines */
    NAME_ENGINE = 1 << 23,      /* autograd's engine, whose own threads compute */
    NAME_DEVICE = 1 << 24,      /* a call that waits for the GPU */
    NAME_QUEUE = 1 << 25,       /* a loader process that waits for work */
    NAME_LIBRARY = 1 << 26,     /* not the user's own code */
    NAME_COMPILED = 1 << 27,    /* of the compiler, but only calls what was compiled */
};
unsigned profile_names_of(const struct profile_frame *f);

/* enum profile_calls of a source line, such as "    loss.item()". */
unsigned profile_calls_of(const char *line);
/* A thread of this name moves data for others: its work does not count as the rank's. */
bool profile_is_transport_thread(const char *name);
