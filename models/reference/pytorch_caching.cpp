// PyTorch's own caching allocator (libc10_cuda) on a CUDA runtime that only counts: pytorch_caching.py compiles it and says what for.
//
//     pytorch_caching TOTAL_MIB FRACTION < events
//
// An event is a request in bytes, -1 - i (the death of what event i got) or 0 (empty_cache). For each a line: what was allocated and
// reserved then, how often the cache was emptied for a retry, the blocks' fingerprint; "oom" where a request failed. At the end
// its segments.

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/PeerToPeerAccess.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

static size_t total, held;
// Above all that is handed out, addresses only grow, each segment at a multiple of 20 MiB and of 2 MiB.
static size_t next_address = (size_t)20 << 40;
static std::map<size_t, size_t> taken;

static size_t reserve(size_t bytes) {
  size_t address = next_address, page = 20 << 20;
  next_address += (bytes + 2 * page - 1) / page * page;
  return address;
}

extern "C" {
cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  if (held + bytes > total) return cudaErrorMemoryAllocation;
  held += bytes;
  size_t address = reserve(bytes);
  taken[address] = bytes;
  *pointer = (void*)address;
  return cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
  held -= taken[(size_t)pointer];
  taken.erase((size_t)pointer);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* all) {
  *free = total - held, *all = total;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13020, cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { return *least = *greatest = 0, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof *properties);
  properties->totalGlobalMem = total;
  return cudaSuccess;
}

// What growing segments ask the driver for: address space apart from pages.
static CUresult address_reserve(CUdeviceptr* pointer, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  return *pointer = reserve(bytes), CUDA_SUCCESS;
}
static CUresult page_create(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp*, unsigned long long) {
  if (held + bytes > total) return CUDA_ERROR_OUT_OF_MEMORY;
  held += bytes;
  return *handle = bytes, CUDA_SUCCESS;
}
static CUresult page_release(CUmemGenericAllocationHandle handle) { return held -= handle, CUDA_SUCCESS; }
static CUresult anything(...) { return CUDA_SUCCESS; }

cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* result) {
  *function = !std::strcmp(name, "cuMemAddressReserve") ? (void*)address_reserve
      : !std::strcmp(name, "cuMemCreate")              ? (void*)page_create
      : !std::strcmp(name, "cuMemRelease")             ? (void*)page_release
                                                       : (void*)anything;
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
}

// It would ask NVML.
bool c10::cuda::get_fabric_access(c10::DeviceIndex) { return false; }

using c10::CachingDeviceAllocator::SegmentInfo;

static std::vector<SegmentInfo> segments() {
  auto all = c10::cuda::CUDACachingAllocator::snapshot().segments;
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.address < b.address; });
  return all;
}

// Of where the blocks of all segments lie: a number that another order or size changes.
static uint32_t fingerprint() {
  uint32_t mark = 0;
  for (const auto& segment : segments()) {
    for (const auto& block : segment.blocks) mark = mark * 31 + (uint32_t)(block.size / 512 * 2 + block.allocated);
    mark = mark * 31 + 7;
  }
  return mark;
}

int main(int, char** arguments) {
  using namespace c10::cuda;
  total = std::strtoull(arguments[1], nullptr, 10) << 20;
  CUDACachingAllocator::init(1);
  if (double fraction = std::atof(arguments[2])) CUDACachingAllocator::setMemoryFraction(fraction, 0);
  std::vector<void*> blocks;
  for (long long event; std::scanf("%lld", &event) == 1;) {
    void* block = nullptr;
    bool failed = false;
    if (event > 0) {
      try {
        block = CUDACachingAllocator::raw_alloc(event);
      } catch (const c10::OutOfMemoryError&) {
        failed = true;
      }
    } else if (event < 0) {
      CUDACachingAllocator::raw_delete(std::exchange(blocks[-1 - event], nullptr));
    } else {
      CUDACachingAllocator::emptyCache();
    }
    blocks.push_back(block);
    auto stats = CUDACachingAllocator::getDeviceStats(0);
    std::printf("%lld %lld %lld %u%s\n", (long long)stats.allocated_bytes[0].current, (long long)stats.reserved_bytes[0].current,
                (long long)stats.num_alloc_retries, fingerprint(), failed ? " oom" : "");
  }
  for (const auto& segment : segments()) {
    std::printf("segment");
    for (const auto& block : segment.blocks) std::printf(" %lld", block.allocated ? -(long long)block.size : (long long)block.size);
    std::printf("\n");
  }
  std::fflush(stdout);
  std::_Exit(0);
}
