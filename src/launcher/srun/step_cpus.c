#include "launcher/srun/step_cpus.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/text/parse.h"

#define HEX_BITS 4

static int digit_of(char c) {
    return isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
}

/* "0x00ff", of any length, highest digit first. */
static int add_mask(const char *text, size_t len, struct cpuset *to) {
    if (len > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        text += 2;
        len -= 2;
    }
    if (len == 0 || len > CPUSET_MAX / HEX_BITS)
        return -EINVAL;
    for (size_t i = 0; i < len; i++) {
        if (!isxdigit((unsigned char)text[i]))
            return -EINVAL;
        int digit = digit_of(text[i]);
        for (uint32_t bit = 0; bit < HEX_BITS; bit++)
            if ((digit >> bit & 1) != 0)
                cpuset_add(to, (uint32_t)(len - 1 - i) * HEX_BITS + bit);
    }
    return 0;
}

int step_cpus_of_tasks(const char *masks, struct cpuset *ret) {
    struct cpuset set = {0};
    const char *item;
    size_t len;
    if (masks == NULL)
        return -ENODATA;
    for (size_t i = 0; (item = list_item(masks, i, &len)) != NULL; i++) {
        int r = add_mask(item, len, &set);
        if (r < 0)
            return r;
    }
    *ret = set;
    return 0;
}

int step_cpus_choose(const struct cpuset *widest, uint32_t online, uint32_t on_node,
                     const struct cpuset *tasks, struct cpuset *ret) {
    uint32_t n = cpuset_count(widest);
    /* by a control group; or the step has the whole machine */
    bool confined = on_node > 0 ? n <= on_node : n < online;
    struct cpuset set = *widest;
    if (!confined && tasks == NULL)
        return -ENODATA;
    if (!confined)
        cpuset_and(&set, tasks);
    if (cpuset_is_empty(&set))
        return -ENODATA;
    *ret = set;
    return 0;
}
