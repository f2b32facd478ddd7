// RequestTable: the requests of a scheduler's side by handle: their slots, and what else is known of them.
//
// Does:     a handle names a place and the how-manieth request it holds: found in constant time, nothing is hashed, and a
//           handle of a request that is gone finds nothing, whoever has its place now.
// Owner:    SchedulerConnector; the slots are a SlotManager's. Entries move when requests are added.
// Threads:  one at a time, the scheduler's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cairn/connector/externally_managed_device_slot.h"
#include "cairn/connector/operation_inbox.h"
#include "cairn/connector/request_handle.h"
#include "cairn/connector/request_id.h"

namespace cairn {

// Room for so many elements: adding them takes no memory then. Grows as a vector does.
template <typename T>
void make_room(std::vector<T>& vector, std::size_t elements) {
  if (vector.capacity() < elements) {
    vector.reserve(std::max(elements, 2 * vector.capacity()));
  }
}

struct RequestEntry {
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  // --- of every iteration ---
  RequestHandle handle{};
  ExternallyManagedDeviceSlot* slot = nullptr;
  std::uint64_t scheduled_in = kNever;  // the latest iteration
  bool is_given_up = false;             // what the engine told of it makes no sense: it goes on without a cache
  bool fell_short = false;              // its load did, and the engine has not said how it goes on
  bool has_operations = false;          // noted as one whose slot has some to give
  bool guesses_are_aside = false;       // `guesses` are not in the slot
  // Tokens whose KV can be on the device when the next iteration begins: what iterations scheduled so far, or, before the
  // first one, what the engine said to have in its own cache.
  std::size_t computable = 0;
  std::vector<Token> guesses = {};  // of the latest iteration, not settled

  // --- of its load ---
  bool wants_load = false;              // in the next metadata
  bool computes_beside = false;         // it runs while it is loaded
  std::size_t staged_blocks = 0;        // of a load that is wanted or under way
  std::size_t matched_at = 0;           // the engine's own tokens at the latest match
  std::uint32_t put_off = 0;            // times in a row
  std::vector<Token> late_tokens = {};  // that it got while it is loaded; the slot takes them afterwards
  std::vector<MmRun> late_runs = {};    // among them
  std::uint64_t fence = 0;              // KvBlockManager::fences() when it was added
  RequestId id = std::uint64_t{0};
  std::vector<OperationPtr> operations = {};  // under way
};

class RequestTable {
 public:
  [[nodiscard]] std::size_t size() const { return by_id_.size(); }
  // Requires: the id is of no other entry.
  RequestHandle add(const RequestId& id, ExternallyManagedDeviceSlot& slot);
  // None: it is gone, or never was.
  [[nodiscard]] RequestEntry* get(RequestHandle handle) {
    const std::size_t place = place_of(handle);
    return place < entries_.size() && entries_[place].slot != nullptr && entries_[place].handle == handle
               ? &entries_[place]
               : nullptr;
  }
  // That one is asked for soon.
  void prefetch(RequestHandle handle) const {
    if (const std::size_t place = place_of(handle); place < entries_.size()) {
      const auto* const slot = reinterpret_cast<const char*>(entries_[place].slot);
      __builtin_prefetch(slot);
      __builtin_prefetch(slot + kCacheLine);
      __builtin_prefetch(slot + 2 * kCacheLine);
      __builtin_prefetch(slot + 3 * kCacheLine);
    }
  }
  [[nodiscard]] std::optional<RequestHandle> find(const RequestId& id) const;
  // The first request that the condition holds for; nullptr if there is none. Looks at all of them.
  template <typename Condition>
  [[nodiscard]] const RequestEntry* find_if(const Condition& condition) const {
    for (const RequestEntry& entry : entries_) {
      if (entry.slot != nullptr && condition(entry)) {
        return &entry;
      }
    }
    return nullptr;
  }
  // Gives the id that it had. Requires: it is there.
  RequestId remove(RequestHandle handle);

 private:
  // The place in the low bits, the how-manieth request of that place above them, from 1 on.
  static constexpr unsigned kPlaceBits = 24;
  static constexpr std::size_t kCacheLine = 64;
  [[nodiscard]] static std::size_t place_of(RequestHandle handle) {
    return static_cast<std::uint64_t>(handle) & ((std::uint64_t{1} << kPlaceBits) - 1);
  }

  std::vector<RequestEntry> entries_;
  std::vector<std::size_t> free_;
  std::unordered_map<RequestId, RequestHandle> by_id_;
};

}  // namespace cairn
