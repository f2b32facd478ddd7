// Lifetime: lets a handle find out whether the object it refers to still exists. Internal.
//
// Thread safety: all calls from any thread. end() waits for uses that have begun; later uses are not good.
// Ownership: shared by the object, which calls end(), and the handles that refer to it.
#pragma once

#include <atomic>
#include <cstdint>

namespace cairn::capi {

class Lifetime {
 public:
  // If is_good(), the object exists until this Use is destroyed.
  class Use {
   public:
    explicit Use(Lifetime& of) : of_(of), is_good_((of.state_.fetch_add(1) & kEnded) == 0) {}
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() {
      of_.state_.fetch_sub(1);
      of_.state_.notify_all();
    }
    [[nodiscard]] bool is_good() const { return is_good_; }

   private:
    Lifetime& of_;
    const bool is_good_;
  };

  void end() noexcept {
    std::uint32_t state = state_.fetch_or(kEnded) | kEnded;
    while (state != kEnded) {
      state_.wait(state);
      state = state_.load();
    }
  }

 private:
  static constexpr std::uint32_t kEnded = std::uint32_t{1} << 31;
  // The number of uses. Sequentially consistent: a use either sees kEnded, or end() waits for it.
  std::atomic<std::uint32_t> state_{0};
};

}  // namespace cairn::capi
