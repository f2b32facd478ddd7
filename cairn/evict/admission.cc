#include "cairn/evict/admission.h"

#include <algorithm>
#include <utility>

#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

// Below this share of a full budget, the required chance rises.
constexpr double kFrugalBelow = 0.5;
// The best recent chance fades by this factor with each offer, so that it follows the traffic.
constexpr double kBestFades = 0.999;

// Names a block by what its own key and its children's keys both hold: its position and some bits of its hash.
std::uint64_t name_of(std::uint32_t position, std::uint64_t hash, const KeySeed& seed) {
  constexpr std::uint64_t kMask = (std::uint64_t{1} << BlockKey::kMinFragmentBits) - 1;
  return ((hash & kMask) ^ (std::uint64_t{position} << BlockKey::kMinFragmentBits)) * seed.second;
}

std::uint32_t print_of(std::uint64_t name) { return static_cast<std::uint32_t>(name) | 1; }

std::size_t place_of(std::uint64_t name, std::size_t size) { return ((name >> 32) * size) >> 32; }

}  // namespace

std::string_view to_string(Admission admission) {
  switch (admission) {
    case Admission::kAdmitted:
      return "admitted";
    case Admission::kTooShort:
      return "too short";
    case Admission::kNeverSeenTwice:
      return "never seen twice";
    case Admission::kWouldNotLast:
      return "would not last";
    case Admission::kOverBudget:
      return "over budget";
  }
  return "unknown";
}

Result<AdmissionFilter> AdmissionFilter::create(const AdmissionOptions& options, TimePoint now) {
  if (options.capacity == 0) {
    return fail(ErrorCode::kInvalidArgument, "the tier has 0 blocks; give the number of blocks it holds");
  }
  if (options.least_uses > ReuseHistory::kMaxUses) {
    return fail(ErrorCode::kInvalidArgument, str_cat("uses are counted up to ", ReuseHistory::kMaxUses,
                                                     "; blocks with ", options.least_uses, " cannot be distinguished"));
  }
  if (!(options.least_chance >= 0 && options.least_chance < 1)) {
    return fail(ErrorCode::kInvalidArgument, "least_chance is out of range; give a number from 0 to below 1");
  }
  if (options.bytes_per_day > 0 && options.block_bytes == 0) {
    return fail(ErrorCode::kInvalidArgument, "bytes_per_day is set but block_bytes is 0; give the bytes of a block");
  }
  CAIRN_TRY_ASSIGN(ReuseHistory history, ReuseHistory::create(options.capacity, options.seed));
  CAIRN_TRY_ASSIGN(PageArray<std::uint32_t> needed, PageArray<std::uint32_t>::create(options.capacity));
  return AdmissionFilter(options, std::move(history), std::move(needed), now);
}

AdmissionFilter::AdmissionFilter(const AdmissionOptions& options, ReuseHistory history, PageArray<std::uint32_t> needed,
                                 TimePoint now)
    : options_(options),
      history_(std::move(history)),
      needed_(std::move(needed)),
      model_(options.capacity),
      lifetime_(model_.horizon()) {
  if (options_.bytes_per_day > 0) {
    budget_.emplace(options_.bytes_per_day, now);
  }
}

void AdmissionFilter::used(std::span<const BlockKey> blocks) {
  for (const BlockKey& block : blocks) {
    ++now_;
    std::uint32_t uses = 1;
    if (const auto past = history_.find(block, now_); past && past->age <= model_.horizon()) {
      model_.returned(past->uses, past->age);
      uses = std::min(past->uses + 1, ReuseHistory::kMaxUses);
    }
    model_.began(uses);
    history_.record(block, now_, uses);
    model_.fade(now_);
  }
}

std::uint32_t AdmissionFilter::uses(const BlockKey& block) const {
  const auto past = history_.find(block, now_);
  return past ? past->uses : 0;
}

Admission AdmissionFilter::offer(const BlockKey& block, std::uint32_t sequence_blocks, TimePoint now) {
  return count_verdict(block, judge(block, sequence_blocks, now));
}

Admission AdmissionFilter::demand(const BlockKey& block, TimePoint now) {
  return count_verdict(block, within_budget(1, now));
}

Admission AdmissionFilter::count_verdict(const BlockKey& block, Admission verdict) {
  ++counts_[static_cast<std::size_t>(verdict)];
  if (verdict == Admission::kAdmitted) {
    on_written(block);
  }
  return verdict;
}

Admission AdmissionFilter::judge(const BlockKey& block, std::uint32_t sequence_blocks, TimePoint now) {
  const std::uint64_t name = name_of(block.position(), value_of(block.sequence_hash()), options_.seed);
  if (needed_[place_of(name, needed_.size())] == print_of(name)) {
    return within_budget(1, now);
  }
  if (sequence_blocks < options_.least_blocks) {
    return Admission::kTooShort;
  }
  // A block that was forgotten counts as used once, as long ago as uses are remembered.
  const ReuseHistory::Past past =
      history_.find(block, now_).value_or(ReuseHistory::Past{.age = model_.horizon(), .uses = 1});
  if (past.uses < options_.least_uses) {
    return Admission::kNeverSeenTwice;
  }
  const double its_chance = chance(past.uses, past.age);
  best_chance_ = std::max(best_chance_ * kBestFades, its_chance);
  if (its_chance < options_.least_chance) {
    return Admission::kWouldNotLast;
  }
  return within_budget(its_chance, now);
}

Admission AdmissionFilter::within_budget(double chance, TimePoint now) {
  if (budget_) {
    const double frugality = std::max(0.0, 1 - budget_->fullness(now) / kFrugalBelow);
    if (chance < frugality * best_chance_ || !budget_->take(options_.block_bytes, now)) {
      return Admission::kOverBudget;
    }
  }
  return Admission::kAdmitted;
}

double AdmissionFilter::chance(std::uint32_t uses, std::uint64_t age) const {
  return model_.chance(uses, age, age + lifetime_);
}

void AdmissionFilter::on_written(const BlockKey& block) {
  if (block.position() > 0) {
    const std::uint64_t parent = name_of(block.position() - 1, block.parent_fragment(), options_.seed);
    needed_[place_of(parent, needed_.size())] = print_of(parent);
  }
  ++written_since_;
  if (written_since_ < std::max(1U, options_.capacity / 4)) {
    return;
  }
  const double for_each = static_cast<double>(now_ - measured_at_) / written_since_;
  const auto measured = static_cast<std::uint64_t>(for_each * options_.capacity);
  lifetime_ = std::min(model_.horizon(), (lifetime_ + measured) / 2);
  measured_at_ = now_;
  written_since_ = 0;
}

}  // namespace cairn
