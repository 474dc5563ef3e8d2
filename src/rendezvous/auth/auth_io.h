/* Keys, munge and TLS of a connection: carries out what auth.h decides. One struct auth for each
 * process.
 *
 * The accepting side:
 *     if (!auth_is_ready(a)) ask = auth_wait(a, on_auth, me);    only for peers elsewhere
 *     auth_greet(a, &greeting); … the greeting is sent …
 *     plain bytes come:  auth_takes_plain(a, fd, &peer, why), or auth_refused(a, &peer, why)
 *     TLS begins:        auth_accept(a, &session, &err); stream_start_tls(s, session)
 * The connecting side:
 *     the greeting has come:  ask = auth_choose(a, fd, &peer, &greeting, on_auth, me)
 *     on_auth(me, &choice)    plain; or stream_start_tls(s, choice.session); or on_closed(why)
 *
 * On the accepting side NULL is as AUTH_NONE: for tests and tools. OpenSSL is loaded with the first
 * greeting, if there is a key or munge answers. Munge is asked when it is first needed. */
#pragma once

#include "io/loop.h"
#include "io/net/addr.h"
#include "rendezvous/auth/auth.h"
#include "rendezvous/auth/keyring_io.h"

/* How long munge is asked, in a helper: libmunge waits ten seconds for a munged that hangs. */
#define MUNGE_NS (2 * NS_PER_S)
/* How often the credential is renewed, and a munged that did not answer asked again. */
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
    const char *run_id; /* copied; NULL: an operator: takes the key of any run, and offers none */
    struct peer_gate *gate;     /* borrowed; NULL: the kernel does not say */
    const struct keyring *keys; /* copied; NULL: none */
    /* No peer comes from another machine: keys and munge are not used. */
    bool local;
    bool munge;               /* it may be asked; never if a key is given */
    const char *munge_socket; /* copied; unless MUSTER_MUNGE_SOCKET is set; NULL: the default */
    /* One line for people: who was refused, that the job is open. NULL: not logged. */
    void (*line)(void *arg, const char *text);
    void *arg;
};

/* AUTH_ON: -ENOKEY if there is neither a key nor a munge to ask. -ELIBACC: a key, but no OpenSSL
 * (for an operator only when it is needed). */
_must_use_ int auth_new(struct loop *loop, const struct auth_config *config, struct auth **ret,
                        struct err *err);
/* Callbacks do not come any more; their asks must still be freed. Sessions stay. Takes NULL. */
void auth_free(struct auth *a);

/* A key that was found. Ignored with AUTH_NONE, local, or a key that was given. */
_must_use_ int auth_add_key(struct auth *a, const uint8_t secret[AUTH_SECRET_BYTES],
                            enum auth_source source, struct err *err);

/* For operators on this machine: the first key in a file, or given by the head; else the one that
 * munge carries. NULL: none, or only one of the environment. */
const uint8_t *auth_job_secret(const struct auth *a);

enum auth_state auth_state(const struct auth *a);
uint64_t auth_n_refused(const struct auth *a);
/* Logs once, after munge was asked, if there is no key: that the job is open, or with AUTH_ON
 * admits no node; and what to do. */
void auth_tell_no_key(struct auth *a);

struct auth_choice {
    enum auth_way way;      /* AUTH_WAY_PLAIN, AUTH_WAY_TLS, AUTH_WAY_REFUSED */
    struct ssl_st *session; /* TLS: its receiver owns it (stream_start_tls(), tls_session_free()) */
    const char *why; /* REFUSED: a sentence about "the agent there"; borrowed for the callback */
};
/* Called later, and frees the ask. choice: NULL after auth_wait(). */
typedef void auth_fn(void *arg, const struct auth_choice *choice);
/* Cancels: the function is not called. Takes NULL. */
void auth_ask_free(struct auth_ask *ask);

/* ---- the accepting side ---- */

/* The greeting for another machine is complete: munge has been asked, if it must be. */
bool auth_is_ready(const struct auth *a);
/* Asks munge, and calls fn once it is ready, at most MUNGE_NS later. */
_must_use_ struct auth_ask *auth_wait(struct auth *a, auth_fn *fn, void *arg);
/* If keys can't be used (no OpenSSL), *ret has none and is not open, and a line has the reason. */
void auth_greet(struct auth *a, struct auth_greeting *ret);
/* The kernel knows that the peer is ours, or there are no keys. If not, `why` is for
 * auth_refused(). */
bool auth_takes_plain(struct auth *a, int fd, const struct addr *peer, char why[AUTH_WHY_MAX]);
/* A session for stream_start_tls(), which takes it. -ENOKEY: there is no key. */
_must_use_ int auth_accept(struct auth *a, struct ssl_st **ret, struct err *err);
/* Counts it, and logs it once for each address and reason, AUTH_REFUSED_LINES in all. `why`: a
 * clause. */
void auth_refused(struct auth *a, const struct addr *peer, const char *why);

/* ---- the connecting side ---- */

/* fd: connected. The greeting is copied. fn is called once, at most MUNGE_NS later. */
_must_use_ struct auth_ask *auth_choose(struct auth *a, int fd, const struct addr *peer,
                                        const struct auth_greeting *g, auth_fn *fn, void *arg);
