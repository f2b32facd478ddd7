#include "cairn/pool/tenant_ledger.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "cairn/base/str_cat.h"

namespace cairn {

Result<TenantLedger> TenantLedger::create(const std::vector<TenantQuota>& quotas, std::uint32_t capacity) {
  constexpr std::size_t kMaxTenants = std::size_t{std::numeric_limits<std::uint8_t>::max()} + 1;
  if (quotas.size() > kMaxTenants) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(quotas.size(), " tenants are more than the ", kMaxTenants, " a pool can tell apart"));
  }
  std::vector<Account> accounts;
  std::uint64_t reserved = 0;
  for (const TenantQuota& quota : quotas) {
    const std::uint32_t limit = quota.limit.value_or(capacity);
    if (limit < quota.reserved) {
      return fail(ErrorCode::kInvalidArgument, str_cat("tenant '", quota.name, "' reserves ", quota.reserved,
                                                       " blocks and is limited to ", limit, "; raise the limit"));
    }
    reserved += quota.reserved;
    accounts.push_back({.name = quota.name, .reserved = quota.reserved, .limit = limit});
  }
  if (reserved > capacity) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("the tenants reserve ", reserved, " blocks together and the pool has ", capacity,
                        "; reserve less or enlarge the pool"));
  }
  if (accounts.empty()) {
    accounts.push_back({.name = "default", .reserved = 0, .limit = capacity});
  }
  return TenantLedger(std::move(accounts));
}

TenantLedger::TenantLedger(std::vector<Account> accounts) : accounts_(std::move(accounts)) {
  for (const Account& account : accounts_) {
    reserved_ += account.reserved;
  }
  unmet_ = reserved_;
}

Result<TenantUsage> TenantLedger::usage(TenantId tenant) const {
  if (index_of(tenant) >= accounts_.size()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("the pool has no tenant ", index_of(tenant), "; it was created with ", accounts_.size()));
  }
  return TenantUsage{.used = at(tenant).used, .inactive = at(tenant).inactive};
}

Status TenantLedger::can_take(TenantId tenant, std::uint32_t count, std::uint32_t free) const {
  if (index_of(tenant) >= accounts_.size()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("the pool has no tenant ", index_of(tenant), "; it was created with ", accounts_.size()));
  }
  const Account& self = at(tenant);
  std::uint64_t available = std::uint64_t{self.inactive} + self.unmet() + (free - unmet_);
  for (const Account& other : accounts_) {
    available += &other == &self ? 0 : std::min(other.inactive, other.beyond());
  }
  if (count > available) {
    return fail(ErrorCode::kExhausted, str_cat("cannot allocate ", count, " blocks: ", available, " available (", free,
                                               " free in the pool); release some or enlarge the pool"));
  }
  const std::uint64_t below_limit = std::uint64_t{self.limit} - self.used + self.inactive;
  if (count > below_limit) {
    return fail(ErrorCode::kExhausted, str_cat("cannot allocate ", count, " blocks: tenant '", self.name,
                                               "' is limited to ", self.limit, " and holds ", self.used, ", of which ",
                                               self.inactive, " are inactive; release some or raise the limit"));
  }
  return {};
}

TenantLedger::Next TenantLedger::next_source(TenantId tenant, std::uint32_t free, const TenantSet& barren) const {
  const Account& self = at(tenant);
  if (accounts_.size() == 1) {
    const std::uint32_t more = std::min(free, self.limit - self.used);
    if (more > 0) {
      return {Source::kFree, tenant, more};
    }
    return {barren[index_of(tenant)] ? Source::kNone : Source::kEvict, tenant, self.inactive};
  }
  const bool may_grow = self.used < self.limit;
  if (may_grow && (self.unmet() > 0 || free > unmet_)) {
    return {Source::kFree, tenant, 1};
  }
  // The tenant furthest beyond its reservation gives; the tenant itself unless another one is further.
  const bool self_gives = self.inactive > 0 && !barren[index_of(tenant)];
  Next next{self_gives ? Source::kEvict : Source::kNone, tenant, 1};
  std::uint32_t most = self_gives ? self.beyond() : 0;
  for (std::uint32_t i = 0; may_grow && i < accounts_.size(); ++i) {
    const Account& other = accounts_[i];
    if (&other != &self && !barren[i] && other.inactive > 0 && other.beyond() > most) {
      next = {Source::kEvict, TenantId{static_cast<std::uint8_t>(i)}, 1};
      most = other.beyond();
    }
  }
  return next;
}

std::optional<TenantId> TenantLedger::furthest_beyond(std::span<const std::uint32_t> gone,
                                                      const TenantSet& barren) const {
  std::optional<TenantId> furthest;
  std::uint32_t most = 0;
  for (std::uint32_t i = 0; i < accounts_.size(); ++i) {
    const Account& account = accounts_[i];
    if (barren[i] || account.inactive <= gone[i]) {
      continue;
    }
    const std::uint32_t beyond = account.beyond() - std::min(account.beyond(), gone[i]);
    if (!furthest || beyond > most) {
      furthest = TenantId{static_cast<std::uint8_t>(i)};
      most = beyond;
    }
  }
  return furthest;
}

void TenantLedger::charge(TenantId tenant, std::uint32_t count) {
  Account& account = at(tenant);
  unmet_ -= account.unmet();
  account.used += count;
  unmet_ += account.unmet();
}

void TenantLedger::discharge(TenantId tenant, std::uint32_t count) {
  Account& account = at(tenant);
  unmet_ -= account.unmet();
  account.used -= count;
  unmet_ += account.unmet();
}

}  // namespace cairn
