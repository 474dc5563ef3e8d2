#include "watchdog/profile/names.h"

#include <string.h>

#include "base/text/parse.h"
#include "base/util.h"

enum where {
    FILE_HAS,
    FILE_ENDS,
    FILE_BEGINS,
    FUNCTION_IS,
    FUNCTION_HAS,
};
#define BIT(class) (1u << PROFILE_##class)

/* PyTorch's paths are those of 2.13; they have been the same since 2.4 except where noted. */
static const struct row {
    enum where where;
    const char *text;
    unsigned names;
} rows[] = {
    /* wrappers, which are in the way of the call that they wrap */
    {FILE_ENDS, "torch/_ops.py", NAME_TRANSPARENT},                    /* operator dispatch */
    {FILE_ENDS, "torch/utils/_contextlib.py", NAME_TRANSPARENT},       /* @no_grad */
    {FILE_ENDS, "torch/distributed/c10d_logger.py", NAME_TRANSPARENT}, /* times collectives */
    {FILE_ENDS, "torch/_compile.py", NAME_TRANSPARENT},
    {FILE_ENDS, "torch/_dynamo/eval_frame.py", NAME_TRANSPARENT | NAME_COMPILED},
    {FILE_ENDS, "torch/_dynamo/external_utils.py", NAME_COMPILED},
    {FILE_ENDS, "torch/nn/modules/module.py", NAME_TRANSPARENT | BIT(FORWARD)}, /* _call_impl */
    {FILE_ENDS, "torch/autograd/function.py", NAME_TRANSPARENT}, /* a user's backward() */
    {FILE_ENDS, "/threading.py", NAME_TRANSPARENT},
    {FILE_ENDS, "/contextlib.py", NAME_TRANSPARENT},
    {FILE_ENDS, "/functools.py", NAME_TRANSPARENT},
    /* collectives */
    {FILE_HAS, "torch/distributed/distributed_c10d", NAME_COMM},
    {FILE_HAS, "torch/distributed/_functional_collectives", NAME_COMM},
    {FILE_HAS, "torch/distributed/utils", NAME_COMM},
    {FILE_HAS, "torch/distributed/nn/functional", NAME_COMM},
    {FILE_HAS, "torch/distributed/algorithms/", NAME_COMM}, /* communication hooks of DDP */
    {FILE_HAS, "torch/distributed/device_mesh", NAME_COMM},
    {FILE_HAS, "torch/distributed/tensor/", NAME_COMM}, /* DTensor; _tensor/ before 2.5 */
    {FILE_HAS, "torch/distributed/_tensor", NAME_COMM},
    {FILE_HAS, "torch/distributed/pipelining/", NAME_COMM | NAME_OVERLAPS},
    {FILE_HAS, "torch/distributed/fsdp/", NAME_COMM | NAME_OVERLAPS},
    {FILE_HAS, "torch/distributed/_composable/", NAME_COMM | NAME_OVERLAPS}, /* FSDP2 until 2.6 */
    {FILE_HAS, "torch/nn/parallel/distributed.py", NAME_COMM | NAME_OVERLAPS | BIT(FORWARD)},
    {FILE_HAS, "deepspeed/comm/", NAME_COMM},                     /* DeepSpeed 0.10 on */
    {FILE_HAS, "horovod/", NAME_COMM},                            /* Horovod 0.28 */
    {FILE_HAS, "mpi4py/", NAME_COMM},                             /* mpi4py 4.0 */
    {FILE_HAS, "megatron/core/pipeline_parallel/p2p", NAME_COMM}, /* Megatron Core 0.9 */
    /* evaluation: names of Transformers, Lightning and hand-written loops; a heuristic */
    {FUNCTION_IS, "evaluate", BIT(EVAL)},
    {FUNCTION_IS, "evaluation_loop", BIT(EVAL)},
    {FUNCTION_IS, "eval_loop", BIT(EVAL)},
    {FUNCTION_IS, "eval_epoch", BIT(EVAL)},
    {FUNCTION_IS, "validate", BIT(EVAL)},
    {FUNCTION_IS, "validation_step", BIT(EVAL)},
    {FUNCTION_IS, "validation_loop", BIT(EVAL)},
    {FUNCTION_IS, "run_validation", BIT(EVAL)},
    {FUNCTION_IS, "run_eval", BIT(EVAL)},
    {FUNCTION_IS, "do_eval", BIT(EVAL)},
    {FUNCTION_IS, "predict", BIT(EVAL)},
    {FUNCTION_IS, "prediction_step", BIT(EVAL)},
    {FUNCTION_IS, "prediction_loop", BIT(EVAL)},
    {FUNCTION_IS, "test_step", BIT(EVAL)},
    /* checkpoints */
    {FILE_ENDS, "torch/serialization.py", BIT(CHECKPOINT)}, /* torch.save, torch.load */
    {FILE_HAS, "torch/distributed/checkpoint/", BIT(CHECKPOINT)},
    {FILE_HAS, "/safetensors/", BIT(CHECKPOINT)}, /* safetensors 0.4 */
    {FILE_HAS, "/orbax/", BIT(CHECKPOINT)},       /* JAX's, orbax 0.5 */
    {FUNCTION_HAS, "save_checkpoint", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "load_checkpoint", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "save_ckpt", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "load_ckpt", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "save_model", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "load_model", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "save_state", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "load_state", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "save_pretrained", BIT(CHECKPOINT)}, /* Transformers 4 and 5 */
    {FUNCTION_HAS, "load_pretrained", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "_save_optimizer", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "_save_rng", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "maybe_save", BIT(CHECKPOINT)},
    /* the process group, its store, and the first meeting */
    {FUNCTION_IS, "init_process_group", BIT(INIT)},
    {FILE_ENDS, "torch/distributed/rendezvous.py", BIT(INIT)},
    /* torch.compile */
    {FILE_HAS, "torch/_inductor/", BIT(COMPILE)},
    {FILE_HAS, "torch/_functorch/", BIT(COMPILE)},
    {FILE_HAS, "torch/fx/", BIT(COMPILE)},
    {FILE_HAS, "torch/_dynamo/", BIT(COMPILE)},
    {FILE_BEGINS, "<frozen importlib", BIT(IMPORT)},
    /* data loading */
    {FILE_HAS, "torch/utils/data/", BIT(DATA)},
    {FILE_HAS, "/torchdata/", BIT(DATA)},
    {FILE_HAS, "/datasets/", BIT(DATA)}, /* Hugging Face's, 2 to 4 */
    {FILE_HAS, "/webdataset/", BIT(DATA)},
    {FILE_HAS, "/nvidia/dali/", BIT(DATA)},
    {FILE_HAS, "/streaming/", BIT(DATA)}, /* MosaicML's */
    {FILE_HAS, "/grain/", BIT(DATA)},
    {FILE_HAS, "/spdl/", BIT(DATA)},
    {FILE_HAS, "/ffcv/", BIT(DATA)},
    {FILE_HAS, "tensorflow/python/data/", BIT(DATA)},
    {FILE_ENDS, "accelerate/data_loader.py", BIT(DATA)},
    {FILE_ENDS, "multiprocessing/queues.py", NAME_QUEUE}, /* _worker_loop() waits for indexes */
    /* logging */
    {FILE_HAS, "/logging/", BIT(LOGGING)},
    {FILE_HAS, "/tqdm/", BIT(LOGGING)},
    {FILE_HAS, "/wandb/", BIT(LOGGING)},
    {FILE_HAS, "tensorboard", BIT(LOGGING)},
    /* a step */
    {FILE_HAS, "torch/optim/", BIT(OPTIMIZER)},
    {FUNCTION_IS, "_engine_run_backward", BIT(BACKWARD) | NAME_ENGINE}, /* before 2.4: backward */
    {FUNCTION_IS, "item", NAME_DEVICE},
    {FUNCTION_IS, "cpu", NAME_DEVICE},
    {FUNCTION_IS, "tolist", NAME_DEVICE},
    {FUNCTION_IS, "synchronize", NAME_DEVICE},
    /* not the user's code */
    {FILE_HAS, "/site-packages/", NAME_LIBRARY},
    {FILE_HAS, "/dist-packages/", NAME_LIBRARY},
    {FILE_HAS, "/lib/python3", NAME_LIBRARY},
    {FILE_BEGINS, "<frozen", NAME_LIBRARY},
};

