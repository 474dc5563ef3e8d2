/* What "eu-stack -m" of elfutils prints of a process, made shorter: threads that are at the same
 * place are shown once. Pure.
 *
 *     native_shorten(data, len, &text);
 *
 * "TID 12:", and "#0  0x00007fc1871e1dd0 pause - /usr/lib/libc.so.6" for each frame, innermost
 * first, become "thread 12:" and "  pause  libc.so.6"; threads with the same frames
 * "thread 13, and 61 more like it:". */
#pragma once

#include "base/text/strbuf.h"

#define NATIVE_OUTPUT_MAX ((size_t)1 << 20) /* what is read of it */
#define NATIVE_NAME_MAX 180                 /* bytes of a frame: names of C++ can be very long */
#define NATIVE_MODULE_MAX 60
#define NATIVE_FRAMES_MAX 64 /* of a thread that are shown */
#define NATIVE_STACKS_MAX 64 /* different ones */

/* Adds at most `max` bytes (at least 100), whole lines; a last one says that there is more. An
 * address is kept only if the frame has no name. What has no thread in it gives nothing. */
void native_shorten(const char *data, size_t len, size_t max, struct strbuf *ret);
