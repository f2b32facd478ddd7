#include "cairn/layout/block_pattern.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace cairn {

namespace {

std::uint64_t mixed(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9U;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

// The words of a row in order. Rarely 0, unlike memory that was never written.
class RowWords {
 public:
  RowWords(std::uint64_t seed, std::uint64_t row) : next_(mixed(seed + 0x9E3779B97F4A7C15U * (row + 1))) {}
  std::uint64_t next() {
    next_ = next_ * 0xD1342543DE82EF95U + 0x2545F4914F6CDD1DU;
    return next_ ^ (next_ >> 29);
  }

 private:
  std::uint64_t next_;
};

// Calls visit(number of the row, its bytes) until it returns false.
template <typename Visit>
void for_each_row(const BlockLayout& layout, std::uint32_t block, Visit visit) {
  const KvShape& shape = layout.shape();
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (std::uint32_t kv = 0; kv < shape.kv; ++kv) {
      for (std::uint32_t token = 0; token < shape.page_size; ++token) {
        for (std::uint32_t head = 0; head < shape.heads; ++head) {
          const BlockLayout::Address at = layout.address(block, layer, kv, token, head);
          if (!visit(shape.row(layer, kv, token, head), layout.regions()[at.region]->base() + at.offset)) {
            return;
          }
        }
      }
    }
  }
}

}  // namespace

void write_pattern(const BlockLayout& layout, std::uint32_t block, std::uint64_t seed) {
  const std::uint64_t bytes = layout.shape().row_bytes();
  for_each_row(layout, block, [&](std::uint64_t row, std::byte* to) {
    RowWords words(seed, row);
    for (std::uint64_t i = 0; i < bytes; i += 8) {
      const std::uint64_t word = words.next();
      std::memcpy(to + i, &word, std::min<std::uint64_t>(8, bytes - i));
    }
    return true;
  });
}

std::optional<std::uint64_t> find_stranger(const BlockLayout& layout, std::uint32_t block, std::uint64_t seed) {
  const std::uint64_t bytes = layout.shape().row_bytes();
  std::optional<std::uint64_t> stranger;
  for_each_row(layout, block, [&](std::uint64_t row, const std::byte* at) {
    RowWords words(seed, row);
    for (std::uint64_t i = 0; i < bytes; i += 8) {
      const std::uint64_t word = words.next();
      if (std::memcmp(at + i, &word, std::min<std::uint64_t>(8, bytes - i)) != 0) {
        stranger = row;
        return false;
      }
    }
    return true;
  });
  return stranger;
}

}  // namespace cairn
