#include "launcher/starter/starter_key_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "launcher/place/place.h"

struct starter_key {
    struct keyring *ring; /* with one key */
    struct tls_psk *psk;
};

static const struct keyring_key *key_of(const struct starter_key *k) {
    return keyring_at(k->ring, 0);
}

const uint8_t *starter_key_secret(const struct starter_key *k) {
    return k != NULL ? key_of(k)->secret : NULL;
}

static const struct tls_key *find(void *arg, const uint8_t id[TLS_KEY_ID_BYTES]) {
    const struct tls_key *key = &key_of(arg)->tls;
    return memcmp(key->id, id, TLS_KEY_ID_BYTES) == 0 ? key : NULL;
}

static int add_key(struct keyring *ring, const struct keyring *given, struct err *err) {
    uint8_t secret[AUTH_SECRET_BYTES];
    if (keyring_n(given) > 0) {
        const struct keyring_key *first = keyring_at(given, 0);
        return keyring_add(ring, first->secret, first->source, err);
    }
    int r = keyring_random(secret, err);
    if (r == 0)
        r = keyring_add(ring, secret, AUTH_FROM_HEAD, err);
    explicit_bzero(secret, sizeof secret);
    return r;
}

int starter_key_new(const struct job_spec *spec, const struct keyring *keys,
                    struct starter_key **ret, struct err *err) {
    *ret = NULL;
    if (spec->auth == AUTH_NONE)
        return 0;
    struct starter_key *k = xcalloc(1, sizeof *k);
    int r = keyring_new(&k->ring, err);
    if (r == 0) {
        keyring_keep_from_children(k->ring);
        r = add_key(k->ring, keys, err);
    }
    if (r == 0)
        r = keyring_derive(k->ring, err);
    if (r == 0) {
        k->psk = tls_psk_new(find, k);
        *ret = k;
        return 0;
    }
    starter_key_free(k);
    if (r != -ELIBACC || spec->auth == AUTH_ON || keyring_n(keys) > 0)
        return r;
    log_warning("the job's nodes get no key from here: %s", err->text);
    return 0;
}

void starter_key_free(struct starter_key *k) {
    if (k == NULL)
        return;
    tls_psk_free(k->psk);
    keyring_free(k->ring);
    free(k);
}

void starter_key_to_env(const struct starter_key *k, struct envlist *env) {
    char text[AUTH_KEY_TEXT_MAX];
    if (k != NULL)
        auth_key_to_text(key_of(k)->secret, text);
    else
        (void)snprintf(text, sizeof text, STARTER_NO_KEY);
    envlist_set(env, STARTER_KEY_ENV, text);
    explicit_bzero(text, sizeof text);
}

int starter_key_accept(struct starter_key *k, struct ssl_st **ret, struct err *err) {
    return tls_psk_accept(k->psk, ret, err);
}
