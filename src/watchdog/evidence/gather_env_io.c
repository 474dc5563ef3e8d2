#include "watchdog/evidence/gather_env_io.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "io/file.h"
#include "io/process/proc.h"

#define ENVIRON_MAX (1u << 20) /* bytes that are searched */

void gather_env_fini(struct gather_env *e) {
    free(e->text);
    envlist_fini(&e->given);
}

void gather_env_read(const struct gather_ask *ask, const struct evidence_worker *w,
                     struct gather_env *ret) {
    char path[PROC_PATH_MAX];
    *ret = (struct gather_env){.text = NULL};
    if (ask->env != NULL)
        (void)ask->env(ask->env_arg, w->local_rank, &ret->given);
    proc_path(path, w->pid, "/environ");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ret->text = xmalloc(ENVIRON_MAX + 1);
    for (ssize_t n = 1; n > 0 && ret->len < ENVIRON_MAX;) {
        n = read(fd, ret->text + ret->len, ENVIRON_MAX - ret->len);
        ret->len += n > 0 ? (size_t)n : 0;
    }
    ret->text[ret->len] = '\0';
    file_close(&fd);
}

const char *gather_env_get(const struct gather_env *e, const char *name) {
    size_t n = strlen(name);
    for (const char *p = e->text; p != NULL && p < e->text + e->len; p += strlen(p) + 1)
        if (strncmp(p, name, n) == 0 && p[n] == '=')
            return p[n + 1] != '\0' ? p + n + 1 : NULL;
    const char *given = envlist_get(&e->given, name);
    return given != NULL && given[0] != '\0' ? given : NULL;
}
