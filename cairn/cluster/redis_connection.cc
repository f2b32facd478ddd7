#include "cairn/cluster/redis_connection.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/deadline.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

constexpr std::size_t kBufferBytes = std::size_t{256} << 10;
constexpr int kMostPieces = 64;
// Replies that are due at once. More would only make items wait where they cannot be taken back.
constexpr std::size_t kWindow = 64;
constexpr Duration kFirstWait = std::chrono::milliseconds(50);
constexpr Duration kLongestWait = std::chrono::seconds(5);
constexpr std::string_view kLineEnd = "\r\n";

std::string system_error(int error) { return std::string(std::strerror(error)); }  // NOLINT(concurrency-mt-unsafe)

std::string tls_error() {
  const unsigned long code = ERR_get_error();
  char text[256] = "the connection was closed";
  if (code != 0) {
    ERR_error_string_n(code, text, sizeof(text));
  }
  ERR_clear_error();
  return text;
}

// What an error of the server means for the item that it answers.
StoreState state_of(std::string_view error) {
  for (const std::string_view later :
       {"LOADING", "BUSY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "READONLY", "MOVED", "ASK"}) {
    if (error.starts_with(later)) {
      return StoreState::kUnavailable;
    }
  }
  return StoreState::kRefused;
}

}  // namespace

RedisConnection::RedisConnection(RedisAddress address, const RedisLogin& login, ssl_ctx_st* tls, const Clock& clock,
                                 Owner& owner)
    : address_(std::move(address)), login_(login), tls_(tls), clock_(clock), owner_(owner), buffer_(kBufferBytes) {}

RedisConnection::~RedisConnection() { close("the store was closed"); }

// --- connecting ---

void RedisConnection::connect() {
  // getaddrinfo() may wait for a name server, and delays only this thread: deadlines of transfers are their ledger's.
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address_.port);
  if (const int error = getaddrinfo(address_.host.c_str(), port.c_str(), &hints, &found); error != 0) {
    failed(str_cat("cannot find the host: ", gai_strerror(error)));
    return;
  }
  int error = 0;
  for (const addrinfo* at = found; at != nullptr && file_ < 0; at = at->ai_next) {
    file_ = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (file_ >= 0 && ::connect(file_, at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS) {
      error = errno;
      ::close(file_);
      file_ = -1;
    } else if (file_ < 0) {
      error = errno;
    }
  }
  freeaddrinfo(found);
  if (file_ < 0) {
    failed(str_cat("cannot connect: ", system_error(error)));
    return;
  }
  const int on = 1;
  (void)setsockopt(file_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  state_ = State::kConnecting;
  by_ = deadline_after(clock_.now(), login_.timeout);
}

void RedisConnection::connected() {
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(file_, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
    failed(str_cat("cannot connect: ", system_error(error != 0 ? error : errno)));
    return;
  }
  if (tls_ == nullptr) {
    log_in();
    return;
  }
  ssl_ = SSL_new(tls_);
  if (ssl_ == nullptr || SSL_set_fd(ssl_, file_) != 1) {
    failed(str_cat("cannot begin TLS: ", tls_error()));
    return;
  }
  // A certificate has to name the host: an address as an address, a name as a name.
  X509_VERIFY_PARAM* const parameters = SSL_get0_param(ssl_);
  if (X509_VERIFY_PARAM_set1_ip_asc(parameters, address_.host.c_str()) != 1 &&
      SSL_set1_host(ssl_, address_.host.c_str()) != 1) {
    failed(str_cat("cannot begin TLS: ", tls_error()));
    return;
  }
  (void)SSL_set_tlsext_host_name(ssl_, address_.host.c_str());
  SSL_set_connect_state(ssl_);
  state_ = State::kHandshake;
  handshake();
}

void RedisConnection::handshake() {
  const int done = SSL_do_handshake(ssl_);
  if (done == 1) {
    log_in();
    return;
  }
  const int error = SSL_get_error(ssl_, done);
  tls_wants_write_ = error == SSL_ERROR_WANT_WRITE;
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
    return;
  }
  const long verified = SSL_get_verify_result(ssl_);
  if (verified != X509_V_OK) {
    failed(str_cat("the server's certificate is not valid for ", address_.host, ": ",
                   X509_verify_cert_error_string(verified), "; give its authority in remote.ca_file"),
           StoreState::kRefused);
    return;
  }
  failed(str_cat("the TLS handshake failed: ", tls_error()));
}

