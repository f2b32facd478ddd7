#include "cairn/manager/token_counter.h"

#include <algorithm>

namespace cairn {

TokenCounter::TokenCounter(const RequestsConfig& config)
    : step_(std::max<Duration>(config.window_time / kSteps, Duration(1))), names_(1) {
  for (const TenantQuota& tenant : config.tenants) {
    names_.push_back(tenant.name);
  }
  totals_.resize(names_.size());
  requests_.resize(std::max<std::uint32_t>(config.window_requests, 1));
}

std::uint64_t TokenCounter::add(TenantId tenant, std::uint64_t number, const TokenCounts& counts, TimePoint now) {
  const MutexLock lock(mutex_);
  totals_[index_of(tenant)] += counts;
  if (counts.requests != 0) {
    number = next_number_++;
    sum_of_requests_ -= requests_[number % requests_.size()];
    requests_[number % requests_.size()] = {};
  }
  if (number != 0 && number + requests_.size() >= next_number_) {
    requests_[number % requests_.size()] += counts;
    sum_of_requests_ += counts;
  }
  const std::int64_t step = step_at(now);
  Step& current = steps_[static_cast<std::uint64_t>(step) % kSteps];
  if (current.number != step) {
    current = {.number = step};
  }
  current.counts += counts;
  return number;
}

TokenReport TokenCounter::report(TimePoint now) const {
  const MutexLock lock(mutex_);
  TokenReport report{.last_requests = sum_of_requests_, .last_time = sum_of_steps(now)};
  for (std::size_t i = 0; i < names_.size(); ++i) {
    report.tenants.push_back({.name = names_[i], .total = totals_[i]});
    report.total += totals_[i];
  }
  return report;
}

TokenCounts TokenCounter::total(TenantId tenant) const {
  const MutexLock lock(mutex_);
  return totals_[index_of(tenant)];
}

TokenCounts TokenCounter::last_requests() const {
  const MutexLock lock(mutex_);
  return sum_of_requests_;
}

TokenCounts TokenCounter::last_time(TimePoint now) const {
  const MutexLock lock(mutex_);
  return sum_of_steps(now);
}

TokenCounts TokenCounter::sum_of_steps(TimePoint now) const {
  const std::int64_t last = step_at(now);
  TokenCounts sum;
  for (const Step& step : steps_) {
    if (step.number >= 0 && step.number > last - static_cast<std::int64_t>(kSteps)) {
      sum += step.counts;
    }
  }
  return sum;
}

}  // namespace cairn
