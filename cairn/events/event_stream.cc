#include "cairn/events/event_stream.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bitset>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <span>
#include <thread>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/flat_table.h"
#include "cairn/base/mutex.h"
#include "cairn/base/own_thread.h"
#include "cairn/base/str_cat.h"
#include "cairn/events/zmq_socket.h"

namespace cairn {

namespace {

using internal::ZmqSocket;

constexpr std::uint32_t kLogSource = 0;
constexpr std::uint32_t kEngineSource = 1;
constexpr std::size_t kBlocksPerLook = 4096;                      // of the log, before others get their turn
constexpr Duration kLongestWait = std::chrono::milliseconds(50);  // for the time limits of the receiver

std::chrono::nanoseconds wall_time() { return std::chrono::system_clock::now().time_since_epoch(); }
double wall_seconds() { return std::chrono::duration<double>(wall_time()).count(); }

// Wakes the thread by a file descriptor, which it waits for beside its sockets.
class StreamWaker final : public EventWaker {
 public:
  StreamWaker() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~StreamWaker() override {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  [[nodiscard]] int fd() const { return fd_; }
  void wake() override {
    const std::uint64_t one = 1;
    (void)!write(fd_, &one, sizeof one);
  }
  void rest() {
    std::uint64_t count = 0;
    (void)!read(fd_, &count, sizeof count);
  }

 private:
  const int fd_;
};

// The names of the blocks of the log.
class LogNames {
 public:
  explicit LogNames(EventNames names) : names_(names) {}

  // The block is in the tier from now on.
  std::uint64_t store(CacheLevel tier, const BlockKey& key, BlockHash tokens_hash) {
    if (names_ == EventNames::kKeys) {
      return value_of(key.sequence_hash());
    }
    Place* const place = places_.insert(key.sequence_hash(), {.name = value_of(tokens_hash), .is_used = 1}).first;
    place->tiers |= bit(tier);
    return place->name;
  }
  // std::nullopt if it is not in the tier.
  std::optional<std::uint64_t> remove(CacheLevel tier, const BlockKey& key) {
    if (names_ == EventNames::kKeys) {
      return value_of(key.sequence_hash());
    }
    Place* const place = places_.find(key.sequence_hash());
    if (place == nullptr || (place->tiers & bit(tier)) == 0) {
      return std::nullopt;
    }
    const std::uint64_t name = place->name;
    place->tiers &= static_cast<std::uint8_t>(~bit(tier));
    if (place->tiers == 0) {
      places_.erase(key.sequence_hash());
    }
    return name;
  }
  [[nodiscard]] std::optional<std::uint64_t> find(SequenceHash hash) const {
    if (names_ == EventNames::kKeys) {
      return value_of(hash);
    }
    const Place* const place = places_.find(hash);
    return place != nullptr ? std::optional(place->name) : std::nullopt;
  }
  void clear(CacheLevel tier) {
    Places kept;
    places_.for_each([&](const SequenceHash& hash, const Place& place) {
      const auto rest = static_cast<std::uint8_t>(place.tiers & ~bit(tier));
      if (rest != 0) {
        kept.insert(hash, {.name = place.name, .tiers = rest, .is_used = 1});
      }
    });
    places_ = std::move(kept);
  }

 private:
  struct Place {
    std::uint64_t name = 0;
    std::uint8_t tiers = 0;
    std::uint8_t is_used = 0;
  };
  struct PlaceTraits {
    static std::uint64_t hash(const SequenceHash& hash) { return value_of(hash) * 0x9e3779b97f4a7c15; }
    static bool is_vacant(const SequenceHash&, const Place& place) { return place.is_used == 0; }
    static constexpr std::uint32_t kMaxPercent = 75;
  };
  using Places = FlatTable<SequenceHash, Place, PlaceTraits>;
  static std::uint8_t bit(CacheLevel tier) { return static_cast<std::uint8_t>(1U << index_of(tier)); }

