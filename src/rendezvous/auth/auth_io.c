#include "rendezvous/auth/auth_io.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/list.h"
#include "io/clock.h"
#include "io/net/tls_psk.h"
#include "io/peer/peer_gate.h"
#include "io/process/helper_call.h"

#define LIBRARY "libmunge.so.2"

/* munge.h: enum munge_opt, munge_cipher */
#define OPT_CIPHER_TYPE 0
#define OPT_SOCKET 8
#define OPT_UID_RESTRICTION 9
#define CIPHER_AES256 5

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
    struct helper_call *encoding;
    uint64_t encoded_ns; /* when that was begun last */

    uint64_t n_refused;
    struct hash_seen logged; /* who was refused why */
};

struct auth_ask {
    struct list link;
    struct auth *auth; /* NULL: it was freed */
    auth_fn *fn;
    void *arg;
    bool is_choice; /* else it only waits until this side is ready */
    struct peer_owner peer;
    struct auth_greeting greeting;
    struct helper_call *decoding;
    int outcome;                  /* of it; -1: none yet. OTHER_RUN: munge_why is a sentence */
    char munge_why[AUTH_WHY_MAX]; /* for auth_decide() */
};

static void auth_tell(struct auth *a, const char *text) {
    if (a->line != NULL)
        a->line(a->arg, text);
}

static struct auth_side side_without_ids(const struct auth *a) {
    return (struct auth_side){
        .mode = a->mode, .local = a->local, .n_keys = keyring_n(a->ring), .munge = a->munge};
}

/* Derives ids first; if that fails, *ret is without ids. */
static _must_use_ int auth_side_of(struct auth *a, struct auth_side *ret, struct err *err) {
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

/* By the kernel; with AUTH_NONE it is not asked. */
static struct peer_owner auth_peer_of(struct auth *a, int fd, const struct addr *peer) {
    struct peer_owner owner = {.kind = PEER_ELSEWHERE};
    if (a->mode != AUTH_NONE)
        owner = peer_gate_owner(a->gate, fd, peer);
    /* root may ask the agents of all users */
    if (owner.kind == PEER_OTHER_USER && a->is_operator && geteuid() == 0)
        owner.kind = PEER_OURS;
    return owner;
}

static void auth_ask_due(struct auth_ask *ask) {
    list_remove(&ask->link);
    list_append(&ask->auth->due, &ask->link);
    loop_timer_set(ask->auth->timer, clock_now_ns());
}

struct question {
    const char *path;                  /* of the socket; NULL: the library's */
    uint8_t secret[AUTH_SECRET_BYTES]; /* the helper has no keyring */
    const char *credential;            /* to decode; NULL: encode */
    const char *run_id;
};

/* What it writes. */
struct munge_answer {
    int outcome;                       /* 0, or enum auth_munge_outcome */
    char why[AUTH_WHY_MAX];            /* a clause, if it is not 0 */
    uint8_t secret[AUTH_SECRET_BYTES]; /* of a credential that was decoded */
    char credential[AUTH_MUNGE_MAX];   /* that was encoded */
};

/* Whether munged has a socket here; path NULL: where it usually is. */
static bool munge_is_there(const char *path) {
    if (path != NULL)
        return access(path, F_OK) == 0;
    return access("/run/munge/munge.socket.2", F_OK) == 0 ||
           access("/var/run/munge/munge.socket.2", F_OK) == 0;
}

struct api {
    void *(*ctx_create)(void);
    int (*ctx_set)(void *ctx, int opt, ...);
    int (*encode)(char **cred, void *ctx, const void *buf, int len);
    int (*decode)(const char *cred, void *ctx, void **buf, int *len, uid_t *uid, gid_t *gid);
    const char *(*strerror)(int code);
};

static bool load(struct api *api) {
    static const char *const names[] = {"munge_ctx_create", "munge_ctx_set", "munge_encode",
                                        "munge_decode", "munge_strerror"};
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL), *symbols[ARRAY_SIZE(names)];
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (library == NULL || (symbols[i] = dlsym(library, names[i])) == NULL)
            return false;
    static_assert(sizeof symbols == sizeof *api, "one name for each member");
    memcpy(api, symbols, sizeof symbols);
    return true;
}

static void cannot(struct munge_answer *a, int outcome, const char *why) {
    a->outcome = outcome;
    (void)snprintf(a->why, sizeof a->why, "%s", why);
}

