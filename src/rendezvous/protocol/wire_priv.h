/* Shared by wire_table.c, which lists the fields of each message, and wire.c, which encodes and
 * decodes them. Private to these two files. */
#pragma once

#include "base/json/json_table.h"
#include "rendezvous/protocol/wire.h"

struct wire_row {
    const char *name;        /* name of the message kind */
    struct json_table table; /* table of its member of struct wire_message */
    bool for_leader;         /* a node that has joined may send it */
};
extern const struct wire_row wire_rows[WIRE_KIND_COUNT];
