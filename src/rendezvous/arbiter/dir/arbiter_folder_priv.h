/* What the two halves of the job's folder share: opening it (arbiter_folder_open_io.c) and its
 * files (arbiter_folder_io.c). */
#pragma once

#include "rendezvous/arbiter/dir/arbiter_folder_io.h"

#define NAME_LEN 64 /* of a file in the folder */

void arbiter_closep(int *fd);
uint64_t arbiter_hash(const void *data, size_t len); /* FNV-1a: not a cryptographic hash */

/* "cannot VERB PATH/NAME/FILE: …" of errno, which is returned negative. */
int arbiter_folder_failed(const struct arbiter_folder *f, const char *verb, const char *file,
                          struct err *err);
