#include "cairn/sim/engine_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "cairn/base/str_cat.h"

namespace cairn::sim {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

// Removes and returns the text before the next comma.
std::string_view next_field(std::string_view& rest) {
  const std::size_t comma = std::min(rest.find(','), rest.size());
  const std::string_view field = trimmed(rest.substr(0, comma));
  rest.remove_prefix(std::min(comma + 1, rest.size()));
  return field;
}

std::optional<double> number_in(std::string_view field) {
  double number = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), number);
  const bool whole = error == std::errc() && end == field.data() + field.size();
  return whole && std::isfinite(number) && number >= 0 ? std::optional(number) : std::nullopt;
}

}  // namespace

Status CostModel::add_line(std::string_view line, CostModel& model) {
  std::string_view rest = line;
  const std::string_view kind = next_field(rest);
  const std::optional<double> tokens = number_in(next_field(rest));
  const std::optional<double> ms = number_in(next_field(rest));
  if ((kind != "prefill" && kind != "prompt" && kind != "decode") || !tokens || !ms || !rest.empty()) {
    return fail(ErrorCode::kCorrupt,
                str_cat("'", line.substr(0, 60),
                        "' is not a point; write prefill,TOKENS,MS or prompt,TOKENS,MS or decode,TOKENS,MS"));
  }
  std::vector<Point>& points = kind == "prefill"  ? model.prefill_points_
                               : kind == "prompt" ? model.prompt_points_
                                                  : model.decode_points_;
  const auto place = std::ranges::lower_bound(points, *tokens, {}, &Point::tokens);
  if (place != points.end() && place->tokens == *tokens) {
    return fail(ErrorCode::kCorrupt, str_cat("two ", kind, " points have the same tokens; keep one of them"));
  }
  points.insert(place, {*tokens, *ms});
  return {};
}

Result<CostModel> CostModel::parse(std::string_view csv) {
  CostModel model;
  std::size_t number = 0;
  bool titles_may_come = true;
  while (!csv.empty()) {
    const std::size_t end = std::min(csv.find('\n'), csv.size());
    const std::string_view line = trimmed(csv.substr(0, end));
    csv.remove_prefix(std::min(end + 1, csv.size()));
    ++number;
    if (line.empty() || line.front() == '#') {
      continue;
    }
    const bool has_digits = line.find_first_of("0123456789") != std::string_view::npos;
    if (std::exchange(titles_may_come, false) && !has_digits) {
      continue;
    }
    if (Status added = add_line(line, model); !added) {
      return fail(added.error().code, str_cat("line ", number, ": ", added.error().message));
    }
  }
  if (!model.prefill_points_.empty() && !model.prompt_points_.empty()) {
    return fail(ErrorCode::kInvalidArgument, "the costs have prefill points and prompt points; give one of both kinds");
  }
  const std::size_t prefills = std::max(model.prefill_points_.size(), model.prompt_points_.size());
  if (prefills < 2 || model.decode_points_.size() < 2) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("the costs have ", prefills, " prefill or prompt points and ", model.decode_points_.size(),
                        " decode points; give at least two of each"));
  }
  return model;
}

Result<CostModel> CostModel::with_speedup(double factor) const {
  if (!std::isfinite(factor) || factor <= 0) {
    return fail(ErrorCode::kInvalidArgument, str_cat("speedup ", factor, " is not above 0; give a positive number"));
  }
  CostModel model = *this;
  model.speedup_ = factor;
  return model;
}

double CostModel::on_line(const std::vector<Point>& points, double tokens) {
  const auto above = std::ranges::lower_bound(points, tokens, {}, &Point::tokens);
  const auto second = std::clamp(above, points.begin() + 1, points.end() - 1);
  const Point& a = *(second - 1);
  const Point& b = *second;
  return std::max(0.0, a.ms + (b.ms - a.ms) * (tokens - a.tokens) / (b.tokens - a.tokens));
}

Duration CostModel::scaled(double ms) const {
  double nanoseconds = std::nearbyint(ms * 1e6);
  if (speedup_ != 1) {
    nanoseconds = std::nearbyint(nanoseconds / speedup_);
  }
  return Duration(static_cast<Duration::rep>(nanoseconds));
}

Duration CostModel::prefill(std::uint64_t tokens) const {
  if (tokens == 0) {
    return Duration(0);
  }
  if (depends_on_context()) {
    return prefill({{PromptPart{.after = tokens}}});
  }
  const auto t = static_cast<double>(tokens);
  return scaled(prefill_points_.empty() ? 4.209989e-7 * t * t + 1.518344e-2 * t + 16.50142
                                        : on_line(prefill_points_, t));
}

Duration CostModel::prefill(std::span<const PromptPart> parts) const {
  double ms = parts.empty() ? 0 : on_line(prompt_points_, 0);
  for (const PromptPart& part : parts) {
    ms += on_line(prompt_points_, static_cast<double>(part.after)) -
          on_line(prompt_points_, static_cast<double>(part.before));
  }
  return scaled(ms);
}

Duration CostModel::decode(const CacheUse& use) const {
  if (!decode_points_.empty()) {
    return scaled(on_line(decode_points_, static_cast<double>(use.blocks) * use.block_size));
  }
  const double p = std::min(1.0, static_cast<double>(use.blocks) / static_cast<double>(use.capacity));
  return scaled(std::max(1.0, -25.74 * p * p + 54.01 * p + 5.74));
}

}  // namespace cairn::sim
