/* Who connects to the head's port, and what the agents that lead say there. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/frame.h"
#include "base/text/log.h"
#include "io/clock.h"
#include "launcher/srun/srun_priv.h"
#include "launcher/starter/starter_link_io.h"

#define TLS_FIRST_BYTE 0x16 /* of a record that has a handshake: RFC 8446 §5.1 */

struct peer {
    struct list link; /* in strangers, or in links */
    struct srun *run;
    struct stream *stream;
    uint64_t id;       /* of a link; 0: a stranger */
    uint64_t since_ns; /* when it came */
    bool is_here;      /* at a loopback address */
    bool in_tls;       /* TLS has begun */
    char host[STARTER_HOST_MAX];
};

static void peer_free(struct peer *p) {
    list_remove(&p->link);
    *(p->id == 0 ? &p->run->n_strangers : &p->run->n_links) -= 1;
    stream_free(p->stream);
    free(p);
}

static struct peer *peer_of(const struct list *link) {
    return CONTAINER_OF(link, struct peer, link);
}

static void watch_greetings(struct srun *h) {
    uint64_t until = TIME_NEVER;
    if (!list_empty(&h->strangers))
        until = peer_of(h->strangers.next)->since_ns + STARTER_GREETING_NS;
    loop_timer_set(h->greeting, until);
}

void srun_on_greeting_timer(void *arg) {
    struct srun *h = arg;
    uint64_t now = clock_now_ns();
    while (!list_empty(&h->strangers) &&
           peer_of(h->strangers.next)->since_ns + STARTER_GREETING_NS <= now)
        peer_free(peer_of(h->strangers.next));
    watch_greetings(h);
}

void srun_send(struct srun *h, uint64_t id, const struct starter_message *m) {
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    starter_add(m, &frame);
    for (struct list *at = h->links.next; at != &h->links; at = at->next) {
        struct peer *p = peer_of(at);
        if (p->id == id && stream_unsent(p->stream) < STARTER_FRAME_MAX)
            stream_write(p->stream, strbuf_text(&frame), frame.len);
    }
}

/* False: it was disconnected. */
static bool welcome(struct peer *p, const struct starter_lead *lead) {
    struct srun *h = p->run;
    if (!starter_token_equal(lead->token, h->token) || h->n_links == STARTER_LINKS_MAX) {
        log_debug("a stranger came to the head's port");
        peer_free(p);
        watch_greetings(h);
        return false;
    }
    list_remove(&p->link);
    h->n_strangers--;
    h->n_links++;
    list_append(&h->links, &p->link);
    p->id = ++h->last_id;
    (void)snprintf(p->host, sizeof p->host, "%s", lead->host);
    if (lead->step[0] != '\0')
        (void)snprintf(h->step, sizeof h->step, "%s", lead->step);
    watch_greetings(h);
    h->lost[0] = '\0';
    log_info("node %s leads (step %s)", p->host, h->step[0] != '\0' ? h->step : "unknown");
    srun_step(h, &(struct starter_event){.kind = STARTER_EVENT_LEADER, .link = p->id});
    return true;
}

/* False: it was disconnected. */
static bool obey_peer(struct peer *p, const struct starter_message *m) {
    struct srun *h = p->run;
    if (p->id == 0 && m->kind == STARTER_LEAD)
        return welcome(p, &m->lead);
    if (p->id != 0 && m->kind == STARTER_SAFE) {
        if (!h->head.safe)
            log_info("node %s: a worker has told a safe point: the job may be requeued from now on",
                     p->host);
        srun_step(h, &(struct starter_event){.kind = STARTER_EVENT_SAFE});
        return true;
    }
    if (p->id == 0 || m->kind != STARTER_VERDICT) {
        peer_free(p);
        watch_greetings(h);
        return false;
    }
    log_info("node %s: the job ended with status %u%s%s", p->host, m->verdict.status,
             m->verdict.text[0] != '\0' ? ": " : "", m->verdict.text);
    srun_step(h, &(struct starter_event){
                     .kind = STARTER_EVENT_VERDICT, .link = p->id, .verdict = m->verdict});
    return true;
}

static void peer_gone(struct peer *p) {
    struct srun *h = p->run;
    uint64_t id = p->id;
    if (id != 0 && id == h->head.link)
        (void)snprintf(h->lost, sizeof h->lost, "%s", p->host);
    peer_free(p);
    watch_greetings(h);
    if (id != 0)
        srun_step(h, &(struct starter_event){.kind = STARTER_EVENT_LEADER_GONE, .link = id});
}

/* Its first bytes have come. Where the job has a key, and it is not on this machine, they must be
 * TLS's. */
static void begin_tls(struct peer *p) {
    struct ssl_st *session;
    struct err err = {0};
    const uint8_t *first = stream_peek(p->stream, 1);
    int r = first != NULL && *first == TLS_FIRST_BYTE ? 0 : err_set(&err, -EPERM, "no TLS");
    if (r == 0)
        r = starter_key_accept(p->run->key, &session, &err);
    if (r < 0) {
        log_debug("a stranger came to the head's port: %s", err.text);
        peer_gone(p);
        return;
    }
    p->in_tls = true;
    stream_start_tls(p->stream, session);
}

static void on_peer_readable(void *arg, struct stream *s) {
    struct peer *p = arg;
    if (p->run->key != NULL && !p->is_here && !p->in_tls) {
        begin_tls(p); /* what is inside comes later */
        return;
    }
    for (;;) {
        struct starter_message m;
        struct err err = {0};
        int r = starter_read(s, STARTER_FROM_AGENT, &m, &err);
        if (r == FRAME_E_MORE)
            return;
        if (r < 0) {
            log_debug("the head's port got no message of ours: %s", err.text);
            peer_gone(p);
            return;
        }
        if (!obey_peer(p, &m))
            return;
    }
}

static void on_peer_closed(void *arg, struct stream *s, int code) {
    const char *why = stream_tls_why(s);
    if (why != NULL)
        log_debug("a connection to the head's port: %s", why);
    (void)code;
    peer_gone(arg);
}

static const struct stream_ops peer_ops = {.on_readable = on_peer_readable,
                                           .on_closed = on_peer_closed};

void srun_on_peer(void *arg, int fd, const struct addr *from) {
    struct srun *h = arg;
    if (!peer_gate_admits(h->gate, fd, from)) {
        (void)close(fd);
        return;
    }
    if (h->n_strangers == STARTER_STRANGERS_MAX)
        peer_free(peer_of(h->strangers.next));
    struct peer *p = xcalloc(1, sizeof *p);
    p->run = h;
    p->since_ns = clock_now_ns();
    p->is_here = addr_is_loopback(from);
    if (stream_new(h->loop, fd, &peer_ops, p, &p->stream) < 0) {
        free(p);
        return;
    }
    stream_set_read_limit(p->stream, STARTER_FRAME_MAX);
    list_append(&h->strangers, &p->link);
    h->n_strangers++;
    watch_greetings(h);
}

void srun_free_peers(struct srun *h) {
    while (!list_empty(&h->strangers))
        peer_free(peer_of(h->strangers.next));
    while (!list_empty(&h->links))
        peer_free(peer_of(h->links.next));
}
