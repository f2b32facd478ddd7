// Adopting what engines name by digests; which 64 bits of a digest their events carry is the engine's affair. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "cairn/base/str_cat.h"
#include "cairn/tokens/block_run.h"
#include "cairn/tokens/engine_key.h"
#include "cairn/tokens/sha256_digest.h"

namespace cairn::internal {

[[nodiscard]] inline Status check_digest_size(std::size_t size) {
  if (size < 8 || size > sizeof(Digest)) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("a block digest of ", size, " bytes; give 8 to 32, as the engine made them"));
  }
  return Status();
}

template <typename HashOf>
[[nodiscard]] Result<std::size_t> adopt_run(NamespaceId ns, const std::optional<BlockKey>& parent,
                                            std::span<const Digest> digests, std::span<BlockKey> keys, HashOf hash_of) {
  if (Status room = check_room(digests.size(), keys.size(), "keys"); !room) {
    return Unexpected(room.error());
  }
  const Result<std::uint32_t> first = first_position(parent, digests.size());
  if (!first) {
    return Unexpected(first.error());
  }
  SequenceHash previous = parent ? parent->sequence_hash() : SequenceHash{0};
  for (std::size_t i = 0; i < digests.size(); ++i) {
    const SequenceHash current{hash_of(digests[i]) ^ value_of(ns)};
    keys[i] = BlockKey::make_checked(*first + static_cast<std::uint32_t>(i), current, previous);
    previous = current;
  }
  return digests.size();
}

}  // namespace cairn::internal
