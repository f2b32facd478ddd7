// manager_bench: KvBlockManager beside the limits of the machine it runs on; see parts.h.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "bench/manager_bench/parts.h"
#include "cairn/memory/cuda_driver.h"

namespace cairn::bench {
namespace {

constexpr const char* kHelp =
    R"(manager_bench: the speed of the block manager, beside the limits of the machine, measured in the same run.

  --file PATH      file of the disk tier, on the disk to measure (manager_bench.cache); removed at the end
  --gpu            the device tier is on a GPU; otherwise in host memory
  --device N       which GPU (0)
  --mib N          MiB copied per round (1024)
  --rounds N       rounds; each measures Cairn and the limit (9)
  --blocks N       blocks per tier, for lookups and memory (100000)
  --restart N      blocks on disk, for restarts (1000000)
  --quick          256 MiB, 3 rounds, 100000 blocks for restarts
  --part NAME      measure only this part; repeatable: offload disk onboard lookup churn restart memory
  --json FILE      write the figures as JSON
  --help

Figures are medians, with the 10th and 90th percentile. Disks are compared with fio if it is installed.
)";

struct Part {
  std::string_view name;
  void (*measure)(const Settings&, Report&);
};
constexpr Part kParts[] = {{"offload", measure_offload}, {"disk", measure_disk},   {"onboard", measure_onboard},
                           {"lookup", measure_lookup},   {"churn", measure_churn}, {"restart", measure_restart},
                           {"memory", measure_memory}};

struct Arguments {
  Settings settings;
  std::vector<std::string_view> parts;
  std::string json;
};

[[noreturn]] void misused(std::string_view what) { stop(std::string(what) + "; see --help"); }

template <typename Number>
void parse_number(std::string_view name, std::string_view value, Number least, Number& into) {
  const auto parsed = std::from_chars(value.data(), value.data() + value.size(), into);
  if (parsed.ec != std::errc() || parsed.ptr != value.data() + value.size() || into < least) {
    misused(std::string(name) + " " + std::string(value) + " is not a number of at least " + std::to_string(least));
  }
}

Arguments parse(int count, char** values) {
  Arguments arguments;
  Settings& settings = arguments.settings;
  for (int i = 1; i < count; ++i) {
    const std::string_view name = values[i];
    if (name == "--help") {
      std::fputs(kHelp, stdout);
      std::exit(0);
    }
    if (name == "--gpu") {
      settings.gpu = true;
      continue;
    }
    if (name == "--quick") {
      settings.mib = 256;
      settings.rounds = 3;
      settings.restart_blocks = 100'000;
      continue;
    }
    if (i + 1 == count) {
      misused(std::string(name) + " is unknown or needs a value");
    }
    const std::string_view value = values[++i];
    if (name == "--file") {
      settings.file = value;
    } else if (name == "--json") {
      arguments.json = value;
    } else if (name == "--part") {
      arguments.parts.push_back(value);
    } else if (name == "--device") {
      parse_number(name, value, 0, settings.device);
    } else if (name == "--mib") {
      parse_number<std::uint64_t>(name, value, 64, settings.mib);
    } else if (name == "--rounds") {
      parse_number<std::uint32_t>(name, value, 3, settings.rounds);
    } else if (name == "--blocks") {
      parse_number<std::uint32_t>(name, value, 1000, settings.blocks);
    } else if (name == "--restart") {
      parse_number<std::uint32_t>(name, value, 1000, settings.restart_blocks);
    } else {
      misused(std::string(name) + " is unknown");
    }
  }
  for (const std::string_view part : arguments.parts) {
    if (std::ranges::find(kParts, part, &Part::name) == std::end(kParts)) {
      misused("unknown part " + std::string(part));
    }
  }
  return arguments;
}

int run(const Arguments& arguments) {
  if (arguments.settings.gpu) {
    if (const Result<const CudaDriver*> driver = CudaDriver::get(); !driver) {
      stop(driver.error().message);
    }
  }
  Report report;
  for (const Part& part : kParts) {
    if (arguments.parts.empty() || std::ranges::find(arguments.parts, part.name) != arguments.parts.end()) {
      part.measure(arguments.settings, report);
    }
  }
  if (!arguments.json.empty() && !report.write_json(arguments.json)) {
    stop("cannot write " + arguments.json);
  }
  return 0;
}

}  // namespace
}  // namespace cairn::bench

int main(int count, char** values) { return cairn::bench::run(cairn::bench::parse(count, values)); }
