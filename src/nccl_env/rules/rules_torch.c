/* Rules for PyTorch, gloo, and what a worker sees of the node. */
#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"
#include "nccl_env/rules/rules.h"

/* Whether PyTorch is older than 2.`minor`. False if its version is not known. */
static bool torch_is_before(const struct env_input *in, unsigned minor) {
    unsigned major = 0, found = 0;
    const char *version = in->facts != NULL ? in->facts->torch_version : "";
    return sscanf(version, "%3u.%3u", &major, &found) == 2 &&
           (major < 2 || (major == 2 && found < minor));
}

/* Since 2.8 the flight recorder's variables begin with TORCH_FR_. Their older names still work, but
 * each worker prints a warning about them. */
#define TORCH_WITH_FR 8

static enum rule_verdict when_recorder(const struct env_input *in) {
    return rule_has_gpus(in) && !torch_is_before(in, TORCH_WITH_FR) ? RULE_YES : RULE_NO;
}

static enum rule_verdict when_old_recorder(const struct env_input *in) {
    return rule_has_gpus(in) && torch_is_before(in, TORCH_WITH_FR) ? RULE_YES : RULE_NO;
}

/* Not where the user switched it off. */
static enum rule_verdict when_recorder_on(const struct env_input *in) {
    const char *size = rule_value_of(in, "TORCH_FR_BUFFER_SIZE");
    if (size == NULL)
        size = rule_value_of(in, "TORCH_NCCL_TRACE_BUFFER_SIZE");
    return rule_has_gpus(in) && (size == NULL || strcmp(size, "0") != 0) ? RULE_YES : RULE_NO;
}

static enum rule_verdict when_recorder_file(const struct env_input *in) {
    return in->log_dir != NULL ? when_recorder_on(in) : RULE_NO;
}

static enum rule_verdict when_dump_file(const struct env_input *in) {
    return torch_is_before(in, TORCH_WITH_FR) ? RULE_NO : when_recorder_file(in);
}

static enum rule_verdict when_old_dump_file(const struct env_input *in) {
    return torch_is_before(in, TORCH_WITH_FR) ? when_recorder_file(in) : RULE_NO;
}

static void value_dump_file(const struct env_input *in, struct strbuf *to) {
    strbuf_printf(to, "%s/nccl_trace_rank_", in->log_dir);
}

static void value_pipe_file(const struct env_input *in, struct strbuf *to) {
    strbuf_printf(to, "%s/nccl_trace_pipe_", in->log_dir);
}

/* The gloo of PyTorch before 2.7 does not know them. */
static enum rule_verdict when_gloo_v2(const struct env_input *in) {
    return in->n_nodes > 1 && !torch_is_before(in, 7) ? RULE_YES : RULE_NO;
}

static enum rule_verdict when_gloo_sequence(const struct env_input *in) {
    const char *v2 = rule_value_of(in, "GLOO_ENABLE_STORE_V2_API");
    return v2 == NULL || strcmp(v2, "1") == 0 ? when_gloo_v2(in) : RULE_NO;
}

static bool omp_by_cores(const struct env_input *in) {
    return in->omp_cores && in->bound_cores > 0;
}

static enum rule_verdict when_omp(const struct env_input *in) {
    return omp_by_cores(in) || in->nproc > 1 ? RULE_YES : RULE_NO;
}

static void value_omp(const struct env_input *in, struct strbuf *to) {
    strbuf_printf(to, "%u", omp_by_cores(in) ? in->bound_cores : 1);
}

static void reason_omp(const struct env_input *in, struct strbuf *to) {
    if (omp_by_cores(in))
        strbuf_add(to, "--omp=cores: as many threads as the worker has cores");
    else
        strbuf_add(to, "torchrun's default for several workers on a node; --omp=cores gives each "
                       "its share of the cores");
}

/* The index-th of the devices that `list` shows; false: there is none. */
static bool device_item(const struct env_input *in, const char *list, uint32_t index,
                        struct strbuf *to) {
    if (list == NULL) {
        strbuf_printf(to, "%u", index);
        return in->n_visible == 0 || index < in->n_visible;
    }
    size_t n = 0;
    const char *item = list_item(list, index, &n);
    strbuf_add_bytes(to, item, n);
    return n > 0;
}

static bool device_list(const struct env_input *in, const char *list, struct strbuf *to) {
    uint32_t per = MAX2(in->gpus_per_worker, 1u);
    for (uint32_t i = 0; i < per; i++) {
        strbuf_add(to, i > 0 ? "," : "");
        if (!device_item(in, list, in->local_rank * per + i, to))
            return false;
    }
    return true;
}

static enum rule_verdict when_devices(const struct env_input *in, const char *list) {
    if (!in->virtual_local_rank && in->gpus_per_worker == 0)
        return RULE_NO;
    _cleanup_(strbuf_fini) struct strbuf devices = {0};
    return device_list(in, list, &devices) ? RULE_YES : RULE_REFUSES;
}

