// OffloadChooser: which blocks an Offloader copies, and in which order. Knows every key that is pending or in flight, once,
// with the requests that want it. Pure: what it has to know of pools and time is handed in.
//
// offered = copied + refused + pending + in flight, always.
//
// Thread safety: none; the Offloader's lock guards every call.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/evict/admission.h"
#include "cairn/offload/offload_demand.h"
#include "cairn/offload/offload_queue.h"
#include "cairn/offload/offloader.h"

namespace cairn {

// One key of a request, by its index there.
struct RequestedKey {
  OffloadRequestId request{};
  std::uint32_t index = 0;
};

class OffloadChooser {
 public:
  // `is_ahead`: blocks that nobody requested are copied only after those before them in their sequence, and only urgent ones
  // make room below at the cost of others.
  // `has_user_filter`: offered blocks are in take_unasked() until the user's filter was asked about them.
  OffloadChooser(const OffloadOptions& options, AdmissionFilter filter, bool is_ahead, bool has_user_filter = false);

  // A block that the mode wants copied.
  struct Candidate {
    BlockKey key;
    std::uint32_t sequence_blocks = 0;  // of its sequence, for the admission filter
    std::uint32_t priority = 0;
    std::uint32_t frequency = 0;
    bool is_urgent = false;                    // about to be evicted, or needed by a block that is
    std::optional<std::uint64_t> number = {};  // its age, from take_numbers(); std::nullopt for the youngest
  };
  enum class Offered : std::uint8_t {
    kPending,
    kPendingAndShed,  // pending, and another block was shed for it
    kShed,            // itself
    kRefused,         // by priority or the admission filter
  };
  // Requires: !contains(key), and the block is not below.
  Offered offer(const Candidate& candidate, TimePoint now);
  // Why a block, which is part of a sequence of so many blocks, is not worth a place below; std::nullopt if it is: then it
  // counts as written, until it is resolved without a transfer.
  using Refusal = std::optional<OffloadRefusal>;
  [[nodiscard]] Refusal judge(const BlockKey& key, std::uint32_t sequence_blocks, std::uint32_t priority,
                              TimePoint now);
  // A request wants the block, which is not below. `is_admitted`: judge() admitted it; else only the budget may refuse it.
  // False if there is no room for it in the queue: then it does not count as written.
  [[nodiscard]] bool request(RequestedKey requested, const BlockKey& key, std::uint32_t priority,
                             std::uint32_t frequency, bool is_admitted = false);
  // Counts blocks as offered and refused.
  void refuse(OffloadRefusal reason, std::uint64_t blocks = 1);
  // The uses of blocks teach the admission filter.
  void used(std::span<const BlockKey> keys) { filter_.used(keys); }
  [[nodiscard]] std::uint32_t uses(const BlockKey& key) const { return filter_.uses(key); }
  // Keys that were offered since the last call, last one first. Some may not be pending any more.
  [[nodiscard]] std::vector<BlockKey> take_unasked() { return std::exchange(unasked_, {}); }
  [[nodiscard]] std::uint64_t take_numbers(std::size_t count) { return queue_.take_numbers(count); }

  [[nodiscard]] bool is_pending(const BlockKey& key) const;
  // The user's filter does not want the block, or the one before it: it is copied only if a request wants it. Requires:
  // is_pending(key).
  void reject(const BlockKey& key, OffloadRefusal reason);
  // Pending or in flight.
  [[nodiscard]] bool contains(const BlockKey& key) const { return keys_.contains(key); }
  [[nodiscard]] bool is_requested(const BlockKey& key) const { return !keys_.at(key).requests.empty(); }
  // A request that wants the key. Requires: is_requested(key).
  [[nodiscard]] RequestedKey requester(const BlockKey& key) const { return keys_.at(key).requests.front(); }
  // Moves a pending block before those that are not urgent. False if it was urgent already, or is in flight.
  bool make_urgent(const BlockKey& key);
  // The request no longer needs the key. A pending key that no request needs is dropped. Returns whether the key is in
  // flight: then its transfer goes on.
  [[nodiscard]] bool withdraw(OffloadRequestId request, const BlockKey& key);

  // The next keys for a batch. In mode kAhead each comes after those of its ancestors that are pending too; `parent_of` says
  // which block comes before a block in its sequence.
  using ParentOf = std::function<std::optional<BlockKey>(const BlockKey&)>;
  [[nodiscard]] std::vector<BlockKey> next(const ParentOf& parent_of) const;

  // What the pools know of one pending key.
  struct Lookup {
    bool is_below = false;
    bool is_above = true;
    bool is_in_use = false;  // above
    bool is_orphan = false;  // the block before it in its sequence is in neither tier; only looked at in mode kAhead
  };
  struct Room {
    std::uint32_t free_below = 0;           // blocks
    OffloadDemand::Lendable lendable = {};  // of the upper pool
  };
  struct Choice {
    std::vector<BlockKey> keys = {};  // to be copied now
    bool lacked_room = false;         // some were refused because no block is free below
  };
  // Which of these pending keys are copied now. Of the others some stay pending and some are refused.
  [[nodiscard]] Choice choose(std::span<const BlockKey> keys, std::span<const Lookup> lookups, Room room,
                              TimePoint now);

  // A transfer copies these pending keys from now on.
  void began(std::span<const BlockKey> keys);
  // The key is neither pending nor in flight any more. std::nullopt: it was copied.
  void resolve(const BlockKey& key, Refusal refusal, std::string_view detail = {});
  void drop_pending(OffloadRefusal reason, std::string_view detail = {});
  void drop_all(OffloadRefusal reason, std::string_view detail);

  // Keys of requests that were resolved since the last call.
  struct Resolved {
    RequestedKey requested;
    Refusal refusal = {};    // std::nullopt: it is below
    std::string error = {};  // if it is not
  };
  [[nodiscard]] std::vector<Resolved> take_resolved() { return std::exchange(resolved_, {}); }

  [[nodiscard]] bool empty() const { return keys_.empty(); }
  [[nodiscard]] std::size_t pending() const { return queue_.size(); }
  [[nodiscard]] std::size_t most_pending() const { return queue_.bound(); }
  void set_most_pending(std::size_t blocks) { queue_.set_bound(blocks); }
  [[nodiscard]] std::uint32_t urgent() const { return urgent_; }
  // Block counts only; the caller fills the other fields.
  [[nodiscard]] OffloadStatus status() const;

 private:
  struct Key {
    bool is_in_flight = false;
    bool is_offered = false;   // by the mode, whether or not a request wants it
    bool is_admitted = false;  // the admission filter counts it as written
    bool is_urgent = false;
    std::vector<RequestedKey> requests = {};
  };
  [[nodiscard]] static Refusal refusal_of(Admission admission);
  void count(OffloadRefusal reason, std::uint64_t blocks = 1) { refused_[static_cast<std::size_t>(reason)] += blocks; }

  const OffloadOptions options_;
  const bool is_ahead_;
  const bool has_user_filter_;
  std::vector<BlockKey> unasked_;
  AdmissionFilter filter_;
  OffloadQueue queue_;
  std::unordered_map<BlockKey, Key> keys_;
  std::vector<Resolved> resolved_;
  std::uint32_t urgent_ = 0;
  std::uint32_t in_flight_ = 0;
  std::uint64_t offered_ = 0;
  std::uint64_t copied_ = 0;
  std::array<std::uint64_t, kOffloadRefusals> refused_ = {};
};

}  // namespace cairn
