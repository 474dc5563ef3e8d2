#include "launcher/ends/slurm_ask_io.h"

#include <string.h>
#include <unistd.h>

/* Of a large cluster: the configuration has a line for each setting, a job one word for each. */
#define ANSWER_MAX (1 << 20)
#define WORDS_MAX 8

/* In the helper: becomes scontrol. The signals that the helper ignores stay ignored. */
static int exec_scontrol(void *arg) {
    const char *const *words = *(const char *const **)arg;
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

static int become_speaking_scontrol(int fd, void *arg) {
    static const char none[] = "scontrol can't be run (is it on PATH?)";
    bool speaks = dup2(fd, STDOUT_FILENO) >= 0 && dup2(fd, STDERR_FILENO) >= 0;
    int status = speaks ? exec_scontrol(arg) : 1;
    return helper_send(fd, none, strlen(none)) ? status : 1;
}

static int call(struct loop *loop, helper_fn *run, const char *const words[], uint64_t timeout_ns,
                helper_call_fn *fn, void *arg, struct helper_call **ret) {
    struct helper_call_config config = {.name = "muster-scontrol",
                                        .run = run,
                                        .arg = (void *)&words,
                                        .timeout_ns = timeout_ns,
                                        .max_bytes = ANSWER_MAX};
    return helper_call_new(loop, &config, fn, arg, ret);
}

int slurm_ask(struct loop *loop, const char *const words[], uint64_t timeout_ns, helper_call_fn *fn,
              void *arg, struct helper_call **ret) {
    return call(loop, become_scontrol, words, timeout_ns, fn, arg, ret);
}

int slurm_tell(struct loop *loop, const char *const words[], uint64_t timeout_ns,
               helper_call_fn *fn, void *arg, struct helper_call **ret) {
    return call(loop, become_speaking_scontrol, words, timeout_ns, fn, arg, ret);
}
