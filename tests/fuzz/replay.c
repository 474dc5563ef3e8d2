/* Runs a fuzz target over its corpus as an ordinary test, without libFuzzer: every file, and every prefix of it, in a
 * heap block of exactly its size, so that ASan detects an overread of one byte.
 *
 *     fuzz-X CORPUS_DIR        prints TAP, one point per file */
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/text/strbuf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Prefixes of files longer than this are tried only at this many lengths. */
#define PREFIXES_MAX ((size_t)512)

static int read_file(const char *path, struct strbuf *ret) {
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return -errno;
    char chunk[4096];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0)
        strbuf_add_bytes(ret, chunk, n);
    int r = ferror(f) ? -EIO : 0;
    (void)fclose(f);
    return r;
}

static void run_exact(const char *data, size_t len) {
    /* xmalloc(0) returns one byte; libFuzzer also passes a valid pointer for an empty input. */
    uint8_t *copy = xmalloc(len);
    if (len > 0)
        memcpy(copy, data, len);
    (void)LLVMFuzzerTestOneInput(copy, len);
    free(copy);
}

static int run_file(const char *path) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    int r = read_file(path, &text);
    if (r < 0)
        return r;
    size_t step = text.len / PREFIXES_MAX + 1;
    for (size_t len = 0; len < text.len; len += step)
        run_exact(strbuf_text(&text), len);
    run_exact(strbuf_text(&text), text.len);
    return 0;
}

static int visible(const struct dirent *e) { return e->d_name[0] != '.'; }

int main(int argc, char **argv) {
    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s CORPUS_DIR\n", argv[0]);
        return 2;
    }
    struct dirent **names;
    int n = scandir(argv[1], &names, visible, alphasort);
    if (n <= 0) {
        (void)fprintf(stderr, "%s: no inputs there\n", argv[1]);
        return 1;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* the last line names the input that crashed */
    printf("1..%d\n", n);
    bool failed = false;
    for (int i = 0; i < n; i++) {
        char *path = xasprintf("%s/%s", argv[1], names[i]->d_name);
        printf("# %s\n", names[i]->d_name);
        int r = run_file(path);
        printf("%sok %d - %s%s%s\n", r < 0 ? "not " : "", i + 1, names[i]->d_name, r < 0 ? ": " : "",
               r < 0 ? strerror(-r) : "");
        failed = failed || r < 0;
        free(path);
        free(names[i]);
    }
    free(names);
    return failed;
}
