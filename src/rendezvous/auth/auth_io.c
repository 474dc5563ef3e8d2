#include "rendezvous/auth/auth_io.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "io/net/tls_psk.h"
#include "io/peer/peer_gate.h"
#include "rendezvous/auth/auth_priv.h"

void auth_tell(struct auth *a, const char *text) {
    if (a->line != NULL)
        a->line(a->arg, text);
}

/* ---- making it ---- */

static const struct tls_key *find_key(void *arg, const uint8_t id[TLS_KEY_ID_BYTES]) {
    const struct auth *a = arg;
    for (uint32_t i = 0; i < keyring_n(a->ring); i++) {
        const struct keyring_key *key = keyring_at(a->ring, i);
        if (key->is_derived && memcmp(key->tls.id, id, TLS_KEY_ID_BYTES) == 0)
            return &key->tls;
    }
    return NULL;
}

static void take_config(struct auth *a, const struct auth_config *config) {
    a->mode = config->mode;
    a->run_id = config->run_id != NULL ? xstrdup(config->run_id) : NULL;
    a->gate = config->gate;
    /* Where the kernel does not say who comes, whoever comes is taken, as before. */
    a->local = config->local && config->gate != NULL;
    a->line = config->line;
    a->arg = config->arg;
    const char *socket = getenv("MUSTER_MUNGE_SOCKET");
    socket = socket != NULL ? socket : config->munge_socket;
    a->munge_socket = socket != NULL ? xstrdup(socket) : NULL;
    a->is_operator = config->run_id == NULL;
    bool may_ask = config->munge && config->mode != AUTH_NONE && !config->local &&
                   !keyring_is_given(config->keys);
    a->munge = !may_ask                          ? AUTH_MUNGE_UNUSED
               : munge_is_there(a->munge_socket) ? AUTH_MUNGE_UNKNOWN
                                                 : AUTH_MUNGE_ABSENT;
}

static int check(struct auth *a, bool local, struct err *err) {
    bool has_none = keyring_n(a->ring) == 0 && a->munge != AUTH_MUNGE_UNKNOWN;
    if (a->mode == AUTH_ON && has_none && !a->local)
        return local ? err_set(err, -ENOKEY,
                               "--auth=on is not possible here: the kernel does not say which "
                               "user a connection belongs to")
                     : err_set(err, -ENOKEY,
                               "--auth=on needs a key, and there is none: run \"muster keygen\" "
                               "and copy ~/.config/muster/key to all nodes, or give them a key by "
                               "--key-file");
    return a->is_operator ? 0 : keyring_derive(a->ring, err);
}

static int make_parts(struct auth *a, const struct auth_config *config, struct err *err) {
    int r = keyring_new(&a->ring, err);
    if (r == 0)
        r = keyring_new(&a->offer, err);
    if (r == 0 && a->is_operator)
        keyring_widen(a->ring);
    keyring_keep_from_children(a->ring);
    keyring_keep_from_children(a->offer);
    if (r == 0 && !config->local && config->mode != AUTH_NONE)
        r = keyring_add_all(a->ring, config->keys, err);
    if (r == 0)
        r = tls_psk_new(find_key, a, &a->psk, err);
    if (r < 0)
        return r;
    r = loop_timer_new(a->loop, auth_on_timer, a, &a->timer);
    return r < 0 ? err_set(err, r, "cannot make a timer: %s", strerror(-r)) : 0;
}

int auth_new(struct loop *loop, const struct auth_config *config, struct auth **ret,
             struct err *err) {
    struct auth *a = xcalloc(1, sizeof *a);
    a->loop = loop;
    list_init(&a->due);
    list_init(&a->waiting);
    list_init(&a->others);
    take_config(a, config);
    int r = make_parts(a, config, err);
    if (r == 0)
        r = check(a, config->local, err);
    if (r < 0)
        auth_free(a);
    else
        *ret = a;
    return r;
}

