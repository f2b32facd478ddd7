// Rows of traces: any bytes give either a valid row or an error, and earlier rows have no influence.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cairn/base/check.h"
#include "cairn/lab/block_trace.h"
#include "cairn/trace/trace_row.h"

namespace {

bool same(const cairn::trace::TraceRow& a, const cairn::trace::TraceRow& b) {
  return a.timestamp_ms == b.timestamp_ms && a.input_tokens == b.input_tokens && a.output_tokens == b.output_tokens &&
         a.session == b.session && a.delay_ms == b.delay_ms && a.hash_ids == b.hash_ids;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  cairn::lab::Trace trace("fuzz", 16);
  cairn::trace::TraceRow reused;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() < text.size() ? line.size() + 1 : line.size());
    cairn::trace::TraceRow fresh;
    const cairn::Status status = cairn::trace::parse_trace_row(line, fresh);
    const cairn::Status again = cairn::trace::parse_trace_row(line, reused);
    CAIRN_CHECK(status.has_value() == again.has_value(), "earlier rows do not decide whether a row is valid");
    if (!status) {
      CAIRN_CHECK(!status.error().message.empty() && status.error().message == again.error().message,
                  "an error says what is wrong");
      continue;
    }
    CAIRN_CHECK(same(fresh, reused), "earlier rows do not change a row");
    CAIRN_CHECK(!fresh.hash_ids.empty() && std::isfinite(fresh.timestamp_ms),
                "a valid row has ids and a finite timestamp");
    CAIRN_CHECK(!fresh.delay_ms || (std::isfinite(*fresh.delay_ms) && *fresh.delay_ms >= 0),
                "a delay is finite and not negative");
    if (trace.add(fresh)) {
      const cairn::lab::Trace::Request& request = trace.requests().back();
      CAIRN_CHECK(request.blocks == fresh.hash_ids.size() && request.tokens <= std::uint64_t{16} * request.blocks,
                  "a request has the blocks of its row");
    }
  }
  return 0;
}
