// The page of `cairn hitrate`: for each trace, hit ratio over capacity for every policy and the bounds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/lab/experiment.h"
#include "cairn/page/page.h"

namespace cairn::cli {

struct MeasuredTrace {
  std::string name;
  std::uint64_t requests = 0;
  std::uint64_t blocks = 0;      // requested
  std::uint64_t distinct = 0;    // distinct ones among them
  std::uint32_t block_size = 1;  // tokens
  std::uint64_t kv_bytes = 1;    // per token
  std::vector<lab::Row> rows = {};
};

[[nodiscard]] page::Page hitrate_page(const std::vector<MeasuredTrace>& traces, const std::string& command);

}  // namespace cairn::cli
