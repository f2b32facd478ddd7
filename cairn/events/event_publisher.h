// EventPublisher: sends events in the way of vLLM's ZMQ publisher, so that every subscriber of vLLM's events can follow.
//
//   PUB      messages of three frames: topic, sequence number (8 bytes, big-endian), batch of events
//   ROUTER   a request of two frames, empty and the sequence number to start with, is answered by messages of four frames (empty, topic,
//            number, batch), up to now, and the end: empty, empty, number -1, empty
//
// Numbers grow by one and never come again: the first one is the time of the start in nanoseconds since 1970, so that a publisher that was
// started again continues above all numbers that it gave out before. To a subscriber a restart is a gap.
//
// A subscriber that asks for a number before the buffered ones gets a snapshot instead: batches that begin with Cleared and store all that is
// cached, the last one with the number of the latest batch. So a subscriber that joins late or was away for long asks for
// number 0, and needs nothing that subscribers of vLLM do not have.
//
// The batch is MessagePack as vLLM 0.32 writes it, or one line of JSON for each event as routers of Dynamo read them.
//
// Thread safety: one thread at a time; status() from any thread.
// Ownership: binds its endpoints until it is destroyed. Destroying it waits at most the linger time for what is not sent.
// Errors: create() fails with kUnavailable if libzmq is not installed, kInvalidArgument for a malformed endpoint, kIo for one in use. A subscriber that does not read loses messages, sees the gap, and asks for a replay; it never makes the
// publisher wait. A replay that a peer does not read ends early, and is counted.
// Complexity: buffers at most Options::buffer batches and Options::buffer_bytes of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/events/kv_event.h"

namespace cairn {

enum class EventFormat : std::uint8_t { kVllm, kDynamo };

struct EventPublisherStatus {
  std::string endpoint = {};         // as bound
  std::string replay_endpoint = {};  // empty if there is none
  std::uint64_t first_sequence = 0;  // of this run: changes with every restart
  std::uint64_t next_sequence = 0;
  std::uint64_t batches = 0;
  std::uint64_t events = 0;
  std::uint64_t bytes = 0;
  std::uint64_t replays = 0;          // requests that were answered from the buffer
  std::uint64_t snapshots = 0;        // requests that were answered by a snapshot
  std::uint64_t refused_replays = 0;  // requests that were malformed, or whose peer did not read the answer
};

namespace internal {
class ZmqSocket;
}

class EventPublisher {
 public:
  struct Options {
    std::string endpoint = "tcp://*:5557";
    std::string replay_endpoint = {};  // empty: no replay
    std::string topic = {};
    EventFormat format = EventFormat::kVllm;
    std::uint64_t worker_id = 0;       // in kDynamo
    std::uint64_t first_sequence = 0;  // of the first batch; the time of the start
    std::size_t buffer = 10'000;       // batches for replays
    std::size_t buffer_bytes = std::size_t{64} << 20;
    int queue = 100'000;  // messages pending for each subscriber
    Duration linger = std::chrono::milliseconds(200);
    std::string library = "libzmq.so.5";  // name or path
  };
  // All that is cached, for each data parallel rank, as Consolidator::snapshot() returns it.
  struct RankSnapshot {
    std::uint32_t dp_rank = 0;
    std::vector<KvEvent> events = {};
  };
  using TakeSnapshot = std::function<std::vector<RankSnapshot>()>;
  static constexpr std::size_t kEventsPerBatch = 512;

  [[nodiscard]] static Result<std::unique_ptr<EventPublisher>> create(const Options& options);
  EventPublisher(const EventPublisher&) = delete;
  EventPublisher& operator=(const EventPublisher&) = delete;
  ~EventPublisher();

  // Sends the events of one data parallel rank, in batches. `time`: seconds since 1970.
  void publish(std::uint32_t dp_rank, std::span<KvEvent> events, double time);
  // Answers the requests that have come, some at a time. Returns whether there may be more.
  bool answer_replays(const TakeSnapshot& take_snapshot, double time);
  // The socket that requests come to, for zmq_wait(); null if there is none.
  [[nodiscard]] const internal::ZmqSocket* replay_socket() const;

  [[nodiscard]] EventPublisherStatus status() const;

 private:
  class Impl;
  explicit EventPublisher(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
