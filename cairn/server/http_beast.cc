// HttpListener and call_http() by Boost.Beast: the only source that includes it, because it is slow to compile.
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <list>
#include <optional>
#include <thread>
#include <utility>

#include "cairn/base/own_thread.h"
#include "cairn/base/str_cat.h"
#include "cairn/server/http_call.h"
#include "cairn/server/http_listener.h"

namespace cairn {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using boost::system::error_code;

constexpr auto kAfterFailedAccept = std::chrono::milliseconds(100);

std::string text_of(beast::string_view text) { return {text.data(), text.size()}; }

HttpResponse plain_error(int status, std::string message) {
  return {.status = status, .content_type = "text/plain; charset=utf-8", .body = std::move(message) + "\n"};
}

Result<tcp::endpoint> endpoint_of(const HttpAddress& address) {
  error_code failed;
  const asio::ip::address host = asio::ip::make_address(address.host, failed);
  if (failed) {
    return fail(ErrorCode::kInvalidArgument, str_cat("'", address.host, "' is not an IP address"));
  }
  return tcp::endpoint(host, address.port);
}

}  // namespace

class HttpListener::Impl {
 public:
  explicit Impl(Options options) : options_(std::move(options)), acceptor_(io_), timer_(io_), accept_again_(io_) {}
  ~Impl() {
    io_.stop();
    if (thread_.joinable()) {
      thread_.join();
    }
    slow_guard_.reset();
    slow_.stop();
    if (slow_thread_.joinable()) {
      slow_thread_.join();
    }
    connections_.clear();
  }

  Status open() {
    CAIRN_TRY_ASSIGN(const tcp::endpoint endpoint, endpoint_of(options_.address));
    error_code failed;
    const auto step = [&](const auto& call) {
      if (!failed) {
        call();
      }
    };
    step([&] { acceptor_.open(endpoint.protocol(), failed); });
    step([&] { acceptor_.set_option(tcp::acceptor::reuse_address(true), failed); });
    step([&] { acceptor_.bind(endpoint, failed); });
    step([&] { acceptor_.listen(asio::socket_base::max_listen_connections, failed); });
    if (failed) {
      return fail(ErrorCode::kUnavailable, str_cat("cannot listen on ", options_.address.to_string(), ": ",
                                                   failed.message(), "; choose another address or port"));
    }
    options_.address.port = acceptor_.local_endpoint(failed).port();
    thread_ = start_own_thread("cairn-http", [this] {
      accept();
      tick();
      io_.run();
    });
    slow_thread_ = start_own_thread("cairn-http-do", [this] { slow_.run(); });
    return {};
  }

  [[nodiscard]] const HttpAddress& address() const { return options_.address; }

 private:
  class Connection;
  using Connections = std::list<std::shared_ptr<Connection>>;

  void accept() {
    acceptor_.async_accept([this](error_code failed, tcp::socket socket) {
      if (failed) {
        // Such as too many open files in this process: asking again at once would spin.
        accept_again_.expires_after(kAfterFailedAccept);
        accept_again_.async_wait([this](error_code stopped) {
          if (!stopped) {
            accept();
          }
        });
        return;
      }
      make_room();
      add(std::move(socket));
      accept();
    });
  }

  void add(tcp::socket socket);
  void make_room();

  void tick() {
    if (!options_.tick) {
      return;
    }
    options_.tick();
    timer_.expires_after(options_.period);
    timer_.async_wait([this](error_code stopped) {
      if (!stopped) {
        tick();
      }
    });
  }

  Options options_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer timer_;
  asio::steady_timer accept_again_;
  Connections connections_;              // on cairn-http only
  std::uint32_t waiting_functions_ = 0;  // on cairn-http only
  asio::io_context slow_{1};
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> slow_guard_{asio::make_work_guard(slow_)};
  std::thread thread_;
  std::thread slow_thread_;
};

