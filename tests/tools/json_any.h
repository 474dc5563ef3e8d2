/* Values of a struct that has a table of its fields (base/json/json_table.h): drawn and compared by that table. */
#pragma once

#include "base/json/json_table.h"
#include "base/prng.h"

/* Fills *of, which it zeroes, with something that the table takes: each field anywhere within its limits, the ends with
 * preference, texts of all lengths, of characters that JSON must escape and of such that take several bytes. */
void json_any(struct prng *prng, const struct json_table *table, void *of);

/* NULL where both are the same, else the key of the first field that differs. */
const char *json_difference(const struct json_table *table, const void *a, const void *b);

/* Aborts when a text does not end within its array, or a number, an enum or a count is out of its range. */
void json_check(const struct json_table *table, const void *of);
