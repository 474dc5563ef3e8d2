#include "watchdog/signs/signs.h"

#include <string.h>

char signs_state(const char *stat, size_t len) {
    const char *end = memrchr(stat, ')', len);
    if (end == NULL || (size_t)(stat + len - end) < 3 || end[1] != ' ')
        return 0;
    return end[2] != 0 && strchr("RSDTtZXxKWPI", end[2]) != NULL ? end[2] : 0;
}

bool signs_ran(const char *schedstat, size_t len, uint64_t *ret_ns) {
    uint64_t ns = 0;
    size_t n = 0;
    for (; n < len && schedstat[n] >= '0' && schedstat[n] <= '9'; n++) {
        uint64_t digit = schedstat[n] - '0';
        if (ns > (UINT64_MAX - digit) / 10)
            return false;
        ns = ns * 10 + digit;
    }
    if (n == 0 || n == len || schedstat[n] != ' ')
        return false;
    *ret_ns = ns;
    return true;
}
