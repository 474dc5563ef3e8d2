#include <stdio.h>

#include "io/clock.h"
#include "io/net/tls_psk.h"
#include "io/peer/peer_gate.h"
#include "rendezvous/auth/auth_priv.h"

/* ---- asks ---- */

void auth_ask_due(struct auth_ask *ask) {
    list_remove(&ask->link);
    list_append(&ask->auth->due, &ask->link);
    loop_timer_set(ask->auth->timer, clock_now_ns());
}

void auth_ask_free(struct auth_ask *ask) {
    if (ask == NULL)
        return;
    list_remove(&ask->link);
    munge_call_free(ask->decoding);
    free(ask);
}

static struct auth_ask *new_ask(struct auth *a, enum auth_ask_kind kind, void *arg) {
    struct auth_ask *ask = xcalloc(1, sizeof *ask);
    *ask = (struct auth_ask){.kind = kind, .auth = a, .arg = arg};
    list_init(&ask->link);
    return ask;
}

static void fire_ready(struct auth_ask *ask) {
    auth_ready_fn *fn = ask->fn.ready;
    void *arg = ask->arg;
    auth_ask_free(ask);
    fn(arg);
}

static void fire(struct auth_ask *ask, enum auth_way way, struct ssl_st *session, const char *why) {
    auth_chosen_fn *fn = ask->fn.chosen;
    void *arg = ask->arg;
    auth_ask_free(ask);
    fn(arg, &(struct auth_choice){.way = way, .session = session, .why = why});
}

static void refuse(struct auth_ask *ask, const char *why) {
    fire(ask, AUTH_WAY_REFUSED, NULL, why);
}

/* ---- the decision ---- */

static void connect_with(struct auth_ask *ask, uint32_t key) {
    struct auth *a = ask->auth;
    struct ssl_st *session;
    struct err err = {0};
    if (tls_psk_connect(a->psk, &keyring_at(a->ring, key)->tls, &session, &err) < 0)
        refuse(ask, err.text);
    else
        fire(ask, AUTH_WAY_TLS, session, NULL);
}

static void ask_munge(struct auth_ask *ask) {
    if (ask->greeting.munge[0] != '\0') {
        list_append(&ask->auth->others, &ask->link);
        auth_munge_decode(ask);
    } else {
        list_append(&ask->auth->waiting, &ask->link);
        auth_munge_encode(ask->auth);
    }
}

static void choose(struct auth_ask *ask) {
    struct auth *a = ask->auth;
    struct auth_side me = {.mode = a->mode};
    struct err err = {0};
    char why[AUTH_WHY_MAX];
    uint32_t key = 0;
    bool needs_ids = ask->peer.kind == PEER_ELSEWHERE; /* else OpenSSL is not needed */
    if (ask->is_other_run) {
        (void)snprintf(why, sizeof why, "%s", ask->munge_why);
        refuse(ask, why);
        return;
    }
    if (needs_ids && auth_side_of(a, &me, &err) < 0) {
        refuse(ask, err.text);
        return;
    }
    me.munge_why = ask->decoded ? ask->munge_why : NULL;
    me.munge_other_user = ask->is_other_user;
    enum auth_way way = auth_decide(&me, &ask->greeting, &ask->peer, &key, why);
    switch (way) {
    case AUTH_WAY_PLAIN: fire(ask, way, NULL, NULL); return;
    case AUTH_WAY_TLS: connect_with(ask, key); return;
    case AUTH_WAY_MUNGE: ask_munge(ask); return;
    case AUTH_WAY_REFUSED: refuse(ask, why); return;
    }
}

void auth_on_timer(void *arg) {
    struct auth *a = arg;
    struct auth_ask *ask;
    a->in_callback = true;
    while ((ask = LIST_FIRST(struct auth_ask, &a->due, link)) != NULL) {
        if (loop_slice_is_over(a->loop)) {
            loop_timer_set(a->timer, clock_now_ns());
            break;
        }
        list_remove(&ask->link);
        if (ask->kind == AUTH_ASK_READY)
            fire_ready(ask);
        else
            choose(ask);
    }
    a->in_callback = false;
    if (a->doomed)
        auth_free(a);
}

/* ---- what is called ---- */

int auth_wait(struct auth *a, auth_ready_fn *fn, void *arg, struct auth_ask **ret) {
    struct auth_ask *ask = new_ask(a, AUTH_ASK_READY, arg);
    ask->fn.ready = fn;
    *ret = ask;
    if (auth_is_ready(a)) {
        auth_ask_due(ask);
        return 0;
    }
    list_append(&a->waiting, &ask->link);
    auth_munge_encode(a);
    return 0;
}

int auth_choose(struct auth *a, int fd, const struct addr *peer, const struct auth_greeting *g,
                auth_chosen_fn *fn, void *arg, struct auth_ask **ret) {
    struct auth_ask *ask = new_ask(a, AUTH_ASK_CHOICE, arg);
    ask->fn.chosen = fn;
    ask->greeting = *g;
    ask->peer = auth_peer_of(a, fd, peer);
    /* With AUTH_NONE the kernel is not asked. An agent of this machine that takes only its own
     * users and who has a key will know us. */
    if (a->mode == AUTH_NONE && !g->open && addr_is_local(peer))
        ask->peer.kind = PEER_OURS;
    *ret = ask;
    auth_ask_due(ask);
    return 0;
}
