#include "cairn/cluster/redis_store.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <deque>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "cairn/base/deadline.h"
#include "cairn/base/mutex.h"
#include "cairn/base/own_thread.h"
#include "cairn/base/str_cat.h"
#include "cairn/cluster/redis_connection.h"

namespace cairn {

namespace {

constexpr std::uint32_t kMostRedirections = 5;
constexpr std::size_t kMostNodes = 1024;
constexpr Duration kBetweenMaps = std::chrono::seconds(1);

struct FreeTls {
  void operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }
};
using TlsContext = std::unique_ptr<ssl_ctx_st, FreeTls>;

Result<TlsContext> make_tls(const std::string& ca_file) {
  TlsContext context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr || SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1) {
    return fail(ErrorCode::kUnavailable, "OpenSSL cannot make a TLS context");
  }
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  const int loaded = ca_file.empty() ? SSL_CTX_set_default_verify_paths(context.get())
                                     : SSL_CTX_load_verify_locations(context.get(), ca_file.c_str(), nullptr);
  ERR_clear_error();
  if (loaded != 1) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("cannot read the certificates of '", ca_file, "'; give a file in PEM format"));
  }
  return context;
}

}  // namespace

class RedisStore::Impl final : public RedisConnection::Owner {
 public:
  Impl(const Clock& clock, const Options& options, TlsContext tls, int event)
      : clock_(clock),
        options_(options),
        login_{.user = options.user,
               .password = options.password,
               .ca_file = options.ca_file,
               .time_to_live_ms = static_cast<std::uint64_t>(
                   std::chrono::duration_cast<std::chrono::milliseconds>(options.time_to_live).count()),
               .timeout = options.timeout},
        tls_(std::move(tls)),
        event_(event),
        random_(options.seed | 1U) {
    first_ = &node({.host = options.address.host, .port = options.address.port});
    thread_ = start_own_thread("cairn-store", [this] { run(); });
  }
  ~Impl() override {
    close();
    ::close(event_);
  }
  void close() {
    if (!is_ending_.exchange(true)) {
      wake();
      thread_.join();
    }
  }

  Status submit(StoreRequest&& request) {
    const std::size_t items = request.items.size();
    if (items == 0) {
      return {};
    }
    const auto shared = std::make_shared<StoreRequest>();
    {
      const MutexLock lock(mutex_);
      if (is_closed_) {
        return fail(ErrorCode::kUnavailable, str_cat(describe(), " was closed"));
      }
      if (open_ + items > options_.limit) {
        return fail(ErrorCode::kExhausted,
                    str_cat(open_, " items are pending at ", describe(), "; try again when some have ended"));
      }
      incoming_.push_back(shared);
      open_ += items;
      *shared = std::move(request);
    }
    wake();
    return {};
  }

  [[nodiscard]] std::string describe() const { return options_.address.to_string(); }

  // RedisConnection::Owner, on the store's thread.
  void answered(RedisItem&& item, StoreOutcome&& outcome) override {
    {
      const MutexLock lock(mutex_);
      --open_;
    }
    if (item.request->done) {
      item.request->done(item.index, std::move(outcome));
    }
  }
  void redirected(RedisItem&& item, const RedisRedirection& redirection) override {
    redirections_.emplace_back(std::move(item), redirection);
  }
  void learned(const std::vector<RedisSlotRange>& ranges, const RedisAddress& from) override {
    for (const RedisSlotRange& range : ranges) {
      RedisNodeName name = range.primary;
      name.host = name.host.empty() ? from.host : name.host;
      if (nodes_.size() >= kMostNodes && !nodes_.contains(name)) {
        return;
      }
      Node& found = node(name);
      slots_.resize(kRedisSlots, nullptr);
      std::fill(slots_.begin() + range.first, slots_.begin() + range.last + 1, &found);
    }
  }
  [[nodiscard]] double random() override {  // xorshift64*
    random_ ^= random_ >> 12;
    random_ ^= random_ << 25;
    random_ ^= random_ >> 27;
    return static_cast<double>((random_ * 0x2545F4914F6CDD1DULL) >> 11) * 0x1.0p-53;
  }

 private:
  struct Node {
    std::vector<std::unique_ptr<RedisConnection>> connections;
    std::size_t next = 0;
  };

  Node& node(const RedisNodeName& name) {
    Node& found = nodes_[name];
    if (found.connections.empty()) {
      RedisAddress address = options_.address;
      address.host = name.host;
      address.port = name.port;
      for (std::uint32_t i = 0; i < std::max(options_.connections, 1U); ++i) {
        found.connections.push_back(std::make_unique<RedisConnection>(address, login_, tls_.get(), clock_, *this));
      }
    }
    return found;
  }
  RedisConnection& next_of(Node& of) { return *of.connections[of.next++ % of.connections.size()]; }

  void send(RedisItem item) {
    Node* to = first_;
    if (!slots_.empty()) {
      Node* const owner = slots_[redis_slot(item.item().key)];
      to = owner != nullptr ? owner : first_;
    }
    next_of(*to).add(std::move(item));
  }

