/* Any bytes as an answer of NCCL's RAS service: refused with a sentence, or accepted; then its summary has whole
 * lines of limited size. */
#include <string.h>

#include "watchdog/look/ras.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    _cleanup_(strbuf_fini) struct strbuf summary = {0};
    struct ras ras;
    struct err err = {0};
    uint64_t counts[4];
    struct ras_own own = {.rank = 1, .pid = 101};
    int r = ras_read((const char *)data, size, &ras, &err);
    if (r != 0) {
        if (err.code != r || err.text[0] == '\0' || ras.comms != NULL || ras.n_comms != 0)
            abort();
        return 0;
    }
    ras_summary(&ras, &summary);
    if (summary.len == 0 || summary.len > RAS_SUMMARY_MAX || summary.data[summary.len - 1] != '\n')
        abort();
    for (uint32_t i = 0; i < ras.n_comms; i++)
        for (uint32_t k = 1; k < ras.comms[i].n_ranks; k++)
            if (ras.comms[i].ranks[k].rank < ras.comms[i].ranks[k - 1].rank)
                abort();
    ras_counts(&ras, 4, &own, 1, counts);
    ras_fini(&ras);
    return 0;
}