void RedisConnection::log_in() {
  state_ = State::kUp;
  tls_wants_write_ = false;
  last_sign_ = clock_.now();
  std::string text;
  if (!login_.password.empty()) {
    if (login_.user.empty()) {
      append_resp_command(text, {"AUTH", login_.password});
    } else {
      append_resp_command(text, {"AUTH", login_.user, login_.password});
    }
    send_command({.kind = Expected::Kind::kLogin}, std::exchange(text, {}));
  }
  if (address_.database != 0) {
    append_resp_command(text, {"SELECT", std::to_string(address_.database)});
    send_command({.kind = Expected::Kind::kDatabase}, std::move(text));
  }
  send_waiting();
}

// --- sending ---

void RedisConnection::add(RedisItem item) {
  if (state_ == State::kDown) {
    if (clock_.now() < down_until_) {
      owner_.answered(std::move(item), {.state = last_state_, .error = last_error_});
      return;
    }
    waiting_.push_back(std::move(item));
    connect();
    return;
  }
  waiting_.push_back(std::move(item));
  if (state_ == State::kUp) {
    send_waiting();
  }
}

void RedisConnection::ask_for_slots() {
  wants_slots_ = true;
  if (state_ == State::kUp) {
    send_waiting();
  }
}

void RedisConnection::send_waiting() {
  if (wants_slots_) {
    wants_slots_ = false;
    std::string text;
    append_resp_command(text, {"CLUSTER", "SLOTS"});
    send_command({.kind = Expected::Kind::kSlots}, std::move(text));
  }
  while (!waiting_.empty() && expected_.size() < kWindow) {
    RedisItem item = std::move(waiting_.front());
    waiting_.pop_front();
    send_item(std::move(item));
  }
  if (!write_some()) {
    return;  // the connection was closed
  }
}

void RedisConnection::send_command(Expected expected, std::string text, std::span<const std::byte> body,
                                   std::string tail) {
  if (expected_.empty()) {
    last_sign_ = clock_.now();
  }
  const auto add = [this](Piece piece) {
    queued_ += piece.view().size();
    pieces_.push_back(std::move(piece));
  };
  // Short commands that follow each other are one piece.
  if (!pieces_.empty() && pieces_.back().bytes.empty() && pieces_.back().text.size() < kLongestRespLine &&
      pieces_.size() > 1) {
    queued_ += text.size();
    pieces_.back().text += text;
  } else {
    add({.text = std::move(text)});
  }
  if (!body.empty()) {
    add({.bytes = body});
  }
  if (!tail.empty()) {
    add({.text = std::move(tail)});
  }
  expected.sent_at = queued_;
  expected_.push_back(std::move(expected));
}

