// OffloadRequests: the open requests of an Offloader and what came of each of their keys. A request is open until each of its
// keys is resolved or it is closed; then take_ended() returns its outcome, once.
//
// Thread safety: none; the Offloader's lock guards every call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/offload/offload_chooser.h"
#include "cairn/offload/offloader.h"
#include "cairn/tier/tier_link.h"

namespace cairn {

class OffloadRequests {
 public:
  using Id = OffloadRequestId;
  struct Open {
    std::vector<BlockKey> keys;
    std::vector<bool> is_resolved;
    std::size_t unresolved = 0;  // keys
    EngineBlocks source;         // the engine's blocks, if the upper tier has no pool
    TimePoint deadline{};
    std::function<void(OffloadOutcome&&)> done;
    OffloadOutcome outcome;
    std::size_t error_index = 0;  // of the key whose error the outcome names
  };
  struct Ended {
    std::function<void(OffloadOutcome&&)> done;
    OffloadOutcome outcome;
    std::shared_ptr<void> held;  // of the engine's blocks: released without the lock
  };

  // A request without keys ends at once.
  [[nodiscard]] Id add(OffloadRequest&& request, EngineBlocks&& source);
  // Removes the request without an outcome. Requires: open.
  [[nodiscard]] Open forget(Id request);
  // Null if it is not open any more.
  [[nodiscard]] const Open* find(Id request) const;
  // `refusal` and `error`: if the key is not below. Does nothing if the key is resolved already or the request is not open any
  // more.
  void resolve(RequestedKey key, std::optional<OffloadRefusal> refusal, const std::string& error);
  // Resolves all keys that are not, as cancelled.
  void close(Id request, const std::string& error);

  [[nodiscard]] std::vector<Id> all() const;
  // Those whose deadline has passed.
  [[nodiscard]] std::vector<Id> due(TimePoint now) const;
  [[nodiscard]] std::optional<TimePoint> next_deadline() const;
  [[nodiscard]] std::vector<Ended> take_ended() { return std::exchange(ended_, {}); }
  // No request is open, and all outcomes were taken.
  [[nodiscard]] bool empty() const { return open_.empty() && ended_.empty(); }

 private:
  void end(std::map<Id, Open>::iterator request);

  std::uint64_t next_id_ = 1;
  std::map<Id, Open> open_;
  std::set<std::pair<TimePoint, Id>> deadlines_;
  std::vector<Ended> ended_;
};

}  // namespace cairn