  const EventNames names_;
  Places places_;  // in kEngineHashes
};

}  // namespace

class EventStream::Impl {
 public:
  Impl(const EventStreamOptions& options, EventLog& log, std::vector<const ResidentSource*> pools)
      : options_(options),
        log_(log),
        pools_(std::move(pools)),
        own_rank_(log.source().dp_rank),
        names_(options.names),
        subscriber_(EventSubscriber::joining(log)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  ~Impl() {
    is_ending_ = true;
    waker_.wake();
    if (thread_.joinable()) {
      thread_.join();
    }
    log_.forget(waker_);
  }

  Status start() {
    if (waker_.fd() < 0) {
      return fail(ErrorCode::kExhausted, str_cat("cannot make an eventfd: ", std::strerror(errno)));
    }
    CAIRN_TRY_ASSIGN(publisher_,
                     EventPublisher::create({.endpoint = endpoint(options_.publish),
                                             .replay_endpoint = endpoint(options_.replay),
                                             .topic = options_.topic,
                                             .format = options_.format,
                                             .worker_id = log_.source().worker_id,
                                             .first_sequence = static_cast<std::uint64_t>(wall_time().count()),
                                             .library = options_.library}));
    if (!options_.engine.empty()) {
      CAIRN_TRY_ASSIGN(receiver_, EventReceiver::create({.endpoint = endpoint(options_.engine),
                                                         .replay_endpoint = endpoint(options_.engine_replay),
                                                         .library = options_.library}));
      sockets_ = receiver_->sockets();
    }
    if (const ZmqSocket* const replay = publisher_->replay_socket()) {
      sockets_.push_back(replay);
    }
    thread_ = start_own_thread("cairn-events", [this] { run(); });
    return {};
  }

  [[nodiscard]] EventStreamStatus status() const {
    EventStreamStatus status{.published = publisher_->status(),
                             .snapshots = snapshots_.load(std::memory_order_relaxed),
                             .unnamed = unnamed_.load(std::memory_order_relaxed)};
    status.blocks = {.blocks = blocks_.load(std::memory_order_relaxed),
                     .announced = announced_.load(std::memory_order_relaxed),
                     .waiting = waiting_.load(std::memory_order_relaxed)};
    if (receiver_ != nullptr) {
      status.engine = receiver_->counts();
    }
    return status;
  }

 private:
  // A data parallel rank of the worker.
  struct Rank {
    explicit Rank(EventMode mode) : consolidator(mode) {}
    Consolidator consolidator;
    EngineNames engine_names;
    std::vector<KvEvent> out;  // to be published
  };

  // Each rank of an engine that is data parallel has a publisher of its own.
  [[nodiscard]] std::string endpoint(const std::string& endpoint) const {
    return internal::endpoint_of_rank(endpoint, own_rank_);
  }

  Rank& rank(std::uint32_t number) { return ranks_.try_emplace(number, options_.mode).first->second; }
  Rank& own_rank() { return rank(own_rank_); }

  void run() {
    while (!is_ending_) {
      const Look log = read_log();
      const bool had_engine = read_engine();
      publish();
      const bool has_requests = publisher_->answer_replays([this] { return take_snapshots(); }, wall_seconds());
      if (log == Look::kMore || has_requests) {
        wait(Duration::zero());
      } else if (log == Look::kSome || had_engine) {
        wait(options_.interval);  // more is probable: look again soon, without asking the pools to wake us
      } else if (log_.wake_after(subscriber_.next_sequence() - 1, waker_)) {
        wait(kLongestWait);
      }
    }
  }

  void wait(Duration longest) {
    CAIRN_CHECK(internal::zmq_wait(sockets_, waker_.fd(), longest).has_value(), "sockets can be waited for");
    waker_.rest();
  }

  enum class Look : std::uint8_t { kNothing, kSome, kMore };

  Look read_log() {
    if (needs_snapshot_) {
      start_from_snapshot();
      return Look::kSome;
    }
    const EventBatch batch = subscriber_.poll(kBlocksPerLook);
    if (std::holds_alternative<Lagged>(batch)) {
      start_from_snapshot();
      return Look::kSome;
    }
    const auto& events = std::get<std::vector<Event>>(batch);
    for (const Event& event : events) {
      if (std::holds_alternative<Resumed>(event.data)) {
        start_from_snapshot();  // and so the blocks of the tier come back
        return Look::kSome;
      }
      apply(event);
    }
    return events.empty()                                        ? Look::kNothing
           : subscriber_.next_sequence() <= log_.last_sequence() ? Look::kMore
                                                                 : Look::kSome;
  }

  void apply(const Event& event) {
    Rank& own = own_rank();
    if (std::holds_alternative<Suspended>(event.data)) {
      suspended_.set(index_of(event.tier));
      own.consolidator.clear(kLogSource, event.tier, own.out);
      names_.clear(event.tier);
    } else if (suspended_[index_of(event.tier)]) {
      return;  // a snapshot will tell
    } else if (const auto* const stored = std::get_if<Stored>(&event.data)) {
      KvStored named{.token_ids = stored->token_ids, .block_size = options_.block_size};
      bool knows_parent = true;
      if (stored->parent) {
        named.parent = names_.find(*stored->parent);
        knows_parent = named.parent.has_value();
      }
      for (const StoredBlock& block : stored->blocks) {
        named.hashes.push_back(names_.store(event.tier, block.key, block.tokens_hash));
      }
      own.consolidator.apply(kLogSource, {.data = std::move(named), .tier = event.tier}, own.out, knows_parent);
    } else if (const auto* const removed = std::get_if<Removed>(&event.data)) {
      KvRemoved named;
      for (const BlockKey& key : removed->keys) {
        if (const auto name = names_.remove(event.tier, key)) {
          named.hashes.push_back(*name);
        }
      }
      own.consolidator.apply(kLogSource, {.data = std::move(named), .tier = event.tier}, own.out);
    } else {  // Cleared, Invalidated
      own.consolidator.clear(kLogSource, event.tier, own.out);
      names_.clear(event.tier);
    }
  }

  // Makes the log's part equal to what the pools have now.
  void start_from_snapshot() {
    const Result<Snapshot> snapshot = take_snapshot(log_, pools_);
    if (!snapshot) {
      needs_snapshot_ = true;  // the log drops events faster than the pools can be walked; again in a moment
      return;
    }
    needs_snapshot_ = false;
    snapshots_.fetch_add(1, std::memory_order_relaxed);
    Rank& own = own_rank();
    for (const TierSnapshot& tier : snapshot->tiers) {
      suspended_.set(index_of(tier.tier), tier.suspended);
      names_.clear(tier.tier);
      if (tier.suspended) {
        own.consolidator.clear(kLogSource, tier.tier, own.out);
        continue;
      }
      std::vector<KvEvent> stored;
      std::vector<std::size_t> orphans;
      for (std::size_t i = 0; i < tier.blocks.size(); ++i) {
        const ResidentBlock& block = tier.blocks[i];
        KvStored named{.hashes = {names_.store(tier.tier, block.key, block.tokens_hash)},
                       .block_size = options_.block_size};
        if (block.key.position() != 0) {
          named.parent = names_.find(block.parent);
          if (!named.parent) {
            orphans.push_back(i);
          }
        }
        if (!tier.token_ids.empty()) {
          named.token_ids = tier.token_ids[i];
        }
        stored.push_back({.data = std::move(named), .tier = tier.tier});
      }
      own.consolidator.replace(kLogSource, tier.tier, stored, orphans, own.out);
    }
    CAIRN_CHECK(subscriber_.resume_at(snapshot->sequence + 1).has_value(), "a snapshot has a number of its log");
  }

  bool read_engine() {
    if (receiver_ == nullptr) {
      return false;
    }
    received_.clear();
    receiver_->receive(received_);
    for (const ReceivedEvents& received : received_) {
      if (received.kind != ReceivedEvents::Kind::kBatch) {
        for (auto& [number, rank] : ranks_) {
          rank.consolidator.clear(kEngineSource, std::nullopt, rank.out);
          rank.engine_names.clear();
        }
      }
      Rank& rank = this->rank(received.batch.dp_rank.value_or(own_rank_));
      for (const KvEvent& event : received.batch.events) {
        if (options_.names == EventNames::kEngineHashes) {
          rank.consolidator.apply(kEngineSource, event, rank.out);
        } else if (const std::optional<KvEvent> renamed = rank.engine_names.rename(event)) {
          rank.consolidator.apply(kEngineSource, *renamed, rank.out);
        }
      }
    }
    return !received_.empty();
  }

  void publish() {
    // The status is never behind what a follower has seen.
    count();
    for (auto& [number, rank] : ranks_) {
      publisher_->publish(number, rank.out, rank.out.empty() ? 0 : wall_seconds());
      rank.out.clear();
    }
  }

  void count() {
    Consolidator::Counts all;
    std::uint64_t unnamed = 0;
    for (const auto& [number, rank] : ranks_) {
      const Consolidator::Counts counts = rank.consolidator.counts();
      all.blocks += counts.blocks;
      all.announced += counts.announced;
      all.waiting += counts.waiting;
      unnamed += rank.engine_names.unnamed();
    }
    blocks_.store(all.blocks, std::memory_order_relaxed);
    announced_.store(all.announced, std::memory_order_relaxed);
    waiting_.store(all.waiting, std::memory_order_relaxed);
    unnamed_.store(unnamed, std::memory_order_relaxed);
  }

  std::vector<EventPublisher::RankSnapshot> take_snapshots() {
    (void)own_rank();  // a router learns that nothing is cached, too
    std::vector<EventPublisher::RankSnapshot> snapshots;
    for (const auto& [number, rank] : ranks_) {
      snapshots.push_back({.dp_rank = number, .events = rank.consolidator.snapshot()});
    }
    return snapshots;
  }

  const EventStreamOptions options_;
  EventLog& log_;
  const std::vector<const ResidentSource*> pools_;
  const std::uint32_t own_rank_;
  StreamWaker waker_;
  std::atomic<bool> is_ending_{false};
  std::unique_ptr<EventPublisher> publisher_;
  std::unique_ptr<EventReceiver> receiver_;
  std::vector<const ZmqSocket*> sockets_;
  // Of the thread.
  LogNames names_;
  EventSubscriber subscriber_;
  bool needs_snapshot_ = true;
  std::bitset<kCacheLevels> suspended_;
  std::map<std::uint32_t, Rank> ranks_;
  std::vector<ReceivedEvents> received_;
  // Read by status(); relaxed, because each stands for itself.
  std::atomic<std::uint64_t> snapshots_{0};
  std::atomic<std::uint64_t> unnamed_{0};
  std::atomic<std::size_t> blocks_{0};
  std::atomic<std::size_t> announced_{0};
  std::atomic<std::size_t> waiting_{0};
  std::thread thread_;
};

Result<std::unique_ptr<EventStream>> EventStream::start(const EventStreamOptions& options, EventLog& log,
                                                        std::vector<const ResidentSource*> pools) {
  auto impl = std::make_unique<Impl>(options, log, std::move(pools));
  CAIRN_TRY(impl->start());
  return std::unique_ptr<EventStream>(new EventStream(std::move(impl)));
}

EventStream::EventStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EventStream::~EventStream() = default;
EventStreamStatus EventStream::status() const { return impl_->status(); }

}  // namespace cairn
