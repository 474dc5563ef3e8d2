#include "rendezvous/auth/keyring_io.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/little_endian.h"

struct keyring {
    uint32_t n;
    bool is_wide;
    struct keyring_key keys[AUTH_OWN_KEYS_MAX]; /* pages that are not used take no memory */
};

static size_t size_in_pages(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (sizeof(struct keyring) + page - 1) / page * page;
}

int keyring_new(struct keyring **ret, struct err *err) {
    size_t size = size_in_pages();
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return err_set(err, -errno, "no memory for a key: %s", strerror(errno));
    if (madvise(p, size, MADV_DONTDUMP) < 0) {
        int code = errno;
        (void)munmap(p, size);
        return err_set(err, -code, "cannot keep keys out of core files: %s", strerror(code));
    }
    *ret = p;
    return 0;
}

void keyring_free(struct keyring *k) {
    if (k == NULL)
        return;
    keyring_clear(k);
    (void)munmap(k, size_in_pages());
}

void keyring_clear(struct keyring *k) {
    if (k == NULL)
        return;
    explicit_bzero(k->keys, k->n * sizeof k->keys[0]);
    k->n = 0;
}

void keyring_keep_from_children(struct keyring *k) {
    if (k != NULL)
        (void)madvise(k, size_in_pages(), MADV_WIPEONFORK);
}

uint32_t keyring_n(const struct keyring *k) { return k != NULL ? k->n : 0; }

const struct keyring_key *keyring_at(const struct keyring *k, uint32_t i) {
    assert(i < k->n);
    return &k->keys[i];
}

bool keyring_is_given(const struct keyring *k) {
    return keyring_n(k) > 0 && auth_source_is_given(k->keys[0].source);
}

static uint32_t max_of(const struct keyring *k) {
    return k->is_wide ? AUTH_OWN_KEYS_MAX : AUTH_KEYS_MAX;
}

void keyring_widen(struct keyring *k) { k->is_wide = true; }

int keyring_add(struct keyring *k, const uint8_t secret[AUTH_SECRET_BYTES], enum auth_source source,
                struct err *err) {
    for (uint32_t i = 0; i < k->n; i++)
        if (memcmp(k->keys[i].secret, secret, AUTH_SECRET_BYTES) == 0)
            return 0;
    if (k->n == max_of(k))
        return err_set(err, -ENOSPC, "there are %u keys already", k->n);
    struct keyring_key *key = &k->keys[k->n++];
    key->source = source;
    memcpy(key->secret, secret, AUTH_SECRET_BYTES);
    return 0;
}

void keyring_remove(struct keyring *k, uint32_t i) {
    assert(i < k->n);
    memmove(&k->keys[i], &k->keys[i + 1], (k->n - i - 1) * sizeof k->keys[0]);
    explicit_bzero(&k->keys[--k->n], sizeof k->keys[0]);
}

int keyring_add_all(struct keyring *k, const struct keyring *from, struct err *err) {
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < keyring_n(from); i++)
        r = keyring_add(k, from->keys[i].secret, from->keys[i].source, err);
    return r;
}

int keyring_derive(struct keyring *k, struct err *err) {
    for (uint32_t i = 0; i < k->n; i++) {
        struct keyring_key *key = &k->keys[i];
        int r = key->is_derived ? 0 : tls_key_derive(key->secret, &key->tls, err);
        if (r < 0)
            return r;
        key->id = load_u64le(key->tls.id);
        key->is_derived = true;
    }
    return 0;
}

int keyring_random(uint8_t out[AUTH_SECRET_BYTES], struct err *err) {
    ssize_t n;
    do
        n = getrandom(out, AUTH_SECRET_BYTES, 0);
    while (n < 0 && errno == EINTR);
    if (n != AUTH_SECRET_BYTES)
        return err_set(err, n < 0 ? -errno : -EIO, "the kernel gives no random bytes: %s",
                       strerror(n < 0 ? errno : EIO));
    return 0;
}

/* ---- the environment ---- */

/* The bytes themselves: after unsetenv() they would still be what /proc/PID/environ shows. */
static void wipe_env(const char *name) {
    size_t len = strlen(name);
    for (char **e = environ; e != NULL && *e != NULL; e++)
        if (strncmp(*e, name, len) == 0 && (*e)[len] == '=')
            explicit_bzero(*e + len + 1, strlen(*e + len + 1));
    (void)unsetenv(name);
}

int keyring_take_env(struct keyring *k, const char *name, enum auth_source source,
                     struct err *err) {
    const char *text = getenv(name);
    if (text == NULL)
        return 0;
    uint8_t secret[AUTH_SECRET_BYTES];
    int r = auth_key_from_text(text, strlen(text), name, secret, err);
    wipe_env(name);
    if (r == 0)
        r = keyring_add(k, secret, source, err);
    explicit_bzero(secret, sizeof secret);
    return r;
}
