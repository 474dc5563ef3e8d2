/* Any bytes as the payload of a frame, and as what has arrived of a stream, from each sender: an accepted message is the
 * same after it was sent and taken again, and no part of it alone is a message. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/frame.h"
#include "launcher/starter/starter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds)
        abort();
}

static const uint8_t *bytes_of(const struct strbuf *s) { return (const uint8_t *)strbuf_text(s); }

static void check_again(const struct starter_message *m, enum starter_sender from) {
    _cleanup_(strbuf_fini) struct strbuf frame = {0}, second = {0};
    struct starter_message again;
    size_t n = 0;
    starter_add(m, &frame);
    check(frame.len <= STARTER_DATA_FRAME_MAX);
    check(starter_take(bytes_of(&frame), frame.len - 1, from, &again, &n, NULL) == FRAME_E_MORE);
    check(starter_take(bytes_of(&frame), frame.len / 2, from, &again, &n, NULL) == FRAME_E_MORE);
    check(starter_take(bytes_of(&frame), frame.len, from, &again, &n, NULL) == 0);
    check(n == frame.len && again.kind == m->kind);
    starter_add(&again, &second);
    check(second.len == frame.len && memcmp(second.data, frame.data, frame.len) == 0);
}

static void take(const uint8_t *data, size_t size, enum starter_sender from) {
    struct starter_message m;
    struct err err = {0};
    size_t n = 0;
    int r = starter_take(data, size, from, &m, &n, &err);
    check(r == FRAME_E_MORE || (r == 0 && n <= size) || (r < 0 && err.text[0] != '\0'));
    if (r == 0)
        check_again(&m, from);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const enum starter_sender senders[] = {STARTER_FROM_AGENT, STARTER_FROM_RELAY, STARTER_FROM_STARTER};
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    uint8_t head[FRAME_HEADER_BYTES];
    if (size == 0 || size > STARTER_DATA_MAX)
        return 0;
    frame_header(size, head);
    strbuf_add_bytes(&frame, head, sizeof head);
    strbuf_add_bytes(&frame, data, size);
    for (size_t i = 0; i < ARRAY_SIZE(senders); i++) {
        take(data, size, senders[i]);
        take(bytes_of(&frame), frame.len, senders[i]);
    }
    return 0;
}
