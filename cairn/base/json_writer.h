// JsonWriter: appends one JSON value to a string as it is written, without a tree in memory.
//
//   JsonWriter json(out);
//   json.begin_object();
//   json.field("tier", "G2");
//   json.begin_array("blocks");
//   for (const std::uint64_t block : blocks) json.value(block);
//   json.end_array();
//   json.end_object();                                   // {"tier":"G2","blocks":[1,2]}
//
// The writer puts commas and quotes; the caller closes what it opened, in order. There are no spaces, and no line breaks
// but those of line_break(). Text is UTF-8 and written as it is, except for quotes, backslashes and control characters.
//
// Ownership: borrows `out`, to which the caller may append between two calls.
// Complexity: allocates only what `out` needs to grow.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

namespace cairn {

class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  void begin_object() { begin('{'); }
  void begin_object(std::string_view name) {
    key(name);
    begin('{');
  }
  void end_object() { end('}'); }
  void begin_array() { begin('['); }
  void begin_array(std::string_view name) {
    key(name);
    begin('[');
  }
  void end_array() { end(']'); }

  // The name of the next value of an object.
  void key(std::string_view name) {
    separate();
    quote(name);
    out_.push_back(':');
    needs_comma_ = false;
  }

  void value(std::string_view text) {
    separate();
    quote(text);
  }
  void value(const char* text) { value(std::string_view(text)); }
  void value(std::same_as<bool> auto flag) {
    separate();
    out_.append(flag ? "true" : "false");
  }
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  void value(T number) {
    separate();
    char digits[24];
    out_.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
  }
  // The shortest text that reads back as the same number; null if it is infinite or not a number.
  void value(double number);
  // At most `digits` significant digits, like "%.6g".
  void value(double number, int digits);
  void value(std::nullptr_t) {
    separate();
    out_.append("null");
  }

  // A value that is JSON already.
  void raw(std::string_view json) {
    separate();
    out_.append(json);
  }

  template <typename T>
  void field(std::string_view name, const T& content) {
    key(name);
    value(content);
  }
  void field(std::string_view name, double content, int digits) {
    key(name);
    value(content, digits);
  }

  // The next value or the next bracket starts a new line.
  void line_break() { breaks_line_ = true; }

 private:
  void begin(char bracket) {
    separate();
    out_.push_back(bracket);
    needs_comma_ = false;
  }
  void end(char bracket) {
    needs_comma_ = false;
    separate();
    out_.push_back(bracket);
  }
  void separate() {
    if (needs_comma_) {
      out_.push_back(',');
    }
    if (breaks_line_) {
      out_.push_back('\n');
      breaks_line_ = false;
    }
    needs_comma_ = true;
  }
  void quote(std::string_view text);

  std::string& out_;
  bool needs_comma_ = false;
  bool breaks_line_ = false;
};

}  // namespace cairn
