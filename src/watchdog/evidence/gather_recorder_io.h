/* Has NCCL's flight recorder of each worker write its file (watchdog/look/recorder.h), while
 * the rest is gathered: in a helper of its own, because the files are on a disk of the user's.
 *
 *     recorder = gather_recorder_begin(&e, ask, deadline_ns);
 *     …
 *     gather_recorder_end(recorder, &e);        waits for it, and adds what it tells
 *
 * A file that is not below ask->keep_dir is copied there: it is kept with the logs. */
#pragma once

#include "watchdog/evidence/gather_io.h"

struct gather_recorder;
/* Of workers whose environment names a FIFO. NULL: there is none, or a gap says what failed. */
_must_use_ struct gather_recorder *
gather_recorder_begin(struct evidence *e, const struct gather_ask *ask, uint64_t deadline_ns);
/* Takes it; takes NULL. e has the same workers. */
void gather_recorder_end(struct gather_recorder *r, struct evidence *e);