  // Done outside of the connection that was redirected: it may be the one that the item goes to.
  void follow_redirections() {
    while (!redirections_.empty()) {
      auto [item, redirection] = std::move(redirections_.front());
      redirections_.pop_front();
      if (++item.redirections > kMostRedirections || nodes_.size() > kMostNodes) {
        answered(std::move(item), {.state = StoreState::kUnavailable,
                                   .error = str_cat(describe(), ": the nodes of the cluster send a key in circles")});
        continue;
      }
      RedisNodeName name = redirection.node;
      name.host = name.host.empty() ? options_.address.host : name.host;
      Node& to = node(name);
      item.is_asking = !redirection.is_moved;
      if (redirection.is_moved) {
        slots_.resize(kRedisSlots, nullptr);
        slots_[redirection.slot] = &to;
        if (const TimePoint now = clock_.now(); now >= next_map_) {
          next_map_ = now + kBetweenMaps;
          to.connections.front()->ask_for_slots();
        }
      }
      next_of(to).add(std::move(item));
    }
  }

  void wake() const {
    const std::uint64_t one = 1;
    while (write(event_, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
  }

  void take_incoming() {
    std::deque<std::shared_ptr<StoreRequest>> taken;
    {
      const MutexLock lock(mutex_);
      taken.swap(incoming_);
    }
    for (const std::shared_ptr<StoreRequest>& request : taken) {
      for (std::size_t i = 0; i < request->items.size(); ++i) {
        send({.request = request, .index = i});
      }
    }
  }

  void run() {
    std::vector<pollfd> files;
    std::vector<RedisConnection*> polled;
    while (!is_ending_) {
      take_incoming();
      follow_redirections();
      files.assign(1, {.fd = event_, .events = POLLIN, .revents = 0});
      polled.clear();
      TimePoint next = TimePoint::max();
      for (auto& [name, each] : nodes_) {
        for (const std::unique_ptr<RedisConnection>& connection : each.connections) {
          next = std::min(next, connection->next_time());
          if (connection->file() >= 0) {
            files.push_back({.fd = connection->file(), .events = connection->events(), .revents = 0});
            polled.push_back(connection.get());
          }
        }
      }
      const Duration wait = next == TimePoint::max() ? Duration(std::chrono::hours(1)) : time_until(next, clock_.now());
      const auto ms = std::chrono::ceil<std::chrono::milliseconds>(wait).count();
      (void)poll(files.data(), files.size(), static_cast<int>(std::min<std::int64_t>(ms, INT_MAX)));
      if (files.front().revents != 0) {
        std::uint64_t count = 0;
        (void)!read(event_, &count, sizeof(count));
      }
      for (std::size_t i = 0; i < polled.size(); ++i) {
        if (polled[i]->file() == files[i + 1].fd) {
          polled[i]->ready(files[i + 1].revents);
        }
      }
      const TimePoint now = clock_.now();
      for (auto& [name, each] : nodes_) {
        for (const std::unique_ptr<RedisConnection>& connection : each.connections) {
          connection->check_deadlines(now);
        }
      }
    }
    end();
  }

  void end() {
    const std::string why = "the store was closed";
    for (auto& [name, each] : nodes_) {
      for (const std::unique_ptr<RedisConnection>& connection : each.connections) {
        connection->close(why);
      }
    }
    std::deque<std::shared_ptr<StoreRequest>> left;
    {
      const MutexLock lock(mutex_);
      is_closed_ = true;
      left.swap(incoming_);
    }
    const auto closed = [&] {
      return StoreOutcome{.state = StoreState::kUnavailable, .error = str_cat(describe(), ": ", why)};
    };
    for (auto& [item, redirection] : redirections_) {
      answered(std::move(item), closed());
    }
    for (const std::shared_ptr<StoreRequest>& request : left) {
      for (std::size_t i = 0; i < request->items.size(); ++i) {
        answered({.request = request, .index = i}, closed());
      }
    }
  }

  const Clock& clock_;
  const Options options_;
  const RedisLogin login_;
  const TlsContext tls_;
  const int event_;
  std::atomic<bool> is_ending_{false};

  Mutex mutex_{LockRank::kExecutor};
  std::deque<std::shared_ptr<StoreRequest>> incoming_ CAIRN_GUARDED_BY(mutex_);
  std::size_t open_ CAIRN_GUARDED_BY(mutex_) = 0;  // items
  bool is_closed_ CAIRN_GUARDED_BY(mutex_) = false;

  // Of the store's thread.
  std::uint64_t random_;
  std::map<RedisNodeName, Node> nodes_;
  Node* first_ = nullptr;
  std::vector<Node*> slots_;  // empty until a redirection shows that it is a cluster
  std::deque<std::pair<RedisItem, RedisRedirection>> redirections_;
  TimePoint next_map_ = TimePoint::min();
  std::thread thread_;  // the last member: it uses the others
};

RedisStore::RedisStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RedisStore::~RedisStore() = default;

Result<std::unique_ptr<RedisStore>> RedisStore::make(const Clock& clock, const Options& options) {
  TlsContext tls;
  if (options.address.has_tls) {
    CAIRN_TRY_ASSIGN(tls, make_tls(options.ca_file));
  }
  const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event < 0) {
    return fail(ErrorCode::kUnavailable, "the system has no more file descriptors");
  }
  return std::unique_ptr<RedisStore>(new RedisStore(std::make_unique<Impl>(clock, options, std::move(tls), event)));
}

Status RedisStore::submit(StoreRequest&& request) { return impl_->submit(std::move(request)); }
void RedisStore::close() { impl_->close(); }
std::string RedisStore::describe() const { return impl_->describe(); }

}  // namespace cairn