void RedisConnection::send_item(RedisItem item) {
  std::string text;
  if (item.is_asking) {
    append_resp_command(text, {"ASKING"});
    send_command({.kind = Expected::Kind::kAsking}, std::exchange(text, {}));
  }
  const StoreItem& of = item.item();
  switch (item.request->operation) {
    case StoreOperation::kContains:
      append_resp_command(text, {"GETRANGE", of.key, "0", std::to_string(kStoreLabelBytes - 1)});
      break;
    case StoreOperation::kGet:
      append_resp_command(text, {"GET", of.key});
      break;
    case StoreOperation::kErase:
      append_resp_command(text, {"UNLINK", of.key});
      break;
    case StoreOperation::kPut:
    case StoreOperation::kReplace: {
      const bool expires = login_.time_to_live_ms != 0 && item.request->operation == StoreOperation::kPut;
      const bool keeps = item.request->operation == StoreOperation::kPut;
      append_resp_start(text, 3U + (keeps ? 1U : 0U) + (expires ? 2U : 0U), {"SET", of.key});
      append_resp_length(text, kStoreLabelBytes + of.body.size());
      text.append(reinterpret_cast<const char*>(of.label.data()), of.label.size());
      std::string tail(kLineEnd);
      if (keeps) {
        append_resp_argument(tail, "NX");
      }
      if (expires) {
        append_resp_argument(tail, "PX");
        append_resp_argument(tail, std::to_string(login_.time_to_live_ms));
      }
      const std::span<const std::byte> body = of.body;
      send_command({.item = std::move(item)}, std::move(text), body, std::move(tail));
      return;
    }
  }
  send_command({.item = std::move(item)}, std::move(text));
}

ssize_t RedisConnection::transmit(const iovec* from, int count) {
  if (ssl_ == nullptr) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(from);  // sendmsg() does not write to it
    message.msg_iovlen = static_cast<std::size_t>(count);
    return sendmsg(file_, &message, MSG_NOSIGNAL);
  }
  tls_wants_write_ = false;
  std::size_t written = 0;
  const int done = SSL_write_ex(ssl_, from->iov_base, from->iov_len, &written);
  if (done == 1) {
    return static_cast<ssize_t>(written);
  }
  const int error = SSL_get_error(ssl_, done);
  tls_wants_write_ = error == SSL_ERROR_WANT_WRITE;
  errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : EPIPE;
  return -1;
}

bool RedisConnection::write_some() {
  while (!pieces_.empty()) {
    iovec vectors[kMostPieces];
    int count = 0;
    for (auto piece = pieces_.begin(); piece != pieces_.end() && count < kMostPieces; ++piece, ++count) {
      std::span<const std::byte> view = piece->view();
      view = view.subspan(count == 0 ? sent_of_first_ : 0);
      vectors[count] = {const_cast<std::byte*>(view.data()), view.size()};
    }
    const ssize_t sent = transmit(vectors, count);
    if (sent < 0) {
      if (errno == EINTR) {
        continue;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return true;
      }
      failed(str_cat("the connection broke: ", system_error(errno)));
      return false;
    }
    sent_ += static_cast<std::uint64_t>(sent);
    std::size_t left = static_cast<std::size_t>(sent) + sent_of_first_;
    while (!pieces_.empty() && left >= pieces_.front().view().size()) {
      left -= pieces_.front().view().size();
      pieces_.pop_front();
    }
    sent_of_first_ = left;
  }
  return true;
}

// --- receiving ---

ssize_t RedisConnection::receive(const iovec* to, int count) {
  if (ssl_ == nullptr) {
    return readv(file_, to, count);
  }
  tls_wants_write_ = false;
  std::size_t got = 0;
  const int done = SSL_read_ex(ssl_, to->iov_base, to->iov_len, &got);
  if (done == 1) {
    return static_cast<ssize_t>(got);
  }
  const int error = SSL_get_error(ssl_, done);
  if (error == SSL_ERROR_ZERO_RETURN) {
    return 0;
  }
  tls_wants_write_ = error == SSL_ERROR_WANT_WRITE;
  errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : EPIPE;
  return -1;
}

