/* A worker that writes lines as fast as it can, in blocks: nothing in it costs more than the write.
 *
 *     flood MIB LINE_BYTES */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    static char block[64 * 1024];
    if (argc != 3) {
        (void)fprintf(stderr, "usage: %s MIB LINE_BYTES\n", argv[0]);
        return 2;
    }
    size_t left = strtoul(argv[1], NULL, 10) << 20, line = strtoul(argv[2], NULL, 10);
    for (size_t i = 0; i < sizeof block; i++)
        block[i] = i % line == line - 1 ? '\n' : (char)('a' + i % 26);
    while (left > 0) {
        ssize_t n = write(STDOUT_FILENO, block, left < sizeof block ? left : sizeof block);
        if (n <= 0)
            return 1;
        left -= (size_t)n;
    }
    return 0;
}
