#include "launcher/node/python_io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/envlist.h"
#include "base/text/log.h"
#include "io/process/child.h"

/* The folder of a path, without the '/' at its end; malloc'ed. */
static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == path ? xstrdup("/") : xasprintf("%.*s", (int)(slash - path), path);
}

/* Python's venv, virtualenv and uv write pyvenv.cfg; conda, mamba and pixi keep conda-meta. */
static bool in_environment(const char *python) {
    static const char *const marks[] = {"pyvenv.cfg", "conda-meta"};
    _cleanup_(freep) char *folder = folder_of(python);
    for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
        _cleanup_(freep) char *mark = xasprintf("%s/../%s", folder, marks[i]);
        if (access(mark, F_OK) == 0)
            return true;
    }
    return false;
}

/* NULL: none. path: folders, as PATH's. */
static char *python_on(const char *path) {
    char *found = NULL;
    if (child_find_program("python3", path, &found) == 0 ||
        child_find_program("python", path, &found) == 0)
        return found;
    return NULL;
}

static char *python_beside(const char *program) {
    _cleanup_(freep) char *folder = folder_of(program);
    return strchr(folder, ':') == NULL ? python_on(folder) : NULL;
}

/* Our own file as it was called. NULL: unknown. */
static char *own_path(const char *argv0, const char *path) {
    _cleanup_(freep) char *found = NULL;
    if (argv0 == NULL || child_find_program(argv0, path, &found) < 0)
        return NULL;
    if (found[0] == '/')
        return TAKE_PTR(found);
    _cleanup_(freep) char *here = getcwd(NULL, 0); /* a worker may have another one */
    return here != NULL ? xasprintf("%s/%s", here, found) : NULL;
}

/* An environment's python goes before one that belongs to none: so a muster of the system serves
 * the environment that is active, and a link to an environment's muster its own. */
static char *choose(char *candidates[3]) {
    for (size_t i = 0; i < 3; i++)
        if (candidates[i] != NULL && in_environment(candidates[i]))
            return TAKE_PTR(candidates[i]);
    for (size_t i = 0; i < 3; i++)
        if (candidates[i] != NULL)
            return TAKE_PTR(candidates[i]);
    return NULL;
}

/* Returns false also if one of them can't be read. */
static bool is_same(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

void python_warn_of_other(const char *python, char *const *envp) {
    static const char *const names[] = {"VIRTUAL_ENV", "CONDA_PREFIX"};
    _cleanup_(freep) char *used = folder_of(python);
    const char *chosen = env_get(envp, "PYTHON_EXEC"), *name = NULL;
    if (chosen != NULL && chosen[0] != '\0')
        return;
    for (size_t i = ARRAY_SIZE(names); i-- > 0;) {
        const char *folder = env_get(envp, names[i]);
        _cleanup_(freep) char *bin = xasprintf("%s/bin", folder == NULL ? "" : folder);
        if (folder == NULL || folder[0] != '/' || access(bin, F_OK) < 0)
            continue;
        if (is_same(bin, used))
            return;
        name = names[i];
    }
    if (name != NULL)
        log_warning("%s is %.300s, but %.300s runs the workers; PYTHON_EXEC chooses another", name,
                    env_get(envp, name), python);
}

int python_find(const char *argv0, char *const *envp, char **ret, struct err *err) {
    const char *path = env_get(envp, "PATH");
    const char *chosen = env_get(envp, "PYTHON_EXEC");
    if (chosen != NULL && chosen[0] != '\0') {
        int r = child_find_program(chosen, path, ret);
        if (r < 0)
            return err_set(err, r, "PYTHON_EXEC=%s can't be run: %s", chosen, strerror(-r));
        return 0;
    }
    _cleanup_(freep) char *own = own_path(argv0, path);
    _cleanup_(freep) char *target = own != NULL ? realpath(own, NULL) : NULL;
    char *candidates[3] = {
        own != NULL ? python_beside(own) : NULL,
        target != NULL && strcmp(target, own) != 0 ? python_beside(target) : NULL,
        python_on(path),
    };
    *ret = choose(candidates);
    for (size_t i = 0; i < ARRAY_SIZE(candidates); i++)
        free(candidates[i]);
    if (*ret != NULL)
        return 0;
    return err_set(err, -ENOENT,
                   "no python3 or python on PATH or beside muster; set PYTHON_EXEC or use "
                   "--no-python");
}
