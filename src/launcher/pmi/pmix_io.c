#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text/envlist.h"
#include "base/text/strbuf.h"
#include "io/clock.h"
#include "io/process/helper_call.h"
#include "launcher/pmi/pmi_io.h"
#include "launcher/pmi/pmix_abi.h"

#define LIBRARY "libpmix.so.2"
#define CARD "muster.card"
/* An answer: the tasks' name, the cards and END, a line each; FAULT and a sentence for the rest. */
#define END "end"
#define FAULT '\1'

#define CALLS(X)                                                                                \
    X(int, PMIx_Init, (struct pmix_process * ret, void *info, size_t n))                        \
    X(int, PMIx_Put, (uint8_t scope, const char *key, struct pmix_text *value))                 \
    X(int, PMIx_Commit, (void))                                                                 \
    X(int, PMIx_Fence_nb,                                                                       \
      (const struct pmix_process *list, size_t n, const void *info, size_t m, pmix_done_fn *fn, \
       void *arg))                                                                              \
    X(int, PMIx_Get,                                                                            \
      (const struct pmix_process *of, const char *key, const void *info, size_t n,              \
       struct pmix_text **ret))                                                                 \
    X(int, PMIx_Finalize, (const void *info, size_t n))                                         \
    X(const char *, PMIx_Error_string, (int status))

struct library {
#define POINTER(type, name, parameters) type(*name) parameters;
    CALLS(POINTER)
};

/* ---- in the child ---- */

struct question {
    char *const *envp;
    const struct pmi_tasks *tasks;
};

#define FAIL(fd, ...) ((void)dprintf(fd, "%c", FAULT), (void)dprintf(fd, __VA_ARGS__), 1)

/* A library that is not the server's is worse than none: the server of Open MPI 5.0.11 complains of
 * that of Debian. So what its mpirun sets comes first. PMIX_PREFIX: where all of it was moved. */
