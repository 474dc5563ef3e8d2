#include "launcher/pmi/pmi1.h"

#include <errno.h>
#include <string.h>

/* What each state expects, and the word of the answer that counts; NULL: none does. */
static const struct {
    const char *answer, *word;
} states[] = {
    [PMI1_INIT] = {"response_to_init", NULL}, [PMI1_NAME] = {"my_kvsname", "kvsname"},
    [PMI1_PUT] = {"put_result", NULL},        [PMI1_BARRIER] = {"barrier_out", NULL},
    [PMI1_GET] = {"get_result", "value"},     [PMI1_FINALIZE] = {"finalize_ack", NULL},
};

/* The value of NAME in "cmd=a NAME=value rc=0"; NULL: it is not there. */
static const char *find(const char *line, const char *name, size_t *ret_len) {
    const size_t n = strlen(name);
    for (const char *at = line; *at != '\0'; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        if (strncmp(at, name, n) == 0 && at[n] == '=') {
            *ret_len = strcspn(at + n + 1, " ");
            return at + n + 1;
        }
    }
    return NULL;
}

static bool is(const char *value, size_t len, const char *text) {
    return value != NULL && strlen(text) == len && memcmp(value, text, len) == 0;
}

static int bad_answer(const struct pmi1 *pmi, struct err *err) {
    return err_set(err, -EPROTO, "its answer is not \"%s\" of PMI-1 as expected",
                   states[pmi->state].answer);
}

/* Checks the answer, and copies its value into *ret, which stays NULL if the state expects none. */
static int read_answer(const struct pmi1 *pmi, char **ret, struct err *err) {
    const char *const word = states[pmi->state].word;
    size_t len, rc_len, value_len = 0;
    const char *const cmd = find(pmi->line, "cmd", &len),
                      *const rc = find(pmi->line, "rc", &rc_len),
                      *const value = word != NULL ? find(pmi->line, word, &value_len) : NULL;
    if (!is(cmd, len, states[pmi->state].answer) || (rc != NULL && !is(rc, rc_len, "0")))
        return bad_answer(pmi, err);
    if (word != NULL &&
        (value_len == 0 || value_len >= (pmi->state == PMI1_NAME ? PMI_RUN_ID_MAX : PMI_CARD_MAX)))
        return bad_answer(pmi, err);
    if (word != NULL)
        *ret = xstrndup(value, value_len);
    return 0;
}

static void get(const struct pmi1 *pmi, struct strbuf *out) {
    strbuf_printf(out, "cmd=get kvsname=%s key=muster-%u\n", pmi->tasks->run_id, pmi->next);
}

void pmi1_begin(struct pmi1 *pmi, struct pmi_tasks *tasks, struct strbuf *out) {
    *pmi = (struct pmi1){.state = PMI1_INIT, .tasks = tasks};
    strbuf_add(out, "cmd=init pmi_version=1 pmi_subversion=1\n");
}

/* value: owned. */
static void advance(struct pmi1 *pmi, char *value, struct strbuf *out) {
    struct pmi_tasks *const tasks = pmi->tasks;
    switch (pmi->state) {
    case PMI1_INIT:
        strbuf_add(out, "cmd=get_my_kvsname\n");
        pmi->state = PMI1_NAME;
        break;
    case PMI1_NAME:
        tasks->run_id = value;
        strbuf_printf(out, "cmd=put kvsname=%s key=muster-%u value=%s\n", value, tasks->rank,
                      tasks->own);
        pmi->state = PMI1_PUT;
        break;
    case PMI1_PUT:
        strbuf_add(out, "cmd=barrier_in\n");
        pmi->state = PMI1_BARRIER;
        break;
    case PMI1_BARRIER:
        tasks->cards = xcalloc(tasks->n, sizeof *tasks->cards);
        get(pmi, out);
        pmi->state = PMI1_GET;
        break;
    case PMI1_GET:
        tasks->cards[pmi->next++] = value;
        if (pmi->next < tasks->n) {
            get(pmi, out);
            break;
        }
        strbuf_add(out, "cmd=finalize\n");
        pmi->state = PMI1_FINALIZE;
        break;
    case PMI1_FINALIZE: pmi->state = PMI1_DONE; break;
    case PMI1_DONE: assert_not_reached();
    }
}

static int take_line(struct pmi1 *pmi, struct strbuf *out, struct err *err) {
    char *value = NULL;
    int r = read_answer(pmi, &value, err);
    if (r == 0)
        advance(pmi, value, out);
    return r;
}

int pmi1_receive(struct pmi1 *pmi, const char *bytes, size_t n, struct strbuf *out,
                 struct err *err) {
    int r = 0;
    for (size_t i = 0; i < n && r == 0 && pmi->state != PMI1_DONE; i++) {
        const bool is_end = bytes[i] == '\n';
        if (pmi->len == sizeof pmi->line || bytes[i] == '\0')
            return bad_answer(pmi, err);
        pmi->line[pmi->len++] = is_end ? '\0' : bytes[i];
        if (is_end) {
            r = take_line(pmi, out, err);
            pmi->len = 0;
        }
    }
    return r;
}
