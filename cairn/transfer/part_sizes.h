// PartSizes: how many bytes the next part of a GPU's copies has.
//
// A staged part is moved by a copy engine and scattered or gathered by a kernel. At both ends of the work one of them waits for the
// other, so parts are small there, and large in between, because every part costs a pause. The end of a transfer that another one
// follows is no end: the copy engine goes on with the next transfer. Parts that are not staged have nobody to wait for, and are as large
// as they may be.
//
// Thread safety: none; one thread uses it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace cairn::gpu {

class PartSizes {
 public:
  explicit PartSizes(std::uint64_t most) : most_(most) {}

  struct Work {
    std::uint64_t rest = 0;  // bytes of the transfer that are in no part yet
    bool is_staged = false;
    bool is_idle = false;      // no part is in flight
    bool is_followed = false;  // another transfer is waiting
  };
  // At least 1 byte and at most `most`.
  [[nodiscard]] std::uint64_t next(const Work& work) {
    last_ = work.is_idle ? kSmallest : 2 * last_;
    if (!work.is_staged) {
      last_ = most_;
    } else if (!work.is_followed) {
      last_ = std::min(last_, work.rest / 2);
    }
    last_ = std::clamp(last_, std::min(kSmallest, most_), most_);
    return last_;
  }

 private:
  static constexpr std::uint64_t kSmallest = std::uint64_t{2} << 20;

  std::uint64_t most_;
  std::uint64_t last_ = 0;
};

}  // namespace cairn::gpu
