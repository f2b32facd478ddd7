#include "cairn/cli/call_replay.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include <unistd.h>

#include "cairn/base/json_writer.h"
#include "cairn/base/str_cat.h"
#include "cairn/cli/text.h"
#include "cairn/connector/scheduler_connector.h"

namespace cairn::cli {

namespace {

using Json = nlohmann::json;

constexpr int kVersion = 2;
constexpr std::size_t kKeyBytes = 16;
constexpr std::size_t kProblems = 20;  // that are kept with their text
constexpr Duration kLongestEnd = std::chrono::hours(1);

// A folder for the entries of the disk tier, removed at the end.
class ScratchFolder {
 public:
  [[nodiscard]] static Result<ScratchFolder> make() {
    std::error_code error;
    std::string pattern = (std::filesystem::temp_directory_path(error) / "cairn-calls-XXXXXX").string();
    if (error || ::mkdtemp(pattern.data()) == nullptr) {
      return fail(ErrorCode::kIo, str_cat("no folder for temporary files can be made as ", pattern,
                                          "; set TMPDIR to a folder that can be written to"));
    }
    return ScratchFolder(pattern);
  }
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) {
      std::filesystem::remove_all(path_, ignored);
    }
  }
  [[nodiscard]] std::string in(std::string_view name) const { return str_cat(path_, "/", name); }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// What a member of a line may be; a list of them is in the upper bits.
using Kinds = unsigned;
constexpr Kinds kNumber = 1;
constexpr Kinds kText = 2;
constexpr Kinds kFlag = 4;
constexpr Kinds kObject = 8;
constexpr int kList = 4;  // bits
constexpr Kinds kNumbers = kNumber << kList;
constexpr Kinds kTexts = kText << kList;
constexpr Kinds kObjects = kObject << kList;
constexpr int kDeepest = 2;  // the items of a request of an iteration

Kinds kind_of(const Json& value) {
  return value.is_number_integer() ? kNumber
         : value.is_string()       ? kText
         : value.is_boolean()      ? kFlag
         : value.is_object()       ? kObject
                                   : 0;
}

// Every member that CallRecorder writes. A name has the same kind wherever it is, with few exceptions.
Kinds kinds_of(std::string_view name) {
  static constexpr std::pair<std::string_view, Kinds> kMembers[] = {
      {"accepted", kNumber},
      {"ask_again", kNumber},
      {"blocks", kNumbers},
      {"cairn_calls", kNumber},
      {"call", kText},
      {"computed", kNumber},
      {"config", kText},
      {"dp_rank", kNumber},
      {"draft_tokens", kNumber},
      {"drafts", kNumbers},
      {"duration_ns", kNumber},
      {"duration_of", kNumber},
      {"ending", kText},
      {"error", kText},
      {"hash", kNumber},
      {"held", kFlag},
      {"hint", kNumber},
      {"hint_ns", kNumber},
      {"id", kNumber | kText},
      {"in_step_save_blocks", kNumber},
      {"item_offset", kNumber},
      {"keys", kText},
      {"least_blocks", kNumber},
      {"length", kNumber},
      {"load_deadline_ns", kNumber},
      {"load_mode", kText},
      {"loaded", kNumber | kObjects},
      {"loading_blocks", kNumber},
      {"local", kNumber},
      {"lora_name", kText},
      {"missing", kNumber},
      {"mm_runs", kObjects},
      {"new", kNumbers},
      {"new_blocks", kNumbers},
      {"new_runs", kObjects},
      {"new_tokens", kNumber},
      {"ns", kNumber},
      {"number", kNumber},
      {"offset", kNumber},
      {"pipeline_ranks", kNumber},
      {"preempted", kNumbers},
      {"priority", kNumber},
      {"priority_ns", kNumber},
      {"prompt", kNumbers},
      {"prompt_tokens", kNumber},
      {"refused", kObjects},
      {"released", kNumbers | kTexts},
      {"request", kNumber},
      {"salt", kText},
      {"save_deadline_ns", kNumber},
      {"scheduled", kObjects},
      {"tenant", kText},
      {"tensor_ranks", kNumber},
      {"time_to_live_ns", kNumber},
      {"tokens", kNumber | kFlag},
      {"weights_generation", kNumber},
      {"when", kText},
  };
  const auto* const found = std::ranges::lower_bound(kMembers, name, {}, &std::pair<std::string_view, Kinds>::first);
  return found != std::end(kMembers) && found->first == name ? found->second : 0;
}

bool is_keys(const std::string& hex) {
  return hex.size() % (2 * kKeyBytes) == 0 && hex.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// The first member that CallRecorder does not write like this; empty if all are right.
std::string find_wrong_member(const Json& object, int depth = 0) {
  for (const auto& [name, value] : object.items()) {
    const Kinds expected = kinds_of(name);
    if (!value.is_array()) {
      if ((expected & kind_of(value)) == 0 || (name == "keys" && !is_keys(value.get_ref<const std::string&>()))) {
        return name;
      }
      continue;
    }
    if (expected >> kList == 0) {
      return name;
    }
    for (const Json& each : value) {
      if ((expected & kind_of(each) << kList) == 0 || (each.is_object() && depth == kDeepest)) {
        return name;
      }
      if (std::string wrong = each.is_object() ? find_wrong_member(each, depth + 1) : ""; !wrong.empty()) {
        return wrong;
      }
    }
  }
  return {};
}

// The members of one line. A member that is missing is 0, empty or false.
class Line {
 public:
  [[nodiscard]] static std::optional<Line> parse(std::string_view text) {
    Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    return json.is_object() ? std::optional(Line(std::move(json))) : std::nullopt;
  }
  explicit Line(Json json) : json_(std::move(json)) {}

  // Whether it has these members, and only those of a recording, each of its kind.
  [[nodiscard]] Status check(std::initializer_list<const char*> needed) const {
    for (const char* name : needed) {
      if (!has(name)) {
        return fail(ErrorCode::kInvalidArgument, str_cat("'", name, "' is missing"));
      }
    }
    if (const std::string wrong = find_wrong_member(json_); !wrong.empty()) {
      return fail(ErrorCode::kInvalidArgument, str_cat("'", wrong, "' is unknown or not of the type that it has"));
    }
    return {};
  }

  [[nodiscard]] bool has(const char* name) const { return json_.contains(name); }
  [[nodiscard]] std::uint64_t number(const char* name) const {
    const auto found = json_.find(name);
    return found != json_.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
  }
  [[nodiscard]] std::string text(const char* name) const {
    const auto found = json_.find(name);
    return found != json_.end() && found->is_string() ? found->get<std::string>() : std::string();
  }
  [[nodiscard]] bool flag(const char* name) const {
    const auto found = json_.find(name);
    return found != json_.end() && found->is_boolean() && found->get<bool>();
  }
  [[nodiscard]] std::vector<std::uint64_t> numbers(const char* name) const {
    std::vector<std::uint64_t> all;
    for (const Json& each : list(name)) {
      if (each.is_number_unsigned()) {
        all.push_back(each.get<std::uint64_t>());
      }
    }
    return all;
  }
  [[nodiscard]] std::vector<Line> objects(const char* name) const {
    std::vector<Line> all;
    for (const Json& each : list(name)) {
      if (each.is_object()) {
        all.emplace_back(each);
      }
    }
    return all;
  }
  [[nodiscard]] std::uint64_t request() const { return number("request"); }
  // The keys of full blocks, 16 bytes each, as digests of an engine.
  [[nodiscard]] std::vector<std::byte> keys() const {
    const std::string hex = text("keys");
    std::vector<std::byte> bytes;
    const std::size_t whole = hex.size() / (2 * kKeyBytes) * (2 * kKeyBytes);
    for (std::size_t at = 0; at < whole; at += 2) {
      std::uint8_t byte = 0;
      std::from_chars(hex.data() + at, hex.data() + at + 2, byte, 16);
      bytes.push_back(static_cast<std::byte>(byte));
    }
    return bytes;
  }

 private:
  [[nodiscard]] Json list(const char* name) const {
    const auto found = json_.find(name);
    return found != json_.end() && found->is_array() ? *found : Json::array();
  }
  Json json_;
};

// Gives the recording's device blocks other ids: a block that the recorded engine used again may still be read by a save of
// the replay.
class BlockIds {
 public:
  explicit BlockIds(std::uint32_t blocks) : holders_(blocks, 0) {
    for (std::uint32_t i = blocks; i > 0; --i) {
      free_.push_back(i - 1);
    }
  }
  // Of a block that holds what it held before, shared with other requests.
  [[nodiscard]] Result<BlockId> shared(std::uint64_t recorded) {
    const auto found = ids_.find(recorded);
    return found != ids_.end() && holders_[found->second] > 0 ? hold(found->second) : fresh(recorded);
  }
  // Of a block that is about to hold something else.
  [[nodiscard]] Result<BlockId> fresh(std::uint64_t recorded) {
    if (free_.empty()) {
      return fail(ErrorCode::kExhausted, "all device blocks of the replay are in use");
    }
    const std::uint32_t id = free_.back();
    free_.pop_back();
    ids_[recorded] = id;
    return hold(id);
  }
  void release(std::span<const BlockId> blocks) {
    for (const BlockId block : blocks) {
      if (--holders_[index_of(block)] == 0) {
        free_.push_back(index_of(block));
      }
    }
  }

 private:
  BlockId hold(std::uint32_t id) {
    ++holders_[id];
    return BlockId{id};
  }
  std::vector<std::uint32_t> holders_;
  std::vector<std::uint32_t> free_;
  std::unordered_map<std::uint64_t, std::uint32_t> ids_;  // of the recording -> of the replay
};

class CallReplay {
 public:
  CallReplay(CallReplayReport& report, const ManagerConfig& config)
      : report_(report), block_size_(config.block_size), ids_(config.device.blocks) {}

  [[nodiscard]] Status open(const Line& head, const ManagerConfig& config, const VirtualLinks::Speeds& speeds) {
    SchedulerConnector::Options options;
    options.manager = config;
    options.load = head.text("load_mode") == "in_step" ? LoadMode::kInStep : LoadMode::kAsync;
    in_step_ = options.load == LoadMode::kInStep;
    const auto set = [&head](auto& member, const char* name) {
      if (const std::uint64_t given = head.number(name); given != 0) {
        member = std::remove_reference_t<decltype(member)>(given);
      }
    };
    set(options.loading_blocks, "loading_blocks");
    set(options.least_blocks, "least_blocks");
    set(options.ask_again, "ask_again");
    set(options.load_deadline, "load_deadline_ns");
    set(options.save_deadline, "save_deadline_ns");
    // The sizes of tiers are of all ranks together. In-step saves have no effect here: they need the engine's steps.
    options.ranks.ranks = {static_cast<std::uint32_t>(head.number("tensor_ranks")),
                           static_cast<std::uint32_t>(head.number("pipeline_ranks"))};
    options.parts.clock = &clock_;
    options.parts.own_thread = false;
    options.parts.seed = KeySeed::from(1);
    options.parts.elsewhere = [this, speeds] {
      auto links = std::make_unique<VirtualLinks>(clock_, speeds);
      links_ = links.get();
      return links;
    };
    CAIRN_TRY_ASSIGN(connector_, SchedulerConnector::make(std::move(options)));
    return {};
  }

  void call(const Line& line) {
    ++report_.calls;
    const Duration at = Duration(static_cast<std::int64_t>(line.number("ns")));
    report_.recorded_time = std::max(report_.recorded_time, at);
    pass_until(TimePoint(at));
    take_outcomes();
    const std::string name = line.text("call");
    if (line.has("error")) {
      ++report_.failed_calls;
    } else if (name == "add") {
      add(line);
    } else if (name == "match") {
      match(line);
    } else if (name == "allocated") {
      allocated(line);
    } else if (name == "build") {
      build(line);
    } else if (name == "finish") {
      finish(line);
    } else if (name == "take_outcomes") {
      for (const Line& loaded : line.objects("loaded")) {
        report_.recorded.loaded += loaded.number("tokens");
        report_.recorded.missing += loaded.number("missing");
      }
    } else if (name == "reset") {
      check("reset", connector_->reset());
    } else if (name == "invalidate") {
      check("invalidate", connector_->invalidate(line.number("weights_generation")));
    } else {
      problem(str_cat("unknown call '", name, "'"));
    }
  }

  // Waits until all loads and saves have ended.
  void end() {
    const TimePoint longest = clock_.now() + kLongestEnd;
    while (connector_->has_work() && clock_.now() < longest) {
      build_iteration({.number = ++number_});
      settle();
      take_outcomes();
      const TimePoint next = next_time();
      if (next == TimePoint::max()) {
        break;
      }
      pass_until(std::max(next, clock_.now()));
    }
    const SchedulerConnector::SaveStatus saves = connector_->saves();
    report_.saved_blocks = saves.saved;
    report_.unsaved_blocks = saves.asked - saves.saved;
    report_.host_blocks = connector_->manager().host() != nullptr ? connector_->manager().host()->capacity() : 0;
    report_.prefill = connector_->manager().status().prefill;
  }

 private:
  struct Request {
    RequestHandle handle{};
    std::string id = {};
    std::size_t tokens = 0;  // known
    std::size_t recorded_match = 0;
    std::optional<SchedulerConnector::Match> match = {};
    std::vector<BlockId> blocks = {};
    std::size_t have = 0;  // tokens on the device
    bool is_loading = false;
    bool is_level = false;  // has computed as much as in the recording
    bool has_run = false;
    // Of iterations that it was left out of.
    std::size_t new_tokens = 0;
    std::vector<BlockId> new_blocks = {};
    std::vector<std::byte> keys = {};
  };

  void problem(std::string text) {
    if (report_.problems.size() < kProblems) {
      report_.problems.push_back(std::move(text));
    }
    ++report_.problem_count;
  }
  template <typename R>
  bool check(std::string_view call, const R& result) {
    if (!result.has_value()) {
      problem(str_cat(call, ": ", result.error().message));
    }
    return result.has_value();
  }
  [[nodiscard]] Request* find(const Line& line) {
    const auto found = requests_.find(line.request());
    return found != requests_.end() ? &found->second : nullptr;
  }
  [[nodiscard]] static SchedulerConnector::BlockDigests digests(std::span<const std::byte> keys) {
    return {.bytes = keys, .size = keys.empty() ? 0 : kKeyBytes};
  }
  // Tokens whose content nobody knows.
  [[nodiscard]] std::span<const Token> unknown(std::size_t count) {
    unknown_.resize(std::max(unknown_.size(), count));
    return std::span(unknown_).first(count);
  }

  void add(const Line& line) {
    Request request;
    request.tokens = line.number("prompt_tokens");
    request.id = str_cat("request ", line.request());
    const std::vector<std::byte> keys = line.keys();
    const std::string tenant = line.text("tenant");
    SchedulerConnector::NewRequest given{.tokens = unknown(request.tokens), .tenant = tenant};
    given.block_digests = {.bytes = keys, .size = kKeyBytes};
    const auto time = [&line](const char* name) {
      return line.has(name) ? std::optional(Duration(static_cast<std::int64_t>(line.number(name)))) : std::nullopt;
    };
    if (line.has("priority")) {
      given.priority = static_cast<std::uint32_t>(line.number("priority"));
    }
    if (line.has("dp_rank")) {
      given.dp_rank = static_cast<std::uint32_t>(line.number("dp_rank"));
    }
    given.priority_duration = time("priority_ns");
    given.time_to_live = time("time_to_live_ns");
    given.hint = {.kind = static_cast<RetentionHint::Kind>(std::min<std::uint64_t>(line.number("hint"), 3)),
                  .in = time("hint_ns").value_or(Duration::zero())};
    const Result<RequestHandle> added = connector_->add(RequestId(request.id), given);
    if (check(str_cat("add ", request.id), added)) {
      request.handle = *added;
      ++report_.requests;
      report_.prompt_tokens += request.tokens;
      by_handle_[*added] = line.request();
      requests_.insert_or_assign(line.request(), std::move(request));
    }
  }

  void match(const Line& line) {
    Request* const request = find(line);
    if (request == nullptr) {
      return;
    }
    const Result<SchedulerConnector::Match> found = connector_->match(request->handle, line.number("local"));
    if (check(str_cat("match ", request->id), found)) {
      request->match = *found;
      request->recorded_match = line.number("tokens");
    }
  }

  void allocated(const Line& line) {
    Request* const request = find(line);
    if (request == nullptr) {
      return;
    }
    const std::size_t local = line.number("local");
    ids_.release(std::exchange(request->blocks, {}));
    for (const std::uint64_t recorded : line.numbers("blocks")) {
      const Result<BlockId> id =
          request->blocks.size() < local / block_size_ ? ids_.shared(recorded) : ids_.fresh(recorded);
      if (!check(str_cat("allocated ", request->id), id)) {
        return;
      }
      request->blocks.push_back(*id);
    }
    const bool may_load = request->match && request->match->when != SchedulerConnector::Match::When::kAskAgain &&
                          line.number("loaded") > 0;
    // The engine may have loaded less than it could; the replay does not load more than there are blocks for.
    std::size_t loaded = request->match && request->match->when != SchedulerConnector::Match::When::kAskAgain
                             ? request->match->tokens
                             : 0;
    if (may_load && line.number("loaded") < request->recorded_match) {
      loaded = std::min<std::size_t>(loaded, line.number("loaded"));
    }
    const std::size_t room = request->blocks.size() * block_size_;
    loaded = std::min(loaded, room > local ? (room - local) / block_size_ * block_size_ : 0);
    if (!check(str_cat("allocated ", request->id),
               connector_->allocated(request->handle, request->blocks, local, loaded))) {
      return;
    }
    report_.recorded.matched += request->recorded_match;
    report_.replayed.matched += request->match ? request->match->tokens : 0;
    request->is_loading = loaded > 0 && !in_step_;
    request->have = local + (in_step_ ? loaded : 0);
    request->is_level = false;
    request->match.reset();
  }

  void build(const Line& line) {
    ++report_.iterations;
    std::vector<RequestHandle> preempted;
    for (const std::uint64_t recorded : line.numbers("preempted")) {
      const auto found = requests_.find(recorded);
      // A request whose load is in flight cannot be preempted: it goes on.
      if (found != requests_.end() && !found->second.is_loading) {
        Request& request = found->second;
        preempted.push_back(request.handle);
        ids_.release(std::exchange(request.blocks, {}));
        request.have = 0;
        request.is_level = request.has_run = false;
        request.new_blocks.clear();
      }
    }
    std::vector<SchedulerConnector::Scheduled> scheduled;
    for (const Line& each : line.objects("scheduled")) {
      if (Request* const request = find(each); request != nullptr) {
        schedule(*request, each, scheduled);
      }
    }
    number_ = std::max(number_ + 1, line.number("number"));
    SchedulerConnector::Iteration iteration{.number = number_, .preempted = preempted, .scheduled = scheduled};
    if (line.has("duration_ns")) {
      iteration.duration = Duration(static_cast<std::int64_t>(line.number("duration_ns")));
    }
    if (line.has("duration_of")) {
      iteration.duration_of = line.number("duration_of");
    }
    build_iteration(iteration);
    for (const SchedulerConnector::Scheduled& each : scheduled) {
      Request& request = requests_.at(by_handle_.at(each.request));
      request.new_tokens = 0;
      request.new_blocks.clear();
      request.keys.clear();
    }
  }

  void schedule(Request& request, const Line& line, std::vector<SchedulerConnector::Scheduled>& scheduled) {
    const std::size_t accepted = line.number("accepted");
    request.tokens += line.number("new_tokens") + accepted;
    request.new_tokens += line.number("new_tokens");
    for (const std::uint64_t recorded : line.numbers("new_blocks")) {
      if (const Result<BlockId> id = ids_.fresh(recorded); check(str_cat("new block of ", request.id), id)) {
        request.blocks.push_back(*id);
        request.new_blocks.push_back(*id);
      }
    }
    const std::vector<std::byte> keys = line.keys();
    request.keys.insert(request.keys.end(), keys.begin(), keys.end());
    const std::size_t computed = line.number("computed");
    const std::size_t drafts = line.number("draft_tokens");
    const std::size_t end = line.has("tokens") ? computed + line.number("tokens") : request.tokens + drafts;
    SchedulerConnector::Scheduled each{.request = request.handle, .computed_tokens = computed};
    if (!request.is_level) {
      if (request.is_loading || request.have >= end) {
        return;
      }
      each.computed_tokens = request.have;
    }
    each.scheduled_tokens = end - each.computed_tokens;
    each.new_tokens = unknown(request.new_tokens);
    each.new_blocks = request.new_blocks;
    each.draft_tokens = unknown(drafts);
    each.accepted_draft_tokens = request.is_level ? accepted : 0;
    each.new_block_digests = digests(request.keys);
    request.is_level = request.has_run = true;
    request.have = end;
    scheduled.push_back(each);
  }

  void build_iteration(const SchedulerConnector::Iteration& iteration) {
    const std::uint64_t number = iteration.number;
    check(str_cat("build ", number), connector_->build(iteration, metadata_));
    for (const SchedulerConnector::Refused& refused : connector_->refused()) {
      const auto recorded = by_handle_.find(refused.request);
      problem(str_cat("build ", number, ": request ", recorded != by_handle_.end() ? recorded->second : 0, ": ",
                      refused.error.message));
    }
  }

  void finish(const Line& line) {
    Request* const request = find(line);
    if (request == nullptr) {
      return;
    }
    std::optional<std::size_t> computed;
    if (line.has("computed") && request->has_run) {
      computed =
          request->is_level ? line.number("computed") : std::min<std::size_t>(request->have, line.number("computed"));
    }
    const RequestEnding ending = parse_ending(line.text("ending")).value_or(RequestEnding::kUnknown);
    const Result<bool> is_held = connector_->finish(request->handle, computed, ending);
    if (check(str_cat("finish ", request->id), is_held)) {
      if (*is_held) {
        held_[request->id] = std::move(request->blocks);
      } else {
        ids_.release(request->blocks);
      }
      by_handle_.erase(request->handle);
      requests_.erase(line.request());
    }
  }

  void take_outcomes() {
    const SchedulerConnector::Outcomes outcomes = connector_->take_outcomes();
    for (const SchedulerConnector::Outcomes::Loaded& loaded : outcomes.loaded) {
      report_.replayed.loaded += loaded.tokens;
      report_.replayed.missing += loaded.missing;
      if (const auto found = by_handle_.find(loaded.request); found != by_handle_.end()) {
        Request& request = requests_.at(found->second);
        request.is_loading = false;
        if (!request.is_level || loaded.missing > 0) {
          request.have = loaded.tokens;
          request.is_level = false;
        }
      }
    }
    for (const RequestId& id : outcomes.released) {
      if (const auto found = held_.find(*id.text()); found != held_.end()) {
        ids_.release(found->second);
        held_.erase(found);
      }
    }
  }

  // --- virtual time ---
  void settle() {
    for (bool more = true; more;) {
      more = connector_->manager().pump();
      more |= links_ != nullptr && links_->run();
    }
  }
  [[nodiscard]] TimePoint next_time() const {
    return std::min(connector_->manager().next_time().value_or(TimePoint::max()),
                    links_ != nullptr ? links_->next_time() : TimePoint::max());
  }
  void pass_until(TimePoint end) {
    settle();
    while (clock_.now() < end) {
      clock_.advance(std::max(std::min(end, next_time()) - clock_.now(), Duration(1)));
      settle();
    }
  }

  CallReplayReport& report_;
  const std::uint32_t block_size_;
  bool in_step_ = false;
  ManualClock clock_;
  VirtualLinks* links_ = nullptr;  // the manager's; null without tiers
  std::unique_ptr<SchedulerConnector> connector_;
  BlockIds ids_;
  std::map<std::uint64_t, Request> requests_;                   // by the recorded handle
  std::unordered_map<RequestHandle, std::uint64_t> by_handle_;  // of the replay -> of the recording
  std::unordered_map<std::string, std::vector<BlockId>> held_;  // of finished requests that are not released, by id
  std::vector<Token> unknown_;
  std::vector<std::byte> metadata_;
  std::uint64_t number_ = 0;
};

// The recorded configuration with these settings, as the replay needs it.
Result<ManagerConfig> config_of(const Line& head, const CallReplayOptions& options, const ScratchFolder& folder) {
  ConfigSources sources;
  sources.toml = head.text("config");
  sources.toml_name = options.path;
  sources.settings = options.settings;
  CAIRN_TRY_ASSIGN(ManagerConfig config, read_config(sources));
  config.record = {};
  config.model.scheme = KeyScheme::kVllm;  // whose keys are given, not made from tokens
  config.model.secret = std::string(64, '0');
  config.model.secret_file.clear();
  config.disk.opening = DiskOpening::kFresh;
  if (config.disk.is_there()) {
    config.disk.path = folder.in("entries");
  }
  config.device.blocks *= 2;  // what saves of the replay still read is replaced
  return config;
}

}  // namespace

Result<CallReplayReport> replay_calls(const CallReplayOptions& options) {
  std::ifstream file;
  if (options.path != "-") {
    file.open(options.path);
    if (!file) {
      return fail(ErrorCode::kNotFound, str_cat("cannot open ", options.path));
    }
  }
  std::istream& in = options.path == "-" ? std::cin : file;
  std::string text;
  std::getline(in, text);
  const std::optional<Line> head = Line::parse(text);
  if (!head || !head->has("cairn_calls")) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(options.path, " is no recording of calls; make one with the setting record.path"));
  }
  if (head->number("cairn_calls") != kVersion) {
    return fail(ErrorCode::kInvalidArgument, str_cat(options.path, " has version ", head->number("cairn_calls"),
                                                     "; this release reads version ", kVersion));
  }
  if (const Status checked = head->check({"cairn_calls", "config", "tensor_ranks", "pipeline_ranks"}); !checked) {
    return fail(ErrorCode::kInvalidArgument, str_cat(options.path, ", line 1: ", checked.error().message));
  }
  CAIRN_TRY_ASSIGN(const ScratchFolder folder, ScratchFolder::make());
  CAIRN_TRY_ASSIGN(const ManagerConfig config, config_of(*head, options, folder));
  CallReplayReport report;
  CallReplay replay(report, config);
  CAIRN_TRY(replay.open(*head, config, options.links));
  for (std::uint64_t number = 2; std::getline(in, text); ++number) {
    const std::optional<Line> line = Line::parse(text);
    if (!line) {
      // The last line may be cut off: the recorded process died.
      if (in.eof()) {
        break;
      }
      return fail(ErrorCode::kInvalidArgument, str_cat(options.path, ", line ", number, ": not a JSON object"));
    }
    if (const Status checked = line->check({"ns", "call"}); !checked) {
      return fail(ErrorCode::kInvalidArgument, str_cat(options.path, ", line ", number, ": ", checked.error().message));
    }
    replay.call(*line);
  }
  replay.end();
  return report;
}

