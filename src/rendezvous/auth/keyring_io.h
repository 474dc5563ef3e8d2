/* The keys of one process, on pages of their own, which are left out of core files and wiped at the
 * end.
 *
 *     r = keyring_new(&ring, &err);
 *     r = keyring_take_env(ring, "MUSTER_KEY", AUTH_FROM_ENV, &err);    before any fork
 *     r = keyring_load_given(ring, spec->key_file, &err);               or MUSTER_KEY_FILE
 *     r = keyring_load_home(ring, timeout_ns, &err);                    if none was given
 *     … auth_new() copies it; keyring_free(ring)
 *
 * A file with a key must be a regular file of this user or root, 0600 or 0400, as ssh demands it;
 * root's may be 0440: the Secret of a pod whose user is not root. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "base/err.h"
#include "io/net/tls_psk.h"
#include "rendezvous/auth/auth.h"

struct keyring;

/* One key, borrowed from its ring. */
struct keyring_key {
    uint8_t secret[AUTH_SECRET_BYTES];
    enum auth_source source;
    bool is_derived;
    uint64_t id;        /* both of keyring_derive() */
    struct tls_key tls; /* id and what TLS uses */
};

/* 0, or a negative errno and a sentence. */
_must_use_ int keyring_new(struct keyring **ret, struct err *err);
void keyring_free(struct keyring *k);
static inline void keyring_freep(struct keyring **k) { keyring_free(*k); }
uint32_t keyring_n(const struct keyring *k); /* of NULL: 0 */
const struct keyring_key *keyring_at(const struct keyring *k, uint32_t i);
/* Whether it has a key that was given, so that none is looked for. */
bool keyring_is_given(const struct keyring *k);

/* Takes AUTH_OWN_KEYS_MAX keys from now on. */
void keyring_widen(struct keyring *k);
/* Copies the secret, unless the ring has it. -ENOSPC: it has AUTH_KEYS_MAX. */
_must_use_ int keyring_add(struct keyring *k, const uint8_t secret[AUTH_SECRET_BYTES],
                           enum auth_source source, struct err *err);
/* Wipes and removes a key; those behind it move up. */
void keyring_remove(struct keyring *k, uint32_t i);
/* Wipes and removes all. Takes NULL. */
void keyring_clear(struct keyring *k);
/* Processes that this one forks from now on have an empty ring (since Linux 4.14). Takes NULL. */
void keyring_keep_from_children(struct keyring *k);
_must_use_ int keyring_add_all(struct keyring *k, const struct keyring *from, struct err *err);
/* Derives missing ids. Loads OpenSSL if there is a key. -ELIBACC: it is not installed. */
_must_use_ int keyring_derive(struct keyring *k, struct err *err);

/* Overwrites the key's bytes where the kernel shows them (/proc/PID/environ), and removes the name,
 * also if it is not a key (-EINVAL). Before this process forks or starts anything. */
_must_use_ int keyring_take_env(struct keyring *k, const char *name, enum auth_source source,
                                struct err *err);

/* Follows symlinks only to a file that the user has named (AUTH_FROM_FILE). 0, or a negative errno
 * and a sentence; -ENOENT: there is no such file. */
_must_use_ int keyring_load_file(struct keyring *k, const char *path, enum auth_source source,
                                 struct err *err);
/* --key-file, or else MUSTER_KEY_FILE; NULL: none. -EINVAL: keyring_take_env() took one. */
_must_use_ int keyring_load_given(struct keyring *k, const char *key_file, struct err *err);
/* ~/.config/muster/key. 0 also if there is none, or the folder is closed to this user. A helper
 * reads it, because a home can hang. -ETIMEDOUT: it did not answer. */
#define KEYRING_HOME_NS (5 * NS_PER_S)
_must_use_ int keyring_load_home(struct keyring *k, uint64_t timeout_ns, struct err *err);
/* Where that is: below XDG_CONFIG_HOME, else below HOME. -ENOENT: neither is an absolute path. */
_must_use_ int keyring_home_path(char out[PATH_MAX], struct err *err);

/* Mode 0600; the folder must be there. -EEXIST: there is a file, without `replace`. */
_must_use_ int keyring_write_file(const char *path, const uint8_t secret[AUTH_SECRET_BYTES],
                                  bool replace, struct err *err);
/* Makes the folders of keyring_home_path() that are missing, 0700. */
_must_use_ int keyring_make_home(const char *path, struct err *err);
