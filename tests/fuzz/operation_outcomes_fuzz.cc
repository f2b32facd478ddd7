// The outcomes of loads and saves that workers receive: bytes that decode encode to the same bytes.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/connector/operation_outcomes.h"
#include "tests/fuzz/sealed_input_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cairn;
  const std::vector<std::byte> bytes = sealed_input(data, size);
  if (const auto decoded = OperationOutcomes::decode(bytes)) {
    CAIRN_CHECK(decoded->encode() == bytes, "outcomes that decode encode to the same bytes");
  }
  return 0;
}
