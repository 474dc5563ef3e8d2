#include "launcher/place/mounts.h"

#include <stdbool.h>
#include <string.h>

#include "base/util.h"

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
    const char *blank = memchr(line, ' ', (size_t)(end - line));
    *ret_len = (size_t)((blank != NULL ? blank : end) - line);
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
