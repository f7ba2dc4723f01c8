// TensorFlow's own BFC allocator on a device that only counts: tensorflow_bfc_gpu.py compiles it and says what for.
//
//     tensorflow_bfc LIMIT DEVICE GROWTH COLLECTS < events
//
// An event is a request in bytes, or -1 - i (the death of what event i got). For each a line: what was in use and taken of the device
// then, and a fingerprint of where the chunks in use lie; "oom" where a request failed.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <vector>

#include "xla/tsl/framework/bfc_allocator.h"

static const uint64_t BASE = (uint64_t)1 << 40;

// A GPU's: regions lie behind each other, and are not joined.
class Device : public tsl::SubAllocator {
 public:
  explicit Device(uint64_t total) : tsl::SubAllocator({}, {}), left_(total) {}
  void* Alloc(size_t, size_t bytes, size_t* received) override {
    if (bytes > left_) return nullptr;
    left_ -= bytes;
    *received = bytes;
    void* region = (void*)next_;
    next_ += bytes;
    return region;
  }
  void Free(void*, size_t bytes) override { left_ += bytes; }
  bool SupportsCoalescing() const override { return false; }

 private:
  uint64_t left_, next_ = BASE;
};

int main(int, char** arguments) {
  auto number = [&](int i) { return std::strtoull(arguments[i], nullptr, 10); };
  tsl::BFCAllocator::Options options;
  options.allow_growth = number(3);
  options.garbage_collection = number(4);
  options.allow_retry_on_failure = false;
  tsl::BFCAllocator allocator(std::make_unique<Device>(number(2)), number(1), "gpu", options);
  std::vector<void*> blocks;
  std::map<uint64_t, uint64_t> live;
  for (long long event; std::scanf("%lld", &event) == 1;) {
    void* block = nullptr;
    if (event > 0) {
      block = allocator.AllocateRaw(256, event);
      if (block) live[(uint64_t)block] = allocator.AllocatedSize(block);
    } else if (void* dead = std::exchange(blocks[-1 - event], nullptr)) {
      live.erase((uint64_t)dead);
      allocator.DeallocateRaw(dead);
    }
    blocks.push_back(block);
    uint32_t mark = 0;
    for (auto [address, size] : live) mark = (mark * 31 + (uint32_t)((address - BASE) / 256)) * 31 + (uint32_t)(size / 256);
    auto stats = allocator.GetStats();
    std::printf("%lld %lld %u%s\n", (long long)stats->bytes_in_use, (long long)*stats->pool_bytes, mark,
                event > 0 && !block ? " oom" : "");
  }
  std::fflush(stdout);
  std::_Exit(0);
}
