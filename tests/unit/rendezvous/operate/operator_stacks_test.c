#include "rendezvous/operate/operator_stacks.h"

#include "rig/unit.h"

static struct operator_stacks s;
static struct err err;

static void begin(void) { s = (struct operator_stacks){0}; }
static void finish(void) { operator_stacks_fini(&s); }

/* Two nodes of two ranks each. */
static struct wire_message node(uint32_t number, const char *missing) {
    struct wire_message m = {
        .kind = WIRE_STACKS,
        .stacks = {
            .generation = {1, 2}, .world_size = 4, .n_nodes = 2, .node = number, .first_rank = 2 * number, .nproc = 2}};
    (void)snprintf(m.stacks.name, sizeof m.stacks.name, "%c", (char)('a' + number));
    (void)snprintf(m.stacks.missing, sizeof m.stacks.missing, "%s", missing);
    return m;
}

static struct wire_message piece(uint32_t number, bool first, bool last, const char *text) {
    struct wire_message m = {.kind = WIRE_EVIDENCE, .evidence = {.id = number, .first = first, .last = last}};
    (void)snprintf(m.evidence.text, sizeof m.evidence.text, "%s", text);
    return m;
}

static int take(struct wire_message m) { return operator_stacks_take(&s, &m, &err); }

Test(operator_stacks, pieces_of_each_node_are_put_together, .init = begin, .fini = finish) {
    cr_assert_eq(take(node(0, "")), 0);
    cr_assert_eq(take(piece(0, true, false, "{\"no")), 0);
    cr_assert_eq(take(piece(0, false, false, "de\":")), 0);
    cr_assert_eq(take(piece(0, false, true, "1}")), 0);
    cr_assert_eq(take(node(1, "")), 0);
    cr_assert_eq(take(piece(1, true, true, "{}")), 1);
    cr_assert_eq(s.n, 2);
    cr_assert_str_eq(s.nodes[0].evidence, "{\"node\":1}");
    cr_assert_eq(s.nodes[0].len, strlen("{\"node\":1}"));
    cr_assert_str_eq(s.nodes[1].evidence, "{}");
    cr_assert_str_eq(s.nodes[1].head.name, "b");
}

Test(operator_stacks, a_node_without_evidence_has_no_pieces, .init = begin, .fini = finish) {
    cr_assert_eq(take(node(0, "it did not answer in time")), 0);
    cr_assert_eq(take(node(1, "it was lost")), 1);
    cr_assert_null(s.nodes[0].evidence);
    cr_assert_str_eq(s.nodes[1].head.missing, "it was lost");
}

Test(operator_stacks, what_does_not_follow_is_refused, .init = begin, .fini = finish) {
    cr_assert_eq(take(piece(0, true, true, "{}")), -EPROTO, "before any node");
    cr_assert_eq(take(node(1, "")), -EPROTO, "not the first node");
    cr_assert_eq(take((struct wire_message){.kind = WIRE_LEAVE}), -EPROTO);
    cr_assert_eq(take(node(0, "")), 0);
    cr_assert_eq(take(node(1, "")), -EPROTO, "pieces of the first are still to come");
    cr_assert_eq(take(piece(0, false, false, "x")), -EPROTO, "not the first piece");
    cr_assert_eq(take(piece(1, true, false, "x")), -EPROTO, "of another node");
    cr_assert_eq(take(piece(0, true, true, "{}")), 0);
    cr_assert_eq(take(piece(0, false, true, "x")), -EPROTO, "it was the last one");
    struct wire_message other = *WITH(node(1, ""), .stacks.generation.counter = 3);
    cr_assert_eq(take(other), -EPROTO, "of another group");
    other = node(1, "");
    other.stacks.first_rank = 1;
    cr_assert_eq(take(other), -EPROTO, "ranks that another node has");
    other = node(1, "");
    other.stacks.nproc = 1;
    cr_assert_eq(take(other), -EPROTO, "a rank that no node has");
    other = node(1, "");
    other.stacks.nproc = 4096;
    cr_assert_eq(take(other), -EPROTO, "more ranks than the group has");
    other = node(1, "");
    other.stacks.world_size = 5;
    other.stacks.nproc = 3;
    cr_assert_eq(take(other), -EPROTO, "another size");
    cr_assert_eq(take(node(1, "gone")), 1);
}

Test(operator_stacks, a_first_node_that_would_be_the_only_one_has_all_ranks, .init = begin, .fini = finish) {
    struct wire_message m = *WITH(node(0, ""), .stacks.nproc = 4);
    cr_assert_eq(take(m), -EPROTO, "nothing is left for the second");
    m.stacks.n_nodes = 1;
    cr_assert_eq(take(m), 0);
    cr_assert_eq(take(piece(0, true, true, "{}")), 1);
}

Test(operator_stacks, the_evidence_of_a_node_is_bounded, .init = begin, .fini = finish) {
    char text[RDZV_EVIDENCE_CHUNK_MAX];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    cr_assert_eq(take(node(0, "")), 0);
    size_t len = 0;
    for (; len + sizeof text - 1 <= RDZV_EVIDENCE_MAX; len += sizeof text - 1)
        cr_assert_eq(take(piece(0, len == 0, false, text)), 0);
    cr_assert_eq(take(piece(0, false, false, text)), -E2BIG);
    cr_assert_eq(s.bytes, len);
}
