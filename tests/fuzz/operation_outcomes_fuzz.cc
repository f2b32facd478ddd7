// What workers are told became of loads and saves: bytes from outside are refused or decode to what encodes back to
// them.
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
    CAIRN_CHECK(decoded->encode() == bytes, "what decodes encodes back");
  }
  return 0;
}
