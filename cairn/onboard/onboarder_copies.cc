// Moving: from a queued piece to a load's result.
#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/onboard/onboarder_impl.h"

namespace cairn {

namespace {

// A full executor is asked again after this long, unless something ends before.
constexpr Duration kTryAgain = std::chrono::milliseconds(1);

std::uint32_t count_done(std::span<const BlockState> states) {
  const auto other = std::find_if(states.begin(), states.end(), [](BlockState s) { return s != BlockState::kDone; });
  return static_cast<std::uint32_t>(other - states.begin());
}

}  // namespace

void Onboarder::Impl::queue(const PiecePtr& piece, bool first) {
  PieceList& queued = queues_[index_of(piece->lane)];
  piece->is_queued = true;
  piece->place.front() = piece;
  piece->place_in_queue = piece->place.begin();
  queued.splice(first ? queued.begin() : queued.end(), piece->place);
}

void Onboarder::Impl::take_from_queue(const PiecePtr& piece) {
  piece->place.splice(piece->place.begin(), queues_[index_of(piece->lane)], piece->place_in_queue);
  piece->place.front() = nullptr;
  piece->is_queued = false;
}

// Everything that can go on does; whether anything did. Each queue keeps its order.
bool Onboarder::Impl::serve(Outbox& outbox) {
  bool any = false;
  for (bool again = true; again;) {
    again = false;
    while (!awoken_.empty()) {
      const PiecePtr waiter = awoken_.front();
      awoken_.pop_front();
      plan_again(waiter, outbox);
      again = true;
    }
    for (PieceList& queued : queues_) {
      while (!queued.empty()) {
        const PiecePtr piece = queued.front();
        take_from_queue(piece);
        if (!launch(piece, outbox)) {
          queue(piece, true);
          try_again_ = parts_.clock->now() + kTryAgain;
          outbox.wake = true;
          break;
        }
        again = true;
      }
    }
    any = any || again;
  }
  return any;
}

// False: it has to wait.
bool Onboarder::Impl::launch(const PiecePtr& piece, Outbox& outbox) {
  try {
    return try_launch(piece, outbox);
  } catch (const std::bad_alloc&) {
    give_up(piece, kNoMemory, outbox);
    return true;
  }
}

bool Onboarder::Impl::try_launch(const PiecePtr& piece, Outbox& outbox) {
  if (piece->stage == Piece::Stage::kToHost && !piece->host_targets) {
    if (!find_host_room(piece, outbox)) {
      return false;
    }
    if (piece->stage != Piece::Stage::kToHost) {
      return true;
    }
  }
  const Result<TransferId> copy = submit(piece);
  if (copy) {
    piece->copy = *copy;
    piece->is_flying = true;
    ++flying_;
    return true;
  }
  if (copy.error().code == ErrorCode::kExhausted) {
    return false;
  }
  give_up(piece, copy.error().message, outbox);
  return true;
}

// False: it has to wait for room. Where there will be none the piece goes another way, or is given up.
bool Onboarder::Impl::find_host_room(const PiecePtr& piece, Outbox& outbox) {
  Result<MutableBlocks> room = host_pool()->allocate(piece->count);
  if (room) {
    piece->host_targets.emplace(*std::move(room));
    return true;
  }
  if (may_be_tried(parts_.disk_to_device)) {
    leave(piece, Goal::kHost);
    piece->stage = Piece::Stage::kLast;
    piece->lane = Lane::kDiskToDevice;
    queue(piece);
    return true;
  }
  if (flying_ > 0) {
    return false;
  }
  give_up(piece, room.error().message, outbox);
  return true;
}

Result<TransferId> Onboarder::Impl::submit(const PiecePtr& piece) {
  TierLink& link = *links_[index_of(piece->lane)];
  Load& load = *piece->load;
  CopySource source = *std::move(piece->source);
  piece->source.reset();
  TierLink::Done done = [self = shared_from_this(), piece](TierLink::Arrived&& arrived) {
    self->landed(piece, std::move(arrived));
  };
  if (load.kind == Load::Kind::kBlocks && piece->stage == Piece::Stage::kLast) {
    const std::span<const BlockId> block_ids = std::span(load.block_ids.block_ids).subspan(piece->first, source.size());
    auto copy = link.fill({.source = std::move(source),
                           .targets = {.block_ids = {block_ids.begin(), block_ids.end()},
                                       .held = load.block_ids.held,
                                       .not_before = load.block_ids.not_before},
                           .deadline = load.copies_by,
                           .done = std::move(done)});
    if (!copy) {
      piece->source.emplace(std::move(copy.error().blocks.source));
      return Unexpected(std::move(copy.error().error));
    }
    return *copy;
  }
  std::optional<MutableBlocks>& targets = piece->stage == Piece::Stage::kToHost ? piece->host_targets : piece->targets;
  MutableBlocks given = *std::move(targets);
  targets.reset();
  auto copy = link.bring(
      {.source = std::move(source), .targets = std::move(given), .deadline = load.copies_by, .done = std::move(done)});
  if (!copy) {
    piece->source.emplace(std::move(copy.error().blocks.source));
    targets.emplace(std::move(copy.error().blocks.targets));
    return Unexpected(std::move(copy.error().error));
  }
  return *copy;
}

void Onboarder::Impl::landed(const PiecePtr& piece, TierLink::Arrived&& arrived) {
  Outbox outbox;
  {
    const MutexLock lock(mutex_);
    --flying_;
    piece->is_flying = false;
    try {
      if (piece->stage == Piece::Stage::kToHost) {
        in_host(piece, arrived, outbox);
      } else {
        at_goal(piece, arrived, outbox);
      }
    } catch (const std::bad_alloc&) {
      give_up(piece, kNoMemory, outbox);
    }
    // What arrived is held until here: those who waited for it find it.
    serve(outbox);
    close(outbox);
  }
  tell(outbox);
}

void Onboarder::Impl::in_host(const PiecePtr& piece, TierLink::Arrived& arrived, Outbox& outbox) {
  Load& load = *piece->load;
  leave(piece, Goal::kHost);
  std::uint32_t count = arrived.blocks.size();
  if (load.is_prefix()) {
    count = count_done(arrived.states);
  }
  if (count < piece->count) {
    load.is_late = load.is_late || std::ranges::count(arrived.states, BlockState::kExpired) > 0;
    cut(load, piece->first + count, arrived.error, piece, outbox);
  }
  if (count == 0 || load.is_over || load.is_cancelled || (load.is_prefix() && piece->first >= load.hopeful)) {
    end_piece(piece, outbox);
    return;
  }
  piece->source.emplace(arrived.blocks.share(count).pin());
  if (piece->targets && count < piece->targets->size()) {
    MutableBlocks wanted = piece->targets->take_front(count);
    piece->targets.emplace(std::move(wanted));
  }
  piece->stage = Piece::Stage::kLast;
  piece->lane = Lane::kHostToDevice;
  queue(piece);
}

void Onboarder::Impl::at_goal(const PiecePtr& piece, TierLink::Arrived& arrived, Outbox& outbox) {
  Load& load = *piece->load;
  if (!load.is_over) {
    if (!arrived.error.empty()) {
      load.is_late = load.is_late || std::ranges::count(arrived.states, BlockState::kExpired) > 0;
      cut(load, piece->first + count_done(arrived.states), arrived.error, piece, outbox);
    }
    if (!load.is_there.empty()) {
      for (std::size_t i = 0; i < arrived.states.size(); ++i) {
        load.is_there[piece->first + i] = arrived.states[i] == BlockState::kDone;
      }
    }
    load.arrived.push_back(std::move(arrived.blocks));
  }
  end_piece(piece, outbox);
}

// What it waited for has ended, well or not: its keys are looked for once more.
void Onboarder::Impl::plan_again(const PiecePtr& waiter, Outbox& outbox) {
  const LoadPtr load = waiter->load;
  if (waiter->stage == Piece::Stage::kOver) {
    return;
  }
  ++load->open;
  const std::uint32_t last = waiter->first + waiter->count;
  try {
    Plan plan = survey(load, waiter->first, last, waiter->attempt + 1);
    if (plan.end < last) {
      cut(*load, plan.end, "a copy that another load was making did not arrive, and its source is gone", waiter,
          outbox);
    }
    begin(load, plan, waiter->first, std::move(waiter->targets), outbox);
  } catch (const std::bad_alloc&) {
    run_out(*load, outbox);
  }
  end_piece(waiter, outbox);
  settle(load, outbox);
}

void Onboarder::Impl::leave(const PiecePtr& piece, Goal goal) {
  auto& pieces = coming_[index_of(goal)];
  if (!pieces.empty()) {
    for (const BlockKey& key : piece->keys()) {
      const auto found = pieces.find(key);
      if (found != pieces.end() && found->second == piece) {
        pieces.erase(found);
      }
    }
  }
  awoken_.splice(awoken_.end(), piece->waiting[index_of(goal)]);
}

void Onboarder::Impl::end_piece(const PiecePtr& piece, Outbox& outbox) {
  if (piece->stage == Piece::Stage::kOver) {
    return;
  }
  if (piece->is_queued) {
    take_from_queue(piece);
  }
  piece->stage = Piece::Stage::kOver;
  leave(piece, Goal::kDevice);
  leave(piece, Goal::kHost);
  piece->place.front() = piece;
  outbox.over.splice(outbox.over.end(), piece->place);
  std::erase(piece->load->pieces, piece);
  settle(piece->load, outbox);
}

template <typename Which>
void Onboarder::Impl::end_pieces(Load& load, Outbox& outbox, Which which) {
  // What ends leaves the list, and may take others with it.
  for (std::size_t i = 0; i < load.pieces.size();) {
    const PiecePtr piece = load.pieces[i];
    if (piece->is_flying || !which(*piece)) {
      ++i;
    } else {
      end_piece(piece, outbox);
    }
  }
}

void Onboarder::Impl::give_up(const PiecePtr& piece, std::string_view why, Outbox& outbox) {
  cut(*piece->load, piece->first, why, piece, outbox);
  end_piece(piece, outbox);
}

void Onboarder::Impl::cut(Load& load, std::uint32_t at, std::string_view why, const PiecePtr& but, Outbox& outbox) {
  load.note(why);
  if (!load.is_prefix()) {
    return;
  }
  load.hopeful = std::min(load.hopeful, at);
  end_pieces(load, outbox, [&](const Piece& piece) { return &piece != but.get() && piece.first >= load.hopeful; });
}

void Onboarder::Impl::run_out(Load& load, Outbox& outbox) {
  load.note(kNoMemory);
  load.planned = static_cast<std::uint32_t>(load.keys.size());  // what it ends with is less, whatever was found
  end_pieces(load, outbox, [&load](const Piece& piece) {
    load.hopeful = std::min(load.hopeful, piece.first);
    return true;
  });
}

void Onboarder::Impl::cancel(const LoadPtr& load, std::string_view why, Outbox& outbox) {
  load->is_cancelled = true;
  load->note(why);
  ++load->open;
  for (const PiecePtr& piece : load->pieces) {
    if (piece->is_flying) {
      try {
        links_[index_of(piece->lane)]->cancel(piece->copy);
      } catch (const std::bad_alloc&) {
        // Then it goes on to its end.
      }
    }
  }
  end_pieces(*load, outbox, [](const Piece&) { return true; });
  settle(load, outbox);
}

void Onboarder::Impl::cancel_all(std::string_view why, Outbox& outbox) {
  for (auto next = loads_.begin(); next != loads_.end();) {
    const LoadPtr load = (next++)->second;  // it may go
    cancel(load, why, outbox);
  }
}

void Onboarder::Impl::call_in(Load& load) {
  load.is_called_in = true;
  for (const PiecePtr& piece : load.pieces) {
    if (piece->is_flying) {
      links_[index_of(piece->lane)]->executor().check_deadlines();
    }
  }
}

void Onboarder::Impl::settle(const LoadPtr& load, Outbox& outbox) {
  --load->open;
  // Copies behind a hole change nothing any more. Only the engine waits for them: they write to its blocks.
  const bool is_decided = load->kind == Load::Kind::kPrefix && load->open == load->pieces.size() &&
                          std::none_of(load->pieces.begin(), load->pieces.end(),
                                       [&load](const PiecePtr& piece) { return piece->first < load->hopeful; });
  if (!load->is_over && (load->open == 0 || is_decided)) {
    finish(load, outbox);
  }
}

// Copies that are still under way go on without it.
void Onboarder::Impl::finish(const LoadPtr& load, Outbox& outbox) {
  load->is_over = true;
  loads_.erase(load->id);
  ++totals_.finished;
  end_pieces(*load, outbox, [](const Piece&) { return true; });
  LoadResult result = result_of(*load);
  if (result.prefix >= load->planned) {
    result.why.clear();
  } else if (load->is_late || parts_.clock->now() >= load->deadline) {
    ++totals_.expired;
  }
  load->ending.front() = {.load = load, .result = std::move(result), .held = std::move(load->block_ids.held)};
  outbox.ended.splice(outbox.ended.end(), load->ending);
}

LoadResult Onboarder::Impl::result_of(Load& load) {
  LoadResult result;
  result.not_worth_it = load.not_worth_it;
  result.why = std::move(load.why);
  if (load.is_fenced) {
    return result;
  }
  try {
    collect(load, result);
  } catch (const std::bad_alloc&) {
    result.prefix = result.blocks.size();
    result.why = kNoMemory;
  }
  if (load.is_prefix()) {
    for (std::uint32_t i = 0; i < result.prefix; ++i) {
      ++result.from[index_of(i < load.found.size() ? load.found[i] : CacheLevel::kG1)];
    }
  }
  return result;
}

void Onboarder::Impl::collect(Load& load, LoadResult& result) {
  switch (load.kind) {
    case Load::Kind::kPrefix: {
      result.blocks = std::move(load.base);
      const auto rest = std::span<const BlockKey>(load.keys).subspan(result.blocks.size());
      CAIRN_CHECK(result.blocks.append(device_pool()->match_prefix(rest)).has_value(), "all of it is on the device");
      result.prefix = result.blocks.size();
      break;
    }
    case Load::Kind::kBlocks:
      result.prefix = static_cast<std::uint32_t>(std::find(load.is_there.begin(), load.is_there.end(), false) -
                                                 load.is_there.begin());
      break;
    case Load::Kind::kGiven:
      result.blocks = device_pool()->scan(load.keys);
      result.prefix = result.blocks.size();
      if (result.why.empty()) {
        result.why = "no tier that can be read has them";
      }
      break;
    case Load::Kind::kPrefetch:
      result.prefix = static_cast<std::uint32_t>(std::count(load.is_there.begin(), load.is_there.end(), true));
      break;
  }
}

void Onboarder::Impl::close(Outbox& outbox) { telling_ += outbox.ended.empty() ? 0 : 1; }

void Onboarder::Impl::tell(Outbox& outbox) {
  outbox.over.clear();
  for (EndedLoad& ended : outbox.ended) {
    ended.held.reset();
  }
  std::exception_ptr thrown;
  for (EndedLoad& ended : outbox.ended) {
    try {
      tell(ended);
    } catch (...) {
      thrown = std::current_exception();  // by one caller: the others are told, and the counts are right
    }
  }
  const bool told = !outbox.ended.empty();
  outbox.ended.clear();
  if (told) {
    const MutexLock lock(mutex_);
    --telling_;
  }
  if (outbox.wake && parts_.wake) {
    parts_.wake();
  }
  if (thrown != nullptr) {
    std::rethrow_exception(thrown);
  }
}

void Onboarder::Impl::tell(EndedLoad& ended) {
  Load& load = *ended.load;
  // What is beyond the result is let go of before it is told.
  load.arrived.clear();
  load.here.clear();
  load.base = {};
  const auto done = std::exchange(load.done, {});
  if (const auto* prefix = std::get_if<Load::PrefixDone>(&done)) {
    if (*prefix) {
      (*prefix)(std::move(ended.result));
    }
  } else if (const auto* given = std::get_if<Load::GivenDone>(&done)) {
    if (*given && ended.result.blocks.empty() && !load.keys.empty()) {
      (*given)(fail(ErrorCode::kUnavailable, std::move(ended.result.why)));
    } else if (*given) {
      (*given)(std::move(ended.result.blocks));
    }
  } else if (const auto& prefetch = std::get<Load::PrefetchDone>(done)) {
    prefetch(ended.result.prefix);
  }
}

}  // namespace cairn
