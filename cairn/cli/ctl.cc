#include "cairn/cli/ctl.h"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <istream>
#include <iterator>
#include <map>
#include <ostream>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "cairn/base/str_cat.h"
#include "cairn/cli/serve.h"
#include "cairn/cli/text.h"
#include "cairn/cli/top.h"
#include "cairn/server/http_call.h"

namespace cairn::cli {

namespace {

using Json = nlohmann::json;

constexpr auto kLongestCall = std::chrono::seconds(15);

Result<std::string> token_of(const CtlTarget& target) {
  if (target.token_file.empty()) {
    const char* const token = std::getenv("CAIRN_HTTP_TOKEN");
    return token == nullptr ? std::string() : std::string(token);
  }
  std::ifstream file(target.token_file);
  std::string token;
  if (!(file >> token)) {
    return fail(ErrorCode::kIo, str_cat("cannot read a token from ", target.token_file));
  }
  return token;
}

Result<std::string> call(const CtlTarget& target, const std::string& method, const std::string& path,
                         const std::string& body) {
  Result<HttpAddress> address = HttpAddress::parse(target.address);
  if (!address) {
    return Unexpected(std::move(address).error());
  }
  HttpRequest request{.method = method, .body = body};
  const std::size_t question = path.find('?');
  request.path = path.substr(0, question);
  request.query = question == std::string::npos ? "" : path.substr(question + 1);
  if (method == "POST") {
    CAIRN_TRY_ASSIGN(const std::string token, token_of(target));
    request.authorization = token.empty() ? "" : str_cat("Bearer ", token);
  }
  Result<HttpResponse> response = call_http(*address, request, kLongestCall);
  if (!response) {
    Error error = std::move(response).error();
    if (error.code == ErrorCode::kUnavailable) {
      error.message += "; is a manager with http.listen running there? (--address, or CAIRN_HTTP_LISTEN)";
    }
    return Unexpected(std::move(error));
  }
  if (response->status >= 400 && path != "/readyz") {
    const Json answer = Json::parse(response->body, nullptr, /*allow_exceptions=*/false);
    const bool has_message = answer.is_object() && answer.contains("error") && answer["error"].is_object() &&
                             answer["error"].contains("message") && answer["error"]["message"].is_string();
    return fail(response->status == 401 ? ErrorCode::kFailedPrecondition : ErrorCode::kInvalidArgument,
                has_message ? answer["error"]["message"].get<std::string>()
                            : str_cat(target.address, " answers with status ", response->status, ": ", response->body));
  }
  return std::move(response->body);
}

Result<Json> as_json(std::string_view text) {
  Json answer = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) {
    return fail(ErrorCode::kCorrupt, "the server's answer is not JSON; is this a Cairn of another version?");
  }
  return answer;
}

// The value of a field of an answer, as text: another version may lack it.
std::string shown(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) {
    return "?";
  }
  return found->is_number_unsigned() ? with_commas(found->get<std::uint64_t>())
         : found->is_string()        ? found->get<std::string>()
                                     : found->dump();
}

void show_incidents(const Json& answer, std::ostream& out) {
  const auto& incidents = answer["incidents"];
  if (incidents.empty()) {
    out << "No incidents since the start.\n";
  }
  for (const Json& one : incidents) {
    out << shown(one, "kind") << ", " << shown(one, "level") << ", "
        << static_cast<std::uint64_t>(one.value("seconds_ago", 0.0)) << " s ago: " << shown(one, "text") << "\n    "
        << shown(one, "advice") << "\n";
  }
}

void show_prefixes(const Json& answer, std::ostream& out) {
  out << std::setw(10) << "tokens" << std::setw(12) << "sequences" << std::setw(15) << "blocks saved"
      << "  key\n";
  for (const Json& one : answer["prefixes"]) {
    out << std::setw(10) << shown(one, "tokens") << std::setw(12) << shown(one, "sequences") << std::setw(15)
        << shown(one, "blocks_saved") << "  " << shown(one, "key") << "\n";
  }
}

