/* Any bytes as error.json: either a message, or an error with a sentence. What is passed on to a parent can be read
 * again, with the same text. */
#include <string.h>

#include "launcher/worker/error_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 65536)
        return 0;
    _cleanup_(freep) char *first = NULL, *second = NULL;
    struct err err = {0};
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    int r = error_file_parse((const char *)data, size, &first, &err);
    int p = error_file_for_parent((const char *)data, size, -11, &out, NULL);
    if (r != 0) {
        if (err.text[0] == '\0' || first != NULL)
            abort();
        return 0;
    }
    if (p != 0 || first == NULL)
        abort();
    if (error_file_parse(strbuf_text(&out), out.len, &second, &err) != 0 || strcmp(first, second) != 0)
        abort();
    return 0;
}
