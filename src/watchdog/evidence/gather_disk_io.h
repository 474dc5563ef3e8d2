/* Helpers of the helper (gather_io.h) that touch the disk of the logs, which may hold them for
 * ever. */
#pragma once

#include "io/process/helper_call.h"
#include "watchdog/evidence/gather_io.h"

/* helper_call_new() without a loop. -EBUSY: an earlier one of this name is still held. */
_must_use_ int gather_disk_call(const struct gather_ask *ask,
                                const struct helper_call_config *config, struct helper_call **ret);
/* Why there is no answer: the errno of gather_disk_call(), or of its answer. */
const char *gather_disk_why(int r);
