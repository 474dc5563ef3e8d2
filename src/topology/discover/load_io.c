#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/file.h"
#include "topology/discover/discovery_io.h"
#include "topology/discover/hwloc/hwloc_io.h"
#include "topology/json/topology_json.h"
#include "topology/nccl/nccl_xml.h"

#define FILE_MAX ((off_t)64 << 20)
#define ROOT_TAG_MAX 4096 /* how many bytes are searched for its attributes */

/* ---- the file's bytes ---- */

/* Reads only as many bytes as the file had when it was opened: one that grows meanwhile is cut. */
static int read_all(int fd, const char *path, size_t size, char *to, struct err *err) {
    size_t n = 0;
    while (n < size) {
        ssize_t r = read(fd, to + n, size - n);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return err_set(err, -errno, "can't read %s: %s", path, strerror(errno));
        if (r == 0)
            return err_set(err, -EIO, "%s became shorter while it was read", path);
        n += (size_t)r;
    }
    to[n] = '\0';
    return 0;
}

static int read_file(const char *path, char **ret, size_t *ret_len, struct err *err) {
    /* O_NONBLOCK: opening a FIFO must not wait for its other end. */
    _cleanup_(file_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, -errno, "can't open %s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return err_set(err, -EISDIR, "%s is a folder; --sysroot takes a recorded tree", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, -EINVAL, "%s is not a regular file", path);
    if (st.st_size > FILE_MAX)
        return err_set(err, -E2BIG, "%s has %" PRId64 " MiB: more than %d MiB can't be a topology",
                       path, (int64_t)st.st_size >> 20, (int)(FILE_MAX >> 20));
    _cleanup_(freep) char *text = malloc((size_t)st.st_size + 1);
    if (text == NULL)
        return err_set(err, -ENOMEM, "no memory for %s", path);
    int r = read_all(fd, path, (size_t)st.st_size, text, err);
    if (r < 0)
        return r;
    if (memchr(text, '\0', (size_t)st.st_size) != NULL)
        return err_set(err, -EINVAL, "%s is not a text file", path);
    *ret = TAKE_PTR(text);
    *ret_len = (size_t)st.st_size;
    return 0;
}

/* ---- what it is ---- */

/* Skips blanks and a byte order mark. */
static const char *skip_blanks(const char *p) {
    if (strncmp(p, "\xef\xbb\xbf", 3) == 0)
        p += 3;
    while (isspace((unsigned char)*p))
        p++;
    return p;
}

/* Skips <?xml …?>, <!DOCTYPE …> and comments; NULL: one of them does not end. */
static const char *skip_prolog(const char *p) {
    for (;;) {
        p = skip_blanks(p);
        const char *end = strncmp(p, "<?", 2) == 0     ? "?>"
                          : strncmp(p, "<!--", 4) == 0 ? "-->"
                          : strncmp(p, "<!", 2) == 0   ? ">"
                                                       : NULL;
        if (end == NULL)
            return p;
        p = strstr(p, end);
        if (p == NULL)
            return NULL;
        p += strlen(end);
    }
}

static bool is_element(const char *p, const char *name) {
    size_t n = strlen(name);
    return *p == '<' && strncmp(p + 1, name, n) == 0 && strchr(" \t\r\n/>", p[n + 1]) != NULL &&
           p[n + 1] != '\0';
}

/* ---- hwloc's XML ---- */

/* The root element's version="2.0"; "1" if it has none (hwloc 1.x). */
static void format_of(const char *root, char ret[16]) {
    char tag[ROOT_TAG_MAX];
    (void)snprintf(tag, sizeof tag, "%s", root);
    tag[strcspn(tag, ">")] = '\0';
    const char *version = strstr(tag, " version=\"");
    version = version != NULL ? version + strlen(" version=\"") : "1";
    (void)snprintf(ret, 16, "%.*s", (int)strspn(version, "0123456789."), version);
}

/* Whether the file ends with the end of the root element, except for blanks. So hwloc's parser
 * never gets incomplete files. */
static bool is_whole(const char *text, size_t len) {
    static const char end[] = "</topology>";
    while (len > 0 && isspace((unsigned char)text[len - 1]))
        len--;
    return len >= strlen(end) && memcmp(text + len - strlen(end), end, strlen(end)) == 0;
}

static int load_hwloc(const char *text, size_t len, const char *root, struct topology *t,
                      struct err *err) {
    char format[16];
    format_of(root, format);
    if (strtoul(format, NULL, 10) > 2)
        return err_set(err, -EINVAL,
                       "an hwloc XML of format %s, which hwloc 2 can't read; write it again with "
                       "hwloc 3's lstopo --export-xml-flags v2",
                       format);
    if (!is_whole(text, len))
        return err_set(err, -EINVAL, "an hwloc XML that is cut off: no </topology> ends it");
    struct hwloc_source source = {.xml = text, .xml_len = len};
    return hwloc_fill(&source, DISCOVER_ALL, t, err);
}

/* ---- all ---- */

static int load_text(const char *text, size_t len, struct topology *t, struct err *err) {
    const char *p = skip_blanks(text);
    if (*p == '\0')
        return err_set(err, -EINVAL, "the file is empty");
    if (*p == '{') {
        t->source = TOPO_JSON;
        return topology_json_read(p, len - (size_t)(p - text), t, err);
    }
    p = skip_prolog(p);
    if (p == NULL)
        return err_set(err, -EINVAL, "an XML that is cut off: a comment or a <?…?> does not end");
    if (is_element(p, "topology")) {
        t->source = TOPO_HWLOC_XML;
        return load_hwloc(text, len, p, t, err);
    }
    if (*p != '<')
        return err_set(err, -EINVAL,
                       "neither JSON nor XML; wanted: muster's JSON, hwloc's XML or NCCL's");
    t->source = TOPO_NCCL_XML;
    return nccl_xml_read(text, len, t, NULL, NULL, err);
}

int topology_load(const char *path, struct topology *ret, struct err *err) {
    _cleanup_(freep) char *text = NULL;
    size_t len = 0;
    int r = read_file(path, &text, &len, err);
    if (r < 0)
        return r;
    struct topology t = {0};
    r = load_text(text, len, &t, err);
    if (r < 0) {
        topology_fini(&t);
        err_prefix(err, "%s", path);
        return r;
    }
    if (t.from[0] == '\0')
        (void)snprintf(t.from, sizeof t.from, "%s", path);
    topology_sort(&t);
    *ret = t;
    return 0;
}
