/* Any bytes as a node summary: it is refused with a sentence, or it is the same after it was written and read again.
 * Nothing in it has an effect on a terminal except as text. */
#include <string.h>

#include "base/text/utf8.h"
#include "launcher/preflight/node_summary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text) {
    for (; *text != '\0'; text += utf8_char(text))
        if (utf8_char(text) == 0 || utf8_is_control(text))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct node_summary first, second;
    struct err err = {0};
    if (node_summary_read((const char *)data, size, &first, &err) != 0) {
        if (err.text[0] == '\0')
            abort();
        return 0;
    }
    for (uint32_t f = 0; f < NODE_SUMMARY_FACT_COUNT; f++)
        check_text(first.values[f]);
    for (uint32_t i = 0; i < first.n_findings; i++) {
        check_text(first.findings[i].code);
        check_text(first.findings[i].text);
    }
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    node_summary_write(&first, (size_t)1 << 20, &text);
    if (node_summary_read(strbuf_text(&text), text.len, &second, NULL) != 0 ||
        memcmp(first.values, second.values, sizeof first.values) != 0 || first.has_clock != second.has_clock ||
        first.clock_ns != second.clock_ns)
        abort();
    struct summary_index *b = summary_index_new(1);
    struct node_summary_comparison c;
    summary_index_put(b, 1, "a", &first);
    summary_index_put(b, 2, "b", &second);
    summary_index_compare(b, (uint64_t[]){1, 2}, 2, NULL, 0, &c);
    if (c.n != 0 || c.n_nodes != 2)
        abort();
    node_summary_comparison_fini(&c);
    summary_index_free(b);
    return 0;
}