std::string to_text(const CallReplayReport& report) {
  std::string text;
  const auto row = [&text](std::string_view name, std::string_view recorded, std::string_view replayed) {
    text += str_cat(name, std::string(name.size() < 26 ? 26 - name.size() : 1, ' '),
                    std::string(recorded.size() < 14 ? 14 - recorded.size() : 0, ' '), recorded,
                    std::string(replayed.size() < 14 ? 14 - replayed.size() : 0, ' '), replayed, "\n");
  };
  const auto both = [&row](std::string_view name, std::uint64_t recorded, std::uint64_t replayed) {
    row(name, with_commas(recorded), with_commas(replayed));
  };
  text += str_cat(with_commas(report.calls), " calls, ", with_commas(report.requests), " requests with ",
                  with_commas(report.prompt_tokens), " prompt tokens, ", with_commas(report.iterations),
                  " iterations in ", fixed(std::chrono::duration<double>(report.recorded_time).count(), 3), " s\n\n");
  row("", "recording", "replay");
  both("tokens found in tiers", report.recorded.matched, report.replayed.matched);
  both("tokens loaded", report.recorded.loaded, report.replayed.loaded);
  both("tokens missing", report.recorded.missing, report.replayed.missing);
  row("blocks saved", "", with_commas(report.saved_blocks));
  row("blocks not saved", "", with_commas(report.unsaved_blocks));
  if (report.failed_calls > 0) {
    text += str_cat("\n", with_commas(report.failed_calls), " calls failed in the recording; they were left out\n");
  }
  if (report.problem_count > 0) {
    text += str_cat("\n", with_commas(report.problem_count), " problems in the replay:\n");
    for (const std::string& each : report.problems) {
      text += str_cat("  ", each, "\n");
    }
  }
  return text;
}

std::string to_json(const CallReplayReport& report) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.field("calls", report.calls);
  json.field("failed_calls", report.failed_calls);
  json.field("requests", report.requests);
  json.field("prompt_tokens", report.prompt_tokens);
  json.field("iterations", report.iterations);
  json.field("recorded_seconds", std::chrono::duration<double>(report.recorded_time).count());
  const auto counts = [&json](const char* name, const CallCounts& of) {
    json.begin_object(name);
    json.field("matched_tokens", of.matched);
    json.field("loaded_tokens", of.loaded);
    json.field("missing_tokens", of.missing);
    json.end_object();
  };
  counts("recorded", report.recorded);
  counts("replayed", report.replayed);
  json.field("saved_blocks", report.saved_blocks);
  json.field("unsaved_blocks", report.unsaved_blocks);
  json.field("host_blocks", report.host_blocks);
  json.field("prefill_tokens_per_second", report.prefill.tokens_per_second);
  json.field("problem_count", report.problem_count);
  json.begin_array("problems");
  for (const std::string& each : report.problems) {
    json.value(std::string_view(each));
  }
  json.end_array();
  json.end_object();
  text.push_back('\n');
  return text;
}

}  // namespace cairn::cli
