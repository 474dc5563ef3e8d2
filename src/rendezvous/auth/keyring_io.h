/* The keys of one process, and where they come from. The ring lies on pages of its own, which are
 * left out of core files and wiped when it is freed.
 *
 *     r = keyring_new(&ring, &err);
 *     r = keyring_take_env(ring, "MUSTER_KEY", AUTH_FROM_ENV, &err);     before any fork
 *     r = keyring_load_given(ring, spec->key_file, &err);                --key-file,
 * MUSTER_KEY_FILE if (!keyring_is_given(ring)) r = keyring_load_home(ring, &err); … auth_new()
 * copies it; keyring_free(ring)
 *
 * A file with a key must be a regular file of this user or root that nobody else may read or write
 * (0600 or 0400), as ssh demands it; symlinks are not followed. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "base/err.h"
#include "rendezvous/auth/auth.h"
#include "rendezvous/auth/auth_key.h"

#define KEYRING_WHERE_MAX 256

struct keyring;

/* One key, borrowed from its ring. */
struct keyring_key {
    uint8_t secret[AUTH_SECRET_BYTES];
    enum auth_source source;
    char where[KEYRING_WHERE_MAX]; /* the file, for sentences on this node; "" */
};

/* 0, or a negative errno and a sentence. */
_must_use_ int keyring_new(struct keyring **ret, struct err *err);
void keyring_free(struct keyring *k);
static inline void keyring_freep(struct keyring **k) { keyring_free(*k); }
uint32_t keyring_n(const struct keyring *k); /* of NULL: 0 */
const struct keyring_key *keyring_at(const struct keyring *k, uint32_t i);
/* Whether it has a key that was given, so that none is looked for. */
bool keyring_is_given(const struct keyring *k);

/* Copies the secret. A secret that it has already is not added again. where: NULL: none. -ENOSPC:
 * AUTH_KEYS_MAX. */
_must_use_ int keyring_add(struct keyring *k, const uint8_t secret[AUTH_SECRET_BYTES],
                           enum auth_source source, const char *where, struct err *err);

/* Takes a key out of the environment, if it is there: overwrites its bytes where the kernel shows
 * them (/proc/PID/environ), and removes the name. To be called before this process forks or starts
 * anything. -EINVAL: it is not a key; it is removed all the same. */
_must_use_ int keyring_take_env(struct keyring *k, const char *name, enum auth_source source,
                                struct err *err);

/* Reads one file. 0, or a negative errno and a sentence with the line to write; -ENOENT: there is
 * no such file. */
_must_use_ int keyring_load_file(struct keyring *k, const char *path, enum auth_source source,
                                 struct err *err);
/* The keys that the user gave: `key_file`, which may be NULL; else those that keyring_take_env()
 * has taken. -EINVAL: a file and MUSTER_KEY at once. */
_must_use_ int keyring_load_given(struct keyring *k, const char *key_file, struct err *err);
/* ~/.config/muster/key, if it is there; also below XDG_CONFIG_HOME. 0 also if there is none. */
_must_use_ int keyring_load_home(struct keyring *k, struct err *err);
/* Where keyring_load_home() looks. -ENOENT: neither HOME nor XDG_CONFIG_HOME is an absolute path.
 */
_must_use_ int keyring_home_path(char out[PATH_MAX], struct err *err);

/* 32 random bytes. */
_must_use_ int keyring_random(uint8_t out[AUTH_SECRET_BYTES], struct err *err);
