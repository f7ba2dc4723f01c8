/* A driver, NVRTC and NVML without a card: enough of them that Burn trains on it, though its kernels compute nothing. Memory is the
   host's, counted, so that pools and running out of memory are real. FAKE_DRIVER says what is wrong with it, FAKE_MEMORY how many
   bytes the card has. Numbers are those of cuda.h, nvrtc.h and nvml.h. */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, OUT_OF_MEMORY = 2, STUB = 34, UNAVAILABLE = 46, NO_DEVICE = 100, MISMATCH = 803 };

/* What a context takes, as seen by cuMemGetInfo and NVML. */
enum { CONTEXT = 300 << 20 };

static size_t held;
static int contexts;

static int is(const char *what) {
    const char *set = getenv("FAKE_DRIVER");
    return set && !strcmp(set, what);
}

static size_t total(void) {
    const char *set = getenv("FAKE_MEMORY");
    return set ? strtoull(set, NULL, 10) : (size_t)8 << 30;
}

static size_t used(void) { return held + (contexts ? CONTEXT : 0); }

int cuInit(unsigned flags) {
    (void)flags;
    return is("no device") ? NO_DEVICE : is("mismatch") ? MISMATCH : is("stub") ? STUB : SUCCESS;
}
int cuDriverGetVersion(int *version) { *version = is("old") ? 11040 : 12080; return SUCCESS; }
int cuDeviceGetCount(int *count) { *count = is("none shown") ? 0 : 1; return SUCCESS; }
int cuDeviceGet(int *device, int i) { *device = i; return SUCCESS; }
int cuDeviceGetName(char *name, int length, int device) {
    (void)device;
    strncpy(name, "NVIDIA A100-SXM4-40GB", length);
    return SUCCESS;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = total(); return SUCCESS; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) {
    case 1: case 2: case 3: *value = 1024; break; /* threads of a block */
    case 4: *value = 64; break;
    case 5: *value = 2147483647; break; /* blocks of a grid */
    case 6: case 7: *value = 65535; break;
    case 10: *value = 32; break; /* of a warp */
    case 16: *value = 108; break; /* multiprocessors */
    case 75: *value = 8; break; /* compute capability */
    case 97: *value = 163 << 10; break; /* shared memory of a block */
    default: *value = 0;
    }
    return SUCCESS;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    (void)device;
    if (is("busy")) return UNAVAILABLE;
    if (is("full") || (!contexts && used() + CONTEXT > total())) return OUT_OF_MEMORY;
    contexts++;
    *context = &contexts;
    return SUCCESS;
}
int cuCtxSetCurrent(void *context) { (void)context; return SUCCESS; }
int cuMemGetInfo_v2(size_t *free, size_t *all) { *all = total(); *free = *all - used(); return SUCCESS; }

static int allocate(uint64_t *pointer, size_t size) {
    if (used() + size > total()) return OUT_OF_MEMORY;
    size_t *block = calloc(1, size + 64);
    if (!block) return OUT_OF_MEMORY;
    *block = size;
    held += size;
    *pointer = (uint64_t)block + 64;
    return SUCCESS;
}
static int release(uint64_t pointer) {
    size_t *block = (size_t *)(pointer - 64);
    held -= *block;
    free(block);
    return SUCCESS;
}
int cuMemAlloc_v2(uint64_t *pointer, size_t size) { return allocate(pointer, size); }
int cuMemAllocAsync(uint64_t *pointer, size_t size, void *stream) { (void)stream; return allocate(pointer, size); }
int cuMemFree_v2(uint64_t pointer) { return release(pointer); }
int cuMemFreeAsync(uint64_t pointer, void *stream) { (void)stream; return release(pointer); }
int cuMemAllocHost_v2(void **pointer, size_t size) { *pointer = calloc(1, size); return *pointer ? SUCCESS : OUT_OF_MEMORY; }
int cuMemFreeHost(void *pointer) { free(pointer); return SUCCESS; }
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *stream) {
    (void)stream;
    memcpy((void *)to, from, size);
    return SUCCESS;
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *stream) {
    (void)stream;
    memcpy(to, (void *)from, size);
    return SUCCESS;
}
struct copy {
    size_t from_x, from_y;
    int from_kind;
    const void *from_host;
    uint64_t from_device;
    void *from_array;
    size_t from_pitch, to_x, to_y;
    int to_kind;
    void *to_host;
    uint64_t to_device;
    void *to_array;
    size_t to_pitch, width, height;
};
int cuMemcpy2DAsync_v2(const struct copy *copy, void *stream) {
    (void)stream;
    const char *from = copy->from_kind == 1 ? copy->from_host : (const char *)copy->from_device;
    char *to = copy->to_kind == 1 ? copy->to_host : (char *)copy->to_device;
    for (size_t row = 0; row < copy->height; row++)
        memcpy(to + row * copy->to_pitch, from + row * copy->from_pitch, copy->width);
    return SUCCESS;
}

