#include <stdio.h>

#include "rendezvous/server/server_priv.h"

/* The most bytes that a member of a handover takes on the wire. */
#define MEMBER_BYTES_MAX 192

/* ---- NAMED and MEMBERS ---- */

/* On another machine, loopback would be that machine itself. "" means the leader's machine. */
static void hide_loopback(char *literal) {
    struct addr at;
    if (addr_from_literal(literal, 1, &at) == 0 && addr_is_loopback(&at))
        literal[0] = '\0';
}

static void make_named(struct rdzv_server *s) {
    struct wire_message m = {.kind = WIRE_NAMED, .named = *group_successors(s->group)};
    for (uint32_t i = 0; i < m.named.n; i++)
        hide_loopback(m.named.list[i].addr);
    wire_encode(&m, &s->named);
}

static void send_handover(struct rdzv_server *s, struct server_node *n) {
    _cleanup_(handover_fini) struct handover e = {0};
    group_handover(s->group, &e);
    /* The node must get all of it, however large that is. */
    conn_set_unsent_max(n->conn, CONN_UNSENT_MAX + (size_t)e.n_members * MEMBER_BYTES_MAX);
    struct wire_message m = {.kind = WIRE_MEMBERS, .members = {.handover = e}};
    m.members.handover.members = NULL;
    do {
        m.members.n = MIN2(e.n_members - m.members.first, (uint32_t)RDZV_MEMBERS_CHUNK);
        for (uint32_t i = 0; i < m.members.n; i++) {
            m.members.list[i] = e.members[m.members.first + i];
            hide_loopback(m.members.list[i].addr);
        }
        server_send(n, &m);
        m.members.first += m.members.n;
    } while (m.members.first < e.n_members);
}

void server_send_successors(struct rdzv_server *s, struct server_node *n) {
    if (n == NULL || n->conn == NULL || group_successors(s->group)->epoch == 0)
        return; /* without an arbiter there are no successors */
    if (s->named.len == 0)
        make_named(s);
    server_send_text(n, strbuf_text(&s->named), s->named.len);
    if (group_is_successor(s->group, n->incarnation))
        send_handover(s, n);
}

/* ---- deposed ---- */

void server_redirect_all(struct rdzv_server *s, uint32_t epoch) {
    struct wire_message m = {.kind = WIRE_REDIRECT, .redirect = {.epoch = epoch}};
    if (s->record.epoch >= epoch && !s->record.closed && !s->record.vacant) {
        m.redirect.epoch = s->record.epoch;
        m.redirect.leader = s->record.leader;
        hide_loopback(m.redirect.leader.addr);
    }
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    wire_encode(&m, &text);
    LIST_FOR_EACH(struct server_node, n, &s->all, link) {
        if (n->conn == NULL)
            continue;
        list_remove(&n->lease_pending_link);
        conn_send_text(n->conn, strbuf_text(&text), text.len);
        conn_finish(TAKE_PTR(n->conn));
    }
}

/* ---- operators ---- */

void server_answer(struct server_asker *asker, bool ok, const char *text) {
    if (asker == NULL || asker->answered)
        return;
    asker->answered = true;
    struct wire_message m = {.kind = WIRE_ANSWER, .answer = {.ok = ok}};
    (void)snprintf(m.answer.text, sizeof m.answer.text, "%s", text);
    conn_send(asker->conn, &m);
}

void rdzv_server_command(struct rdzv_server *s, const struct command *command, struct conn *to) {
    struct server_asker asker = {.conn = to};
    if (s->deposed) {
        server_answer(&asker, false, "this agent no longer leads; try again");
        return;
    }
    assert(command->kind != COMMAND_STATUS); /* rdzv_server_status() */
    assert(!s->pump.busy);                   /* it is called from the loop */
    s->asker = &asker;
    server_event(s, &(struct group_event){.kind = GROUP_EVENT_COMMAND, .command = command});
    server_answer(&asker, false, "the leader did not accept the command; try again");
}
