#include "launcher/place/place_files.h"

#include <string.h>
#include <strings.h>

#include "base/util.h"

/* ---- slurm.conf ---- */

static const char blank[] = " \t\r";

/* Whether the text begins with this name, and no longer one. */
static bool begins_with(const char *text, const char *name) {
    size_t n = strlen(name);
    return strncasecmp(text, name, n) == 0 && strcspn(text + n, " \t\r\n=#") == 0;
}

/* The value of the parameter, if `at` is there: "TaskPlugin = task/none"; else NULL. */
static const char *value_at(const char *at, const char *name) {
    if (!begins_with(at, name))
        return NULL;
    at += strlen(name);
    at += strspn(at, blank);
    if (*at != '=')
        return NULL;
    return at + 1 + strspn(at + 1, blank);
}

/* The value of the last line with this parameter; NULL: there is none. *ret_includes: the file
 * includes others. */
static const char *last_value(const char *text, const char *name, bool *ret_includes) {
    const char *last = NULL;
    *ret_includes = false;
    for (const char *line = text; *line != '\0';) {
        const char *end = line + strcspn(line, "\n"), *at = line + strspn(line, blank);
        *ret_includes |= begins_with(at, "Include");
        while (at < end && *at != '#') { /* a line can have several parameters */
            const char *value = value_at(at, name);
            last = value != NULL ? value : last;
            at += strcspn(at, " \t\r\n");
            at += strspn(at, blank);
        }
        line = end + (*end == '\n');
    }
    return last;
}

bool slurm_conf_binds_nothing(const char *text) {
    bool includes;
    const char *value = last_value(text, "TaskPlugin", &includes);
    return value != NULL && !includes &&
           (begins_with(value, "task/none") || begins_with(value, "none"));
}

char *slurm_conf_munge_socket(const char *text) {
    static const char name[] = "socket=";
    bool includes;
    const char *at = last_value(text, "AuthInfo", &includes);
    while (at != NULL && strncasecmp(at, name, strlen(name)) != 0) {
        at += strcspn(at, ", \t\r\n#");
        at = *at == ',' ? at + 1 : NULL;
    }
    if (at == NULL)
        return NULL;
    at += strlen(name);
    return xstrndup(at, strcspn(at, ", \t\r\n#"));
}

/* ---- mounts ---- */

static const struct {
    const char *type, *name;
} shared[] = {
    {"lustre", "Lustre"}, {"gpfs", "GPFS"},      {"nfs", "NFS"},
    {"nfs4", "NFS"},      {"beegfs", "BeeGFS"},  {"fhgfs", "BeeGFS"},
    {"ceph", "Ceph"},     {"fuse.ceph", "Ceph"}, {"wekafs", "WEKA"},
};

/* The n-th field of a line, from 0. */
static const char *field(const char *line, const char *end, unsigned n, size_t *ret_len) {
    while (n > 0 && line < end)
        n -= *line++ == ' ';
    const char *end_of_field = memchr(line, ' ', (size_t)(end - line));
    *ret_len = (size_t)((end_of_field != NULL ? end_of_field : end) - line);
    return line;
}

static bool is_octal(const char *s, size_t left) {
    return left >= 4 && s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
           s[3] >= '0' && s[3] <= '7';
}

/* The length of the mount point if `path` is below it, else -1. Blanks in it are written "\040". */
static long covers(const char *point, size_t n, const char *path) {
    size_t len = 0;
    for (size_t i = 0; i < n; len++) {
        bool octal = is_octal(point + i, n - i);
        char c = octal ? (char)((point[i + 1] - '0') * 64 + (point[i + 2] - '0') * 8 +
                                (point[i + 3] - '0'))
                       : point[i];
        if (path[len] == '\0' || path[len] != c)
            return -1;
        i += octal ? 4 : 1;
    }
    bool root = len == 1 && path[0] == '/';
    return root || path[len] == '\0' || path[len] == '/' ? (long)len : -1;
}

/* The type follows a field that is a hyphen. */
static const char *type_of(const char *line, const char *end, size_t *ret_len) {
    static const char mark[] = " - ";
    const char *hyphen = memmem(line, (size_t)(end - line), mark, strlen(mark));
    return hyphen != NULL ? field(hyphen + strlen(mark), end, 0, ret_len) : NULL;
}

const char *mounts_shared(const char *mountinfo, const char *path) {
    const char *best_type = NULL;
    size_t best_n = 0;
    long best = -1;
    for (const char *line = mountinfo; *line != '\0';) {
        const char *end = line + strcspn(line, "\n");
        size_t n, n_type = 0;
        const char *point = field(line, end, 4, &n);
        const char *type = type_of(line, end, &n_type);
        long length = type != NULL && n > 0 ? covers(point, n, path) : -1;
        if (length >= 0 && length >= best) { /* of two at one place, the later hides the other */
            best = length;
            best_type = type;
            best_n = n_type;
        }
        line = end + (*end == '\n');
    }
    for (size_t i = 0; best_type != NULL && i < ARRAY_SIZE(shared); i++)
        if (strlen(shared[i].type) == best_n && strncmp(shared[i].type, best_type, best_n) == 0)
            return shared[i].name;
    return NULL;
}
