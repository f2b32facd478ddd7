#include "cairn/tokens/mm_run.h"

#include <limits>

#include "cairn/base/str_cat.h"

namespace cairn {
namespace {

Unexpected<Error> bad_run(std::size_t index, const MmRun& run, std::string_view why) {
  return fail(ErrorCode::kInvalidArgument,
              str_cat("multimodal run ", index, " (offset ", run.offset, ", length ", run.length, ") ", why));
}

}  // namespace

Status check_mm_runs(std::span<const MmRun> runs) {
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const MmRun& run = runs[i];
    if (run.length == 0) {
      return bad_run(i, run, "is empty; leave it out");
    }
    if (run.offset > std::numeric_limits<std::uint64_t>::max() - run.length ||
        run.item_offset > std::numeric_limits<std::uint32_t>::max() - (run.length - 1)) {
      return bad_run(i, run, "ends beyond 2^64 tokens; give offsets in tokens");
    }
    if (run.offset < end) {
      return bad_run(i, run,
                     str_cat("begins before token ", end, ", the end of the run before it; sort the runs by ",
                             "offset and let them not overlap"));
    }
    end = run.end();
  }
  return Status();
}

}  // namespace cairn
