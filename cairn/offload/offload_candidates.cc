#include "cairn/offload/offload_candidates.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "cairn/base/check.h"

namespace cairn {

namespace {

// For which transfers may hold blocks of the upper tier: long enough to keep a link busy between two looks of the owner.
constexpr Duration kLoanTime = std::chrono::milliseconds(50);
// This part of the upper tier may be held longer: larger batches cost less.
constexpr std::uint32_t kNobodyMisses = 128;

}  // namespace

OffloadCandidates::OffloadCandidates(const TierLink& link, const BlockRegistry& registry, const OffloadOptions& options,
                                     OffloadChooser& chooser)
    : link_(link),
      registry_(registry),
      options_(options),
      chooser_(chooser),
      upper_(link.from().pool()),
      lower_(*link.to().pool()),
      is_ahead_(options.mode == OffloadMode::kAhead && upper_ != nullptr) {}

bool OffloadCandidates::is_below(const BlockKey& key) const {
  return registry_.tiers_of(key).contains(link_.to().level()) && lower_.contains(key);
}

bool OffloadCandidates::is_orphan(const BlockKey& key) const {
  return key.position() > 0 && !upper_->contains_parent_of(key) && !lower_.contains_parent_of(key);
}

std::optional<BlockKey> OffloadCandidates::parent_of(const BlockKey& key) const {
  const std::vector<std::optional<PeekedBlock>> seen = upper_->peek({&key, 1});
  return seen[0] ? seen[0]->parent : std::nullopt;
}

std::uint32_t OffloadCandidates::free_below() const {
  const std::uint32_t free = lower_.counts().free;
  return free < lower_.capacity() / 64 ? 0 : free;
}

OffloadDemand::Lendable OffloadCandidates::lendable(std::uint32_t on_loan) const {
  const double in_time = link_.meter().bytes_per_second() * std::chrono::duration<double>(kLoanTime).count() /
                         static_cast<double>(link_.from().block_bytes());
  const std::uint32_t all = upper_->capacity();
  const double least = std::max(2U, all / kNobodyMisses);
  // 0: nothing was copied yet, so the first batches tell how fast the link is.
  const std::uint32_t link_blocks =
      in_time == 0 ? all : static_cast<std::uint32_t>(std::clamp<double>(in_time, least, all));
  return demand_.lendable(upper_->counts(), on_loan, link_blocks);
}

void OffloadCandidates::copied_some() {
  missed_some_ = missed_some_ || shed_some_;
  shed_some_ = false;
}

void OffloadCandidates::forget() { missed_some_ = shed_some_ = is_searching_ = false; }

bool OffloadCandidates::offer_registered(const OffloadInbox::Contents& news, TimePoint now) {
  if (news.candidates.empty()) {
    return false;
  }
  if (is_ahead_ && free_below() == 0) {
    missed_some_ = true;  // they are copied before they are evicted, or when there is room again
    return false;
  }
  chooser_.refuse(OffloadRefusal::kShed, news.left_out);
  missed_some_ = missed_some_ || news.left_out > 0;
  // The last block of a sequence is offered first, because the filter admits what stands before an admitted block. They are
  // copied in the order in which they came all the same: by their numbers.
  const std::uint64_t number = chooser_.take_numbers(news.candidates.size());
  std::vector<BlockKey> keys;
  for (std::size_t end = news.candidates.size(); end > 0;) {
    const std::size_t begin = end - std::min<std::size_t>(end, options_.batch);
    keys.clear();
    for (std::size_t i = begin; i < end; ++i) {
      keys.push_back(news.candidates[i].key);
    }
    const std::vector<std::optional<PeekedBlock>> seen = upper_->peek(keys);
    for (std::size_t i = end; i-- > begin;) {
      const BlockKey& key = news.candidates[i].key;
      if (is_below(key)) {
        chooser_.refuse(OffloadRefusal::kAlreadyBelow);
      } else if (!seen[i - begin]) {
        chooser_.refuse(OffloadRefusal::kGone);
      } else if (chooser_.contains(key)) {
        chooser_.refuse(OffloadRefusal::kInFlight);
      } else {
        const OffloadChooser::Offered offered = chooser_.offer({.key = key,
                                                                .sequence_blocks = news.candidates[i].sequence_blocks,
                                                                .priority = seen[i - begin]->facts.priority,
                                                                .frequency = registry_.frequency(key),
                                                                .number = number + i},
                                                               now);
        missed_some_ = missed_some_ || offered == OffloadChooser::Offered::kShed ||
                       offered == OffloadChooser::Offered::kPendingAndShed;
      }
    }
    end = begin;
  }
  return true;
}

bool OffloadCandidates::offer_victims(TimePoint now) {
  if (!is_ahead_) {
    return false;
  }
  upper_->set_low_water(demand_.follow(upper_->stats().allocated, upper_->take_largest_allocation(), upper_->capacity(),
                                       chooser_.urgent() == 0));
  bool any = false;
  for (std::uint32_t wanted = upper_->wanted_victims(); wanted > 0;) {
    ImmutableBlocks victims = claim_victims(std::min(wanted, options_.batch));
    if (victims.empty()) {
      break;
    }
    any = true;
    wanted -= std::min(wanted, victims.size());
    const std::vector<BlockFacts> facts = victims.facts();
    std::move(victims).release_as_victims();
    const bool is_open = link_.may_be_tried();
    for (const BlockFacts& victim : facts) {
      offer_victim(victim.block.key, is_open, now);
    }
  }
  return any;
}

ImmutableBlocks OffloadCandidates::claim_victims(std::uint32_t count) {
  constexpr std::uint32_t kStep = 8;  // blocks for which the pool's lock is held
  ImmutableBlocks victims;
  while (count > 0) {
    const std::uint32_t asked = std::min(count, kStep);
    ImmutableBlocks some = upper_->claim_victims(asked);
    count = some.size() == asked ? count - asked : 0;
    CAIRN_CHECK(victims.append(std::move(some)).has_value(), "victims of one pool can be joined");
  }
  return victims;
}

void OffloadCandidates::offer_victim(const BlockKey& key, bool is_open, TimePoint now) {
  if (!chooser_.contains(key)) {
    std::optional<OffloadRefusal> refusal;
    if (is_below(key)) {
      refusal = OffloadRefusal::kAlreadyBelow;
    } else if (!is_open) {
      refusal = OffloadRefusal::kTierOut;
    } else if (is_orphan(key)) {
      refusal = OffloadRefusal::kNoParent;
    }
    if (refusal) {
      chooser_.refuse(*refusal);
      return;
    }
  }
  offer_with_ancestors(key, Urgency::kUrgent, now);
}

// The blocks before it in its sequence are copied too, as far as they are above and not below: without them nobody could load
// it. The last one is offered first, as in offer_registered().
void OffloadCandidates::offer_with_ancestors(BlockKey key, Urgency urgency, TimePoint now) {
  while (true) {
    const std::vector<std::optional<PeekedBlock>> seen = upper_->peek({&key, 1});
    if (!seen[0] || !offer(seen[0]->facts, urgency, now) || !seen[0]->parent) {
      return;
    }
    key = *seen[0]->parent;
  }
}

// Returns whether the blocks before this one have to be offered as well.
bool OffloadCandidates::offer(const BlockFacts& block, Urgency urgency, TimePoint now) {
  const BlockKey& key = block.block.key;
  if (chooser_.contains(key)) {
    return urgency == Urgency::kUrgent && chooser_.make_urgent(key);
  }
  if (is_below(key)) {
    return false;
  }
  switch (chooser_.offer({.key = key,
                          .sequence_blocks = key.position() + 1,
                          .priority = block.priority,
                          .frequency = registry_.frequency(key),
                          .is_urgent = urgency == Urgency::kUrgent},
                         now)) {
    case OffloadChooser::Offered::kPending:
      return true;
    case OffloadChooser::Offered::kPendingAndShed:
      shed_some_ = true;
      return true;
    case OffloadChooser::Offered::kShed:
      shed_some_ = true;
      return false;
    case OffloadChooser::Offered::kRefused:
      break;
  }
  return false;
}

bool OffloadCandidates::may_find_missed() const {
  return is_ahead_ && (missed_some_ || is_searching_) && link_.is_up() && free_below() > 0;
}

bool OffloadCandidates::offer_missed(TimePoint now) {
  constexpr std::uint32_t kMost = 2048;  // blocks in one call
  if (!may_find_missed()) {
    return false;
  }
  if (!is_searching_) {
    is_searching_ = true;
    missed_some_ = false;
    searched_to_ = 0;
  }
  const auto enough =
      static_cast<std::uint32_t>(std::clamp<std::size_t>(chooser_.most_pending() / 2, 1, options_.batch));
  const std::uint32_t step = std::min(enough, 32U);  // blocks for which the pool's lock is held
  std::uint32_t searched = 0;
  std::vector<ResidentBlock> blocks;
  for (; is_searching_ && searched < kMost && chooser_.pending() < enough; searched += step) {
    blocks.clear();
    searched_to_ = upper_->list_resident(searched_to_, step, blocks);
    is_searching_ = searched_to_ < upper_->capacity();
    for (const ResidentBlock& block : blocks) {
      if (!chooser_.contains(block.key) && !is_below(block.key) && !is_orphan(block.key)) {
        offer_with_ancestors(block.key, Urgency::kNotUrgent, now);
      }
    }
  }
  return searched > 0;
}

}  // namespace cairn
