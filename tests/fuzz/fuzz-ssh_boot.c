/* Any bytes from the other end of ssh: a BOOT that is accepted can be sent again, and the beginning of the frames is
 * found at the same place however the bytes arrive. Messages are for fuzz-starter_wire. */
#include <errno.h>
#include <string.h>

#include "base/frame.h"
#include "launcher/ssh/ssh_boot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds)
        abort();
}

static void check_begin(const uint8_t *data, size_t size) {
    size_t n = 0, first = 0;
    int whole = ssh_find_begin(data, size, &n), r = FRAME_E_MORE;
    size_t len = 0;
    for (; len <= size && r == FRAME_E_MORE; len++)
        r = ssh_find_begin(data, len, &first);
    require(r == whole && (r != 0 || (first == n && len - 1 == n)));
}

static void check_boot(struct strbuf *parts, const struct starter_message *m) {
    struct ssh_boot boot = {0};
    struct err err = {0};
    int r = ssh_boot_take(parts, m, &boot, &err);
    require(parts->len <= SSH_BOOT_MAX);
    if (r == 0) {
        _cleanup_(strbuf_fini) struct strbuf frames = {0};
        require(ssh_boot_add(&boot, &frames, &err) == 0);
        ssh_boot_fini(&boot);
        strbuf_clear(parts);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    _cleanup_(strbuf_fini) struct strbuf parts = {0};
    struct starter_message m;
    struct err err = {0};
    size_t n;
    if (size > 4096)
        return 0;
    check_begin(data, size);
    for (int r; (r = starter_take(data, size, STARTER_FROM_STARTER, &m, &n, &err)) != FRAME_E_MORE;
         data += n, size -= n) {
        if (r < 0) {
            require(err.text[0] != '\0');
            return 0;
        }
        require(n <= size);
        if (m.kind == STARTER_BOOT_PART || m.kind == STARTER_BOOT)
            check_boot(&parts, &m);
    }
    return 0;
}