bool RedisConnection::read_some() {
  while (true) {
    if (begin_ == end_) {
      begin_ = end_ = 0;
    } else if (end_ == buffer_.size()) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    CAIRN_CHECK(end_ < buffer_.size(), "parse() takes what is in a full buffer");
    // The body goes to its place, and what follows it into the buffer, by one call.
    iovec vectors[2];
    int count = 0;
    const bool is_direct = reading_ == Reading::kBody && body_ != nullptr && begin_ == end_ && body_left_ > 0;
    if (is_direct) {
      vectors[count++] = {body_, body_left_};
    }
    vectors[count++] = {buffer_.data() + end_, buffer_.size() - end_};
    const ssize_t got = receive(vectors, count);
    if (got < 0) {
      if (errno == EINTR) {
        continue;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return true;
      }
      failed(str_cat("the connection broke: ", system_error(errno)));
      return false;
    }
    if (got == 0) {
      failed("the server closed the connection");
      return false;
    }
    last_sign_ = clock_.now();
    auto bytes = static_cast<std::size_t>(got);
    if (is_direct) {
      const std::size_t here = std::min(bytes, body_left_);
      body_ += here;
      body_left_ -= here;
      bytes -= here;
    }
    end_ += bytes;
    if (!parse()) {
      return false;
    }
  }
}

bool RedisConnection::parse() {
  while (true) {
    const std::string_view in = received();
    switch (reading_) {
      case Reading::kHead:
        if (in.empty()) {
          send_waiting();
          return file_ >= 0;
        }
        {
          const std::size_t before = begin_;
          if (!parse_head(in)) {
            return false;
          }
          if (begin_ == before) {
            return true;  // more has to come
          }
        }
        break;
      case Reading::kLabel: {
        if (in.size() < kStoreLabelBytes) {
          return true;
        }
        std::memcpy(outcome_.label.data(), in.data(), kStoreLabelBytes);
        begin_ += kStoreLabelBytes;
        reading_ = Reading::kBody;
        break;
      }
      case Reading::kBody: {
        const std::size_t here = std::min(in.size(), body_left_);
        if (body_ != nullptr && here > 0) {
          std::memcpy(body_, in.data(), here);
          body_ += here;
        }
        begin_ += here;
        body_left_ -= here;
        if (body_left_ > 0) {
          return true;
        }
        reading_ = Reading::kTail;
        break;
      }
      case Reading::kTail:
        if (in.size() < kLineEnd.size()) {
          return true;
        }
        if (!in.starts_with(kLineEnd)) {
          failed("the server sent a value without an end; is it a Redis server?");
          return false;
        }
        begin_ += kLineEnd.size();
        reading_ = Reading::kHead;
        body_ = nullptr;
        end_front(std::exchange(outcome_, {}));
        break;
    }
  }
}

bool RedisConnection::parse_head(std::string_view in) {
  if (expected_.empty()) {
    failed("the server sent a reply that nobody asked for");
    return false;
  }
  Expected& front = expected_.front();
  const Result<std::optional<RespHead>> head = read_resp_head(in);
  if (!head) {
    failed(head.error().message);
    return false;
  }
  if (!*head) {
    return true;
  }
  const RespHead& line = **head;
  if (front.kind != Expected::Kind::kItem) {
    return reply_to_command(in);
  }
  if (line.kind == RespHead::Kind::kError) {
    const std::string text(line.text);
    begin_ += line.bytes;
    error_reply(text);
    return file_ >= 0;
  }
  const StoreOperation operation = front.item.request->operation;
  const bool is_value = operation == StoreOperation::kContains || operation == StoreOperation::kGet;
  if (!is_value) {
    const bool is_null = line.kind == RespHead::Kind::kBulk && line.number < 0;  // SET NX: it was there
    const bool is_right = operation == StoreOperation::kErase ? line.kind == RespHead::Kind::kNumber
                                                              : line.kind == RespHead::Kind::kStatus || is_null;
    if (!is_right) {
      failed("the server answered with something else than was asked for");
      return false;
    }
    begin_ += line.bytes;
    end_front({});
    return true;
  }
  if (line.kind != RespHead::Kind::kBulk) {
    failed("the server answered with something else than was asked for");
    return false;
  }
  begin_ += line.bytes;
  if (line.number < 0) {
    end_front({.state = StoreState::kAbsent});
    return true;
  }
  const auto bytes = static_cast<std::size_t>(line.number);
  const std::size_t body = operation == StoreOperation::kGet ? front.item.item().body.size() : 0;
  outcome_ = {};
  body_ = nullptr;
  body_left_ = bytes;
  reading_ = Reading::kBody;
  if (operation == StoreOperation::kContains && bytes == 0) {
    outcome_.state = StoreState::kAbsent;  // GETRANGE of no key
  } else if (bytes != kStoreLabelBytes + body) {
    outcome_.state = StoreState::kCorrupt;
    outcome_.error =
        str_cat(address_.to_string(), " has a value of ", bytes, " bytes instead of ", kStoreLabelBytes + body);
  } else {
    reading_ = Reading::kLabel;
    body_left_ = body;
    body_ = front.is_abandoned ? nullptr : front.item.item().body.data();
  }
  return true;
}

