// Feeds any bytes to `cairn ops` in both profiles: it answers each line up to the first malformed one, and names that
// line.
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>

#include "cairn/base/check.h"
#include "cairn/cli/ops.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string script(reinterpret_cast<const char*>(data), size);
  for (const cairn::sim::Profile profile : {cairn::sim::Profile::kSeed, cairn::sim::Profile::kStrict}) {
    std::istringstream in(script);
    std::ostringstream out;
    const cairn::Status status = cairn::cli::run_ops({.profile = profile}, in, out);
    CAIRN_CHECK(status || status.error().message.starts_with("line "), "an error names its line");
  }
  return 0;
}
