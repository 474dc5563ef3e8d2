#include "rendezvous/operate/operator_stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Nodes of one group: their ranks follow one another, and there are as many as the first said. */
static bool fits(const struct operator_stacks *s, const struct rdzv_stacks *head) {
    uint64_t end = (uint64_t)head->first_rank + head->nproc;
    bool last = head->node + 1 == head->n_nodes;
    if (s->open || head->node != s->n || (last ? end != head->world_size : end >= head->world_size))
        return false;
    if (s->n == 0)
        return head->first_rank == 0;
    const struct rdzv_stacks *before = &s->nodes[s->n - 1].head;
    return head->n_nodes == before->n_nodes && head->world_size == before->world_size &&
           generation_compare(head->generation, before->generation) == 0 &&
           head->first_rank == before->first_rank + before->nproc;
}

static int take_node(struct operator_stacks *s, const struct rdzv_stacks *head, struct err *err) {
    if (!fits(s, head))
        return err_set(err, -EPROTO, "node %u of %u does not follow what came before", head->node,
                       head->n_nodes);
    s->nodes = xgrow(s->nodes, s->n, sizeof *s->nodes);
    s->nodes[s->n++] = (struct operator_stacks_node){.head = *head};
    s->open = head->missing[0] == '\0';
    return 0;
}

static int take_piece(struct operator_stacks *s, const struct rdzv_evidence *piece,
                      struct err *err) {
    struct operator_stacks_node *node = s->open ? &s->nodes[s->n - 1] : NULL;
    size_t len = strlen(piece->text);
    if (node == NULL || piece->id != node->head.node || piece->first != (node->evidence == NULL))
        return err_set(err, -EPROTO, "a piece of evidence of node %u does not follow", piece->id);
    if (len > RDZV_EVIDENCE_MAX - node->len || len > OPERATOR_STACKS_MAX - s->bytes)
        return err_set(err, -E2BIG, "the evidence of node %s is too long", node->head.name);
    node->evidence = xrealloc(node->evidence, node->len + len + 1);
    memcpy(node->evidence + node->len, piece->text, len + 1);
    node->len += len;
    s->bytes += len;
    s->open = !piece->last;
    return 0;
}

int operator_stacks_take(struct operator_stacks *s, const struct wire_message *m, struct err *err) {
    int r = m->kind == WIRE_STACKS ? take_node(s, &m->stacks, err)
            : m->kind == WIRE_EVIDENCE
                ? take_piece(s, &m->evidence, err)
                : err_set(err, -EPROTO, "an unexpected %s", wire_kind_name(m->kind));
    if (r < 0)
        return r;
    return !s->open && s->n == s->nodes[s->n - 1].head.n_nodes;
}

void operator_stacks_fini(struct operator_stacks *s) {
    for (uint32_t i = 0; i < s->n; i++)
        free(s->nodes[i].evidence);
    free(s->nodes);
    *s = (struct operator_stacks){0};
}
