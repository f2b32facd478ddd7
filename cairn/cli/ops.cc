#include "cairn/cli/ops.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <istream>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cairn/base/json_writer.h"
#include "cairn/base/str_cat.h"
#include "cairn/sim/active_sequence.h"
#include "cairn/sim/identity_source.h"
#include "cairn/sim/kv_event_sink.h"

namespace cairn::cli {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kAnyNumber = std::numeric_limits<std::uint64_t>::max();

Result<std::uint64_t> to_number(const Json& value, std::string_view name, std::uint64_t most) {
  if (!value.is_number_unsigned()) {
    return fail(ErrorCode::kInvalidArgument, str_cat("member '", name, "' is not a whole number of 0 or more"));
  }
  const auto number = value.get<std::uint64_t>();
  if (number > most) {
    return fail(ErrorCode::kOutOfRange, str_cat("member '", name, "' is ", number, "; the maximum is ", most));
  }
  return number;
}

// One line of a script.
class Operation {
 public:
  static Result<Operation> parse(std::string_view line) {
    Json fields = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!fields.is_object()) {
      return fail(ErrorCode::kInvalidArgument, "not a JSON object");
    }
    return Operation(std::move(fields));
  }

  [[nodiscard]] bool has(const char* name) const { return fields_.contains(name); }
  [[nodiscard]] Result<std::string> text(const char* name) const {
    const auto found = fields_.find(name);
    if (found == fields_.end() || !found->is_string()) {
      return fail(ErrorCode::kInvalidArgument, str_cat("member '", name, "' is missing or not a string"));
    }
    return found->get<std::string>();
  }
  [[nodiscard]] Result<std::uint64_t> number(const char* name, std::uint64_t most = kAnyNumber) const {
    const auto found = fields_.find(name);
    if (found == fields_.end()) {
      return fail(ErrorCode::kInvalidArgument, str_cat("member '", name, "' is missing"));
    }
    return to_number(*found, name, most);
  }
  template <typename Number>
  [[nodiscard]] Result<std::vector<Number>> numbers(const char* name) const {
    const auto found = fields_.find(name);
    if (found == fields_.end() || !found->is_array()) {
      return fail(ErrorCode::kInvalidArgument, str_cat("member '", name, "' is missing or not an array"));
    }
    std::vector<Number> numbers;
    numbers.reserve(found->size());
    for (const Json& value : *found) {
      CAIRN_TRY_ASSIGN(const std::uint64_t number, to_number(value, name, std::numeric_limits<Number>::max()));
      numbers.push_back(static_cast<Number>(number));
    }
    return numbers;
  }

 private:
  explicit Operation(Json fields) : fields_(std::move(fields)) {}

  Json fields_;
};

// Collects the events of one line as JSON.
class EventText final : public sim::KvEventSink {
 public:
  void on_stored(std::uint64_t /*event_id*/, CacheLevel /*tier*/, const sim::KvStored& stored) override {
    JsonWriter json = begin();
    json.begin_object("stored");
    json.begin_array("blocks");
    for (const sim::KvStoredBlock& block : stored.blocks) {
      json.begin_array();
      json.value(value_of(block.hash));
      json.value(value_of(block.tokens_hash));
      json.end_array();
    }
    json.end_array();
    json.key("parent");
    if (stored.parent) {
      json.value(value_of(*stored.parent));
    } else {
      json.value(nullptr);
    }
    json.end_object();
    json.end_object();
  }
  void on_removed(std::uint64_t /*event_id*/, CacheLevel /*tier*/, const sim::KvRemoved& removed) override {
    JsonWriter json = begin();
    json.begin_array("removed");
    for (const SequenceHash hash : removed.hashes) {
      json.value(value_of(hash));
    }
    json.end_array();
    json.end_object();
  }

  [[nodiscard]] std::string take() { return std::exchange(text_, {}); }

 private:
  JsonWriter begin() {
    text_ += text_.empty() ? "" : ",";
    JsonWriter json(text_);
    json.begin_object();
    return json;
  }

  std::string text_;
};

// {"name":number,...}
std::string object_of(std::initializer_list<std::pair<std::string_view, std::uint64_t>> fields) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  for (const auto& [name, number] : fields) {
    json.field(name, number);
  }
  json.end_object();
  return text;
}

// The state of a script. run() returns the result of an operation as JSON.
class Script {
 public:
  explicit Script(const OpsOptions& options) : options_(options) {}

