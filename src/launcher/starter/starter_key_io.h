/* The key of a job whose agents muster starts itself, so that nobody types one. It is the one that
 * the user has given (--key-file, MUSTER_KEY_FILE, MUSTER_KEY), or a random one that ends with the
 * job. Agents get it in their environment as STARTER_KEY_ENV: by srun, or from the relay, which
 * gets it over ssh's standard input. It is on no command line. They take it out of there when they
 * begin (keyring_take_env()), and take no other.
 *
 *     r = starter_key_new(spec, keys, &key, &err);         NULL: the job has none
 *     starter_key_to_env(key, &env); … spawn …; envlist_forget(&env, STARTER_KEY_ENV);
 *     starter_key_accept(key, &session, &err);             on the head's own port
 *     starter_key_free(key);
 *
 * All functions take NULL. */
#pragma once

#include "base/err.h"
#include "base/text/envlist.h"
#include "launcher/job/job.h"
#include "rendezvous/auth/keyring_io.h"

struct starter_key;
struct ssl_st;

/* keys: those that were given; copied. *ret is NULL with --auth=none, and where this machine has no
 * OpenSSL and the user has not asked for a key, which is said. 0, or a negative errno and a
 * sentence (err is not NULL). */
_must_use_ int starter_key_new(const struct job_spec *spec, const struct keyring *keys,
                               struct starter_key **ret, struct err *err);
void starter_key_free(struct starter_key *k);
/* The 32 bytes, borrowed; NULL. */
const uint8_t *starter_key_secret(const struct starter_key *k);
/* Sets STARTER_KEY_ENV: to STARTER_NO_KEY where there is none, so that a key that does not arrive
 * is noticed. */
void starter_key_to_env(const struct starter_key *k, struct envlist *env);
/* A session with somebody who must have the key, for stream_start_tls(). Not for NULL. */
_must_use_ int starter_key_accept(struct starter_key *k, struct ssl_st **ret, struct err *err);
