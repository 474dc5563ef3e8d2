/* Bytes that several may read: made once, counted, shared by the store and by replies that are
 * still being sent. Only a value with one reference may be changed. One thread. */
#pragma once

#include "base/util.h"

struct store_value {
    uint32_t refs;
    uint32_t len, cap; /* bytes; a value is at most 8 MiB by store_limits */
    uint8_t data[];
};

/* Room for cap bytes, len 0, one reference; NULL when there is no memory (a peer chose cap). */
_must_use_ struct store_value *store_value_new(size_t cap);
/* A copy of len bytes; NULL when there is no memory. */
_must_use_ struct store_value *store_value_copy(const void *data, size_t len);
/* Makes room for cap bytes in a value with one reference; may move it. -ENOMEM: *v is as before. */
_must_use_ int store_value_reserve(struct store_value **v, size_t cap);
static inline struct store_value *store_value_ref(struct store_value *v) {
    v->refs++;
    return v;
}
/* NULL is fine. */
void store_value_unref(struct store_value *v);
static inline void store_value_unrefp(struct store_value **v) { store_value_unref(*v); }
