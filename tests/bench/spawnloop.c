/* The floor of "start to exit": spawns COUNT copies of a program, waits for all of them, and does nothing else.
 *
 *     spawnloop COUNT PROGRAM [ARGS...] */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

int main(int argc, char **argv) {
    if (argc < 3) {
        (void)fprintf(stderr, "usage: %s COUNT PROGRAM [ARGS...]\n", argv[0]);
        return 2;
    }
    int count = atoi(argv[1]), failed = 0, status;
    for (int i = 0; i < count; i++) {
        pid_t pid;
        int r = posix_spawn(&pid, argv[2], NULL, NULL, argv + 2, environ);
        if (r != 0) {
            (void)fprintf(stderr, "%s: %s\n", argv[2], strerror(r));
            return 1;
        }
    }
    while (wait(&status) > 0)
        failed += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    return errno != ECHILD || failed != 0;
}
