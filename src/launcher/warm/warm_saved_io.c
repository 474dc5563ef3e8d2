#include "launcher/warm/warm_saved_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/file.h"

#define TIMEOUT_NS (60 * NS_PER_S)
#define SENTENCE_MAX 1024

struct job {
    const struct warm_saved_place *place;
    const char *record; /* to store */
    size_t n;
};

static char *path_of(const struct warm_saved_place *at) {
    return xasprintf("%s/" WARM_SAVED_NAME "%016" PRIx64, at->dir, at->program);
}

static int say(int fd, const char *before, const char *path, const char *why) {
    char text[SENTENCE_MAX];
    int n = snprintf(text, sizeof text, "%s%.600s: %.300s", before, path, why);
    return helper_send(fd, text, (size_t)n) ? 0 : 1;
}

/* NULL: it is as we have written it. */
static const char *refusal(const struct stat *st) {
    if (!S_ISREG(st->st_mode))
        return "it is not a file";
    if (st->st_uid != geteuid())
        return "it belongs to another user";
    if ((st->st_mode & 022) != 0)
        return "others may write to it";
    return (uint64_t)st->st_size > WARM_SAVED_MAX ? "it is too long" : NULL;
}

static int load(int fd, void *arg) {
    const struct job *job = arg;
    _cleanup_(freep) char *path = path_of(job->place);
    struct err err = {0};
    struct stat st;
    if (own_path_check(job->place->dir, &err) < 0)
        return say(fd, "!", job->place->dir, err.text);
    int in = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (in < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : say(fd, "!", path, strerror(errno));
    const char *why = fstat(in, &st) < 0 ? strerror(errno) : refusal(&st);
    if (why != NULL) {
        (void)close(in);
        return say(fd, "!", path, why);
    }
    _cleanup_(freep) char *text = xcalloc(1, (size_t)st.st_size + 1);
    ssize_t n = pread(in, text, (size_t)st.st_size, 0);
    (void)close(in);
    return n > 0 && !helper_send(fd, text, (size_t)n) ? 1 : 0;
}

static int store(int fd, void *arg) {
    const struct job *job = arg;
    const struct warm_saved_place *at = job->place;
    _cleanup_(freep) char *path = path_of(at);
    _cleanup_(freep) char *beside = xasprintf("%s.%016" PRIx64, path, at->incarnation);
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct err err = {0};
    if (own_path_check(at->dir, &err) < 0)
        return say(fd, "", at->dir, err.text);
    warm_saved_write(job->record, job->n, at->args, &text);
    int out = own_file_make(beside, O_WRONLY | O_EXCL, 0600);
    if (out < 0)
        return say(fd, "", beside, strerror(-out));
    int r = file_write_flushed(out, text.data, text.len);
    (void)close(out);
    if (r == 0 && rename(beside, path) < 0)
        r = -errno;
    if (r == 0)
        return 0;
    (void)unlink(beside);
    return say(fd, "", path, strerror(-r));
}

static int ask(struct loop *loop, helper_fn *run, struct job *job, helper_call_fn *fn, void *arg,
               struct helper_call **ret) {
    struct helper_call_config config = {.name = "muster-imports",
                                        .run = run,
                                        .arg = job,
                                        .timeout_ns = TIMEOUT_NS,
                                        .max_bytes = WARM_SAVED_MAX + SENTENCE_MAX};
    return helper_call_new(loop, &config, fn, arg, ret);
}

int warm_saved_load(struct loop *loop, const struct warm_saved_place *place, helper_call_fn *fn,
                    void *arg, struct helper_call **ret) {
    struct job job = {.place = place};
    return ask(loop, load, &job, fn, arg, ret);
}

int warm_saved_store(struct loop *loop, const struct warm_saved_place *place, const char *record,
                     size_t n, helper_call_fn *fn, void *arg, struct helper_call **ret) {
    struct job job = {.place = place, .record = record, .n = n};
    return ask(loop, store, &job, fn, arg, ret);
}
