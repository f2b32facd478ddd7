// hash_blocks() of hashes.h. Each sequence hash needs the previous one, so the latency of the chain is the lower bound of
// the time; the code below lets the other work run while the chain waits.
#include "cairn/tokens/hashes.h"

#include <algorithm>
#include <array>

#include "cairn/hash/xxh3.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/block_run.h"
#include "cairn/tokens/key_hasher.h"
#include "cairn/tokens/keyed_keys.h"
#include "cairn/tokens/mm_frames.h"

namespace cairn {
namespace {

struct Output {
  BlockKey* keys;
  BlockHash* block_hashes;  // may be null
};

// The arguments of a call after the checks. `offset` is the index of the first token in the sequence.
struct Batch {
  std::span<const Token> tokens;
  std::size_t block_size;
  std::size_t count;
  std::uint64_t offset;
  std::span<const MmRun> runs;

  [[nodiscard]] std::span<const Token> block(std::size_t index) const {
    return tokens.subspan(index * block_size, block_size);
  }
};

// Calls plain(end) for the blocks up to `end` that overlap no run, and framed(runs) for a block that overlaps the first of
// these runs, until all blocks are done. Both calls advance `done`.
template <typename Plain, typename Framed>
void for_each_stretch(const Batch& batch, const std::size_t& done, Plain plain, Framed framed) {
  std::span<const MmRun> runs = batch.runs;
  while (done < batch.count) {
    const std::uint64_t place = batch.offset + done * batch.block_size;
    const auto next = std::find_if(runs.begin(), runs.end(), [&](const MmRun& run) { return run.end() > place; });
    runs = runs.subspan(static_cast<std::size_t>(next - runs.begin()));
    const std::size_t next_framed =
        runs.empty() ? batch.count : (std::max(runs.front().offset, place) - batch.offset) / batch.block_size;
    plain(std::min(next_framed, batch.count));
    if (done < batch.count) {
      framed(runs);
    }
  }
}

// --- keyed (key_hasher.h) ---

class KeyedBatch {
 public:
  KeyedBatch(const KeyHasher& hasher, const Batch& batch, const std::optional<BlockKey>& parent, Output out)
      : keys_(*hasher.keyed()), batch_(batch), out_(out) {
    if (parent) {
      link_ = {.position = parent->position() + 1,
               .parent = internal::block_of({parent->high_word(), parent->low_word()}),
               .parent_sequence_hash = parent->sequence_hash()};
    } else {
      link_.parent = hasher.root();
    }
  }

  void run() {
    for_each_stretch(
        batch_, done_, [this](std::size_t end) { plain(end); },
        [this](std::span<const MmRun> runs) {
          const internal::AesBlock leaf =
              internal::mac_frames(batch_.block(done_), batch_.offset + done_ * batch_.block_size, runs, keys_.frames);
          take({&leaf, 1});
        });
  }

 private:
  static constexpr std::size_t kGroup = 4;
  using Leaves = std::array<internal::AesBlock, kGroup>;

  // The leaves of a group are computed before the chain of the previous group, so that the processor does both at once.
  void plain(std::size_t end) {
    Leaves leaves[2];
    std::size_t count = leaves_from(done_, end, leaves[0]);
    for (std::size_t group = 0; count > 0; ++group) {
      const std::size_t next_count = leaves_from(done_ + count, end, leaves[(group + 1) % 2]);
      take(std::span(leaves[group % 2]).first(count));
      count = next_count;
    }
  }
  std::size_t leaves_from(std::size_t begin, std::size_t end, Leaves& leaves) const {
    const std::size_t count = std::min(end - begin, kGroup);
    if (count == 0) {
      return 0;
    }
    keys_.leaf.macs(reinterpret_cast<const std::byte*>(batch_.tokens.data() + begin * batch_.block_size),
                    batch_.block_size * sizeof(Token), std::span(leaves).first(count));
    return count;
  }
  void take(std::span<const internal::AesBlock> leaves) {
    internal::chain_keys(keys_.chain, link_, leaves, out_.keys + done_);
    for (std::size_t i = 0; out_.block_hashes != nullptr && i < leaves.size(); ++i) {
      out_.block_hashes[done_ + i] = BlockHash{internal::words_of(leaves[i]).first};
    }
    done_ += leaves.size();
  }

  const internal::KeyedKeys& keys_;
  const Batch& batch_;
  const Output out_;
  internal::ChainLink link_;
  std::size_t done_ = 0;
};

// --- dynamo (XXH3) ---

// The progress of a batch: the number of blocks done, and the state for the next block.
struct Cursor {
  std::size_t done = 0;
  std::uint32_t position;
  std::uint64_t sequence_hash;  // of the block at position - 1
};

inline std::uint64_t chain(std::uint64_t parent, std::uint64_t block) {
  const std::uint64_t words[2] = {parent, block};
  return XXH3_64bits_withSeed(words, sizeof(words), value_of(kNoSalt));
}

// Blocks of a length that the compiler knows, so that it unrolls the hash.
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

// Blocks of any length. Beyond 240 bytes XXH3 derives a secret from the seed: here once for all blocks.
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

// Blocks that overlap multimodal runs. `offset` is the index of the first token in the sequence.
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

// Blocks at positions from 1 on whose keys all have the layout of positions kFrom to kTo. The compiler can then shift by
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

void hash_dynamo(SaltHash salt, const Batch& batch, const std::optional<BlockKey>& parent, Output out) {
  Cursor cursor{0, parent ? parent->position() + 1 : 0, parent ? value_of(parent->sequence_hash()) : 0};
  for_each_stretch(
      batch, cursor.done,
      [&](std::size_t end) {
        hash_plain(batch.tokens.data(), static_cast<std::uint32_t>(batch.block_size), salt, end, cursor, out);
      },
      [&](std::span<const MmRun> runs) {
        hash_run(FramedHasher(batch.tokens.data(), batch.block_size, batch.offset, salt, runs), cursor.done + 1, cursor,
                 out);
      });
}

}  // namespace

Result<std::size_t> hash_blocks(std::span<const Token> tokens, std::uint32_t block_size, const KeyHasher& hasher,
                                const std::optional<BlockKey>& parent, std::span<BlockKey> keys,
                                std::span<BlockHash> block_hashes, std::span<const MmRun> runs) {
  CAIRN_TRY(internal::check_block_size(block_size));
  CAIRN_TRY(hasher.check_hashes_tokens());
  const std::size_t count = tokens.size() / block_size;
  CAIRN_TRY(internal::check_room(count, keys.size(), "keys"));
  if (!block_hashes.empty()) {
    CAIRN_TRY(internal::check_room(count, block_hashes.size(), "block hashes"));
  }
  CAIRN_TRY_ASSIGN(const std::uint32_t first, internal::first_position(parent, count));
  CAIRN_TRY(check_mm_runs(runs));

  const Batch batch{tokens, block_size, count, std::uint64_t{first} * block_size, runs};
  const Output out{keys.data(), block_hashes.empty() ? nullptr : block_hashes.data()};
  if (hasher.keyed() != nullptr) {
    KeyedBatch(hasher, batch, parent, out).run();
  } else {
    hash_dynamo(hasher.salt(), batch, parent, out);
  }
  return count;
}

}  // namespace cairn
