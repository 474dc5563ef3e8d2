/* A folder that replaces the root of a machine. */
#pragma once

#include "base/util.h"

/* Makes a new folder; removes it. */
void tree_new(void);
void tree_remove(void);
const char *tree_root(void);
/* Writes a file with this text; its folders are made. */
void tree_file(const char *path, const char *text);
void tree_bytes(const char *path, const void *data, size_t len);
void tree_folder(const char *path);
