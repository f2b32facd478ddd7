#include "cairn/connector/device_block_use.h"

#include "cairn/base/check.h"

namespace cairn {

std::optional<BlockId> DeviceBlockUse::add(std::span<const BlockId> blocks) {
  ++calls_;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::uint32_t block = index_of(blocks[i]);
    if (named_in_[block] == calls_) {
      for (const BlockId added : blocks.first(i)) {
        --uses_[index_of(added)];
      }
      return blocks[i];
    }
    ++uses_[block];
    named_in_[block] = calls_;
  }
  return std::nullopt;
}

std::optional<BlockId> DeviceBlockUse::find_conflict(std::span<const BlockId> blocks, std::size_t shared) const {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::uint32_t uses = uses_[index_of(blocks[i])];
    if (i < shared ? (uses & kLoading) != 0 : (uses & ~kLoading) != 1) {
      return blocks[i];
    }
  }
  return std::nullopt;
}

void DeviceBlockUse::remove(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    std::uint32_t& uses = uses_[index_of(block)];
    CAIRN_CHECK((uses & ~kLoading) > 0, "a device block leaves as many block tables as it stands in");
    --uses;
  }
}

void DeviceBlockUse::begin_load(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    uses_[index_of(block)] |= kLoading;
  }
}

void DeviceBlockUse::end_load(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    uses_[index_of(block)] &= ~kLoading;
  }
}

}  // namespace cairn