void show_times(const Json& answer, std::ostream& out) {
  out << std::left << std::setw(34) << "operation" << std::right << std::setw(12) << "count" << std::setw(12)
      << "p50 ms" << std::setw(12) << "p90 ms" << std::setw(12) << "p99 ms" << "\n";
  for (const Json& one : answer["operations"]) {
    const std::string link = one.contains("labels") ? one["labels"].value("link", "") : "";
    out << std::left << std::setw(34) << str_cat(shown(one, "name"), link.empty() ? "" : " ", link) << std::right
        << std::setw(12) << shown(one, "count");
    for (const char* const quantile : {"p50", "p90", "p99"}) {
      out << std::setw(12) << fixed(one.value(quantile, 0.0) * 1000, 3);
    }
    out << "\n";
  }
}

// The fields of a small answer, one a line.
void show_fields(const Json& answer, std::ostream& out) {
  for (const auto& [name, value] : answer.items()) {
    out << std::left << std::setw(16) << name << (value.is_structured() ? value.dump() : shown(answer, name.c_str()))
        << "\n"
        << std::right;
  }
}

struct Action {
  const char* method;
  const char* path;
  std::size_t least_words;
  std::size_t most_words;
  const char* usage;
};

const std::map<std::string, Action>& actions() {
  static const std::map<std::string, Action> kActions = {
      {"status", {"GET", "/v1/status", 0, 0, "status"}},
      {"ready", {"GET", "/readyz", 0, 0, "ready"}},
      {"metrics", {"GET", "/metrics", 0, 0, "metrics"}},
      {"incidents", {"GET", "/v1/incidents", 0, 0, "incidents"}},
      {"times", {"GET", "/v1/times", 0, 0, "times"}},
      {"prefixes", {"GET", "/v1/prefixes", 0, 1, "prefixes [COUNT]"}},
      {"events", {"GET", "/v1/events", 0, 1, "events [AFTER]"}},
      {"lookup", {"POST", "/v1/lookup", 0, 1, "lookup [FILE]"}},
      {"reset", {"POST", "/v1/reset", 1, 1, "reset all|device|host|disk"}},
      {"invalidate", {"POST", "/v1/invalidate", 1, 1, "invalidate WEIGHTS_GENERATION"}},
      {"pause", {"POST", "/v1/pause", 2, 2, "pause FROM TO"}},
      {"resume", {"POST", "/v1/resume", 2, 2, "resume FROM TO"}},
      {"resize", {"POST", "/v1/resize", 1, 1, "resize SIZE|BLOCKS"}},
      {"drain", {"POST", "/v1/drain", 0, 0, "drain"}},
      {"log", {"POST", "/v1/log", 1, 1, "log off|error|warning|info"}},
  };
  return kActions;
}

bool is_whole(const std::string& word) {
  return !word.empty() && word.size() < 20 && word.find_first_not_of("0123456789") == std::string::npos;
}

// The body of a request, or what is wrong with the words.
Result<std::string> body_of(const CtlOptions& options, std::istream& in) {
  const std::vector<std::string>& words = options.words;
  if (options.action == "reset") {
    return words[0] == "all" ? std::string("{}") : Json{{"tier", words[0]}}.dump();
  }
  if (options.action == "invalidate") {
    if (!is_whole(words[0])) {
      return fail(ErrorCode::kInvalidArgument, str_cat("'", words[0], "' is not a weights generation: a whole number"));
    }
    return str_cat("{\"weights_generation\":", words[0], "}");
  }
  if (options.action == "pause" || options.action == "resume") {
    return Json{{"from", words[0]}, {"to", words[1]}}.dump();
  }
  if (options.action == "resize") {
    return is_whole(words[0]) ? str_cat("{\"blocks\":", words[0], "}") : Json{{"size", words[0]}}.dump();
  }
  if (options.action == "log") {
    return Json{{"level", words[0]}}.dump();
  }
  if (options.action == "lookup") {
    std::string text;
    if (words.empty() || words[0] == "-") {
      text.assign(std::istreambuf_iterator<char>(in), {});
    } else {
      std::ifstream file(words[0]);
      if (!file) {
        return fail(ErrorCode::kIo, str_cat("cannot read ", words[0]));
      }
      text.assign(std::istreambuf_iterator<char>(file), {});
    }
    const Json given = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (given.is_array()) {
      return Json{{"tokens", given}}.dump();
    }
    if (!given.is_object()) {
      return fail(ErrorCode::kInvalidArgument,
                  "lookup needs a list of token ids such as [1, 2, 3], or an object with tokens or keys, salt and "
                  "lora_name, as JSON");
    }
    return text;
  }
  return std::string();
}

