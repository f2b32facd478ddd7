#include "cairn/leader/leader_members.h"

#include <algorithm>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/wire/rank_proof.h"

namespace cairn {

namespace {

std::string milliseconds_of(Duration duration) {
  return str_cat(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count(), " ms");
}

std::string name_of(const RankPeer& peer) {
  if (peer.is_local) {
    return "this process";
  }
  return peer.process == 0 ? std::string("another machine or process") : str_cat("process ", peer.process);
}

// By more than the 2 % that padding and the split of layers may add.
bool is_beyond(std::uint64_t bytes, std::uint64_t size) {
  return size != 0 && bytes > size && bytes - size > size / 50;
}

}  // namespace

LeaderMembers::LeaderMembers(Options options)
    : options_(std::move(options)),
      hello_limit_(std::min(options_.silence, kHelloLimit)),
      seats_(options_.ranks.count()) {}

void LeaderMembers::open(Model model, TimePoint now) {
  model_ = std::move(model);
  welcome_waiting(now);
}

void LeaderMembers::welcome_waiting(TimePoint now) {
  std::vector<ConnectionId> waiting;  // welcome() may end the connection
  for (const auto& [connection, member] : open_) {
    if (member.phase == Phase::kKnown) {
      waiting.push_back(connection);
    }
  }
  for (const ConnectionId connection : waiting) {
    welcome(connection, open_.at(connection), now);
  }
}

// Gives the rank's seat to this connection, or says which process has it.
Status LeaderMembers::seat(ConnectionId connection, Member& member) {
  Seat& seat = seats_[member.rank()];
  if (seat.connection) {
    const RankPeer& other = open_.at(*seat.connection).peer;
    if (other.process == 0 || other.process != member.peer.process) {
      return fail(ErrorCode::kAlreadyExists,
                  str_cat("rank ", member.rank(), " is already connected from ", name_of(other),
                          "; stop that process, or wait until its connection times out"));
    }
    leave(*seat.connection, "its process connected again");
  }
  seat.connection = connection;
  seat.reason = "it is not ready yet";
  return {};
}

Status LeaderMembers::join(ConnectionId connection, const RankClaim& claim, TimePoint now) {
  CAIRN_TRY(check_claim(claim));
  Member member{.peer = {.is_local = true}, .hello = {.claim = claim}, .since = now, .pinged = now};
  CAIRN_TRY(seat(connection, member));
  Member& kept = open_.emplace(connection, member).first->second;
  if (model_) {
    welcome(connection, kept, now);
  }
  return {};
}

void LeaderMembers::accepted(ConnectionId connection, const RankPeer& peer, const RankNonce& nonce, TimePoint now) {
  make_room_for_stranger();
  open_.emplace(connection, Member{.peer = peer, .phase = Phase::kChallenged, .nonce = nonce, .since = now});
  events_.emplace_back(MemberSend{connection, 0, RankChallenge{nonce}});
}

void LeaderMembers::make_room_for_stranger() {
  const auto is_stranger = [](const auto& each) { return each.second.phase == Phase::kChallenged; };
  if (std::count_if(open_.begin(), open_.end(), is_stranger) < std::ptrdiff_t{kMaxStrangers}) {
    return;
  }
  const auto oldest = std::find_if(open_.begin(), open_.end(), is_stranger);  // ids grow with every connection
  refuse(oldest->first, str_cat(kMaxStrangers, " connections have sent no hello, and this is the oldest one"));
}

bool LeaderMembers::is_proven(ConnectionId connection) const {
  const auto found = open_.find(connection);
  return found != open_.end() && found->second.phase != Phase::kChallenged;
}

// The proof first: a stranger learns nothing else.
Status LeaderMembers::check_hello(const Member& member, const RankHello& hello) const {
  if (!cairn::is_proven(hello, member.nonce, options_.secret)) {
    return fail(ErrorCode::kInvalidArgument, "the rank's proof is wrong; give the rank the leader's secret");
  }
  return check_claim(hello.claim);
}

Status LeaderMembers::check_claim(const RankClaim& claim) const {
  const RankGrid& ranks = options_.ranks;
  if (claim.ranks != ranks) {
    return fail(ErrorCode::kInvalidArgument, str_cat("it is one of ", claim.ranks.to_string(), " and the leader has ",
                                                     ranks.to_string(), "; give both the same number"));
  }
  if (claim.rank >= ranks.count()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("there are ", ranks.to_string(), ", 0 to ", ranks.count() - 1, ", and no rank ", claim.rank));
  }
  return {};
}

