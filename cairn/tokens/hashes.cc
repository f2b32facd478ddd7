#include "cairn/tokens/hashes.h"

#include "cairn/hash/xxh3.h"

#include <bit>

namespace cairn {

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

}  // namespace cairn
