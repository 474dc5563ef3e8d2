/* Any bytes as a stream of frames: the frames are the same wherever the stream is split, and no frame is longer than
 * its limit, or than the bytes that arrived. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUT_MAX ((size_t)4096)
#define LIMIT ((size_t)600)

struct cutter {
    size_t at;             /* bytes taken */
    uint64_t node_summary; /* hash of all frames, in order */
    unsigned frames;
    bool broken;
};

/* Takes all frames that are complete in the first len bytes. */
static void cut(struct cutter *c, const uint8_t *data, size_t len) {
    while (!c->broken) {
        size_t bytes = 0;
        int r = frame_size(data + c->at, len - c->at, LIMIT, &bytes);
        if (r == FRAME_E_MORE) {
            if (len - c->at >= FRAME_HEADER_BYTES || bytes != 0)
                abort();
            return;
        }
        if (r < 0) {
            c->broken = true;
            return;
        }
        if (bytes <= FRAME_HEADER_BYTES || bytes > FRAME_HEADER_BYTES + LIMIT)
            abort();
        if (bytes > len - c->at)
            return;
        uint8_t head[FRAME_HEADER_BYTES];
        frame_header(bytes - FRAME_HEADER_BYTES, head);
        if (memcmp(head, data + c->at, sizeof head) != 0)
            abort();
        for (size_t i = 0; i < bytes; i++)
            c->node_summary = (c->node_summary ^ data[c->at + i]) * UINT64_C(1099511628211);
        c->frames++;
        c->at += bytes;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > INPUT_MAX)
        size = INPUT_MAX;
    struct cutter whole = {0};
    cut(&whole, data, size);
    for (size_t split = 0; split <= size; split += 1 + size / 128) {
        struct cutter parts = {0};
        cut(&parts, data, split);
        cut(&parts, data, size);
        if (parts.at != whole.at || parts.node_summary != whole.node_summary || parts.frames != whole.frames ||
            parts.broken != whole.broken)
            abort();
    }
    return 0;
}
