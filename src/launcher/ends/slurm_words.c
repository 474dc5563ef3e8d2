#include "launcher/ends/slurm_words.h"

#include <stdio.h>
#include <string.h>

#define WORD_MAX 64

bool slurm_kill_wait(const char *config, uint64_t *ret_ns) {
    unsigned seconds;
    const char *line = config;
    while (line != NULL && strncmp(line, "KillWait ", strlen("KillWait ")) != 0) {
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    if (line == NULL || sscanf(line, "KillWait = %u sec", &seconds) != 1)
        return false;
    *ret_ns = seconds * NS_PER_S;
    return true;
}

/* The value of NAME=value; "": there is none. */
static void read_word(const char *job, const char *name, char ret[WORD_MAX]) {
    const char *at = strstr(job, name);
    size_t n = at != NULL ? strcspn(at + strlen(name), " \n") : 0;
    (void)snprintf(ret, WORD_MAX, "%.*s", (int)MIN2(n, (size_t)WORD_MAX - 1),
                   at != NULL ? at + strlen(name) : "");
}

const char *slurm_end_reason(const char *job) {
    static const struct {
        const char *state, *reason; /* NULL: any */
        const char *text;
    } rows[] = {
        {"TIMEOUT", NULL, "the job has reached its time limit"},
        {NULL, "TimeLimit", "the job has reached its time limit"},
        {"PREEMPTED", NULL, "the job is preempted"},
        {"NODE_FAIL", NULL, "a node of the job has failed"},
        {NULL, "NodeDown", "a node of the job has failed"},
        {"OUT_OF_MEMORY", NULL, "the job is out of memory"},
        {"DEADLINE", NULL, "the job has reached its deadline"},
        {"CANCELLED", NULL, "the job is cancelled"},
    };
    char state[WORD_MAX], reason[WORD_MAX], preempted[WORD_MAX];
    read_word(job, " JobState=", state);
    read_word(job, " Reason=", reason);
    read_word(job, " PreemptTime=", preempted);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if ((rows[i].state == NULL || strcmp(rows[i].state, state) == 0) &&
            (rows[i].reason == NULL || strcmp(rows[i].reason, reason) == 0))
            return rows[i].text;
    if (preempted[0] != '\0' && strcmp(preempted, "None") != 0)
        return "the job is preempted";
    if (strcmp(state, "COMPLETING") == 0) /* the state before is not shown */
        return "the job is cancelled";
    return NULL;
}