bool RedisConnection::reply_to_command(std::string_view in) {
  const Result<std::optional<DecodedResp>> decoded = decode_resp(in, {.bytes = buffer_.size() - 1024});
  if (!decoded) {
    failed(decoded.error().message);
    return false;
  }
  if (!*decoded) {
    if (in.size() == buffer_.size()) {
      failed("the server sent a longer reply than was asked for");
      return false;
    }
    return true;
  }
  const RespValue& value = (*decoded)->value;
  begin_ += (*decoded)->bytes;
  const Expected::Kind kind = expected_.front().kind;
  expected_.pop_front();
  const bool is_error = value.kind == RespHead::Kind::kError;
  if (kind == Expected::Kind::kSlots) {
    // A server that is not part of a cluster answers with an error.
    if (const Result<std::vector<RedisSlotRange>> ranges = parse_slots(value)) {
      owner_.learned(*ranges, address_);
    }
    return true;
  }
  if (is_error && kind != Expected::Kind::kAsking) {
    const bool is_login = kind == Expected::Kind::kLogin;
    failed(str_cat(is_login ? "the server refused the password: " : "", value.text,
                   is_login ? "; check remote.user and remote.password" : ""),
           state_of(value.text));
    return false;
  }
  wait_ = Duration::zero();
  return true;
}

void RedisConnection::error_reply(std::string_view text) {
  Expected& front = expected_.front();
  if (const std::optional<RedisRedirection> redirection = parse_redirection(text); redirection && !front.is_abandoned) {
    RedisItem item = std::move(front.item);
    expected_.pop_front();
    owner_.redirected(std::move(item), *redirection);
    return;
  }
  std::string error =
      str_cat(address_.to_string(), " refused a ", to_string(front.item.request->operation), ": ", text);
  if (text.starts_with("NOAUTH")) {
    error += "; give remote.password";
  } else if (text.starts_with("OOM")) {
    error += "; give the server more memory, or let it evict (maxmemory-policy)";
  }
  end_front({.state = state_of(text), .error = std::move(error)});
}

void RedisConnection::end_front(StoreOutcome&& outcome) {
  wait_ = Duration::zero();  // it works
  Expected front = std::move(expected_.front());
  expected_.pop_front();
  if (!front.is_abandoned) {
    owner_.answered(std::move(front.item), std::move(outcome));
  }
}

// --- events ---

short RedisConnection::events() const {
  switch (state_) {
    case State::kDown:
      return 0;
    case State::kConnecting:
      return POLLOUT;
    case State::kHandshake:
      return tls_wants_write_ ? POLLOUT : POLLIN;
    case State::kUp:
      break;
  }
  return static_cast<short>(POLLIN | (pieces_.empty() && !tls_wants_write_ ? 0 : POLLOUT));
}

void RedisConnection::ready(short events) {
  if (events == 0 || state_ == State::kDown) {
    return;
  }
  if (state_ == State::kConnecting) {
    connected();
  } else if (state_ == State::kHandshake) {
    handshake();
  } else {
    if (write_some()) {
      (void)read_some();
    }
  }
}

