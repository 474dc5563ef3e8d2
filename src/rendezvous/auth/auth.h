/* Who may talk to whom between machines, as decisions on plain data, with ids of keys. auth_io.h
 * carries them out.
 *
 * The accepting side first sends a struct auth_greeting, in clear, with the ids of its keys. Then
 * the connecting side decides: plain, TLS with a key that both have, or nothing. A side that has a
 * key, or whose munged answers, is never plain with another machine. On one machine the kernel
 * decides (io/peer/peer_gate.h), and no key is needed.
 *
 *     way = auth_decide(&me, &greeting, &peer, &key, why);
 *         AUTH_WAY_PLAIN   AUTH_WAY_TLS with me.ids[key]   AUTH_WAY_REFUSED: why says what to do
 *         AUTH_WAY_MUNGE   munge must be asked first; then decide again */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/peer_owner.h"

#define AUTH_ID_TEXT_MAX 17
#define AUTH_KEYS_MAX 8 /* of an agent, which names them all */
/* Of an operator, who may have the keys of many jobs. */
#define AUTH_OWN_KEYS_MAX 256
#define AUTH_MUNGE_MAX 1024 /* a credential of munge, with the NUL */
#define AUTH_WHY_MAX ERR_TEXT_MAX
#define AUTH_VERSION 1 /* of the greeting and what follows from it */

/* --auth: only peers with a key of ours; the same, and without a key nothing starts; any peer, and
 * the kernel is not asked either. */
enum auth_mode { AUTH_AUTO = 0, AUTH_ON, AUTH_NONE };

/* Where a key is from. A key from one of the first three is given: it is then the only one. */
enum auth_source {
    AUTH_FROM_FILE = 1, /* --key-file, MUSTER_KEY_FILE */
    AUTH_FROM_ENV,      /* MUSTER_KEY */
    AUTH_FROM_HEAD,     /* the head that started this agent, over ssh or srun */
    AUTH_FROM_JOB_DIR,  /* the job's folder of dir: */
    AUTH_FROM_HOME,     /* ~/.config/muster/key */
    AUTH_FROM_MUNGE,    /* made by an agent, carried by munge */
    AUTH_FROM_RUN_DIR,  /* for operators: of a job of this machine, from its run directory */
};
#define AUTH_SOURCE_MAX AUTH_FROM_RUN_DIR

/* "file", "env", "head", "dir", "home", "munge", "run": each source in the greeting. [0]: NULL. */
extern const char *const auth_source_words[AUTH_SOURCE_MAX + 1];
/* Whether it excludes all keys that are only found. */
bool auth_source_is_given(enum auth_source source);

/* Connections from other machines: need a key (or munge may still answer); are all admitted; don't
 * come; are all admitted because the user wants it. */
enum auth_state {
    AUTH_STATE_KEYS = 1,
    AUTH_STATE_OPEN,
    AUTH_STATE_LOCAL,
    AUTH_STATE_NONE,
    AUTH_STATE_COUNT,
};
/* "keys", "open", "local", "none". [0]: NULL. */
extern const char *const auth_state_words[AUTH_STATE_COUNT];

/* Names a key without telling it. */
struct auth_id {
    uint64_t id;             /* derived from the key; as text 16 hexadecimal digits */
    enum auth_source source; /* where the side that has the key has it from */
};
void auth_id_to_text(const struct auth_id *id, char out[AUTH_ID_TEXT_MAX]);

/* In clear, by the side that accepted the connection. */
struct auth_greeting {
    uint32_t version; /* AUTH_VERSION */
    bool open;        /* takes whoever comes, in plain */
    uint32_t n_keys;
    struct auth_id ids[AUTH_KEYS_MAX]; /* of the keys that it takes */
    char munge[AUTH_MUNGE_MAX];        /* a credential with a key and a run id; "": none */
};