static void encode(const struct api *api, void *ctx, const struct question *q,
                   struct munge_answer *a) {
    char payload[AUTH_MUNGE_PAYLOAD_MAX], *credential = NULL;
    size_t len = auth_munge_payload(q->secret, q->run_id, payload);
    int code = api->ctx_set(ctx, OPT_CIPHER_TYPE, CIPHER_AES256);
    if (code == MUNGE_E_SUCCESS)
        code = api->ctx_set(ctx, OPT_UID_RESTRICTION, geteuid());
    if (code == MUNGE_E_SUCCESS)
        code = api->encode(&credential, ctx, payload, (int)len);
    explicit_bzero(payload, sizeof payload);
    if (code != MUNGE_E_SUCCESS)
        cannot(a, AUTH_MUNGE_E_SILENT, api->strerror(code));
    else if (strlen(credential) >= sizeof a->credential)
        cannot(a, AUTH_MUNGE_E_SILENT, "its credentials are too long");
    else
        (void)snprintf(a->credential, sizeof a->credential, "%s", credential);
}

static void decode(const struct api *api, void *ctx, const struct question *q,
                   struct munge_answer *a) {
    void *payload = NULL;
    int len = 0;
    gid_t gid;
    struct auth_munge_decoded d = {.uid = (uid_t)-1};
    d.code = api->decode(q->credential, ctx, &payload, &len, &d.uid, &gid);
    d.text = api->strerror(d.code);
    d.payload = payload;
    d.len = len > 0 ? (size_t)len : 0;
    a->outcome = auth_munge_judge(&d, geteuid(), q->run_id, a->secret, a->why);
}

static int work(int fd, void *arg) {
    const struct question *q = arg;
    struct munge_answer a = {0};
    struct api api = {0};
    void *ctx = load(&api) ? api.ctx_create() : NULL;
    if (ctx == NULL)
        cannot(&a, AUTH_MUNGE_E_SILENT, "there is no " LIBRARY);
    else if (q->path != NULL && api.ctx_set(ctx, OPT_SOCKET, q->path) != MUNGE_E_SUCCESS)
        cannot(&a, AUTH_MUNGE_E_SILENT, "its socket's name is not taken");
    else if (q->credential != NULL)
        decode(&api, ctx, q, &a);
    else
        encode(&api, ctx, q, &a);
    return helper_send(fd, &a, sizeof a) ? 0 : 1; /* what is left is wiped with the process */
}

/* *ret is wiped by the caller. */
static void take_answer(const struct helper_answer *answer, struct munge_answer *ret) {
    *ret = (struct munge_answer){0};
    if (!helper_answer_take(answer, ret, sizeof *ret))
        cannot(ret, AUTH_MUNGE_E_SILENT, "munged here does not answer");
}

/* fn is called from the loop, at most MUNGE_NS later. A negative errno: there is no process. */
static int munge_start(struct loop *loop, struct question *q, helper_call_fn *fn, void *arg,
                       struct helper_call **ret) {
    struct helper_call_config config = {.name = "muster-munge",
                                        .run = work,
                                        .arg = q,
                                        .timeout_ns = MUNGE_NS,
                                        .max_bytes = sizeof(struct munge_answer)};
    return helper_call_new(loop, &config, fn, arg, ret);
}

/* Its own, until it has learned one: then all agents of the job come to offer the same. */
static int make_offer(struct auth *a, struct err *err) {
    uint8_t secret[AUTH_SECRET_BYTES];
    if (keyring_n(a->offer) > 0)
        return 0;
    random_bytes(secret, sizeof secret);
    int r = keyring_add(a->offer, secret, AUTH_FROM_MUNGE, err);
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
    keyring_clear(a->offer);
    (void)!keyring_add(a->offer, secret, AUTH_FROM_MUNGE, NULL); /* else it makes its own */
}