Status drain(const CtlOptions& options, std::ostream& out) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.wait_seconds);
  while (true) {
    CAIRN_TRY_ASSIGN(const std::string text, call(options.target, "POST", "/v1/drain", ""));
    CAIRN_TRY_ASSIGN(const Json answer, as_json(text));
    const bool is_drained = answer.value("is_drained", false);
    if (is_drained || std::chrono::steady_clock::now() >= end) {
      if (options.json) {
        out << text << "\n";
      } else if (is_drained) {
        out << "Nothing is waiting or in flight.\n";
      }
      return is_drained ? Status()
                        : fail(ErrorCode::kExpired,
                               str_cat("blocks are still waiting (", shown(answer, "pending"), ") or in flight (",
                                       shown(answer, "in_flight"), ") after ", options.wait_seconds, " s"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace

void complete(CtlTarget& target) {
  if (target.address.empty()) {
    const char* const listen = std::getenv("CAIRN_HTTP_LISTEN");
    target.address = listen != nullptr ? listen : kDefaultHttpAddress;
  }
  if (const char* const file = std::getenv("CAIRN_HTTP_TOKEN_FILE"); file != nullptr && target.token_file.empty()) {
    target.token_file = file;
  }
}

Result<std::string> get_text(const CtlTarget& target, const std::string& path) { return call(target, "GET", path, ""); }

Status run_ctl(const CtlOptions& options, std::istream& in, std::ostream& out) {
  const auto found = actions().find(options.action);
  if (found == actions().end()) {
    std::string names;
    for (const auto& [name, action] : actions()) {
      names += (names.empty() ? "" : ", ") + name;
    }
    return fail(ErrorCode::kInvalidArgument, str_cat("unknown action '", options.action, "'; expected ", names));
  }
  const Action& action = found->second;
  if (options.words.size() < action.least_words || options.words.size() > action.most_words) {
    return fail(ErrorCode::kInvalidArgument, str_cat("wrong number of words; expected: cairn ctl ", action.usage));
  }
  if (options.action == "drain") {
    return drain(options, out);
  }
  std::string path = action.path;
  if (!options.words.empty() && (options.action == "prefixes" || options.action == "events")) {
    if (!is_whole(options.words[0])) {
      return fail(ErrorCode::kInvalidArgument, str_cat("'", options.words[0], "' is not a whole number"));
    }
    path += str_cat(options.action == "prefixes" ? "?limit=" : "?after=", options.words[0]);
  }
  CAIRN_TRY_ASSIGN(const std::string body, body_of(options, in));
  CAIRN_TRY_ASSIGN(const std::string text, call(options.target, action.method, path, body));
  if (options.json || options.action == "metrics" || options.action == "events") {
    out << text << (text.ends_with('\n') ? "" : "\n");
    return {};
  }
  CAIRN_TRY_ASSIGN(const Json answer, as_json(text));
  if (options.action == "status") {
    for (const std::string& line : top_lines({.status = text}, {}, 100, 1000)) {
      out << line << "\n";
    }
  } else if (options.action == "incidents") {
    show_incidents(answer, out);
  } else if (options.action == "prefixes") {
    show_prefixes(answer, out);
  } else if (options.action == "times") {
    show_times(answer, out);
  } else {
    show_fields(answer, out);
  }
  if (options.action == "ready" && !answer.value("ready", false)) {
    return fail(ErrorCode::kUnavailable, "the manager is not ready; the reasons are above");
  }
  return {};
}

}  // namespace cairn::cli
