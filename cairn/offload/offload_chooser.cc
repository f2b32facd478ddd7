#include "cairn/offload/offload_chooser.h"

#include <limits>
#include <unordered_set>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn {

OffloadChooser::OffloadChooser(const OffloadOptions& options, AdmissionFilter filter, bool is_ahead,
                               bool has_user_filter)
    : options_(options),
      is_ahead_(is_ahead),
      has_user_filter_(has_user_filter),
      filter_(std::move(filter)),
      queue_(options.queue == 0 ? std::numeric_limits<std::size_t>::max() : options.queue) {}

OffloadChooser::Refusal OffloadChooser::refusal_of(Admission admission) {
  switch (admission) {
    case Admission::kAdmitted:
      return std::nullopt;
    case Admission::kTooShort:
      return OffloadRefusal::kTooShort;
    case Admission::kNeverSeenTwice:
      return OffloadRefusal::kNeverSeenTwice;
    case Admission::kWouldNotLast:
      return OffloadRefusal::kWouldNotLast;
    case Admission::kOverBudget:
      break;
  }
  return OffloadRefusal::kOverBudget;
}

void OffloadChooser::refuse(OffloadRefusal reason, std::uint64_t blocks) {
  offered_ += blocks;
  count(reason, blocks);
}

OffloadChooser::Refusal OffloadChooser::judge(const BlockKey& key, std::uint32_t sequence_blocks,
                                              std::uint32_t priority, TimePoint now) {
  if (priority < options_.least_priority) {
    return OffloadRefusal::kLowPriority;
  }
  return refusal_of(filter_.offer(key, sequence_blocks, now));
}

OffloadChooser::Offered OffloadChooser::offer(const Candidate& candidate, TimePoint now) {
  ++offered_;
  if (const Refusal refusal = judge(candidate.key, candidate.sequence_blocks, candidate.priority, now)) {
    count(*refusal);
    return Offered::kRefused;
  }
  const std::uint64_t number = candidate.number ? *candidate.number : queue_.take_numbers(1);
  const std::optional<BlockKey> shed = queue_.push({.key = candidate.key,
                                                    .priority = candidate.priority,
                                                    .frequency = candidate.frequency,
                                                    .is_urgent = candidate.is_urgent},
                                                   number);
  keys_.emplace(candidate.key, Key{.is_offered = true, .is_admitted = true, .is_urgent = candidate.is_urgent});
  urgent_ += candidate.is_urgent ? 1 : 0;
  if (has_user_filter_) {
    unasked_.push_back(candidate.key);
  }
  if (!shed) {
    return Offered::kPending;
  }
  resolve(*shed, OffloadRefusal::kShed);
  return shed == candidate.key ? Offered::kShed : Offered::kPendingAndShed;
}

bool OffloadChooser::request(RequestedKey requested, const BlockKey& key, std::uint32_t priority,
                             std::uint32_t frequency, bool is_admitted) {
  if (const auto found = keys_.find(key); found != keys_.end()) {
    refuse(OffloadRefusal::kInFlight);
    found->second.requests.push_back(requested);
    if (!found->second.is_in_flight) {
      queue_.raise(key, priority);
    }
    return true;
  }
  const std::optional<BlockKey> shed = queue_.push({.key = key, .priority = priority, .frequency = frequency});
  if (shed == key) {
    if (is_admitted) {
      filter_.take_back();
    }
    return false;
  }
  ++offered_;
  keys_.emplace(key, Key{.is_admitted = is_admitted, .requests = {requested}});
  if (shed) {
    resolve(*shed, OffloadRefusal::kShed);
  }
  return true;
}

bool OffloadChooser::is_pending(const BlockKey& key) const {
  const auto found = keys_.find(key);
  return found != keys_.end() && !found->second.is_in_flight;
}

void OffloadChooser::reject(const BlockKey& key, OffloadRefusal reason) {
  Key& state = keys_.at(key);
  state.is_offered = false;
  if (state.requests.empty()) {
    resolve(key, reason);
  }
}

bool OffloadChooser::make_urgent(const BlockKey& key) {
  Key& state = keys_.at(key);
  if (state.is_urgent || state.is_in_flight) {
    return false;
  }
  state.is_urgent = true;
  ++urgent_;
  queue_.make_urgent(key);
  return true;
}

bool OffloadChooser::withdraw(OffloadRequestId request, const BlockKey& key) {
  const auto found = keys_.find(key);
  if (found == keys_.end()) {
    return false;
  }
  Key& state = found->second;
  if (state.is_in_flight) {
    return true;
  }
  std::erase_if(state.requests, [request](const RequestedKey& requested) { return requested.request == request; });
  if (state.requests.empty() && !state.is_offered) {
    resolve(key, OffloadRefusal::kCancelled);
  }
  return false;
}

