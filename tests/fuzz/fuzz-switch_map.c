/* A host name in the first line, then any bytes as a file of switches: the result is a place that ends with that name,
 * no place, or a sentence. */
#include <string.h>

#include "launcher/hosts/switch_map.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char host[64] = "", place[128] = "", block[128];
    const uint8_t *end = memchr(data, '\n', size);
    if (end == NULL || end == data || (size_t)(end - data) >= sizeof host)
        return 0;
    memcpy(host, data, (size_t)(end - data));
    struct err err = {0};
    int r =
        switch_map_find((const char *)end + 1, size - (size_t)(end - data) - 1, host, place, block, sizeof place, &err);
    if (r < 0 && err.text[0] == '\0')
        abort();
    if (r == 0 && (strlen(place) >= sizeof place || strchr(place, '.') == NULL))
        abort();
    return 0;
}
