// The batch call of hashes.h. A sequence hash cannot begin before the one before it is done, so the chain's latency is
// the floor; everything here serves to keep the rest of the work in its shadow.
#include <algorithm>
#include <array>

#include "cairn/tokens/block_key.h"
#include "cairn/tokens/block_run.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/mm_frames.h"
// Static-linking-only: seeded hashing with a secret that is derived once for a batch, not once for a block.
#define XXH_STATIC_LINKING_ONLY
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace cairn {
namespace {

// Where a batch stands: the blocks done so far, and what the next one continues.
struct Cursor {
  std::size_t done = 0;
  std::uint32_t position;
  std::uint64_t sequence_hash;  // of the block at position - 1
};

struct Output {
  BlockKey* keys;
  BlockHash* block_hashes;  // may be null
};

inline std::uint64_t chain(std::uint64_t parent, std::uint64_t block) {
  const std::uint64_t words[2] = {parent, block};
  return XXH3_64bits_withSeed(words, sizeof(words), value_of(kNoSalt));
}

// Blocks whose length the compiler knows, so that the hash unfolds into straight code.
template <std::size_t kTokens>
class FixedHasher {
 public:
  FixedHasher(const Token* tokens, SaltHash salt) : tokens_(tokens), seed_(value_of(salt)) {}
  std::uint64_t operator()(std::size_t block) const {
    return XXH3_64bits_withSeed(tokens_ + block * kTokens, kTokens * sizeof(Token), seed_);
  }

 private:
  const Token* tokens_;
  std::uint64_t seed_;
};

// Blocks of any length. Beyond 240 bytes XXH3 hashes with a secret derived from the seed: here once for all of them.
class AnyHasher {
 public:
  AnyHasher(const Token* tokens, std::size_t block_size, SaltHash salt)
      : tokens_(tokens), block_size_(block_size), seed_(value_of(salt)) {
    XXH3_generateSecret_fromSeed(secret_.data(), seed_);
  }
  std::uint64_t operator()(std::size_t block) const {
    return XXH3_64bits_withSecretandSeed(tokens_ + block * block_size_, block_size_ * sizeof(Token), secret_.data(),
                                         secret_.size(), seed_);
  }

 private:
  const Token* tokens_;
  std::size_t block_size_;
  std::uint64_t seed_;
  std::array<unsigned char, XXH3_SECRET_DEFAULT_SIZE> secret_;
};

// Blocks under multimodal runs. `offset` is that of the first token in the sequence.
class FramedHasher {
 public:
  FramedHasher(const Token* tokens, std::size_t block_size, std::uint64_t offset, SaltHash salt,
               std::span<const MmRun> runs)
      : tokens_(tokens), block_size_(block_size), offset_(offset), salt_(salt), runs_(runs) {}
  std::uint64_t operator()(std::size_t block) const {
    const std::size_t begin = block * block_size_;
    return internal::hash_frames({tokens_ + begin, block_size_}, offset_ + begin, runs_, salt_);
  }

 private:
  const Token* tokens_;
  std::size_t block_size_;
  std::uint64_t offset_;
  SaltHash salt_;
  std::span<const MmRun> runs_;
};

// Blocks at positions from 1 on that all have the key layout of positions kFrom to kTo. Told so, the compiler shifts by
// constants instead of choosing the layout for each key.
template <std::uint32_t kFrom, std::uint32_t kTo, typename Hasher>
[[gnu::flatten]] void hash_positions(const Hasher& hasher, std::size_t end, Cursor& cursor, Output out) {
  end = std::min<std::size_t>(end, cursor.done + (kTo + 1 - cursor.position));
  std::uint64_t parent = cursor.sequence_hash;
  std::uint32_t position = cursor.position;
  for (std::size_t i = cursor.done; i < end; ++i, ++position) {
    if (position < kFrom || position > kTo) {
      __builtin_unreachable();
    }
    const std::uint64_t block = hasher(i);
    const std::uint64_t current = chain(parent, block);
    out.keys[i] = BlockKey::make_checked(position, SequenceHash{current}, SequenceHash{parent});
    if (out.block_hashes != nullptr) {
      out.block_hashes[i] = BlockHash{block};
    }
    parent = current;
  }
  cursor = {end, position, parent};
}

template <typename Hasher>
void hash_run(const Hasher& hasher, std::size_t end, Cursor& cursor, Output out) {
  if (cursor.position == 0 && cursor.done < end) {
    const BlockHash block{hasher(cursor.done)};
    out.keys[cursor.done] = BlockKey::make_checked(0, sequence_hash_of_root(block), SequenceHash{0});
    if (out.block_hashes != nullptr) {
      out.block_hashes[cursor.done] = block;
    }
    cursor = {cursor.done + 1, 1, value_of(block)};
  }
  if (cursor.position < 1U << 8) {
    hash_positions<1, (1U << 8) - 1>(hasher, end, cursor, out);
  }
  if (cursor.position < 1U << 16) {
    hash_positions<1U << 8, (1U << 16) - 1>(hasher, end, cursor, out);
  }
  hash_positions<1U << 16, BlockKey::kMaxPosition>(hasher, end, cursor, out);
}
void hash_plain(const Token* tokens, std::uint32_t block_size, SaltHash salt, std::size_t end, Cursor& cursor,
                Output out) {
  switch (block_size) {
    case 4:
      return hash_run(FixedHasher<4>(tokens, salt), end, cursor, out);
    case 8:
      return hash_run(FixedHasher<8>(tokens, salt), end, cursor, out);
    case 16:
      return hash_run(FixedHasher<16>(tokens, salt), end, cursor, out);
    case 32:
      return hash_run(FixedHasher<32>(tokens, salt), end, cursor, out);
    default:
      return hash_run(AnyHasher(tokens, block_size, salt), end, cursor, out);
  }
}

}  // namespace

Result<std::size_t> hash_blocks(std::span<const Token> tokens, std::uint32_t block_size, SaltHash salt,
                                const std::optional<BlockKey>& parent, std::span<BlockKey> keys,
                                std::span<BlockHash> block_hashes, std::span<const MmRun> runs) {
  if (Status checked = internal::check_block_size(block_size); !checked) {
    return Unexpected(checked.error());
  }
  const std::size_t count = tokens.size() / block_size;
  if (Status room = internal::check_room(count, keys.size(), "keys"); !room) {
    return Unexpected(room.error());
  }
  if (!block_hashes.empty()) {
    if (Status room = internal::check_room(count, block_hashes.size(), "block hashes"); !room) {
      return Unexpected(room.error());
    }
  }
  const Result<std::uint32_t> first = internal::first_position(parent, count);
  if (!first) {
    return Unexpected(first.error());
  }
  if (Status checked = check_mm_runs(runs); !checked) {
    return Unexpected(checked.error());
  }

  const Output out{keys.data(), block_hashes.empty() ? nullptr : block_hashes.data()};
  const std::uint64_t offset = std::uint64_t{*first} * block_size;
  Cursor cursor{0, *first, parent ? value_of(parent->sequence_hash()) : 0};
  while (cursor.done < count) {
    const std::uint64_t place = offset + cursor.done * block_size;
    const auto next = std::find_if(runs.begin(), runs.end(), [&](const MmRun& run) { return run.end() > place; });
    runs = runs.subspan(static_cast<std::size_t>(next - runs.begin()));
    const std::size_t next_framed = runs.empty() ? count : (std::max(runs.front().offset, place) - offset) / block_size;
    hash_plain(tokens.data(), block_size, salt, std::min(next_framed, count), cursor, out);
    if (cursor.done < count) {
      hash_run(FramedHasher(tokens.data(), block_size, offset, salt, runs), cursor.done + 1, cursor, out);
    }
  }
  return count;
}

}  // namespace cairn
