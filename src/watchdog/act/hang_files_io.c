#include "watchdog/act/hang_files_io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/text/strbuf.h"
#include "io/file.h"

#define FOLDER "hangs"
#define TIME_LEN (sizeof "20261124-031038.123" - 1)
#define LISTED_MAX 1024 /* of the folders; more are not of our making */

static struct tm utc(uint64_t wall_ns) {
    time_t at = (time_t)(wall_ns / NS_PER_S);
    struct tm tm;
    return gmtime_r(&at, &tm) == NULL ? (struct tm){0} : tm;
}

void hang_files_time(uint64_t wall_ns, char ret[HANG_FILES_NAME_MAX]) {
    struct tm t = utc(wall_ns);
    (void)snprintf(ret, HANG_FILES_NAME_MAX, "%04d-%02d-%02dT%02d:%02d:%02d.%03uZ",
                   t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec,
                   (unsigned)(wall_ns / NS_PER_MS % 1000));
}

void hang_files_name(uint64_t wall_ns, struct generation g, char ret[HANG_FILES_NAME_MAX]) {
    struct tm t = utc(wall_ns);
    (void)snprintf(ret, HANG_FILES_NAME_MAX, "%04d%02d%02d-%02d%02d%02d.%03u-%" PRIu32 ".%" PRIu32,
                   t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec,
                   (unsigned)(wall_ns / NS_PER_MS % 1000), g.epoch, g.counter);
}

/* ---- what is there ---- */

struct kept {
    char name[HANG_FILES_NAME_MAX];
    uint64_t bytes;
};

static bool is_name(const char *name) {
    static const char form[TIME_LEN + 1] = "dddddddd-dddddd.ddd";
    size_t len = strlen(name);
    bool is = len > TIME_LEN + 1 && len < HANG_FILES_NAME_MAX && name[TIME_LEN] == '-';
    for (size_t i = 0; i < TIME_LEN && is; i++)
        is = form[i] == 'd' ? name[i] >= '0' && name[i] <= '9' : name[i] == form[i];
    return is && strspn(name + TIME_LEN + 1, "0123456789.") == len - TIME_LEN - 1;
}

static uint64_t size_of(const char *dir, const char *name, const char *file) {
    _cleanup_(freep) char *path = xasprintf("%s/%s/%s", dir, name, file);
    struct stat st;
    return stat(path, &st) == 0 && st.st_size > 0 ? (uint64_t)st.st_size : 0;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct kept *)a)->name, ((const struct kept *)b)->name);
}

/* By time. */
static size_t list(const char *dir, struct kept *ret) {
    size_t n = 0;
    DIR *d = opendir(dir);
    if (d == NULL)
        return 0;
    for (struct dirent *e; n < LISTED_MAX && (e = readdir(d)) != NULL;)
        if (is_name(e->d_name))
            memcpy(ret[n++].name, e->d_name, strlen(e->d_name) + 1);
    (void)closedir(d);
    qsort(ret, n, sizeof *ret, by_name);
    for (size_t i = 0; i < n; i++)
        ret[i].bytes =
            size_of(dir, ret[i].name, "hang.txt") + size_of(dir, ret[i].name, "hang.json");
    return n;
}

static void remove_folder(const char *path) {
    DIR *d = opendir(path);
    if (d == NULL)
        return;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        (void)unlinkat(dirfd(d), e->d_name, 0);
    (void)closedir(d);
    (void)rmdir(path);
}

/* Makes room for `name` with so many bytes. What can't be removed stays. A time after this one is
 * of a clock that was set back since then: such a folder is older than those before it. */
static void prune(const char *dir, const char *name, uint64_t bytes) {
    _cleanup_(freep) struct kept *kept = xcalloc(LISTED_MAX, sizeof *kept);
    size_t n = list(dir, kept), first = 0;
    for (size_t i = 0; i < n; i++)
        bytes += kept[i].bytes;
    while (first < n && strcmp(kept[first].name, name) <= 0)
        first++;
    for (size_t i = 0; i < n && (n - i >= HANG_FILES_KEPT || bytes > HANG_FILES_BYTES); i++) {
        const struct kept *oldest = &kept[(first + i) % n];
        _cleanup_(freep) char *path = xasprintf("%s/%s", dir, oldest->name);
        remove_folder(path);
        bytes -= oldest->bytes;
    }
}

/* ---- writing ---- */

static int make(const char *path, uint32_t mode, struct err *err) {
    int r = own_folder_make(path, own_folder_mode(mode));
    if (r == 0 || r == -EEXIST)
        return 0;
    return err_set(err, r, "can't make the folder %s: %s", path, strerror(-r));
}

static int write_one(const char *path, uint32_t mode, const struct hang_files_text *text,
                     struct err *err) {
    int r = file_write_atomic_as(path, text->data, text->len, mode);
    return r == 0 ? 0 : err_set(err, r, "can't write %s: %s", path, strerror(-r));
}

int hang_files_write(const char *dir, const char *name, uint32_t mode,
                     const struct hang_files_text *text, const struct hang_files_text *json,
                     char **ret_path, struct err *err) {
    _cleanup_(freep) char *all = xasprintf("%s/" FOLDER, dir);
    _cleanup_(freep) char *own = xasprintf("%s/%s", all, name);
    _cleanup_(freep) char *text_path = xasprintf("%s/hang.txt", own);
    _cleanup_(freep) char *json_path = xasprintf("%s/hang.json", own);
    int r = make(all, mode, err);
    if (r < 0)
        return r;
    prune(all, name, text->len + json->len);
    r = make(own, mode, err);
    if (r == 0)
        r = write_one(text_path, mode, text, err);
    if (r == 0)
        r = write_one(json_path, mode, json, err);
    if (r < 0) {
        (void)rmdir(own); /* if nothing is in it */
        return r;
    }
    *ret_path = TAKE_PTR(text_path);
    return 0;
}

/* ---- adding ---- */

static int add_to(const char *path, size_t max, const char *closing, const char *more, size_t len,
                  struct err *err) {
    _cleanup_(freep) char *was = NULL;
    _cleanup_(strbuf_fini) struct strbuf all = {0};
    size_t was_len = 0, end_len = strlen(closing);
    int r = file_read_text(path, max, &was, &was_len);
    if (r == 0 && (was_len < end_len || strcmp(was + was_len - end_len, closing) != 0))
        r = -EINVAL;
    if (r < 0)
        return err_set(err, r, "can't read %s: %s", path, strerror(-r));
    strbuf_add_bytes(&all, was, was_len - end_len);
    strbuf_add_bytes(&all, more, len);
    strbuf_add(&all, closing);
    /* the mode is that of the file that is there */
    return write_one(path, 0600, &(struct hang_files_text){strbuf_text(&all), all.len}, err);
}

int hang_files_amend(const char *path, const struct hang_files_text *text,
                     const struct hang_files_text *json, struct err *err) {
    const char *name = strrchr(path, '/');
    _cleanup_(freep) char *json_path = xasprintf(
        "%.*s/hang.json", name == NULL ? 1 : (int)(name - path), name == NULL ? "." : path);
    int r = add_to(path, HANG_FILES_BYTES, "", text->data, text->len, err);
    return r < 0 ? r : add_to(json_path, HANG_FILES_BYTES, "}", json->data, json->len, err);
}
