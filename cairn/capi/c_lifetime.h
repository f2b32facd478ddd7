// Lifetime: whether what a handle refers to is still there, for handles that can outlive it. Internal.
//
// Thread safety: all calls from any thread. end() waits for the uses that have begun; later ones fail.
// Ownership: shared by the handle that ends it and those that refer to it.
#pragma once

#include <atomic>
#include <cstdint>

namespace cairn::capi {

class Lifetime {
 public:
  // While it lives, and is_good(), what the lifetime is of stays.
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
  // How many uses there are. Sequentially consistent: a use either sees kEnded or is waited for.
  std::atomic<std::uint32_t> state_{0};
};

}  // namespace cairn::capi