void RedisConnection::check_deadlines(TimePoint now) {
  const auto is_late = [now](const RedisItem& item) { return item.request->deadline <= now; };
  std::vector<RedisItem> late;
  for (auto item = waiting_.begin(); item != waiting_.end();) {
    if (is_late(*item)) {
      late.push_back(std::move(*item));
      item = waiting_.erase(item);
    } else {
      ++item;
    }
  }
  bool sends_late = false;
  for (Expected& each : expected_) {
    if (each.kind != Expected::Kind::kItem || each.is_abandoned || !is_late(each.item)) {
      continue;
    }
    const StoreOperation operation = each.item.request->operation;
    if ((operation == StoreOperation::kPut || operation == StoreOperation::kReplace) && sent_ < each.sent_at) {
      sends_late = true;  // its body may be read by the next write
      continue;
    }
    if (&each == &expected_.front()) {
      body_ = nullptr;
    }
    each.is_abandoned = true;
    late.push_back(std::move(each.item));
    each.item.request = std::make_shared<StoreRequest>(
        StoreRequest{.operation = operation, .items = std::vector<StoreItem>(1)});  // what its reply looks like
    each.item.index = 0;
  }
  for (RedisItem& item : late) {
    owner_.answered(std::move(item),
                    {.state = StoreState::kExpired, .error = str_cat(address_.to_string(), " did not answer in time")});
  }
  if (sends_late) {
    failed("it did not take what was sent to it in time");
  } else if ((state_ == State::kConnecting || state_ == State::kHandshake) && by_ <= now) {
    failed("it did not accept the connection in time");
  } else if (state_ == State::kUp && !expected_.empty() && last_sign_ + login_.timeout <= now) {
    failed("it has not answered for a while");
  }
}

TimePoint RedisConnection::next_time() const {
  TimePoint next = TimePoint::max();
  for (const RedisItem& item : waiting_) {
    next = std::min(next, item.request->deadline);
  }
  for (const Expected& each : expected_) {
    if (each.kind == Expected::Kind::kItem && !each.is_abandoned) {
      next = std::min(next, each.item.request->deadline);
    }
  }
  if (state_ == State::kConnecting || state_ == State::kHandshake) {
    next = std::min(next, by_);
  } else if (state_ == State::kUp && !expected_.empty()) {
    next = std::min(next, last_sign_ + login_.timeout);
  }
  return next;
}

void RedisConnection::failed(const std::string& why, StoreState state) {
  const bool had_nothing = waiting_.empty() && expected_.empty();
  // The first connection after an idle one was closed is made at once.
  wait_ = had_nothing ? Duration::zero() : std::clamp(wait_ * 2, kFirstWait, kLongestWait);
  const auto jitter = std::chrono::duration_cast<Duration>(wait_ * (0.5 + 0.5 * owner_.random()));
  down_until_ = deadline_after(clock_.now(), jitter);
  last_state_ = state;
  close(why);
}

void RedisConnection::close(const std::string& why) {
  if (ssl_ != nullptr) {
    SSL_free(ssl_);
    ssl_ = nullptr;
  }
  if (file_ >= 0) {
    ::close(file_);
    file_ = -1;
  }
  state_ = State::kDown;
  tls_wants_write_ = false;
  last_error_ = str_cat(address_.to_string(), ": ", why);
  pieces_.clear();
  sent_of_first_ = 0;
  sent_ = queued_ = 0;
  begin_ = end_ = 0;
  reading_ = Reading::kHead;
  body_ = nullptr;
  body_left_ = 0;
  outcome_ = {};
  std::deque<Expected> expected = std::exchange(expected_, {});
  std::deque<RedisItem> waiting = std::exchange(waiting_, {});
  for (Expected& each : expected) {
    if (each.kind == Expected::Kind::kItem && !each.is_abandoned) {
      owner_.answered(std::move(each.item), {.state = last_state_, .error = last_error_});
    }
  }
  for (RedisItem& item : waiting) {
    owner_.answered(std::move(item), {.state = last_state_, .error = last_error_});
  }
}

}  // namespace cairn
