#include "launcher/place/place_files.h"

#include <mntent.h>
#include <string.h>
#include <strings.h>

#include "base/text/parse.h"
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

/* The value of the last line with this parameter, or NULL. *ret_includes: it includes files. */
static const char *last_value(const char *text, const char *name, bool *ret_includes) {
    const char *last = NULL;
    *ret_includes = false;
    for (const char *line = text; *line != '\0'; line = text_next_line(line)) {
        const char *end = line + strcspn(line, "\n"), *at = line + strspn(line, blank);
        *ret_includes |= begins_with(at, "Include");
        while (at < end && *at != '#') { /* a line can have several parameters */
            const char *value = value_at(at, name);
            last = value != NULL ? value : last;
            at += strcspn(at, " \t\r\n");
            at += strspn(at, blank);
        }
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

/* Whether a path is the mount point or below it. */
static bool covers(const char *point, const char *path) {
    size_t n = strlen(point);
    return strcmp(point, "/") == 0
               ? path[0] == '/'
               : strncmp(point, path, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

const char *mounts_shared(FILE *mounts, const char *path) {
    char line[16384];
    struct mntent m;
    const char *name = NULL;
    size_t longest = 0;
    while (getmntent_r(mounts, &m, line, sizeof line) != NULL) {
        size_t n = strlen(m.mnt_dir);
        if (n < longest || !covers(m.mnt_dir, path))
            continue; /* of two at one place, the later hides the other */
        longest = n;
        name = NULL;
        for (size_t i = 0; i < ARRAY_SIZE(shared); i++)
            if (strcmp(shared[i].type, m.mnt_type) == 0)
                name = shared[i].name;
    }
    return name;
}