static bool fits(const struct row *row, const struct profile_frame *f) {
    switch (row->where) {
    case FILE_HAS: return strstr(f->file, row->text) != NULL;
    case FILE_ENDS: return text_ends(f->file, row->text);
    case FILE_BEGINS: return strncmp(f->file, row->text, strlen(row->text)) == 0;
    case FUNCTION_IS: /* "_evaluate" is as "evaluate" */
        return strcmp(f->function + (f->function[0] == '_' && row->text[0] != '_'), row->text) == 0;
    case FUNCTION_HAS: return strstr(f->function, row->text) != NULL;
    }
    return false;
}

unsigned profile_names_of(const struct profile_frame *f) {
    unsigned names = 0;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        names |= fits(&rows[i], f) ? rows[i].names : 0;
    return (names & NAME_COMPILED) != 0 ? names & ~BIT(COMPILE) : names;
}

static const struct {
    const char *text;
    unsigned calls;
} calls[] = {
    {".wait(", PROFILE_CALLS_WAIT}, /* of the Work that an asynchronous collective returns */
    {".barrier(", PROFILE_CALLS_WAIT},
    {".all_reduce(", PROFILE_CALLS_WAIT},
    {".synchronize(", PROFILE_CALLS_WAIT | PROFILE_CALLS_DEVICE},
    {".item(", PROFILE_CALLS_DEVICE},
    {".cpu(", PROFILE_CALLS_DEVICE},
    {".tolist(", PROFILE_CALLS_DEVICE},
    {".nonzero(", PROFILE_CALLS_DEVICE},
};

unsigned profile_calls_of(const char *line) {
    unsigned found = 0;
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        found |= strstr(line, calls[i].text) != NULL ? calls[i].calls : 0;
    return found;
}

/* gloo_transport of gloo; pt_nccl_* and nccl* of ProcessGroupNCCL and NCCL. */
bool profile_is_transport_thread(const char *name) {
    return strstr(name, "gloo") != NULL || strstr(name, "nccl") != NULL ||
           strstr(name, "NCCL") != NULL;
}
