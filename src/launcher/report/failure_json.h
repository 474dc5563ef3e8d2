/* The root cause of a job that failed, for the program that called muster: with
 * MUSTER_FAILURE_FILE=FILE the agent writes it there. The Python package makes torch's
 * ChildFailedError from it. Pure. man/muster-run.1 lists the keys. */
#pragma once

#include "base/text/strbuf.h"
#include "rendezvous/protocol/failure.h"

/* Adds one JSON object and a newline. */
void failure_json(const char *entrypoint, const struct failure *f, struct strbuf *ret);