Result<LayerRange> LeaderMembers::check_layers(const RankClaim& claim) const {
  CAIRN_TRY_ASSIGN(const LayerRange layers, claim.layer_range(model_->layers));
  const std::uint32_t stage = options_.ranks.stage_of(claim.rank);
  std::vector<std::optional<LayerRange>> stages(options_.ranks.pipeline);
  for (std::uint32_t rank = 0; rank < seats_.size(); ++rank) {
    const Seat& seat = seats_[rank];
    if (!seat.layers || rank == claim.rank) {
      continue;
    }
    const std::uint32_t other = options_.ranks.stage_of(rank);
    if (other == stage && (*seat.layers != layers || seat.claim.groups != claim.groups)) {
      return fail(
          ErrorCode::kInvalidArgument,
          str_cat("rank ", claim.rank, " has layers ", layers.first, " to ", layers.end() - 1, " in ", claim.groups,
                  " groups, but rank ", rank, " of the same pipeline stage ", stage, " has layers ", seat.layers->first,
                  " to ", seat.layers->end() - 1, " in ", seat.claim.groups));
    }
    stages[other] = seat.layers;
  }
  stages[stage] = layers;
  // A rank of one stage that does not say its first layer compares its device memory with the model.
  if (options_.ranks.pipeline > 1 || claim.first_layer) {
    CAIRN_TRY(check_stages(stages, model_->layers));
  }
  return layers;
}

// Ranks with one kind of layers have what the model says, and the number of blocks was made for that.
Status LeaderMembers::check_sizes() const {
  BlockFootprint footprint;
  std::uint32_t layers = 0;
  bool has_groups = false;
  for (std::uint32_t stage = 0; stage < options_.ranks.pipeline; ++stage) {
    const auto ranks = std::span(seats_).subspan(std::size_t{stage} * options_.ranks.tensor, options_.ranks.tensor);
    const auto seat = std::ranges::find_if(ranks, [](const Seat& each) { return each.layers.has_value(); });
    if (seat == ranks.end()) {
      continue;
    }
    const std::uint64_t parts = options_.ranks.tensor / (shares(*seat) ? replicas_of(*seat) : 1);
    const bool in_pages = shares(*seat) || model_->disk_blocks != 0;
    footprint.host_bytes += parts * (in_pages ? seat->claim.padded_bytes : seat->claim.block_bytes);
    footprint.disk.block_bytes += parts * seat->claim.padded_bytes;
    footprint.disk.files += parts * seat->claim.groups;
    layers += seat->layers->count;
    has_groups = has_groups || seat->claim.groups > 1;
  }
  if (!has_groups) {
    return {};
  }
  const TierSizes& sizes = model_->sizes;
  const auto too_large = [&](const char* tier, std::uint64_t size, std::uint64_t bytes, std::uint64_t blocks) {
    // Layers of stages that are not there yet are taken to be as large.
    const std::uint64_t fitting = blocks * layers / std::max(layers, model_->layers);
    return fail(ErrorCode::kInvalidArgument,
                str_cat(tier, ".size is ", size, " bytes for all ranks together, but its blocks take ", bytes,
                        " bytes, because the layers are of several kinds; set ", tier, ".blocks = ", fitting,
                        " in the place of ", tier, ".size"));
  };
  if (const std::uint64_t bytes = model_->host_blocks * footprint.host_bytes; is_beyond(bytes, sizes.host)) {
    return too_large("host", sizes.host, bytes, sizes.host / footprint.host_bytes);
  }
  if (const std::uint64_t bytes = footprint.disk.bytes_of(model_->disk_blocks); is_beyond(bytes, sizes.disk)) {
    return too_large("disk", sizes.disk, bytes, footprint.disk.blocks_in(sizes.disk));
  }
  return {};
}

