#include "watchdog/act/hang_reply_io.h"

#include <string.h>

#include "base/text/strbuf.h"
#include "io/clock.h"

struct hang_reply {
    struct loop_timer *timer;
    hang_reply_fn *send;
    void *arg;
    struct strbuf text;
    size_t sent; /* of it */
    bool begun, over;
    uint32_t id;
    uint64_t give_up_ns;
};

/* How much of the rest fits into a piece, cut between characters. */
static size_t piece_len(const struct hang_reply *r) {
    const char *rest = strbuf_text(&r->text) + r->sent;
    size_t left = r->text.len - r->sent, n = MIN2(left, RDZV_EVIDENCE_CHUNK_MAX - 1);
    while (n < left && n > 1 && ((uint8_t)rest[n] & 0xc0) == 0x80)
        n--;
    return n;
}

static bool send_piece(struct hang_reply *r) {
    struct rdzv_evidence piece = {.id = r->id, .first = !r->begun};
    size_t n = piece_len(r);
    memcpy(piece.text, strbuf_text(&r->text) + r->sent, n);
    piece.last = r->sent + n == r->text.len;
    if (!r->send(r->arg, &piece))
        return false;
    r->sent += n;
    r->begun = true;
    r->over = piece.last;
    return true;
}

static void send_some(struct hang_reply *r) {
    bool room = true;
    while (!r->over && room)
        room = send_piece(r);
    uint64_t now = clock_now_ns();
    if (r->over || now >= r->give_up_ns)
        hang_reply_stop(r);
    else
        loop_timer_set(r->timer, now + HANG_REPLY_AGAIN_NS);
}

static void on_timer(void *arg) { send_some(arg); }

void hang_reply_start(struct hang_reply *r, uint32_t id, const char *text, size_t len,
                      uint64_t give_up_ns) {
    hang_reply_stop(r);
    strbuf_add_bytes(&r->text, text, len);
    r->id = id;
    r->over = false;
    r->give_up_ns = give_up_ns;
    send_some(r);
}

void hang_reply_stop(struct hang_reply *r) {
    strbuf_fini(&r->text);
    r->sent = 0;
    r->begun = false;
    r->over = true;
    loop_timer_set(r->timer, TIME_NEVER);
}

struct hang_reply *hang_reply_new(struct loop *loop, hang_reply_fn *send, void *arg) {
    struct hang_reply *r = xcalloc(1, sizeof *r);
    *r = (struct hang_reply){.send = send, .arg = arg, .over = true};
    r->timer = loop_timer_new(loop, on_timer, r);
    return r;
}

void hang_reply_free(struct hang_reply *r) {
    if (r == NULL)
        return;
    hang_reply_stop(r);
    loop_timer_free(r->timer);
    free(r);
}
