/* Between wire_table.c, which says what each message has, and wire.c, which writes and reads it.
 * Nobody else includes this. */
#pragma once

#include "base/json/json_table.h"
#include "rendezvous/protocol/wire.h"

struct wire_row {
    const char *name;        /* of the kind */
    struct json_table table; /* of its member of struct wire_message */
    bool for_leader;         /* a node that has joined may say it */
};
extern const struct wire_row wire_rows[WIRE_KIND_COUNT];
