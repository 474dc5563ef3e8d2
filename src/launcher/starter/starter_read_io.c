#include "launcher/starter/starter_read_io.h"

#include "base/frame.h"

int starter_read(struct stream *s, struct starter_message *ret, struct err *err) {
    size_t bytes = 0, len = stream_available(s);
    if (len == 0)
        return FRAME_E_MORE;
    int r = starter_take(stream_peek(s, len), len, ret, &bytes, err);
    if (r == 0)
        stream_drain(s, bytes);
    return r;
}