void LeaderMembers::take_hello(ConnectionId connection, Member& member, const RankHello& hello, TimePoint now) {
  if (const Status fits = check_hello(member, hello); !fits) {
    refuse(connection, fits.error().message);
    return;
  }
  member.hello = hello;
  if (const Status seated = seat(connection, member); !seated) {
    refuse(connection, seated.error().message);
    return;
  }
  member.phase = Phase::kKnown;
  member.since = member.pinged = now;
  if (model_) {
    welcome(connection, member, now);
  }
}

void LeaderMembers::welcome(ConnectionId connection, Member& member, TimePoint now) {
  const Result<LayerRange> layers = check_layers(member.hello.claim);
  if (!layers) {
    refuse(connection, layers.error().message);
    return;
  }
  const RankClaim& claim = member.hello.claim;
  Seat& seat = seats_[claim.rank];
  seat.layers = *layers;
  seat.claim = claim;
  if (const Status fits = check_sizes(); !fits) {
    refuse(connection, fits.error().message);
    return;
  }
  RankWelcome message{.leader = options_.leader, .heartbeat = options_.heartbeat, .config = model_->config};
  const Result<bool> chosen = choose_store(claim, message);
  if (!chosen) {
    refuse(connection, chosen.error().message);
    return;
  }
  if (!*chosen) {
    return;  // until the keeper is ready
  }
  member.generation = ++seat.generation;
  member.phase = Phase::kWelcomed;
  member.since = now;
  message.generation = member.generation;
  if (!member.peer.is_local) {
    message.proof = proof_of(message, member.hello, member.nonce, options_.secret);
  }
  events_.emplace_back(MemberSend{connection, member.generation, std::move(message)});
}

std::span<LeaderMembers::Seat> LeaderMembers::replicas_of(std::uint32_t rank) {
  const std::uint32_t replicas = replicas_of(seats_[rank]);
  const std::uint32_t first = rank - options_.ranks.tensor_rank_of(rank) % replicas;
  return std::span(seats_).subspan(first, replicas);
}

Result<bool> LeaderMembers::choose_store(const RankClaim& claim, RankWelcome& message) {
  Seat& seat = seats_[claim.rank];
  if (!shares(seat)) {
    return true;
  }
  const std::span<Seat> replicas = replicas_of(claim.rank);
  const auto keeper = std::ranges::find_if(replicas, &Seat::is_keeper);
  if (keeper != replicas.end() && open_.at(*keeper->connection).phase != Phase::kReady) {
    return false;
  }
  SharedMemoryPtr& memory = replicas.front().host_memory;
  const std::uint64_t size = model_->host_blocks * claim.padded_bytes;
  if (size != 0 && memory == nullptr) {
    CAIRN_TRY_ASSIGN(memory, model_->make_memory(size));
  }
  if (size != 0 && memory->size() != size) {
    return fail(ErrorCode::kInvalidArgument, str_cat("its host memory would have ", size,
                                                     " bytes, but that of the ranks with the same layers and heads ",
                                                     memory->size(), "; give all of them the same device memory"));
  }
  seat.is_keeper = keeper == replicas.end();
  message.store = seat.is_keeper ? RankStore::kKeeper : RankStore::kGuest;
  message.has_host_memory = size != 0;
  message.host_memory = size != 0 ? memory : nullptr;
  return true;
}

