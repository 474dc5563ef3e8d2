#include "rendezvous/protocol/messages.h"

const char *const node_state_names[NODE_STATE_COUNT] = {
    [NODE_JOINED] = "joined",     [NODE_PREPARED] = "prepared", [NODE_RUNNING] = "running",
    [NODE_FINISHED] = "finished", [NODE_FAILED] = "failed",     [NODE_STOPPED] = "stopped",
    [NODE_CLOSED] = "closed",
};
const char *const outcome_names[OUTCOME_COUNT] = {
    [OUTCOME_NONE] = "none", [OUTCOME_SUCCESS] = "success", [OUTCOME_FAILED] = "failed"};
const char *const group_state_names[GROUP_STATE_COUNT] = {
    [GROUP_GATHERING] = "gathering", [GROUP_FORMING] = "forming", [GROUP_RUNNING] = "running",
    [GROUP_STOPPING] = "stopping",   [GROUP_CLOSED] = "closed",
};
const char *const overview_place_names[PLACE_COUNT] = {
    [PLACE_MEMBER] = "member",     [PLACE_WAITING] = "waiting", [PLACE_SPARE] = "spare",
    [PLACE_EXCLUDED] = "excluded", [PLACE_LEAVING] = "leaving",
};
const char *const watchdog_state_names[WATCHDOG_STATE_COUNT] = {
    [WATCHDOG_NONE] = "none",   [WATCHDOG_STARTING] = "starting", [WATCHDOG_OK] = "ok",
    [WATCHDOG_QUIET] = "quiet", [WATCHDOG_HUNG] = "hung",
};
const char *const rdzv_owner_names[RDZV_OWNER_NAMES] = {
    [PEER_OURS] = "ours",      [PEER_OTHER_USER] = "other", [PEER_CLOSED] = "closed",
    [PEER_ELSEWHERE] = "none", [PEER_UNKNOWN] = "unknown",
};
