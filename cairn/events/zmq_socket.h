// ZmqContext, ZmqSocket: sockets of ZeroMQ for the streams of events. The only user of libzmq, which is loaded when the first context is
// made, so that programs that publish nothing run without it. Internal.
//
// Thread safety: a context may be used by any thread, a socket by one thread at a time.
// Ownership: a context outlives its sockets. Closing a socket drops what could not be sent within the linger time; the end of
// a context waits for that.
// Errors: kUnavailable if libzmq is not installed; kInvalidArgument for an endpoint that cannot be parsed, kIo for one that cannot be bound, each
// with the endpoint in the message. Nothing blocks but zmq_wait(), up to its time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"

namespace cairn::internal {

struct ZmqLibrary;

class ZmqContext {
 public:
  // `library`: the name or path of the shared library; kDefaultLibrary is looked up as the system does.
  static constexpr const char* kDefaultLibrary = "libzmq.so.5";
  [[nodiscard]] static Result<std::unique_ptr<ZmqContext>> create(const std::string& library);
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;
  ~ZmqContext();

 private:
  friend class ZmqSocket;
  friend Status zmq_wait(std::span<const class ZmqSocket* const> sockets, int fd, Duration longest);
  ZmqContext(const ZmqLibrary& library, void* context) : library_(library), context_(context) {}

  const ZmqLibrary& library_;
  void* const context_;
};

enum class ZmqKind : std::uint8_t { kPub, kSub, kRouter, kDealer };

class ZmqSocket {
 public:
  struct Options {
    ZmqKind kind = ZmqKind::kPub;
    int queue = 100'000;                                // most messages pending in each direction
    Duration linger = std::chrono::milliseconds(200);   // for what is pending when it is closed
    std::int64_t most_bytes = std::int64_t{256} << 20;  // of a frame that is received
    bool only_connected = false;  // of a kDealer: send() fails while there is no connection, instead of queueing
  };
  [[nodiscard]] static Result<ZmqSocket> open(ZmqContext& context, const Options& options);
  ZmqSocket(ZmqSocket&& other) noexcept;
  ZmqSocket& operator=(ZmqSocket&& other) noexcept;
  ~ZmqSocket();

  [[nodiscard]] Status bind(const std::string& endpoint);
  [[nodiscard]] Status connect(const std::string& endpoint);
  // Of a kSub: all messages whose first frame begins with `topic`.
  [[nodiscard]] Status subscribe(std::string_view topic);
  // Makes was_disconnected() say whether a connection was lost since the last call. Of one socket of a context, before connect().
  [[nodiscard]] Status watch_connection();
  [[nodiscard]] bool was_disconnected();
  // As bound, with the port that the system chose for port 0.
  [[nodiscard]] std::string last_endpoint() const;

  // Sends one message, or nothing. False if the queue is full, or a kRouter knows no such peer; a kPub drops instead.
  [[nodiscard]] bool send(std::initializer_list<std::string_view> frames);
  // The frames of the next message; std::nullopt if there is none. Frames beyond kMostFrames are dropped.
  [[nodiscard]] std::optional<std::vector<std::string>> receive() { return receive_from(socket_); }
  static constexpr std::size_t kMostFrames = 8;

 private:
  friend Status zmq_wait(std::span<const ZmqSocket* const> sockets, int fd, Duration longest);
  ZmqSocket(ZmqContext& context, void* socket) : context_(&context), socket_(socket) {}
  void allow_ipv6(const std::string& endpoint);
  [[nodiscard]] std::optional<std::vector<std::string>> receive_from(void* socket);

  ZmqContext* context_;
  void* socket_;
  void* monitor_ = nullptr;
};

// Waits until one of the sockets has a message, `fd` can be read (unless it is -1), or `longest` has passed. A signal ends the wait too.
[[nodiscard]] Status zmq_wait(std::span<const ZmqSocket* const> sockets, int fd, Duration longest);

// The port of a tcp endpoint moved on by the data parallel rank, as vLLM does; "_dp<rank>" is appended to others. Rank 0 and port 0 change nothing.
[[nodiscard]] std::string endpoint_of_rank(const std::string& endpoint, std::uint32_t rank);

// 8 bytes, big-endian.
[[nodiscard]] std::string sequence_frame(std::uint64_t sequence);
[[nodiscard]] std::optional<std::uint64_t> sequence_of(std::string_view frame);

}  // namespace cairn::internal
