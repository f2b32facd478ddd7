// ClassLayout: how a pool folds tenant, priority and hint level of a block into one eviction class.
//
// Classes are ordered by tenant, then priority, then level, so that the classes of one tenant are a range and a policy,
// which empties lower classes first, evicts lower priorities first.
#pragma once

#include <bit>
#include <cstdint>

#include "cairn/base/ids.h"
#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/hint_book.h"
#include "cairn/pool/blocks.h"

namespace cairn {

class ClassLayout {
 public:
  static constexpr std::uint32_t kMaxClasses = 1U << 16;

  // `levels`: kHintLevels if the pool takes hints, else 1. Requires: tenants * priorities * levels <= kMaxClasses.
  ClassLayout(std::uint32_t tenants, std::uint32_t levels)
      : tenants_(tenants), level_bits_(static_cast<std::uint32_t>(std::countr_zero(levels))) {}

  [[nodiscard]] static constexpr std::uint32_t max_tenants(std::uint32_t levels) {
    return kMaxClasses / (kPriorities * levels);
  }
  [[nodiscard]] std::uint32_t count() const { return tenants_ * kPriorities << level_bits_; }

  // `level` is ignored if the pool takes no hints.
  [[nodiscard]] EvictionClass class_of(TenantId tenant, std::uint32_t priority, HintLevel level = kNormalLevel) const {
    const std::uint32_t without_level = index_of(tenant) * kPriorities + priority;
    return EvictionClass{
        static_cast<std::uint16_t>(without_level << level_bits_ | (level & ((1U << level_bits_) - 1)))};
  }
  [[nodiscard]] TenantId tenant_of(EvictionClass c) const {
    return TenantId{static_cast<std::uint8_t>((index_of(c) >> level_bits_) / kPriorities)};
  }
  [[nodiscard]] std::uint32_t priority_of(EvictionClass c) const { return (index_of(c) >> level_bits_) % kPriorities; }
  [[nodiscard]] HintLevel level_of(EvictionClass c) const { return index_of(c) & ((1U << level_bits_) - 1); }

  [[nodiscard]] ClassRange all() const { return {0, count()}; }
  [[nodiscard]] ClassRange of_tenant(TenantId tenant) const {
    return {index_of(tenant) * kPriorities << level_bits_, (index_of(tenant) + 1) * kPriorities << level_bits_};
  }

 private:
  static constexpr std::uint32_t kPriorities = Retention::kMaxPriority + 1;

  std::uint32_t tenants_;
  std::uint32_t level_bits_;
};

}  // namespace cairn
