#include "cairn/tokens/key_hasher.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "cairn/base/byte_stream.h"
#include "cairn/base/str_cat.h"
#include "cairn/hash/secret_bytes.h"
#include "cairn/hash/sha256.h"
#include "cairn/hash/sha256_digest.h"
#include "cairn/tokens/bytes.h"
#include "cairn/tokens/keyed_keys.h"

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

KeySecret::~KeySecret() { internal::erase_secret(bytes_); }

KeySecret KeySecret::random() {
  Bytes bytes;
  internal::fill_random(bytes);
  const KeySecret secret(bytes);
  internal::erase_secret(bytes);
  return secret;
}

Result<KeySecret> KeySecret::from_hex(std::string_view text) {
  const Result<Digest> digest = Digest::from_hex(text);
  if (!digest) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("a key secret of ", text.size(), " characters; give 64 hexadecimal digits"));
  }
  return KeySecret(digest->bytes);
}

Result<KeySecret> KeySecret::from_file(const std::string& path) {
  const auto failed = [&path](const char* what) {
    return fail(ErrorCode::kIo, str_cat("cannot ", what, " the key secret file ", path, ": ", std::strerror(errno)));
  };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file == -1) {
    return failed("open");
  }
  // Longer than any valid file.
  std::array<char, 256> buffer;
  const ssize_t size = ::read(file, buffer.data(), buffer.size());
  const int error = errno;
  ::close(file);
  if (size < 0) {
    errno = error;
    return failed("read");
  }
  std::string_view text(buffer.data(), static_cast<std::size_t>(size));
  constexpr std::string_view kSpace = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  text = text.substr(0, text.find_last_not_of(kSpace) + 1);
  Result<KeySecret> secret = from_hex(static_cast<std::size_t>(size) < buffer.size() ? text : std::string_view());
  internal::erase_secret(std::as_writable_bytes(std::span(buffer)));
  if (!secret) {
    return fail(ErrorCode::kInvalidArgument, str_cat("the key secret file ", path,
                                                     " does not hold 64 hexadecimal digits and nothing else; make one "
                                                     "with `openssl rand -hex 32`"));
  }
  return secret;
}

bool operator==(const KeySecret& one, const KeySecret& other) {
  return internal::same_secret(one.bytes_, other.bytes_);
}

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
