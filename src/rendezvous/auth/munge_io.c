#include "rendezvous/auth/munge_io.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libmunge.so.2"

/* munge.h: enum munge_opt, munge_cipher */
#define OPT_CIPHER_TYPE 0
#define OPT_SOCKET 8
#define OPT_UID_RESTRICTION 9
#define CIPHER_AES256 5

/* What the helper is asked. */
struct question {
    const char *path;                  /* of the socket; NULL: the library's */
    uint8_t secret[AUTH_SECRET_BYTES]; /* the helper has no keyring */
    const char *credential;            /* to decode; NULL: encode */
    const char *run_id;
};

struct munge_call {
    struct helper_call *call;
    munge_fn *fn;
    void *arg;
};

bool munge_is_there(const char *path) {
    if (path != NULL)
        return access(path, F_OK) == 0;
    return access("/run/munge/munge.socket.2", F_OK) == 0 ||
           access("/var/run/munge/munge.socket.2", F_OK) == 0;
}

/* ---- in the helper ---- */

struct api {
    void *(*ctx_create)(void);
    int (*ctx_set)(void *ctx, int opt, ...);
    int (*encode)(char **cred, void *ctx, const void *buf, int len);
    int (*decode)(const char *cred, void *ctx, void **buf, int *len, uid_t *uid, gid_t *gid);
    const char *(*strerror)(int code);
};

static bool find(void *library, const char *name, void *ret) {
    void *symbol = dlsym(library, name);
    memcpy(ret, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool load(struct api *api) {
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    return library != NULL && find(library, "munge_ctx_create", &api->ctx_create) &&
           find(library, "munge_ctx_set", &api->ctx_set) &&
           find(library, "munge_encode", &api->encode) &&
           find(library, "munge_decode", &api->decode) &&
           find(library, "munge_strerror", &api->strerror);
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

/* ---- in the agent ---- */

static void on_answer(void *arg, const struct helper_answer *answer) {
    struct munge_call *c = arg;
    struct munge_answer a = {0};
    if (answer->len == sizeof a) {
        memcpy(&a, answer->data, sizeof a);
        explicit_bzero((char *)(uintptr_t)answer->data, answer->len);
        a.why[sizeof a.why - 1] = a.credential[sizeof a.credential - 1] = '\0';
    } else
        cannot(&a, AUTH_MUNGE_E_SILENT, "munged here does not answer");
    munge_fn *fn = c->fn;
    void *of = c->arg;
    free(c); /* the helper's call is freed by now */
    fn(of, &a);
    explicit_bzero(&a, sizeof a);
}

static int start(struct loop *loop, struct question *q, munge_fn *fn, void *arg,
                 struct munge_call **ret) {
    struct helper_call_config config = {.name = "muster-munge",
                                        .run = work,
                                        .arg = q,
                                        .timeout_ns = MUNGE_NS,
                                        .max_bytes = sizeof(struct munge_answer)};
    struct munge_call *c = xcalloc(1, sizeof *c);
    c->fn = fn;
    c->arg = arg;
    int r = helper_call_new(loop, &config, on_answer, c, &c->call);
    if (r < 0)
        free(c);
    else
        *ret = c;
    return r;
}

int munge_encode_start(struct loop *loop, const char *path, const uint8_t secret[AUTH_SECRET_BYTES],
                       const char *run_id, munge_fn *fn, void *arg, struct munge_call **ret) {
    struct question q = {.path = path, .run_id = run_id};
    memcpy(q.secret, secret, sizeof q.secret);
    int r = start(loop, &q, fn, arg, ret);
    explicit_bzero(q.secret, sizeof q.secret);
    return r;
}

int munge_decode_start(struct loop *loop, const char *path, const char *credential,
                       const char *run_id, munge_fn *fn, void *arg, struct munge_call **ret) {
    struct question q = {.path = path, .credential = credential, .run_id = run_id};
    return start(loop, &q, fn, arg, ret);
}

void munge_call_free(struct munge_call *c) {
    if (c == NULL)
        return;
    helper_call_free(c->call);
    free(c);
}
