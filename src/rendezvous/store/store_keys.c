#include "rendezvous/store/store_keys.h"

#include <string.h>

#include "base/little_endian.h"
#include "base/prng.h"

#define BITS_FIRST 6
#define BITS_MAX 32
/* Buckets that are moved with each new key: two would be enough before the table grows again. */
#define MOVED_AT_ONCE 4

static inline uint64_t rotate(uint64_t x, unsigned n) { return x << n | x >> (64 - n); }

struct sip {
    uint64_t v[4];
};

static inline void sip_round(struct sip *s) {
    s->v[0] += s->v[1];
    s->v[1] = rotate(s->v[1], 13) ^ s->v[0];
    s->v[0] = rotate(s->v[0], 32);
    s->v[2] += s->v[3];
    s->v[3] = rotate(s->v[3], 16) ^ s->v[2];
    s->v[0] += s->v[3];
    s->v[3] = rotate(s->v[3], 21) ^ s->v[0];
    s->v[2] += s->v[1];
    s->v[1] = rotate(s->v[1], 17) ^ s->v[2];
    s->v[2] = rotate(s->v[2], 32);
}

/* SipHash-1-3 (Aumasson, Bernstein, "SipHash: a fast short-input PRF", 2012): keyed, so that
 * peers cannot choose names that collide. */
static uint64_t hash_of(const uint64_t seed[2], const uint8_t *data, size_t len) {
    struct sip s = {{UINT64_C(0x736f6d6570736575) ^ seed[0], UINT64_C(0x646f72616e646f6d) ^ seed[1],
                     UINT64_C(0x6c7967656e657261) ^ seed[0],
                     UINT64_C(0x7465646279746573) ^ seed[1]}};
    uint64_t last = (uint64_t)len << 56;
    size_t whole = len & ~(size_t)7;
    for (size_t i = 0; i < whole; i += 8) {
        uint64_t m = load_u64le(data + i);
        s.v[3] ^= m;
        sip_round(&s);
        s.v[0] ^= m;
    }
    for (size_t i = whole; i < len; i++)
        last |= (uint64_t)data[i] << (8 * (i - whole));
    s.v[3] ^= last;
    sip_round(&s);
    s.v[0] ^= last;
    s.v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(&s);
    return s.v[0] ^ s.v[1] ^ s.v[2] ^ s.v[3];
}

void store_keys_init(struct store_keys *t, uint64_t seed) {
    struct prng p = {seed};
    *t = (struct store_keys){.bits = BITS_FIRST, .seed = {prng_next(&p), prng_next(&p)}};
    t->buckets = xcalloc((size_t)1 << t->bits, sizeof(struct store_key *));
}

static void key_free(struct store_key *k) {
    store_value_unref(k->name);
    store_value_unref(k->value);
    while (k->first != NULL) {
        struct store_item *item = k->first;
        k->first = item->next;
        store_value_unref(item->value);
        free(item);
    }
    free(k);
}

static inline size_t size_of(unsigned bits) { return (size_t)1 << bits; }

size_t store_keys_n_buckets(const struct store_keys *t) {
    return size_of(t->bits) + (t->smaller != NULL ? size_of(t->bits - 1) : 0);
}

struct store_key *store_keys_bucket(const struct store_keys *t, size_t i) {
    size_t n = size_of(t->bits);
    return i < n ? t->buckets[i] : t->smaller[i - n];
}

bool store_keys_fini_some(struct store_keys *t, size_t n) {
    while (t->buckets != NULL) {
        for (size_t size = size_of(t->bits); t->freed < size; t->freed++) {
            while (t->buckets[t->freed] != NULL) {
                struct store_key *k = t->buckets[t->freed];
                if (n-- == 0)
                    return false;
                t->buckets[t->freed] = k->next;
                key_free(k);
            }
        }
        free(t->buckets);
        t->buckets = TAKE_PTR(t->smaller);
        t->bits--;
        t->freed = 0;
    }
    return true;
}

static inline size_t place_in(uint64_t hash, unsigned bits) {
    return (size_t)(hash & (((uint64_t)1 << bits) - 1));
}

static struct store_key **head_of(const struct store_keys *t, uint64_t hash) {
    if (t->smaller != NULL) {
        size_t i = place_in(hash, t->bits - 1);
        if (i >= t->moved)
            return &t->smaller[i];
    }
    return &t->buckets[place_in(hash, t->bits)];
}

static struct store_key *find_hashed(const struct store_keys *t, struct store_span name,
                                     uint64_t hash) {
    for (struct store_key *k = *head_of(t, hash); k != NULL; k = k->next)
        if (k->hash == hash && k->name->len == name.len &&
            (name.len == 0 || memcmp(k->name->data, name.data, name.len) == 0))
            return k;
    return NULL;
}

struct store_key *store_keys_find(const struct store_keys *t, struct store_span name) {
    return find_hashed(t, name, hash_of(t->seed, name.data, name.len));
}

static void begin_to_grow(struct store_keys *t) {
    struct store_key **bigger = calloc(size_of(t->bits + 1), sizeof *bigger);
    if (bigger == NULL)
        return; /* chains get longer, but the table is still correct */
    t->smaller = t->buckets;
    t->buckets = bigger;
    t->bits++;
    t->moved = 0;
}

static void go_on_growing(struct store_keys *t) {
    for (int i = 0; i < MOVED_AT_ONCE && t->smaller != NULL; i++) {
        struct store_key *k = TAKE_PTR(t->smaller[t->moved]);
        t->moved++;
        while (k != NULL) {
            struct store_key *next = k->next;
            struct store_key **to = &t->buckets[place_in(k->hash, t->bits)];
            k->next = *to;
            *to = k;
            k = next;
        }
        if (t->moved == size_of(t->bits - 1))
            free(TAKE_PTR(t->smaller));
    }
}

struct store_key *store_keys_make(struct store_keys *t, struct store_span name, bool *ret_new) {
    uint64_t hash = hash_of(t->seed, name.data, name.len);
    struct store_key *k = find_hashed(t, name, hash);
    *ret_new = k == NULL;
    if (k != NULL)
        return k;
    struct store_value *copy = store_value_copy(name.data, name.len);
    k = calloc(1, sizeof *k);
    if (copy == NULL || k == NULL) {
        store_value_unref(copy);
        free(k);
        return NULL;
    }
    k->hash = hash;
    k->name = copy;
    list_init(&k->waiters);
    go_on_growing(t);
    if (t->count >= (uint64_t)1 << t->bits && t->bits < BITS_MAX && t->smaller == NULL)
        begin_to_grow(t);
    struct store_key **head = head_of(t, hash);
    k->next = *head;
    *head = k;
    t->count++;
    return k;
}

void store_keys_remove(struct store_keys *t, struct store_key *k) {
    assert(k->value == NULL && k->first == NULL && list_empty(&k->waiters) && k->handed == 0);
    struct store_key **at = head_of(t, k->hash);
    while (*at != k)
        at = &(*at)->next;
    *at = k->next;
    t->count--;
    key_free(k);
}