static void orphan(struct list *asks) {
    LIST_FOR_EACH(struct auth_ask, ask, asks, link) {
        munge_call_free(TAKE_PTR(ask->decoding));
        ask->auth = NULL;
        list_remove(&ask->link);
    }
}

void auth_free(struct auth *a) {
    if (a == NULL)
        return;
    orphan(&a->due);
    orphan(&a->waiting);
    orphan(&a->others);
    munge_call_free(TAKE_PTR(a->encoding));
    a->doomed = true;
    if (a->in_callback)
        return;
    loop_timer_free(a->timer);
    tls_psk_free(a->psk);
    keyring_free(a->ring);
    keyring_free(a->offer);
    free(a->munge_socket);
    free(a->run_id);
    free(a);
}

int auth_add_key(struct auth *a, const uint8_t secret[AUTH_SECRET_BYTES], enum auth_source source,
                 struct err *err) {
    bool is_used = a->mode != AUTH_NONE && !a->local && !keyring_is_given(a->ring);
    return is_used ? keyring_add(a->ring, secret, source, err) : 0;
}

/* Who has several has that of the job's folder first, as the other nodes do. */
const uint8_t *auth_job_secret(const struct auth *a) {
    const uint8_t *munge = NULL; /* what was learned is behind what was made */
    for (uint32_t i = 0; a != NULL && i < keyring_n(a->ring); i++) {
        const struct keyring_key *key = keyring_at(a->ring, i);
        if (key->source == AUTH_FROM_ENV)
            return NULL;
        if (key->source != AUTH_FROM_MUNGE)
            return key->secret;
        munge = key->secret;
    }
    return munge;
}

/* ---- what this side has ---- */

static struct auth_side side_without_ids(const struct auth *a) {
    return (struct auth_side){
        .mode = a->mode, .local = a->local, .n_keys = keyring_n(a->ring), .munge = a->munge};
}

int auth_side_of(struct auth *a, struct auth_side *ret, struct err *err) {
    int r = keyring_derive(a->ring, err);
    *ret = side_without_ids(a);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < ret->n_keys; i++) {
        const struct keyring_key *key = keyring_at(a->ring, i);
        ret->ids[i] = (struct auth_id){.id = key->id, .source = key->source};
    }
    return 0;
}

enum auth_state auth_state(const struct auth *a) {
    if (a == NULL || a->mode == AUTH_NONE)
        return AUTH_STATE_NONE;
    if (a->local)
        return AUTH_STATE_LOCAL;
    struct auth_side me = side_without_ids(a);
    return auth_is_open(&me) ? AUTH_STATE_OPEN : AUTH_STATE_KEYS;
}

uint64_t auth_n_refused(const struct auth *a) { return a != NULL ? a->n_refused : 0; }

struct peer_owner auth_peer_of(struct auth *a, int fd, const struct addr *peer) {
    struct peer_owner owner = {.kind = PEER_ELSEWHERE};
    if (a->mode != AUTH_NONE)
        owner = peer_gate_owner(a->gate, fd, peer);
    /* root may ask the agents of all users */
    if (owner.kind == PEER_OTHER_USER && a->is_operator && geteuid() == 0)
        owner.kind = PEER_OURS;
    return owner;
}

/* ---- the accepting side ---- */

bool auth_is_ready(const struct auth *a) {
    return a == NULL || a->munge == AUTH_MUNGE_UNUSED || a->munge == AUTH_MUNGE_ABSENT ||
           a->munge_asked;
}

static void tell_unusable(struct auth *a, const char *why) {
    char text[AUTH_WHY_MAX + 128];
    if (a->told_unusable)
        return;
    a->told_unusable = true;
    (void)snprintf(text, sizeof text,
                   "this job has a key that can't be used, so nobody on another machine is "
                   "admitted: %s",
                   why);
    auth_tell(a, text);
}

