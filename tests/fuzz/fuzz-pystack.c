/* Any bytes as the memory of a Python process, which changes while it is read: an error with a sentence, or threads
 * within the limits, with names that can be shown. The corpus was recorded from real interpreters (memory_image.h). */
#include "watchdog/look/pystack.h"

#include <errno.h>
#include <string.h>

#include "../unit/watchdog/look/memory_image.h"
#include "base/text/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text, size_t size) {
    if (text[0] == '\0' || memchr(text, '\0', size) == NULL)
        abort();
    for (const char *c = text; *c != '\0'; c += utf8_char(c))
        if (utf8_char(c) == 0 || utf8_is_control(c))
            abort();
}

static void check_thread(void *arg, const struct pystack_thread *t) {
    uint32_t *n = arg;
    *n += 1;
    if (t->n > PYSTACK_FRAMES_MAX || (t->cut && t->n != PYSTACK_FRAMES_MAX))
        abort();
    for (uint32_t i = 0; i < t->n; i++) {
        if (t->frames[i].line > INT32_MAX)
            abort();
        if (t->frames[i].function[0] != '\0')
            check_text(t->frames[i].function, sizeof t->frames[i].function);
        if (t->frames[i].file[0] != '\0')
            check_text(t->frames[i].file, sizeof t->frames[i].file);
    }
}

static int64_t number(void *arg, const struct pystack_frame *f) {
    (void)f;
    return ++*(uint32_t *)arg;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct memory_image image;
    struct pystack_memory memory = memory_image_reader(&image);
    struct pystack_python python;
    struct err err = {0};
    if (!memory_image_parse(&image, data, size))
        return 0;
    int r = pystack_open(&memory, &image.found, &python, &err);
    if (r != 0) {
        if (err.code != r || err.text[0] == '\0')
            abort();
        return 0;
    }
    uint32_t n = 0;
    r = pystack_read(&memory, &python, check_thread, &n);
    if (r > PYSTACK_THREADS_MAX || (r > 0 ? (uint32_t)r : 0) != n)
        abort();
    (void)pystack_addresses(&memory, &python);
    struct pystack_watch *w = pystack_watch_new(&python);
    for (int i = 0; i < 2; i++) {
        struct pystack_numbers stack;
        r = pystack_watch_read(w, &memory, number, &n, &stack);
        if ((r < 0 && r != -EAGAIN && r != -EFAULT) || stack.n > PYSTACK_FRAMES_MAX)
            abort();
    }
    pystack_watch_free(w);
    return 0;
}