// One client. Everything happens on cairn-http.
class HttpListener::Impl::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Impl& server, tcp::socket socket)
      : server_(server), buffer_(server.options_.limits.header_bytes + kReadAhead), stream_(std::move(socket)) {
    error_code failed;
    const tcp::endpoint peer = stream_.socket().remote_endpoint(failed);
    peer_ = failed ? "unknown" : peer.address().to_string();
    stream_.socket().set_option(tcp::no_delay(true), failed);
  }

  void begin(Connections::iterator place) {
    place_ = place;
    read(server_.options_.limits.request_time);
  }
  // Whether it waits for its client, and since when.
  [[nodiscard]] bool is_waiting() const { return is_waiting_; }
  [[nodiscard]] std::chrono::steady_clock::time_point since() const { return since_; }
  void close() {
    if (!std::exchange(is_closed_, true)) {
      error_code ignored;
      stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
      stream_.close();
      server_.connections_.erase(place_);
    }
  }

 private:
  static constexpr std::size_t kReadAhead = 64 * 1024;

  void read(Duration longest) {
    is_waiting_ = true;
    since_ = std::chrono::steady_clock::now();
    parser_.emplace();
    parser_->header_limit(server_.options_.limits.header_bytes);
    parser_->body_limit(server_.options_.limits.body_bytes);
    stream_.expires_after(longest);
    http::async_read_header(stream_, buffer_, *parser_, [self = shared_from_this()](error_code failed, std::size_t) {
      if (failed) {
        self->refuse(failed);
        return;
      }
      self->stream_.expires_after(self->server_.options_.limits.request_time);
      http::async_read(self->stream_, self->buffer_, *self->parser_,
                       [self](error_code bad, std::size_t) { bad ? self->refuse(bad) : self->handle(); });
    });
  }

  // What could not be read as a request. A client that went away, or was too slow, gets nothing.
  void refuse(error_code failed) {
    if (is_closed_) {
      return;
    }
    const HttpLimits& limits = server_.options_.limits;
    HttpResponse response;
    if (failed == http::error::header_limit || failed == http::error::buffer_overflow) {
      response = plain_error(431, str_cat("the header is larger than ", limits.header_bytes, " bytes"));
    } else if (failed == http::error::body_limit) {
      response = plain_error(413, str_cat("the body is larger than ", limits.body_bytes, " bytes"));
    } else if (failed.category() == http::make_error_code(http::error::bad_method).category() &&
               failed != http::error::end_of_stream && failed != http::error::partial_message) {
      response = plain_error(400, str_cat("this is not an HTTP request: ", failed.message()));
    } else {
      close();
      return;
    }
    write(std::move(response), /*keeps_alive=*/false, /*is_head=*/false);
  }

  void handle() {
    is_waiting_ = false;
    stream_.expires_never();
    http::request<http::string_body> got = parser_->release();
    const bool keeps_alive = got.keep_alive();
    const bool is_head = got.method() == http::verb::head;
    HttpRequest request{.method = is_head ? "GET" : text_of(got.method_string()),
                        .authorization = text_of(got[http::field::authorization]),
                        .host = text_of(got[http::field::host]),
                        .peer = peer_,
                        .body = std::move(got.body())};
    const std::string target = text_of(got.target());
    const std::size_t question = target.find('?');
    request.path = target.substr(0, question);
    request.query = question == std::string::npos ? "" : target.substr(question + 1);
    HttpAnswer answer;
    try {
      answer = server_.options_.handler(std::move(request));
    } catch (const std::exception& thrown) {
      answer = plain_error(500, thrown.what());
    }
    if (auto* const now = std::get_if<HttpResponse>(&answer)) {
      write(std::move(*now), keeps_alive, is_head);
      return;
    }
    if (server_.waiting_functions_ >= server_.options_.limits.waiting_functions) {
      write(plain_error(503, "too many requests are waiting; try again"), keeps_alive, is_head);
      return;
    }
    ++server_.waiting_functions_;
    asio::post(server_.slow_, [self = shared_from_this(), keeps_alive, is_head,
                               later = std::get<std::function<HttpResponse()>>(std::move(answer))] {
      HttpResponse response;
      try {
        response = later();
      } catch (const std::exception& thrown) {
        response = plain_error(500, thrown.what());
      }
      Impl& server = self->server_;
      asio::post(server.io_, [self, keeps_alive, is_head, response = std::move(response)]() mutable {
        --self->server_.waiting_functions_;
        self->write(std::move(response), keeps_alive, is_head);
      });
    });
  }

  void write(HttpResponse response, bool keeps_alive, bool is_head) {
    if (is_closed_) {
      return;
    }
    is_waiting_ = true;  // for its client, who may be slow to read
    since_ = std::chrono::steady_clock::now();
    message_.emplace();
    message_->version(11);
    message_->result(static_cast<unsigned>(response.status));
    message_->set(http::field::content_type, response.content_type);
    for (const auto& [name, value] : response.headers) {
      message_->set(name, value);
    }
    message_->keep_alive(keeps_alive);
    const std::size_t size = response.body.size();
    if (!is_head) {
      message_->body() = std::move(response.body);
    }
    message_->content_length(size);
    serializer_.emplace(*message_);
    serializer_->split(is_head);
    stream_.expires_after(server_.options_.limits.request_time);
    const auto written = [self = shared_from_this(), keeps_alive](error_code failed, std::size_t) {
      self->serializer_.reset();
      self->message_.reset();
      if (failed || !keeps_alive) {
        self->close();
      } else {
        self->read(self->server_.options_.limits.idle_time);
      }
    };
    is_head ? http::async_write_header(stream_, *serializer_, written)
            : http::async_write(stream_, *serializer_, written);
  }

  Impl& server_;
  Connections::iterator place_;
  bool is_closed_ = false;
  bool is_waiting_ = true;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  beast::flat_buffer buffer_;
  beast::tcp_stream stream_;
  std::string peer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::optional<http::response<http::string_body>> message_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
};

