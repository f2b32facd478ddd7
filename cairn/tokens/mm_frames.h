// Hashes of blocks with multimodal content. Internal.
#pragma once

#include <cstdint>
#include <span>

#include "cairn/hash/cmac.h"
#include "cairn/tokens/hashes.h"

namespace cairn::internal {

// XXH3-64 of the frames (hashes.h) of a block that overlaps multimodal runs. `offset` is the index of tokens[0] in the
// sequence; `runs` are sorted and checked.
[[nodiscard]] std::uint64_t hash_frames(std::span<const Token> tokens, std::uint64_t offset,
                                        std::span<const MmRun> runs, SaltHash salt);
// CMAC of the same frames.
[[nodiscard]] AesBlock mac_frames(std::span<const Token> tokens, std::uint64_t offset, std::span<const MmRun> runs,
                                  const CmacKey& key);
// XXH3-64 of the tokens, then the words, all little-endian.
[[nodiscard]] std::uint64_t hash_with_words(std::span<const Token> tokens, std::span<const std::uint64_t> words,
                                            SaltHash salt);

}  // namespace cairn::internal
