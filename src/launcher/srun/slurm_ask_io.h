/* Questions to Slurm, by scontrol(1) in a helper: it waits for a daemon on another machine. */
#pragma once

#include "base/text/strbuf.h"
#include "io/process/helper_call.h"

/* Runs scontrol with these words (NULL-terminated) in the background; its standard output is the
 * answer: none if there is no scontrol, or it failed. 0, or a negative errno: no process. */
_must_use_ int slurm_ask(struct loop *loop, const char *const words[], uint64_t timeout_ns,
                         helper_call_fn *fn, void *arg, struct helper_call **ret);
/* Requests to change something, each a line, the last "quit", by one scontrol: nothing but the
 * controller is between them. It has failed if one of them has: slurm_told(). */
#define SLURM_TELL_NS (10 * NS_PER_S)
_must_use_ int slurm_tell(struct loop *loop, const char *lines, helper_call_fn *fn, void *arg,
                          struct helper_call **ret);
/* Whether all was carried out, by scontrol's exit status. If not, *ret is why: its first
 * line, or that it can't be run, does not end, or says nothing. */
_must_use_ bool slurm_told(const struct helper_answer *answer, struct strbuf *ret);
