#include "cairn/pool/run_buffers.h"

#include <bit>
#include <cstring>

namespace cairn {

namespace {

constexpr std::uint32_t kSmallest = 8;  // holds the address of the next one with room to spare
constexpr std::size_t kAlwaysKept = 4096;

std::uint32_t size_number(std::uint32_t capacity) { return static_cast<std::uint32_t>(std::countr_zero(capacity)); }

SlotId* next_of(const SlotId* buffer) {
  SlotId* next;
  std::memcpy(static_cast<void*>(&next), buffer, sizeof(next));
  return next;
}

}  // namespace

RunBuffers::RunBuffers(std::uint32_t pool_capacity) : most_kept_(pool_capacity + kAlwaysKept) {}

RunBuffers::~RunBuffers() {
  for (SlotId* buffer : kept_) {
    while (buffer != nullptr) {
      SlotId* next = next_of(buffer);
      delete[] buffer;
      buffer = next;
    }
  }
}

RunBuffers::Buffer RunBuffers::take(std::uint32_t count) {
  const std::uint32_t capacity = count <= kSmallest ? kSmallest : std::bit_ceil(count);
  SlotId*& kept = kept_[size_number(capacity)];
  if (kept == nullptr) {
    return {new SlotId[capacity], capacity};
  }
  SlotId* buffer = kept;
  kept = next_of(buffer);
  kept_slots_ -= capacity;
  return {buffer, capacity};
}

void RunBuffers::give_back(Buffer buffer) {
  if (kept_slots_ + buffer.capacity > most_kept_) {
    delete[] buffer.slots;
    return;
  }
  SlotId*& kept = kept_[size_number(buffer.capacity)];
  std::memcpy(buffer.slots, static_cast<const void*>(&kept), sizeof(kept));
  kept = buffer.slots;
  kept_slots_ += buffer.capacity;
}

}  // namespace cairn