  Result<std::string> run(const Operation& operation) {
    CAIRN_TRY_ASSIGN(const std::string name, operation.text("op"));
    if (name == "config") {
      return config(operation);
    }
    if (manager_ == nullptr) {
      return fail(ErrorCode::kFailedPrecondition, "the first operation must be 'config'");
    }
    if (name == "new") {
      return make(operation);
    }
    using Handler = Result<std::string> (Script::*)(const Operation&, Entry&);
    static constexpr std::pair<std::string_view, Handler> kHandlers[] = {
        {"alloc", &Script::alloc}, {"push", &Script::push},   {"preempt", &Script::preempt}, {"free", &Script::free},
        {"use", &Script::use},     {"deref", &Script::deref}, {"cost", &Script::cost}};
    const auto* const handler = std::ranges::find(kHandlers, name, &std::pair<std::string_view, Handler>::first);
    if (handler == std::end(kHandlers)) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("unknown operation '", name,
                          "' (expected config, new, alloc, push, preempt, free, use, deref or cost)"));
    }
    CAIRN_TRY_ASSIGN(const std::string sequence, operation.text("seq"));
    const auto entry = sequences_.find(sequence);
    if (entry == sequences_.end()) {
      return fail(ErrorCode::kNotFound, str_cat("unknown sequence '", sequence, "'"));
    }
    return (this->*handler->second)(operation, entry->second);
  }

  // The answer to a line.
  [[nodiscard]] std::string answer(std::size_t line, const std::string& result) {
    std::string text;
    JsonWriter json(text);
    json.begin_object();
    json.field("active", manager_->num_active_blocks());
    json.key("events");
    json.raw(str_cat("[", events_.take(), "]"));
    json.field("inactive", manager_->num_inactive_blocks());
    json.field("line", line);
    json.field("refs", manager_->num_active_block_refs());
    json.key("result");
    json.raw(result);
    json.end_object();
    return text + "\n";
  }

 private:
  struct Entry {
    std::string name;
    sim::ActiveSequence sequence;
    std::unordered_map<std::uint64_t, std::uint64_t> used;  // by block index: how often `use` took it
  };

  Result<std::string> config(const Operation& operation) {
    if (manager_ != nullptr) {
      return fail(ErrorCode::kAlreadyExists, "'config' was given before");
    }
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
    CAIRN_TRY_ASSIGN(const std::uint64_t capacity, operation.number("capacity", kMost));
    CAIRN_TRY_ASSIGN(const std::uint64_t block_size, operation.number("block_size", kMost));
    CAIRN_TRY_ASSIGN(const std::string eviction, operation.text("eviction"));
    const std::optional<PolicyKind> policy = parse_policy(eviction);
    if (!policy) {
      return fail(ErrorCode::kInvalidArgument, str_cat("unknown eviction policy '", eviction, "'"));
    }
    CAIRN_TRY_ASSIGN(std::unique_ptr<sim::KvManager> manager,
                     sim::KvManager::create({.max_capacity = static_cast<std::uint32_t>(capacity),
                                             .block_size = static_cast<std::uint32_t>(block_size),
                                             .eviction = *policy,
                                             .profile = options_.profile,
                                             .sink = &events_}));
    manager_ = std::move(manager);
    return std::string("null");
  }

  Result<std::string> make(const Operation& operation) {
    Result<std::string> name = operation.text("seq");
    if (!name) {
      return name;
    }
    if (sequences_.contains(*name)) {
      return fail(ErrorCode::kAlreadyExists, str_cat("sequence '", *name, "' exists already"));
    }
    CAIRN_TRY_ASSIGN(const std::vector<Token> tokens, operation.numbers<Token>("tokens"));
    sim::SequenceOptions options{.block_size = manager_->block_size()};
    if (operation.has("max_output")) {
      CAIRN_TRY_ASSIGN(const std::uint64_t most, operation.number("max_output"));
      options.max_output_tokens = most;
    }
    CAIRN_TRY_ASSIGN(sim::ActiveSequence sequence, sim::ActiveSequence::create(tokens, options, identities_));
    const std::size_t blocks = sequence.unique_blocks().size();
    sequences_.emplace(*name, Entry{*name, std::move(sequence), {}});
    return object_of({{"blocks", blocks}});
  }

  static std::string granted(std::size_t wanted, std::size_t got) {
    return object_of({{"got", got}, {"wanted", wanted}});
  }

  Result<std::string> alloc(const Operation& operation, Entry& entry) {
    sim::ActiveSequence& sequence = entry.sequence;
    CAIRN_TRY_ASSIGN(const std::uint64_t tokens, operation.number("tokens"));
    const std::size_t target = std::min<std::size_t>(tokens, sequence.size());
    const std::optional<sim::Use> use = sequence.prepare_allocation(target);
    if (!use) {
      sequence.commit_allocation(std::max(target, sequence.num_allocated_tokens()));
      return granted(0, 0);
    }
    const std::size_t wanted = use->blocks.size();
    CAIRN_TRY_ASSIGN(const std::size_t got, manager_->process(*use));
    sequence.commit_allocation(got == wanted ? target
                                             : (sequence.num_allocated_blocks() + got) * manager_->block_size());
    return granted(wanted, got);
  }

  static std::string pushed(std::string_view outcome) {
    std::string text;
    JsonWriter json(text);
    json.begin_object();
    json.field("push", outcome);
    json.end_object();
    return text;
  }

  Result<std::string> push(const Operation& operation, Entry& entry) {
    sim::ActiveSequence& sequence = entry.sequence;
    CAIRN_TRY_ASSIGN(const std::uint64_t token, operation.number("token", std::numeric_limits<Token>::max()));
    if (sequence.num_allocated_tokens() != sequence.size()) {
      return pushed("skipped");
    }
    CAIRN_TRY_ASSIGN(const sim::TokenMoves moves, sequence.push(static_cast<Token>(token)));
    if (moves.promote) {
      CAIRN_TRY(manager_->process(*moves.promote));
    }
    if (moves.use) {
      CAIRN_TRY_ASSIGN(const std::size_t got, manager_->process(*moves.use));
      if (got == 0) {
        const Status undone = sequence.pop();
        return undone ? Result<std::string>(pushed("full")) : Unexpected(undone.error());
      }
    }
    sequence.commit_allocation(sequence.size());
    return pushed("ok");
  }

  Result<std::string> preempt(const Operation& /*operation*/, Entry& entry) {
    const Result<std::size_t> released = manager_->process(entry.sequence.reset_with_signal());
    return released ? Result<std::string>("null") : Unexpected(released.error());
  }

  Result<std::string> free(const Operation& /*operation*/, Entry& entry) {
    CAIRN_TRY(manager_->process(entry.sequence.free_signal()));
    sequences_.erase(std::string(entry.name));
    return std::string("null");
  }

  Result<std::string> use(const Operation& operation, Entry& entry) {
    CAIRN_TRY_ASSIGN(std::vector<std::uint64_t> wanted, operation.numbers<std::uint64_t>("blocks"));
    const sim::ActiveSequence& sequence = entry.sequence;
    std::erase_if(wanted, [&](std::uint64_t block) { return block >= sequence.keys().size(); });
    if (wanted.empty()) {
      return granted(0, 0);
    }
    std::vector<sim::UniqueBlock> blocks;
    std::vector<BlockKey> keys;
    std::vector<BlockHash> hashes;
    for (const std::uint64_t block : wanted) {
      blocks.push_back(sequence.unique_blocks()[block]);
      keys.push_back(sequence.keys()[block]);
      hashes.push_back(sequence.block_hashes()[block]);
    }
    CAIRN_TRY_ASSIGN(const std::size_t got,
                     manager_->process(sim::Use{.blocks = blocks, .keys = keys, .tokens_hashes = hashes}));
    for (std::size_t i = 0; i < got; ++i) {
      ++entry.used[wanted[i]];
    }
    return granted(wanted.size(), got);
  }

  Result<std::string> deref(const Operation& operation, Entry& entry) {
    CAIRN_TRY_ASSIGN(const std::vector<std::uint64_t> blocks, operation.numbers<std::uint64_t>("blocks"));
    std::size_t released = 0;
    for (const std::uint64_t block : blocks) {
      const auto held = entry.used.find(block);
      if (held == entry.used.end()) {
        continue;
      }
      const sim::UniqueBlock name = entry.sequence.unique_blocks()[block];
      if (const Result<std::size_t> done = manager_->process(sim::Deref{.blocks = {&name, 1}}); !done) {
        return Unexpected(done.error());
      }
      ++released;
      if (--held->second == 0) {
        entry.used.erase(held);
      }
    }
    return object_of({{"released", released}});
  }

  Result<std::string> cost(const Operation& /*operation*/, Entry& entry) {
    const sim::PrefillCost cost = manager_->get_prefill_cost(entry.sequence);
    return object_of(
        {{"cached_tokens", cost.cached_tokens}, {"new_blocks", cost.new_blocks}, {"new_tokens", cost.new_tokens}});
  }

  const OpsOptions options_;
  EventText events_;
  sim::IdentitySource identities_;
  std::unique_ptr<sim::KvManager> manager_;
  std::unordered_map<std::string, Entry> sequences_;
};

}  // namespace

Status run_ops(const OpsOptions& options, std::istream& script, std::ostream& answers) {
  Script state(options);
  std::string line;
  for (std::size_t number = 1; std::getline(script, line); ++number) {
    const Result<Operation> operation = Operation::parse(line);
    const Result<std::string> result = operation ? state.run(*operation) : Unexpected(operation.error());
    if (!result) {
      return fail(result.error().code, str_cat("line ", number, ": ", result.error().message));
    }
    answers << state.answer(number, *result);
  }
  return {};
}

}  // namespace cairn::cli
