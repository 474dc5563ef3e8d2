#include "launcher/worker/error_file_io.h"

#include <errno.h>
#include <string.h>

#include "base/text/tail.h"
#include "io/file.h"
#include "launcher/worker/error_file.h"

int error_file_read(const char *path, struct strbuf *ret) {
    _cleanup_(freep) char *text = NULL;
    size_t len = 0;
    strbuf_clear(ret);
    int r = path[0] == '\0' ? -ENOENT : file_read_text(path, ERROR_FILE_MAX_BYTES, &text, &len);
    if (r == -ENOENT || r == -ENOTDIR)
        return 0;
    struct error_file e = {0};
    struct err err = {0};
    if (r < 0) {
        strbuf_printf(ret, "can't read the error file: %s",
                      r == -EFBIG    ? "it has more than 1 MiB"
                      : r == -EINVAL ? "it is not a regular file"
                                     : strerror(-r));
        return -EINVAL;
    }
    if (error_file_parse(text, len, &e, &err) != 0) {
        strbuf_add(ret, err.text);
        return -EINVAL;
    }
    _cleanup_(tail_fini) struct tail end = {0};
    tail_add(&end, error_file_text(&e), strlen(error_file_text(&e)));
    strbuf_add(ret, strbuf_text(&end.text));
    error_file_fini(&e);
    return 0;
}
