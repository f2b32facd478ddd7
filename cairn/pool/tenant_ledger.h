// TenantLedger: how many blocks of a pool each tenant is charged for, and where the next blocks for a tenant come from.
//
// Invariant: the free blocks cover all unused reservations. What a tenant takes beyond its reservation therefore comes
// from free blocks that nobody reserved, or from inactive blocks that another tenant holds beyond its own reservation.
//
// Thread safety: none; the lock of the pool guards it.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/pool/block_pool.h"

namespace cairn {

class TenantLedger {
 public:
  // Fails if limits and reservations contradict each other or the capacity. Without quotas, one tenant has the whole
  // pool.
  [[nodiscard]] static Result<TenantLedger> create(const std::vector<TenantQuota>& quotas, std::uint32_t capacity);

  [[nodiscard]] std::uint32_t tenant_count() const { return static_cast<std::uint32_t>(accounts_.size()); }
  [[nodiscard]] Result<TenantUsage> usage(TenantId tenant) const;

  // Fails unless the tenant can get `count` blocks while `free` blocks of the pool are free.
  [[nodiscard]] Status can_take(TenantId tenant, std::uint32_t count, std::uint32_t free) const;

  enum class Source : std::uint8_t { kFree, kEvict, kNone };
  struct Next {
    Source source;
    TenantId victim;      // whose blocks to evict
    std::uint32_t count;  // how many in a row, at most
  };
  using TenantSet = std::bitset<256>;
  // Where the tenant's next blocks come from. Tenants in `barren` have no block that can be evicted now; kNone if no
  // other tenant could give any. Requires: can_take() succeeded.
  [[nodiscard]] Next next_source(TenantId tenant, std::uint32_t free, const TenantSet& barren) const;

  // The tenant furthest beyond its reservation, of those that have inactive blocks and are not in `barren`. `gone`: how
  // many inactive blocks of each tenant count as evicted already.
  [[nodiscard]] std::optional<TenantId> furthest_beyond(std::span<const std::uint32_t> gone,
                                                        const TenantSet& barren) const;

  // Blocks that all tenants together have reserved, and reserved without using them.
  [[nodiscard]] std::uint32_t reserved() const { return reserved_; }
  [[nodiscard]] std::uint32_t unmet() const { return unmet_; }

  void charge(TenantId tenant, std::uint32_t count);
  void discharge(TenantId tenant, std::uint32_t count);
  void add_inactive(TenantId tenant, std::uint32_t count) { at(tenant).inactive += count; }
  void remove_inactive(TenantId tenant, std::uint32_t count) { at(tenant).inactive -= count; }

 private:
  struct Account {
    std::string name;
    std::uint32_t reserved;
    std::uint32_t limit;
    std::uint32_t used = 0;
    std::uint32_t inactive = 0;
    [[nodiscard]] std::uint32_t unmet() const { return used < reserved ? reserved - used : 0; }
    [[nodiscard]] std::uint32_t beyond() const { return used > reserved ? used - reserved : 0; }
  };

  explicit TenantLedger(std::vector<Account> accounts);
  Account& at(TenantId tenant) { return accounts_[index_of(tenant)]; }
  [[nodiscard]] const Account& at(TenantId tenant) const { return accounts_[index_of(tenant)]; }

  std::vector<Account> accounts_;
  std::uint32_t reserved_ = 0;  // by all tenants
  std::uint32_t unmet_ = 0;     // of those, not used
};

}  // namespace cairn
