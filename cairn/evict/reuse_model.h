// ReuseModel: what keeping a block is worth, by how often it was used and how long ago.
//
// Does:     counts, for blocks of each number of uses, after what time they were used again, if they were. From that a
//           block's worth is the most hits for the time in a block that can be had by keeping it, over all times at which
//           one could give it up (its Gittins index). Where little has been seen, what all blocks do counts, and before
//           that, that soon is likelier than late.
// Owner:    a policy. Threads: none.
// Costs:    O(1) a use; now and then some 10,000 steps, about once for a sixteenth of the pool. A few KiB.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace cairn {

class ReuseModel {
 public:
  explicit ReuseModel(std::uint32_t capacity);

  // A block was used for the `uses`th time, and waits from now on.
  void began(std::uint32_t uses) { classes_[uses - 1].began += 1; }
  // One that had been used that often was used again at this age.
  void returned(std::uint32_t uses, std::uint64_t age);
  // Lets what was counted long ago count less, if it is time.
  void fade(std::uint64_t now);
  // Brings worth() up to date, if it is time; fades too.
  void learn(std::uint64_t now);

  // What comes back at a greater age comes too late to matter, and is as good as new.
  [[nodiscard]] std::uint64_t horizon() const { return static_cast<std::uint64_t>(begin_of(kBuckets)); }
  // Higher is better to keep.
  [[nodiscard]] double worth(std::uint32_t uses, std::uint64_t age) const {
    return classes_[uses - 1].worth[bucket_of(age)];
  }
  // That a block of this age is used again before it reaches the other one.
  [[nodiscard]] double chance(std::uint32_t uses, std::uint64_t age, std::uint64_t until) const;

 private:
  static constexpr std::uint32_t kClasses = 4;
  static constexpr std::uint32_t kBuckets = 41;  // four for each doubling of the age, the last to 16 times the pool

  struct Class {
    double began = 0;
    std::array<double, kBuckets> returned{};
    std::array<double, kBuckets + 1> worth{};  // beyond the last bucket: nothing
  };

  [[nodiscard]] std::uint32_t bucket_of(std::uint64_t age) const;
  [[nodiscard]] double begin_of(std::uint32_t bucket) const;
  void rate(Class& of, const std::array<double, kBuckets>& expected);

  std::uint64_t unit_;
  std::uint64_t learn_every_;
  std::uint64_t fade_every_;
  std::uint64_t next_learning_ = 0;
  std::uint64_t next_fading_;
  std::array<Class, kClasses> classes_;
};

}  // namespace cairn
