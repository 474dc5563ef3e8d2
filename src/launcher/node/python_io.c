#include "launcher/node/python_io.h"

#include <errno.h>
#include <string.h>

#include "base/text/envlist.h"
#include "io/process/child.h"

int python_find(char *const *envp, char **ret, struct err *err) {
    const char *path = env_get(envp, "PATH");
    const char *chosen = env_get(envp, "PYTHON_EXEC");
    if (chosen != NULL && chosen[0] != '\0') {
        int r = child_find_program(chosen, path, ret);
        if (r < 0)
            return err_set(err, r, "PYTHON_EXEC=%s can't be run: %s", chosen, strerror(-r));
        return 0;
    }
    if (child_find_program("python3", path, ret) == 0 ||
        child_find_program("python", path, ret) == 0)
        return 0;
    return err_set(err, -ENOENT,
                   "no python3 or python on PATH; set PYTHON_EXEC or use --no-python");
}
