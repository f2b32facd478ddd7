// What fio reaches on a file: the limit that copies to disks are held against.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace cairn::bench {

struct FioRun {
  std::string path;         // made where it is not there
  std::uint64_t bytes = 0;  // all of them, once
  std::uint64_t block_bytes = 0;
  std::uint32_t depth = 0;  // blocks under way
  bool random = false;
  bool writes = false;
};

// GB/s with io_uring, direct, buffers and file registered. None where there is no fio, or it failed.
[[nodiscard]] std::optional<double> run_fio(const FioRun& run);

}  // namespace cairn::bench
