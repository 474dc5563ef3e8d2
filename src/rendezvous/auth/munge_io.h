/* Asks munge, in a helper process: libmunge waits ten seconds for a munged that hangs. The library
 * is loaded there, too, so nothing of it is in this process.
 *
 *     if (munge_is_there(NULL))
 *         r = munge_encode_start(loop, NULL, secret, run_id, on_encoded, me, &c);
 *     … on_encoded(me, credential)
 *
 * munge_call_free() cancels. */
#pragma once

#include "io/process/helper_call.h"
#include "rendezvous/auth/auth_munge.h"

#define MUNGE_NS (2 * NS_PER_S)

/* Whether munged has a socket here; path NULL: where it usually is. */
_must_use_ bool munge_is_there(const char *path);

/* What a helper writes: borrowed for the callback, and wiped after it. */
struct munge_answer {
    int outcome;                       /* 0, or enum auth_munge_outcome */
    char why[AUTH_WHY_MAX];            /* a clause, if it is not 0 */
    uint8_t secret[AUTH_SECRET_BYTES]; /* of a credential that was decoded */
    char credential[AUTH_MUNGE_MAX];   /* that was encoded */
};
/* Once, from the loop, at most MUNGE_NS later. */
typedef void munge_fn(void *arg, const struct munge_answer *answer);

struct munge_call;
/* Both: 0 or a negative errno (no process could be made). */
_must_use_ int munge_encode_start(struct loop *loop, const char *path,
                                  const uint8_t secret[AUTH_SECRET_BYTES], const char *run_id,
                                  munge_fn *fn, void *arg, struct munge_call **ret);
/* run_id NULL: any run. */
_must_use_ int munge_decode_start(struct loop *loop, const char *path, const char *credential,
                                  const char *run_id, munge_fn *fn, void *arg,
                                  struct munge_call **ret);
/* Cancels: fn is not called. Takes NULL. */
void munge_call_free(struct munge_call *c);
