// Measures what fio reaches on a file: the limit for copies to disks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace cairn::bench {

struct FioRun {
  std::string path;         // created if it does not exist
  std::uint64_t bytes = 0;  // each is read or written once
  std::uint64_t block_bytes = 0;
  std::uint32_t depth = 0;  // blocks in flight
  bool random = false;
  bool writes = false;
};

// GB/s with io_uring, direct I/O, registered buffers and files. std::nullopt if fio is not installed or fails.
[[nodiscard]] std::optional<double> run_fio(const FioRun& run);

}  // namespace cairn::bench
