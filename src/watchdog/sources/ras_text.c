#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/utf8.h"
#include "watchdog/sources/ras_priv.h"

#define LINE_MAX_BYTES 1024 /* NCCL's own buffer for one */
#define GROUPS_MAX 1024     /* rows of the table of communicators */

/* To what a line "  Rank 3 -- GPU 3 managed by process 12 on node 10.0.0.2" belongs. */
enum about { ABOUT_NOTHING, ABOUT_MISSING, ABOUT_ERROR, ABOUT_STATE, ABOUT_COUNT };

struct reader {
    struct ras *to;
    struct ras_comm *comm; /* of the paragraph; NULL: of none */
    bool dead;             /* the paragraph lists dead processes, not silent ones */
    bool table, any;       /* in the table; the answer is one of RAS */
    enum about about;
    enum ras_state state;
    uint32_t kind;
    uint64_t count;
    char error[RAS_WORD_MAX];
    uint32_t n_groups;
    uint32_t sizes[GROUPS_MAX]; /* of the communicators of a group */
};

/* Reads a number and moves on. */
static bool number(const char **p, uint64_t *ret) {
    uint64_t n = 0;
    const char *s = *p;
    while (*s == ' ')
        s++;
    if (!isdigit((unsigned char)*s))
        return false;
    for (; isdigit((unsigned char)*s); s++) {
        if (n > (UINT64_MAX - 9) / 10)
            return false;
        n = n * 10 + (uint64_t)(*s - '0');
    }
    *p = s;
    *ret = n;
    return true;
}

static bool number32(const char **p, uint32_t *ret) {
    uint64_t n = 0;
    if (!number(p, &n) || n > INT32_MAX)
        return false;
    *ret = (uint32_t)n;
    return true;
}

static bool word(const char **p, const char *expected) {
    size_t n = strlen(expected);
    if (strncmp(*p, expected, n) != 0)
        return false;
    *p += n;
    return true;
}

/* Copies until the end, or until `end`. */
static void copy(char *to, size_t size, const char *from, const char *end) {
    const char *stop = end != NULL ? strstr(from, end) : NULL;
    size_t n = stop != NULL ? (size_t)(stop - from) : strlen(from);
    n = MIN2(n, size - 1);
    memcpy(to, from, n);
    to[n] = '\0';
}

static enum ras_state state_of(const char *name) {
    static const char *const names[] = {
        [RAS_STATE_NOCOMM] = "NOCOMM",   [RAS_STATE_INIT] = "INIT",
        [RAS_STATE_RUNNING] = "RUNNING", [RAS_STATE_FINALIZE] = "FINALIZE",
        [RAS_STATE_ABORT] = "ABORT",
    };
    for (size_t i = RAS_STATE_NOCOMM; i < ARRAY_SIZE(names); i++) {
        size_t n = strlen(names[i]);
        if (strncmp(name, names[i], n) == 0 && !isalpha((unsigned char)name[n]))
            return (enum ras_state)i;
    }
    return RAS_STATE_UNKNOWN;
}

static int full(struct err *err) {
    return err_set(err, -E2BIG, "it names more ranks or communicators than muster keeps");
}

/* "#0-1 (0000000000001f) MISMATCH". */
static int paragraph(struct reader *in, const char *p, struct err *err) {
    uint32_t group = 0, index = 0;
    if (!number32(&p, &group) || !word(&p, "-") || !number32(&p, &index) || !word(&p, " ("))
        return 0;
    char *end = NULL;
    uint64_t hash = strtoull(p, &end, 16);
    if (end == p || *end != ')')
        return 0;
    in->comm = NULL;
    for (uint32_t i = 0; i < in->to->n_comms; i++)
        if (in->to->comms[i].hash == hash)
            in->comm = &in->to->comms[i];
    if (in->comm == NULL && (in->comm = ras_add_comm(in->to, hash)) == NULL)
        return full(err);
    in->comm->size = group < in->n_groups ? in->sizes[group] : 0;
    in->about = ABOUT_NOTHING;
    return 0;
}

