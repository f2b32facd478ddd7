// What leader and ranks say to each other: bytes from outside are refused or decode to what encodes back to them, in one
// piece and in many.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/hash/hash_bytes.h"
#include "cairn/ranks/rank_message.h"

namespace {

using namespace cairn;

constexpr std::size_t kHeader = 16;
constexpr std::size_t kFrame = kHeader + 8;

// All messages of the stream as they encode; `piece` bytes are fed at a time.
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
  // A fuzzer finds no hash: the first frame is given the one that fits, and the length.
  if (size >= kFrame) {
    const auto payload = static_cast<std::uint32_t>(size - kFrame);
    std::memcpy(bytes.data() + 12, &payload, sizeof(payload));
    const std::uint64_t seed = hash_bytes(std::span(bytes).first(kHeader), 0);
    const std::uint64_t hash = hash_bytes(std::span(bytes).subspan(kFrame), seed);
    std::memcpy(bytes.data() + kHeader, &hash, sizeof(hash));
  }
  const std::vector<std::byte> whole = read_all(bytes, std::max<std::size_t>(size, 1));
  CAIRN_CHECK(whole.size() <= size && std::equal(whole.begin(), whole.end(), bytes.begin()),
              "what decodes encodes back");
  CAIRN_CHECK(read_all(bytes, 1) == whole, "byte by byte is as whole");
  return 0;
}
