#include "cairn/cli/demo.h"

#include <algorithm>
#include <deque>
#include <iomanip>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cairn/base/json_writer.h"
#include "cairn/base/str_cat.h"
#include "cairn/cli/text.h"
#include "cairn/events/event_log.h"
#include "cairn/events/residency_view.h"
#include "cairn/pool/block_pool.h"
#include "cairn/tokens/token_sequence.h"

namespace cairn::cli {

namespace {

struct Totals {
  std::uint64_t requests = 0;
  std::uint64_t prompt_blocks = 0;
  std::uint64_t hit_blocks = 0;
  std::uint64_t events = 0;
  std::uint64_t stored = 0;
  std::uint64_t removed = 0;
};

// The chats, each with one of a few system prompts and a number of turns.
class Chats {
 public:
  static Result<Chats> create(const DemoOptions& options) {
    Chats chats(options.seed);
    std::vector<std::vector<Token>> prompts;
    for (std::uint32_t i = 0; i < options.system_prompts; ++i) {
      prompts.push_back(chats.say(300, 700));
    }
    for (std::uint32_t i = 0; i < options.chats; ++i) {
      CAIRN_TRY_ASSIGN(TokenBlockSequence chat, TokenBlockSequence::create(prompts[i % prompts.size()],
                                                                           options.block_size, KeyHasher::dynamo()));
      chats.all_.push_back({std::move(chat), options.turns});
    }
    return chats;
  }

  // A random chat that has a turn left and no request in flight; nullptr if there is none.
  TokenBlockSequence* next() {
    std::vector<Chat*> ready;
    for (Chat& chat : all_) {
      if (chat.turns_left > 0 && !chat.busy) {
        ready.push_back(&chat);
      }
    }
    if (ready.empty()) {
      return nullptr;
    }
    Chat& chosen = *ready[std::uniform_int_distribution<std::size_t>(0, ready.size() - 1)(random_)];
    --chosen.turns_left;
    chosen.busy = true;
    return &chosen.tokens;
  }
  void is_answered(const TokenBlockSequence* tokens) {
    for (Chat& chat : all_) {
      chat.busy = chat.busy && &chat.tokens != tokens;
    }
  }

  [[nodiscard]] std::vector<Token> say(std::uint32_t least, std::uint32_t most) {
    std::vector<Token> tokens(std::uniform_int_distribution<std::uint32_t>(least, most)(random_));
    for (Token& token : tokens) {
      token = std::uniform_int_distribution<Token>(0, 127'999)(random_);
    }
    return tokens;
  }

 private:
  struct Chat {
    TokenBlockSequence tokens;
    std::uint32_t turns_left;
    bool busy = false;
  };

  explicit Chats(std::uint64_t seed) : random_(seed) {}

  std::vector<Chat> all_;
  std::mt19937_64 random_;
};

class Demo {
 public:
  Demo(const DemoOptions& options, std::ostream& out, Chats chats, std::unique_ptr<EventLog> log,
       std::unique_ptr<BlockPool> pool)
      : options_(options),
        out_(out),
        chats_(std::move(chats)),
        log_(std::move(log)),
        pool_(std::move(pool)),
        follower_(*EventSubscriber::resuming(*log_, 1)) {}

  Status run() {
    begin_report();
    const std::uint64_t all = std::uint64_t{options_.chats} * options_.turns;
    const std::uint64_t every = std::max<std::uint64_t>(all / 12, 1);
    while (true) {
      TokenBlockSequence* chat = chats_.next();
      if (chat == nullptr && in_flight_.empty()) {
        break;
      }
      if (chat == nullptr || in_flight_.size() >= options_.in_flight) {
        finish_oldest();
      }
      if (chat == nullptr) {
        continue;
      }
      CAIRN_TRY(serve(*chat));
      if (totals_.requests % every == 0 || totals_.requests == all) {
        CAIRN_TRY(follow());
        report_row();
      }
    }
    return end_report();
  }

 private:
  struct Request {
    TokenBlockSequence* chat;
    ImmutableBlocks blocks;
  };

