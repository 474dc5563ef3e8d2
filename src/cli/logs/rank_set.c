#include "cli/logs/rank_set.h"

#include <errno.h>
#include <string.h>

#include "base/text/parse.h"

static int read_range(const char *item, size_t len, uint32_t *ret_from, uint32_t *ret_to) {
    char text[32];
    if (len == 0 || len >= sizeof text)
        return -EINVAL;
    memcpy(text, item, len);
    text[len] = '\0';
    char *dash = strchr(text, '-');
    if (dash != NULL)
        *dash = '\0';
    int r = parse_u32(text, ret_from);
    if (r == 0)
        r = parse_u32(dash != NULL ? dash + 1 : text, ret_to);
    return r == 0 && *ret_from > *ret_to ? -EINVAL : r;
}

int rank_set_parse(const char *text, struct rank_set *ret, struct err *err) {
    *ret = (struct rank_set){0};
    size_t len;
    for (const char *item; (item = list_item(text, ret->n, &len)) != NULL; ret->n++) {
        if (ret->n == RANK_SET_MAX)
            return err_set(err, -EINVAL, "--rank: more than %d ranges", RANK_SET_MAX);
        if (read_range(item, len, &ret->ranges[ret->n].from, &ret->ranges[ret->n].to) < 0)
            return err_set(err, -EINVAL, "--rank: \"%.100s\" is not a list of ranks such as 0-3,7",
                           text);
    }
    return ret->n > 0 ? 0 : err_set(err, -EINVAL, "--rank: the list is empty");
}

bool rank_set_has(const struct rank_set *set, uint32_t rank) {
    for (uint32_t i = 0; i < set->n; i++)
        if (set->ranges[i].from <= rank && rank <= set->ranges[i].to)
            return true;
    return set->n == 0;
}

bool rank_set_is_one(const struct rank_set *set) {
    return set->n == 1 && set->ranges[0].from == set->ranges[0].to;
}
