#include "ras_answer.h"

#include <string.h>

static void rank_json(const struct answer *a, uint32_t i, struct strbuf *to) {
    const struct answer_rank *r = &a->at[i];
    strbuf_printf(to,
                  "        {\n          \"rank\": %u,\n          \"host\": \"10.0.0.%u\",\n          \"pid\": %u,\n"
                  "          \"cuda_dev\": %u,\n          \"nvml_dev\": %u,\n          \"status\": {\n",
                  i, i / 4 + 1, 100 + i, i % 4, i % 4);
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

/* ---- text ---- */

static bool answers(const struct answer_rank *r) { return !r->missing && !r->left; }

static void where(uint32_t i, struct strbuf *to) {
    strbuf_printf(to, " -- GPU %u managed by process %u on node 10.0.0.%u\n", i % 4, 100 + i, i / 4 + 1);
}

static uint64_t count_of(const struct answer_rank *r, bool broadcast) {
    return broadcast ? r->broadcasts : r->all_reduces;
}

static uint32_t same(const struct answer *a, uint64_t count, bool broadcast, uint32_t before) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < before; i++)
        n += answers(&a->at[i]) && count_of(&a->at[i], broadcast) == count;
    return n;
}

static void one_count(const struct answer *a, uint64_t count, uint32_t n, bool broadcast, struct strbuf *to) {
    if (n > 1 && count > 0)
        strbuf_printf(to, "  %u ranks have launched up to operation %llu\n", n, (unsigned long long)count);
    else if (n > 1)
        strbuf_printf(to, "  %u ranks have not launched any operations\n", n);
    for (uint32_t i = 0; i < a->ranks && (n == 1 || n * 2 < a->ranks); i++) {
        if (!answers(&a->at[i]) || count_of(&a->at[i], broadcast) != count)
            continue;
        if (n > 1)
            strbuf_printf(to, "  Rank %u", i);
        else if (count > 0)
            strbuf_printf(to, "  Rank %u has launched up to operation %llu", i, (unsigned long long)count);
        else
            strbuf_printf(to, "  Rank %u has not launched any operations", i);
        where(i, to);
    }
}

static bool differ(const struct answer *a, bool broadcast) {
    const struct answer_rank *first = NULL;
    for (uint32_t i = 0; i < a->ranks; i++) {
        if (!answers(&a->at[i]))
            continue;
        if (first == NULL)
            first = &a->at[i];
        if (count_of(first, broadcast) != count_of(&a->at[i], broadcast))
            return true;
    }
    return false;
}

static void counts_text(const struct answer *a, bool broadcast, struct strbuf *to) {
    if (!differ(a, broadcast))
        return;
    strbuf_printf(to, "  Communicator ranks have different %s operation counts\n",
                  broadcast ? "Broadcast" : "AllReduce");
    for (uint32_t n = a->ranks; n > 0; n--) /* the most frequent first */
        for (uint32_t i = 0; i < a->ranks; i++) {
            uint64_t count = count_of(&a->at[i], broadcast);
            if (answers(&a->at[i]) && same(a, count, broadcast, i) == 0 && same(a, count, broadcast, a->ranks) == n)
                one_count(a, count, n, broadcast, to);
        }
    strbuf_add(to, "\n");
}

static const char *state_of(const struct answer_rank *r) {
    return r->left             ? "NOCOMM"
           : r->aborted        ? "ABORT"
           : r->finalized      ? "FINALIZE"
           : r->init_state > 0 ? "INIT"
                               : "RUNNING";
}

