/* A reference-counted sequence of bytes, shared by the store and by replies that are still being
 * sent. A value may be changed only while it has one reference. For one thread. */
#pragma once

#include "base/util.h"

struct store_value {
    uint32_t refs;
    uint32_t len, cap; /* bytes; a value is at most 8 MiB by store_limits */
    uint8_t data[];
};

/* A value with room for cap bytes, len 0, one reference. NULL: there is no memory (a peer chose
 * cap). */
_must_use_ struct store_value *store_value_new(size_t cap);
/* A value with a copy of len bytes. NULL: there is no memory. */
_must_use_ struct store_value *store_value_copy(const void *data, size_t len);
/* Makes room for cap bytes in a value with one reference; may move it. -ENOMEM: *v is unchanged. */
_must_use_ int store_value_reserve(struct store_value **v, size_t cap);
static inline struct store_value *store_value_ref(struct store_value *v) {
    v->refs++;
    return v;
}
/* NULL is fine. */
void store_value_unref(struct store_value *v);
static inline void store_value_unrefp(struct store_value **v) { store_value_unref(*v); }
