#include "cli/logs/show_logs_io.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text/log.h"
#include "cli/logs/find_logs_io.h"
#include "cli/options/commands.h"
#include "io/clock.h"
#include "launcher/output/logdir_io.h"

#define OUTPUT_BYTES ((size_t)256 * 1024)
/* While it follows: how often it looks for more; at least as long as LOOK_TIMES looks take. */
#define LOOK_MS 200
#define LOOK_TIMES 5
#define QUIET_NS (1 * NS_PER_S) /* then what is there of a line is shown */

struct show {
    const struct logs_view *view;
    struct log_tree tree;
    bool prefixed;
    const struct log_source *open;           /* its line has no newline yet; NULL: none */
    const struct log_generation *generation; /* whose lines are merged now */
    bool last;                               /* and nothing more will come */
    const char *shown;                       /* of which a line was shown last; NULL: none */
    uint64_t skip;                           /* lines that are not shown */
    bool skipping;                           /* this line */
    bool left;                               /* the reader has gone, or output failed */
};

/* ---- lines ---- */

static void print_time(uint64_t ns) {
    struct tm tm;
    char text[32] = "-";
    time_t s = (time_t)(ns / NS_PER_S);
    if (ns > 0 && gmtime_r(&s, &tm) != NULL)
        (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (ns > 0)
        printf("%s.%06uZ ", text, (unsigned)(ns % NS_PER_S / NS_PER_US));
    else
        printf("%-27s ", text);
}

/* That of muster run, unless the line has it: from PyTorch. */
static void print_prefix(uint32_t rank, const struct log_piece *piece) {
    char prefix[32];
    int n = snprintf(prefix, sizeof prefix, "[rank%u]: ", rank);
    if (piece->len < (size_t)n - 1 || memcmp(piece->data, prefix, (size_t)n - 1) != 0)
        (void)fputs(prefix, stdout);
}

static void end_line(struct show *show) {
    if (show->open != NULL && show->prefixed)
        (void)putchar('\n');
    show->open = NULL;
}

/* Its first line comes after a line that names it, except the very first. */
static void begin_generation(struct show *show) {
    const char *name = show->generation->name;
    if (show->shown != NULL && show->shown != name && show->prefixed) {
        end_line(show);
        printf("-- %s --\n", name);
    }
    show->shown = name;
}

static bool show_piece(void *arg, struct log_source *s, const struct log_piece *piece) {
    struct show *show = arg;
    const struct log_file *f = CONTAINER_OF(s, struct log_file, source);
    if (!piece->continues) {
        show->skipping = show->skip > 0;
        show->skip -= show->skipping;
    }
    if (show->skipping)
        return true;
    begin_generation(show);
    if (show->open != NULL && (show->open != s || !piece->continues)) {
        (void)putchar('\n');
        show->open = NULL;
    }
    if (show->open == NULL && show->view->timestamps)
        print_time(s->ns);
    if (show->open == NULL && show->prefixed)
        print_prefix(f->rank, piece);
    (void)fwrite(piece->data, 1, piece->len, stdout);
    if (piece->ended)
        (void)putchar('\n');
    show->open = piece->ended ? NULL : s;
    return ferror(stdout) == 0;
}

static bool read_more(void *arg, struct log_source *s) {
    struct show *show = arg;
    return log_file_read(CONTAINER_OF(s, struct log_file, source), show->generation->n);
}

static bool read_stamp(void *arg, struct log_source *s, struct log_stamp *ret) {
    return log_file_read_stamp(CONTAINER_OF(s, struct log_file, source), ret);
}

/* A prompt or a progress bar has no newline. */
static bool show_rest(void *arg, const struct log_source *s) {
    const struct show *show = arg;
    const struct log_file *f = CONTAINER_OF(s, struct log_file, source);
    return show->last || clock_now_ns() - f->read_ns >= QUIET_NS;
}

static const struct log_merge_ops ops = {read_more, show_rest, read_stamp, show_piece};

/* ---- generations ---- */

static bool show_generation(struct show *show, const struct log_generation *g, bool last) {
    show->generation = g;
    show->last = last;
    return log_merge((struct log_source *const *)(void *)g->files, g->n, &ops, show);
}

/* Leaves out all but the last lines. Returns the first generation that has some. */
static size_t skip_lines(struct show *show) {
    uint64_t wanted = show->view->lines, n = 0;
    size_t first = show->tree.n;
    while (wanted != UINT64_MAX && first > 0 && (n < wanted || first == show->tree.n)) {
        const struct log_generation *g = &show->tree.list[--first];
        for (size_t i = 0; i < g->n; i++)
            n += log_file_seek_end(g->files[i], wanted);
    }
    show->skip = wanted != UINT64_MAX && n > wanted ? n - wanted : 0;
    return wanted == UINT64_MAX ? 0 : first;
}

/* ---- following ---- */

/* Waits, and notices a reader that leaves. */
static void wait_for_more(struct show *show, uint64_t began_ns) {
    uint64_t took_ms = (clock_now_ns() - began_ns) / NS_PER_MS;
    struct pollfd reader = {.fd = STDOUT_FILENO};
    if (poll(&reader, 1, (int)MAX2(LOOK_TIMES * took_ms, (uint64_t)LOOK_MS)) > 0)
        show->left = true;
}

/* Shows what there is. */
static bool show_all(struct show *show, size_t first, bool last) {
    bool goes_on = true;
    for (size_t i = first; goes_on && i < show->tree.n; i++)
        goes_on = show_generation(show, &show->tree.list[i], last || i + 1 < show->tree.n);
    return goes_on && fflush(stdout) == 0;
}

static bool has_files(const struct log_tree *t) {
    for (size_t i = 0; i < t->n; i++)
        if (t->list[i].n > 0)
            return true;
    return false;
}

static int no_files(const struct show *show) {
    if (show->tree.others)
        log_error("no log in %s is of the ranks and streams that were asked for",
                  show->view->dirs[0]);
    else
        log_error("%s holds no output of workers; it is written there with -r 3 (only to files) or "
                  "-t 3 (also to the terminal)",
                  show->view->dirs[0]);
    return EXIT_JOB_FAILED;
}

static int end(struct show *show, bool failed) {
    int r = errno;
    if (!failed && !show->left)
        end_line(show);
    if (!failed && !show->left && fflush(stdout) != 0) {
        failed = true;
        r = errno;
    }
    if (show->tree.too_many)
        log_warning("more than %d log files: not all are shown", LOG_TREE_FILES_MAX);
    if (!failed || show->left || r == EPIPE)
        return 0;
    log_error("can't write to standard output: %s", strerror(r));
    return EXIT_JOB_FAILED;
}

/* Nothing more is to be awaited. */
static bool is_over(const struct logs_view *view) {
    bool ended = true;
    for (size_t i = 0; i < view->n_dirs; i++)
        ended = ended && logdir_has_ended(view->dirs[i]);
    return !view->follow || ended || (view->run_id != NULL && !logs_run_lives(view->run_id));
}

int show_logs(const struct logs_view *view) {
    struct show show = {.view = view, .tree = {.dirs = view->dirs, .n_dirs = view->n_dirs}};
    bool goes_on = true;
    (void)setvbuf(stdout, NULL, _IOFBF, OUTPUT_BYTES);
    (void)signal(SIGPIPE, SIG_IGN);
    show.prefixed = view->prefix == LOGS_PREFIX_ALWAYS ||
                    (view->prefix == LOGS_PREFIX_AUTO && !rank_set_is_one(&view->choice.ranks));
    bool over = is_over(view);
    log_tree_scan(&show.tree, &view->choice, 0);
    size_t first = skip_lines(&show);
    if (over && !has_files(&show.tree)) {
        int status = no_files(&show);
        log_tree_fini(&show.tree);
        return status;
    }
    for (bool last = false; goes_on && !last && !show.left;) {
        uint64_t began_ns = clock_now_ns();
        last = over;
        goes_on = show_all(&show, first, last);
        if (last || !goes_on)
            break;
        first = show.tree.n > 2 ? MAX2(first, show.tree.n - 2) : first;
        wait_for_more(&show, began_ns);
        over = is_over(view);
        log_tree_scan(&show.tree, &view->choice, first);
    }
    int status =
        goes_on && !show.left && !has_files(&show.tree) ? no_files(&show) : end(&show, !goes_on);
    log_tree_fini(&show.tree);
    return status;
}
