// How many events pass through consolidator and publisher on one core, and what a stream of events costs a pool.
//
//   event_stream_bench [ROUNDS]
//
// The first figures are of one thread's processor time: an engine's Stored and Removed events of one block of 16 tokens each, merged with
// the same events of a host tier, encoded as vLLM does, and sent to a subscriber that reads on another thread. The last ones compare
// rounds of the same pool with its event log, without and with a stream that publishes the log.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "bench/bench_support.h"
#include "cairn/base/own_thread.h"
#include "cairn/events/consolidator.h"
#include "cairn/events/event_log.h"
#include "cairn/events/event_publisher.h"
#include "cairn/events/event_receiver.h"
#include "cairn/events/event_stream.h"
#include "cairn/pool/block_pool.h"

namespace {

using namespace cairn;
using bench::cpu_seconds_now;
using bench::median;
using bench::must;
using bench::seconds_now;

constexpr std::uint32_t kBlockSize = 16;
constexpr std::size_t kResident = 50'000;  // blocks that are cached at a time
constexpr std::size_t kEvents = 2'000'000;

// Blocks of short sequences: every eighth begins one.
std::vector<KvEvent> make_events(std::size_t count) {
  std::mt19937_64 random(7);
  std::vector<KvEvent> events;
  std::vector<std::uint64_t> hashes(count);
  std::generate(hashes.begin(), hashes.end(), random);
  for (std::size_t i = 0; i < count; ++i) {
    KvStored stored{.hashes = {hashes[i]}, .block_size = kBlockSize};
    if (i % 8 != 0) {
      stored.parent = hashes[i - 1];
    }
    for (std::uint32_t token = 0; token < kBlockSize; ++token) {
      stored.token_ids.push_back(static_cast<Token>(random() % 150'000));
    }
    events.push_back({.data = std::move(stored)});
  }
  return events;
}

struct Passed {
  std::size_t events = 0;
  double seconds = 0;
};

// Four events for each block: stored on the device, stored in the host tier, removed from each.
Passed pass(const std::vector<KvEvent>& blocks, EventPublisher* publisher) {
  Consolidator consolidator(EventMode::kDedup);
  std::vector<KvEvent> out;
  std::size_t events = 0;
  const double start = cpu_seconds_now();
  KvEvent event;
  for (std::size_t i = 0; events < kEvents; ++i) {
    const KvEvent& block = blocks[i % blocks.size()];
    consolidator.apply(1, block, out);
    event = block;
    event.tier = CacheLevel::kG2;
    consolidator.apply(0, event, out);
    events += 2;
    if (i >= kResident) {
      const std::uint64_t hash = std::get<KvStored>(blocks[(i - kResident) % blocks.size()].data).hashes[0];
      consolidator.apply(1, {.data = KvRemoved{{hash}}}, out);
      consolidator.apply(0, {.data = KvRemoved{{hash}}, .tier = CacheLevel::kG2}, out);
      events += 2;
    }
    if (out.size() >= EventPublisher::kEventsPerBatch) {
      if (publisher != nullptr) {
        publisher->publish(0, out, 1);
      }
      out.clear();
    }
  }
  return {.events = events, .seconds = cpu_seconds_now() - start};
}

// --- the pool ---

constexpr double kBlocksPerSecond = 500'000;  // that are registered, while as many are evicted: a million events

// Registers sequences of 64 blocks at that rate. Returns the processor time that each block took in the pool's calls.
double fill(BlockPool& pool, std::mt19937_64& random, std::size_t sequences) {
  constexpr std::uint32_t kLength = 64;
  std::vector<BlockKey> keys(kLength);
  std::vector<Token> tokens(std::size_t{kLength} * kBlockSize);
  double busy = 0;
  const double began = seconds_now();
  for (std::size_t sequence = 0; sequence < sequences; ++sequence) {
    SequenceHash parent{0};
    for (std::uint32_t position = 0; position < kLength; ++position) {
      const SequenceHash hash{random()};
      keys[position] = BlockKey::make_checked(position, hash, parent);
      parent = hash;
    }
    while (seconds_now() - began < static_cast<double>(sequence * kLength) / kBlocksPerSecond) {
      std::this_thread::yield();
    }
    const double start = cpu_seconds_now();
    {
      auto complete = must(pool.allocate(kLength)).complete({.keys = keys});
      const auto registered = std::move(*complete).register_blocks(tokens);
      if (!registered) {
        bench::stop("the pool refuses its blocks");
      }
    }
    busy += cpu_seconds_now() - start;
  }
  return busy / static_cast<double>(sequences * kLength);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  const std::vector<KvEvent> blocks = make_events(2 * kResident);

  std::vector<double> merged;
  std::vector<double> published;
  std::atomic<bool> stop{false};
  for (int round = 0; round < rounds; ++round) {
    const Passed alone = pass(blocks, nullptr);
    merged.push_back(static_cast<double>(alone.events) / alone.seconds);
    auto publisher = must(EventPublisher::create(
        {.endpoint = "tcp://127.0.0.1:*", .replay_endpoint = "tcp://127.0.0.1:*", .first_sequence = 1}));
    auto receiver = must(EventReceiver::create({.endpoint = publisher->status().endpoint}));
    stop = false;
    std::thread reader = start_own_thread("reader", [&] {
      std::vector<ReceivedEvents> received;
      while (!stop) {
        received.clear();
        receiver->receive(received);
        must(receiver->wait(std::chrono::milliseconds(1)));
      }
    });
    const Passed both = pass(blocks, publisher.get());
    published.push_back(static_cast<double>(both.events) / both.seconds);
    stop = true;
    reader.join();
  }
  std::printf("consolidator                %6.2f million events/s\n", median(merged) * 1e-6);
  std::printf("consolidator and publisher  %6.2f million events/s on one core\n", median(published) * 1e-6);

  constexpr std::uint32_t kCapacity = 65536;
  const std::unique_ptr<EventLog> log = must(EventLog::create({.blocks = kCapacity,
                                                               .token_ids = kCapacity * kBlockSize,
                                                               .known_blocks = 2 * kCapacity,
                                                               .block_size = kBlockSize}));
  BlockPoolOptions options{.capacity = kCapacity, .block_size = kBlockSize, .tier = CacheLevel::kG2};
  options.observers = {log.get()};
  const std::unique_ptr<BlockPool> pool = must(BlockPool::create(options));
  std::mt19937_64 random(11);
  (void)fill(*pool, random, 2000);
  std::vector<double> times[2];
  std::uint64_t lags = 0;
  for (int round = 0; round < 2 * rounds; ++round) {
    const bool has_stream = round % 2 == 1;
    std::unique_ptr<EventStream> stream;
    if (has_stream) {
      stream = must(EventStream::start({.publish = "tcp://127.0.0.1:*", .block_size = kBlockSize}, *log, {pool.get()}));
      while (stream->status().snapshots == 0) {
        std::this_thread::yield();
      }
    }
    times[has_stream].push_back(fill(*pool, random, 8'000) * 1e9);
    lags += has_stream ? stream->status().snapshots - 1 : 0;
  }
  std::printf("pool, a million events/s    %6.1f ns a block with a log, %.1f ns with a stream: %+.1f %%\n",
              median(times[0]), median(times[1]), (median(times[1]) / median(times[0]) - 1) * 100);
  std::printf("the stream fell behind      %6llu times\n", static_cast<unsigned long long>(lags));
  return 0;
}
