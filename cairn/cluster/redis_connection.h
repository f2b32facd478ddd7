// RedisConnection: one connection of a RedisStore: connects, authenticates, sends the items it is given one after the other
// without waiting for replies, and reads bodies straight into their memory.
//
// A connection that fails ends all its items with kUnavailable and is made again when the next item comes, after a wait that
// doubles; items that come during the wait fail at once.
//
// Thread safety: none; the thread of its store calls everything.
// Ownership: a RedisStore, which is its `Owner` and outlives it.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/cluster/block_store.h"
#include "cairn/cluster/redis_address.h"
#include "cairn/cluster/redis_slots.h"

struct ssl_st;
struct ssl_ctx_st;

namespace cairn {

// One item of a request, on its way.
struct RedisItem {
  std::shared_ptr<StoreRequest> request;
  std::size_t index = 0;
  std::uint32_t redirections = 0;
  bool is_asking = false;  // the node has to be told that it was sent there

  [[nodiscard]] StoreItem& item() const { return request->items[index]; }
};

struct RedisLogin {
  std::string user = {};
  std::string password = {};
  std::string ca_file = {};                    // of the server's certificate; empty: those of the system
  std::uint64_t time_to_live_ms = 0;           // of values; 0: they stay until the server evicts them
  Duration timeout = std::chrono::seconds(2);  // to connect, and between two signs of life while replies are due
};

class RedisConnection {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void answered(RedisItem&& item, StoreOutcome&& outcome) = 0;
    virtual void redirected(RedisItem&& item, const RedisRedirection& redirection) = 0;
    virtual void learned(const std::vector<RedisSlotRange>& ranges, const RedisAddress& from) = 0;
    // In [0, 1).
    [[nodiscard]] virtual double random() = 0;
  };
  // `tls`: null without TLS.
  RedisConnection(RedisAddress address, const RedisLogin& login, ssl_ctx_st* tls, const Clock& clock, Owner& owner);
  RedisConnection(const RedisConnection&) = delete;
  RedisConnection& operator=(const RedisConnection&) = delete;
  ~RedisConnection();

  void add(RedisItem item);
  // Asks for the map of slots; Owner::learned() gets it, unless the server is not part of a cluster.
  void ask_for_slots();
  [[nodiscard]] const RedisAddress& address() const { return address_; }
  [[nodiscard]] std::size_t items() const { return waiting_.size() + expected_.size(); }

  // For poll(). -1 if there is nothing to wait for.
  [[nodiscard]] int file() const { return file_; }
  [[nodiscard]] short events() const;
  void ready(short events);
  // Ends what is late.
  void check_deadlines(TimePoint now);
  [[nodiscard]] TimePoint next_time() const;
  // Ends all items.
  void close(const std::string& why);

 private:
  enum class State : std::uint8_t { kDown, kConnecting, kHandshake, kUp };
  // A reply that is due.
  struct Expected {
    enum class Kind : std::uint8_t { kItem, kLogin, kDatabase, kAsking, kSlots };
    Kind kind = Kind::kItem;
    RedisItem item = {};
    bool is_abandoned = false;  // its outcome was given: the reply goes nowhere
    std::uint64_t sent_at = 0;  // the number of bytes sent when the last of its bytes is
  };
  // What is to be sent: text of our own, or bytes of a body.
  struct Piece {
    std::string text = {};
    std::span<const std::byte> bytes = {};
    [[nodiscard]] std::span<const std::byte> view() const {
      return bytes.empty() ? std::as_bytes(std::span(text)) : bytes;
    }
  };
  // What comes next.
  enum class Reading : std::uint8_t { kHead, kLabel, kBody, kTail };

  void connect();
  void connected();
  void handshake();
  void log_in();
  void send_waiting();
  void send_command(Expected expected, std::string text, std::span<const std::byte> body = {}, std::string tail = {});
  void send_item(RedisItem item);
  [[nodiscard]] bool write_some();
  [[nodiscard]] bool read_some();
  // Handles what has been received; false if the connection was closed.
  [[nodiscard]] bool parse();
  [[nodiscard]] bool parse_head(std::string_view in);
  [[nodiscard]] bool reply_to_command(std::string_view in);
  void error_reply(std::string_view text);
  void end_front(StoreOutcome&& outcome);
  void failed(const std::string& why, StoreState state = StoreState::kUnavailable);
  [[nodiscard]] std::string_view received() const { return {buffer_.data() + begin_, end_ - begin_}; }
  // -1 and errno as read() and writev(); EAGAIN if it would block.
  [[nodiscard]] ssize_t receive(const iovec* to, int count);
  [[nodiscard]] ssize_t transmit(const iovec* from, int count);

  const RedisAddress address_;
  const RedisLogin& login_;
  ssl_ctx_st* const tls_;
  const Clock& clock_;
  Owner& owner_;

  State state_ = State::kDown;
  int file_ = -1;
  ssl_st* ssl_ = nullptr;
  bool tls_wants_write_ = false;
  TimePoint by_{};          // kConnecting, kHandshake: fails then
  TimePoint down_until_{};  // kDown
  Duration wait_{};         // the last wait
  std::string last_error_;
  StoreState last_state_ = StoreState::kUnavailable;
  TimePoint last_sign_{};  // when bytes came last, or a reply became due

  std::deque<RedisItem> waiting_;
  std::deque<Expected> expected_;
  bool wants_slots_ = false;

  std::deque<Piece> pieces_;
  std::size_t sent_of_first_ = 0;  // of the first piece
  std::uint64_t sent_ = 0;         // bytes in all
  std::uint64_t queued_ = 0;       // bytes in all

  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  Reading reading_ = Reading::kHead;
  StoreOutcome outcome_;  // of the value that is being read
  std::size_t body_left_ = 0;
  std::byte* body_ = nullptr;  // where the rest of the body goes; null: nowhere
};

}  // namespace cairn
