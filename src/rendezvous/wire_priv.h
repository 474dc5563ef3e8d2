/* Between wire.c, which writes, and wire_read.c. Nobody else includes this. */
#pragma once

#include "rendezvous/wire.h"

#define GENERATION_TEXT_MAX 24 /* "4294967295.4294967295" */
#define WIRE_OUTCOME_COUNT 3

extern const char *const wire_kind_names[WIRE_KIND_COUNT];
extern const char *const wire_node_state_names[NODE_STATE_COUNT];
extern const char *const wire_failure_kind_names[FAILURE_KIND_COUNT];
extern const char *const wire_desired_names[DESIRED_KIND_COUNT];
extern const char *const wire_outcome_names[WIRE_OUTCOME_COUNT];
