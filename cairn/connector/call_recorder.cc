#include "cairn/connector/call_recorder.h"

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

constexpr std::string_view kVersion = "2";  // of the file
constexpr std::uint32_t kMaxFiles = 1000;   // of one path

void append_hex(std::uint64_t word, std::string& out) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (int shift = 60; shift >= 0; shift -= 4) {
    out.push_back(kDigits[(word >> shift) & 15]);
  }
}

std::string_view to_text(SchedulerConnector::Match::When when) {
  using When = SchedulerConnector::Match::When;
  return when == When::kNow ? "now" : when == When::kLater ? "later" : "ask_again";
}

void id_field(JsonWriter& json, std::string_view name, const RequestId& id) {
  if (id.text() != nullptr) {
    json.field(name, std::string_view(*id.text()));
  } else {
    json.field(name, *id.number());
  }
}

// A new file that nobody else can read: it may have prompts. Null, with errno, if that cannot be made.
std::FILE* create_private(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  std::FILE* const file = fd >= 0 ? ::fdopen(fd, "w") : nullptr;
  if (fd >= 0 && file == nullptr) {
    const int error = errno;
    ::close(fd);
    errno = error;
  }
  return file;
}

}  // namespace

template <typename R>
void CallRecorder::end(const R& result) {
  if (!result.has_value()) {
    json_->field("error", result.error().message);
  }
  end_line();
}

Result<std::unique_ptr<CallRecorder>> CallRecorder::open(const SchedulerConnector::Options& options) {
  const std::string& given = options.manager.record.path;
  for (std::uint32_t number = 1; number <= kMaxFiles; ++number) {
    const std::string path = number == 1 ? given : str_cat(given, ".", number);
    if (std::FILE* const file = create_private(path); file != nullptr) {
      return std::unique_ptr<CallRecorder>(new CallRecorder(file, path, options));
    }
    if (errno != EEXIST) {
      return fail(ErrorCode::kIo, str_cat("record.path: ", path, " cannot be created: ", std::strerror(errno),
                                          "; give a path in a folder that exists and can be written to"));
    }
  }
  return fail(ErrorCode::kExhausted, str_cat("record.path: there are ", kMaxFiles, " files named ", given,
                                             "; delete some, or give another path"));
}

CallRecorder::CallRecorder(std::FILE* file, std::string path, const SchedulerConnector::Options& options)
    : file_(file),
      path_(std::move(path)),
      with_tokens_(options.manager.record.tokens),
      clock_(*options.parts.clock),
      start_(clock_.now()) {
  json_.emplace(line_);
  json_->begin_object();
  json_->key("cairn_calls");
  json_->raw(kVersion);
  json_->field("tokens", with_tokens_);
  json_->field("load_mode", options.load == LoadMode::kAsync ? "async" : "in_step");
  json_->field("loading_blocks", options.loading_blocks);
  json_->field("least_blocks", options.least_blocks);
  json_->field("ask_again", options.ask_again);
  json_->field("load_deadline_ns", options.load_deadline.count());
  json_->field("save_deadline_ns", options.save_deadline.count());
  json_->field("in_step_save_blocks", options.in_step_save_blocks);
  json_->field("tensor_ranks", options.ranks.ranks.tensor);
  json_->field("pipeline_ranks", options.ranks.ranks.pipeline);
  json_->field("config", options.manager.to_toml());
  end_line();
  flush();
}

CallRecorder::~CallRecorder() { flush(); }

void CallRecorder::added(const RequestId& id, const SchedulerConnector::NewRequest& given,
                         const Result<RequestHandle>& handle, const TokenBlockSequence* sequence) {
  begin("add");
  id_field(*json_, "id", id);
  json_->field("prompt_tokens", given.tokens.size());
  if (with_tokens_) {
    tokens("prompt", given.tokens);
    json_->field("salt", given.salt.salt);
    json_->field("lora_name", given.salt.lora_name);
  }
  runs("mm_runs", given.mm_runs);
  if (given.dp_rank) {
    json_->field("dp_rank", *given.dp_rank);
  }
  if (given.priority) {
    json_->field("priority", *given.priority);
  }
  if (given.priority_duration) {
    json_->field("priority_ns", given.priority_duration->count());
  }
  if (given.time_to_live) {
    json_->field("time_to_live_ns", given.time_to_live->count());
  }
  if (!given.tenant.empty()) {
    json_->field("tenant", given.tenant);
  }
  if (given.hint.kind != RetentionHint::Kind::kNone) {
    json_->field("hint", static_cast<unsigned>(given.hint.kind));
    json_->field("hint_ns", given.hint.in.count());
  }
  if (handle) {
    request(*handle);
    keys(*handle, sequence);
  }
  end(handle);
}

void CallRecorder::matched(RequestHandle handle, std::size_t local_tokens,
                           const Result<SchedulerConnector::Match>& match) {
  begin("match");
  request(handle);
  json_->field("local", local_tokens);
  if (match) {
    json_->field("tokens", match->tokens);
    json_->field("when", to_text(match->when));
  }
  end(match);
}

void CallRecorder::allocated(RequestHandle handle, std::span<const BlockId> given, std::size_t local_tokens,
                             std::size_t loaded_tokens, const Status& status) {
  begin("allocated");
  request(handle);
  blocks("blocks", given);
  json_->field("local", local_tokens);
  json_->field("loaded", loaded_tokens);
  end(status);
}

void CallRecorder::begin_iteration(const SchedulerConnector::Iteration& iteration) {
  json_->field("number", iteration.number);
  if (iteration.duration) {
    json_->field("duration_ns", iteration.duration->count());
  }
  if (iteration.duration_of) {
    json_->field("duration_of", *iteration.duration_of);
  }
  if (!iteration.preempted.empty()) {
    json_->begin_array("preempted");
    for (const RequestHandle handle : iteration.preempted) {
      json_->value(static_cast<std::uint64_t>(handle));
    }
    json_->end_array();
  }
  json_->begin_array("scheduled");
}