void answer_text(const struct answer *a, struct strbuf *to) {
    uint32_t silent = 0, dead = 0, odd = 0, errors = 0;
    for (uint32_t i = 0; i < a->ranks; i++) {
        const struct answer_rank *r = &a->at[i];
        silent += r->missing && !r->dead;
        dead += r->dead;
        odd += !r->missing && strcmp(state_of(r), "RUNNING") != 0;
        errors += answers(r) && r->async_error != 0;
    }
    bool mismatch = differ(a, true) || differ(a, false) || odd > 0;
    strbuf_add(to, "NCCL version 2.24.3 compiled with CUDA 12.4\nCUDA runtime version 12040, driver version 12040\n\n"
                   "Job summary\n===========\n\n  Nodes  Processes         GPUs  Processes     GPUs\n"
                   "(total)   per node  per process    (total)  (total)\n      2          4            1          8"
                   "        8\n\nCommunicators... (0.01s)\n=============\n\n"
                   "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
                   "    #  in group  per comm  per node  per comm  in group\n");
    strbuf_printf(to, "%5d  %8d  %8d  %8s  %8u  %8u  %8s  %6s\n", 0, 1, 2, "2-4", a->ranks, a->ranks, "RUNNING",
                  mismatch ? "MISMATCH" : "OK");
    if (a->others > 0)
        strbuf_printf(to, "%5d  %8u  %8d  %8s  %8u  %8u  %8s  %6s\n", 1, a->others, 2, "4", a->ranks, a->ranks,
                      "RUNNING", "OK");
    strbuf_add(to, "\nErrors\n======\n\n");
    for (uint32_t pass = 0; pass < 2; pass++) {
        if (pass == 0 && silent > 0)
            strbuf_printf(to, "INCOMPLETE\n  Missing communicator data from %u job process%s\n", silent,
                          silent > 1 ? "es" : "");
        if (pass == 1 && dead > 0)
            strbuf_printf(to, "DEAD\n  %u job process%s considered dead (unreachable via the RAS network)\n", dead,
                          dead > 1 ? "es are" : " is");
        for (uint32_t i = 0; i < a->ranks; i++)
            if (a->at[i].missing && a->at[i].dead == (pass == 1))
                strbuf_printf(to, "  Process %u on node 10.0.0.%u managing GPU %u\n", 100 + i, i / 4 + 1, i % 4);
        strbuf_add(to, (pass == 0 ? silent : dead) > 0 ? "\n" : "");
    }
    if (silent + dead > 0) {
        strbuf_printf(to, "#0-0 (%016x) INCOMPLETE\n  Missing communicator data from %u rank%s\n", 0xabc, silent + dead,
                      silent + dead > 1 ? "s" : "");
        for (uint32_t i = 0; i < a->ranks; i++)
            if (a->at[i].missing) {
                strbuf_printf(to, "  Rank %u", i);
                where(i, to);
            }
        strbuf_add(to, "\n");
    }
    if (errors > 0) {
        strbuf_printf(to, "#0-0 (%016x) ERROR\n  Asynchronous error%s on %u rank%s\n", 0xabc, errors > 1 ? "s" : "",
                      errors, errors > 1 ? "s" : "");
        if (errors > 1)
            strbuf_printf(to, "  %u ranks reported Remote process error\n", errors);
        for (uint32_t i = 0; i < a->ranks; i++)
            if (answers(&a->at[i]) && a->at[i].async_error != 0) {
                strbuf_printf(to, "  Rank %u%s", i, errors > 1 ? "" : " reported Remote process error");
                where(i, to);
            }
        strbuf_add(to, "\n");
    }
    strbuf_add(to, "Warnings\n========\n\n");
    if (a->timeouts > 0)
        strbuf_printf(to, "TIMEOUT\n  Encountered %u communication timeouts while gathering communicator data\n\n",
                      a->timeouts);
    if (mismatch)
        strbuf_printf(to, "#0-0 (%016x) MISMATCH\n", 0xabc);
    if (odd > 0) {
        strbuf_printf(to, "  Communicator ranks have different status\n  %u ranks have status RUNNING\n",
                      a->ranks - odd);
        for (uint32_t i = 0; i < a->ranks; i++)
            if (!a->at[i].missing && strcmp(state_of(&a->at[i]), "RUNNING") != 0) {
                strbuf_printf(to, "  Rank %u has status %s", i, state_of(&a->at[i]));
                where(i, to);
            }
    }
    counts_text(a, true, to);
    counts_text(a, false, to);
}
