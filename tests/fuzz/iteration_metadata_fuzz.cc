// What the scheduler's side tells workers of an iteration: bytes from outside are refused or decode to what encodes back to
// them.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/connector/iteration_metadata.h"
#include "cairn/tokens/hash_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cairn;
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  // A fuzzer finds no hash: it is given the one that fits.
  constexpr std::size_t kHash = sizeof(std::uint64_t);
  if (size >= kHash) {
    const std::uint64_t hash = hash_bytes(std::span(bytes).first(size - kHash), 0);
    std::memcpy(bytes.data() + size - kHash, &hash, kHash);
  }
  if (const auto decoded = IterationMetadata::decode(bytes)) {
    std::vector<std::byte> again;
    decoded->encode(again);
    CAIRN_CHECK(again == bytes, "what decodes encodes back");
  }
  return 0;
}
