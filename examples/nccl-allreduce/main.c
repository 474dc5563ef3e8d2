/* Sums a buffer over all GPUs with NCCL, checks the sum and measures it.
 *
 * One process per GPU, started by `muster run --no-python` (or torchrun). Rank 0 makes NCCL's
 * unique id; the others get it through the store. If a peer dies, NCCL can wait for ever, so the
 * launcher must end the others. */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "muster/store.h"

#define LIMIT_MS 300000
#define WARM_UP 5
#define ROUNDS 20

/* Each check reports what failed and returns -1 from the function. */
#define CUDA(call)                                                                      \
    do {                                                                                \
        cudaError_t e_ = (call);                                                        \
        if (e_ != cudaSuccess) {                                                        \
            fprintf(stderr, "nccl-allreduce: %s: %s\n", #call, cudaGetErrorString(e_)); \
            return -1;                                                                  \
        }                                                                               \
    } while (0)
#define NCCL(call)                                                                         \
    do {                                                                                   \
        ncclResult_t e_ = (call);                                                          \
        if (e_ != ncclSuccess) {                                                           \
            fprintf(stderr, "nccl-allreduce: %s: %s; %s\n", #call, ncclGetErrorString(e_), \
                    ncclGetLastError(NULL));                                               \
            return -1;                                                                     \
        }                                                                                  \
    } while (0)
#define STORE(call)                                                        \
    do {                                                                   \
        if ((call) < 0) {                                                  \
            fprintf(stderr, "nccl-allreduce: %s\n", muster_store_error()); \
            return -1;                                                     \
        }                                                                  \
    } while (0)

struct job {
    int rank, size, local_rank;
    size_t n; /* floats in the buffer */
    struct muster_store *store;
    ncclComm_t comm;
    cudaStream_t stream;
    float *in, *out; /* on the GPU */
};

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text == NULL ? otherwise : atoi(text);
}

static int meet(struct job *j) {
    ncclUniqueId id;
    if (j->size > 1)
        STORE(muster_store_connect_env(LIMIT_MS, &j->store));
    if (j->rank == 0) {
        NCCL(ncclGetUniqueId(&id));
        if (j->size > 1)
            STORE(muster_store_set(j->store, "nccl/id", &id, sizeof(id)));
    } else {
        void *value = NULL;
        size_t len = 0;
        STORE(muster_store_get(j->store, "nccl/id", LIMIT_MS, &value, &len));
        if (len != sizeof(id)) {
            fprintf(stderr,
                    "nccl-allreduce: the id in the store has %zu bytes: is another NCCL "
                    "running on rank 0?\n",
                    len);
            free(value);
            return -1;
        }
        memcpy(&id, value, sizeof(id));
        free(value);
    }
    int gpus = 0;
    CUDA(cudaGetDeviceCount(&gpus));
    CUDA(cudaSetDevice(j->local_rank % gpus));
    NCCL(ncclCommInitRank(&j->comm, j->size, id, j->rank));
    return 0;
}

/* Every rank sets each element to rank + 1. */
static int fill(struct job *j) {
    float *host = malloc(j->n * sizeof(float));
    if (host == NULL) {
        fprintf(stderr, "nccl-allreduce: no memory for %zu floats\n", j->n);
        return -1;
    }
    for (size_t i = 0; i < j->n; i++)
        host[i] = (float)(j->rank + 1);
    CUDA(cudaStreamCreate(&j->stream));
    CUDA(cudaMalloc((void **)&j->in, j->n * sizeof(float)));
    CUDA(cudaMalloc((void **)&j->out, j->n * sizeof(float)));
    CUDA(cudaMemcpy(j->in, host, j->n * sizeof(float), cudaMemcpyHostToDevice));
    free(host);
    return 0;
}

static int check(const struct job *j) {
    float want = (float)j->size * (float)(j->size + 1) / 2;
    float *host = malloc(j->n * sizeof(float));
    if (host == NULL)
        return -1;
    CUDA(cudaMemcpy(host, j->out, j->n * sizeof(float), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < j->n; i++) {
        if (host[i] != want) {
            fprintf(stderr, "nccl-allreduce: rank %d: element %zu is %g and should be %g\n",
                    j->rank, i, (double)host[i], (double)want);
            free(host);
            return -1;
        }
    }
    free(host);
    return 0;
}

/* Bus bandwidth is what each GPU's link carries, 2 (n - 1) / n of the buffer per sum.
 * https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md */
static int measure(const struct job *j) {
    cudaEvent_t begin, end;
    float ms = 0;
    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));
    for (int i = 0; i < WARM_UP + ROUNDS; i++) {
        if (i == WARM_UP)
            CUDA(cudaEventRecord(begin, j->stream));
        NCCL(ncclAllReduce(j->in, j->out, j->n, ncclFloat, ncclSum, j->comm, j->stream));
    }
    CUDA(cudaEventRecord(end, j->stream));
    CUDA(cudaEventSynchronize(end));
    CUDA(cudaEventElapsedTime(&ms, begin, end));
    if (j->rank == 0) {
        double bytes = (double)j->n * sizeof(float), seconds = (double)ms / 1e3 / ROUNDS;
        printf("sum of %.0f MiB over %d GPUs: right; %.3f ms, bus bandwidth %.2f GB/s\n",
               bytes / (1 << 20), j->size, seconds * 1e3,
               bytes / seconds * 2 * (j->size - 1) / j->size / 1e9);
    }
    CUDA(cudaEventDestroy(begin));
    CUDA(cudaEventDestroy(end));
    return 0;
}

static int run(struct job *j) {
    if (meet(j) < 0 || fill(j) < 0)
        return -1;
    NCCL(ncclAllReduce(j->in, j->out, j->n, ncclFloat, ncclSum, j->comm, j->stream));
    CUDA(cudaStreamSynchronize(j->stream));
    if (check(j) < 0 || measure(j) < 0)
        return -1;
    CUDA(cudaFree(j->in));
    CUDA(cudaFree(j->out));
    NCCL(ncclCommDestroy(j->comm));
    if (j->size > 1) /* no rank leaves before all have checked their sums */
        STORE(muster_store_barrier(j->store, "done", (unsigned)j->size, LIMIT_MS));
    return 0;
}

int main(int argc, char **argv) {
    struct job j = {.rank = number("RANK", 0),
                    .size = number("WORLD_SIZE", 1),
                    .local_rank = number("LOCAL_RANK", 0),
                    .n = (size_t)64 << 18};
    char *end = NULL;
    if (argc == 2) {
        errno = 0;
        j.n = strtoul(argv[1], &end, 10) << 18;
    }
    if (argc > 2 || j.n == 0 || (argc == 2 && (*end != 0 || errno != 0 || argv[1][0] == '-')) ||
        j.size < 1 || j.rank < 0 || j.rank >= j.size) {
        fprintf(stderr, "usage: nccl-allreduce [MIB]\n  MIB: size of the buffer (default: 64)\n");
        return 2;
    }
    int r = run(&j);
    muster_store_close(j.store);
    return r < 0 ? 1 : 0;
}