void CallRecorder::scheduled(const SchedulerConnector::Scheduled& each, const TokenBlockSequence* sequence) {
  json_->begin_object();
  request(each.request);
  json_->field("computed", each.computed_tokens);
  if (!each.new_tokens.empty()) {
    json_->field("new_tokens", each.new_tokens.size());
    tokens("new", each.new_tokens);
  }
  runs("new_runs", each.new_runs);
  if (!each.new_blocks.empty()) {
    blocks("new_blocks", each.new_blocks);
  }
  if (!each.draft_tokens.empty()) {
    json_->field("draft_tokens", each.draft_tokens.size());
    tokens("drafts", each.draft_tokens);
  }
  if (each.accepted_draft_tokens != 0) {
    json_->field("accepted", each.accepted_draft_tokens);
  }
  if (each.scheduled_tokens != 0) {
    json_->field("tokens", each.scheduled_tokens);
  }
  keys(each.request, sequence);
  json_->end_object();
}

void CallRecorder::end_iteration(std::span<const SchedulerConnector::Refused> refused, const Status& status) {
  json_->end_array();
  if (!refused.empty()) {
    json_->begin_array("refused");
    for (const SchedulerConnector::Refused& each : refused) {
      json_->begin_object();
      request(each.request);
      json_->field("error", each.error.message);
      json_->end_object();
    }
    json_->end_array();
  }
  end(status);
  flush();
}

void CallRecorder::finished(RequestHandle handle, std::optional<std::size_t> computed_tokens, RequestEnding ending,
                            const Result<bool>& is_held) {
  begin("finish");
  request(handle);
  if (computed_tokens) {
    json_->field("computed", *computed_tokens);
  }
  if (ending != RequestEnding::kUnknown) {
    json_->field("ending", to_string(ending));
  }
  if (is_held) {
    json_->field("held", *is_held);
    keys_written_.erase(handle);
  }
  end(is_held);
}

void CallRecorder::took(const SchedulerConnector::Outcomes& outcomes) {
  if (outcomes.loaded.empty() && outcomes.released.empty()) {
    return;
  }
  begin("take_outcomes");
  json_->begin_array("loaded");
  for (const SchedulerConnector::Outcomes::Loaded& loaded : outcomes.loaded) {
    json_->begin_object();
    request(loaded.request);
    json_->field("tokens", loaded.tokens);
    json_->field("missing", loaded.missing);
    json_->end_object();
  }
  json_->end_array();
  json_->begin_array("released");
  for (const RequestId& id : outcomes.released) {
    if (id.text() != nullptr) {
      json_->value(std::string_view(*id.text()));
    } else {
      json_->value(*id.number());
    }
  }
  json_->end_array();
  end_line();
}

void CallRecorder::reset(std::optional<std::uint64_t> weights_generation, const Result<ResetReport>& report) {
  begin(weights_generation ? "invalidate" : "reset");
  if (weights_generation) {
    json_->field("weights_generation", *weights_generation);
  }
  end(report);
}

void CallRecorder::begin(const char* call) {
  line_.clear();  // a call that ran out of memory may have left something
  json_.emplace(line_);
  json_->begin_object();
  json_->field("ns", (clock_.now() - start_).count());
  json_->field("call", call);
}

void CallRecorder::end_line() {
  json_->end_object();
  line_.push_back('\n');
  if (file_ != nullptr && std::fwrite(line_.data(), 1, line_.size(), file_.get()) != line_.size()) {
    stop();
  }
  line_.clear();
}

void CallRecorder::flush() {
  if (file_ != nullptr && std::fflush(file_.get()) != 0) {
    stop();
  }
}

void CallRecorder::stop() {
  std::fprintf(stderr, "cairn: recording calls to %s has stopped: %s\n", path_.c_str(), std::strerror(errno));
  file_.reset();
}

void CallRecorder::request(RequestHandle handle) { json_->field("request", static_cast<std::uint64_t>(handle)); }

void CallRecorder::tokens(const char* name, std::span<const Token> given) {
  if (!with_tokens_) {
    return;
  }
  json_->begin_array(name);
  for (const Token token : given) {
    json_->value(token);
  }
  json_->end_array();
}

void CallRecorder::blocks(const char* name, std::span<const BlockId> given) {
  json_->begin_array(name);
  for (const BlockId block : given) {
    json_->value(index_of(block));
  }
  json_->end_array();
}

void CallRecorder::runs(const char* name, std::span<const MmRun> given) {
  if (given.empty()) {
    return;
  }
  json_->begin_array(name);
  for (const MmRun& run : given) {
    json_->begin_object();
    json_->field("offset", run.offset);
    json_->field("length", run.length);
    json_->field("item_offset", run.item_offset);
    if (with_tokens_) {
      json_->field("hash", run.mm_hash);
    }
    json_->end_object();
  }
  json_->end_array();
}

void CallRecorder::keys(RequestHandle handle, const TokenBlockSequence* sequence) {
  if (sequence == nullptr) {
    return;
  }
  std::size_t& written = keys_written_[handle];
  const std::span<const BlockKey> all = sequence->keys();
  if (written >= all.size()) {
    return;
  }
  std::string hex;
  for (const BlockKey& key : all.subspan(written)) {
    append_hex(key.high_word(), hex);
    append_hex(key.low_word(), hex);
  }
  written = all.size();
  json_->field("keys", std::string_view(hex));
}

}  // namespace cairn
