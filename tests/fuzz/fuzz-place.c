/* The nearest launcher's process in the first line (behind "!", no process is hidden), then lines as the environment, and
 * behind an empty line the text of any file that a variable names: either an error with a sentence, or a place whose numbers
 * and names fit together. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/hosts/hosts.h"
#include "launcher/place/place.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define VARIABLES_MAX 64

struct input {
    const char *ancestor, *file;
    bool sees_all;
};

static void check(bool holds) {
    if (!holds)
        abort();
}

static void read_facts(void *arg, struct place_facts *ret) {
    const struct input *in = arg;
    ret->ancestor = in->ancestor;
    ret->sees_all = in->sees_all;
}

static char *read_file(void *arg, const char *path) {
    const struct input *in = arg;
    check(path != NULL);
    return in->file != NULL ? xstrdup(in->file) : NULL;
}

static void check_place(const struct place *p) {
    const bool is_group = place_is_group(p), is_alloc = place_is_alloc(p);
    if (p->launcher == NULL)
        return;
    check(!(is_group && is_alloc) && p->run_id[0] != '\0' && strlen(p->run_id) < PLACE_RUN_ID_MAX);
    for (const char *c = p->run_id; *c != '\0'; c++)
        check((unsigned char)*c > ' ' && *c != 0x7f);
    if (is_group)
        check(p->node_id < p->n_nodes && p->proc_id < p->n_tasks && p->from.n_nodes != NULL);
    if (p->launcher->kind == LAUNCHER_ALLOC)
        check(p->job_nodes >= 1 && p->job_nodes <= HOSTS_MAX && p->job_nodelist != NULL && p->job_nodelist[0] != '\0');
    check(!p->nproc_is_gpus || p->nproc > 0);
    check(p->first_host == NULL || p->first_host[0] != '\0');
}

/* Ends the line at *at; *at is then the next one. */
static char *take_line(char **at) {
    char *line = *at, *end = line + strcspn(line, "\n");
    *at = end + (*end == '\n');
    *end = '\0';
    return line;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *envp[VARIABLES_MAX + 1] = {NULL};
    struct place p = {0};
    struct err err = {0};
    if (size > 65536)
        return 0;
    char *text = xmalloc(size + 1), *at = text;
    memcpy(text, data, size);
    text[size] = '\0';
    const char *ancestor = take_line(&at);
    struct input in = {.sees_all = ancestor[0] == '!'};
    ancestor += in.sees_all;
    in.ancestor = ancestor[0] != '\0' ? ancestor : NULL;
    for (size_t i = 0; i < VARIABLES_MAX && *at != '\0' && *at != '\n'; i++)
        envp[i] = take_line(&at);
    in.file = *at == '\n' ? at + 1 : NULL;
    const struct place_probes probes = {.facts = read_facts, .file = read_file, .arg = &in};
    if (place_read(envp, &probes, &p, &err) < 0)
        check(err.text[0] != '\0');
    else
        check_place(&p);
    place_fini(&p);
    free(text);
    return 0;
}
