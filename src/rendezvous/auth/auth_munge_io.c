#include <stdio.h>
#include <string.h>

#include "io/clock.h"
#include "rendezvous/auth/auth_priv.h"

/* ---- the key that this agent offers ---- */

/* Its own, until it has learned one: then all agents of the job come to offer the same. */
static int make_offer(struct auth *a, struct err *err) {
    uint8_t secret[AUTH_SECRET_BYTES];
    if (keyring_n(a->offer) > 0)
        return 0;
    int r = keyring_random(secret, err);
    if (r == 0)
        r = keyring_add(a->offer, secret, AUTH_FROM_MUNGE, err);
    explicit_bzero(secret, sizeof secret);
    return r;
}

static bool is_offered(const struct auth *a, const struct keyring_key *key) {
    return keyring_n(a->offer) > 0 &&
           memcmp(keyring_at(a->offer, 0)->secret, key->secret, AUTH_SECRET_BYTES) == 0;
}

/* A credential that somebody shows again must not push out a key that is in use. */
static void make_room(struct auth *a) {
    for (uint32_t i = 0; keyring_n(a->ring) == AUTH_KEYS_MAX && i < AUTH_KEYS_MAX; i++) {
        const struct keyring_key *key = keyring_at(a->ring, i);
        if (key->source == AUTH_FROM_MUNGE && !is_offered(a, key)) {
            keyring_remove(a->ring, i);
            return;
        }
    }
}

static void join_ring(struct auth *a, const uint8_t secret[AUTH_SECRET_BYTES]) {
    struct err err = {0};
    make_room(a);
    if (keyring_add(a->ring, secret, AUTH_FROM_MUNGE, &err) < 0)
        auth_tell(a, err.text);
}

static void learn(struct auth *a, const uint8_t secret[AUTH_SECRET_BYTES]) {
    join_ring(a, secret);
    if (a->munge_asked || a->encoding != NULL)
        return;
    while (keyring_n(a->offer) > 0)
        keyring_remove(a->offer, 0);
    (void)!keyring_add(a->offer, secret, AUTH_FROM_MUNGE, NULL); /* else it makes its own */
}

/* ---- a credential of its own ---- */

static void on_encoded(void *arg, const struct munge_answer *answer) {
    struct auth *a = arg;
    a->encoding = NULL;
    a->munge_asked = true;
    if (answer->outcome == 0) {
        a->munge = AUTH_MUNGE_ANSWERS;
        memcpy(a->credential, answer->credential, sizeof a->credential);
        join_ring(a, keyring_at(a->offer, 0)->secret);
    } else if (a->munge != AUTH_MUNGE_ANSWERS) {
        a->munge = AUTH_MUNGE_SILENT;
        memcpy(a->munge_why, answer->why, sizeof a->munge_why);
    }
    LIST_FOR_EACH(struct auth_ask, ask, &a->waiting, link)
        auth_ask_due(ask);
}

void auth_munge_encode(struct auth *a) {
    if (a->encoding != NULL)
        return;
    struct err err = {0};
    a->encoded_ns = clock_now_ns();
    int r = make_offer(a, &err);
    if (r == 0)
        r = munge_encode_start(a->loop, a->munge_socket, keyring_at(a->offer, 0)->secret,
                               a->run_id != NULL ? a->run_id : "", on_encoded, a, &a->encoding);
    if (r == 0)
        return;
    struct munge_answer failed = {.outcome = AUTH_MUNGE_E_SILENT};
    (void)snprintf(failed.why, sizeof failed.why, "munge can't be asked: %.200s",
                   err.code != 0 ? err.text : strerror(-r));
    on_encoded(a, &failed);
}

void auth_munge_renew(struct auth *a) {
    uint64_t age = clock_now_ns() - a->encoded_ns;
    if (!a->munge_asked)
        return;
    if ((a->munge == AUTH_MUNGE_ANSWERS && age >= AUTH_MUNGE_RENEW_NS) ||
        (a->munge == AUTH_MUNGE_SILENT && age >= AUTH_MUNGE_AGAIN_NS))
        auth_munge_encode(a);
}

/* ---- that of another ---- */

static void on_decoded(void *arg, const struct munge_answer *answer) {
    struct auth_ask *ask = arg;
    struct auth *a = ask->auth;
    const char *why = answer->why;
    ask->decoding = NULL;
    ask->decoded = true;
    if (answer->outcome == 0) {
        learn(a, answer->secret);
        why = "its munge credential holds another key than the agent there names";
    }
    ask->is_other_run = answer->outcome == AUTH_MUNGE_E_OTHER_RUN;
    ask->is_other_user = answer->outcome == AUTH_MUNGE_E_OTHER_USER;
    if (answer->outcome != AUTH_MUNGE_E_SILENT)
        a->munge = AUTH_MUNGE_ANSWERS;
    else if (a->munge == AUTH_MUNGE_UNKNOWN)
        a->munge = AUTH_MUNGE_SILENT;
    (void)snprintf(ask->munge_why, sizeof ask->munge_why, "%s", why);
    auth_ask_due(ask);
}

void auth_munge_decode(struct auth_ask *ask) {
    struct auth *a = ask->auth;
    int r = munge_decode_start(a->loop, a->munge_socket, ask->greeting.munge, a->run_id, on_decoded,
                               ask, &ask->decoding);
    if (r == 0)
        return;
    struct munge_answer failed = {.outcome = AUTH_MUNGE_E_SILENT};
    (void)snprintf(failed.why, sizeof failed.why, "munge can't be asked: %s", strerror(-r));
    on_decoded(ask, &failed);
}