void LeaderMembers::ready(Member& member, const RankReady& message, TimePoint now) {
  Seat& seat = seats_[member.rank()];
  member.phase = Phase::kReady;
  member.since = member.pinged = now;
  seat.block_bytes = message.block_bytes;
  seat.is_reserved = message.is_reserved;
  seat.reason.clear();
  // It has waited for the transfers of its own process. It knows nothing of another process that may still live.
  std::erase_if(seat.formers, [&](const Former& former) {
    const bool is_another = former.peer.process != 0 && former.peer.process != member.peer.process;
    if (former.peer.is_local || is_another) {
      return false;
    }
    events_.emplace_back(MemberSettled{member.rank(), former.generation});
    events_.emplace_back(MemberForget{former.connection});
    return true;
  });
  events_.emplace_back(MemberReady{member.rank(), member.generation, message.is_reserved});
}

std::optional<LeaderMembers::From> LeaderMembers::received(ConnectionId connection, std::uint32_t generation,
                                                           const RankMessage& message, TimePoint now) {
  const auto found = open_.find(connection);
  if (found == open_.end()) {
    return std::nullopt;
  }
  Member& member = found->second;
  if (generation != member.generation) {
    return std::nullopt;  // of an earlier connection
  }
  if (const auto* refusal = std::get_if<RankRefusal>(&message)) {
    closed(connection, str_cat("it refused: ", refusal->reason));
    return std::nullopt;
  }
  if (member.phase == Phase::kChallenged && std::holds_alternative<RankHello>(message)) {
    take_hello(connection, member, std::get<RankHello>(message), now);
    return std::nullopt;
  }
  if (member.phase == Phase::kKnown && std::holds_alternative<RankPong>(message)) {
    return std::nullopt;
  }
  if (member.phase == Phase::kWelcomed && std::holds_alternative<RankReady>(message)) {
    ready(member, std::get<RankReady>(message), now);
    return std::nullopt;
  }
  if (member.phase == Phase::kReady) {
    member.unanswered.reset();
    if (std::holds_alternative<RankPong>(message)) {
      return std::nullopt;
    }
    if (std::holds_alternative<RankTransferOutcome>(message) || std::holds_alternative<RankSettled>(message)) {
      return From{member.rank(), member.generation};
    }
  }
  refuse(connection, "it sent a message that is not its turn");
  return std::nullopt;
}

// Ends the connection. Its transfers may not be over.
void LeaderMembers::leave(ConnectionId connection, const std::string& reason) {
  const Member member = open_.at(connection);
  open_.erase(connection);
  events_.emplace_back(MemberHangUp{connection});
  const bool was_ready = member.phase == Phase::kReady;
  if (member.phase != Phase::kChallenged) {
    Seat& seat = seats_[member.rank()];
    seat.connection.reset();
    seat.layers.reset();
    seat.is_keeper = false;
    seat.reason = reason;
    if (was_ready) {
      seat.formers.push_back({.connection = connection, .generation = member.generation, .peer = member.peer});
      events_.emplace_back(MemberGone{member.rank(), member.generation, reason});
    }
  }
  if (!was_ready) {
    events_.emplace_back(MemberForget{connection});
  }
}

void LeaderMembers::closed(ConnectionId connection, const std::string& reason) {
  if (open_.contains(connection)) {
    leave(connection, reason);
  }
}

void LeaderMembers::refuse(ConnectionId connection, const std::string& reason) {
  const auto found = open_.find(connection);
  if (found != open_.end()) {
    events_.emplace_back(MemberSend{connection, found->second.generation, RankRefusal{reason}});
    leave(connection, reason);
  }
}

void LeaderMembers::ended(ConnectionId connection) {
  closed(connection, "its process has ended");
  for (std::uint32_t rank = 0; rank < seats_.size(); ++rank) {
    std::erase_if(seats_[rank].formers, [&](const Former& former) {
      if (former.connection != connection) {
        return false;
      }
      events_.emplace_back(MemberSettled{rank, former.generation});
      events_.emplace_back(MemberForget{connection});
      return true;
    });
  }
}

