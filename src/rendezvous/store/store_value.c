#include "rendezvous/store/store_value.h"

#include <errno.h>
#include <string.h>

struct store_value *store_value_new(size_t cap) {
    assert(cap <= UINT32_MAX);
    struct store_value *v = malloc(sizeof *v + cap);
    if (v == NULL)
        return NULL;
    v->refs = 1;
    v->len = 0;
    v->cap = (uint32_t)cap;
    return v;
}

struct store_value *store_value_copy(const void *data, size_t len) {
    struct store_value *v = store_value_new(len);
    if (v == NULL)
        return NULL;
    if (len > 0)
        memcpy(v->data, data, len);
    v->len = (uint32_t)len;
    return v;
}

int store_value_reserve(struct store_value **v, size_t cap) {
    assert((*v)->refs == 1 && cap <= UINT32_MAX);
    if (cap <= (*v)->cap)
        return 0;
    struct store_value *bigger = realloc(*v, sizeof *bigger + cap);
    if (bigger == NULL)
        return -ENOMEM;
    bigger->cap = (uint32_t)cap;
    *v = bigger;
    return 0;
}

void store_value_unref(struct store_value *v) {
    if (v == NULL)
        return;
    assert(v->refs > 0);
    if (--v->refs == 0)
        free(v);
}
