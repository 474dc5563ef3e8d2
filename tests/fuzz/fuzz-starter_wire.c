/* Any bytes as the payload of a frame between a head and its agent, and as what has arrived of a stream: an accepted
 * message is the same after it was encoded and taken again, of which no part alone is a message. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/frame.h"
#include "launcher/starter/starter_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds)
        abort();
}

static void check_again(const struct starter_message *m) {
    _cleanup_(strbuf_fini) struct strbuf frame = {0}, second = {0};
    struct starter_message again;
    size_t bytes = 0;
    starter_encode(m, &frame);
    const uint8_t *encoded = (const uint8_t *)strbuf_text(&frame);
    check(frame.len <= STARTER_FRAME_MAX);
    check(starter_take(encoded, frame.len, &again, &bytes, NULL) == 0 && bytes == frame.len && again.kind == m->kind);
    check(starter_take(encoded, frame.len - 1, &again, &bytes, NULL) == FRAME_E_MORE);
    check(starter_take(encoded, frame.len / 2, &again, &bytes, NULL) == FRAME_E_MORE);
    check(starter_take(encoded, frame.len, &again, &bytes, NULL) == 0);
    starter_encode(&again, &second);
    check(second.len == frame.len && memcmp(second.data, frame.data, frame.len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct starter_message m;
    struct err err = {0};
    size_t bytes = 0;
    int r = starter_take(data, size, &m, &bytes, &err);
    check(r == FRAME_E_MORE || (r == 0 && bytes <= size) || (r < 0 && err.text[0] != '\0'));
    r = starter_decode((const char *)data, size, &m, &err);
    check(r == 0 || (r == -EINVAL && err.text[0] != '\0'));
    if (r == 0)
        check_again(&m);
    return 0;
}
