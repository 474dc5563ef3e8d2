/* The Python stacks of the workers of a node, for gather_io.h: read from outside, which stops
 * nobody (watchdog/look/pystack.h). Each worker is read by a process of its own with a
 * deadline, several at a time: the file system of an interpreter can be dead. */
#pragma once

#include "watchdog/evidence/evidence.h"

/* Fills in the stacks of the threads and children that are in *e. A wrapper without Python that
 * waits for its child has the stack of that child. What is missing is a gap of the worker.
 * deadline_ns: CLOCK_MONOTONIC. */
void gather_python_stacks(struct evidence *e, uint64_t deadline_ns);
