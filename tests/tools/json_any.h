/* Random values of a struct that has a table of its fields (base/json/json_table.h), and their comparison with that
 * table. */
#pragma once

#include "base/json/json_table.h"
#include "base/prng.h"

/* Zeroes *of and fills it with values that the table accepts: each field anywhere within its limits, with both ends
 * more frequent; texts of all lengths, with characters that JSON must escape and characters of several bytes. */
void json_any(struct prng *prng, const struct json_table *table, void *of);

/* NULL if both are equal, else the key of the first field that differs. */
const char *json_difference(const struct json_table *table, const void *a, const void *b);

/* Aborts if a text does not end within its array, or a number, an enum or a count is out of range. */
void json_check(const struct json_table *table, const void *of);
