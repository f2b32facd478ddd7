#include "cairn/base/json_writer.h"

#include <cmath>

namespace cairn {

void JsonWriter::value(double number) {
  if (!std::isfinite(number)) {
    value(nullptr);
    return;
  }
  separate();
  char text[32];
  out_.append(text, std::to_chars(text, text + sizeof text, number).ptr);
}

void JsonWriter::value(double number, int digits) {
  if (!std::isfinite(number)) {
    value(nullptr);
    return;
  }
  separate();
  char text[64];
  out_.append(text, std::to_chars(text, text + sizeof text, number, std::chars_format::general, digits).ptr);
}

void JsonWriter::quote(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  out_.push_back('"');
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out_.push_back('\\');
      out_.push_back(c);
    } else if (byte < 0x20) {
      const char escaped[] = {'\\', 'u', '0', '0', kHex[byte >> 4], kHex[byte & 15]};
      out_.append(escaped, sizeof escaped);
    } else {
      out_.push_back(c);
    }
  }
  out_.push_back('"');
}

}  // namespace cairn
