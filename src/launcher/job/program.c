#include "launcher/job/program.h"

#include <ctype.h>
#include <string.h>

#include "base/hash.h"
#include "base/text/strbuf.h"
#include "base/text/utf8.h"

#define OPTION_SHOWN_MAX 40

/* Includes the NUL, so that the bounds of each text are part of the digest. */
static uint64_t digest_text(uint64_t h, const char *text) {
    return hash_bytes(h, text, strlen(text) + 1);
}

static const char *without_folders(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* "--lr=0.1" and "--lr": 4; "-n3": 2, because the rest can be its value; "trainer.lr=0.1": 10. 0: a
 * word, which is the value of the option before it. */
static size_t name_length(const char *arg) {
    if (arg[0] == '-' && arg[1] == '-')
        return strcspn(arg, "=");
    if (arg[0] == '-')
        return isalpha((unsigned char)arg[1]) ? 2 : 0;
    size_t len = 0;
    while (isalnum((unsigned char)arg[len]) || (arg[len] != '\0' && strchr("_.+~/@-", arg[len])))
        len++;
    return arg[len] == '=' ? len : 0;
}

/* Whether a name before '=' may be shown: it must not look like a secret that happens to end with
 * '='. */
static bool may_show(const char *arg, size_t len) {
    size_t plain = arg[0] == '-' ? len : strspn(arg, "abcdefghijklmnopqrstuvwxyz_.+~");
    return len > 0 && len <= OPTION_SHOWN_MAX && plain >= len;
}

static void show_arg(const char *arg, size_t len, bool *words, struct strbuf *s) {
    if (!may_show(arg, len)) {
        strbuf_add(s, *words ? "" : " ...");
        *words = true;
        return;
    }
    const char *rest = arg + len;
    strbuf_printf(s, " %.*s%s", (int)len, arg,
                  rest[0] == '='    ? "=..."
                  : rest[0] != '\0' ? "..."
                                    : "");
    *words = false;
}

static void add_args(char *const *args, struct rdzv_program *p, struct strbuf *shown) {
    bool words = false; /* the last one shown was "..." */
    for (size_t i = 0; args != NULL && args[i] != NULL; i++) {
        size_t len = name_length(args[i]);
        p->args = digest_text(p->args, args[i]);
        show_arg(args[i], len, &words, shown);
    }
}

/* The user arranges the group, and no other step can have a node of it. */
static bool step_is_all(const struct job_spec *spec) {
    const struct place *p = &spec->place;
    uint32_t agents = place_has_one_agent(spec->nodes) ? p->n_nodes : p->n_tasks;
    return place_is_step(p) && spec->nodes != PLACE_NODES_STEP && spec->endpoint_host != NULL &&
           spec->rdzv.min_nodes == agents && spec->rdzv.max_nodes == agents;
}

void program_of(const struct job_spec *spec, struct rdzv_program *ret) {
    static const char *const how[] = {[JOB_ENTRY_PYTHON] = "python",
                                      [JOB_ENTRY_MODULE] = "python -m",
                                      [JOB_ENTRY_PROGRAM] = "program"};
    _cleanup_(strbuf_fini) struct strbuf shown = {0};
    *ret = (struct rdzv_program){
        .name = HASH_BEGIN, .args = HASH_BEGIN, .max_restarts = spec->rdzv.max_restarts};
    if (spec->script == NULL) {
        strbuf_add(&shown, "muster check");
    } else {
        const char *name =
            spec->entry == JOB_ENTRY_MODULE ? spec->script : without_folders(spec->script);
        ret->name = digest_text(digest_text(ret->name, how[spec->entry]), name);
        if (step_is_all(spec)) {
            ret->name = digest_text(ret->name, spec->place.run_id);
            strbuf_printf(&shown, "Slurm's step %s: ", spec->place.run_id);
        }
        strbuf_printf(&shown, "%s%s", spec->entry == JOB_ENTRY_MODULE ? "-m " : "", name);
        add_args(spec->args, ret, &shown);
    }
    if (shown.len >= sizeof ret->shown)
        memcpy(shown.data + sizeof ret->shown - 4, "...", 4);
    utf8_copy_line(ret->shown, sizeof ret->shown, strbuf_text(&shown));
}