  // One turn: appends what the user says, looks it up, computes the missing blocks, and generates the answer.
  Status serve(TokenBlockSequence& chat) {
    CAIRN_TRY(chat.extend(chats_.say(20, 200)));
    // The last token is always computed, because the engine needs its output.
    const std::size_t prompt_blocks = (chat.size() - 1) / chat.block_size();
    ImmutableBlocks blocks = pool_->match_prefix(chat.keys().first(prompt_blocks));
    ++totals_.requests;
    totals_.prompt_blocks += prompt_blocks;
    totals_.hit_blocks += blocks.size();
    CAIRN_TRY(compute(chat, blocks));
    CAIRN_TRY(chat.extend(chats_.say(40, 250)));
    CAIRN_TRY(compute(chat, blocks));
    in_flight_.push_back({&chat, std::move(blocks)});
    return {};
  }

  // Fills and registers the full blocks of the chat that `blocks` does not hold yet.
  Status compute(const TokenBlockSequence& chat, ImmutableBlocks& blocks) {
    const std::size_t held = blocks.size();
    const auto missing = static_cast<std::uint32_t>(chat.block_count() - held);
    Result<MutableBlocks> fresh = allocate(missing);
    if (!fresh) {
      return fail(ErrorCode::kExhausted, str_cat("one chat does not fit in the pool (", fresh.error().message,
                                                 "); give it more blocks with --blocks"));
    }
    auto complete = std::move(*fresh).complete(chat, {held, chat.block_count()});
    if (!complete) {
      return Unexpected(std::move(complete).error().error);
    }
    auto registered = std::move(*complete).register_blocks();
    if (!registered) {
      return Unexpected(std::move(registered).error().error);
    }
    if (auto joined = blocks.append(*std::move(registered)); !joined) {
      return Unexpected(joined.error().error);
    }
    return {};
  }

  // If the pool is full, finishes older requests until there are enough blocks, as an engine would.
  Result<MutableBlocks> allocate(std::uint32_t count) {
    while (true) {
      Result<MutableBlocks> fresh = pool_->allocate(count);
      if (fresh || in_flight_.empty()) {
        return fresh;
      }
      finish_oldest();
    }
  }

  void finish_oldest() {
    chats_.is_answered(in_flight_.front().chat);
    in_flight_.pop_front();
  }

  // Applies the events since the last call to the view, as a router would.
  Status follow() {
    while (true) {
      const EventBatch batch = follower_.poll();
      const auto* events = std::get_if<std::vector<Event>>(&batch);
      if (events == nullptr) {
        return fail(ErrorCode::kFailedPrecondition, "the event subscriber lagged; this is a bug in cairn demo");
      }
      if (events->empty()) {
        return {};
      }
      for (const Event& event : *events) {
        CAIRN_TRY(view_.apply(event));
        ++totals_.events;
        totals_.stored += std::holds_alternative<Stored>(event.data) ? 1 : 0;
        totals_.removed += std::holds_alternative<Removed>(event.data) ? 1 : 0;
      }
    }
  }

  [[nodiscard]] double hit_percent() const {
    return totals_.prompt_blocks == 0
               ? 0
               : 100.0 * static_cast<double>(totals_.hit_blocks) / static_cast<double>(totals_.prompt_blocks);
  }

  void begin_report() {
    if (options_.json) {
      json_.begin_object();
      json_.field("chats", options_.chats);
      json_.field("turns", options_.turns);
      json_.field("blocks", options_.blocks);
      json_.field("block_size", options_.block_size);
      json_.field("policy", to_string(options_.policy));
      json_.field("seed", options_.seed);
      json_.begin_array("rows");
      flush_json();
      return;
    }
    out_ << with_commas(options_.chats) << " chats of " << options_.turns << " turns, " << options_.system_prompts
         << " system prompts, " << options_.in_flight << " requests at a time; a pool of "
         << with_commas(options_.blocks) << " blocks of " << options_.block_size << " tokens, policy "
         << to_string(options_.policy) << "\n\n"
         << "requests  prompt blocks  from cache  hit ratio  evicted  active  inactive  free  events\n"
         << "--------  -------------  ----------  ---------  -------  ------  --------  ----  ------\n";
  }

