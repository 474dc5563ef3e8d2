/* The folders of a crew's logs and error files, start after start. That they can't be made never
 * ends a job: it is said once, counted, and tried again at each start.
 *
 *     logs = crew_logs_new(&spec, host);
 *     r = crew_logs_prepare(logs, "2.3", &form, &err);
 *     crew_logs_make(logs, i);             before it is started: thousands take their time
 *     crew_logs_dir(logs, i);  crew_logs_error_file(logs, i);
 *     crew_logs_free(logs);                says how many starts had none
 *
 * Without a folder of its own a worker's error file lies in a private temporary one, if that can be
 * made, and what would go to log files goes to the console. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "launcher/job.h"
#include "rendezvous/messages.h"

struct crew_logs;

/* Both are borrowed. */
struct crew_logs *crew_logs_new(const struct job_spec *spec, const char *host);
/* Removes the temporary folder, unless it is kept. NULL is fine. */
void crew_logs_free(struct crew_logs *l);

/* Makes the folders of a generation, what of them can be made. -ENOTDIR, with a sentence: at the
 * first start --log-dir turns out to be a file, so nothing of the run has happened yet. */
_must_use_ int crew_logs_prepare(struct crew_logs *l, const char *generation,
                                 const struct form *form, struct err *err);
/* Makes the folder of one worker, if it can be made. */
void crew_logs_make(struct crew_logs *l, uint32_t index);
/* Files were asked for, and this start can't have (all of) them. Says it, once. */
void crew_logs_lack(struct crew_logs *l, const char *why);
/* Does the user want this worker's files, though there may be none? */
bool crew_logs_wanted(const struct crew_logs *l);

/* Of the present generation; NULL: none. Borrowed. */
const char *crew_logs_dir(const struct crew_logs *l, uint32_t index);
const char *crew_logs_node_dir(const struct crew_logs *l); /* of all its workers; absolute */
/* malloc'ed; "": it can have none. */
char *crew_logs_error_file(const struct crew_logs *l, uint32_t index);

/* The temporary folder stays, because somebody was told of a file in it. */
void crew_logs_keep(struct crew_logs *l);
/* Where files are kept for the user; NULL: nowhere. Borrowed. */
const char *crew_logs_kept(const struct crew_logs *l);