static struct ras_rank *find_rank(struct reader *in, uint32_t rank) {
    for (uint32_t i = 0; i < in->comm->n_ranks; i++)
        if (in->comm->ranks[i].rank == rank)
            return &in->comm->ranks[i];
    return ras_add_rank(in->to, in->comm, rank);
}

/* What follows "  Rank ". */
static int rank_line(struct reader *in, const char *p, struct err *err) {
    uint32_t rank = 0, pid = 0;
    if (in->comm == NULL || !number32(&p, &rank))
        return 0;
    bool single = true;
    if (word(&p, " has launched up to operation ")) {
        in->about = ABOUT_COUNT;
        if (!number(&p, &in->count))
            return 0;
    } else if (word(&p, " has not launched any operations")) {
        in->about = ABOUT_COUNT;
        in->count = 0;
    } else if (word(&p, " has status ")) {
        in->about = ABOUT_STATE;
        in->state = state_of(p);
    } else if (word(&p, " reported ")) {
        in->about = ABOUT_ERROR;
        copy(in->error, sizeof in->error, p, " -- ");
    } else {
        single = false;
    }
    if (in->about == ABOUT_COUNT && in->kind >= RAS_KINDS_MAX)
        return 0;
    if (single && in->about == ABOUT_COUNT && ras_add_tally(in->comm, in->kind, in->count, 1) < 0)
        return full(err);
    struct ras_rank *to = find_rank(in, rank);
    if (to == NULL)
        return full(err);
    const char *process = strstr(p, " managed by process "), *host = strstr(p, " on node ");
    if (process != NULL && host != NULL && word(&process, " managed by process ") &&
        number32(&process, &pid)) {
        to->pid = (int32_t)pid;
        copy(to->host, sizeof to->host, host + strlen(" on node "), NULL);
    }
    if (in->about == ABOUT_COUNT) {
        to->counted |= 1u << in->kind;
        to->counts[in->kind] = in->count;
    } else if (in->about == ABOUT_STATE) {
        to->state = in->state;
        to->missing = in->state == RAS_STATE_NOCOMM;
    } else if (in->about == ABOUT_ERROR) {
        memcpy(to->error, in->error, sizeof to->error);
    } else if (in->about == ABOUT_MISSING) {
        to->missing = true;
    }
    return 0;
}

/* "  7 ranks have launched up to operation 120", and the like; p is behind the number. */
static int ranks_line(struct reader *in, const char *p, uint32_t ranks, struct err *err) {
    if (in->comm == NULL)
        return 0;
    if (word(&p, " ranks have launched up to operation ")) {
        if (!number(&p, &in->count))
            return 0;
        in->about = ABOUT_COUNT;
    } else if (word(&p, " ranks have not launched any operations")) {
        in->about = ABOUT_COUNT;
        in->count = 0;
    } else if (word(&p, " ranks have status ")) {
        in->about = ABOUT_STATE;
        in->state = state_of(p);
        return 0;
    } else if (word(&p, " ranks reported ")) {
        in->about = ABOUT_ERROR;
        copy(in->error, sizeof in->error, p, NULL);
        return 0;
    } else {
        return 0;
    }
    if (in->kind < RAS_KINDS_MAX && ras_add_tally(in->comm, in->kind, in->count, ranks) < 0)
        return full(err);
    return 0;
}

/* "  Process 12 on node 10.0.0.2 managing GPU 0"; p is behind "  Process ". */
static int process_line(struct reader *in, const char *p, struct err *err) {
    struct ras_process process = {.dead = in->dead};
    uint32_t pid = 0;
    if (in->comm != NULL || !number32(&p, &pid) || !word(&p, " on node "))
        return 0;
    process.pid = (int32_t)pid;
    copy(process.host, sizeof process.host, p, " managing");
    return ras_add_process(in->to, &process) < 0 ? full(err) : 0;
}

/* What follows "  Missing communicator data from ". */
static void missing_line(struct reader *in, const char *p) {
    uint32_t n = 0;
    if (!number32(&p, &n))
        return;
    if (word(&p, " job process")) {
        in->to->n_silent = n;
        in->dead = false;
        in->comm = NULL;
    } else if (in->comm != NULL && word(&p, " rank")) {
        in->comm->n_missing = n;
        in->about = ABOUT_MISSING;
    }
}

