// Puts and gets of blocks in Redis, beside the limit of the machine: redis-benchmark with the same value size, number of connections
// and pipelining, on the same server, in alternating rounds. Starts a redis-server of its own.
//
//   store_bench [--kib SIZE] [--items N] [--rounds N]
#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/bench_support.h"
#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/cluster/redis_server_testing.h"
#include "cairn/cluster/redis_store.h"

namespace cairn {
namespace {

using bench::median;
using bench::seconds_now;

struct Settings {
  std::uint64_t kib = 256;
  std::uint64_t items = 2000;
  std::uint32_t rounds = 5;
};

constexpr std::uint32_t kConnections = 2;
constexpr std::uint32_t kPipeline = 16;
constexpr std::uint32_t kKeys = 256;  // of as many values: the server does not grow with the number of items

// Bytes per second of one operation over all items, kConnections * kPipeline of them at a time.
double run_cairn(BlockStore& store, StoreOperation operation, std::vector<std::vector<std::byte>>& bodies,
                 std::uint64_t items) {
  std::mutex mutex;
  std::condition_variable room;
  std::uint64_t in_flight = 0;
  std::uint64_t failed = 0;
  const double began = seconds_now();
  for (std::uint64_t i = 0; i < items; ++i) {
    {
      std::unique_lock lock(mutex);
      room.wait(lock, [&] { return in_flight < kConnections * kPipeline; });
      ++in_flight;
    }
    StoreRequest request{.operation = operation};
    request.items.push_back({.key = str_cat("bench/", i % kKeys), .body = bodies[i % bodies.size()]});
    request.done = [&](std::size_t, StoreOutcome&& outcome) {
      const std::lock_guard lock(mutex);
      --in_flight;
      failed += outcome.state == StoreState::kDone ? 0 : 1;
      room.notify_one();
    };
    CAIRN_CHECK(store.submit(std::move(request)).has_value(), "the store takes what is in flight here");
  }
  std::unique_lock lock(mutex);
  room.wait(lock, [&] { return in_flight == 0; });
  CAIRN_CHECK(failed == 0, "every put and get succeeds");
  return static_cast<double>(items * bodies.front().size()) / (seconds_now() - began);
}

// The same by redis-benchmark; 0 if it cannot be run.
double run_redis_benchmark(const testing::RedisServer& server, std::string_view test, std::uint64_t bytes,
                           std::uint64_t items) {
  const std::string command = str_cat("redis-benchmark -p ", server.port(), " -t ", test, " -d ", bytes, " -n ", items,
                                      " -c ", kConnections, " -P ", kPipeline, " -r ", kKeys, " --csv 2>/dev/null");
  FILE* const pipe = popen(command.c_str(), "r");
  char line[512];
  double per_second = 0;
  while (pipe != nullptr && std::fgets(line, sizeof(line), pipe) != nullptr) {
    const std::string_view text = line;  // "SET","1234.56",...
    const std::size_t comma = text.find("\",\"");
    if (comma != std::string_view::npos && (text.starts_with("\"SET") || text.starts_with("\"GET"))) {
      per_second = std::atof(line + comma + 3);
    }
  }
  if (pipe != nullptr) {
    pclose(pipe);
  }
  return per_second * static_cast<double>(bytes);
}

int run(const Settings& settings) {
  const std::optional<testing::RedisServer> server = testing::RedisServer::start();
  if (!server) {
    std::cerr << "store_bench: cannot start redis-server; install it\n";
    return 1;
  }
  const std::unique_ptr<RedisStore> store =
      *RedisStore::make(steady_clock(), {.address = *RedisAddress::parse(server->url()), .connections = kConnections});
  const std::uint64_t bytes = settings.kib * 1024;
  std::vector<std::vector<std::byte>> bodies(kConnections * kPipeline, std::vector<std::byte>(bytes, std::byte{7}));
  struct Row {
    const char* name;
    StoreOperation operation;
    std::vector<double> ours = {};
    std::vector<double> theirs = {};
  } rows[] = {{"set", StoreOperation::kReplace}, {"get", StoreOperation::kGet}};
  for (std::uint32_t round = 0; round < settings.rounds; ++round) {
    for (Row& row : rows) {
      row.theirs.push_back(run_redis_benchmark(*server, row.name, bytes, settings.items));
      row.ours.push_back(run_cairn(*store, row.operation, bodies, settings.items));
    }
  }
  for (const Row& row : rows) {
    const double ours = median(row.ours);
    const double theirs = median(row.theirs);
    std::printf("%s  %llu KiB  Cairn %.2f GB/s  redis-benchmark %.2f GB/s  %.0f %%\n", row.name,
                static_cast<unsigned long long>(settings.kib), ours / 1e9, theirs / 1e9,
                theirs > 0 ? 100 * ours / theirs : 0.0);
  }
  return 0;
}

}  // namespace
}  // namespace cairn

int main(int count, char** arguments) {
  cairn::Settings settings;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string_view name = arguments[i];
    const auto value = static_cast<std::uint64_t>(std::strtoull(arguments[i + 1], nullptr, 10));
    if (name == "--kib") {
      settings.kib = std::max<std::uint64_t>(value, 1);
    } else if (name == "--items") {
      settings.items = std::max<std::uint64_t>(value, 1);
    } else if (name == "--rounds") {
      settings.rounds = static_cast<std::uint32_t>(std::max<std::uint64_t>(value, 1));
    } else {
      std::cerr << "usage: store_bench [--kib SIZE] [--items N] [--rounds N]\n";
      return 2;
    }
  }
  return cairn::run(settings);
}
