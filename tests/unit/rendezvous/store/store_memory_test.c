/* The store when there is no memory. Linked with --wrap: the allocations of the archives come here first. */
#include "rendezvous/store/store.h"
#include "rig/unit.h"

static struct {
    bool counts;
    unsigned n, fails_at;
} memory;

static bool is_gone(void) { return memory.counts && memory.n++ == memory.fails_at; }

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size) { return is_gone() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t n, size_t size) { return is_gone() ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t size) { return is_gone() ? NULL : __real_realloc(p, size); }

#define SPAN(text) \
    { (const uint8_t *)(text), sizeof(text) - 1 }

struct operation {
    enum store_op op;
    struct store_span keys[2];
    struct store_span values[2];
    size_t n_keys, n_values;
    int64_t number;
};

static int step(struct store *s, struct store_client *client, const struct operation *o, struct store_update *ret) {
    struct store_span keys[2];
    struct store_span values[2];
    memcpy(keys, o->keys, sizeof keys);
    memcpy(values, o->values, sizeof values);
    return store_step(s,
                      &(struct store_request){.client = client,
                                              .op = o->op,
                                              .keys = keys,
                                              .n_keys = o->n_keys,
                                              .values = values,
                                              .n_values = o->n_values,
                                              .number = o->number},
                      ret);
}

static const struct operation set_number = {STORE_OP_SET, {SPAN("number")}, {SPAN("7")}, 1, 1, 0};
static const struct operation get_number = {STORE_OP_GET, {SPAN("number")}, {{0}}, 1, 0, 0};

/* The operation, with the allocation `fails_at` refused: whether it needed that many. */
static bool survives(const struct operation *o, unsigned fails_at) {
    struct store_limits limits = STORE_LIMITS_DEFAULT;
    struct store_update update = {0}, reader = {0};
    struct store_client client = {0}, readers = {0};
    struct store *s;
    s = store_new(&limits, 7);
    cr_assert_eq(step(s, &client, &set_number, &update), 0);
    cr_assert_eq(step(s, &client, &get_number, &update), 0);
    store_update_clear(&update); /* it keeps its room for replies */
    cr_assert_eq(step(s, &readers, &get_number, &reader), 0);
    uint64_t bytes = store_bytes(s), n_keys = store_num_keys(s);

    memory = (__typeof__(memory)){.counts = true, .fails_at = fails_at};
    int r = step(s, &client, o, &update);
    memory.counts = false;
    bool failed = memory.n > fails_at;
    cr_assert_eq(r, failed ? -ENOMEM : 0, "%s, allocation %u: %d", store_op_name(o->op), fails_at, r);
    if (failed) {
        cr_assert_eq(update.n_replies, 0);
        if (o->op != STORE_OP_BARRIER) { /* a barrier has counted its client before it waits */
            cr_assert_eq(store_bytes(s), bytes, "%s, allocation %u", store_op_name(o->op), fails_at);
            cr_assert_eq(store_num_keys(s), n_keys);
        }
    }
    store_check(s);
    cr_assert_eq(reader.replies[0].value->len, 1);
    cr_assert_eq(reader.replies[0].value->data[0], '7');

    store_update_clear(&update);
    store_forget(s, &client, &update);
    cr_assert_eq(step(s, &client, &set_number, &update), 0);
    cr_assert_eq(step(s, &client, &get_number, &update), 0);
    cr_assert_eq(update.replies[0].value->data[0], '7');
    store_update_clear(&update);
    store_update_clear(&reader);
    store_update_fini(&update);
    store_update_fini(&reader);
    store_check(s);
    store_forget(s, &client, &update);
    store_free(s);
    return failed;
}

Test(store_memory, an_operation_without_memory_fails_and_changes_nothing) {
    static const struct operation operations[] = {
        {STORE_OP_SET, {SPAN("new")}, {SPAN("value")}, 1, 1, 0},
        {STORE_OP_SET, {SPAN("number")}, {SPAN("value")}, 1, 1, 0},
        {STORE_OP_COMPARE_SET, {SPAN("new")}, {SPAN("old"), SPAN("value")}, 1, 2, 0},
        {STORE_OP_COMPARE_SET, {SPAN("new")}, {SPAN(""), SPAN("value")}, 1, 2, 0},
        {STORE_OP_COMPARE_SET, {SPAN("number")}, {SPAN("7"), SPAN("value")}, 1, 2, 0},
        {STORE_OP_ADD, {SPAN("new")}, {{0}}, 1, 0, 1},
        {STORE_OP_ADD, {SPAN("number")}, {{0}}, 1, 0, 1},
        {STORE_OP_APPEND, {SPAN("new")}, {SPAN("value")}, 1, 1, 0},
        {STORE_OP_APPEND, {SPAN("number")}, {SPAN("value")}, 1, 1, 0},
        {STORE_OP_MULTI_SET, {SPAN("new"), SPAN("number")}, {SPAN("a"), SPAN("b")}, 2, 2, 0},
        {STORE_OP_QUEUE_PUSH, {SPAN("new")}, {SPAN("value")}, 1, 1, 0},
        {STORE_OP_WAIT, {SPAN("new"), SPAN("other")}, {{0}}, 2, 0, 0},
        {STORE_OP_BARRIER, {SPAN("new")}, {{0}}, 1, 0, 2},
    };
    for (size_t i = 0; i < ARRAY_SIZE(operations); i++) {
        unsigned n = 0;
        while (survives(&operations[i], n))
            n++;
        cr_assert_gt(n, 0, "%s allocates", store_op_name(operations[i].op));
    }
}
