#include "examples/engine/device_pool.h"

#include <ranges>

#include "cairn/base/check.h"
#include "examples/engine/random.h"

namespace cairn::engine {

PrefixHash hash_block(PrefixHash before, std::span<const TokenId> tokens) {
  PrefixHash hash = before;
  for (const TokenId token : tokens) {
    hash = Random(hash ^ token).next();
  }
  return hash;
}

DevicePool::DevicePool(std::uint32_t blocks) : blocks_(blocks) {
  for (DeviceBlock block = 0; block < blocks; ++block) {
    blocks_[block].free_place = free_.insert(free_.end(), block);
  }
}

std::vector<DeviceBlock> DevicePool::take_cached(std::span<const PrefixHash> hashes) {
  std::vector<DeviceBlock> taken;
  for (const PrefixHash hash : hashes) {
    const auto found = cached_.find(hash);
    if (found == cached_.end()) {
      break;
    }
    Block& block = blocks_[found->second];
    if (block.users++ == 0) {
      free_.erase(block.free_place);
    }
    taken.push_back(found->second);
  }
  return taken;
}

std::optional<std::vector<DeviceBlock>> DevicePool::allocate(std::size_t count) {
  if (count > free_.size()) {
    return std::nullopt;
  }
  std::vector<DeviceBlock> taken;
  for (std::size_t i = 0; i < count; ++i) {
    const DeviceBlock number = free_.front();
    free_.pop_front();
    forget(blocks_[number]);
    blocks_[number].users = 1;
    taken.push_back(number);
  }
  return taken;
}

void DevicePool::cache(DeviceBlock block, PrefixHash hash) {
  CAIRN_CHECK(blocks_[block].users > 0, "a block is cached by a request that uses it");
  if (!blocks_[block].hash && cached_.emplace(hash, block).second) {
    blocks_[block].hash = hash;
  }
}

void DevicePool::release(std::span<const DeviceBlock> blocks) {
  for (const DeviceBlock number : std::views::reverse(blocks)) {
    Block& block = blocks_[number];
    CAIRN_CHECK(block.users > 0, "a block is released as often as it was taken");
    if (--block.users == 0) {
      block.free_place = free_.insert(block.hash ? free_.end() : free_.begin(), number);
    }
  }
}

void DevicePool::forget(Block& block) {
  if (block.hash) {
    cached_.erase(*block.hash);
    block.hash.reset();
  }
}

void DevicePool::forget_all() {
  for (Block& block : blocks_) {
    forget(block);
  }
}

}  // namespace cairn::engine
