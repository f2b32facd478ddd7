#include "cairn/cli/top.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <utility>

#include <nlohmann/json.hpp>

#include "cairn/base/str_cat.h"
#include "cairn/cli/text.h"

namespace cairn::cli {

namespace {

using Json = nlohmann::json;

const Json& in(const Json& object, const char* name) {
  static const Json kNone;
  const auto found = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && found != object.end() ? *found : kNone;
}
double number(const Json& object, const char* name) {
  const Json& value = in(object, name);
  return value.is_number() ? value.get<double>() : 0;
}
std::string words(const Json& object, const char* name) {
  const Json& value = in(object, name);
  return value.is_string() ? value.get<std::string>() : "";
}
bool is_true(const Json& object, const char* name) {
  const Json& value = in(object, name);
  return value.is_boolean() && value.get<bool>();
}

// How many characters a terminal shows: bytes that do not continue a character.
std::size_t columns_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}
std::string cut(std::string text, std::size_t width) {
  std::size_t columns = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80 && columns++ == width) {
      text.resize(i);
      break;
    }
  }
  return text;
}
std::string left(std::string text, std::size_t width) {
  const std::size_t columns = columns_of(text);
  return columns < width ? text + std::string(width - columns, ' ') : cut(std::move(text), width);
}
std::string right(const std::string& text, std::size_t width) {
  const std::size_t columns = columns_of(text);
  return columns < width ? std::string(width - columns, ' ') + text : text;
}
// What a server sends may hold anything; a terminal obeys control characters.
std::string printable(std::string text) {
  std::ranges::replace_if(text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return text;
}

std::string scaled(double value, std::initializer_list<const char*> units, double step) {
  const char* const* unit = units.begin();
  while (value >= step && unit + 1 != units.end()) {
    value /= step;
    ++unit;
  }
  return str_cat(fixed(value, value >= 100 || unit == units.begin() ? 0 : 1), " ", *unit);
}
std::string bytes(double value) { return scaled(value, {"B", "KiB", "MiB", "GiB", "TiB", "PiB"}, 1024); }
std::string rate(double value) { return scaled(value, {"B/s", "KB/s", "MB/s", "GB/s", "TB/s"}, 1000); }
std::string time_of(double seconds) {
  return seconds < 1e-3 ? str_cat(fixed(seconds * 1e6, 0), " us")
         : seconds < 1  ? str_cat(fixed(seconds * 1e3, 1), " ms")
                        : str_cat(fixed(seconds, 1), " s");
}
std::string ago(double seconds) {
  return seconds < 90     ? str_cat(fixed(seconds, 0), " s")
         : seconds < 5400 ? str_cat(fixed(seconds / 60, 0), " min")
                          : str_cat(fixed(seconds / 3600, 1), " h");
}

std::string bar(double share, std::size_t width) {
  const auto full = static_cast<std::size_t>(std::lround(std::clamp(share, 0.0, 1.0) * static_cast<double>(width)));
  std::string text;
  for (std::size_t i = 0; i < width; ++i) {
    text += i < full ? "█" : "░";
  }
  return text;
}

std::string name_of(const std::string& level) {
  return level == "G1" ? "device" : level == "G2" ? "host" : level == "G3" ? "disk" : level == "G4" ? "remote" : level;
}

// The element of an array of another sample with the same names.
const Json& same_in(const Json& array, const Json& one, std::initializer_list<const char*> names) {
  static const Json kNone;
  for (const Json& other : array) {
    if (std::ranges::all_of(names, [&](const char* name) { return words(other, name) == words(one, name); })) {
      return other;
    }
  }
  return kNone;
}

void add_tiers(const Json& status, std::size_t width, std::vector<std::string>& lines) {
  lines.push_back("TIER      USED");
  for (const Json& tier : in(status, "tiers")) {
    const double blocks = number(tier, "blocks");
    const double used = blocks - number(tier, "free");
    const std::size_t bar_width = std::clamp<std::size_t>(width > 70 ? width - 62 : 8, 8, 40);
    std::string line = left(name_of(words(tier, "level")), 9);
    if (blocks == 0) {
      line += " managed by the engine";
    } else {
      line += str_cat(" ", bar(used / blocks, bar_width), right(str_cat(fixed(100 * used / blocks, 0), " %"), 6), "  ",
                      right(bytes(used * number(tier, "block_bytes")), 10), " of ",
                      left(bytes(blocks * number(tier, "block_bytes")), 10), " in use ",
                      with_commas(static_cast<std::uint64_t>(number(tier, "in_use"))));
    }
    lines.push_back(line);
    for (const char* const use : {"reading", "writing"}) {
      if (in(tier, use).is_object() && !is_true(in(tier, use), "is_up")) {
        // On a line of its own: a narrow terminal must not cut it off.
        lines.push_back(str_cat(left(name_of(words(tier, "level")), 9), " OUT: ", words(in(tier, use), "reason")));
        break;
      }
    }
  }
}

void add_hits(const Json& status, const Json& before, std::vector<std::string>& lines) {
  // Tokens of requests if a connector counts them, else blocks that loads looked up.
  const Json& tokens = in(in(status, "tokens"), "total");
  const Json& tokens_before = in(in(before, "tokens"), "total");
  const Json& onboard = in(status, "onboard");
  const Json& onboard_before = in(before, "onboard");
  const auto grown = [](const Json& now, const Json& then, const char* name) {
    return std::max(0.0, number(now, name) - number(then, name));
  };
  double all = grown(tokens, tokens_before, "asked");
  std::array<double, 4> parts = {grown(tokens, tokens_before, "device"), grown(tokens, tokens_before, "loaded_host"),
                                 grown(tokens, tokens_before, "loaded_disk"), 0};
  if (!tokens.is_object()) {
    const Json& hits = in(onboard, "hits");
    const Json& hits_before = in(onboard_before, "hits");
    parts = {grown(hits, hits_before, "G1"), grown(hits, hits_before, "G2"), grown(hits, hits_before, "G3"),
             grown(hits, hits_before, "G4")};
    all = parts[0] + parts[1] + parts[2] + parts[3] + grown(onboard, onboard_before, "misses");
  }
  std::string line = str_cat("HITS      ", before.is_object() ? "now   " : "since the start   ");
  if (all <= 0) {
    lines.push_back(line + "nothing was asked for");
    return;
  }
  const auto percent = [all](double part) { return str_cat(fixed(100 * part / all, 1), " %"); };
  lines.push_back(line + str_cat(percent(parts[0] + parts[1] + parts[2] + parts[3]), "   device ", percent(parts[0]),
                                 "   host ", percent(parts[1]), "   disk ", percent(parts[2]),
                                 parts[3] > 0 ? str_cat("   remote ", percent(parts[3])) : ""));
}

void add_links(const Json& status, const Json& before, double seconds, std::vector<std::string>& lines) {
  const auto row = [](const std::string& link, const std::string& now, const std::string& limit,
                      const std::string& blocks, const std::string& failed, const std::string& state) {
    return str_cat(left(link, 9), right(now, 12), right(limit, 12), right(blocks, 14), right(failed, 10), "  ", state);
  };
  lines.push_back(row("LINK", "NOW", "LIMIT", "BLOCKS", "FAILED", "STATE"));
  for (const Json& link : in(status, "links")) {
    const Json& then = same_in(in(before, "links"), link, {"from", "to"});
    const double moved =
        then.is_object() && seconds > 0 ? std::max(0.0, number(link, "bytes") - number(then, "bytes")) / seconds : 0;
    const double failed = number(link, "failed") + number(link, "expired") + number(link, "mismatched");
    lines.push_back(row(str_cat(words(link, "from"), "-", words(link, "to")), then.is_object() ? rate(moved) : "-",
                        rate(number(link, "bytes_per_second")),
                        with_commas(static_cast<std::uint64_t>(number(link, "done"))),
                        with_commas(static_cast<std::uint64_t>(failed)), is_true(link, "is_paused") ? "paused" : "on"));
  }
}

void add_times(const Json& times, std::vector<std::string>& lines) {
  std::vector<Json> operations;
  for (const Json& one : in(times, "operations")) {
    if (number(one, "count") > 0) {
      operations.push_back(one);
    }
  }
  if (operations.empty()) {
    return;
  }
  std::ranges::sort(operations, [](const Json& a, const Json& b) { return number(a, "p99") > number(b, "p99"); });
  lines.push_back("");
  lines.push_back(str_cat(left("SLOWEST", 26), right("COUNT", 12), right("P50", 11), right("P99", 11)));
  for (const Json& one : operations) {
    std::string name = words(one, "name");
    name = name == "cairn_load_seconds" ? "load" : name == "cairn_copy_seconds" ? "copy" : name;
    const std::string link = words(in(one, "labels"), "link");
    lines.push_back(str_cat(left(str_cat(name, link.empty() ? "" : " ", link), 26),
                            right(with_commas(static_cast<std::uint64_t>(number(one, "count"))), 12),
                            right(time_of(number(one, "p50")), 11), right(time_of(number(one, "p99")), 11)));
  }
}

// Puts the terminal into a state for a full screen, and back.
class Screen {
 public:
  explicit Screen(std::ostream& out) : out_(out) {
    tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    out_ << "\x1b[?1049h\x1b[?25l" << std::flush;
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  ~Screen() {
    out_ << "\x1b[?25h\x1b[?1049l" << std::flush;
    tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }

  // The size is asked for each time: the window may have changed.
  static std::pair<std::size_t, std::size_t> size() {
    winsize window{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0 || window.ws_row == 0) {
      return {80, 24};
    }
    return {window.ws_col, window.ws_row};
  }

  void show(const std::vector<std::string>& lines) {
    out_ << "\x1b[H";
    for (std::size_t i = 0; i < lines.size(); ++i) {
      out_ << (i == 0 ? "" : "\r\n") << lines[i] << "\x1b[K";
    }
    out_ << "\x1b[J" << std::flush;
  }

 private:
  std::ostream& out_;
  termios before_{};
};

Result<TopSample> look(const CtlTarget& target) {
  TopSample sample;
  CAIRN_TRY_ASSIGN(sample.status, get_text(target, "/v1/status"));
  CAIRN_TRY_ASSIGN(sample.times, get_text(target, "/v1/times"));
  return sample;
}

}  // namespace

std::vector<std::string> top_lines(const TopSample& now, const TopSample& before, std::size_t width,
                                   std::size_t height) {
  const Json status = Json::parse(now.status, nullptr, /*allow_exceptions=*/false);
  const Json then = Json::parse(before.status, nullptr, /*allow_exceptions=*/false);
  std::vector<std::string> lines;
  if (!status.is_object()) {
    lines.emplace_back("the server's answer is not a status; is this a Cairn of another version?");
  } else {
    const double seconds = number(status, "uptime_seconds") - number(then, "uptime_seconds");
    const auto incidents = static_cast<std::uint64_t>(number(status, "incident_count"));
    lines.push_back(str_cat("Cairn worker ", static_cast<std::uint64_t>(number(status, "worker_id")), ", up for ",
                            ago(number(status, "uptime_seconds")), ", ", with_commas(incidents),
                            incidents == 1 ? " incident, " : " incidents, ",
                            static_cast<std::uint64_t>(number(in(status, "onboard"), "loads")), " loads in flight"));
    lines.emplace_back("");
    add_tiers(status, width, lines);
    lines.emplace_back("");
    add_hits(status, then, lines);
    lines.emplace_back("");
    add_links(status, then, seconds, lines);
    add_times(Json::parse(now.times, nullptr, /*allow_exceptions=*/false), lines);
    const Json& last = in(status, "incidents");
    for (auto one = last.rbegin(); last.is_array() && one != last.rend() && one - last.rbegin() < 3; ++one) {
      if (one == last.rbegin()) {
        lines.emplace_back("");
      }
      lines.push_back(str_cat("INCIDENT  ", ago(number(*one, "seconds_ago")), " ago, ", words(*one, "kind"), ": ",
                              words(*one, "text")));
    }
  }
  lines.resize(std::min(lines.size(), height));
  for (std::string& line : lines) {
    line = cut(printable(std::move(line)), width);
  }
  return lines;
}

Status run_top(const TopOptions& options, std::ostream& out, const std::atomic<bool>& stop) {
  const bool is_terminal = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
  CAIRN_TRY_ASSIGN(TopSample now, look(options.target));
  if (options.once || !is_terminal) {
    if (options.json) {
      out << "{\"status\":" << now.status << ",\"times\":" << now.times << "}\n";
      return {};
    }
    for (const std::string& line : top_lines(now, {}, 120, 1000)) {
      out << line << "\n";
    }
    return {};
  }
  Screen screen(out);
  TopSample before;
  while (!stop.load(std::memory_order_relaxed)) {
    const auto [width, height] = Screen::size();
    std::vector<std::string> lines = top_lines(now, before, width, height > 1 ? height - 1 : 1);
    lines.push_back(cut("q quits", width));
    screen.show(lines);
    pollfd key{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (::poll(&key, 1, static_cast<int>(options.seconds * 1000)) == 1) {
      char pressed = 0;
      if (::read(STDIN_FILENO, &pressed, 1) != 1 || pressed == 'q' || pressed == 'Q') {
        return {};
      }
      continue;  // another key, or a part of one
    }
    Result<TopSample> next = look(options.target);
    if (!next) {
      return Unexpected(std::move(next).error());
    }
    before = std::exchange(now, *std::move(next));
  }
  return {};
}

}  // namespace cairn::cli