void HttpListener::Impl::add(tcp::socket socket) {
  const auto connection = std::make_shared<Connection>(*this, std::move(socket));
  connections_.push_back(connection);
  connection->begin(std::prev(connections_.end()));
}

// Closes the connection that has waited for its client for the longest time, if all are taken.
void HttpListener::Impl::make_room() {
  if (connections_.size() < options_.limits.connections) {
    return;
  }
  std::shared_ptr<Connection> idlest;
  for (const std::shared_ptr<Connection>& one : connections_) {
    if (one->is_waiting() && (idlest == nullptr || one->since() < idlest->since())) {
      idlest = one;
    }
  }
  if (idlest != nullptr) {
    idlest->close();
  }
}

HttpListener::HttpListener(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpListener::~HttpListener() = default;
const HttpAddress& HttpListener::address() const { return impl_->address(); }

Result<std::unique_ptr<HttpListener>> HttpListener::start(Options options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  CAIRN_TRY(impl->open());
  return std::unique_ptr<HttpListener>(new HttpListener(std::move(impl)));
}

Result<HttpResponse> call_http(const HttpAddress& address, const HttpRequest& request, Duration longest) {
  constexpr std::uint64_t kLargest = 64 * 1024 * 1024;
  CAIRN_TRY_ASSIGN(const tcp::endpoint endpoint, endpoint_of(address));
  asio::io_context io{1};
  beast::tcp_stream stream(io);
  beast::flat_buffer buffer;
  http::request<http::string_body> message;
  message.version(11);
  message.method_string(request.method);
  message.target(request.query.empty() ? request.path : str_cat(request.path, "?", request.query));
  message.set(http::field::host, address.to_string());
  message.set(http::field::connection, "close");
  if (!request.authorization.empty()) {
    message.set(http::field::authorization, request.authorization);
  }
  message.body() = request.body;
  message.prepare_payload();
  http::response_parser<http::string_body> parser;
  parser.body_limit(kLargest);
  error_code failed;
  bool is_connected = false;
  stream.expires_after(longest);  // for everything that follows
  stream.async_connect(endpoint, [&](error_code connecting) {
    failed = connecting;
    if (failed) {
      return;
    }
    is_connected = true;
    http::async_write(stream, message, [&](error_code writing, std::size_t) {
      // A server that refuses a request may answer before it has read all of it.
      http::async_read(stream, buffer, parser, [&, writing](error_code reading, std::size_t) {
        failed = reading ? (writing ? writing : reading) : error_code();
      });
    });
  });
  io.run();
  if (failed) {
    const std::string where = str_cat("http://", address.to_string());
    if (failed == beast::error::timeout) {
      return fail(ErrorCode::kExpired, str_cat(where, " did not answer in time"));
    }
    if (!is_connected) {
      return fail(ErrorCode::kUnavailable, str_cat("cannot connect to ", where, ": ", failed.message()));
    }
    return fail(ErrorCode::kCorrupt, str_cat(where, " gave no HTTP response: ", failed.message()));
  }
  const http::response<http::string_body>& got = parser.get();
  return HttpResponse{.status = static_cast<int>(got.result_int()),
                      .content_type = text_of(got[http::field::content_type]),
                      .body = got.body()};
}

}  // namespace cairn
