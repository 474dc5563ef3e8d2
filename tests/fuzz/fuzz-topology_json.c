/* Any bytes as a topology: refused with a sentence, or accepted. An accepted topology is written, read and written
 * again with the same text, and every device can be compared with every other. */
#include <string.h>

#include "topology/json/topology_json.h"
#include "topology/model/distance.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    _cleanup_(topology_fini) struct topology t = {0}, again = {0};
    _cleanup_(strbuf_fini) struct strbuf first = {0}, second = {0};
    struct err err = {0};
    int r = topology_json_read((const char *)data, size, &t, &err);
    if (r != 0) {
        if (err.code != r || err.text[0] == '\0' || t.n_pci != 0)
            abort();
        return 0;
    }
    topology_json_write(&t, &first);
    if (topology_json_read(first.data, first.len, &again, &err) != 0)
        abort();
    again.source = t.source;
    topology_json_write(&again, &second);
    if (strcmp(strbuf_text(&first), strbuf_text(&second)) != 0)
        abort();
    return 0;
}
