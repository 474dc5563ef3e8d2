#include "rendezvous/store/store_door_io.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/list.h"
#include "base/text/log.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/net/stream.h"

/* What the other side has not taken when one side ends is sent for this long. */
#define FINISH_NS (2 * NS_PER_S)
/* A client that waits has sent a few bytes, and expects an answer. */
#define WAITING_UNREAD ((int)(16 * 1024))

struct store_door {
    struct loop *loop;
    struct peer_gate *gate; /* NULL: the kernel is not asked */
    void (*log)(void *arg, const char *line);
    void *arg;
    struct store_server *store; /* borrowed; NULL: not here */
    struct addr pass_to;        /* len 0: not known */
    bool own_only;              /* whoever is passed on must be of this machine */
    bool told;
    bool was_open;
    bool early_reported[2]; /* a client came before it was open: of another machine, of this one */
    struct list waiting;    /* struct waiting, the oldest first */
    struct list passed;     /* struct passed */
    size_t n_waiting, max_waiting, n_passed, max_passed;
};

struct waiting {
    struct list link;
    struct store_door *door;
    int fd; /* owned */
    struct loop_watch *end;
};

struct passed {
    struct list link;
    struct store_door *door;
    struct end {
        struct passed *pair;
        struct stream *stream;
    } ends[2];
};

/* ---- passing on ---- */

static struct end *other(struct end *e) {
    return e == &e->pair->ends[0] ? &e->pair->ends[1] : &e->pair->ends[0];
}

static void forward(void *arg, struct stream *s) {
    struct end *from = arg;
    struct stream *to = other(from)->stream;
    size_t len;
    while (stream_unsent(to) < STORE_DOOR_UNSENT_MAX &&
           !loop_slice_is_over(from->pair->door->loop)) {
        const uint8_t *data = stream_peek_run(s, &len);
        if (len == 0)
            return;
        stream_write(to, data, len);
        stream_drain(s, len);
    }
    if (stream_unsent(to) >= STORE_DOOR_UNSENT_MAX)
        stream_pause(s); /* until the other side has taken it: on_drained() */
    else if (stream_available(s) > 0)
        stream_read_later(s);
}

static void on_drained(void *arg, struct stream *s) {
    struct end *e = arg;
    stream_resume(other(e)->stream);
}

static void free_passed(struct passed *p) {
    list_remove(&p->link);
    p->door->n_passed--;
    for (size_t i = 0; i < ARRAY_SIZE(p->ends); i++)
        stream_free(p->ends[i].stream);
    free(p);
}

static void on_closed(void *arg, struct stream *s, int code) {
    struct end *e = arg;
    stream_finish(TAKE_PTR(other(e)->stream), clock_now_ns() + FINISH_NS);
    free_passed(e->pair);
}

static bool is_own(const struct store_door *door, int fd, const struct addr *peer) {
    enum peer_owner_kind owner = peer_gate_owner(door->gate, fd, peer).kind;
    /* another user's has come so far only with --store-check=member */
    return owner == PEER_OURS || owner == PEER_OTHER_USER ||
           (door->gate == NULL && addr_is_local(peer));
}

/* True: it was closed. */
static bool refuse(struct store_door *door, int fd) {
    struct addr peer;
    char line[256], host[ADDR_TEXT_MAX] = "?";
    bool known = addr_of_peer(fd, &peer) == 0;
    if (!door->own_only || (known && is_own(door, fd, &peer)))
        return false;
    (void)close(fd);
    if (door->told || !known || door->log == NULL)
        return true;
    door->told = true;
    addr_host_text(&peer, host);
    (void)snprintf(line, sizeof line,
                   "refused a client of the workers' store from %s: this node passes on only those "
                   "of its own machine to the store on another (--store-check=none: all); further "
                   "ones are closed, too",
                   host);
    door->log(door->arg, line);
    return true;
}

static void pass_on(struct store_door *door, int fd) {
    static const struct stream_ops ops = {forward, on_drained, on_closed};
    if (refuse(door, fd))
        return;
    if (door->n_passed >= door->max_passed) {
        log_debug("store: a client was disconnected: %zu are being passed on already",
                  door->n_passed);
        (void)close(fd);
        return;
    }
    struct passed *p = xcalloc(1, sizeof *p);
    p->door = door;
    p->ends[0].pair = p->ends[1].pair = p;
    list_append(&door->passed, &p->link);
    door->n_passed++;
    p->ends[0].stream = stream_new(door->loop, fd, &ops, &p->ends[0]);
    if (stream_connect(door->loop, NULL, &door->pass_to, &ops, &p->ends[1], &p->ends[1].stream) < 0)
        free_passed(p);
}

