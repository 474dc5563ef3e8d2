#include "launcher/agent/start_check_io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/envlist.h"
#include "io/process/child.h"
#include "rendezvous/arbiter/dir/arbiter_dir_io.h"

/* A directory on a server that does not answer so soon may do so later; then the agent waits. */
#define DIR_PATIENCE_NS (3 * NS_PER_S)
#define HEAD_BYTES 256 /* of a file, to see what it is */

static bool is_missing(int r) { return r == -ENOENT || r == -ENOTDIR; }

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* The first bytes of a file, as text; false: it can't be read, or is a pipe, in which they would be
 * missing afterwards. */
static bool read_head(const char *path, char ret[HEAD_BYTES]) {
    struct stat st;
    int fd = stat(path, &st) == 0 && S_ISREG(st.st_mode)
                 ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
                 : -1;
    if (fd < 0)
        return false;
    ssize_t n = read(fd, ret, HEAD_BYTES - 1);
    (void)close(fd);
    ret[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* Without --no-python a program would be a script of Python's with a strange error. */
static int check_not_binary(const char *script, struct err *err) {
    char head[HEAD_BYTES];
    return read_head(script, head) && strncmp(head, "\177ELF", 4) == 0
               ? err_set(err, -ENOEXEC,
                         "SCRIPT %.300s is a program, not a Python script; write --no-python "
                         "before it",
                         script)
               : 0;
}

/* For those who are used to mpirun or srun. */
static const char *program_hint(const char *script, char *const *envp) {
    _cleanup_(freep) char *found = NULL;
    if (strchr(script, '/') != NULL ||
        child_find_program(script, env_get(envp, "PATH"), &found) < 0)
        return "";
    return strncmp(script, "python", strlen("python")) == 0
               ? "; leave it out: muster runs SCRIPT with Python"
               : "; if you mean the program on PATH, write --no-python before it";
}

/* -c and the like are options of Python, ${local_rank} is a name that only a worker knows, and a
 * PYTHON_EXEC of the user's may run the script in a container of its own. */
static int check_script(const char *script, char *const *envp, struct err *err) {
    const char *chosen = env_get(envp, "PYTHON_EXEC");
    if (script[0] == '-' || strchr(script, '$') != NULL || (chosen != NULL && chosen[0] != '\0'))
        return 0;
    if (access(script, R_OK) == 0)
        return check_not_binary(script, err);
    int r = -errno;
    char cwd[512];
    if (is_missing(r) && script[0] != '/' && getcwd(cwd, sizeof cwd) != NULL)
        return err_set(err, r, "SCRIPT %.300s: no such file in %.300s%s", script, cwd,
                       program_hint(script, envp));
    if (is_missing(r))
        return err_set(err, r, "SCRIPT %.300s: %s", script, strerror(-r));
    return r == -EACCES ? err_set(err, r, "SCRIPT %.300s can't be read: %s", script, strerror(-r))
                        : 0;
}

/* As the kernel reads it: after "#!" and blanks. *ret stays NULL if the file is no script, or can't
 * be read, which a program need not be. */
static void interpreter_of(const char *path, char **ret) {
    char head[HEAD_BYTES];
    if (!read_head(path, head) || head[0] != '#' || head[1] != '!')
        return;
    char *name = head + 2 + strspn(head + 2, " \t");
    size_t len = strcspn(name, " \t\n");
    if (len > 0 && name[len] != '\0') /* else the name may be longer */
        *ret = xstrndup(name, len);
}

/* A script whose first line names no program. */
static int check_first_line(const char *path, struct err *err) {
    _cleanup_(freep) char *name = NULL;
    interpreter_of(path, &name);
    int r = name != NULL ? child_check_program(name) : 0;
    if (!is_missing(r) && r != -EACCES)
        return 0;
    size_t len = strlen(name);
    if (name[len - 1] == '\r')
        return err_set(err, r,
                       "--no-python: the first line of %.300s ends as on Windows, so its "
                       "interpreter is not found; run dos2unix on it",
                       path);
    return err_set(err, r, "--no-python: %.300s can't be executed: its first line names %.200s: %s",
                   path, name, strerror(-r));
}

static int check_program(const char *program, const char *path, struct err *err) {
    _cleanup_(freep) char *found = NULL;
    int r = child_find_program(program, path, &found);
    if (r == 0)
        r = child_check_program(found);
    if (r == 0)
        return check_first_line(found, err);
    const char *python = ends_with(program, ".py") ? ", or leave out --no-python" : "";
    if (r == -EACCES && found != NULL)
        return err_set(err, r,
                       "--no-python: %.300s can't be executed: %s; is it a file, and may you "
                       "execute it? (chmod +x%s)",
                       found, strerror(-r), python);
    if (is_missing(r) && strchr(program, '/') != NULL)
        return err_set(err, r, "--no-python: %.300s: %s", program, strerror(-r));
    if (is_missing(r) || r == -EACCES)
        return err_set(err, r,
                       "--no-python: there is no program %.200s on PATH%s; write ./%.200s for one "
                       "in this folder%s",
                       program, r == -EACCES ? " that you may execute" : "", program, python);
    return 0;
}

static int check_python(const char *python, struct err *err) {
    int r = child_check_program(python);
    return is_missing(r) || r == -EACCES
               ? err_set(err, r,
                         "the Python interpreter %.300s can't be executed: %s; set "
                         "PYTHON_EXEC to another",
                         python, strerror(-r))
               : 0;
}

/* PATH as the worker will have it. */
static const char *path_of(const struct job_spec *spec, char *const *envp) {
    const char *own = spec->env != NULL ? env_get(spec->env, "PATH") : NULL;
    return own != NULL ? own : env_get(envp, "PATH");
}

int start_check(const struct job_spec *spec, const char *python, char *const *envp,
                struct err *err) {
    int r = 0;
    if (python != NULL && !spec->check_only)
        r = check_python(python, err);
    if (r == 0 && spec->script != NULL && spec->entry == JOB_ENTRY_PYTHON)
        r = check_script(spec->script, envp, err);
    if (r == 0 && spec->script != NULL && spec->entry == JOB_ENTRY_PROGRAM)
        r = check_program(spec->script, path_of(spec, envp), err);
    if (r < 0 || spec->arbiter_dir == NULL)
        return r;
    r = arbiter_dir_check(spec->arbiter_dir, spec->run_id, DIR_PATIENCE_NS, err);
    if (r < 0)
        err_prefix(err, spec->step_is_group ? "the nodes of this step meet in a directory (with "
                                              "--rdzv-backend=c10d at the first of them)"
                                            : "--rdzv-endpoint");
    return r;
}
