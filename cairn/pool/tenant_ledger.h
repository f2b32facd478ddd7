// TenantLedger: who is charged for how many blocks of a pool, and where the next one comes from.
//
// Invariant: the free blocks are always enough to fill every reservation that is not used yet. What a tenant takes
// beyond
//            its reservation therefore comes out of free blocks nobody has a claim to, or of evictable blocks that their
//            owner holds beyond its own reservation.
// Owner:    the block table, whose lock guards every call.
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
  // Fails where limits and reservations contradict each other or the capacity. No quotas: one tenant, the whole pool.
  [[nodiscard]] static Result<TenantLedger> create(const std::vector<TenantQuota>& quotas, std::uint32_t capacity);

  [[nodiscard]] std::uint32_t tenant_count() const { return static_cast<std::uint32_t>(accounts_.size()); }
  [[nodiscard]] Result<TenantUsage> usage(TenantId tenant) const;

  // Whether `count` blocks can be had for the tenant with `free` ones in the pool; an error that says what is missing.
  [[nodiscard]] Status can_take(TenantId tenant, std::uint32_t count, std::uint32_t free) const;

  enum class Source : std::uint8_t { kFree, kEvict, kNone };
  struct Next {
    Source source;
    TenantId victim;      // whose blocks to evict
    std::uint32_t count;  // how many in a row, at most
  };
  using TenantSet = std::bitset<256>;
  // Where the tenant's next blocks come from, if not from those who are known to have nothing to give. Requires:
  // can_take() said yes. kNone: all who could be asked have nothing to give.
  [[nodiscard]] Next next_source(TenantId tenant, std::uint32_t free, const TenantSet& barren) const;

  // Who is to give where it is not known for whom: the one furthest beyond its reservation, of those with evictable blocks
  // that are not known to have nothing to give. `gone`: evictable blocks of each tenant that count as given already.
  [[nodiscard]] std::optional<TenantId> furthest_beyond(std::span<const std::uint32_t> gone,
                                                        const TenantSet& barren) const;

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
  std::uint32_t unmet_ = 0;  // over all tenants
};

}  // namespace cairn
