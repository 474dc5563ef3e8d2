/* On each node: sends a long answer to the leader piece by piece, and only as fast as the
 * connection takes it, so that it delays no lease.
 *
 *     r = hang_reply_new(loop, send, me);
 *     hang_reply_start(r, id, json, len, give_up_ns);     an older answer ends
 *     hang_reply_stop(r); */
#pragma once

#include "base/util.h"
#include "io/loop.h"
#include "rendezvous/protocol/messages.h"

#define HANG_REPLY_AGAIN_NS (20 * NS_PER_MS)

/* False: too much is unsent; the piece comes again. Must not call hang_reply_*(). */
typedef bool hang_reply_fn(void *arg, const struct rdzv_evidence *piece);

struct hang_reply;
_must_use_ struct hang_reply *hang_reply_new(struct loop *loop, hang_reply_fn *send, void *arg);
void hang_reply_free(struct hang_reply *r); /* takes NULL */
/* Copies the text; len 0: an empty answer. What is not sent at give_up_ns (CLOCK_MONOTONIC) is
 * not sent at all. */
void hang_reply_start(struct hang_reply *r, uint32_t id, const char *text, size_t len,
                      uint64_t give_up_ns);
void hang_reply_stop(struct hang_reply *r);
