/* The part of PMIx's ABI that is used, the same in PMIx 3 to 6, so that the build needs no header
 * of it. (PMIx Standard 4.1, "Data Structures and Types", "Client Initialization and Finalization";
 * sizes, offsets and numbers: pmix_common.h of OpenPMIx 4.2.) */
#pragma once

#include "base/util.h"

enum pmix_code {                           /* pmix_status_t; errors are below 0 */
                 PMIX_OK = 0,              /* PMIX_SUCCESS */
                 PMIX_FAILED = -1,         /* PMIX_ERROR */
                 PMIX_LATE = -24,          /* PMIX_ERR_TIMEOUT */
                 PMIX_NONE = -46,          /* PMIX_ERR_NOT_FOUND */
                 PMIX_DONE_ALREADY = -157, /* PMIX_OPERATION_SUCCEEDED: no callback follows */
};
enum { PMIX_TYPE_STRING = 3 }; /* pmix_data_type_t: PMIX_STRING */
enum { PMIX_TO_ALL = 3 };      /* pmix_scope_t: PMIX_GLOBAL */

#define PMIX_KEY_HOSTNAME "pmix.hname" /* PMIX_HOSTNAME, a string */
#define PMIX_KEY_NONE "pmix.muster"    /* reserved for servers, none of which has it */

struct pmix_process { /* pmix_proc_t */
    char nspace[256];
    uint32_t rank;
};
static_assert(sizeof(struct pmix_process) == 260, "pmix_proc_t");

struct pmix_text { /* pmix_value_t that has a string */
    uint16_t type;
    union {
        char *string;
        char bytes[24];
    } data;
};
static_assert(sizeof(struct pmix_text) == 32, "pmix_value_t");
static_assert(offsetof(struct pmix_text, data) == 8, "pmix_value_t");

typedef void pmix_done_fn(int status, void *arg); /* pmix_op_cbfunc_t is a pointer to it */
