#include "cairn/events/event_receiver.h"

#include <deque>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/events/zmq_socket.h"

namespace cairn {

namespace {

using internal::sequence_frame;
using internal::sequence_of;
using internal::ZmqContext;
using internal::ZmqKind;
using internal::ZmqSocket;
using Kind = ReceivedEvents::Kind;

constexpr std::uint64_t kReplayEnd = ~std::uint64_t{0};
// Numbers above this began with a time (event_publisher.h) and show a restart by a gap. Others begin with 0 after every restart, and may have
// passed the old ones when the connection is back.
constexpr std::uint64_t kLeastTime = std::uint64_t{1} << 50;

struct LiveMessage {
  std::uint64_t sequence = 0;
  std::string payload;
};

}  // namespace

class EventReceiver::Impl {
 public:
  Impl(const Options& options, const Clock& clock, std::unique_ptr<ZmqContext> context, ZmqSocket live,
       std::optional<ZmqSocket> replay)
      : options_(options),
        clock_(clock),
        context_(std::move(context)),
        live_(std::move(live)),
        replay_(std::move(replay)),
        check_at_(clock.now() + options.check) {
    begin_replay(0);
  }

  void receive(std::vector<ReceivedEvents>& out, std::size_t most) {
    if (live_.was_disconnected() && next_ && *next_ < kLeastTime) {
      start_anew(*next_, out);
    }
    receive_replay(out, most);
    if (is_replaying_) {
      send_request();
      if (clock_.now() >= replay_until_) {
        end_replay(out);
      }
    } else if (clock_.now() >= check_at_) {
      // The last batches may be lost, and no later one shows the gap.
      check_at_ = clock_.now() + options_.check;
      begin_replay(next_.value_or(0));
      if (request_from_) {
        end_replay(out);  // no connection: live batches need not wait
      }
    }
    for (std::size_t i = 0; i < most; ++i) {
      std::optional<std::vector<std::string>> frames = live_.receive();
      if (!frames) {
        break;
      }
      take_live(*std::move(frames), out);
    }
  }

  [[nodiscard]] std::vector<const ZmqSocket*> sockets() const {
    std::vector<const ZmqSocket*> sockets{&live_};
    if (replay_) {
      sockets.push_back(&*replay_);
    }
    return sockets;
  }

  [[nodiscard]] Counts counts() const {
    return {.batches = batches_.load(std::memory_order_relaxed),
            .lost = lost_.load(std::memory_order_relaxed),
            .invalid = invalid_.load(std::memory_order_relaxed),
            .restarts = restarts_.load(std::memory_order_relaxed),
            .replays = replays_.load(std::memory_order_relaxed)};
  }

 private:
  // Live batches wait until it has ended. Does nothing if there is nobody to ask.
  void begin_replay(std::uint64_t from) {
    if (replay_) {
      is_replaying_ = true;
      replay_until_ = clock_.now() + options_.replay_limit;
      request_from_ = from;
      send_request();
    }
  }

  // Without a connection nothing is sent, so that a publisher that comes back does not find requests from long ago.
  void send_request() {
    if (request_from_ && replay_->send({"", sequence_frame(*request_from_)})) {
      request_from_.reset();
      replays_.fetch_add(1, std::memory_order_relaxed);
    }
  }

  // What the publisher said before no longer holds.
  void start_anew(std::uint64_t sequence, std::vector<ReceivedEvents>& out) {
    restarts_.fetch_add(1, std::memory_order_relaxed);
    out.push_back({.kind = Kind::kRestarted, .sequence = sequence});
    next_.reset();
    last_live_.reset();
    held_.clear();
    is_replaying_ = false;
    begin_replay(0);
  }

  void receive_replay(std::vector<ReceivedEvents>& out, std::size_t most) {
    for (std::size_t i = 0; replay_ && i < most; ++i) {
      std::optional<std::vector<std::string>> frames = replay_->receive();
      if (!frames) {
        return;
      }
      // Empty, topic, number, batch; before vLLM 0.26 without a topic.
      const std::size_t count = frames->size();
      const std::optional<std::uint64_t> sequence =
          count == 3 || count == 4 ? sequence_of((*frames)[count - 2]) : std::optional<std::uint64_t>();
      if (!sequence) {
        continue;
      }
      if (*sequence == kReplayEnd) {
        end_replay(out);
      } else if (!next_ || *sequence >= *next_) {
        deliver(*sequence, std::move(frames->back()), true, out);
      }
    }
  }

  // The live batches that waited go on. What is still missing cannot be had.
  void end_replay(std::vector<ReceivedEvents>& out) {
    is_replaying_ = false;
    request_from_.reset();
    std::deque<LiveMessage> held = std::exchange(held_, {});
    for (LiveMessage& message : held) {
      if (!next_ || message.sequence >= *next_) {
        deliver(message.sequence, std::move(message.payload), false, out);
      }
    }
  }

