#include "watchdog/evidence/gather_disk_io.h"

#include <errno.h>
#include <string.h>

int gather_disk_call(const struct gather_ask *ask, const struct helper_call_config *config,
                     struct helper_call **ret) {
    if (ask->held != NULL && ask->held(ask->env_arg, config->name))
        return -EBUSY;
    int r = helper_call_new(NULL, config, NULL, NULL, ret);
    if (r == 0 && ask->touches_disk != NULL)
        ask->touches_disk(ask->env_arg, helper_call_pid(*ret));
    return r;
}

const char *gather_disk_why(int r) {
    if (r == -EBUSY)
        return "not read, because the disk still holds the process that read it last";
    return r == -ETIMEDOUT ? "it could not be read in time" : strerror(-r);
}
