#include "cairn/events/event_publisher.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>

#include "cairn/events/zmq_socket.h"

namespace cairn {

namespace {

using internal::sequence_frame;
using internal::sequence_of;
using internal::ZmqContext;
using internal::ZmqKind;
using internal::ZmqSocket;

constexpr std::uint64_t kEndOfReplay = ~std::uint64_t{0};  // -1
constexpr int kRequestsAtOnce = 8;                         // so that requests do not delay events

}  // namespace

class EventPublisher::Impl {
 public:
  Impl(const Options& options, std::unique_ptr<ZmqContext> context, ZmqSocket pub, std::optional<ZmqSocket> replay)
      : options_(options),
        context_(std::move(context)),
        pub_(std::move(pub)),
        replay_(std::move(replay)),
        endpoint_(pub_.last_endpoint()),
        replay_endpoint_(replay_ ? replay_->last_endpoint() : std::string()),
        next_(options.first_sequence) {}

  void publish(std::uint32_t dp_rank, std::span<KvEvent> events, double time) {
    while (!events.empty()) {
      const std::span<KvEvent> some = events.first(std::min(events.size(), kEventsPerBatch));
      events = events.subspan(some.size());
      std::string payload;
      encode(dp_rank, some, time, payload);
      const std::uint64_t sequence = next_.load(std::memory_order_relaxed);
      (void)pub_.send({options_.topic, sequence_frame(sequence), payload});  // a PUB socket drops, and says nothing
      count_events_.fetch_add(some.size(), std::memory_order_relaxed);
      count_bytes_.fetch_add(payload.size(), std::memory_order_relaxed);
      if (replay_) {
        buffered_bytes_ += payload.size();
        buffer_.push_back(std::move(payload));
        while (buffer_.size() > options_.buffer || (buffered_bytes_ > options_.buffer_bytes && buffer_.size() > 1)) {
          buffered_bytes_ -= buffer_.front().size();
          buffer_.pop_front();
        }
      }
      next_.store(sequence + 1, std::memory_order_relaxed);
    }
  }

  bool answer_replays(const TakeSnapshot& take_snapshot, double time) {
    for (int i = 0; i < kRequestsAtOnce; ++i) {
      if (!replay_) {
        return false;
      }
      const std::optional<std::vector<std::string>> request = replay_->receive();
      if (!request) {
        return false;
      }
      const std::optional<std::uint64_t> from =
          request->size() == 3 ? sequence_of((*request)[2]) : std::optional<std::uint64_t>();
      if (!from || !answer(request->front(), *from, take_snapshot, time)) {
        refused_.fetch_add(1, std::memory_order_relaxed);
      }
    }
    return true;
  }

  [[nodiscard]] const ZmqSocket* replay_socket() const { return replay_ ? &*replay_ : nullptr; }

  [[nodiscard]] EventPublisherStatus status() const {
    const std::uint64_t next = next_.load(std::memory_order_relaxed);
    return {.endpoint = endpoint_,
            .replay_endpoint = replay_endpoint_,
            .first_sequence = options_.first_sequence,
            .next_sequence = next,
            .batches = next - options_.first_sequence,
            .events = count_events_.load(std::memory_order_relaxed),
            .bytes = count_bytes_.load(std::memory_order_relaxed),
            .replays = replays_.load(std::memory_order_relaxed),
            .snapshots = snapshots_.load(std::memory_order_relaxed),
            .refused_replays = refused_.load(std::memory_order_relaxed)};
  }

 private:
  void encode(std::uint32_t dp_rank, std::span<KvEvent> events, double time, std::string& out) {
    if (options_.format == EventFormat::kVllm) {
      // Moved there and back: append_vllm() takes a batch.
      batch_.time = time;
      batch_.dp_rank = dp_rank;
      batch_.events.assign(std::move_iterator(events.begin()), std::move_iterator(events.end()));
      append_vllm(batch_, out);
      std::ranges::move(batch_.events, events.begin());
      return;
    }
    for (const KvEvent& event : events) {
      const auto* const stored = std::get_if<KvStored>(&event.data);
      append_router_json({.worker_id = options_.worker_id, .event_id = next_event_++, .dp_rank = dp_rank}, event,
                         stored != nullptr ? local_hashes(*stored, stored->cache_salt) : std::vector<BlockHash>(), out);
    }
  }

  bool send_replay(const std::string& peer, std::string_view topic, std::uint64_t sequence, std::string_view payload) {
    return replay_->send({peer, "", topic, sequence_frame(sequence), payload});
  }

