/* Keys, munge and TLS on both sides of a connection: carries out what auth.h decides. One struct
 * auth for each process, shared by all its connections.
 *
 * The accepting side:
 *     if (!auth_is_ready(a)) ask = auth_wait(a, on_auth, me);    only for peers elsewhere
 *     auth_greet(a, &greeting); … the greeting is sent …
 *     plain bytes come:  auth_takes_plain(a, fd, &peer) or auth_plain_refusal(), auth_refused()
 *     TLS begins:        auth_accept(a, &session, &err); stream_start_tls(s, session)
 * The connecting side:
 *     the greeting has come:  ask = auth_choose(a, fd, &peer, &greeting, on_auth, me)
 *     on_auth(me, &choice)    plain; or stream_start_tls(s, choice.session); or on_closed(why)
 *
 * On the accepting side a NULL auth is as one with AUTH_NONE: for tests and tools. OpenSSL is
 * loaded when the first greeting is made or read, and only if there is a key or munge answers.
 * Munge is asked when it is first needed, in a helper process, for at most MUNGE_NS. */
#pragma once

#include "io/loop.h"
#include "io/net/addr.h"
#include "rendezvous/auth/auth.h"
#include "rendezvous/auth/keyring_io.h"

/* The longest time that munge is asked: in a helper, which loads the library, because libmunge
 * waits ten seconds for a munged that hangs. */
#define MUNGE_NS (2 * NS_PER_S)
/* How often the credential in the greeting is renewed, and how often a munged that did not answer
 * is asked again. */
#define AUTH_MUNGE_RENEW_NS (240 * NS_PER_S)
#define AUTH_MUNGE_AGAIN_NS (10 * NS_PER_S)

/* How many lines tell of connections that were refused. */
#define AUTH_REFUSED_LINES 16

struct auth;
struct auth_ask; /* a callback that is still to come */
struct ssl_st;
struct peer_gate;

struct auth_config {
    enum auth_mode mode;
    const char *run_id; /* copied; NULL: any run's key is taken from munge, and none is offered (an
                           operator) */
    struct peer_gate *gate;     /* borrowed; NULL: the kernel does not say */
    const struct keyring *keys; /* copied; NULL: none */
    /* Nobody comes from another machine: keys and munge are not used, and plain connections of this
     * machine are admitted, as far as the gate admits them. */
    bool local;
    bool munge;               /* it may be asked; never if a key is given */
    const char *munge_socket; /* copied; unless MUSTER_MUNGE_SOCKET is set; NULL: the default */
    /* Gets one line for each thing that a person should know: who was refused, that the job is
     * open. NULL: not told. */
    void (*line)(void *arg, const char *text);
    void *arg;
};

/* Asks nobody yet. With AUTH_ON: -ENOKEY if there is no key and no munge to ask. -ELIBACC: there is
 * a key, but no OpenSSL (for an operator this is known only when it is needed). */
_must_use_ int auth_new(struct loop *loop, const struct auth_config *config, struct auth **ret,
                        struct err *err);
/* Callbacks that are still to come do not come any more; their asks must still be freed. Sessions
 * live on. Takes NULL. */
void auth_free(struct auth *a);

/* Another key that was found. Nothing is done if keys are not used (AUTH_NONE, local), or if one
 * was given. */
_must_use_ int auth_add_key(struct auth *a, const uint8_t secret[AUTH_SECRET_BYTES],
                            enum auth_source source, struct err *err);

/* The key by which operators on this machine may reach the other nodes: the first one that is in a
 * file, or was given by the head; else what munge has carried here, or carries to others. NULL:
 * none, or only one that was given in the environment. */
const uint8_t *auth_job_secret(const struct auth *a);

enum auth_state auth_state(const struct auth *a);
uint64_t auth_n_refused(const struct auth *a);
/* One line, once, if munge has been asked and there is no key: it is AUTH_STATE_OPEN, or with
 * AUTH_ON nobody is admitted; and what to write. */
void auth_tell_no_key(struct auth *a);

struct auth_choice {
    enum auth_way way;      /* AUTH_WAY_PLAIN, AUTH_WAY_TLS, AUTH_WAY_REFUSED */
    struct ssl_st *session; /* TLS: its receiver owns it (stream_start_tls(), tls_session_free()) */
    const char *why; /* REFUSED: a sentence about "the agent there"; borrowed for the callback */
};
/* Never called from inside the call that was given it. The ask is freed then. choice: NULL after
 * auth_wait(). */
typedef void auth_fn(void *arg, const struct auth_choice *choice);
/* Cancels: the function is not called. Takes NULL. */
void auth_ask_free(struct auth_ask *ask);

/* ---- the accepting side ---- */

/* Whether the greeting for another machine is complete. False only until munge has been asked once;
 * a peer of this machine need not wait for it. */
bool auth_is_ready(const struct auth *a);
/* Asks munge if it was not asked yet, and calls fn once it is ready, at most MUNGE_NS later. */
_must_use_ struct auth_ask *auth_wait(struct auth *a, auth_fn *fn, void *arg);
/* What is said to a peer. If keys can't be used (no OpenSSL), the greeting has none and is not
 * open, and a line says why. */
void auth_greet(struct auth *a, struct auth_greeting *ret);
/* Whether plain bytes of this peer are taken: the kernel says that it is ours, or nobody has a
 * key. */
bool auth_takes_plain(struct auth *a, int fd, const struct addr *peer);
/* Why not, for auth_refused(). */
void auth_plain_refusal(struct auth *a, int fd, const struct addr *peer, char why[AUTH_WHY_MAX]);
/* A session for stream_start_tls(), which takes it. -ENOKEY: there is no key. */
_must_use_ int auth_accept(struct auth *a, struct ssl_st **ret, struct err *err);
/* Somebody was refused: counted, and told once for each address and reason, AUTH_REFUSED_LINES in
 * all. `why` is a clause: "it has none of this agent's keys". */
void auth_refused(struct auth *a, const struct addr *peer, const char *why);

/* ---- the connecting side ---- */

/* fd: the connected socket. The greeting is copied. fn is called once, soon; if munge must be
 * asked, at most MUNGE_NS later. */
_must_use_ struct auth_ask *auth_choose(struct auth *a, int fd, const struct addr *peer,
                                        const struct auth_greeting *g, auth_fn *fn, void *arg);
