/* The record of an earlier run's imports: what is taken is written again as it was. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/warm/warm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char reason[WARM_REASON_MAX];
    const char *text = (const char *)data, *record = warm_saved_read(text, size, 7, reason);
    if (record == NULL)
        return 0;
    size_t n = size - (size_t)(record - text);
    _cleanup_(strbuf_fini) struct strbuf again = {0};
    warm_saved_write(record, n, 7, &again);
    if (again.len != size || memcmp(again.data, data, size) != 0 || warm_record_head(record, n) >= n) {
        (void)fprintf(stderr, "the record is not what it was\n");
        abort();
    }
    return 0;
}