void auth_greet(struct auth *a, struct auth_greeting *ret) {
    struct auth_side me;
    struct err err = {0};
    *ret = (struct auth_greeting){.version = AUTH_VERSION, .open = a == NULL};
    if (a == NULL)
        return;
    auth_munge_renew(a);
    if (auth_side_of(a, &me, &err) < 0) {
        tell_unusable(a, err.text);
        return;
    }
    ret->open = auth_is_open(&me);
    ret->n_keys = MIN2(me.n_keys, (uint32_t)AUTH_KEYS_MAX); /* an operator greets nobody */
    memcpy(ret->ids, me.ids, sizeof ret->ids);
    if (a->munge == AUTH_MUNGE_ANSWERS && !a->is_operator)
        memcpy(ret->munge, a->credential, sizeof ret->munge);
}

void auth_tell_no_key(struct auth *a) {
    char text[AUTH_WHY_MAX + 512];
    struct auth_side me = side_without_ids(a);
    bool is_silent = a->munge == AUTH_MUNGE_SILENT, is_open = auth_is_open(&me);
    bool is_shut = a->mode == AUTH_ON && !a->local && me.n_keys == 0 && is_silent;
    if (a->told_no_key || (!is_open && !is_shut))
        return;
    a->told_no_key = true;
    if (is_shut) {
        (void)snprintf(
            text, sizeof text,
            "with --auth=on no other node is admitted, because this one has no key (munge "
            "here: %s): start munged again, or run \"muster keygen\" and copy "
            "~/.config/muster/key to all nodes",
            a->munge_why);
        auth_tell(a, text);
        return;
    }
    (void)snprintf(
        text, sizeof text,
        "this job is open: no node has a key%s%s%s, so whoever reaches its ports can join or stop "
        "it. To close it, run \"muster keygen\" once and copy ~/.config/muster/key to all nodes "
        "(--auth=none leaves out this warning, and checks nobody)",
        is_silent ? " (munge here: " : "", is_silent ? a->munge_why : "", is_silent ? ")" : "");
    auth_tell(a, text);
}

bool auth_takes_plain(struct auth *a, int fd, const struct addr *peer) {
    if (a == NULL || a->mode == AUTH_NONE)
        return true;
    struct auth_side me = side_without_ids(a);
    struct peer_owner who = auth_peer_of(a, fd, peer);
    return auth_admits_plain(&me, &who);
}

void auth_plain_refusal(struct auth *a, int fd, const struct addr *peer, char why[AUTH_WHY_MAX]) {
    struct auth_side me;
    struct err err = {0};
    struct peer_owner who = auth_peer_of(a, fd, peer);
    if (auth_side_of(a, &me, &err) < 0)
        (void)snprintf(why, AUTH_WHY_MAX, "%s", err.text);
    else
        auth_plain_why(&me, &who, why);
}

int auth_accept(struct auth *a, struct ssl_st **ret, struct err *err) {
    if (a == NULL || keyring_n(a->ring) == 0)
        return err_set(err, -ENOKEY, "it came with a key, and there is none here");
    int r = keyring_derive(a->ring, err);
    return r < 0 ? r : tls_psk_accept(a->psk, ret, err);
}

/* ---- who was refused ---- */

/* Whether this is news. The table is small: what does not fit in is only counted. */
static bool is_new(struct auth *a, const char *who, const char *why) {
    uint64_t hash = hash_text(hash_text(HASH_BEGIN, who), why);
    for (uint32_t i = 0; i < a->n_told; i++)
        if (a->told[i] == hash)
            return false;
    if (a->n_told == AUTH_REFUSED_LINES)
        return false;
    a->told[a->n_told++] = hash;
    return true;
}

void auth_refused(struct auth *a, const struct addr *peer, const char *why) {
    char who[ADDR_TEXT_MAX], text[AUTH_WHY_MAX + ADDR_TEXT_MAX + 128];
    if (a == NULL)
        return;
    a->n_refused++;
    addr_host_text(peer, who);
    if (!is_new(a, who, why))
        return;
    (void)snprintf(text, sizeof text, "refused a connection from %s: %s%s", who, why,
                   a->n_told == AUTH_REFUSED_LINES ? " (further ones are only counted)" : "");
    auth_tell(a, text);
}
