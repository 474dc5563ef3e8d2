/* Any bytes as a message: an accepted message is the same after it was encoded and decoded again, and every text in it
 * ends within its array. */
#include <errno.h>
#include <string.h>

#include "../tools/json_any.h"
#include "rendezvous/protocol/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct wire_message m, again;
    struct err err = {0};
    int r = wire_decode((const char *)data, size, &m, &err);
    if (r == WIRE_E_VERSION)
        return 0;
    if (r != 0) {
        if (r != -EINVAL || err.text[0] == '\0')
            abort();
        return 0;
    }
    json_check(wire_table(m.kind), (const char *)&m + offsetof(struct wire_message, body));
    _cleanup_(strbuf_fini) struct strbuf first = {0}, second = {0};
    wire_encode(&m, &first);
    if (first.len >= WIRE_MESSAGE_MAX / 2 || wire_decode(strbuf_text(&first), first.len, &again, NULL) != 0)
        abort();
    wire_encode(&again, &second);
    if (first.len != second.len || memcmp(first.data, second.data, first.len) != 0)
        abort();
    return 0;
}