/* A row of the table: number, communicators, nodes, ranks per node ("8" or "4-8"), ranks of a
 * communicator. */
static void table_row(struct reader *in, const char *p) {
    uint32_t group = 0, comms = 0, nodes = 0, per_node = 0, size = 0;
    if (!number32(&p, &group) || !number32(&p, &comms) || !number32(&p, &nodes) ||
        !number32(&p, &per_node))
        return;
    if (word(&p, "-") && !number32(&p, &per_node))
        return;
    if (!number32(&p, &size) || group != in->n_groups || in->n_groups == GROUPS_MAX)
        return;
    in->sizes[in->n_groups++] = size;
    uint64_t told = (uint64_t)in->to->n_comms_told + comms;
    in->to->n_comms_told = (uint32_t)MIN2(told, (uint64_t)INT32_MAX);
}

static int inner_line(struct reader *in, const char *p, struct err *err) {
    uint32_t n = 0;
    if (word(&p, "Rank "))
        return rank_line(in, p, err);
    if (word(&p, "Process "))
        return process_line(in, p, err);
    if (word(&p, "Missing communicator data from ")) {
        missing_line(in, p);
    } else if (word(&p, "Encountered ")) {
        if (number32(&p, &n) && word(&p, " communication timeout"))
            in->to->timeouts = n;
    } else if (word(&p, "Communicator ranks have different ")) {
        const char *end = strstr(p, " operation counts");
        in->about = ABOUT_NOTHING;
        in->kind = end != NULL ? ras_kind(in->to, p, (size_t)(end - p)) : RAS_KINDS_MAX;
    } else if (number32(&p, &n)) {
        if (strncmp(p, " job process", strlen(" job process")) == 0 &&
            strstr(p, " considered dead") != NULL) {
            in->to->n_dead = n;
            in->dead = true;
            in->comm = NULL;
        } else {
            return ranks_line(in, p, n, err);
        }
    }
    return 0;
}

static int read_line(struct reader *in, const char *line, struct err *err) {
    const char *p = line;
    if (strncmp(line, "Group ", 6) == 0 || strcmp(line, "No communicator data collected!") == 0) {
        in->table = in->any = true;
        return 0;
    }
    if (strcmp(line, "Errors") == 0 || strcmp(line, "Warnings") == 0) {
        in->table = false;
        in->comm = NULL;
        return 0;
    }
    if (word(&p, "NCCL version ")) {
        copy(in->to->version, sizeof in->to->version, p, " ");
        in->any = true;
        return 0;
    }
    if (in->table) {
        table_row(in, line);
        return 0;
    }
    if (word(&p, "#"))
        return paragraph(in, p, err);
    return in->any && word(&p, "  ") ? inner_line(in, p, err) : 0;
}

static int by_rank(const void *a, const void *b) {
    uint32_t x = ((const struct ras_rank *)a)->rank, y = ((const struct ras_rank *)b)->rank;
    return x < y ? -1 : x > y;
}

int ras_read_text(const char *answer, size_t len, struct ras *ret, struct err *err) {
    struct reader *in = xcalloc(1, sizeof *in);
    int r = 0;
    *in = (struct reader){.to = ret, .kind = RAS_KINDS_MAX};
    for (size_t at = 0; at < len && r == 0;) {
        const char *begin = answer + at, *newline = memchr(begin, '\n', len - at);
        size_t n = newline != NULL ? (size_t)(newline - begin) : len - at;
        at += n + 1;
        char line[LINE_MAX_BYTES];
        n = MIN2(n, sizeof line - 1);
        memcpy(line, begin, n);
        line[n] = '\0';
        utf8_clean(line, false);
        r = read_line(in, line, err);
    }
    if (r == 0 && !in->any)
        r = err_set(err, -EINVAL, "it is neither JSON nor a report of NCCL");
    for (uint32_t i = 0; i < ret->n_comms; i++)
        if (ret->comms[i].n_ranks > 0)
            qsort(ret->comms[i].ranks, ret->comms[i].n_ranks, sizeof *ret->comms[i].ranks, by_rank);
    free(in);
    return r;
}
