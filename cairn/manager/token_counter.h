// TokenCounter: adds up the token counts of an engine's requests: in total, by tenant, and over two sliding windows.
//
// Thread safety: any thread. A reader sees every addition as a whole, so that the equations of TokenCounts hold in what it
// reads.
// Ownership: shared by the connector that counts and the manager that shows the counts in its status and metrics.
// Complexity: an addition takes constant time and allocates nothing. The window of requests takes 170 bytes a request.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/mutex.h"
#include "cairn/manager/manager_config.h"
#include "cairn/manager/token_counts.h"

namespace cairn {

class TokenCounter {
 public:
  explicit TokenCounter(const RequestsConfig& config);

  // Counts of a request. The request enters the window of requests if counts.requests is 1; returns its number there, by
  // which later counts of it are added. Number 0: the request is in no window.
  std::uint64_t add(TenantId tenant, std::uint64_t number, const TokenCounts& counts, TimePoint now)
      CAIRN_EXCLUDES(mutex_);

  [[nodiscard]] TokenReport report(TimePoint now) const CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] TokenCounts total(TenantId tenant) const CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] TokenCounts last_requests() const CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] TokenCounts last_time(TimePoint now) const CAIRN_EXCLUDES(mutex_);
  // By TenantId; the first is "", for requests that name no tenant.
  [[nodiscard]] const std::vector<std::string>& tenants() const { return names_; }

 private:
  static constexpr std::size_t kSteps = 60;  // that window_time is divided into
  struct Step {
    std::int64_t number = -1;  // since the clock's beginning; -1 if nothing was counted
    TokenCounts counts = {};
  };

  [[nodiscard]] std::int64_t step_at(TimePoint now) const { return now / step_; }
  [[nodiscard]] TokenCounts sum_of_steps(TimePoint now) const CAIRN_REQUIRES(mutex_);

  const Duration step_;
  std::vector<std::string> names_;

  mutable Mutex mutex_{LockRank::kHealth};
  std::vector<TokenCounts> totals_ CAIRN_GUARDED_BY(mutex_);  // by tenant
  // The request with number n is at n % size.
  std::vector<TokenCounts> requests_ CAIRN_GUARDED_BY(mutex_);
  TokenCounts sum_of_requests_ CAIRN_GUARDED_BY(mutex_);
  std::uint64_t next_number_ CAIRN_GUARDED_BY(mutex_) = 1;
  std::array<Step, kSteps> steps_ CAIRN_GUARDED_BY(mutex_) = {};  // step n is at n % kSteps
};

}  // namespace cairn
