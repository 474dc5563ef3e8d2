#include "launcher/worker/error_file_io.h"

#include <errno.h>

#include "io/file.h"
#include "launcher/worker/error_file.h"

int error_file_read(const char *path, struct strbuf *ret) {
    _cleanup_(freep) char *text = NULL;
    size_t len = 0;
    strbuf_clear(ret);
    if (path[0] == '\0' || file_read_text(path, ERROR_FILE_MAX_BYTES, &text, &len) < 0)
        return 0;
    struct error_file e = {0};
    struct err err = {0};
    if (error_file_parse(text, len, &e, &err) != 0) {
        strbuf_add(ret, err.text);
        return -EINVAL;
    }
    strbuf_add(ret, error_file_text(&e));
    error_file_fini(&e);
    return 0;
}
