#include "ras_answer.h"

#include <string.h>

static void rank_json(const struct answer *a, uint32_t i, struct strbuf *to) {
    const struct answer_rank *r = &a->at[i];
    strbuf_printf(to,
                  "        {\n          \"rank\": %u,\n          \"host\": \"10.0.0.%u\",\n          \"pid\": %u,\n"
                  "          \"cuda_dev\": %u,\n          \"nvml_dev\": %u,\n          \"status\": {\n",
                  i, i / 4 + 1, r->pid != 0 ? (uint32_t)r->pid : 100 + i, i % 4, i % 4);
    if (r->missing || r->left) {
        strbuf_printf(to, "            \"unresponsive\": %s,\n            \"considered_dead\": %s\n          }\n",
                      r->missing ? "true" : "false", r->dead ? "true" : "false");
    } else {
        strbuf_printf(to,
                      "            \"init_state\": %d,\n            \"async_error\": %d,\n"
                      "            \"finalize_called\": %s,\n            \"destroy_flag\": false,\n"
                      "            \"abort_flag\": %s\n          },\n          \"collective_counts\": {\n"
                      "            \"Broadcast\": %llu,\n            \"Reduce\": 0,\n            \"AllGather\": 0,\n"
                      "            \"ReduceScatter\": 0,\n            \"AllReduce\": %llu\n          }\n",
                      r->init_state, r->async_error, r->finalized ? "true" : "false", r->aborted ? "true" : "false",
                      (unsigned long long)r->broadcasts, (unsigned long long)r->all_reduces);
    }
    strbuf_add(to, "        }");
}

static uint32_t missing_of(const struct answer *a) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->ranks; i++)
        n += a->at[i].missing || a->at[i].left;
    return n;
}

static void comm_json(const struct answer *a, uint32_t hash, struct strbuf *to) {
    uint32_t missing = missing_of(a);
    strbuf_printf(to,
                  "    {\n      \"hash\": \"0x%x\",\n      \"secondary_hash\": \"0x1:0x2\",\n      \"size\": %u,\n"
                  "      \"ranks_count\": %u,\n      \"missing_ranks_count\": %u,\n      \"ranks\": [\n",
                  hash, a->ranks, a->ranks - missing, missing);
    for (uint32_t pass = 0; pass < 2; pass++) {
        bool first = true;
        for (uint32_t i = 0; i < a->ranks; i++) {
            if ((a->at[i].missing || a->at[i].left) != (pass == 1))
                continue;
            strbuf_add(to, first ? "" : ",\n");
            rank_json(a, i, to);
            first = false;
        }
        strbuf_add(to, pass == 0 ? "\n      ],\n      \"missing_ranks\": [\n" : "\n      ]\n    }");
    }
}

void answer_json(const struct answer *a, struct strbuf *to) {
    struct answer well = answer_of(a->ranks, 7, 0);
    strbuf_printf(to,
                  "{\n  \"nccl_version\": \"2.28.7\",\n  \"cuda_runtime_version\": 12090,\n"
                  "  \"cuda_driver_version\": 12090,\n  \"timestamp\": \"2026-01-02 03:04:05\",\n"
                  "  \"communicators_count\": %u,\n  \"communicators\": [\n",
                  1 + a->others);
    comm_json(a, 0xabc, to);
    for (uint32_t i = 0; i < a->others; i++) {
        strbuf_add(to, ",\n");
        comm_json(&well, 0x100 + i, to);
    }
    strbuf_printf(to, "\n  ],\n  \"ras\": {\n    \"collection_time_sec\": 0.012,\n    \"timeouts_count\": %u\n  }\n}\n",
                  a->timeouts);
}
