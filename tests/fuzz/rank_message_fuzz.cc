// Messages between leader and ranks: bytes that decode encode to the same bytes, whether they arrive in one piece or
// many.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/hash/hash_bytes.h"
#include "cairn/wire/rank_message.h"

namespace {

using namespace cairn;

constexpr std::size_t kHeader = 16;
constexpr std::size_t kFrame = kHeader + 8;

// Decodes the stream, feeding `piece` bytes at a time, and encodes its messages again.
std::vector<std::byte> read_all(std::span<const std::byte> bytes, std::size_t piece) {
  RankDecoder decoder;
  std::vector<std::byte> again;
  while (!bytes.empty()) {
    const std::size_t count = std::min(piece, bytes.size());
    decoder.feed(bytes.first(count));
    bytes = bytes.subspan(count);
    for (auto next = decoder.next(); next && next->has_value(); next = decoder.next()) {
      encode((*next)->message, (*next)->generation, again);
    }
  }
  return again;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  // A fuzzer cannot guess a hash: write the right length and hash into the first frame.
  if (size >= kFrame) {
    const auto payload = static_cast<std::uint32_t>(size - kFrame);
    std::memcpy(bytes.data() + 12, &payload, sizeof(payload));
    const std::uint64_t seed = hash_bytes(std::span(bytes).first(kHeader), 0);
    const std::uint64_t hash = hash_bytes(std::span(bytes).subspan(kFrame), seed);
    std::memcpy(bytes.data() + kHeader, &hash, sizeof(hash));
  }
  const std::vector<std::byte> whole = read_all(bytes, std::max<std::size_t>(size, 1));
  CAIRN_CHECK(whole.size() <= size && std::equal(whole.begin(), whole.end(), bytes.begin()),
              "messages that decode encode to the same bytes");
  CAIRN_CHECK(read_all(bytes, 1) == whole, "the result does not depend on how the bytes arrive");
  return 0;
}
