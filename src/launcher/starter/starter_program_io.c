#include "launcher/starter/starter_program_io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/envlist.h"
#include "base/text/log.h"
#include "base/text/strbuf.h"
#include "io/process/child.h"

int starter_program(const char *argv0, char *const *envp, char **ret, struct err *err) {
    _cleanup_(freep) char *found = NULL;
    int r = child_find_program(argv0, env_get(envp, "PATH"), &found);
    if (r < 0)
        return err_set(err, r, "can't find the program %s, which is to run on all nodes: %s", argv0,
                       strerror(-r));
    if (found[0] == '/') {
        *ret = TAKE_PTR(found);
        return 0;
    }
    _cleanup_(freep) char *here = getcwd(NULL, 0);
    if (here == NULL)
        return err_set(err, -errno, "can't find out the working folder: %s", strerror(errno));
    *ret = xasprintf("%s/%s", here, found);
    return 0;
}

int starter_real_program(const char *argv0, char *const *envp, char **ret, struct err *err) {
    _cleanup_(freep) char *named = NULL;
    int r = starter_program(argv0, envp, &named, err);
    if (r < 0)
        return r;
    char *real =
        strcmp(strrchr(named, '/'), "/torchrun") == 0 ? realpath(named, NULL) : TAKE_PTR(named);
    if (real == NULL)
        return err_set(err, -errno, "can't find the program behind %s: %s", named, strerror(errno));
    *ret = real;
    return 0;
}

char *starter_program_word(const char *argv0, char *const *envp) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+,:@-";
    struct err unused = {0};
    char *path = NULL;
    if (starter_real_program(argv0, envp, &path, &unused) == 0 && path[strspn(path, plain)] == '\0')
        return path;
    free(path);
    return xstrdup("muster");
}

char *starter_folder(char *const *envp) {
    struct stat named, here;
    const char *pwd = env_get(envp, "PWD");
    if (pwd != NULL && pwd[0] == '/' && stat(pwd, &named) == 0 && stat(".", &here) == 0 &&
        named.st_dev == here.st_dev && named.st_ino == here.st_ino)
        return xstrdup(pwd);
    return getcwd(NULL, 0);
}

void starter_log_command(char *const *argv) {
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    for (size_t i = 0; argv[i] != NULL; i++)
        strbuf_printf(&line, "%s%s", i > 0 ? " " : "", argv[i]);
    log_info("%s", strbuf_text(&line));
}
