#include "cairn/evict/hint_book.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "cairn/tokens/block_key.h"

namespace cairn {

namespace {

using Kind = RetentionHint::Kind;

constexpr HintLevel kGoesFirst = 0;
constexpr HintLevel kGoesLast = kHintLevels - 1;
// The scale is the time per hit. This one holds until something was observed.
constexpr Duration kFirstScale = std::chrono::seconds(60);
constexpr Duration kLeastScale = std::chrono::milliseconds(1);
constexpr Duration kMostScale = std::chrono::hours(24);
constexpr std::int64_t kSystemPromptScales = 4;
// A tenant is judged once this many blocks were counted, by about the last few thousand.
constexpr std::uint32_t kFewest = 64;
constexpr std::uint32_t kMost = 4096;
// Removed keys are remembered for this many turnovers of the pool.
constexpr std::uint32_t kPoolsRemembered = 8;

// A block that returns within this many sixteenths of the scale has this level. Blocks worth keeping return at any time
// up to the longest that is worth waiting for, which is about twice their average. So the normal level is at twice the
// scale.
struct Step {
  std::int64_t sixteenths;
  HintLevel level;
};
constexpr Step kSteps[] = {{1, 15}, {2, 14}, {4, 13}, {8, 12},  {16, 11}, {24, 10}, {32, 9},
                           {48, 7}, {64, 6}, {96, 5}, {128, 4}, {192, 3}, {256, 2}};
constexpr HintLevel kFarthest = 1;

}  // namespace

Result<HintBook> HintBook::create(std::uint32_t capacity, std::uint32_t tenants, const KeySeed& seed) {
  CAIRN_TRY_ASSIGN(PageArray<Record> records, PageArray<Record>::create(capacity));
  CAIRN_TRY_ASSIGN(PageArray<std::uint32_t> departed, PageArray<std::uint32_t>::create(std::max(1024U, capacity / 8)));
  return HintBook(std::move(records), std::move(departed), capacity, tenants, seed);
}

HintBook::HintBook(PageArray<Record> records, PageArray<std::uint32_t> departed, std::uint32_t capacity,
                   std::uint32_t tenants, const KeySeed& seed)
    : seed_(seed),
      records_(std::move(records)),
      departed_(std::move(departed)),
      sampled_one_in_(
          std::max(1U, static_cast<std::uint32_t>(std::uint64_t{kPoolsRemembered} * capacity / departed_.size()))),
      trust_(tenants),
      window_(std::max(64U, capacity / 4)),
      scale_(kFirstScale) {}

void HintBook::add(BlockId block_id, const RetentionHint& hint, TimePoint now) {
  Record& record = records_[index_of(block_id)];
  const bool awaited = record.kind == Kind::kReturns && record.at_ns >= now.count();
  switch (hint.kind) {
    case Kind::kReturns: {
      const std::int64_t at = now.count() + std::min(hint.in, kMostScale * 365).count();
      if (record.kind == Kind::kSystemPrompt || (awaited && record.at_ns <= at)) {
        return;
      }
      const auto ms = std::chrono::ceil<std::chrono::milliseconds>(hint.in).count();
      constexpr std::int64_t kLongest = std::numeric_limits<std::uint32_t>::max();
      record = {.at_ns = at, .for_ms = static_cast<std::uint32_t>(std::min(ms, kLongest)), .kind = Kind::kReturns};
      return;
    }
    case Kind::kSystemPrompt:
      record = {.at_ns = (now + kSystemPromptScales * scale_).count(), .for_ms = 0, .kind = Kind::kSystemPrompt};
      return;
    case Kind::kWillNotReturn:
      if (record.kind != Kind::kSystemPrompt && !awaited) {
        record.kind = Kind::kWillNotReturn;
      }
      return;
    case Kind::kNone:
      record.kind = Kind::kNone;
      return;
  }
}

void HintBook::on_released(BlockId block_id, TimePoint now) {
  Record& record = records_[index_of(block_id)];
  if (record.kind == Kind::kSystemPrompt) {
    record.at_ns = (now + kSystemPromptScales * scale_).count();
  }
}

HintBook::Rank HintBook::rank(BlockId block_id, TenantId tenant, TimePoint now) {
  Record& record = records_[index_of(block_id)];
  if (record.kind == Kind::kNone) {
    return {};
  }
  Rank rank{.level = kGoesFirst};
  if (record.kind == Kind::kReturns) {
    rank = rank_of_return(record, now);
  } else if (record.kind == Kind::kSystemPrompt) {
    rank = {.level = kGoesLast, .review = TimePoint(record.at_ns)};
  }
  if (rank.review <= now) {
    trust(tenant, record.kind).add_broken();
    record.kind = Kind::kNone;
    return {};
  }
  if (!believes(tenant, record.kind)) {
    rank.level = kNormalLevel;
  }
  return rank;
}

// The review is due when the next step is reached. A review that is not after `now` means that the time of the hint has
// passed.
HintBook::Rank HintBook::rank_of_return(const Record& record, TimePoint now) const {
  const Duration left = TimePoint(record.at_ns) - now;
  const Duration sixteenth = scale_ / 16;
  TimePoint review(record.at_ns + std::int64_t{record.for_ms} * 250'000);
  for (const auto& [sixteenths, level] : kSteps) {
    if (left <= sixteenths * sixteenth) {
      return {.level = level, .review = review};
    }
    review = TimePoint(record.at_ns) - sixteenths * sixteenth;
  }
  return {.level = kFarthest, .review = review};
}

void HintBook::on_used(BlockId block_id, TenantId tenant, const BlockKey& key) {
  Record& record = records_[index_of(block_id)];
  if (record.kind == Kind::kNone) {
    return;
  }
  Trust& of_kind = trust(tenant, record.kind);
  std::uint32_t print = 0;
  if (record.kind != Kind::kWillNotReturn) {
    of_kind.add_kept();
  } else if (departed_at(key, print) != nullptr) {  // only keys of the sample, in which removed keys are counted too
    of_kind.add_broken();
  }
  if (record.kind != Kind::kSystemPrompt) {
    record.kind = Kind::kNone;
  }
}

void HintBook::on_removed(BlockId block_id, TenantId tenant, const BlockKey& key) {
  Record& record = records_[index_of(block_id)];
  if (record.kind == Kind::kWillNotReturn) {
    std::uint32_t print = 0;
    if (std::uint32_t* const place = departed_at(key, print)) {
      *place = print;
      trust(tenant, Kind::kWillNotReturn).add_kept();
    }
  }
  record.kind = Kind::kNone;
}

void HintBook::on_registered(TenantId tenant, const BlockKey& key) {
  std::uint32_t print = 0;
  std::uint32_t* const place = departed_at(key, print);
  if (place == nullptr || *place != print) {
    return;
  }
  *place = 0;
  Trust& of_kind = trust(tenant, Kind::kWillNotReturn);
  of_kind.kept -= of_kind.kept > 0 ? 1 : 0;  // as it was counted when it was removed
  of_kind.add_broken();
}

std::uint32_t* HintBook::departed_at(const BlockKey& key, std::uint32_t& print) {
  const std::uint64_t hash = hash_of(key, seed_);
  if ((hash & 0xFFFF) % sampled_one_in_ != 0) {
    return nullptr;
  }
  print = static_cast<std::uint32_t>(hash >> 32) | 1;
  return &departed_[((hash & 0xFFFFFFFF) * departed_.size()) >> 32];
}

void HintBook::observe(std::uint32_t hits, std::uint32_t evictions, std::uint32_t inactive, TimePoint now) {
  if (!window_open_) {
    window_open_ = true;
    window_begin_ = now;
  }
  window_hits_ += hits;
  window_events_ += hits + evictions;
  if (window_events_ < window_ || now <= window_begin_) {
    return;
  }
  const double block_time = static_cast<double>(inactive) * static_cast<double>((now - window_begin_).count());
  const double per_hit = std::min(block_time / std::max(1U, window_hits_), static_cast<double>(kMostScale.count()));
  scale_ = std::max(kLeastScale, (scale_ + Duration(static_cast<std::int64_t>(per_hit))) / 2);
  window_begin_ = now;
  window_events_ = 0;
  window_hits_ = 0;
}

bool HintBook::believes(TenantId tenant, Kind kind) const {
  const Trust& record = trust_[index_of(tenant)][static_cast<std::size_t>(kind)];
  const std::uint32_t told = record.kept + record.broken;
  if (told < kFewest) {
    return true;
  }
  switch (kind) {
    case Kind::kReturns:
      return 2 * record.broken <= told;
    case Kind::kSystemPrompt:
      return 4 * record.broken <= 3 * told;
    case Kind::kWillNotReturn:
      return 8 * record.broken <= told;
    case Kind::kNone:
      break;
  }
  return true;
}

std::size_t HintBook::bytes() const { return records_.bytes() + departed_.bytes() + trust_.size() * sizeof(trust_[0]); }

void HintBook::Trust::add_kept() {
  ++kept;
  fade();
}

void HintBook::Trust::add_broken() {
  ++broken;
  fade();
}

void HintBook::Trust::fade() {
  if (kept + broken >= kMost) {
    kept /= 2;
    broken /= 2;
  }
}

}  // namespace cairn
