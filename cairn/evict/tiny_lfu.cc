#include "cairn/evict/tiny_lfu.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cairn/tokens/block_key.h"

namespace cairn {

namespace {

constexpr std::uint32_t kRows = 4;
constexpr std::uint64_t kUsesPerBlock = 10;
constexpr std::uint64_t kCounterMask = 15;

// One counter of each row: a word, and a place within its quarter for the row.
struct Counter {
  std::size_t word;
  std::uint32_t shift;
};

std::uint64_t remix(std::uint64_t hash, std::uint64_t round) {
  hash = (hash + (round + 1) * 0x9E3779B97F4A7C15U) * 0xBF58476D1CE4E5B9U;
  return hash ^ (hash >> 31);
}

std::size_t reduce(std::uint64_t hash, std::size_t range) { return ((hash >> 32) * range) >> 32; }

std::array<Counter, kRows> counters_of(std::uint64_t hash, std::size_t words) {
  std::array<Counter, kRows> out{};
  for (std::uint32_t row = 0; row < kRows; ++row) {
    const std::uint64_t own = remix(hash, row);
    out[row] = {reduce(own, words), 16 * row + 4 * static_cast<std::uint32_t>(own & 3)};
  }
  return out;
}

std::array<std::size_t, 2> door_bits_of(std::uint64_t hash, std::size_t words) {
  return {reduce(remix(hash, kRows), words * 64), reduce(remix(hash, kRows + 1), words * 64)};
}

std::uint32_t count_at(const PageArray<std::uint64_t>& words, Counter counter) {
  return static_cast<std::uint32_t>((words[counter.word] >> counter.shift) & kCounterMask);
}

bool has_bit(const PageArray<std::uint64_t>& words, std::size_t bit) {
  return ((words[bit / 64] >> (bit % 64)) & 1) != 0;
}

}  // namespace

Result<TinyLfu> TinyLfu::create(std::uint32_t capacity, const KeySeed& seed) {
  CAIRN_TRY_ASSIGN(PageArray<std::uint64_t> words, PageArray<std::uint64_t>::create(std::max(capacity, 1U)));
  CAIRN_TRY_ASSIGN(PageArray<std::uint64_t> door, PageArray<std::uint64_t>::create(capacity / 2 + 1));
  return TinyLfu(capacity, std::move(words), std::move(door), seed);
}

TinyLfu::TinyLfu(std::uint32_t capacity, PageArray<std::uint64_t> words, PageArray<std::uint64_t> door,
                 const KeySeed& seed)
    : period_(kUsesPerBlock * std::max(capacity, 1U)), seed_(seed), words_(std::move(words)), door_(std::move(door)) {}

std::uint32_t TinyLfu::add(const BlockKey& key) {
  if (++uses_ >= period_) {
    halve();
  }
  const std::uint64_t hash = hash_of(key, seed_);
  bool known = true;
  for (const std::size_t bit : door_bits_of(hash, door_.size())) {
    known = known && has_bit(door_, bit);
    door_[bit / 64] |= std::uint64_t{1} << (bit % 64);
  }
  const std::array<Counter, kRows> counters = counters_of(hash, words_.size());
  std::uint32_t least = kMaxCount;
  for (const Counter counter : counters) {
    least = std::min(least, count_at(words_, counter));
  }
  if (!known || least == kCounterMask) {
    return least + 1;
  }
  // Only the lowest counters: the others were raised by other keys.
  for (const Counter counter : counters) {
    if (count_at(words_, counter) == least) {
      words_[counter.word] += std::uint64_t{1} << counter.shift;
    }
  }
  return least + 2;
}

std::uint32_t TinyLfu::estimate(const BlockKey& key) const {
  const std::uint64_t hash = hash_of(key, seed_);
  bool known = true;
  for (const std::size_t bit : door_bits_of(hash, door_.size())) {
    known = known && has_bit(door_, bit);
  }
  std::uint32_t least = kMaxCount;
  for (const Counter counter : counters_of(hash, words_.size())) {
    least = std::min(least, count_at(words_, counter));
  }
  return least + (known ? 1 : 0);
}

void TinyLfu::halve() {
  for (std::size_t i = 0; i < words_.size(); ++i) {
    words_[i] = (words_[i] >> 1) & 0x7777777777777777U;
  }
  std::fill_n(door_.data(), door_.size(), 0);
  uses_ /= 2;
}

}  // namespace cairn
