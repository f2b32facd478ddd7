// EventReceiver: follows the stream of one publisher (vLLM, SGLang, Cairn; event_publisher.h) and hands out its batches in order, each once.
//
// A gap in the numbers is filled from the publisher's replay endpoint, if it has one: live batches wait until the replay has ended,
// failed or taken too long. A receiver that joins asks for everything, and one that gets nothing for a second asks whether it has missed
// something. What cannot be had is reported as kLost, and a publisher that was
// started again, or may have been while the connection was lost, as kRestarted: what the stream said before then no longer holds. Cairn's publisher answers with a snapshot, kSnapshot,
// which replaces all that was said before.
//
// Thread safety: one thread at a time; counts() from any thread.
// Errors: create() fails with kUnavailable if libzmq is not installed, kInvalidArgument for a malformed endpoint; a publisher that is not there yet is
// waited for. Batches that cannot be decoded are reported as kInvalid, and count as lost.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/events/kv_event.h"

namespace cairn {

namespace internal {
class ZmqSocket;
}

struct ReceivedEvents {
  enum class Kind : std::uint8_t {
    kBatch,
    kSnapshot,   // replaces everything before, and has a batch
    kLost,       // batches from `sequence` on are lost
    kRestarted,  // the publisher counts anew, or may do so because the connection was lost; it is at `sequence`
    kInvalid,    // batch `sequence` cannot be decoded; `text` says why
  };
  Kind kind = Kind::kBatch;
  std::uint64_t sequence = 0;
  KvEventBatch batch = {};
  std::string text = {};  // of kInvalid; of kBatch, lines of JSON if the publisher writes them instead of a batch
};

class EventReceiver {
 public:
  struct Options {
    std::string endpoint = {};
    std::string replay_endpoint = {};  // empty: none
    std::string topic = {};            // only messages whose topic begins with this
    Duration replay_limit = std::chrono::seconds(1);
    Duration check = std::chrono::seconds(1);  // after so long without a batch it asks whether one is missing
    std::size_t held = 4096;                   // batches that may wait for a replay
    std::string library = "libzmq.so.5";       // name or path
  };
  struct Counts {
    std::uint64_t batches = 0;
    std::uint64_t lost = 0;     // times that batches were lost
    std::uint64_t invalid = 0;  // batches that could not be decoded
    std::uint64_t restarts = 0;
    std::uint64_t replays = 0;  // that were asked for
  };

  [[nodiscard]] static Result<std::unique_ptr<EventReceiver>> create(const Options& options,
                                                                     const Clock& clock = steady_clock());
  EventReceiver(const EventReceiver&) = delete;
  EventReceiver& operator=(const EventReceiver&) = delete;
  ~EventReceiver();

  // Appends what has come, at most about `most` batches, without waiting. Call it again at least every 100 ms, for the time limits.
  void receive(std::vector<ReceivedEvents>& out, std::size_t most = 1024);
  // Waits until something has come, or `longest` has passed.
  [[nodiscard]] Status wait(Duration longest) const;
  // To wait for them together with others: zmq_wait().
  [[nodiscard]] std::vector<const internal::ZmqSocket*> sockets() const;
  [[nodiscard]] Counts counts() const;

 private:
  class Impl;
  explicit EventReceiver(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
