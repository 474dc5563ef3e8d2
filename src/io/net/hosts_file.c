#include "io/net/hosts_file.h"

#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/text/parse.h"
#include "io/file.h"

#define CONF_MAX ((size_t)64 << 10)
#define HOSTS_MAX ((size_t)256 << 10)
#define NSCD "/var/run/nscd/socket" /* the daemon of names, which may hang */
#define BLANKS " \t\r"

/* ---- lines and words ---- */

/* The next word of a line. Returns its length; 0: the line is over, or a comment begins. */
static size_t next_word(const char **at) {
    *at += strspn(*at, BLANKS);
    return **at == '#' ? 0 : strcspn(*at, BLANKS "\n#");
}

static bool is_word(const char *at, size_t n, const char *word) {
    return n == strlen(word) && strncasecmp(at, word, n) == 0;
}

/* What follows in the first line that begins with this word; NULL: there is none. */
static const char *after_word(const char *text, const char *word) {
    for (const char *line = text; *line != '\0'; line = text_next_line(line)) {
        const char *at = line;
        size_t n = next_word(&at);
        if (is_word(at, n, word))
            return at + n;
    }
    return NULL;
}

/* The text of a file of /etc, or an empty one. */
static char *read_conf(const char *etc, const char *name, size_t max) {
    _cleanup_(freep) char *path = xasprintf("%s/%s", etc, name);
    char *text = NULL;
    size_t len;
    return file_read_text(path, max, &text, &len) == 0 ? text : xstrdup("");
}

/* ---- who is asked ---- */

/* "hosts: files dns": the file's answer is final; "hosts: files [SUCCESS=merge] dns": it is not. */
static bool file_is_first(const char *etc) {
    _cleanup_(freep) char *text = read_conf(etc, "nsswitch.conf", CONF_MAX);
    const char *at = after_word(text, "hosts:");
    size_t n = at != NULL ? next_word(&at) : 0;
    if (!is_word(at, n, "files"))
        return false;
    at += n;
    return next_word(&at) == 0 || *at != '[';
}

/* ---- the file ---- */

static bool names_it(const char *at, const char *name) {
    for (size_t n; (n = next_word(&at)) > 0; at += n)
        if (is_word(at, n, name))
            return true;
    return false;
}

/* Whether this is a line of the name, with an address. */
static bool read_line(const char *line, const char *name, uint16_t port, struct addr *ret) {
    char text[ADDR_TEXT_MAX];
    const char *at = line;
    size_t n = next_word(&at);
    if (n == 0 || n >= sizeof text || !names_it(at + n, name))
        return false;
    memcpy(text, at, n);
    text[n] = '\0';
    return text[0] != '[' && addr_from_literal(text, port, ret) == 0;
}

bool hosts_file_find(const char *etc, const char *name, uint16_t port, struct addr *ret) {
    size_t n = 0;
    if (name[0] == '\0' || name[strlen(name) - 1] == '.' || access(NSCD, F_OK) == 0 ||
        !file_is_first(etc))
        return false;
    _cleanup_(freep) char *text = read_conf(etc, "hosts", HOSTS_MAX);
    for (const char *line = text; *line != '\0'; line = text_next_line(line))
        n += read_line(line, name, port, ret);
    return n == 1;
}
