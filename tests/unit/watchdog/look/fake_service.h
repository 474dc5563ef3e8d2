/* A service on this node, in a child process, which says what a test wants; the child ends with the test. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct fake_service {
    /* Called for each connection; returns what it replies to the line (NULL: nothing; a reply that ends the
     * conversation sets *end). */
    const char *(*reply)(void *arg, const char *line, bool *end);
    void *arg;
    const char *path; /* of a unix socket; NULL: TCP on 127.0.0.1 */
    /* How it sends what ends the conversation. */
    enum { FAKE_AT_ONCE, FAKE_ENDLESSLY, FAKE_A_BYTE_A_SECOND } manner;
    pid_t pid;
    uint16_t port;
};

void fake_service_start(struct fake_service *f);
void fake_service_stop(struct fake_service *f); /* kills and reaps it */

/* As PyTorch's monitor thread: makes the FIFO, and a process that reads it. When a byte has come, this writes a file of
 * so many bytes, which begins with "pickle"; below 0: none. The caller kills it. */
pid_t fake_recorder_start(const char *fifo, const char *dump, off_t size);
