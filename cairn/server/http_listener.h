// HttpListener: an HTTP/1.1 server on one address. It accepts connections, reads requests within limits, and writes what a
// handler answers.
//
// A client that stalls, sends too much or opens many connections only harms itself: a request has a size and a time limit,
// and when all connections are taken, a new one takes the place of the one that has been waiting for its client for the
// longest time.
//
// Thread safety: start() and the destructor on any thread. The handler and `tick` are called on the thread "cairn-http", one
//                at a time; functions that the handler returns on "cairn-http-do", one at a time, in order.
// Ownership:     the destructor closes all connections and waits for both threads. A function that hangs keeps it waiting:
//                see end_within().
// Errors:        start(): kUnavailable if the address cannot be bound. A handler that throws is a response with status 500.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/server/http_message.h"

namespace cairn {

struct HttpLimits {
  std::uint32_t header_bytes = 16 * 1024;
  std::size_t body_bytes = 1024 * 1024;
  std::uint32_t connections = 64;
  std::uint32_t waiting_functions = 8;               // of answers; more are refused with status 503
  Duration request_time = std::chrono::seconds(10);  // to send a request, and to read its response
  Duration idle_time = std::chrono::seconds(30);     // between two requests
};

class HttpListener {
 public:
  using Handler = std::function<HttpAnswer(HttpRequest&&)>;
  struct Options {
    HttpAddress address = {};
    HttpLimits limits = {};
    Handler handler = {};
    std::function<void()> tick = {};  // called at the start, and then once every `period`
    Duration period = std::chrono::seconds(2);
  };

  [[nodiscard]] static Result<std::unique_ptr<HttpListener>> start(Options options);
  HttpListener(const HttpListener&) = delete;
  HttpListener& operator=(const HttpListener&) = delete;
  ~HttpListener();

  // With the port that the system chose.
  [[nodiscard]] const HttpAddress& address() const;

 private:
  class Impl;
  explicit HttpListener(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
