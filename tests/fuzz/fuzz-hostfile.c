/* Any bytes as -H or as a host file, with a filter or without: either an error with a sentence, or hosts that keep the
 * limits, each once. The first byte chooses what is given; a filter stands before the first zero byte. */
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "launcher/hosts/hosts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { GIVE_LIST = 1, GIVE_INCLUDE = 2, GIVE_EXCLUDE = 4 };

/* Inputs that name more hosts than this may take too long. */
#define HOSTS_TRIED 4096

static void check(bool holds) {
    if (!holds)
        abort();
}

/* Whether the ends of all ranges, multiplied, are small. */
static bool is_small(const char *text, size_t len) {
    uint64_t product = 1;
    for (size_t i = 0; i < len; i++) {
        uint64_t end = 0;
        for (size_t k = i + 1; text[i] == '-' && k < len && isdigit((unsigned char)text[k]) && end <= HOSTS_TRIED; k++)
            end = end * 10 + (uint64_t)(text[k] - '0');
        product *= MAX2(end, 1);
        if (product > HOSTS_TRIED)
            return false;
    }
    return true;
}

static void check_hosts(const struct hosts *hosts) {
    check(hosts->n >= 1 && hosts->n <= HOSTS_MAX);
    for (size_t i = 0; i < hosts->n; i++) {
        const struct host *h = &hosts->items[i];
        check(h->name[0] != '\0' && h->name[0] != '-' && strlen(h->name) <= HOSTLIST_NAME_MAX);
        check(hosts_find(hosts, h->name) == h);
        check(h->user == NULL || (h->user[0] != '\0' && h->user[0] != '-'));
        check(h->slots <= HOST_SLOTS_MAX && (h->n_gpus == 0 || h->n_gpus == h->slots));
        for (uint32_t k = 0; k < h->n_gpus; k++) {
            check(h->gpus[k] < HOST_GPUS_MAX);
            for (uint32_t m = 0; m < k; m++)
                check(h->gpus[m] != h->gpus[k]);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1 || size > 65536 || !is_small((const char *)data, size))
        return 0;
    char *text = xmalloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    struct hosts_input in = {0};
    const char *rest = text;
    if ((data[0] & GIVE_INCLUDE) != 0)
        in.include = text;
    if ((data[0] & GIVE_EXCLUDE) != 0)
        in.exclude = text;
    if (in.include != NULL || in.exclude != NULL)
        rest = strlen(text) + 1 < size ? text + strlen(text) + 1 : "";
    if ((data[0] & GIVE_LIST) != 0)
        in.list = rest;
    else
        in = (struct hosts_input){
            .file = "hosts", .text = rest, .len = strlen(rest), .include = in.include, .exclude = in.exclude};
    struct hosts hosts;
    struct err err = {0};
    if (hosts_read(&in, &hosts, &err) < 0) {
        check(err.text[0] != '\0');
    } else {
        check_hosts(&hosts);
        hosts_fini(&hosts);
    }
    free(text);
    return 0;
}
