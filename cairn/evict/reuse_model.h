// ReuseModel: what keeping a block is worth, by how often and how long ago it was used.
//
// It counts, for blocks of each number of uses, after what time they were used again. The value of a block is the
// highest rate of hits for its time in the pool, over all times at which it could be evicted (its Gittins index). Until
// enough blocks of a kind were seen, the counts of all blocks are used, and before those the assumption that an early
// return is likelier than a late one.
//
// Thread safety: none; the lock of the pool guards it.
// Complexity: O(1) a use, plus some 10,000 steps once for each sixteenth of the pool. A few KiB.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace cairn {

class ReuseModel {
 public:
  explicit ReuseModel(std::uint32_t capacity);

  // A block was used for the `uses`th time.
  void began(std::uint32_t uses) { classes_[uses - 1].began += 1; }
  // A block that had been used `uses` times was used again at this age.
  void returned(std::uint32_t uses, std::uint64_t age);
  // Makes older counts count less, if it is time.
  void fade(std::uint64_t now);
  // Updates worth(), if it is time; fades too.
  void learn(std::uint64_t now);

  // A block that returns at a greater age counts as new.
  [[nodiscard]] std::uint64_t horizon() const { return static_cast<std::uint64_t>(begin_of(kBuckets)); }
  // The value of a block; the lowest is evicted.
  [[nodiscard]] double worth(std::uint32_t uses, std::uint64_t age) const {
    return classes_[uses - 1].worth[bucket_of(age)];
  }
  // The probability that a block of this age is used again before it reaches the age `until`.
  [[nodiscard]] double chance(std::uint32_t uses, std::uint64_t age, std::uint64_t until) const;

 private:
  static constexpr std::uint32_t kClasses = 4;
  static constexpr std::uint32_t kBuckets = 41;  // four for each doubling of the age, the last to 16 times the pool

  struct Class {
    double began = 0;
    std::array<double, kBuckets> returned{};
    std::array<double, kBuckets + 1> worth{};  // beyond the last bucket: 0
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
