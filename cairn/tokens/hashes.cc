#include "cairn/tokens/hashes.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "cairn/base/str_cat.h"
#include "cairn/hash/xxh3.h"
#include "cairn/tokens/block_run.h"
#include "cairn/tokens/mm_frames.h"

namespace cairn {
namespace {

Unexpected<Error> bad_run(std::size_t index, const MmRun& run, std::string_view why) {
  return fail(ErrorCode::kInvalidArgument,
              str_cat("multimodal run ", index, " (offset ", run.offset, ", length ", run.length, ") ", why));
}

}  // namespace

static_assert(std::endian::native == std::endian::little, "tokens are hashed as little-endian words");

SaltHash salt_hash(std::string_view salt, std::string_view lora_name) {
  std::uint64_t seed = value_of(kNoSalt);
  if (!lora_name.empty()) {
    seed += XXH3_64bits_withSeed(lora_name.data(), lora_name.size(), 0);
  }
  if (!salt.empty()) {
    seed += XXH3_64bits_withSeed(salt.data(), salt.size(), 1);
  }
  return SaltHash{seed};
}

BlockHash hash_block(std::span<const Token> tokens, SaltHash salt) {
  return BlockHash{XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), value_of(salt))};
}

SequenceHash chain_hash(SequenceHash parent, BlockHash block) {
  const std::uint64_t words[2] = {value_of(parent), value_of(block)};
  return SequenceHash{XXH3_64bits_withSeed(words, sizeof(words), value_of(kNoSalt))};
}

Status check_mm_runs(std::span<const MmRun> runs) {
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const MmRun& run = runs[i];
    if (run.length == 0) {
      return bad_run(i, run, "is empty; leave it out");
    }
    if (run.offset > std::numeric_limits<std::uint64_t>::max() - run.length ||
        run.item_offset > std::numeric_limits<std::uint32_t>::max() - (run.length - 1)) {
      return bad_run(i, run, "ends beyond 2^64 tokens; give offsets in tokens");
    }
    if (run.offset < end) {
      return bad_run(i, run,
                     str_cat("begins before token ", end, ", the end of the run before it; sort the runs by ",
                             "offset and let them not overlap"));
    }
    end = run.end();
  }
  return Status();
}

std::size_t router_block_count(std::size_t tokens, const RouterHashing& hashing) {
  const std::size_t overhang = hashing.eagle ? 1 : 0;
  return hashing.block_size == 0 || tokens < overhang ? 0 : (tokens - overhang) / hashing.block_size;
}

Result<std::size_t> router_hashes(std::span<const Token> tokens, const RouterHashing& hashing,
                                  std::span<BlockHash> hashes, std::span<const std::vector<std::uint64_t>> mm_hashes) {
  CAIRN_TRY(internal::check_block_size(hashing.block_size));
  const std::size_t count = router_block_count(tokens.size(), hashing);
  CAIRN_TRY(internal::check_room(count, hashes.size(), "block hashes"));
  const std::size_t window_size = std::size_t{hashing.block_size} + (hashing.eagle ? 1 : 0);
  for (std::size_t i = 0; i < count; ++i) {
    const std::span<const Token> window = tokens.subspan(i * hashing.block_size, window_size);
    if (i < mm_hashes.size() && !mm_hashes[i].empty()) {
      std::vector<std::uint64_t> sorted = mm_hashes[i];
      std::sort(sorted.begin(), sorted.end());
      hashes[i] = BlockHash{internal::hash_with_words(window, sorted, hashing.seed)};
    } else {
      hashes[i] = hash_block(window, hashing.seed);
    }
  }
  return count;
}

}  // namespace cairn