static void *find_library(char *const *envp) {
    static const char *const places[][2] = {{"PMIX_PREFIX", "/lib/openmpi/"},
                                            {"PMIX_PREFIX", "/lib/"},
                                            {"OMPI_LIBDIR_LOC", "/openmpi/"},
                                            {"OMPI_LIBDIR_LOC", "/"}};
    void *library = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(places) && library == NULL; i++) {
        const char *folder = env_get(envp, places[i][0]);
        if (folder == NULL || folder[0] != '/')
            continue;
        _cleanup_(freep) char *path = xasprintf("%s%s" LIBRARY, folder, places[i][1]);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library != NULL ? library : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

static bool load(char *const *envp, struct library *ret) {
    void *library = find_library(envp);
    if (library == NULL)
        return false;
#define FIND(type, name, parameters)                                    \
    if ((*(void **)(void *)&ret->name = dlsym(library, #name)) == NULL) \
        return false;
    CALLS(FIND)
    return true;
}

/* The text of a task. Borrowed: the library's values live as long as this process. */
static const char *get(const struct library *l, struct pmix_process of, uint32_t rank,
                       const char *key, int *ret_code) {
    struct pmix_text *value = NULL;
    of.rank = rank;
    alarm(PMIX_SERVER_S);
    *ret_code = l->PMIx_Get(&of, key, NULL, 0, &value);
    return *ret_code == PMIX_OK && value != NULL && value->type == PMIX_TYPE_STRING
               ? value->data.string
               : NULL;
}

static bool is_late(int code) { return code == PMIX_NONE || code == PMIX_LATE; }

/* Also if this task comes later: Open MPI 4 can end a fence without a task whose earlier connection
 * it counts as lost (openpmix issue 3931). */
static const char *get_card(const struct library *l, struct pmix_process of, uint32_t rank,
                            uint64_t end_ns, int *ret_code) {
    const char *card;
    while ((card = get(l, of, rank, CARD, ret_code)) == NULL && is_late(*ret_code) &&
           clock_now_ns() < end_ns)
        (void)poll(NULL, 0, 100);
    return card;
}

/* Rank 0 has the key in its card. Of the others only the host is needed, which Open MPI 4 forgets
 * when a task that has finished with PMIx asks again. */
static int send_cards(int fd, const struct library *l, const struct pmix_process *me, uint32_t n) {
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    char card[PMI_CARD_MAX];
    int code;
    const uint64_t end_ns = clock_now_ns() + PMIX_TASKS_S * NS_PER_S;
    const bool knows_hosts = get(l, *me, 0, PMIX_KEY_HOSTNAME, &code) != NULL;
    const char *first = get_card(l, *me, 0, end_ns, &code);
    for (uint32_t i = 0; first != NULL && i < n; i++) {
        const char *text = knows_hosts ? get(l, *me, i, PMIX_KEY_HOSTNAME, &code)
                                       : get_card(l, *me, i, end_ns, &code);
        if (text == NULL)
            return FAIL(fd, "PMIx_Get of task %u failed: %s", i, l->PMIx_Error_string(code));
        if (knows_hosts)
            pmi_card_write(text, i == 0 ? pmi_card_key(first) : NULL, card);
        strbuf_printf(&out, "%s\n", knows_hosts ? card : text);
    }
    if (first == NULL)
        return FAIL(fd, "PMIx_Get of task 0 failed: %s", l->PMIx_Error_string(code));
    return helper_send(fd, strbuf_text(&out), out.len) ? 0 : 1;
}

static int publish(const struct library *l, const char *card) {
    struct pmix_text value = {.type = PMIX_TYPE_STRING, .data.string = (char *)(uintptr_t)card};
    int code = l->PMIx_Put(PMIX_TO_ALL, CARD, &value);
    return code == PMIX_OK ? l->PMIx_Commit() : code;
}

/* In a thread of the library. */
static void on_all(int status, void *arg) {
    (void)!helper_send((int)(intptr_t)arg, &status, sizeof status);
}

/* A server that hangs differs from tasks that are late: every second it is asked for a value of the
 * job that it does not have, which it answers without another process. */
static int wait_for_all(const struct library *l, const struct pmix_process *me) {
    int ends[2], ignored, code;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return PMIX_FAILED;
    alarm(PMIX_SERVER_S);
    code = l->PMIx_Fence_nb(NULL, 0, NULL, 0, on_all, (void *)(intptr_t)ends[1]);
    if (code != PMIX_OK)
        return code == PMIX_DONE_ALREADY ? PMIX_OK : code;
    for (uint32_t s = 0; s < PMIX_TASKS_S; s++) {
        if (poll(&(struct pollfd){.fd = ends[0], .events = POLLIN}, 1, 1000) > 0)
            return read(ends[0], &code, sizeof code) == sizeof code ? code : PMIX_FAILED;
        (void)get(l, *me, me->rank, PMIX_KEY_NONE, &ignored);
    }
    return PMIX_LATE;
}

/* Whatever hangs, SIGALRM ends this process. */
static int ask(int fd, void *arg) {
    const struct question *q = arg;
    struct library l = {0};
    struct pmix_process me = {0};
    (void)signal(SIGALRM, SIG_DFL);
    alarm(PMIX_SERVER_S);
    if (!load(q->envp, &l))
        return FAIL(fd,
                    "the %u tasks find each other by PMIx, but %.90s: install " LIBRARY
                    " (Debian: libpmix2), or give --nnodes and --rdzv-endpoint=HOST:PORT",
                    q->tasks->n, dlerror());
    int code = l.PMIx_Init(&me, NULL, 0);
    if (code == PMIX_OK)
        code = publish(&l, q->tasks->own);
    if (code != PMIX_OK)
        return FAIL(fd,
                    "the PMIx server of this task (PMIX_NAMESPACE) does not answer: %s; give "
                    "--standalone if it is of another job",
                    l.PMIx_Error_string(code));
    (void)dprintf(fd, "%.255s\n", me.nspace);
    code = wait_for_all(&l, &me);
    if (code == PMIX_LATE)
        return FAIL(fd,
                    "not all of the %u tasks have asked the PMIx server within %u s; each must run "
                    "the same muster run, or give --standalone",
                    q->tasks->n, PMIX_TASKS_S);
    if (code != PMIX_OK)
        return FAIL(fd, "waiting for all tasks by PMIx failed: %s", l.PMIx_Error_string(code));
    int status = send_cards(fd, &l, &me, q->tasks->n);
    if (status == 0)
        (void)wait_for_all(&l, &me); /* who has all cards needs no other task */
    alarm(PMIX_SERVER_S);
    (void)l.PMIx_Finalize(NULL, 0);
    return status == 0 && helper_send(fd, END, strlen(END)) ? 0 : 1;
}

/* ---- in the process that asks ---- */

/* A copy of the next line; NULL: there is none that ends. */
static char *next_line(const char **at) {
    const char *line = *at, *end = strchr(line, '\n');
    if (end == NULL)
        return NULL;
    *at = end + 1;
    return xstrndup(line, (size_t)(end - line));
}

/* False: it is not whole. */
static bool read_answer(const char *text, struct pmi_tasks *tasks) {
    tasks->run_id = next_line(&text);
    tasks->cards = xcalloc(tasks->n, sizeof *tasks->cards);
    for (uint32_t i = 0; i < tasks->n; i++)
        if ((tasks->cards[i] = next_line(&text)) == NULL)
            return false;
    return strcmp(text, END) == 0;
}

static int explain(const char *text, uint64_t took_ns, struct err *err) {
    const char *fault = strchr(text, FAULT);
    if (fault != NULL)
        return err_set(err, -EPROTO, "%s", fault + 1);
    if (took_ns >= PMIX_SERVER_S * NS_PER_S)
        return err_set(err, -ETIMEDOUT, "the PMIx server of this task did not answer in %u s",
                       PMIX_SERVER_S);
    return err_set(err, -EIO, "the process that asked the PMIx server crashed in " LIBRARY);
}

static bool has_server(char *const *envp) {
    bool has_uri = false;
    for (char *const *e = envp; *e != NULL; e++)
        has_uri |= strncmp(*e, "PMIX_SERVER_URI", strlen("PMIX_SERVER_URI")) == 0;
    return has_uri && env_get(envp, "PMIX_NAMESPACE") != NULL && env_get(envp, "PMIX_RANK") != NULL;
}

int pmix_read(char *const *envp, struct pmi_tasks *tasks, struct err *err) {
    if (!has_server(envp))
        return -ENOENT;
    struct helper_call_config config = {.name = "muster-pmix",
                                        .run = ask,
                                        .arg = &(struct question){envp, tasks},
                                        .timeout_ns = 3 * PMIX_TASKS_S * NS_PER_S,
                                        .max_bytes = ((size_t)tasks->n + 2) * PMI_CARD_MAX};
    struct helper_answer answer;
    struct helper_call *call;
    const uint64_t begin_ns = clock_now_ns();
    int r = helper_call_new(NULL, &config, NULL, NULL, &call);
    if (r < 0)
        return err_set(err, r, "can't ask the PMIx server: %s", helper_call_why(r));
    helper_call_wait(call, &answer);
    r = read_answer(answer.data, tasks) ? 0 : explain(answer.data, clock_now_ns() - begin_ns, err);
    explicit_bzero((char *)(uintptr_t)answer.data, answer.len); /* it has a key */
    helper_call_free(call);
    return r;
}