  void take_live(std::vector<std::string> frames, std::vector<ReceivedEvents>& out) {
    // Topic, number, batch; or without a number.
    std::optional<std::uint64_t> sequence;
    if (frames.size() == 3) {
      sequence = sequence_of(frames[1]);
    } else if (frames.size() == 2) {
      sequence = next_.value_or(0);
    }
    if (!sequence || *sequence == kReplayEnd) {
      invalid_.fetch_add(1, std::memory_order_relaxed);
      out.push_back({.kind = Kind::kInvalid,
                     .sequence = next_.value_or(0),
                     .text = str_cat("a message of ", frames.size(), " frames is not (topic, number, batch)")});
      return;
    }
    if (last_live_ && *sequence <= *last_live_) {
      start_anew(*sequence, out);
    } else if (!is_replaying_ && (next_ ? *sequence > *next_ : *sequence > 0)) {
      begin_replay(next_.value_or(0));
    }
    last_live_ = sequence;
    check_at_ = clock_.now() + options_.check;
    if (is_replaying_) {
      held_.push_back({*sequence, std::move(frames.back())});
      if (held_.size() > options_.held) {
        end_replay(out);
      }
    } else if (!next_ || *sequence >= *next_) {
      deliver(*sequence, std::move(frames.back()), false, out);
    }
  }

  void deliver(std::uint64_t sequence, std::string payload, bool is_replayed, std::vector<ReceivedEvents>& out) {
    const bool is_gap = next_ && sequence > *next_;
    const bool may_be_snapshot = is_replayed && (is_gap || !next_);
    const std::uint64_t expected = next_.value_or(0);
    next_ = sequence + 1;
    batches_.fetch_add(1, std::memory_order_relaxed);
    ReceivedEvents received{.sequence = sequence};
    if (payload.starts_with('{')) {
      received.text = std::move(payload);
      const std::string_view first_line = std::string_view(received.text).substr(0, received.text.find('\n'));
      if (may_be_snapshot && first_line.find("\"data\":\"cleared\"") != std::string_view::npos) {
        received.kind = Kind::kSnapshot;
      }
    } else if (Result<KvEventBatch> batch = decode_kv_events(payload)) {
      received.batch = *std::move(batch);
      const std::vector<KvEvent>& events = received.batch.events;
      if (may_be_snapshot && !events.empty() && std::holds_alternative<KvCleared>(events.front().data)) {
        received.kind = Kind::kSnapshot;
      }
    } else {
      invalid_.fetch_add(1, std::memory_order_relaxed);
      received.kind = Kind::kInvalid;
      received.text = batch.error().message;
    }
    if (is_gap && received.kind != Kind::kSnapshot) {
      lost_.fetch_add(1, std::memory_order_relaxed);
      out.push_back({.kind = Kind::kLost, .sequence = expected});
    }
    out.push_back(std::move(received));
  }

  const Options options_;
  const Clock& clock_;
  const std::unique_ptr<ZmqContext> context_;
  ZmqSocket live_;
  std::optional<ZmqSocket> replay_;
  std::optional<std::uint64_t> next_;       // the number after the last batch that was handed out
  std::optional<std::uint64_t> last_live_;  // live numbers only grow, unless the publisher is a new one
  bool is_replaying_ = false;
  TimePoint replay_until_{};
  std::optional<std::uint64_t> request_from_;  // of a request that could not be sent yet
  TimePoint check_at_;
  std::deque<LiveMessage> held_;  // while is_replaying_
  std::atomic<std::uint64_t> batches_{0};
  std::atomic<std::uint64_t> lost_{0};
  std::atomic<std::uint64_t> invalid_{0};
  std::atomic<std::uint64_t> restarts_{0};
  std::atomic<std::uint64_t> replays_{0};
};

Result<std::unique_ptr<EventReceiver>> EventReceiver::create(const Options& options, const Clock& clock) {
  CAIRN_TRY_ASSIGN(std::unique_ptr<ZmqContext> context, ZmqContext::create(options.library));
  CAIRN_TRY_ASSIGN(ZmqSocket live, ZmqSocket::open(*context, {.kind = ZmqKind::kSub, .linger = Duration::zero()}));
  CAIRN_TRY(live.subscribe(options.topic));
  CAIRN_TRY(live.watch_connection());
  CAIRN_TRY(live.connect(options.endpoint));
  std::optional<ZmqSocket> replay;
  if (!options.replay_endpoint.empty()) {
    CAIRN_TRY_ASSIGN(
        ZmqSocket socket,
        ZmqSocket::open(*context, {.kind = ZmqKind::kDealer, .linger = Duration::zero(), .only_connected = true}));
    CAIRN_TRY(socket.connect(options.replay_endpoint));
    replay.emplace(std::move(socket));
  }
  return std::unique_ptr<EventReceiver>(new EventReceiver(
      std::make_unique<Impl>(options, clock, std::move(context), std::move(live), std::move(replay))));
}

EventReceiver::EventReceiver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EventReceiver::~EventReceiver() = default;
void EventReceiver::receive(std::vector<ReceivedEvents>& out, std::size_t most) { impl_->receive(out, most); }
std::vector<const ZmqSocket*> EventReceiver::sockets() const { return impl_->sockets(); }
Status EventReceiver::wait(Duration longest) const { return internal::zmq_wait(sockets(), -1, longest); }
EventReceiver::Counts EventReceiver::counts() const { return impl_->counts(); }

}  // namespace cairn
