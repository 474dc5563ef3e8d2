/* The keys of one process, and where they come from. The ring lies on pages of its own, which are
 * left out of core files and wiped when it is freed.
 *
 *     r = keyring_new(&ring, &err);
 *     r = keyring_take_env(ring, "MUSTER_KEY", AUTH_FROM_ENV, &err);    before any fork
 *     r = keyring_load_given(ring, spec->key_file, &err);               or MUSTER_KEY_FILE
 *     r = keyring_load_home(ring, timeout_ns, &err);                    if none was given
 *     … auth_new() copies it; keyring_free(ring)
 *
 * A file with a key must be a regular file of this user or root that nobody else may read or write
 * (0600 or 0400), as ssh demands it; one of root may be read by its group (0440: the Secret of a
 * pod whose user is not root). */
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
/* Copies the secret. One that the ring has already is not added again. -ENOSPC: it has
 * AUTH_KEYS_MAX. */
_must_use_ int keyring_add(struct keyring *k, const uint8_t secret[AUTH_SECRET_BYTES],
                           enum auth_source source, struct err *err);
/* Wipes and removes a key; those behind it move up. */
void keyring_remove(struct keyring *k, uint32_t i);
/* Wipes and removes all. Takes NULL. */
void keyring_clear(struct keyring *k);
/* Processes that this one forks from now on have an empty ring (since Linux 4.14). Takes NULL. */
void keyring_keep_from_children(struct keyring *k);
_must_use_ int keyring_add_all(struct keyring *k, const struct keyring *from, struct err *err);
/* Derives ids and what TLS uses, for the keys that have none yet. Loads OpenSSL if there is a key.
 * -ELIBACC: it is not installed. */
_must_use_ int keyring_derive(struct keyring *k, struct err *err);

/* Takes a key out of the environment, if it is there: overwrites its bytes where the kernel shows
 * them (/proc/PID/environ), and removes the name. To be called before this process forks or starts
 * anything. -EINVAL: it is not a key; it is removed all the same. */
_must_use_ int keyring_take_env(struct keyring *k, const char *name, enum auth_source source,
                                struct err *err);

/* Reads one file. Symlinks are followed only to one that the user has named (AUTH_FROM_FILE): the
 * file's owner and mode decide. 0, or a negative errno and a sentence with the line to write;
 * -ENOENT: there is no such file. */
_must_use_ int keyring_load_file(struct keyring *k, const char *path, enum auth_source source,
                                 struct err *err);
/* The key that the user gave: the file of --key-file, or else of MUSTER_KEY_FILE; NULL: none.
 * -EINVAL: keyring_take_env() has already taken one, and the two may differ. */
_must_use_ int keyring_load_given(struct keyring *k, const char *key_file, struct err *err);
/* ~/.config/muster/key, if it is there. 0 also if it is not, or if the folder is closed to this
 * user. A home can hang: a helper reads it. -ETIMEDOUT: it did not answer. */
#define KEYRING_HOME_NS (5 * NS_PER_S)
_must_use_ int keyring_load_home(struct keyring *k, uint64_t timeout_ns, struct err *err);
/* Where that is: below XDG_CONFIG_HOME, else below HOME. -ENOENT: neither is an absolute path. */
_must_use_ int keyring_home_path(char out[PATH_MAX], struct err *err);

/* Writes a new file with a key, mode 0600. -EEXIST: there is a file; `replace` replaces it. The
 * folder must be there. */
_must_use_ int keyring_write_file(const char *path, const uint8_t secret[AUTH_SECRET_BYTES],
                                  bool replace, struct err *err);
/* Writes or replaces one that is of no use when this machine has stopped: it does not wait for the
 * disk. */
_must_use_ int keyring_leave_file(const char *path, const uint8_t secret[AUTH_SECRET_BYTES],
                                  struct err *err);
/* Makes the folders of keyring_home_path() that are missing, 0700. */
_must_use_ int keyring_make_home(const char *path, struct err *err);
