#include "cairn/pool/run_buffers.h"

#include <bit>
#include <cstring>

namespace cairn {

namespace {

constexpr std::uint32_t kSmallest = 8;  // holds the address of the next one with room to spare
constexpr std::size_t kAlwaysKept = 4096;

std::uint32_t size_number(std::uint32_t capacity) { return static_cast<std::uint32_t>(std::countr_zero(capacity)); }

BlockId* next_of(const BlockId* buffer) {
  BlockId* next;
  std::memcpy(static_cast<void*>(&next), buffer, sizeof(next));
  return next;
}

}  // namespace

RunBuffers::RunBuffers(std::uint32_t pool_capacity) : most_kept_(pool_capacity + kAlwaysKept) {}

RunBuffers::~RunBuffers() {
  for (BlockId* buffer : kept_) {
    while (buffer != nullptr) {
      BlockId* next = next_of(buffer);
      delete[] buffer;
      buffer = next;
    }
  }
}

RunBuffers::Buffer RunBuffers::take(std::uint32_t count) {
  const std::uint32_t capacity = count <= kSmallest ? kSmallest : std::bit_ceil(count);
  BlockId*& kept = kept_[size_number(capacity)];
  if (kept == nullptr) {
    return {new BlockId[capacity], capacity};
  }
  BlockId* buffer = kept;
  kept = next_of(buffer);
  kept_block_ids_ -= capacity;
  return {buffer, capacity};
}

void RunBuffers::put_back(Buffer buffer) {
  if (kept_block_ids_ + buffer.capacity > most_kept_) {
    delete[] buffer.block_ids;
    return;
  }
  BlockId*& kept = kept_[size_number(buffer.capacity)];
  std::memcpy(buffer.block_ids, static_cast<const void*>(&kept), sizeof(kept));
  kept = buffer.block_ids;
  kept_block_ids_ += buffer.capacity;
}

}  // namespace cairn
