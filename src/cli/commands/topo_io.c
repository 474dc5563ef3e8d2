#include "cli/commands/topo_io.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/file.h"

int topo_write(const char *path, const char *text, size_t len, struct err *err) {
    if (strcmp(path, "-") == 0) {
        (void)fwrite(text, 1, len, stdout); /* finish_stdout() reports errors */
        return 0;
    }
    int r = file_write_atomic(path, text, len);
    return r < 0 ? err_set(err, r, "can't write %s: %s", path, strerror(-r)) : 0;
}

int topo_read(const char *path, size_t max, char **ret_text, size_t *ret_len, struct err *err) {
    struct stat st;
    int r = file_read_text(path, max, ret_text, ret_len);
    if (r == -EINVAL)
        return err_set(err, r, "can't read %s: it is %s", path,
                       stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? "a folder"
                                                                   : "no regular file");
    return r < 0 ? err_set(err, r, "can't read %s: %s", path, strerror(-r)) : 0;
}

uint32_t topo_width(void) {
    struct winsize size = {0};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

bool topo_utf8(void) {
    const char *term = getenv("TERM");
    if (isatty(STDOUT_FILENO) == 1 && (term == NULL || strcmp(term, "dumb") == 0))
        return false;
    locale_t locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    if (locale == (locale_t)0)
        return false;
    bool utf8 = strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;
    freelocale(locale);
    return utf8;
}
