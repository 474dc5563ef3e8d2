/* Any bytes as error.json: either a message, or an error with a sentence. What is passed on to a parent can be read
 * again, with the same message. */
#include <string.h>

#include "launcher/worker/error_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 65536)
        return 0;
    struct error_file first = {0}, second = {0};
    struct err err = {0};
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    int r = error_file_parse((const char *)data, size, &first, &err);
    int p = error_file_for_parent((const char *)data, size, -11, &out, NULL);
    if (r != 0) {
        if (err.text[0] == '\0' || first.message != NULL || first.traceback != NULL)
            abort();
        return 0;
    }
    if (p != 0 || error_file_text(&first) == NULL)
        abort();
    if (error_file_parse(strbuf_text(&out), out.len, &second, &err) != 0 || strcmp(first.message, second.message) != 0)
        abort();
    error_file_fini(&first);
    error_file_fini(&second);
    return 0;
}
