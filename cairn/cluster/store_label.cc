#include "cairn/cluster/store_label.h"

#include <algorithm>
#include <cstring>

#include "cairn/hash/sha256.h"

namespace cairn {

namespace {

constexpr char kLabelMagic[8] = {'C', 'A', 'I', 'R', 'N', 'B', 'L', '1'};
constexpr std::size_t kSealedBytes = 56;

void put_word(StoreLabelBytes& bytes, std::size_t at, std::uint64_t value) {
  for (std::size_t i = 0; i < 8; ++i) {
    bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
  }
}

std::uint64_t get_word(std::span<const std::byte> bytes, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    value |= std::to_integer<std::uint64_t>(bytes[at + i]) << (8 * i);
  }
  return value;
}

std::uint64_t seal_of(std::span<const std::byte> bytes) {
  internal::Sha256& hash = internal::Sha256::of_this_thread();
  hash.begin();
  hash.add(bytes.first(kSealedBytes));
  const Digest digest = hash.finish();
  return get_word(digest.bytes, 0);
}

}  // namespace

StoreLabelBytes StoreLabel::encode() const {
  StoreLabelBytes bytes{};
  std::memcpy(bytes.data(), kLabelMagic, sizeof(kLabelMagic));
  put_word(bytes, 8, block_bytes);
  put_word(bytes, 16, tag.high);
  put_word(bytes, 24, tag.low);
  put_word(bytes, 32, static_cast<std::uint64_t>(checksum));
  put_word(bytes, 40, tokens_hash);
  put_word(bytes, kSealedBytes, seal_of(bytes));
  return bytes;
}

Result<StoreLabel> StoreLabel::decode(std::span<const std::byte> bytes) {
  if (bytes.size() != kStoreLabelBytes || std::memcmp(bytes.data(), kLabelMagic, sizeof(kLabelMagic)) != 0) {
    return fail(ErrorCode::kCorrupt, "the value was not written by this version of Cairn");
  }
  if (get_word(bytes, kSealedBytes) != seal_of(bytes)) {
    return fail(ErrorCode::kCorrupt, "the label of the value is damaged");
  }
  const StoreLabel label{.block_bytes = get_word(bytes, 8),
                         .tag = {get_word(bytes, 16), get_word(bytes, 24)},
                         .checksum = Checksum{get_word(bytes, 32)},
                         .tokens_hash = get_word(bytes, 40)};
  if (get_word(bytes, 48) != 0 || label.checksum == kNoChecksum) {
    return fail(ErrorCode::kCorrupt, "the label of the value has no checksum, or unknown fields");
  }
  return label;
}

}  // namespace cairn
