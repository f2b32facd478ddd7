// OffloadRequests: who asked for blocks to be moved down, what became of each block, and who is to be told.
//
// Does:     a request is open until each of its keys has an answer, or somebody closes it; its outcome is then kept until
//           it is taken, once.
// Owner:    an OffloadEdge, whose lock guards every call.
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
#include "cairn/offload/offload_edge.h"
#include "cairn/tier/tier_link.h"

namespace cairn {

class OffloadRequests {
 public:
  using Id = OffloadRequestId;
  // One key of a request.
  struct Asker {
    Id request{};
    std::uint32_t index = 0;
  };
  struct Open {
    std::vector<BlockKey> keys;
    std::vector<bool> is_answered;
    std::size_t unanswered = 0;
    EngineBlocks source;  // where the engine holds the blocks
    TimePoint deadline{};
    std::function<void(OffloadEdge::RequestOutcome&&)> done;
    OffloadEdge::RequestOutcome outcome;
    std::size_t error_of = 0;  // the number of the key
  };
  struct Answer {
    std::function<void(OffloadEdge::RequestOutcome&&)> done;
    OffloadEdge::RequestOutcome outcome;
    std::shared_ptr<void> held;  // the engine's blocks: let go of where the edge's lock is not held
  };

  // A request without keys has its outcome at once.
  [[nodiscard]] Id add(OffloadEdge::Request&& request, EngineBlocks&& source);
  // As if it had never been. Requires: open.
  [[nodiscard]] Open forget(Id request);
  // Null where it is not open any more.
  [[nodiscard]] const Open* find(Id request) const;
  // `why`: where it is not below. Nothing where the request is not open any more.
  void answer(Asker asker, bool is_below, const std::string& why);
  // Answers what has none.
  void close(Id request, const std::string& why);

  [[nodiscard]] std::vector<Id> all() const;
  // Those whose deadline has come.
  [[nodiscard]] std::vector<Id> due(TimePoint now) const;
  [[nodiscard]] std::optional<TimePoint> next_deadline() const;
  [[nodiscard]] std::vector<Answer> take_answers() { return std::exchange(answers_, {}); }
  [[nodiscard]] bool has_answers() const { return !answers_.empty(); }
  // Nobody waits for anything.
  [[nodiscard]] bool empty() const { return open_.empty() && answers_.empty(); }

 private:
  void end(std::map<Id, Open>::iterator request);

  std::uint64_t next_id_ = 1;
  std::map<Id, Open> open_;
  std::set<std::pair<TimePoint, Id>> deadlines_;
  std::vector<Answer> answers_;
};

}  // namespace cairn
