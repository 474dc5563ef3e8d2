/* Any bytes as an answer of PyTorch's flight recorder, as HTTP and as JSON: refused with a sentence, or accepted; then
 * its summary has whole lines of limited size. */
#include <string.h>

#include "watchdog/look/recorder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_json(const char *text, size_t len) {
    _cleanup_(strbuf_fini) struct strbuf summary = {0};
    uint64_t collectives = 0;
    struct err err = {0};
    int r = recorder_read(text, len, 1.8e9, &summary, &collectives, &err);
    if (r != 0) {
        if (err.code != r || err.text[0] == '\0' || summary.len != 0)
            abort();
        return;
    }
    if (summary.len == 0 || summary.len > RECORDER_SUMMARY_MAX || summary.data[summary.len - 1] != '\n')
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *body = NULL;
    size_t len = 0;
    struct err err = {0};
    read_json((const char *)data, size);
    if (recorder_http_body((const char *)data, size, &body, &len, &err) == 0) {
        if (body < (const char *)data || body + len != (const char *)data + size)
            abort();
        read_json(body, len);
    }
    return 0;
}
