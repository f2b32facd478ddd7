// Block tables for an engine without prefix reuse: two sequences share the blocks of a prompt until one of them writes.
// docs/allocator.md shows the part between the marks.
#include <cstdio>

#include "cairn/allocator/block_manager.h"

int main() {
  using namespace cairn;
  // docs: begin
  auto device = SharedBlockAllocator::create(/*total_blocks=*/1024, /*block_size=*/16, /*device_id=*/0).value();
  auto chat = BlockManager::create_shared(device, {.name = "chat", .reserved = 256}).value();
  auto batch = BlockManager::create_shared(device, {.name = "batch", .limit = 512}).value();

  // A prompt of 40 tokens takes 3 blocks. A second answer to the same prompt shares them.
  constexpr std::uint64_t kFirst = 1;
  constexpr std::uint64_t kSecond = 2;
  (void)chat->allocate(kFirst, 3).value();
  (void)chat->fork(kFirst, kSecond);

  // The last block has room for 8 more tokens, but it is shared: the second answer writes into a copy.
  WritableBlock last = chat->make_writable(kSecond, 2).value();
  if (last.copy_from) {
    std::printf("copy block %u to block %u\n", last.copy_from->block().block_number, last.block.block_number);
    last.copy_from.reset();  // the copy is finished
  }
  std::printf("2 sequences of 3 blocks use %u blocks\n", chat->used_blocks());

  // Other tenants cannot take what is reserved: 1024 - 256 blocks are left for them, and `batch` may have 512.
  std::printf("batch can allocate 512 blocks: %s, 513: %s\n", batch->can_allocate(512) ? "yes" : "no",
              batch->can_allocate(513) ? "yes" : "no");
  chat->free(kFirst);
  chat->free(kSecond);
  // docs: end
  return device->free_blocks() == device->total_blocks() ? 0 : 1;
}
