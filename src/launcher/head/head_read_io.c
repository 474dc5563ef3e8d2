#include "launcher/head/head_read_io.h"

#include "base/frame.h"

int head_read(struct stream *s, struct head_message *ret, struct err *err) {
    size_t bytes = 0, len = stream_available(s);
    if (len == 0)
        return FRAME_E_MORE;
    int r = head_take(stream_peek(s, len), len, ret, &bytes, err);
    if (r == 0)
        stream_drain(s, bytes);
    return r;
}