static int take_waiting(struct waiting *w) {
    int fd = w->fd;
    list_remove(&w->link);
    w->door->n_waiting--;
    loop_watch_free(w->end);
    free(w);
    return fd;
}

/* It has sent more than expected, or has ended. */
static void on_change(void *arg, int fd, unsigned events) {
    struct waiting *w = arg;
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0 ||
        info.tcpi_state != TCP_ESTABLISHED)
        (void)close(take_waiting(w));
    else
        loop_watch_free(TAKE_PTR(w->end));
}

/* Before the first generation there are no workers: most likely it is a torchrun, which would wait
 * in silence for as long as this job does. */
static void report_early(struct store_door *door, int fd) {
    struct addr peer;
    char line[256], host[ADDR_TEXT_MAX];
    if (door->was_open || door->log == NULL || addr_of_peer(fd, &peer) < 0)
        return;
    bool *reported = &door->early_reported[addr_is_local(&peer)];
    if (*reported)
        return;
    *reported = true;
    addr_host_text(&peer, host);
    (void)snprintf(line, sizeof line,
                   "a program at %s asks for PyTorch's store before the workers have started: if "
                   "it is torchrun, start muster run there instead",
                   host);
    door->log(door->arg, line);
}

static void let_wait(struct store_door *door, int fd) {
    report_early(door, fd);
    struct waiting *w = LIST_FIRST(struct waiting, &door->waiting, link);
    if (door->n_waiting >= door->max_waiting && w != NULL)
        (void)close(take_waiting(w));
    w = xcalloc(1, sizeof *w);
    *w = (struct waiting){.door = door, .fd = fd};
    list_append(&door->waiting, &w->link);
    door->n_waiting++;
    /* Readable only at the end: its first requests are there, and stay unread. With a larger number
     * the kernel would make room for as many bytes. tcp(7): SO_RCVLOWAT */
    int many = WAITING_UNREAD;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &many, sizeof many);
    w->end = loop_watch_new(door->loop, fd, LOOP_READ, LOOP_PRIO_BULK, on_change, w);
}

static bool is_open(const struct store_door *door) {
    return door->store != NULL || door->pass_to.len > 0;
}

static void let_in(struct store_door *door, int fd) {
    int one = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
    if (door->store != NULL)
        store_server_adopt(door->store, fd);
    else
        pass_on(door, fd);
}

static void let_all_in(struct store_door *door) {
    struct waiting *w;
    door->was_open |= is_open(door);
    while (is_open(door) && (w = LIST_FIRST(struct waiting, &door->waiting, link)) != NULL)
        let_in(door, take_waiting(w));
}

void store_door_client(struct store_door *door, int fd) {
    if (is_open(door))
        let_in(door, fd);
    else
        let_wait(door, fd);
}

void store_door_serve(struct store_door *door, struct store_server *store) {
    door->store = store;
    let_all_in(door);
}

void store_door_unserve(struct store_door *door, const struct store_server *store) {
    if (door->store == store)
        door->store = NULL;
}

void store_door_pass(struct store_door *door, const struct addr *to, bool own_only) {
    door->pass_to = to != NULL ? *to : (struct addr){0};
    door->own_only = own_only;
    let_all_in(door);
}

struct store_door *store_door_new(struct loop *loop, struct peer_gate *gate,
                                  void (*log)(void *arg, const char *line), void *arg) {
    struct store_door *door = xcalloc(1, sizeof *door);
    *door = (struct store_door){
        .loop = loop,
        .gate = gate,
        .log = log,
        .arg = arg,
        .max_waiting = MIN2(STORE_DOOR_WAITING_MAX, file_limit() / 4 + 1),
        .max_passed = MIN2(STORE_DOOR_PASSED_MAX, file_limit() / 8 + 1),
    };
    list_init(&door->waiting);
    list_init(&door->passed);
    return door;
}

void store_door_free(struct store_door *door) {
    struct waiting *w;
    struct passed *p;
    if (door == NULL)
        return;
    while ((w = LIST_FIRST(struct waiting, &door->waiting, link)) != NULL)
        (void)close(take_waiting(w));
    while ((p = LIST_FIRST(struct passed, &door->passed, link)) != NULL)
        free_passed(p);
    free(door);
}
