// EventStream: publishes the events of a log, merged with those of the engine, for as long as it lives.
//
// One thread reads the log and the engine's stream, consolidates both (consolidator.h) and publishes (event_publisher.h). The log is
// the queue: pools never wait. If the thread falls behind and the log has dropped events, it takes a snapshot, and publishes
// the difference. If what the engine has cached can no longer be known (lost batches, a restart), its blocks count as gone.
//
// Thread safety: any thread may call.
// Ownership: the log and the pools outlive it. Destroying it ends its thread, within the linger time.
// Errors: start() fails with kUnavailable if libzmq is not installed, kInvalidArgument for a malformed endpoint, kIo for one in use.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/events/consolidator.h"
#include "cairn/events/event_log.h"
#include "cairn/events/event_publisher.h"
#include "cairn/events/event_receiver.h"

namespace cairn {

// How the blocks of a log are named, so that routers and the engine's events know them.
enum class EventNames : std::uint8_t {
  kKeys,          // the sequence hash of the key; an engine's blocks are renamed by their tokens (EngineNames)
  kEngineHashes,  // the hash that the engine's events have, which the log has as the hash of the tokens (engine_event_hash())
};

struct EventStreamOptions {
  std::string publish = {};  // endpoint, such as tcp://*:5557
  std::string replay = {};   // endpoint for replays and snapshots; empty: none
  std::string topic = {};
  EventFormat format = EventFormat::kVllm;
  EventMode mode = EventMode::kDedup;
  std::string engine = {};         // endpoint of the engine's events; empty: none
  std::string engine_replay = {};  // and of its replays; empty: none
  EventNames names = EventNames::kKeys;
  std::uint32_t block_size = 0;
  std::string library = "libzmq.so.5";               // name or path
  Duration interval = std::chrono::milliseconds(1);  // between two looks at a log that is busy
};

struct EventStreamStatus {
  EventPublisherStatus published = {};
  Consolidator::Counts blocks = {};  // of all data parallel ranks
  std::uint64_t snapshots =
      0;  // of the log: one at the start, one for each time that it dropped events or a tier came back
  EventReceiver::Counts engine = {};  // all 0 without an engine
  std::uint64_t unnamed = 0;          // blocks of the engine that could not be named
};

class EventStream {
 public:
  // `pools`: all that the log observes.
  [[nodiscard]] static Result<std::unique_ptr<EventStream>> start(const EventStreamOptions& options, EventLog& log,
                                                                  std::vector<const ResidentSource*> pools);
  EventStream(const EventStream&) = delete;
  EventStream& operator=(const EventStream&) = delete;
  ~EventStream();

  [[nodiscard]] EventStreamStatus status() const;

 private:
  class Impl;
  explicit EventStream(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
