// A RequestSource that yields the requests of a vector. For tests.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "cairn/sim/replay.h"

namespace cairn::sim {

class ListSource final : public RequestSource {
 public:
  explicit ListSource(std::vector<ReplayRequest> requests) : requests_(std::move(requests)) {}

  [[nodiscard]] bool next(ReplayRequest& request) override {
    if (next_ == requests_.size()) {
      return false;
    }
    request = requests_[next_++];
    return true;
  }

 private:
  std::vector<ReplayRequest> requests_;
  std::size_t next_ = 0;
};

}  // namespace cairn::sim
