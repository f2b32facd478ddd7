// What the fuzzers of the connector's messages begin with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/connector/sealed_bytes.h"

namespace cairn {

// The bytes of a fuzzer as a message whose hash fits, because a fuzzer finds none: their end becomes it. Fewer bytes than
// a hash has are left as they are.
inline std::vector<std::byte> sealed_input(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> given = std::as_bytes(std::span(data, size));
  std::vector<std::byte> bytes(given.begin(), given.end());
  if (size >= sizeof(std::uint64_t)) {
    bytes.resize(size - sizeof(std::uint64_t));
    internal::seal(bytes);
  }
  return bytes;
}

}  // namespace cairn
