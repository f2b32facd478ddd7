#include "cairn/trace/trace_row.h"

#include <charconv>
#include <cmath>
#include <string>

#include "cairn/base/str_cat.h"

namespace cairn::trace {

namespace {

constexpr int kMaxDepth = 32;

// Reads JSON from the front of a line; every function returns false if the text is not what it expects.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  [[nodiscard]] std::size_t place() const { return at_; }
  [[nodiscard]] bool take(char wanted) {
    skip_space();
    if (at_ < text_.size() && text_[at_] == wanted) {
      ++at_;
      return true;
    }
    return false;
  }
  [[nodiscard]] bool at_end() {
    skip_space();
    return at_ == text_.size();
  }

  // The text between the quotes, with its escapes.
  [[nodiscard]] bool string(std::string_view& out) {
    if (!take('"')) {
      return false;
    }
    const std::size_t begin = at_;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\\') {
        ++at_;
      } else if (text_[at_] == '"') {
        out = text_.substr(begin, at_++ - begin);
        return true;
      }
    }
    return false;
  }

  template <typename Number>
  [[nodiscard]] bool number(Number& out) {
    skip_space();
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), out);
    if (error != std::errc()) {
      return false;
    }
    at_ = static_cast<std::size_t>(end - text_.data());
    return true;
  }

  [[nodiscard]] bool skip_value(int depth = 0) {
    skip_space();
    if (at_ == text_.size() || depth > kMaxDepth) {
      return false;
    }
    std::string_view text;
    double value = 0;
    switch (text_[at_]) {
      case '"':
        return string(text);
      case '{':
        return skip_members('}', depth, [&] { return string(text) && take(':'); });
      case '[':
        return skip_members(']', depth, [] { return true; });
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      default:
        return number(value);
    }
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }
  [[nodiscard]] bool word(std::string_view wanted) {
    if (text_.substr(at_, wanted.size()) != wanted) {
      return false;
    }
    at_ += wanted.size();
    return true;
  }
  template <typename Name>
  [[nodiscard]] bool skip_members(char close, int depth, Name name) {
    ++at_;
    if (take(close)) {
      return true;
    }
    do {
      if (!name() || !skip_value(depth + 1)) {
        return false;
      }
    } while (take(','));
    return take(close);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

[[nodiscard]] bool read_ids(Scanner& scanner, std::vector<std::uint64_t>& ids) {
  if (!scanner.take('[')) {
    return false;
  }
  if (scanner.take(']')) {
    return true;
  }
  do {
    if (!scanner.number(ids.emplace_back())) {
      return false;
    }
  } while (scanner.take(','));
  return scanner.take(']');
}

// A string or a number, as it is written.
[[nodiscard]] bool read_session(Scanner& scanner, std::string& session) {
  std::string_view text;
  if (scanner.string(text)) {
    session = text;
    return true;
  }
  std::int64_t number = 0;
  if (!scanner.number(number)) {
    return false;
  }
  session = std::to_string(number);
  return true;
}

// A string; anything else, such as the token at which an engine stopped, says nothing.
[[nodiscard]] bool read_ending(Scanner& scanner, std::string& ending) {
  std::string_view text;
  if (!scanner.string(text)) {
    return scanner.skip_value();
  }
  ending = text;
  return true;
}

[[nodiscard]] bool read_member(Scanner& scanner, std::string_view name, TraceRow& row) {
  if (name == "hash_ids") {
    row.hash_ids.clear();
    return read_ids(scanner, row.hash_ids);
  }
  if (name == "input_length" || name == "input_tokens") {
    return scanner.number(row.input_tokens);
  }
  if (name == "timestamp" || name == "created_time") {
    return scanner.number(row.timestamp_ms) && std::isfinite(row.timestamp_ms);
  }
  if (name == "output_length" || name == "output_tokens") {
    return scanner.number(row.output_tokens);
  }
  if (name == "session_id") {
    return read_session(scanner, row.session);
  }
  if (name == "delay" || name == "delay_ms") {
    return scanner.number(row.delay_ms.emplace()) && *row.delay_ms >= 0 && std::isfinite(*row.delay_ms);
  }
  if (name == "ending" || name == "finish_reason" || name == "stop_reason") {
    return read_ending(scanner, row.ending);
  }
  return scanner.skip_value();
}

}  // namespace

Status parse_trace_row(std::string_view line, TraceRow& row) {
  row.timestamp_ms = 0;
  row.input_tokens = 0;
  row.output_tokens = 0;
  row.session.clear();
  row.delay_ms.reset();
  row.ending.clear();
  row.hash_ids.clear();
  Scanner scanner(line);
  const auto bad = [&scanner](std::string_view what) {
    return fail(ErrorCode::kCorrupt, str_cat(what, " at column ", scanner.place() + 1));
  };
  if (!scanner.take('{')) {
    return bad("no JSON object");
  }
  if (!scanner.take('}')) {
    do {
      std::string_view name;
      if (!scanner.string(name) || !scanner.take(':')) {
        return bad("no member name");
      }
      if (!read_member(scanner, name, row)) {
        return bad(str_cat("no usable value of '", name.substr(0, 40), "'"));
      }
    } while (scanner.take(','));
    if (!scanner.take('}')) {
      return bad("no end of the object");
    }
  }
  if (!scanner.at_end()) {
    return bad("something after the object");
  }
  if (row.hash_ids.empty()) {
    return fail(ErrorCode::kCorrupt, "no hash_ids, or none in them");
  }
  return {};
}

}  // namespace cairn::trace