std::vector<BlockKey> OffloadChooser::next(const ParentOf& parent_of) const {
  std::vector<BlockKey> first = queue_.first(options_.batch);
  if (!is_ahead_) {
    return first;
  }
  std::vector<BlockKey> keys;
  std::unordered_set<BlockKey> taken;
  for (const BlockKey& key : first) {
    std::vector<BlockKey> path;
    for (std::optional<BlockKey> next = key; next && !taken.contains(*next);) {
      const auto found = keys_.find(*next);
      if (found == keys_.end() || found->second.is_in_flight) {
        break;
      }
      path.push_back(*next);
      if (next->position() == 0 || (!keys.empty() && keys.back().is_parent_of(*next))) {
        break;
      }
      next = parent_of(*next);
    }
    for (; !path.empty() && keys.size() < options_.batch; path.pop_back()) {
      taken.insert(path.back());
      keys.push_back(path.back());
    }
  }
  return keys;
}

OffloadChooser::Choice OffloadChooser::choose(std::span<const BlockKey> keys, std::span<const Lookup> lookups,
                                              Room room, TimePoint now) {
  Choice choice;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const BlockKey& key = keys[i];
    const Lookup& lookup = lookups[i];
    Key& state = keys_.at(key);
    const bool is_optional = is_ahead_ && state.requests.empty();
    const bool needs_free_block = is_optional && !state.is_urgent;
    Refusal refusal;
    if (lookup.is_below) {
      refusal = OffloadRefusal::kAlreadyBelow;
    } else if (!lookup.is_above) {
      refusal = OffloadRefusal::kGone;  // before another block is evicted below for it
    } else if (is_optional && lookup.is_orphan) {
      refusal = OffloadRefusal::kNoParent;
    } else if (needs_free_block && room.free_below == 0) {
      refusal = OffloadRefusal::kNoRoom;
      choice.lacked_room = true;
    } else if (is_ahead_ && (room.lendable.blocks == 0 || (!lookup.is_in_use && room.lendable.unused == 0))) {
      continue;
    } else if (!state.is_admitted && filter_.demand(key, now) != Admission::kAdmitted) {
      refusal = OffloadRefusal::kOverBudget;
    }
    if (refusal) {
      resolve(key, refusal);
      continue;
    }
    state.is_admitted = true;
    room.free_below -= needs_free_block ? 1 : 0;
    if (is_ahead_) {
      --room.lendable.blocks;
      room.lendable.unused -= lookup.is_in_use ? 0 : 1;
    }
    choice.keys.push_back(key);
  }
  return choice;
}

void OffloadChooser::began(std::span<const BlockKey> keys) {
  for (const BlockKey& key : keys) {
    queue_.erase(key);
    keys_.at(key).is_in_flight = true;
  }
  in_flight_ += static_cast<std::uint32_t>(keys.size());
}

void OffloadChooser::resolve(const BlockKey& key, Refusal refusal, std::string_view detail) {
  const auto found = keys_.find(key);
  CAIRN_CHECK(found != keys_.end(), "only a key that is pending or in flight is resolved");
  const Key state = std::move(found->second);
  keys_.erase(found);
  urgent_ -= state.is_urgent ? 1 : 0;
  if (state.is_in_flight) {
    --in_flight_;
  } else {
    queue_.erase(key);
    if (state.is_admitted) {
      filter_.take_back();
    }
  }
  if (refusal) {
    count(*refusal);
  } else {
    ++copied_;
  }
  const bool is_below = !refusal || *refusal == OffloadRefusal::kAlreadyBelow;
  for (const RequestedKey& requested : state.requests) {
    resolved_.push_back({.requested = requested,
                         .refusal = is_below ? std::nullopt : refusal,
                         .error = is_below ? std::string()
                                           : str_cat("block ", key.to_string(), ": ", to_string(*refusal),
                                                     detail.empty() ? "" : "; ", detail)});
  }
}

void OffloadChooser::drop_pending(OffloadRefusal reason, std::string_view detail) {
  for (const BlockKey& key : queue_.first(queue_.size())) {
    resolve(key, reason, detail);
  }
}

void OffloadChooser::drop_all(OffloadRefusal reason, std::string_view detail) {
  while (!keys_.empty()) {
    resolve(BlockKey(keys_.begin()->first), reason, detail);
  }
}

OffloadStatus OffloadChooser::status() const {
  return {.offered = offered_,
          .copied = copied_,
          .refused = refused_,
          .pending = static_cast<std::uint32_t>(queue_.size()),
          .in_flight = in_flight_};
}

}  // namespace cairn
