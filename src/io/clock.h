/* The clocks. Inside muster all times are monotonic nanoseconds; wall time is only for reports. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* CLOCK_MONOTONIC, nanoseconds. */
uint64_t clock_now_ns(void);
/* CLOCK_REALTIME, nanoseconds since 1970. */
uint64_t clock_wall_ns(void);
/* The second less the first: it changes only when the wall clock is set, or the machine sleeps. */
int64_t clock_wall_offset_ns(void);
/* Random bits from the kernel (getrandom): incarnations, run ids, hash seeds. */
uint64_t random_u64(void);
/* At most 256 of them, such as a key. */
void random_bytes(void *out, size_t n);
