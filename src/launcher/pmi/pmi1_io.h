/* PMI-1 on the file descriptor PMI_FD. Blocking, with one deadline for all of it. */
#pragma once

#include "launcher/pmi/pmi_tasks.h"

/* For the exchange of all cards, in which each task waits for the others. */
#define PMI1_NS (9 * NS_PER_S)

/* In: n, rank and own. Fills in cards and run_id, and closes PMI_FD, because the server answers
 * only once. Returns 0; -ENOENT: PMI_FD is not set or not a socket; another negative errno with a
 * sentence. `title` names the process manager in it. */
_must_use_ int pmi1_read(char *const *envp, const char *title, uint64_t timeout_ns,
                         struct pmi_tasks *tasks, struct err *err);
