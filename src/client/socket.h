/* The bytes of a connection to a store, with deadlines, and the thread's error text.
 *
 * Internal to libmuster-store; the shared library does not export it. Deadlines are CLOCK_MONOTONIC
 * nanoseconds; UINT64_MAX is "never". */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Stores the sentence as the thread's error text, and returns code. */
__attribute__((format(printf, 2, 3))) int muster_store_fail(int code, const char *fmt, ...);

/* Converts a time-out of the public interface; below 0: never. */
uint64_t muster_store_deadline_ns(int timeout_ms);

/* Returns a connected non-blocking socket after the handshake; see muster_store_connect(). */
int muster_store_socket_open(const char *host, uint16_t port, uint64_t deadline_ns, int *ret_fd);

/* Sends or receives all bytes, or returns an error: -ETIME past the deadline, -ECONNRESET at the
 * end of the stream. */
int muster_store_socket_send(int fd, const void *data, size_t len, uint64_t deadline_ns);
int muster_store_socket_recv(int fd, void *data, size_t len, uint64_t deadline_ns);
