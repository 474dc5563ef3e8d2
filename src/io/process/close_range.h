/* close_range(2) is of Linux 5.9, its flag of 5.11: their numbers, for older headers. */
#pragma once

#include <sys/syscall.h>

#ifndef SYS_close_range
#define SYS_close_range 436 /* on every architecture: the kernel's syscall.tbl */
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4U /* linux/close_range.h */
#endif
