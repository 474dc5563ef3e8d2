/* The state of the training after an epoch, in a file "epoch-000012.ckpt" of a folder.
 *
 * A file is complete or does not exist: it is written under another name, flushed to the disk, and
 * renamed. It ends with a checksum of everything before it. The last CHECKPOINT_KEEP files are
 * kept. */
#pragma once

#include "mlp.h"

#define CHECKPOINT_KEEP 3

/* Makes the folder if needed. 0, or -1 after a message on stderr. */
int checkpoint_save(const char *dir, unsigned epoch, const struct mlp *m);
/* Loads the newest valid file; names each newer file that is damaged on stderr. Returns its epoch
 * (> 0), 0 if there is none (m is not changed), -1 if the folder cannot be read. */
int checkpoint_load_newest(const char *dir, struct mlp *m);
