// Feeds bytes and text to every decoder of keys: a key that decodes must encode to the same bytes or text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "cairn/base/check.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/key_hasher.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using cairn::BlockKey;
  using cairn::QualifiedKey;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  const std::string_view text(reinterpret_cast<const char*>(data), size);

  if (const cairn::Result<BlockKey> key = BlockKey::from_bytes(bytes)) {
    CAIRN_CHECK(std::ranges::equal(key->to_bytes(), bytes), "bytes that decode encode back");
    CAIRN_CHECK(*BlockKey::parse(key->to_string()) == *key, "a key comes back from its text");
  }
  if (const cairn::Result<BlockKey> key = BlockKey::parse(text)) {
    CAIRN_CHECK(key->to_string() == text, "text that decodes encodes back");
    CAIRN_CHECK(*BlockKey::from_bytes(key->to_bytes()) == *key, "a key comes back from its bytes");
  }
  if (const cairn::Result<QualifiedKey> key = QualifiedKey::from_bytes(bytes)) {
    CAIRN_CHECK(std::ranges::equal(key->to_bytes(), bytes), "bytes that decode encode back");
  }
  return 0;
}
