#include "bench/fio.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cairn/base/str_cat.h"

namespace cairn::bench {

std::optional<double> run_fio(const FioRun& run) {
  const std::string command = str_cat(
      "fio --minimal --name=cairn --ioengine=io_uring --direct=1 --fixedbufs=1 --registerfiles=1 --filename=", run.path,
      " --size=", run.bytes, " --bs=", run.block_bytes, " --iodepth=", run.depth, " --rw=", run.random ? "rand" : "",
      run.writes ? "write" : "read", " 2>/dev/null");
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) {
    return std::nullopt;
  }
  std::string report;
  std::array<char, 4096> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) {
    report += buffer.data();
  }
  if (pclose(pipe) != 0) {
    return std::nullopt;
  }
  // Version 3 of the format: kibibytes and, three fields later, milliseconds; for reads and for writes.
  const int moved_field = run.writes ? 46 : 5;
  std::vector<std::string> fields;
  for (std::size_t from = 0; from < report.size();) {
    const std::size_t to = std::min(report.find(';', from), report.size());
    fields.push_back(report.substr(from, to - from));
    from = to + 1;
  }
  if (fields.size() < 60 || fields[0] != "3") {
    return std::nullopt;
  }
  const double moved = std::strtod(fields[moved_field].c_str(), nullptr) * 1024;
  const double seconds = std::strtod(fields[moved_field + 3].c_str(), nullptr) / 1000;
  return seconds > 0 ? std::optional(moved / seconds / 1e9) : std::nullopt;
}

}  // namespace cairn::bench