enum auth_munge {
    AUTH_MUNGE_UNUSED =
        0,              /* it is not to be asked: a key is given, or nobody comes from elsewhere */
    AUTH_MUNGE_UNKNOWN, /* not asked yet */
    AUTH_MUNGE_ABSENT,  /* no munged, or no libmunge */
    AUTH_MUNGE_SILENT,  /* there is one, but it fails or does not answer in time */
    AUTH_MUNGE_ANSWERS,
};

struct auth_side {
    enum auth_mode mode;
    bool local; /* nobody comes from another machine */
    uint32_t n_keys;
    struct auth_id ids[AUTH_OWN_KEYS_MAX];
    enum auth_munge munge;
    /* After AUTH_WAY_MUNGE: a clause such as "munged here does not answer"; NULL: not tried. */
    const char *munge_why;
    bool munge_other_user; /* and that is because it is of another user's job */
};

enum auth_way {
    AUTH_WAY_PLAIN = 1,
    AUTH_WAY_TLS,
    AUTH_WAY_MUNGE, /* ask munge whether it answers, and what a credential holds */
    AUTH_WAY_REFUSED,
};

/* The connecting side. *ret_key: index in me->ids, for AUTH_WAY_TLS. why, for AUTH_WAY_REFUSED: a
 * sentence about "the agent there" with both sides' keys, and what to do. */
enum auth_way auth_decide(const struct auth_side *me, const struct auth_greeting *g,
                          const struct peer_owner *peer, uint32_t *ret_key, char why[AUTH_WHY_MAX]);

/* "3f0a… from --key-file, 77b1… from munge and 2 more": at most AUTH_KEYS_NAMED of them. */
#define AUTH_KEYS_NAMED 3
#define AUTH_KEYS_TEXT_MAX 192
void auth_keys_text(const struct auth_id *ids, uint32_t n, char out[AUTH_KEYS_TEXT_MAX]);

/* Whether it admits peers of other machines: with AUTH_NONE, or with neither a key nor a munge that
 * answers. What is not known yet counts as closed. */
bool auth_is_open(const struct auth_side *me);
/* Whether the accepting side takes plain bytes from this peer. If not, `why` is a clause such as
 * "it came without a key; keys here: 0f…". */
bool auth_admits_plain(const struct auth_side *me, const struct peer_owner *peer,
                       char why[AUTH_WHY_MAX]);

/* One line, "muster-key-1:" and 64 hexadecimal digits: in files, MUSTER_KEY and messages. */
#define AUTH_SECRET_BYTES 32
#define AUTH_KEY_PREFIX "muster-key-1:"
#define AUTH_KEY_TEXT_MAX (sizeof(AUTH_KEY_PREFIX) + 2 * (size_t)AUTH_SECRET_BYTES)
/* Of a file: a key, a newline, and some room for a useful error. */
#define AUTH_KEY_FILE_MAX 4096

/* Without a newline. The caller wipes `out`. */
void auth_key_to_text(const uint8_t secret[AUTH_SECRET_BYTES], char out[AUTH_KEY_TEXT_MAX]);
/* Blanks and newlines around it are ignored. -EINVAL: the sentence has what is wrong with it, not
 * its content. `what`: "the key file '/home/a/key'". */
_must_use_ int auth_key_from_text(const char *text, size_t len, const char *what,
                                  uint8_t ret[AUTH_SECRET_BYTES], struct err *err);

/* ---- what a credential of munge carries from one agent to another ---- */

/* A key and the run id, which munge encrypts for this user alone (UID_RESTRICTION). It is taken if
 * this user made it, even if it is old or was read before: it only identifies the key, which the
 * peer proves by the handshake. */
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

/* 0: *ret is the key of run_id (NULL: of any run). Or an outcome, with a clause in `why`. */
_must_use_ int auth_munge_judge(const struct auth_munge_decoded *d, uid_t own, const char *run_id,
                                uint8_t ret[AUTH_SECRET_BYTES], char why[AUTH_WHY_MAX]);
