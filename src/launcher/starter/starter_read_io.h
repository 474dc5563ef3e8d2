/* The next message of the head's protocol (starter_wire.h) that a stream has. */
#pragma once

#include "base/err.h"
#include "io/net/stream.h"
#include "launcher/starter/starter_wire.h"

/* Takes it off the stream. 0; FRAME_E_MORE: none is complete; another negative errno, and what is
 * wrong: the peer breaks the protocol. */
_must_use_ int starter_read(struct stream *s, struct starter_message *ret, struct err *err);