static void encoded(struct auth *a, const struct munge_answer *answer) {
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

static void on_encoded(void *arg, const struct helper_answer *answer) {
    struct munge_answer m;
    take_answer(answer, &m);
    encoded(arg, &m);
    explicit_bzero(&m, sizeof m);
}

/* Unless that is under way. Then the waiting asks are due. */
static void auth_munge_encode(struct auth *a) {
    if (a->encoding != NULL)
        return;
    struct err err = {0};
    a->encoded_ns = clock_now_ns();
    int r = make_offer(a, &err);
    struct question q = {.path = a->munge_socket, .run_id = a->run_id != NULL ? a->run_id : ""};
    if (r == 0) {
        memcpy(q.secret, keyring_at(a->offer, 0)->secret, sizeof q.secret);
        r = munge_start(a->loop, &q, on_encoded, a, &a->encoding);
        explicit_bzero(q.secret, sizeof q.secret);
    }
    if (r == 0)
        return;
    struct munge_answer failed = {.outcome = AUTH_MUNGE_E_SILENT};
    (void)snprintf(failed.why, sizeof failed.why, "munge can't be asked: %.200s",
                   err.code != 0 ? err.text : strerror(-r));
    encoded(a, &failed);
}

static void auth_munge_renew(struct auth *a) {
    uint64_t age = clock_now_ns() - a->encoded_ns;
    if (!a->munge_asked)
        return;
    if ((a->munge == AUTH_MUNGE_ANSWERS && age >= AUTH_MUNGE_RENEW_NS) ||
        (a->munge == AUTH_MUNGE_SILENT && age >= AUTH_MUNGE_AGAIN_NS))
        auth_munge_encode(a);
}

static void decoded(struct auth_ask *ask, const struct munge_answer *answer) {
    struct auth *a = ask->auth;
    const char *why = answer->why;
    ask->decoding = NULL;
    ask->outcome = answer->outcome;
    if (answer->outcome == 0) {
        learn(a, answer->secret);
        why = "its munge credential holds another key than the one that the agent there uses";
    }
    if (answer->outcome != AUTH_MUNGE_E_SILENT)
        a->munge = AUTH_MUNGE_ANSWERS;
    else if (a->munge == AUTH_MUNGE_UNKNOWN)
        a->munge = AUTH_MUNGE_SILENT;
    (void)snprintf(ask->munge_why, sizeof ask->munge_why, "%s", why);
    auth_ask_due(ask);
}

static void on_decoded(void *arg, const struct helper_answer *answer) {
    struct munge_answer m;
    take_answer(answer, &m);
    decoded(arg, &m);
    explicit_bzero(&m, sizeof m);
}

/* Then the ask is due. */
static void auth_munge_decode(struct auth_ask *ask) {
    struct auth *a = ask->auth;
    struct question q = {
        .path = a->munge_socket, .credential = ask->greeting.munge, .run_id = a->run_id};
    int r = munge_start(a->loop, &q, on_decoded, ask, &ask->decoding);
    if (r == 0)
        return;
    struct munge_answer failed = {.outcome = AUTH_MUNGE_E_SILENT};
    (void)snprintf(failed.why, sizeof failed.why, "munge can't be asked: %s", strerror(-r));
    decoded(ask, &failed);
}

void auth_ask_free(struct auth_ask *ask) {
    if (ask == NULL)
        return;
    list_remove(&ask->link);
    helper_call_free(ask->decoding);
    free(ask);
}

static struct auth_ask *new_ask(struct auth *a, bool is_choice, auth_fn *fn, void *arg) {
    struct auth_ask *ask = xcalloc(1, sizeof *ask);
    *ask =
        (struct auth_ask){.auth = a, .fn = fn, .arg = arg, .is_choice = is_choice, .outcome = -1};
    list_init(&ask->link);
    return ask;
}

static void fire(struct auth_ask *ask, const struct auth_choice *choice) {
    auth_fn *fn = ask->fn;
    void *arg = ask->arg;
    auth_ask_free(ask);
    fn(arg, choice);
}

static void refuse(struct auth_ask *ask, const char *why) {
    fire(ask, &(struct auth_choice){.way = AUTH_WAY_REFUSED, .why = why});
}

static void connect_with(struct auth_ask *ask, uint32_t key) {
    struct auth *a = ask->auth;
    struct ssl_st *session;
    struct err err = {0};
    if (tls_psk_connect(a->psk, &keyring_at(a->ring, key)->tls, &session, &err) < 0)
        refuse(ask, err.text);
    else
        fire(ask, &(struct auth_choice){.way = AUTH_WAY_TLS, .session = session});
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
    if (ask->outcome == AUTH_MUNGE_E_OTHER_RUN) {
        (void)snprintf(why, sizeof why, "%s", ask->munge_why);
        refuse(ask, why);
        return;
    }
    if (needs_ids && auth_side_of(a, &me, &err) < 0) {
        refuse(ask, err.text);
        return;
    }
    me.munge_why = ask->outcome >= 0 ? ask->munge_why : NULL;
    me.munge_other_user = ask->outcome == AUTH_MUNGE_E_OTHER_USER;
    enum auth_way way = auth_decide(&me, &ask->greeting, &ask->peer, &key, why);
    switch (way) {
    case AUTH_WAY_PLAIN: fire(ask, &(struct auth_choice){.way = way}); return;
    case AUTH_WAY_TLS: connect_with(ask, key); return;
    case AUTH_WAY_MUNGE: ask_munge(ask); return;
    case AUTH_WAY_REFUSED: refuse(ask, why); return;
    }
}

/* The asks whose turn has come: a loop_timer_fn. */
static void auth_on_timer(void *arg) {
    struct auth *a = arg;
    struct auth_ask *ask;
    a->in_callback = true;
    while ((ask = LIST_FIRST(struct auth_ask, &a->due, link)) != NULL) {
        if (loop_slice_is_over(a->loop)) {
            loop_timer_set(a->timer, clock_now_ns());
            break;
        }
        list_remove(&ask->link);
        if (ask->is_choice)
            choose(ask);
        else
            fire(ask, NULL);
    }
    a->in_callback = false;
    if (a->doomed)
        auth_free(a);
}

struct auth_ask *auth_wait(struct auth *a, auth_fn *fn, void *arg) {
    struct auth_ask *ask = new_ask(a, false, fn, arg);
    if (auth_is_ready(a)) {
        auth_ask_due(ask);
    } else {
        list_append(&a->waiting, &ask->link);
        auth_munge_encode(a);
    }
    return ask;
}

struct auth_ask *auth_choose(struct auth *a, int fd, const struct addr *peer,
                             const struct auth_greeting *g, auth_fn *fn, void *arg) {
    struct auth_ask *ask = new_ask(a, true, fn, arg);
    ask->greeting = *g;
    ask->peer = auth_peer_of(a, fd, peer);
    /* An agent of this machine that admits only its own users, or peers with a key, will know
     * us. */
    if (a->mode == AUTH_NONE && !g->open && addr_is_local(peer))
        ask->peer.kind = PEER_OURS;
    auth_ask_due(ask);
    return ask;
}

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
                               "--auth=on is not possible here: the kernel does not report "
                               "the user of a connection")
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
    a->psk = tls_psk_new(find_key, a);
    a->timer = loop_timer_new(a->loop, auth_on_timer, a);
    return r;
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
        helper_call_free(TAKE_PTR(ask->decoding));
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
    helper_call_free(TAKE_PTR(a->encoding));
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

