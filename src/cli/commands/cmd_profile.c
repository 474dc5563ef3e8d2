/* "muster profile": where the time of a job goes, and which rank the others wait for. */
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/log.h"
#include "base/text/parse.h"
#include "cli/jobs/operate_io.h"
#include "cli/options/commands.h"
#include "cli/profile/profile_view.h"
#include "io/file.h"

enum { PROFILE_SECONDS = OPERATE_OWN, PROFILE_RATE, PROFILE_RANK, PROFILE_OUTPUT, PROFILE_JSON };

static const struct option_def defs[] = {
    OPERATE_ROWS,
    [PROFILE_SECONDS] = {"seconds", "N", OPTION_SHORT,
                         "how long to take samples, 1 to 600 seconds; a rank is called late after "
                         "3 s at the earliest",
                         .brief = "how long to take samples, 1 to 600 (10)", .fallback = "10"},
    [PROFILE_RATE] = {"rate", "HZ", OPTION_SHORT,
                      "samples a second of each rank, 0.1 to 100; 20 of 8 ranks cost less than 2 "
                      "percent of a core",
                      .brief = "samples a second of each rank, 0.1 to 100 (20)", .fallback = "20"},
    [PROFILE_RANK] =
        {"rank", "LIST", OPTION_SHORT,
         "show only the rows and pictures of these ranks, such as 0-3,7; all ranks are compared",
         .brief = "only these ranks, such as 0-3,7"},
    [PROFILE_OUTPUT] = {"output", "FILE", OPTION_SHORT,
                        "also write a file, by the end of its name: .svg, a flame graph of all "
                        "ranks; .strip.svg, each rank over time; .speedscope.json, for "
                        "speedscope.app; .txt, the text",
                        .brief = "also write a .svg, .strip.svg, .speedscope.json"},
    [PROFILE_JSON] = {"json", NULL, OPTION_SHORT,
                      "print one JSON object in one line instead of the text",
                      .brief = "print one JSON object, for programs"},
};

const struct option_set profile_options = {
    .command = "profile",
    .operands = "[JOB]",
    .about = "Shows where the time of a job goes, and which rank the others wait for, from samples "
             "of all its ranks. No worker is stopped, and the script needs no change." JOB_IS,
    .example = "--seconds 20 --output job.svg",
    .offer = OFFER_RUN_IDS,
    OPTION_DEFS(defs),
};

/* A command line that was read. */
struct asked {
    struct operation op;
    struct command command;
    struct rank_set ranks;
    const char *output;
    const struct profile_form *form; /* of the output; NULL: none */
    bool json;
};

/* ---- the answer ---- */

/* Nodes whose answer is missing get a reason in the view. */
static void merge(const struct operator_stacks *answer, struct profile *job,
                  struct profile_view *view) {
    view->n_nodes = answer->n;
    view->world_size = answer->nodes[0].head.world_size;
    view->missing = xcalloc(answer->n, sizeof *view->missing);
    for (uint32_t i = 0; i < answer->n; i++) {
        const struct operator_stacks_node *from = &answer->nodes[i];
        struct err err = {0};
        struct profile_missing *missing = &view->missing[view->n_missing];
        *missing = (struct profile_missing){.node = from->head.name};
        if (from->evidence == NULL)
            (void)snprintf(missing->why, sizeof missing->why, "%s", from->head.missing);
        else if (profile_read(from->evidence, from->len, job, &err) < 0)
            (void)snprintf(missing->why, sizeof missing->why, "%.150s", err.text);
        else
            continue;
        view->n_missing++;
    }
}

static bool write_output(const struct asked *a, const struct profile_view *view) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    a->form->write(view, &text);
    int r = file_write_atomic(a->output, strbuf_text(&text), text.len);
    if (r < 0)
        log_error("can't write %s: %s", a->output, strerror(-r));
    return r == 0;
}

static bool has_any(const struct rank_set *ranks, uint32_t world_size) {
    for (uint32_t r = 0; r < world_size; r++)
        if (rank_set_has(ranks, r))
            return true;
    return false;
}

static int show(void *arg, const struct operator_reply *reply) {
    const struct asked *a = arg;
    _cleanup_(profile_fini) struct profile job = {0};
    _cleanup_(profile_findings_fini) struct profile_findings findings = {0};
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct profile_view view = {
        .run_id = reply->run_id, .profile = &job, .findings = &findings, .ranks = &a->ranks};
    uint32_t world_size = reply->stacks.nodes[0].head.world_size;
    if (!has_any(&a->ranks, world_size)) {
        log_error("none of these ranks runs: the job has ranks 0 to %" PRIu32, world_size - 1);
        return EXIT_JOB_FAILED;
    }
    merge(&reply->stacks, &job, &view);
    profile_infer(&job, &findings);
    if (a->json)
        profile_json(&view, &text);
    else
        profile_text(&view, &text);
    int status = print_text(&text);
    if ((a->form != NULL && !write_output(a, &view)) || view.n_missing > 0)
        status = EXIT_JOB_FAILED;
    free(view.missing);
    return status;
}

/* ---- the command line ---- */

static int read_output(struct asked *a) {
    if (a->output == NULL)
        return -1;
    a->form = profile_form_of(a->output);
    if (a->form == NULL)
        return usage_error("profile",
                           "--output=%s: the name must end with .svg, .strip.svg, "
                           ".speedscope.json or .txt",
                           a->output);
    _cleanup_(freep) char *copy = xstrdup(a->output);
    struct stat at;
    if (stat(a->output, &at) == 0 && S_ISDIR(at.st_mode))
        errno = EISDIR;
    else if (access(dirname(copy), W_OK) == 0)
        return -1;
    log_error("can't write %s: %s", a->output, strerror(errno));
    return EXIT_JOB_FAILED;
}

static int read_line(int argc, char **argv, struct asked *a) {
    struct err err = {0};
    double rate = 0;
    int status = operation_read(&profile_options, argc, argv, 1, OPERATE_TIMEOUT_MAX_S, &a->op);
    if (status >= 0)
        return status;
    const struct option_value *values = a->op.parsed.values;
    struct command *c = &a->command;
    c->kind = COMMAND_STACKS;
    const char *seconds = values[PROFILE_SECONDS].text, *hz = values[PROFILE_RATE].text;
    if (parse_seconds_ns(seconds != NULL ? seconds : "10", &c->timeout_ns) != 0 ||
        c->timeout_ns < NS_PER_S || c->timeout_ns > RDZV_PROFILE_MAX_NS)
        return usage_error("profile", "--seconds=%s: must be a number from 1 to 600", seconds);
    if (parse_double(hz != NULL ? hz : "20", &rate) != 0 || rate < 0.1 || rate > 100)
        return usage_error("profile", "--rate=%s: must be a number from 0.1 to 100", hz);
    c->period_ns = (uint64_t)((double)NS_PER_S / rate);
    const char *list = values[PROFILE_RANK].text;
    if (list != NULL && rank_set_parse(list, &a->ranks, &err) < 0)
        return usage_error("profile", "%s", err.text);
    a->output = values[PROFILE_OUTPUT].text;
    a->json = values[PROFILE_JSON].times > 0;
    a->op.place.endpoint = a->op.operands[0];
    a->op.place.all_users = true;
    return read_output(a);
}

int cmd_profile(int argc, char **argv) {
    struct asked a = {0};
    int status = read_line(argc, argv, &a);
    return status >= 0 ? status : operation_run(&a.op, &a.command, show, &a);
}
