#include "cairn/tokens/namespace.h"

#include <algorithm>
#include "cairn/base/str_cat.h"
#include "cairn/hash/sha256.h"
#include "cairn/tokens/bytes.h"

namespace cairn {
namespace {

void add_number(internal::Sha256& hash, std::uint64_t number) {
  std::array<std::byte, 8> bytes;
  internal::store_be64(bytes, number);
  hash.add(bytes);
}

void add_text(internal::Sha256& hash, std::string_view text) {
  add_number(hash, text.size());
  hash.add(std::as_bytes(std::span(text)));
}

}  // namespace

std::string_view to_string(KeyScheme scheme) {
  switch (scheme) {
    case KeyScheme::kVllm:
      return "vllm";
    case KeyScheme::kSglang:
      return "sglang";
    case KeyScheme::kRouter:
      return "router";
    case KeyScheme::kDynamo:
      return "dynamo";
    case KeyScheme::kNative:
      return "native";
  }
  return "unknown";
}

NamespaceId Namespace::id() const {
  internal::Sha256& hash = internal::Sha256::of_this_thread();
  hash.begin();
  add_text(hash, "cairn-namespace-v1");
  add_text(hash, tenant);
  add_text(hash, model);
  add_number(hash, weights_generation);
  add_text(hash, layout);
  add_text(hash, element_type);
  add_text(hash, shard);
  add_number(hash, block_size);
  add_number(hash, static_cast<std::uint64_t>(scheme));
  const Digest digest = hash.finish();
  return NamespaceId{internal::load_be64(std::span(digest.bytes).first<8>())};
}

std::array<std::byte, QualifiedKey::kBytes> QualifiedKey::to_bytes() const {
  std::array<std::byte, kBytes> bytes;
  internal::store_be64(std::span(bytes).first<8>(), value_of(ns));
  std::ranges::copy(key.to_bytes(), bytes.begin() + 8);
  return bytes;
}

Result<QualifiedKey> QualifiedKey::from_bytes(std::span<const std::byte> bytes) {
  if (bytes.size() != kBytes) {
    return fail(ErrorCode::kCorrupt,
                str_cat("a qualified block key is ", kBytes, " bytes, not ", bytes.size(), "; drop the record"));
  }
  CAIRN_TRY_ASSIGN(const BlockKey key, BlockKey::from_bytes(bytes.subspan<8>()));
  return QualifiedKey{NamespaceId{internal::load_be64(bytes.first<8>())}, key};
}

}  // namespace cairn
