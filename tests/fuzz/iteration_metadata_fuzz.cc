// The metadata of an iteration: bytes that decode encode to the same bytes.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/connector/iteration_metadata.h"
#include "tests/fuzz/sealed_input_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cairn;
  const std::vector<std::byte> bytes = sealed_input(data, size);
  if (const auto decoded = IterationMetadata::decode(bytes)) {
    std::vector<std::byte> again;
    decoded->encode(again);
    CAIRN_CHECK(again == bytes, "metadata that decodes encodes to the same bytes");
  }
  return 0;
}
