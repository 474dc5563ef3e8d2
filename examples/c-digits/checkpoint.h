/* The state of the training after an epoch, in a file "epoch-000012.ckpt" of a folder.
 *
 * A file is whole or not there: written beside its place, flushed to the disk, renamed. It ends
 * with a checksum of all before it. The last CHECKPOINT_KEEP are kept. */
#pragma once

#include "mlp.h"

#define CHECKPOINT_KEEP 3

/* Makes the folder if needed. 0, or -1 after a message on stderr. */
int checkpoint_save(const char *dir, unsigned epoch, const struct mlp *m);
/* The newest good one; each newer one that is damaged is named on stderr. Returns its epoch (> 0),
 * 0 if there is none (m is untouched), -1 if the folder cannot be read. */
int checkpoint_load_newest(const char *dir, struct mlp *m);
