/* "muster logs": what the workers of a run wrote. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "base/text/parse.h"
#include "base/text/utf8.h"
#include "cli/help/help.h"
#include "cli/jobs/shell_words.h"
#include "cli/logs/logs_io.h"
#include "cli/options/commands.h"

enum {
    LOGS_RANK,
    LOGS_FOLLOW,
    LOGS_TAIL,
    LOGS_STDOUT,
    LOGS_STDERR,
    LOGS_TIMESTAMPS,
    LOGS_GENERATION,
    LOGS_PREFIX,
    LOGS_LOG_DIR
};

static const struct option_def defs[] = {
    [LOGS_RANK] =
        {"rank", "LIST", OPTION_SHORT,
         "show only these global ranks, as in 0-3,7; of one rank alone, lines have no prefix",
         .brief = "only these ranks, as in 0-3,7"},
    [LOGS_FOLLOW] = {"follow", NULL, OPTION_SHORT,
                     "continue with what is written, also after a restart, until the run ends",
                     .letter = 'f', .brief = "continue until the run ends"},
    [LOGS_TAIL] = {"tail", "LINES", OPTION_SHORT,
                   "begin with the last lines of all that would be shown", .letter = 'n',
                   .brief = "begin with the last lines"},
    [LOGS_STDOUT] = {"stdout", NULL, OPTION_SHORT,
                     "show standard output; with --stderr, both, as without either",
                     .brief = "only standard output"},
    [LOGS_STDERR] = {"stderr", NULL, OPTION_SHORT, "show standard error; see --stdout",
                     .brief = "only standard error"},
    [LOGS_TIMESTAMPS] = {"timestamps", NULL, OPTION_SHORT,
                         "begin each line with the time at which it was written, in UTC; \"-\" if "
                         "that is not known",
                         .brief = "begin lines with their time, in UTC"},
    [LOGS_GENERATION] =
        {"generation", "GENERATION", 0,
         "show only this generation, as in 2.3, or the latest; each restart makes a new one",
         .fallback = "all"},
    [LOGS_PREFIX] = {"prefix", "WHEN", 0,
                     "when lines begin with [rankN]: and generations with -- NAME --; auto: unless "
                     "--rank names one rank",
                     .choices = "auto always never", .fallback = "auto"},
    [LOGS_LOG_DIR] = {"log-dir", "DIR", OPTION_SHORT,
                      "where the run's folder is: the --log-dir of muster run",
                      .brief = "where the run's folder is, as in muster run"},
    HELP_ROW(),
    HELP_ALL_ROW,
};

const struct option_set logs_options = {
    .command = "logs",
    .operands = "[JOB...]",
    .about = "Shows what the workers of a job wrote to log files, in the order of time. JOB is a "
             "run id of this machine, or a unique prefix of one, or a folder; without JOB: the "
             "newest run. Several folders, from nodes with local disks, are merged. Output goes to "
             "log files with -r or -t of muster run.",
    .example = "-f --rank 0-3",
    .offer = OFFER_RECENT_RUNS,
    OPTION_DEFS(defs),
};

static int read_view(const struct option_value *values, struct logs_view *ret) {
    struct err err = {0};
    bool out = values[LOGS_STDOUT].times > 0, error = values[LOGS_STDERR].times > 0;
    const char *ranks = values[LOGS_RANK].text, *lines = values[LOGS_TAIL].text;
    const char *prefix = values[LOGS_PREFIX].text, *generation = values[LOGS_GENERATION].text;
    if (generation == NULL)
        generation = defs[LOGS_GENERATION].fallback;
    if (ranks != NULL && rank_set_parse(ranks, &ret->ranks, &err) < 0)
        return usage_error("logs", "%s", err.text);
    ret->lines = UINT64_MAX;
    if (lines != NULL && strcmp(lines, "all") != 0 && parse_u64(lines, &ret->lines) < 0)
        return usage_error("logs", "--tail=%s: must be a number of lines, or all", lines);
    if (strcmp(generation, "all") != 0 && strcmp(generation, "latest") != 0 &&
        !log_is_generation(generation))
        return usage_error("logs", "--generation=%s: must be as in 2.3, or latest, or all",
                           generation);
    ret->generation = generation;
    ret->streams[0] = out || !error;
    ret->streams[1] = error || !out;
    ret->follow = values[LOGS_FOLLOW].times > 0;
    ret->timestamps = values[LOGS_TIMESTAMPS].times > 0;
    ret->prefix = LOGS_PREFIX_AUTO; /* the first of its words */
    if (prefix != NULL)
        ret->prefix += (unsigned)option_choice(&defs[LOGS_PREFIX], prefix);
    return -1;
}

/* The command line is printed with each of the jobs that `job` can mean. */
static int find_failed(int r, const struct logs_found *found, int argc, char **argv,
                       const char *job, const struct err *err) {
    bool several = r == -EEXIST;
    if (several)
        (void)usage_error("logs", "%s", err->text);
    else
        log_error("%s", err->text);
    for (size_t i = 0; several && i < found->n_others; i++) {
        _cleanup_(strbuf_fini) struct strbuf line = {0};
        shell_add_line(&line, argc, argv, job, found->others[i]);
        utf8_clean(line.data, false);
        (void)fprintf(stderr, "  %s\n", line.data);
    }
    return several ? EXIT_USAGE : EXIT_JOB_FAILED;
}

static int show_found(struct logs_view *view, const struct logs_found *found, size_t n) {
    for (size_t i = 0; i < n; i++)
        view->dirs[i] = found[i].dir;
    view->n_dirs = n;
    view->run_id = found[0].run_id;
    if (found[0].generation != NULL)
        view->generation = found[0].generation;
    return show_logs(view);
}

int cmd_logs(int argc, char **argv) {
    struct options_parsed p;
    struct err err = {0};
    const char *runs[LOGS_DIRS_MAX];
    int status = help_or_parse(&logs_options, argc, argv, runs, LOGS_DIRS_MAX, &p);
    if (status >= 0)
        return status;
    struct logs_view view = {0};
    status = read_view(p.values, &view);
    if (status >= 0)
        return status;
    struct logs_found found[LOGS_DIRS_MAX];
    size_t n = 0;
    int r = 0;
    do {
        r = logs_find(runs[n], p.values[LOGS_LOG_DIR].text, &found[n], &err);
        n++;
    } while (r == 0 && n < LOGS_DIRS_MAX && runs[n] != NULL);
    status = r == 0 ? show_found(&view, found, n)
                    : find_failed(r, &found[n - 1], argc, argv, runs[n - 1], &err);
    for (size_t i = 0; i < n; i++)
        logs_found_fini(&found[i]);
    return status;
}
