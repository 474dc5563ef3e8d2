/* What was found at several ports, for people. */
#include <stdio.h>
#include <string.h>

#include "base/text/port_list.h"
#include "base/text/strbuf.h"
#include "rendezvous/client/search.h"

/* Bytes of a list of ports in a message; all 16, and a few. */
#define FOUND_AT_MAX 96
#define NOTHING_AT_MAX 32

/* in_full: also why an agent may not be talked to, which is long. */
static void add_found(const struct search_port *p, bool in_full, struct strbuf *out) {
    switch (p->found) {
    case FOUND_UNKNOWN:
    case FOUND_NOTHING: break;
    case FOUND_SILENT: strbuf_add(out, ": no answer (not muster, or a firewall)"); break;
    case FOUND_HANGS_UP: strbuf_add(out, ": hung up (not muster?)"); break;
    case FOUND_NOT_MUSTER: strbuf_add(out, ": not muster"); break;
    case FOUND_OTHER_VERSION: strbuf_add(out, ": muster of another version"); break;
    case FOUND_OTHER_RUN: strbuf_printf(out, ": an agent of the run '%.47s'", p->detail); break;
    case FOUND_OTHER_KEY:
        strbuf_printf(out, ": %s", in_full ? p->detail : "an agent without this node's key");
        break;
    case FOUND_ERROR: strbuf_printf(out, ": %s", p->detail); break;
    }
}

static bool is_nothing(const struct search_port *p) {
    return p->found == FOUND_UNKNOWN || p->found == FOUND_NOTHING;
}

/* The ports that answered alike: the list if it has at most `max` bytes, otherwise their number. */
static void add_ports(const uint16_t *ports, unsigned n, size_t max, struct strbuf *out) {
    _cleanup_(strbuf_fini) struct strbuf list = {0};
    port_list_text(ports, n, &list);
    if (list.len <= max)
        strbuf_printf(out, "port%s %s", n > 1 ? "s" : "", strbuf_text(&list));
    else
        strbuf_printf(out, "%u ports (%u, ...)", n, ports[0]);
}

static bool are_alike(const struct search_port *a, const struct search_port *b) {
    return (is_nothing(a) && is_nothing(b)) ||
           (a->found == b->found && strcmp(a->detail, b->detail) == 0);
}

/* Collects the ports where the same was found as at ports[first], if that is the first of them. */
static unsigned alike(const struct search *s, unsigned first,
                      uint16_t ret[RDZV_ENDPOINT_PORTS_MAX]) {
    unsigned n = 0;
    for (unsigned i = 0; i < s->config.n_ports; i++) {
        if (!are_alike(&s->ports[i], &s->ports[first]))
            continue;
        if (i < first)
            return 0;
        ret[n++] = s->config.ports[i];
    }
    return n;
}

/* "node1 (10.0.0.1)" */
static void describe_silent(const struct search *s, const char *host, const char *address,
                            char ret[SEARCH_TEXT_MAX]) {
    const struct search_port *p = &s->ports[0];
    bool named = host[0] != '\0' && strcmp(host, address) != 0;
    int n = snprintf(ret, SEARCH_TEXT_MAX, "no leader at %.255s%s%s%s: ", named ? host : address,
                     named ? " (" : "", named ? address : "", named ? ")" : "");
    if (p->found == FOUND_ERROR)
        (void)snprintf(ret + n, SEARCH_TEXT_MAX - (size_t)n,
                       "cannot connect to any of its %u ports: %s", s->config.n_ports, p->detail);
    else
        (void)snprintf(ret + n, SEARCH_TEXT_MAX - (size_t)n,
                       "no answer at any of its %u ports; it is down, or a firewall is in the way",
                       s->config.n_ports);
}

void search_describe_ports(const struct search *s, const char *host, const char *address,
                           char ret[SEARCH_TEXT_MAX]) {
    if (search_all_silent(s)) {
        describe_silent(s, host, address, ret);
        return;
    }
    _cleanup_(strbuf_fini) struct strbuf text = {0}, last = {0};
    uint16_t ports[RDZV_ENDPOINT_PORTS_MAX];
    bool in_full = true;
    for (unsigned i = 0; i < s->config.n_ports; i++) {
        bool nothing = is_nothing(&s->ports[i]);
        struct strbuf *to = nothing ? &last : &text;
        unsigned n = alike(s, i, ports);
        if (n == 0)
            continue;
        strbuf_add(to, nothing ? "; nothing listens at " : "; ");
        add_ports(ports, n, nothing ? NOTHING_AT_MAX : FOUND_AT_MAX, to);
        if (nothing)
            strbuf_add(to, s->welcomed_ns > 0 ? " any more" : " yet");
        else
            add_found(&s->ports[i], in_full, to);
        in_full = in_full && s->ports[i].found != FOUND_OTHER_KEY;
    }
    strbuf_add(&text, strbuf_text(&last));
    (void)snprintf(ret, SEARCH_TEXT_MAX, "no leader at %s: %s", address,
                   strbuf_text(&text) + strlen("; "));
}
