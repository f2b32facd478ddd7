// FilterThread: calls a user's OffloadFilter on a thread of its own, so that a filter that does not return blocks no other
// thread for longer than it wants to wait.
//
// Thread safety: any thread. One call at a time reaches the filter; the others wait for their turn. Holds no lock while the
// filter runs.
// Ownership: a FilterCaller. What a call uses (the filter, the run, the answers) is shared with the thread: a call that does not
// return keeps it, and the thread, until it returns or the process ends. The clock is read only while somebody waits for the
// call. No call() is running when the object is destroyed; the destructor waits up to kLongestEnd for a call that was given up.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <thread>

#include "cairn/base/clock.h"
#include "cairn/offload/offload_request.h"

namespace cairn {

class FilterThread {
 public:
  static constexpr Duration kLongestEnd = std::chrono::seconds(1);

  FilterThread(OffloadFilter filter, const Clock& clock);
  FilterThread(const FilterThread&) = delete;
  FilterThread& operator=(const FilterThread&) = delete;
  ~FilterThread();

  struct Outcome {
    bool has_returned = false;  // if not, the other members say nothing
    bool has_thrown = false;
    Duration took = {};  // in the filter, by the clock
  };
  // Asks the filter, and waits for its answer for up to `longest` of the machine's time. `keep` is written only if the filter
  // has returned.
  [[nodiscard]] Outcome call(const FilteredRun& run, std::span<bool> keep, Duration longest);
  // A call that was given up has not returned: the next one would wait for it.
  [[nodiscard]] bool is_stuck() const;

 private:
  struct Shared;
  static void serve(Shared& shared);

  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace cairn
