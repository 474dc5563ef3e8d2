/* PMIx, the process manager interface of Open MPI and jsrun: its server is asked with its own
 * library. */
#pragma once

#include "launcher/pmi/pmi_tasks.h"

/* In: n, rank and own. Publishes `own`, waits for all tasks, fills in cards and run_id. Returns 0;
 * -ENOSYS: there is no library to ask with, so nothing is known; -ENOENT: no server is there;
 * another negative errno with a sentence. Below 10 s. */
_must_use_ int pmix_read(char *const *envp, struct pmi_tasks *tasks, struct err *err);
