/* Any bytes as the output of eu-stack, which names functions as a worker's own files do: what is shown of it has whole
 * lines, and keeps within its limit. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "watchdog/evidence/disturb.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    _cleanup_(freep) char *output = xstrndup((const char *)data, size);
    for (size_t max = 100; max <= 100000; max *= 10) {
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        strbuf_add(&text, "before\n");
        native_shorten(output, max, &text);
        if (text.len > max + strlen("before\n") || text.data[text.len - 1] != '\n')
            abort();
    }
    return 0;
}
