#include "cairn/transfer/cuda_tuning.h"

#include <charconv>

#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

// Every number by its name, in the order of the text.
template <typename Tuning, typename Visit>
void visit(Tuning& tuning, Visit each) {
  each("multiprocessors", tuning.multiprocessors);
  each("piece_bytes", tuning.piece_bytes);
  each("pieces", tuning.pieces);
  each("stage_from_bytes", tuning.stage_from_bytes);
  each("engines_from_bytes", tuning.engines_from_bytes);
}

}  // namespace

std::string CudaTuning::to_string() const {
  std::string text;
  visit(*this,
        [&text](std::string_view name, auto value) { text += str_cat(text.empty() ? "" : " ", name, "=", value); });
  return text;
}

Result<CudaTuning> CudaTuning::parse(std::string_view text) {
  CudaTuning tuning;
  while (!text.empty()) {
    const std::size_t end = text.find(' ');
    const std::string_view word = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (word.empty()) {
      continue;
    }
    const std::size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const std::string_view number = equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1);
    bool known = false;
    bool read = false;
    visit(tuning, [&](std::string_view own, auto& value) {
      if (own == name) {
        known = true;
        const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), value);
        read = error == std::errc() && stop == number.data() + number.size();
      }
    });
    if (!known || !read) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("'", word, "' is no part of a CUDA tuning such as '", CudaTuning().to_string(), "'"));
    }
  }
  return tuning;
}

}  // namespace cairn
