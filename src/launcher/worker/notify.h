/* The messages that a worker can send to the agent, in the form of sd_notify(3): a datagram with
 * lines VARIABLE=VALUE. Pure; notify_io.h has the socket. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define NOTIFY_BYTES_MAX 4096 /* of a datagram; longer ones are ignored */

struct notify_message {
    bool safe_point; /* MUSTER_SAFE_POINT=1: if it is stopped now, the job loses no work */
};

/* Unknown variables are ignored, and so is a line without a "=". A text that contains a NUL, or
 * that is too long, is ignored as a whole. */
struct notify_message notify_parse(const char *data, size_t len);
