#include "cairn/cluster/resp.h"

#include <charconv>
#include <utility>

#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

constexpr std::string_view kEndOfLine = "\r\n";

Unexpected<Error> not_resp(std::string_view what) {
  return fail(ErrorCode::kCorrupt, str_cat("the server sent ", what, "; is it a Redis server?"));
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// Reads one value and what it contains. `in` shrinks by what was read.
class RespReader {
 public:
  RespReader(std::string_view in, const RespLimits& limits) : in_(in), limits_(limits) {}

  [[nodiscard]] std::size_t read() const { return read_; }

  // False if more bytes are needed.
  Result<bool> value(RespValue& into, std::uint32_t depth) {
    if (depth > limits_.depth || ++elements_ > limits_.elements) {
      return not_resp("a reply with too many elements");
    }
    CAIRN_TRY_ASSIGN(const std::optional<RespHead> head, read_resp_head(in_.substr(read_)));
    if (!head) {
      return false;
    }
    read_ += head->bytes;
    into.kind = head->kind;
    into.number = head->number;
    into.is_null = head->number < 0 && (head->kind == RespHead::Kind::kBulk || head->kind == RespHead::Kind::kArray);
    into.text = head->text;
    if (into.is_null) {
      return true;
    }
    if (head->kind == RespHead::Kind::kBulk) {
      return bulk(into, static_cast<std::size_t>(head->number));
    }
    if (head->kind == RespHead::Kind::kArray) {
      for (std::int64_t i = 0; i < head->number; ++i) {
        CAIRN_TRY_ASSIGN(const bool whole, value(into.elements.emplace_back(), depth + 1));
        if (!whole) {
          return false;
        }
      }
    }
    return true;
  }

 private:
  Result<bool> bulk(RespValue& into, std::size_t bytes) {
    if (bytes > limits_.bytes) {
      return not_resp("a longer reply than was asked for");
    }
    if (in_.size() - read_ < bytes + kEndOfLine.size()) {
      return false;
    }
    into.text = in_.substr(read_, bytes);
    if (in_.substr(read_ + bytes, kEndOfLine.size()) != kEndOfLine) {
      return not_resp("a value without an end");
    }
    read_ += bytes + kEndOfLine.size();
    return true;
  }

  const std::string_view in_;
  const RespLimits limits_;
  std::size_t read_ = 0;
  std::size_t elements_ = 0;
};

}  // namespace

void append_resp_length(std::string& to, std::size_t bytes) {
  to += '$';
  to += std::to_string(bytes);
  to += kEndOfLine;
}

void append_resp_argument(std::string& to, std::string_view argument) {
  append_resp_length(to, argument.size());
  to += argument;
  to += kEndOfLine;
}

void append_resp_start(std::string& to, std::size_t arguments, std::initializer_list<std::string_view> first) {
  to += '*';
  to += std::to_string(arguments);
  to += kEndOfLine;
  for (const std::string_view argument : first) {
    append_resp_argument(to, argument);
  }
}

void append_resp_command(std::string& to, std::initializer_list<std::string_view> arguments) {
  append_resp_start(to, arguments.size(), arguments);
}

Result<std::optional<RespHead>> read_resp_head(std::string_view in) {
  const std::size_t end = in.substr(0, kLongestRespLine).find(kEndOfLine);
  if (end == std::string_view::npos) {
    if (in.size() >= kLongestRespLine) {
      return not_resp("a line without an end");
    }
    return std::optional<RespHead>();
  }
  if (end == 0) {
    return not_resp("an empty line");
  }
  RespHead head{.text = in.substr(1, end - 1), .bytes = end + kEndOfLine.size()};
  switch (in.front()) {
    case '+':
      head.kind = RespHead::Kind::kStatus;
      return std::optional(head);
    case '-':
      head.kind = RespHead::Kind::kError;
      return std::optional(head);
    case ':':
      head.kind = RespHead::Kind::kNumber;
      break;
    case '$':
      head.kind = RespHead::Kind::kBulk;
      break;
    case '*':
      head.kind = RespHead::Kind::kArray;
      break;
    default:
      return not_resp("a reply of an unknown kind");
  }
  const std::optional<std::int64_t> number = whole_number(head.text);
  if (!number || (head.kind != RespHead::Kind::kNumber && (*number < -1 || *number > kLargestBulk))) {
    return not_resp("a reply with a wrong length");
  }
  head.number = *number;
  head.text = {};
  return std::optional(head);
}

Result<std::optional<DecodedResp>> decode_resp(std::string_view in, const RespLimits& limits) {
  RespReader reader(in, limits);
  RespValue value;
  CAIRN_TRY_ASSIGN(const bool whole, reader.value(value, 0));
  if (!whole) {
    if (in.size() > limits.bytes) {
      return not_resp("a longer reply than was asked for");
    }
    return std::optional<DecodedResp>();
  }
  return std::optional(DecodedResp{std::move(value), reader.read()});
}

}  // namespace cairn
