/* Any bytes as a message: what is taken comes out the same after another round, and every text in it ends within its
 * array. */
#include <errno.h>
#include <string.h>

#include "rendezvous/protocol/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text, size_t size) {
    if (memchr(text, '\0', size) == NULL)
        abort();
}
#define CHECK_TEXT(array) check_text((array), sizeof(array))

static void check_failure(const struct failure *f) {
    CHECK_TEXT(f->node);
    CHECK_TEXT(f->role);
    CHECK_TEXT(f->text);
    CHECK_TEXT(f->error_file);
    if (f->kind <= FAILURE_NONE || f->kind >= FAILURE_KIND_COUNT)
        abort();
}

static void check_report(const struct report *r) {
    CHECK_TEXT(r->unusable);
    CHECK_TEXT(r->excluded_why);
    if (r->has_failure)
        check_failure(&r->failure);
    if (r->state < NODE_JOINED || r->state >= NODE_STATE_COUNT)
        abort();
}

static void check_desired(const struct desired *d) {
    if (d->kind < DESIRED_IDLE || d->kind >= DESIRED_KIND_COUNT)
        abort();
    CHECK_TEXT(d->reason);
    CHECK_TEXT(d->form.store_host);
    if (d->form.n_neighbours > RDZV_NEIGHBOURS_MAX)
        abort();
    for (uint32_t i = 0; i < d->form.n_neighbours; i++)
        for (uint32_t k = 0; k < RDZV_NETS_MAX; k++)
            CHECK_TEXT(d->form.neighbours[i].nets[k].addrs);
    if (d->has_failure)
        check_failure(&d->failure);
    if (d->kind == DESIRED_FORM && (d->form.node_rank >= d->form.n_nodes || d->form.first_rank >= d->form.world_size))
        abort();
}

static void check_status(const struct rdzv_status *s) {
    if (s->n_names > RDZV_STATUS_NAMES_MAX || s->n_missing > RDZV_STATUS_NAMES_MAX)
        abort();
    for (uint32_t i = 0; i < s->n_names; i++)
        CHECK_TEXT(s->names[i]);
    for (uint32_t i = 0; i < s->n_missing; i++)
        CHECK_TEXT(s->missing[i]);
}

static void check_members(const struct wire_members *m) {
    if (m->n > RDZV_MEMBERS_CHUNK || m->first > m->handover.n_members || m->n > m->handover.n_members - m->first ||
        (m->n == 0 && m->handover.n_members != 0) || m->handover.n_order > m->handover.n_members ||
        m->handover.members != NULL)
        abort();
    for (uint32_t i = 0; i < m->n; i++)
        CHECK_TEXT(m->list[i].addr);
}

static void check_command(const struct wire_command *c) {
    CHECK_TEXT(c->run_id);
    CHECK_TEXT(c->command.node);
    CHECK_TEXT(c->command.reason);
    if (c->command.kind < COMMAND_STATUS || c->command.kind >= COMMAND_KIND_COUNT ||
        (c->command.kind == COMMAND_EXCLUDE) != (c->command.node[0] != '\0'))
        abort();
}

static void check_overview(const struct overview *o) {
    CHECK_TEXT(o->leader_host);
    CHECK_TEXT(o->incident);
    CHECK_TEXT(o->reason);
    if (o->state < GROUP_GATHERING || o->state >= GROUP_STATE_COUNT || o->outcome > OUTCOME_FAILED ||
        o->min_nodes > o->max_nodes || o->node_unit == 0)
        abort();
}

static void check_nodes(const struct wire_nodes *n) {
    if (n->n == 0 || n->n > RDZV_OVERVIEW_CHUNK)
        abort();
    for (uint32_t i = 0; i < n->n; i++) {
        CHECK_TEXT(n->list[i].name);
        CHECK_TEXT(n->list[i].addr);
        CHECK_TEXT(n->list[i].why);
        if (n->list[i].place < PLACE_MEMBER || n->list[i].place >= PLACE_COUNT)
            abort();
    }
}

static void check_message(const struct wire_message *m) {
    switch (m->kind) {
    case WIRE_HELLO: CHECK_TEXT(m->hello.run_id); break;
    case WIRE_JOIN:
        CHECK_TEXT(m->join.run_id);
        CHECK_TEXT(m->join.info.host);
        CHECK_TEXT(m->join.info.role);
        CHECK_TEXT(m->join.info.topology);
        CHECK_TEXT(m->join.program.shown);
        for (uint32_t k = 0; k < RDZV_NETS_MAX; k++) {
            CHECK_TEXT(m->join.info.nets[k].netif);
            CHECK_TEXT(m->join.info.nets[k].addrs);
        }
        if (m->join.info.incarnation == 0 || m->join.info.nproc - 1 >= RDZV_WORKERS_MAX)
            abort();
        check_report(&m->join.report);
        break;
    case WIRE_REFUSED: CHECK_TEXT(m->refused.reason); break;
    case WIRE_REPORT: check_report(&m->report); break;
    case WIRE_DESIRED: check_desired(&m->desired); break;
    case WIRE_STATUS: check_status(&m->status); break;
    case WIRE_NAMED:
        if (m->named.n > RDZV_SUCCESSORS_MAX)
            abort();
        for (uint32_t i = 0; i < m->named.n; i++)
            CHECK_TEXT(m->named.list[i].addr);
        break;
    case WIRE_MEMBERS: check_members(&m->members); break;
    case WIRE_REDIRECT: CHECK_TEXT(m->redirect.leader.addr); break;
    case WIRE_COMMAND: check_command(&m->command); break;
    case WIRE_ANSWER: CHECK_TEXT(m->answer.text); break;
    case WIRE_OVERVIEW: check_overview(&m->overview); break;
    case WIRE_NODES: check_nodes(&m->nodes); break;
    case WIRE_NODE_SUMMARY: CHECK_TEXT(m->node_summary.text); break;
    case WIRE_ECHO:
    case WIRE_WELCOME:
    case WIRE_RENEW:
    case WIRE_LEAVE:
    case WIRE_LEASE: break;
    case WIRE_KIND_COUNT: abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct wire_message m, again;
    struct err err = {0};
    int r = wire_decode((const char *)data, size, &m, &err);
    if (r == WIRE_E_VERSION)
        return 0;
    if (r != 0) {
        if (r != -EINVAL || err.text[0] == '\0')
            abort();
        return 0;
    }
    check_message(&m);
    _cleanup_(strbuf_fini) struct strbuf first = {0}, second = {0};
    wire_encode(&m, &first);
    if (first.len >= WIRE_MESSAGE_MAX / 2 || wire_decode(strbuf_text(&first), first.len, &again, NULL) != 0)
        abort();
    wire_encode(&again, &second);
    if (first.len != second.len || memcmp(first.data, second.data, first.len) != 0)
        abort();
    return 0;
}
