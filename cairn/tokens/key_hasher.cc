#include "cairn/tokens/key_hasher.h"

#include <vector>

#include "cairn/base/byte_stream.h"
#include "cairn/base/str_cat.h"
#include "cairn/tokens/keyed_keys.h"

namespace cairn {

KeyHasher KeyHasher::make(const Namespace& space, const std::optional<KeySecret>& secret) {
  if (space.scheme == KeyScheme::kDynamo) {
    return dynamo();
  }
  KeyHasher hasher(space.scheme);
  if (has_secret(space.scheme)) {
    hasher.keyed_ = std::make_shared<const internal::KeyedKeys>(secret ? *secret : KeySecret::random(), space);
    return hasher.with({});
  }
  return hasher;
}

KeyHasher KeyHasher::dynamo(SaltHash salt) {
  KeyHasher hasher(KeyScheme::kDynamo);
  hasher.root_[0] = value_of(salt);
  return hasher;
}

const KeyHasher& KeyHasher::of_process() {
  static const KeyHasher kHasher = make(Namespace{});
  return kHasher;
}

KeyHasher KeyHasher::with(const RequestSalt& request) const {
  KeyHasher hasher = *this;
  if (keyed_ == nullptr) {
    hasher.root_[0] = value_of(salt_hash(request.salt, request.lora_name));
    return hasher;
  }
  std::vector<std::byte> message;
  message.reserve(2 * sizeof(std::uint64_t) + request.salt.size() + request.lora_name.size());
  ByteWriter out(message);
  for (const std::string_view text : {request.salt, request.lora_name}) {
    out.put(std::uint64_t{text.size()});
    out.raw(std::as_bytes(std::span(text)));
  }
  const internal::Words root = internal::words_of(keyed_->root.mac(message));
  hasher.root_[0] = root.first | (std::uint64_t{3} << 62);  // the mode that no key has
  hasher.root_[1] = root.second;
  return hasher;
}

Status KeyHasher::check_hashes_tokens() const {
  if (scheme_ == KeyScheme::kNative || scheme_ == KeyScheme::kDynamo) {
    return {};
  }
  return fail(ErrorCode::kFailedPrecondition,
              str_cat("keys of scheme ", to_string(scheme_),
                      " are made from the engine's own hashes, not from tokens; give these hashes, or set model.scheme "
                      "to native"));
}

internal::AesBlock KeyHasher::root() const { return internal::block_of({root_[0], root_[1]}); }

}  // namespace cairn