enum auth_state auth_state(const struct auth *a) {
    if (a == NULL || a->mode == AUTH_NONE)
        return AUTH_STATE_NONE;
    if (a->local)
        return AUTH_STATE_LOCAL;
    struct auth_side me = side_without_ids(a);
    return auth_is_open(&me) ? AUTH_STATE_OPEN : AUTH_STATE_KEYS;
}

uint64_t auth_n_refused(const struct auth *a) { return a != NULL ? a->n_refused : 0; }

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
                   "this job has a key that cannot be used, so other machines are not admitted: %s",
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
        "this job is open: no node has a key%s%s%s, so any process that reaches its ports "
        "can join or stop it. To close it, run \"muster keygen\" once and copy "
        "~/.config/muster/key to all nodes (--auth=none turns off this warning and the check)",
        is_silent ? " (munge here: " : "", is_silent ? a->munge_why : "", is_silent ? ")" : "");
    auth_tell(a, text);
}

bool auth_takes_plain(struct auth *a, int fd, const struct addr *peer, char why[AUTH_WHY_MAX]) {
    struct auth_side me;
    struct err err = {0};
    if (a == NULL || a->mode == AUTH_NONE)
        return true;
    struct peer_owner who = auth_peer_of(a, fd, peer);
    int r = auth_side_of(a, &me, &err);
    bool takes = auth_admits_plain(&me, &who, why);
    if (!takes && r < 0)
        (void)snprintf(why, AUTH_WHY_MAX, "%s", err.text);
    return takes;
}

int auth_accept(struct auth *a, struct ssl_st **ret, struct err *err) {
    if (a == NULL || keyring_n(a->ring) == 0)
        return err_set(err, -ENOKEY, "it came with a key, and there is none here");
    int r = keyring_derive(a->ring, err);
    return r < 0 ? r : tls_psk_accept(a->psk, ret, err);
}

void auth_refused(struct auth *a, const struct addr *peer, const char *why) {
    char who[ADDR_TEXT_MAX], text[AUTH_WHY_MAX + ADDR_TEXT_MAX + 128];
    if (a == NULL)
        return;
    a->n_refused++;
    addr_host_text(peer, who);
    if (!hash_is_new(&a->logged, hash_text(hash_text(HASH_BEGIN, who), why), AUTH_REFUSED_LINES))
        return;
    (void)snprintf(text, sizeof text, "refused a connection from %s: %s%s", who, why,
                   a->logged.n == AUTH_REFUSED_LINES ? " (further ones are only counted)" : "");
    auth_tell(a, text);
}