std::optional<TimePoint> LeaderMembers::time_of(const Member& member) const {
  switch (member.phase) {
    case Phase::kChallenged:
      return member.since + hello_limit_;
    case Phase::kKnown:  // once there is a model, it waits for a keeper
      return model_ ? std::optional(member.pinged + options_.heartbeat) : std::nullopt;
    case Phase::kWelcomed:
      return member.since + kRankReadyLimit;
    case Phase::kReady:
      break;
  }
  const TimePoint next_ping = member.pinged + options_.heartbeat;
  return member.unanswered ? std::min(*member.unanswered + options_.silence, next_ping) : next_ping;
}

void LeaderMembers::tick(TimePoint now) {
  std::vector<std::pair<ConnectionId, std::string>> silent;
  for (auto& [connection, member] : open_) {
    const std::optional<TimePoint> due = time_of(member);
    if (!due || now < *due) {
      continue;
    }
    if (member.phase == Phase::kKnown) {
      member.pinged = now;
      events_.emplace_back(MemberSend{connection, 0, RankPing{.number = ++pings_}});
    } else if (member.phase != Phase::kReady) {
      silent.emplace_back(connection, member.phase == Phase::kChallenged
                                          ? str_cat("no hello within ", milliseconds_of(hello_limit_))
                                          : str_cat("it was not ready within ", milliseconds_of(kRankReadyLimit)));
    } else if (member.unanswered && now >= *member.unanswered + options_.silence) {
      silent.emplace_back(connection, str_cat("it said nothing for ", milliseconds_of(now - *member.unanswered)));
    } else {
      member.pinged = now;
      member.unanswered = member.unanswered.value_or(now);
      events_.emplace_back(MemberSend{connection, member.generation, RankPing{.number = ++pings_}});
    }
  }
  for (const auto& [connection, reason] : silent) {
    refuse(connection, reason);
  }
  if (model_) {
    welcome_waiting(now);  // a keeper that they wait for may be ready, or gone
  }
}

std::optional<TimePoint> LeaderMembers::next_time() const {
  std::optional<TimePoint> next;
  for (const auto& [connection, member] : open_) {
    const std::optional<TimePoint> due = time_of(member);
    if (due && (!next || *due < *next)) {
      next = due;
    }
  }
  return next;
}

std::vector<RankPresence> LeaderMembers::presence() const {
  std::vector<RankPresence> all;
  all.reserve(seats_.size());
  for (const Seat& seat : seats_) {
    const std::uint32_t replicas = replicas_of(seat);
    all.push_back({.is_there = seat.connection && open_.at(*seat.connection).phase == Phase::kReady,
                   .generation = seat.generation,
                   .replica = options_.ranks.tensor_rank_of(static_cast<std::uint32_t>(all.size())) % replicas,
                   .replicas = replicas,
                   .shares = shares(seat),
                   .reason = seat.reason});
  }
  return all;
}

// The model says what the ranks have of a block only if all layers are of one kind.
std::uint32_t LeaderMembers::replicas_of(const Seat& seat) const {
  return model_ && seat.claim.groups == 1 ? model_->replicas : 1;
}

std::optional<ConnectionId> LeaderMembers::connection_of(std::uint32_t rank) const {
  const std::optional<ConnectionId>& connection = seats_[rank].connection;
  return connection && open_.at(*connection).phase == Phase::kReady ? connection : std::nullopt;
}

RankPeer LeaderMembers::peer_of(std::uint32_t rank) const {
  const std::optional<ConnectionId>& connection = seats_[rank].connection;
  return connection ? open_.at(*connection).peer : RankPeer{};
}

bool LeaderMembers::all_ready() const {
  return std::all_of(seats_.begin(), seats_.end(), [this](const Seat& seat) {
    return seat.connection && open_.at(*seat.connection).phase == Phase::kReady;
  });
}

}  // namespace cairn
