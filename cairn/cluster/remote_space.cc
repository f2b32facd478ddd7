#include "cairn/cluster/remote_space.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>
#include <vector>

#include "cairn/base/mutex.h"
#include "cairn/base/str_cat.h"
#include "cairn/cluster/store_label.h"
#include "cairn/hash/secret_bytes.h"

namespace cairn {

namespace {

std::string hex_word(std::uint64_t value) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t i = 0; i < 16; ++i) {
    text[15 - i] = kDigits[(value >> (4 * i)) & 15U];
  }
  return text;
}

// A tenant's name as one part of a key: letters, digits, - and _ as they are, all else as %XX.
std::string as_part(const std::string& name) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string part;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                          (byte >= '0' && byte <= '9') || byte == '-' || byte == '_';
    if (is_plain) {
      part += c;
    } else {
      part += '%';
      part += kDigits[byte >> 4U];
      part += kDigits[byte & 15U];
    }
  }
  return part.empty() ? "-" : part;
}

std::uint64_t random_word() {
  std::uint64_t value = 0;
  internal::fill_random(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

}  // namespace

std::string store_key(const std::string& prefix, const BlockTag& tag) {
  return str_cat(prefix, hex_word(tag.high), hex_word(tag.low));
}

struct RemoteSpace::State : std::enable_shared_from_this<RemoteSpace::State> {
  State(BlockStore& given, const Clock& of, const Options& from) : store(given), clock(of), options(from) {
    space = from.space;
  }

  // kAbsent: the store has none. A random one is put there then, not a fixed one: if the store lost the era of a reset, what was
  // stored before that reset must stay lost too.
  enum class Era : std::uint8_t { kUnknown, kAbsent, kUnwritten, kKnown };

  [[nodiscard]] std::string base(NamespaceId of) const {
    return str_cat("cairn/1/", as_part(options.tenant), "/", hex_word(value_of(of)), "/");
  }
  [[nodiscard]] StoreRequest request_for(NamespaceId of, StoreOperation operation, std::uint64_t value) const {
    StoreItem item{.key = base(of) + "era"};
    item.label = StoreLabel{.tag = {value_of(of), value}, .checksum = Checksum{1}}.encode();
    StoreRequest request{.operation = operation, .deadline = clock.now() + options.timeout};
    request.items.push_back(std::move(item));
    return request;
  }

  // Asks for the era, puts one if there is none (and asks again: another process may have been first), or writes that of a reset.
  void ask() CAIRN_EXCLUDES(mutex) {
    StoreRequest request;
    {
      const MutexLock lock(mutex);
      if (is_asking || state == Era::kKnown || clock.now() < ask_at) {
        return;
      }
      is_asking = true;
      const StoreOperation operation = state == Era::kUnwritten ? StoreOperation::kReplace
                                       : state == Era::kAbsent  ? StoreOperation::kPut
                                                                : StoreOperation::kContains;
      request = request_for(space, operation, state == Era::kAbsent ? random_word() : era);
      request.done = [self = shared_from_this(), operation, at = changes.load()](std::size_t /*only*/,
                                                                                 StoreOutcome&& outcome) {
        self->answered(operation, at, std::move(outcome));
      };
    }
    if (const Status submitted = store.submit(std::move(request)); !submitted) {
      {
        const MutexLock lock(mutex);
        is_asking = false;
        ask_at = clock.now() + options.ask_again;
        error = submitted.error().message;
      }
      tell_waiting();
    }
  }

  void answered(StoreOperation operation, std::uint64_t at, StoreOutcome&& outcome) CAIRN_EXCLUDES(mutex) {
    bool is_next = false;
    {
      const MutexLock lock(mutex);
      if (at != changes) {
        return;  // of another namespace or era
      }
      is_asking = false;
      is_next = take_in(operation, std::move(outcome));
    }
    if (is_next) {
      ask();
    }
    tell_waiting();
  }

  // Calls those that wait for an era that is known now, or will not be.
  void tell_waiting() CAIRN_EXCLUDES(mutex) {
    std::vector<Waiting> told;
    std::optional<std::string> name;
    std::uint64_t now = 0;
    {
      const MutexLock lock(mutex);
      now = changes;
      if (state == Era::kKnown) {
        name = known_prefix();
      }
      const auto stays = [this](const Waiting& each)
                             CAIRN_REQUIRES(mutex) { return is_asking && each.changes == changes; };
      const auto over = std::stable_partition(waiting.begin(), waiting.end(), stays);
      told.assign(std::make_move_iterator(over), std::make_move_iterator(waiting.end()));
      waiting.erase(over, waiting.end());
    }
    for (Waiting& each : told) {
      each.done(each.changes == now ? name : std::nullopt);
    }
  }

  [[nodiscard]] std::string known_prefix() const CAIRN_REQUIRES(mutex) {
    return str_cat(base(space), hex_word(era), "/");
  }

  // Returns whether ask() is to be called for the next request.
  [[nodiscard]] bool take_in(StoreOperation operation, StoreOutcome&& outcome) CAIRN_REQUIRES(mutex) {
    error.clear();
    const bool is_done = outcome.state == StoreState::kDone;
    if (operation == StoreOperation::kContains && outcome.state == StoreState::kAbsent) {
      if (!std::exchange(has_put, false)) {
        state = Era::kAbsent;
        return true;
      }
      outcome.error = str_cat(store.describe(), ": the store does not keep what is put there; is it out of memory?");
    }
    if (operation == StoreOperation::kPut && is_done) {
      has_put = true;
      state = Era::kUnknown;
      return true;
    }
    if (operation == StoreOperation::kReplace && is_done) {
      state = Era::kKnown;
      return false;
    }
    if (operation == StoreOperation::kContains && is_done) {
      const Result<StoreLabel> label = StoreLabel::decode(outcome.label);
      if (label && label->tag.high == value_of(space)) {
        era = label->tag.low;
        has_put = false;
        state = Era::kKnown;
        return false;
      }
      outcome.error =
          str_cat(store.describe(), ": the era of the namespace is damaged; reset the cache to make a new one");
    }
    ask_at = clock.now() + options.ask_again;
    error = outcome.error;
    return false;
  }

  struct Waiting {
    std::uint64_t changes = 0;
    std::function<void(const std::optional<std::string>&)> done;
  };

  BlockStore& store;
  const Clock& clock;
  const Options options;
  Mutex mutex{LockRank::kExecutor};
  std::vector<Waiting> waiting CAIRN_GUARDED_BY(mutex);
  NamespaceId space CAIRN_GUARDED_BY(mutex){};
  Era state CAIRN_GUARDED_BY(mutex) = Era::kUnknown;
  std::uint64_t era CAIRN_GUARDED_BY(mutex) = 0;
  std::atomic<std::uint64_t> changes{0};  // of namespace and era; written with the lock held
  bool is_asking CAIRN_GUARDED_BY(mutex) = false;
  bool has_put CAIRN_GUARDED_BY(mutex) = false;  // the request before this one
  TimePoint ask_at CAIRN_GUARDED_BY(mutex) = TimePoint::min();
  std::string error CAIRN_GUARDED_BY(mutex);
};

RemoteSpace::RemoteSpace(BlockStore& store, const Clock& clock, const Options& options)
    : state_(std::make_shared<State>(store, clock, options)) {}
RemoteSpace::~RemoteSpace() = default;

std::optional<std::string> RemoteSpace::prefix() {
  {
    const MutexLock lock(state_->mutex);
    if (state_->state == State::Era::kKnown) {
      return state_->known_prefix();
    }
  }
  state_->ask();
  const MutexLock lock(state_->mutex);
  return state_->state == State::Era::kKnown ? std::optional(state_->known_prefix()) : std::nullopt;
}

std::uint64_t RemoteSpace::changes() const { return state_->changes; }

void RemoteSpace::resolve(std::uint64_t changes, std::function<void(const std::optional<std::string>&)> done) {
  {
    const MutexLock lock(state_->mutex);
    state_->waiting.push_back({changes, std::move(done)});
  }
  state_->ask();
  state_->tell_waiting();
}

void RemoteSpace::enter(NamespaceId space) {
  {
    const MutexLock lock(state_->mutex);
    state_->space = space;
    state_->state = State::Era::kUnknown;
    state_->era = 0;
    ++state_->changes;
    state_->is_asking = false;
    state_->ask_at = TimePoint::min();
  }
  state_->ask();
  state_->tell_waiting();
}

Status RemoteSpace::begin_era() {
  StoreRequest request;
  std::uint64_t at = 0;
  {
    const MutexLock lock(state_->mutex);
    state_->state = State::Era::kUnwritten;
    state_->era = random_word();
    at = ++state_->changes;
    state_->is_asking = true;
    request = state_->request_for(state_->space, StoreOperation::kReplace, state_->era);
  }
  struct Answer {
    StoreOutcome outcome;
    std::atomic<int> is_there{0};
  };
  const auto answer = std::make_shared<Answer>();
  request.done = [answer](std::size_t /*only*/, StoreOutcome&& outcome) {
    answer->outcome = std::move(outcome);
    answer->is_there.store(1, std::memory_order_release);
    answer->is_there.notify_one();
  };
  if (const Status submitted = state_->store.submit(std::move(request)); !submitted) {
    state_->answered(StoreOperation::kReplace, at,
                     {.state = StoreState::kUnavailable, .error = submitted.error().message});
    return submitted;
  }
  answer->is_there.wait(0, std::memory_order_acquire);
  const StoreOutcome outcome = answer->outcome;
  state_->answered(StoreOperation::kReplace, at, StoreOutcome(outcome));
  return outcome.state == StoreState::kDone ? Status() : fail(ErrorCode::kUnavailable, outcome.error);
}

std::string RemoteSpace::error() const {
  const MutexLock lock(state_->mutex);
  return state_->error;
}

}  // namespace cairn
