#include "launcher/ends/slurm_ask_io.h"

#include <unistd.h>

/* Of a large cluster: the configuration has a line for each setting, a job one word for each. */
#define ANSWER_MAX (1 << 20)
#define WORDS_MAX 8

/* In the helper: becomes scontrol. The signals that the helper ignores stay ignored. */
static int become_scontrol(int fd, void *arg) {
    const char *const *words = *(const char *const **)arg;
    static char name[] = "scontrol";
    char *argv[WORDS_MAX] = {name};
    for (size_t i = 1; i < WORDS_MAX - 1 && words[i - 1] != NULL; i++)
        argv[i] = (char *)(uintptr_t)words[i - 1];
    if (dup2(fd, STDOUT_FILENO) >= 0)
        (void)execvp(argv[0], argv);
    return 1;
}

int slurm_ask(struct loop *loop, const char *const words[], uint64_t timeout_ns, helper_call_fn *fn,
              void *arg, struct helper_call **ret) {
    struct helper_call_config config = {.name = "muster-scontrol",
                                        .run = become_scontrol,
                                        .arg = (void *)&words,
                                        .timeout_ns = timeout_ns,
                                        .max_bytes = ANSWER_MAX};
    return helper_call_new(loop, &config, fn, arg, ret);
}
