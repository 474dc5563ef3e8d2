#include "launcher/srun/slurm_ask_io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text/parse.h"
#include "io/file.h"

/* Of a large cluster: the configuration has a line for each setting, a job one word for each. */
#define ANSWER_MAX (1 << 20)
#define WORDS_MAX 8

/* In the helper: becomes scontrol, which without words reads what to do, line by line. */
static int exec_scontrol(const char *const *words) {
    static char name[] = "scontrol";
    char *argv[WORDS_MAX] = {name};
    for (size_t i = 1; i < WORDS_MAX - 1 && words[i - 1] != NULL; i++)
        argv[i] = (char *)(uintptr_t)words[i - 1];
    (void)execvp(argv[0], argv);
    return 1;
}

static int become_scontrol(int fd, void *arg) {
    return dup2(fd, STDOUT_FILENO) >= 0 ? exec_scontrol(arg) : 1;
}

/* The lines become standard input; a pipe could be too short. Standard output is not needed. */
static bool give_lines(const char *lines) {
    int in = file_in_memory("muster-scontrol", lines, strlen(lines)),
        out = open("/dev/null", O_WRONLY | O_CLOEXEC);
    return in >= 0 && out >= 0 && dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0;
}

/* The last line of an answer to a request: scontrol's exit status, or 128 and a signal. */
#define STATUS_LINE "status %d\n"

/* In a child of the helper, which dies with it. */
static void speak(int fd, const char *lines) {
    static const char *const no_words[] = {NULL};
    static const char none[] = "scontrol can't be run (is it on PATH?)\n";
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(fd, STDOUT_FILENO) >= 0 && dup2(fd, STDERR_FILENO) >= 0 && give_lines(lines))
        (void)exec_scontrol(no_words);
    (void)!helper_send(fd, none, strlen(none));
    _exit(127);
}

static int watch_scontrol(int fd, void *arg) {
    char line[32];
    int status = 0;
    pid_t pid = fork();
    if (pid == 0)
        speak(fd, arg);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    int n = snprintf(line, sizeof line, STATUS_LINE,
                     pid < 0               ? 126
                     : WIFSIGNALED(status) ? 128 + WTERMSIG(status)
                                           : WEXITSTATUS(status));
    return helper_send(fd, line, (size_t)n) ? 0 : 1;
}

static int call(struct loop *loop, helper_fn *run, const void *arg_of_run, uint64_t timeout_ns,
                helper_call_fn *fn, void *arg, struct helper_call **ret) {
    struct helper_call_config config = {.name = "muster-scontrol",
                                        .run = run,
                                        .arg = (void *)(uintptr_t)arg_of_run,
                                        .timeout_ns = timeout_ns,
                                        .max_bytes = ANSWER_MAX};
    return helper_call_new(loop, &config, fn, arg, ret);
}

int slurm_ask(struct loop *loop, const char *const words[], uint64_t timeout_ns, helper_call_fn *fn,
              void *arg, struct helper_call **ret) {
    return call(loop, become_scontrol, words, timeout_ns, fn, arg, ret);
}

int slurm_tell(struct loop *loop, const char *lines, helper_call_fn *fn, void *arg,
               struct helper_call **ret) {
    return call(loop, watch_scontrol, lines, SLURM_TELL_NS, fn, arg, ret);
}

/* Where the status line begins: at the start, or behind a line that may have no end. */
static const char *status_line(const char *text, size_t len) {
    static const char word[] = "status ";
    size_t n = strlen(word);
    for (size_t i = len >= n ? len - n + 1 : 0; i-- > 0;)
        if (memcmp(text + i, word, n) == 0)
            return text + i;
    return NULL;
}

bool slurm_told(const struct helper_answer *answer, struct strbuf *ret) {
    uint32_t status;
    const char *line = status_line(answer->data, answer->len);
    _cleanup_(freep) char *number = NULL;
    strbuf_clear(ret);
    if (answer->code != 0 || line == NULL) {
        strbuf_add(ret, answer->code == -EMSGSIZE ? "scontrol prints without end"
                                                  : "scontrol does not end");
        return false;
    }
    number = xstrndup(line + strlen("status "), strcspn(line + strlen("status "), "\n"));
    if (parse_u32(number, &status) == 0 && status == 0)
        return true;
    size_t begin = strspn(answer->data, " \n");
    size_t n = strcspn(answer->data + begin, "\n");
    if (answer->data + begin < line)
        strbuf_add_bytes(ret, answer->data + begin, MIN2(n, (size_t)(line - answer->data) - begin));
    else
        strbuf_printf(ret, "scontrol ended with status %s and printed nothing", number);
    return false;
}
