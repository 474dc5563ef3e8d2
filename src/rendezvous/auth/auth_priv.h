/* Shared by the files of auth_io.h: auth_io.c has the accepting side and the keys, auth_choose_io.c
 * the asks of both sides, auth_munge_io.c what is asked of munge. */
#pragma once

#include "base/list.h"
#include "rendezvous/auth/auth_io.h"

struct auth {
    struct loop *loop;
    enum auth_mode mode;
    bool local, is_operator, told_no_key, told_unusable;
    char *run_id;           /* NULL: an operator's */
    struct peer_gate *gate; /* borrowed; NULL */
    struct keyring *ring;
    struct tls_psk *psk;
    void (*line)(void *arg, const char *text);
    void *arg;

    struct list due;     /* asks whose turn has come */
    struct list waiting; /* asks that wait until munge has been asked */
    struct list others;  /* asks whose credential is being decoded */
    struct loop_timer *timer;
    bool in_callback, doomed; /* the timer's; it frees what auth_free() could not */

    enum auth_munge munge;
    bool munge_asked; /* whether it encodes here */
    char *munge_socket;
    char munge_why[AUTH_WHY_MAX]; /* why it does not answer */
    char credential[AUTH_MUNGE_MAX];
    struct keyring *offer; /* the one key that the credential carries */
    struct munge_call *encoding;
    uint64_t encoded_ns; /* when that was begun last */

    uint64_t n_refused;
    uint64_t told[AUTH_REFUSED_LINES]; /* hashes of who was refused why */
    uint32_t n_told;
};

enum auth_ask_kind { AUTH_ASK_READY = 1, AUTH_ASK_CHOICE };
struct auth_ask {
    struct list link;
    enum auth_ask_kind kind;
    struct auth *auth; /* NULL: it was freed */
    union {
        auth_ready_fn *ready;
        auth_chosen_fn *chosen;
    } fn;
    void *arg;
    /* CHOICE */
    struct peer_owner peer;
    struct auth_greeting greeting;
    struct munge_call *decoding;
    bool decoded;                 /* and what came of it: */
    char munge_why[AUTH_WHY_MAX]; /* for auth_decide() */
    bool is_other_run;            /* munge_why is the whole sentence */
    bool is_other_user;
};

void auth_tell(struct auth *a, const char *text);
/* What is known of this side. Derives ids first; if that fails, the error, and *ret without ids. */
_must_use_ int auth_side_of(struct auth *a, struct auth_side *ret, struct err *err);
/* Who is at the other end, as the kernel says; with AUTH_NONE it is not asked. */
struct peer_owner auth_peer_of(struct auth *a, int fd, const struct addr *peer);

/* auth_choose_io.c */
/* The asks whose turn has come: a loop_timer_fn. */
void auth_on_timer(void *arg);
/* Puts an ask among those whose turn has come. */
void auth_ask_due(struct auth_ask *ask);

/* auth_munge_io.c */
/* Asks munge for a credential, unless that is under way; afterwards the waiting asks are due. */
void auth_munge_encode(struct auth *a);
/* Asks again if it is time. */
void auth_munge_renew(struct auth *a);
/* Asks munge what the greeting's credential holds; afterwards the ask is due. */
void auth_munge_decode(struct auth_ask *ask);
