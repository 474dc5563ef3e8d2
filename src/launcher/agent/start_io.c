#include "launcher/agent/agent_io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/text/envlist.h"
#include "base/text/log.h"
#include "base/text/parse.h"
#include "io/file.h"
#include "io/net/addr.h"
#include "io/net/listen.h"
#include "io/net/resolver.h"
#include "io/process/child.h"
#include "launcher/node/python_io.h"
#include "launcher/place/place.h"
#include "launcher/starter/starter_link_io.h"
#include "rendezvous/arbiter/dir/arbiter_dir_io.h"

/* ---- what can be seen to be wrong before the job starts, and would not mend itself ---- */

/* A directory on a server that does not answer so soon may do so later; then the agent waits. */
#define DIR_PATIENCE_NS (3 * NS_PER_S)
#define HEAD_BYTES 256 /* of a file, to see what it is */

static bool is_missing(int r) { return r == -ENOENT || r == -ENOTDIR; }

/* The first bytes as text; false: not readable, or a pipe, which would lack them afterwards. */
static bool read_head(const char *path, char ret[HEAD_BYTES]) {
    struct stat st;
    _cleanup_(file_close) int fd = stat(path, &st) == 0 && S_ISREG(st.st_mode)
                                       ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
                                       : -1;
    ssize_t n = fd < 0 ? -1 : read(fd, ret, HEAD_BYTES - 1);
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

/* Not for options of Python (-c), for ${local_rank}, which only a worker knows, and for a
 * PYTHON_EXEC that may run the script in a container. */
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

/* After "#!" and blanks. *ret stays NULL if there is none, or the file can't be read. */
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
    const char *python = text_ends(program, ".py") ? ", or leave out --no-python" : "";
    if (r == -EACCES && found != NULL)
        return err_set(err, r,
                       "--no-python: %.300s can't be executed: %s; if it is a program, chmod +x "
                       "it%s",
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

int start_check_script(const struct job_spec *spec, char *const *envp, struct err *err) {
    if (spec->script != NULL && spec->entry == JOB_ENTRY_PYTHON)
        return check_script(spec->script, envp, err);
    return spec->script != NULL && spec->entry == JOB_ENTRY_PROGRAM
               ? check_program(spec->script, job_worker_value(spec, envp, "PATH"), err)
               : 0;
}

static int start_check(const struct job_spec *spec, const char *python, char *const *envp,
                       struct err *err) {
    int r = 0;
    if (python != NULL && spec->check == JOB_CHECK_OFF)
        r = check_python(python, err);
    if (r == 0)
        r = start_check_script(spec, envp, err);
    if (r < 0 || spec->arbiter_dir == NULL)
        return r;
    r = arbiter_dir_check(spec->arbiter_dir, spec->run_id, DIR_PATIENCE_NS, err);
    if (r < 0)
        err_prefix(err, spec->nodes == PLACE_NODES_STEP
                            ? "the nodes of this step meet in a directory (with "
                              "--rdzv-backend=c10d at the first of them)"
                            : "--rdzv-endpoint");
    return r;
}

/* ---- the keys of this node ---- */

#define JOB_DIR_NS (10 * NS_PER_S)

bool start_is_local(const struct job_spec *spec) {
    struct addr at;
    if (job_backend(spec)->any_node_leads)
        return false;
    if (spec->endpoint_host == NULL || strcmp(spec->endpoint_host, "localhost") == 0)
        return true;
    return addr_from_literal(spec->endpoint_host, 0, &at) == 0 && addr_is_loopback(&at);
}

/* The first node creates it. While its file system does not answer, another key or munge serves. */
static int load_job_dir(const struct job_spec *spec, struct keyring *ring, struct err *err) {
    uint8_t secret[AUTH_SECRET_BYTES];
    struct err why = {0};
    if (!job_backend(spec)->own_key)
        return 0;
    int r = arbiter_dir_key(spec->arbiter_dir, spec->run_id, false, JOB_DIR_NS, secret, &why);
    if (r == -ETIMEDOUT || r == -EIO || r == -ESTALE) {
        log_warning("%s; the job's folder gives this node no key", why.text);
        return 0;
    }
    if (r < 0)
        return err_set(err, r, "--rdzv-endpoint: %s", why.text);
    r = keyring_add(ring, secret, AUTH_FROM_JOB_DIR, err);
    explicit_bzero(secret, sizeof secret);
    return r;
}

static int find(const struct job_spec *spec, struct keyring *ring, struct err *err) {
    int r = load_job_dir(spec, ring, err);
    return r < 0 ? r : keyring_load_home(ring, KEYRING_HOME_NS, err);
}

/* The keys that were given (NULL: none), or else those that are found, if this node needs any. */
static int start_keys(const struct job_spec *spec, const struct keyring *given,
                      struct keyring **ret, struct err *err) {
    _cleanup_(keyring_freep) struct keyring *ring = NULL;
    int r = keyring_new(&ring, err);
    if (r < 0)
        return r;
    r = keyring_add_all(ring, given, err);
    if (r == 0 && !keyring_is_given(ring) && spec->auth != AUTH_NONE && !start_is_local(spec))
        r = find(spec, ring, err);
    if (r >= 0)
        *ret = TAKE_PTR(ring);
    return r;
}

/* ---- from a job to its exit status ---- */

/* All nodes of a large job can probe at once. The kernel limits this to net.core.somaxconn. */
#define NODE_BACKLOG 4096
static_assert(JOB_ENDPOINT_PORTS_MAX <= LISTEN_LAST_MAX, "all ports of the endpoint");

static bool is_endpoint_port(const struct job_spec *spec, uint16_t port) {
    for (unsigned i = 0; i < spec->n_endpoint_ports; i++)
        if (spec->endpoint_ports[i] == port)
            return true;
    return port == spec->endpoint_port;
}

/* Listens at a port that the kernel chooses, but not at one of the endpoint's, which no leader
 * could use then. Of several ports it takes one if --port-range leaves no other. */
static int listen_beside(const struct addr *at, const struct job_spec *spec, int *ret_fd,
                         struct err *err) {
    struct addr own;
    int taken[JOB_ENDPOINT_PORTS_MAX + 1], r;
    size_t n = 0;
    if (spec->port_low > 0 && spec->n_endpoint_ports > 0) {
        listen_set_last(spec->endpoint_ports, spec->n_endpoint_ports);
        return listen_socket(at, NODE_BACKLOG, ret_fd, err);
    }
    do /* those that it must not have stay taken, so that the next one is another */
        r = listen_socket(at, NODE_BACKLOG, &taken[n], err);
    while (r == 0 && addr_of_socket(taken[n], &own) == 0 &&
           is_endpoint_port(spec, addr_port(&own)) && ++n < ARRAY_SIZE(taken));
    if (r == 0)
        *ret_fd = taken[n];
    while (n > 0)
        (void)close(taken[--n]);
    return r;
}

/* The node's listening socket: on loopback if the job can't leave this machine, else on all
 * addresses, until rdzv_listener_choose() leaves those by which others come. */
static int open_node_listener(const struct job_spec *spec, int *ret_fd, struct err *err) {
    struct addr at;
    const char *host = spec->endpoint_host, *text = "::";
    /* With an arbiter any node may have to lead, so all nodes must be able to reach it. */
    bool any = job_backend(spec)->any_node_leads;
    bool local = !any && (spec->rdzv.max_nodes == 1 || start_is_local(spec));
    if ((any || local) && addr_loopback_is_down())
        return err_set(err, -ENETDOWN, AGENT_NO_LOOPBACK);
    if (local) /* nodes of ::1 come from there, and have no other IPv6 address that is local */
        text = host != NULL && strcmp(host, "::1") == 0 ? host : "127.0.0.1";
    else if (!any && spec->local_addr != NULL && addr_from_literal(spec->local_addr, 0, &at) == 0)
        text = spec->local_addr;
    int r = addr_from_literal(text, 0, &at);
    assert(r == 0);
    r = listen_beside(&at, spec, ret_fd, err);
    if (r == 0 || strcmp(text, "::") != 0)
        return r;
    r = addr_from_literal("0.0.0.0", 0, &at); /* the machine has no IPv6 */
    assert(r == 0);
    return listen_beside(&at, spec, ret_fd, err);
}

/* Until it is known which agent leads, a line among those of other nodes has the node's name. */
static void name_lines(const struct job_spec *spec) {
    static char own[RESOLVE_NAME_MAX + 1];
    if (spec->output == JOB_OUTPUT_OWN)
        return;
    resolve_own_name(own, sizeof own);
    log_set_name(own);
}

/* The python where the job was started: the head's, or that of the environment that is active by
 * its variable alone, as in srun's. malloc'ed; NULL: not known. */
static char *python_at_start(const struct job_spec *spec, char *const *envp) {
    static const char *const names[] = {"VIRTUAL_ENV", "CONDA_PREFIX"};
    const char *heads = env_get(envp, STARTER_PYTHON_ENV), *chosen = env_get(envp, "PYTHON_EXEC");
    if (heads != NULL)
        return xstrdup(heads);
    const bool shared = spec->output != JOB_OUTPUT_OWN;
    for (size_t i = 0; i < ARRAY_SIZE(names) && shared && chosen == NULL; i++) {
        const char *folder = env_get(envp, names[i]);
        if (folder != NULL && folder[0] == '/')
            return xasprintf("%s/bin/python", folder);
    }
    return NULL;
}

/* A virtual environment that this host lacks: the job would run, with other packages. */
static void compare_python(const struct job_spec *spec, const char *python, char *const *envp) {
    _cleanup_(freep) char *there = python_at_start(spec, envp);
    if (there != NULL && python != NULL && strcmp(there, python) != 0 && access(there, X_OK) < 0)
        log_warning(
            "there is no %.300s here, as where the job was started: %.300s runs the workers", there,
            python);
    else if (spec->entry != JOB_ENTRY_PROGRAM && python != NULL &&
             env_get(envp, STARTER_PYTHON_ENV) == NULL) /* else the head has done it */
        python_warn_of_other(python, envp);
    if (spec->entry != JOB_ENTRY_PROGRAM && python != NULL)
        log_info("%s runs the workers", python);
}

/* In the guardian, which talks to nobody. */
static void forget_secrets(void *arg) {
    struct agent_config *agent = arg;
    keyring_clear(agent->given);
    keyring_clear(agent->keys);
    starter_drop_fds(agent->envp);
}

/* -1: there is no process manager whose tasks end with it. That of PBS can be started again. */
static int open_launcher(const struct place *p) {
    return p->launcher_pid > 0 && p->launcher->kind == LAUNCHER_INSIDE
               ? (int)syscall(SYS_pidfd_open, p->launcher_pid, 0)
               : -1;
}

/* Finds Python and the keys, and checks what would not mend itself. */
static int prepare(struct agent_config *agent, char **ret_python, struct err *err) {
    const struct job_spec *spec = agent->spec;
    char *const *envp = agent->envp;
    int r = 0;
    if (spec->entry != JOB_ENTRY_PROGRAM)
        r = python_find(program_invocation_name, envp, ret_python, err);
    else if (spec->check != JOB_CHECK_OFF) /* without it the preflight can't compare PyTorch */
        (void)!python_find(program_invocation_name, envp, ret_python, NULL);
    compare_python(spec, *ret_python, envp);
    if (r == 0)
        r = start_keys(spec, agent->given, &agent->keys, err);
    return r == 0 ? start_check(spec, *ret_python, envp, err) : r;
}

int job_start(const struct job_spec *spec, char *const *envp, struct keyring *given) {
    struct err err = {0};
    struct agent_config agent = {.spec = spec,
                                 .envp = envp,
                                 .given = given,
                                 .node_fd = -1,
                                 .launcher_fd = open_launcher(&spec->place)};
    _cleanup_(freep) char *python = NULL;
    struct guardian_link link = GUARDIAN_LINK_INIT;
    int status = AGENT_EXIT_USAGE;
    name_lines(spec);
    agent_ignore_passed_signals(spec);
    int r = prepare(&agent, &python, &err);
    if (r == 0) {
        status = AGENT_EXIT_FAILED;
        if (spec->port_low > 0)
            listen_set_range(spec->port_low, spec->port_high);
        r = open_node_listener(spec, &agent.node_fd, &err);
    }
    if (r == 0) {
        struct guardian_config guardian = {.listener_fd = agent.node_fd,
                                           .contain = spec->contain,
                                           .on_split = forget_secrets,
                                           .arg = &agent};
        r = guardian_fork(&guardian, &link, &err); /* only the agent returns from this */
    }
    if (r == 0) {
        keyring_keep_from_children(given);
        keyring_keep_from_children(agent.keys);
        agent.python = python;
        agent.link = &link;
        return agent_run(&agent);
    }
    log_error("%s", err.text);
    termination_write(envp, err.text);
    file_close(&agent.node_fd);
    return status;
}
