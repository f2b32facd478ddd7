// Helper of the fuzzers of the connector's messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/connector/sealed_bytes.h"

namespace cairn {

// Replaces the end of the input by the right hash, because a fuzzer cannot guess it. An input that is shorter than a
// hash is returned as it is.
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