static void reason_devices(const struct env_input *in, enum rule_verdict v, struct strbuf *to) {
    if (v == RULE_REFUSES)
        strbuf_printf(to, "there are not enough GPUs for local rank %u", in->local_rank);
    else if (in->gpus_per_worker > 0)
        strbuf_printf(to, "--gpus-per-worker=%u: each worker sees only its own GPUs",
                      in->gpus_per_worker);
    else
        strbuf_add(to, "--virtual-local-rank: each worker sees only its own GPU");
}

static const char *cuda_list(const struct env_input *in) {
    return rule_value_of(in, "CUDA_VISIBLE_DEVICES");
}

static enum rule_verdict when_visible(const struct env_input *in) {
    return when_devices(in, cuda_list(in));
}

static void value_visible(const struct env_input *in, struct strbuf *to) {
    (void)device_list(in, cuda_list(in), to);
}

static void reason_visible(const struct env_input *in, struct strbuf *to) {
    reason_devices(in, when_visible(in), to);
}

static const char *hip_list(const struct env_input *in) {
    return rule_value_of(in, "HIP_VISIBLE_DEVICES");
}

static enum rule_verdict when_hip_visible(const struct env_input *in) {
    const char *list = hip_list(in);
    return list == NULL || list[0] == '\0' ? RULE_NO : when_devices(in, list);
}

static void value_hip_visible(const struct env_input *in, struct strbuf *to) {
    (void)device_list(in, hip_list(in), to);
}

static void reason_hip_visible(const struct env_input *in, struct strbuf *to) {
    reason_devices(in, when_hip_visible(in), to);
}

#define FLIGHT "PyTorch, flight recorder: "
static const struct env_rule rules[] = {
    {"CUDA_VISIBLE_DEVICES", RULE_ASKED, when_visible, .narrows = true, .value = value_visible,
     .reason = reason_visible, .source = "CUDA C++ programming guide, environment variables"},
    {"HIP_VISIBLE_DEVICES", RULE_ASKED, when_hip_visible, .narrows = true,
     .value = value_hip_visible, .reason = reason_hip_visible,
     .source = "HIP programming guide: if it is set, CUDA_VISIBLE_DEVICES is not read"},
    {"TORCH_FR_BUFFER_SIZE", RULE_FULL, when_recorder, .other_name = "TORCH_NCCL_TRACE_BUFFER_SIZE",
     .text = "2000",
     .because = "PyTorch's flight recorder: each rank remembers its last 2000 collectives, so that "
                "a hang can be explained",
     .source = FLIGHT "TORCH_FR_BUFFER_SIZE (2.8 and newer); its default depends on the version"},
    {"TORCH_NCCL_TRACE_BUFFER_SIZE", RULE_FULL, when_old_recorder,
     .other_name = "TORCH_FR_BUFFER_SIZE", .text = "2000",
     .because = "PyTorch's flight recorder: each rank remembers its last 2000 collectives, so that "
                "a hang can be explained",
     .source = FLIGHT "TORCH_NCCL_TRACE_BUFFER_SIZE (before 2.8; its default there is 0)"},
    {"TORCH_NCCL_DUMP_ON_TIMEOUT", RULE_FULL, when_recorder_on, .text = "1",
     .because = "the flight recorder writes a file when a collective times out",
     .source = FLIGHT "its default depends on the version"},
    {"TORCH_FR_DUMP_TEMP_FILE", RULE_FULL, when_dump_file,
     .other_name = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", .at_start = true, .value = value_dump_file,
     .because = "the flight recorder writes beside the logs instead of into /tmp",
     .source = FLIGHT "a prefix, the rank follows"},
    {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE", RULE_FULL, when_old_dump_file,
     .other_name = "TORCH_FR_DUMP_TEMP_FILE", .at_start = true, .value = value_dump_file,
     .because = "the flight recorder writes beside the logs instead of into /tmp",
     .source = FLIGHT "its name before 2.8; a prefix, the rank follows"},
    {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE", RULE_FULL, when_recorder_file, .at_start = true,
     .value = value_pipe_file,
     .because = "the flight recorder also writes when something is written into this FIFO",
     .source = FLIGHT "a prefix, the rank and .pipe follow"},
    {"GLOO_ENABLE_STORE_V2_API", RULE_FULL, when_gloo_v2, .text = "1",
     .because = "gloo asks the store for all peers at once: 6 requests for each rank, instead of 3 "
                "for each peer",
     .source = "pytorch/gloo#408"},
    {"GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", RULE_FULL, when_gloo_sequence, .text = "1",
     .because = "what gloo stores stays small, however many ranks there are",
     .source = "pytorch/gloo#407"},
    {"OMP_NUM_THREADS", RULE_ASKED, when_omp, .value = value_omp, .reason = reason_omp,
     .source = "torchrun"},
};
const struct env_rules env_rules_torch = {rules, ARRAY_SIZE(rules)};