  void report_row() {
    const PoolCounts counts = pool_->counts();
    const std::uint64_t evicted = pool_->stats().evicted;
    if (options_.json) {
      json_.begin_object();
      json_.field("requests", totals_.requests);
      json_.field("prompt_blocks", totals_.prompt_blocks);
      json_.field("hit_blocks", totals_.hit_blocks);
      json_.field("evicted", evicted);
      json_.field("active", counts.active);
      json_.field("inactive", counts.inactive);
      json_.field("free", counts.free);
      json_.field("events", totals_.events);
      json_.end_object();
      flush_json();
    } else {
      out_ << std::setw(8) << with_commas(totals_.requests) << std::setw(15) << with_commas(totals_.prompt_blocks)
           << std::setw(12) << with_commas(totals_.hit_blocks) << std::setw(9) << std::fixed << std::setprecision(1)
           << hit_percent() << " %" << std::setw(9) << with_commas(evicted) << std::setw(8) << counts.active
           << std::setw(10) << counts.inactive << std::setw(6) << counts.free << std::setw(8)
           << with_commas(totals_.events) << '\n'
           << std::flush;
    }
  }

  void flush_json() {
    out_ << json_text_;
    json_text_.clear();
  }

  Status end_report() {
    CAIRN_TRY(follow());
    std::vector<ResidentBlock> resident;
    static_cast<void>(pool_->list_resident(0, pool_->capacity(), resident));
    std::ranges::sort(resident, {}, &ResidentBlock::key);
    if (view_.sorted_blocks(pool_->tier()) != resident) {
      return fail(ErrorCode::kFailedPrecondition,
                  "the events do not add up to the contents of the pool; this is a bug in Cairn");
    }
    if (options_.json) {
      json_.end_array();
      json_.field("hit_ratio", hit_percent() / 100, 6);
      json_.begin_object("events");
      json_.field("stored", totals_.stored);
      json_.field("removed", totals_.removed);
      json_.end_object();
      json_.field("resident", resident.size());
      json_.end_object();
      flush_json();
      out_ << "\n";
      return {};
    }
    out_ << "\n"
         << with_commas(totals_.hit_blocks * options_.block_size) << " of "
         << with_commas(totals_.prompt_blocks * options_.block_size)
         << " prompt tokens were in the cache and not computed again.\n"
         << with_commas(totals_.stored) << " Stored and " << with_commas(totals_.removed)
         << " Removed events; a router that follows them knows the same " << with_commas(resident.size())
         << " blocks that the pool holds.\n";
    return {};
  }

  const DemoOptions options_;
  std::ostream& out_;
  Chats chats_;
  std::unique_ptr<EventLog> log_;
  std::unique_ptr<BlockPool> pool_;
  EventSubscriber follower_;
  ResidencyView view_;
  std::deque<Request> in_flight_;  // destroyed before the pool
  Totals totals_;
  std::string json_text_;
  JsonWriter json_{json_text_};  // what is not written to out_ yet is in json_text_
};

}  // namespace

Status run_demo(const DemoOptions& options, std::ostream& out) {
  if (options.chats == 0 || options.turns == 0 || options.system_prompts == 0 || options.in_flight == 0) {
    return fail(ErrorCode::kInvalidArgument, "--chats, --turns, --system-prompts and --in-flight must be at least 1");
  }
  CAIRN_TRY_ASSIGN(Chats chats, Chats::create(options));
  CAIRN_TRY_ASSIGN(std::unique_ptr<EventLog> log, EventLog::create({}));
  CAIRN_TRY_ASSIGN(std::unique_ptr<BlockPool> pool, BlockPool::create({.capacity = options.blocks,
                                                                       .block_size = options.block_size,
                                                                       .policy = options.policy,
                                                                       .observers = {log.get()}}));
  return Demo(options, out, std::move(chats), std::move(log), std::move(pool)).run();
}

}  // namespace cairn::cli