  bool answer(const std::string& peer, std::uint64_t from, const TakeSnapshot& take_snapshot, double time) {
    const std::uint64_t next = next_.load(std::memory_order_relaxed);
    const std::uint64_t first = next - buffer_.size();
    if (from >= first) {
      for (std::uint64_t sequence = std::max(from, first); sequence < next; ++sequence) {
        if (!send_replay(peer, options_.topic, sequence, buffer_[sequence - first])) {
          return false;
        }
      }
      replays_.fetch_add(1, std::memory_order_relaxed);
    } else {
      if (!answer_by_snapshot(peer, take_snapshot(), from, time)) {
        return false;
      }
      snapshots_.fetch_add(1, std::memory_order_relaxed);
    }
    return send_replay(peer, "", kEndOfReplay, "");
  }

  // The batches have the last numbers before the next one, and no lower one than `from`, which the subscriber would ignore.
  bool answer_by_snapshot(const std::string& peer, std::vector<RankSnapshot> ranks, std::uint64_t from, double time) {
    const std::uint64_t next = next_.load(std::memory_order_relaxed);
    std::size_t events = 0;
    for (const RankSnapshot& rank : ranks) {
      events += rank.events.size();
    }
    const std::uint64_t numbers = next - from > ranks.size() ? next - from - ranks.size() : 1;
    const std::size_t per_batch = std::max<std::size_t>(kEventsPerBatch, events / numbers + 1);
    std::vector<std::string> payloads;
    for (RankSnapshot& rank : ranks) {
      for (std::span<KvEvent> rest = rank.events; !rest.empty();) {
        const std::span<KvEvent> some = rest.first(std::min(rest.size(), per_batch));
        rest = rest.subspan(some.size());
        encode(rank.dp_rank, some, time, payloads.emplace_back());
      }
    }
    std::uint64_t sequence = next - payloads.size();
    for (const std::string& payload : payloads) {
      if (!send_replay(peer, options_.topic, sequence++, payload)) {
        return false;
      }
    }
    return true;
  }

  const Options options_;
  const std::unique_ptr<ZmqContext> context_;
  ZmqSocket pub_;
  std::optional<ZmqSocket> replay_;
  const std::string endpoint_;
  const std::string replay_endpoint_;
  KvEventBatch batch_;
  std::deque<std::string> buffer_;  // the batches before next_
  std::size_t buffered_bytes_ = 0;
  std::uint64_t next_event_ = 0;  // in kDynamo
  // Read by status(); relaxed, because each stands for itself.
  std::atomic<std::uint64_t> next_;
  std::atomic<std::uint64_t> count_events_{0};
  std::atomic<std::uint64_t> count_bytes_{0};
  std::atomic<std::uint64_t> replays_{0};
  std::atomic<std::uint64_t> snapshots_{0};
  std::atomic<std::uint64_t> refused_{0};
};

Result<std::unique_ptr<EventPublisher>> EventPublisher::create(const Options& options) {
  CAIRN_TRY_ASSIGN(std::unique_ptr<ZmqContext> context, ZmqContext::create(options.library));
  CAIRN_TRY_ASSIGN(
      ZmqSocket pub,
      ZmqSocket::open(*context, {.kind = ZmqKind::kPub, .queue = options.queue, .linger = options.linger}));
  CAIRN_TRY(pub.bind(options.endpoint));
  std::optional<ZmqSocket> replay;
  if (!options.replay_endpoint.empty()) {
    // Room for all batches of a replay, and no large requests.
    CAIRN_TRY_ASSIGN(ZmqSocket socket, ZmqSocket::open(*context, {.kind = ZmqKind::kRouter,
                                                                  .queue = static_cast<int>(options.buffer) + 1000,
                                                                  .linger = options.linger,
                                                                  .most_bytes = 1024}));
    CAIRN_TRY(socket.bind(options.replay_endpoint));
    replay.emplace(std::move(socket));
  }
  return std::unique_ptr<EventPublisher>(
      new EventPublisher(std::make_unique<Impl>(options, std::move(context), std::move(pub), std::move(replay))));
}

EventPublisher::EventPublisher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EventPublisher::~EventPublisher() = default;
void EventPublisher::publish(std::uint32_t dp_rank, std::span<KvEvent> events, double time) {
  impl_->publish(dp_rank, events, time);
}
bool EventPublisher::answer_replays(const TakeSnapshot& take_snapshot, double time) {
  return impl_->answer_replays(take_snapshot, time);
}
const ZmqSocket* EventPublisher::replay_socket() const { return impl_->replay_socket(); }
EventPublisherStatus EventPublisher::status() const { return impl_->status(); }

}  // namespace cairn
