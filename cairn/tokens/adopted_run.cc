#include "cairn/tokens/adopted_run.h"

#include <cstring>

#include "cairn/base/str_cat.h"
#include "cairn/tokens/block_run.h"
#include "cairn/tokens/bytes.h"
#include "cairn/tokens/engine_key.h"
#include "cairn/tokens/keyed_keys.h"

namespace cairn::internal {
namespace {

Status check_scheme(const KeyHasher& hasher, KeyScheme scheme) {
  if (hasher.scheme() != scheme) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat("digests of ", to_string(scheme), " for keys of scheme ", to_string(hasher.scheme()),
                        "; set model.scheme to ", to_string(scheme)));
  }
  return {};
}

// The digest is of the block and all blocks before it; the tag depends on all of its bytes.
BlockKey key_of_digest(const KeyHasher& hasher, const std::optional<BlockKey>& parent, std::uint32_t position,
                       std::span<const std::byte> digest) {
  return key_of(position, hasher.keyed()->digest.mac(digest), parent ? parent->sequence_hash() : SequenceHash{0});
}

}  // namespace

Result<std::size_t> adopt_digests(const KeyHasher& hasher, KeyScheme scheme, const std::optional<BlockKey>& parent,
                                  std::span<const Digest> digests, std::span<BlockKey> keys) {
  CAIRN_TRY(check_scheme(hasher, scheme));
  CAIRN_TRY(check_room(digests.size(), keys.size(), "keys"));
  CAIRN_TRY_ASSIGN(const std::uint32_t first, first_position(parent, digests.size()));
  std::optional<BlockKey> previous = parent;
  for (std::size_t i = 0; i < digests.size(); ++i) {
    keys[i] = key_of_digest(hasher, previous, first + static_cast<std::uint32_t>(i), digests[i].bytes);
    previous = keys[i];
  }
  return digests.size();
}

Result<BlockKey> adopt_digest(const KeyHasher& hasher, KeyScheme scheme, const std::optional<BlockKey>& parent,
                              std::span<const std::byte> digest, std::uint64_t position) {
  CAIRN_TRY(check_scheme(hasher, scheme));
  if (digest.size() < kLeastDigest || digest.size() > sizeof(Digest)) {
    return fail(ErrorCode::kInvalidArgument, str_cat("a block digest of ", digest.size(), " bytes; give ", kLeastDigest,
                                                     " to ", sizeof(Digest), ", as the engine made them"));
  }
  CAIRN_TRY(check_follows(parent, position));
  return key_of_digest(hasher, parent, static_cast<std::uint32_t>(position), digest);
}

}  // namespace cairn::internal

namespace cairn {

BlockHash engine_event_hash(KeyScheme scheme, std::span<const std::byte> digest) {
  switch (scheme) {
    case KeyScheme::kVllm:
      return BlockHash{internal::load_be64(digest.last<8>())};
    case KeyScheme::kSglang:
      return BlockHash{internal::load_be64(digest.first<8>())};
    default: {
      std::uint64_t hash = 0;
      std::memcpy(&hash, digest.data(), sizeof hash);
      return BlockHash{hash};
    }
  }
}

}  // namespace cairn
