/* Any bytes as the file of an interpreter: refused, or it has a _PyRuntime. */
#include "watchdog/look/pystack_layout.h"

#include <errno.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct file {
    const uint8_t *bytes;
    size_t n;
};

static ssize_t read_file(void *arg, uint64_t offset, void *buf, size_t n) {
    const struct file *f = arg;
    if (offset >= f->n)
        return 0;
    n = MIN2(n, f->n - offset);
    memcpy(buf, f->bytes + offset, n);
    return (ssize_t)n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct file file = {data, size};
    struct pystack_memory memory = {read_file, &file};
    struct python_elf elf;
    int r = python_elf_read(&memory, &elf);
    if (r == 0 ? elf.runtime == 0 : r != -ENOEXEC && r != -ENOENT)
        abort();
    return 0;
}