/* Everything is done when it is asked for. */
int cuStreamCreate(void **stream, unsigned flags) { (void)flags; *stream = &held; return SUCCESS; }
int cuStreamSynchronize(void *stream) { (void)stream; return SUCCESS; }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { (void)stream, (void)event, (void)flags; return SUCCESS; }
int cuStreamDestroy_v2(void *stream) { (void)stream; return SUCCESS; }
int cuEventCreate(void **event, unsigned flags) { (void)flags; *event = &held; return SUCCESS; }
int cuEventRecord(void *event, void *stream) { (void)event, (void)stream; return SUCCESS; }
int cuEventSynchronize(void *event) { (void)event; return SUCCESS; }
int cuEventDestroy_v2(void *event) { (void)event; return SUCCESS; }
int cuModuleLoadData(void **module, const void *image) { (void)image; *module = &held; return SUCCESS; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    (void)module, (void)name;
    *function = &held;
    return SUCCESS;
}
int cuFuncSetAttribute(void *function, int attribute, int value) { (void)function, (void)attribute, (void)value; return SUCCESS; }
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **parameters, void **extra) {
    (void)function, (void)x, (void)y, (void)z, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)parameters;
    (void)extra;
    return SUCCESS;
}
int cuGetErrorName(int code, const char **name) { (void)code; *name = "an error"; return SUCCESS; }
int cuGetErrorString(int code, const char **text) {
    *text = code == OUT_OF_MEMORY ? "out of memory" : "an error";
    return SUCCESS;
}

int nvrtcCreateProgram(void **program, const char *source, const char *name, int count, void *headers, void *names) {
    (void)source, (void)name, (void)count, (void)headers, (void)names;
    *program = &held;
    return SUCCESS;
}
int nvrtcCompileProgram(void *program, int count, void *options) { (void)program, (void)count, (void)options; return SUCCESS; }
int nvrtcGetPTXSize(void *program, size_t *size) { (void)program; *size = 1; return SUCCESS; }
int nvrtcGetPTX(void *program, char *ptx) { (void)program; *ptx = 0; return SUCCESS; }
int nvrtcDestroyProgram(void **program) { (void)program; return SUCCESS; }

/* NVML: one card, one process on it. */
struct memory { unsigned long long total, free, used; };
struct process { unsigned pid; unsigned long long used; unsigned instance, compute; };

int nvmlInit_v2(void) { return is("no nvml") ? 9 : SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
int nvmlSystemGetDriverVersion(char *text, unsigned length) { strncpy(text, "570.00", length); return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device) { (void)i; *device = &held; return SUCCESS; }
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    (void)device;
    *memory = (struct memory){total(), total() - used(), used()};
    return SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *found) {
    (void)device;
    unsigned room = *count;
    *count = 1;
    if (!found || room < 1) return 7; /* insufficient size */
    *found = (struct process){getpid(), used(), -1, -1};
    return SUCCESS;
}
