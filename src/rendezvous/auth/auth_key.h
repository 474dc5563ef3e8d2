/* A key as text: one line, "muster-key-1:" and 64 hexadecimal digits. In files, in MUSTER_KEY, and
 * on the way from the head to its agents. */
#pragma once

#include <sys/types.h>

#include "rendezvous/auth/auth.h"

#define AUTH_SECRET_BYTES 32
#define AUTH_KEY_PREFIX "muster-key-1:"
#define AUTH_KEY_TEXT_MAX (sizeof(AUTH_KEY_PREFIX) + 2 * (size_t)AUTH_SECRET_BYTES)
/* The longest file that is read: a key, a newline, and some room, so that what is wrong can be
 * said. */
#define AUTH_KEY_FILE_MAX 4096

/* Without a newline. The caller wipes `out`. */
void auth_key_to_text(const uint8_t secret[AUTH_SECRET_BYTES], char out[AUTH_KEY_TEXT_MAX]);
/* Blanks and newlines around it are ignored. -EINVAL: the sentence says what is wrong with it, and
 * never what it holds; `what` names it: "the key file '/home/a/key'". */
_must_use_ int auth_key_from_text(const char *text, size_t len, const char *what,
                                  uint8_t ret[AUTH_SECRET_BYTES], struct err *err);

/* ---- what a credential of munge carries from one agent to another ---- */

/* A key and the id of the run. Munge encrypts it, lets only this user read it (UID_RESTRICTION),
 * and reports who made it. It is taken if this user made it, also if it is too old or was read
 * before: it only names the key, and the handshake proves that the peer has it. */
#define AUTH_RUN_ID_MAX 256
#define AUTH_MUNGE_PAYLOAD_MAX (AUTH_KEY_TEXT_MAX + AUTH_RUN_ID_MAX)

/* munge_err_t of munge.h */
#define MUNGE_E_SUCCESS 0
#define MUNGE_E_SOCKET 6
#define MUNGE_E_TIMEOUT 7
#define MUNGE_E_BAD_REALM 13
#define MUNGE_E_INVALID 14
#define MUNGE_E_EXPIRED 15
#define MUNGE_E_REWOUND 16
#define MUNGE_E_REPLAYED 17
#define MUNGE_E_UNAUTHORIZED 18

/* The key as text, a newline, the run id. Returns its length. The caller wipes `out`. */
size_t auth_munge_payload(const uint8_t secret[AUTH_SECRET_BYTES], const char *run_id,
                          char out[AUTH_MUNGE_PAYLOAD_MAX]);

/* What munge_decode() returned. */
struct auth_munge_decoded {
    int code;         /* munge_err_t */
    const char *text; /* munge's words for another code than those above */
    uid_t uid;        /* who encoded it */
    const char *payload;
    size_t len;
};

enum auth_munge_outcome {
    AUTH_MUNGE_E_SILENT = 1, /* munged does not answer */
    AUTH_MUNGE_E_UNFIT,      /* it answers, but the credential is of no use */
    AUTH_MUNGE_E_OTHER_RUN,  /* it is this user's, of another job */
    AUTH_MUNGE_E_OTHER_USER, /* it is of another user's job */
};

/* 0: *ret is the key of run_id (NULL: of any run). Or an outcome, and in `why` a clause such as
 * "its credential is of another realm". */
_must_use_ int auth_munge_judge(const struct auth_munge_decoded *d, uid_t own, const char *run_id,
                                uint8_t ret[AUTH_SECRET_BYTES], char why[AUTH_WHY_MAX]);
