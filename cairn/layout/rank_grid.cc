#include "cairn/layout/rank_grid.h"

#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

constexpr std::uint64_t kMaxRanks = 65'536;

std::string text_of(const LayerRange& range) {
  return range.count == 1 ? str_cat("layer ", range.first)
                          : str_cat("layers ", range.first, " to ", std::int64_t{range.first} + range.count - 1);
}

}  // namespace

Status RankGrid::validate() const {
  if (tensor == 0 || pipeline == 0) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("a grid of ", tensor, " tensor and ", pipeline, " pipeline ranks; give at least 1 of each"));
  }
  if (std::uint64_t{tensor} * pipeline > kMaxRanks) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("a grid of ", tensor, " x ", pipeline, " ranks; at most ", kMaxRanks, " are possible"));
  }
  return {};
}

std::string RankGrid::to_string() const {
  const std::string ranks = str_cat(count(), count() == 1 ? " rank" : " ranks");
  return pipeline == 1 ? ranks : str_cat(ranks, " (", tensor, " tensor x ", pipeline, " pipeline)");
}

Result<HeadShare> share_of(std::uint32_t rank, std::uint32_t ranks, std::uint32_t whole_heads) {
  if (rank >= ranks) {
    return fail(ErrorCode::kOutOfRange, str_cat("rank ", rank, " of ", ranks));
  }
  if (whole_heads == 0 || (whole_heads % ranks != 0 && ranks % whole_heads != 0)) {
    return fail(ErrorCode::kInvalidArgument, str_cat(whole_heads, " heads cannot be dealt to ", ranks,
                                                     " ranks equally; one number must divide the other"));
  }
  if (whole_heads >= ranks) {
    const std::uint32_t heads = whole_heads / ranks;
    return HeadShare{rank * heads, heads, 0, 1};
  }
  const std::uint32_t replicas = ranks / whole_heads;
  return HeadShare{rank / replicas, 1, rank % replicas, replicas};
}

LayerRange even_layers(std::uint32_t stage, std::uint32_t stages, std::uint32_t whole_layers) {
  const std::uint32_t each = whole_layers / stages;
  const std::uint32_t remaining = whole_layers % stages;
  // The last stage never gets one of the remaining layers, which are fewer than the stages.
  const auto has_extra = [&](std::uint32_t of) { return of + 1 < stages && stages - 1 - of <= remaining; };
  LayerRange range;
  for (std::uint32_t before = 0; before < stage; ++before) {
    range.first += each + (has_extra(before) ? 1 : 0);
  }
  range.count = each + (has_extra(stage) ? 1 : 0);
  return range;
}

Status check_stages(std::span<const std::optional<LayerRange>> stages, std::uint32_t whole_layers) {
  std::uint64_t covered = 0;  // layers up to here are in known stages, or may be in stages before the next known one
  std::optional<std::size_t> before;  // the last known stage
  bool is_next = true;                // no stage between `before` and this one is unknown
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    if (!stages[stage]) {
      is_next = false;
      continue;
    }
    const LayerRange& range = *stages[stage];
    const std::string name = str_cat("pipeline stage ", stage, " has ", text_of(range));
    if (range.count == 0) {
      return fail(ErrorCode::kInvalidArgument, str_cat("pipeline stage ", stage, " has no layers; give at least one"));
    }
    if (std::uint64_t{range.first} + range.count > whole_layers) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat(name, ", but the leader's model has ", whole_layers, " layers, 0 to ", whole_layers - 1));
    }
    if (range.first < covered) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat(name, ", but stage ", *before, " has ", text_of(*stages[*before]),
                          "; stages must not overlap, and come in the order of their layers"));
    }
    if (is_next && range.first > covered) {
      return fail(
          ErrorCode::kInvalidArgument,
          str_cat(name, before ? str_cat(" and stage ", *before, " ", text_of(*stages[*before])) : "",
                  "; no stage has ",
                  text_of({static_cast<std::uint32_t>(covered), static_cast<std::uint32_t>(range.first - covered)})));
    }
    covered = range.end();
    before = stage;
    is_next = true;
  }
  if (is_next && before && covered < whole_layers) {
    return fail(
        ErrorCode::kInvalidArgument,
        str_cat("the last pipeline stage, ", *before, ", has ", text_of(*stages[*before]),
                ", but the leader's model has ", whole_layers, " layers; no stage has ",
                text_of({static_cast<std::uint32_t>(covered), static_cast<std::uint32_t>(whole_layers - covered)})));
  }
  return {};
}

Result<RankShare> RankShare::make(const RankGrid& grid, std::uint32_t rank, const KvShape& whole,
                                  const std::optional<LayerRange>& layers) {
  CAIRN_TRY(grid.validate());
  if (rank >= grid.count()) {
    return fail(ErrorCode::kOutOfRange, str_cat("rank ", rank, " of ", grid.to_string(), "; ranks count from 0"));
  }
  RankShare share{.whole_layers = whole.layers, .whole_heads = whole.heads};
  CAIRN_TRY_ASSIGN(share.heads, share_of(grid.tensor_rank_of(rank), grid.tensor, whole.heads));
  share.layers = layers ? *layers : even_layers(grid.stage_of(rank), grid.pipeline, whole.layers);
  if (share.layers.count == 0 || std::uint64_t{share.layers.first} + share.layers.count > whole.layers) {
    return fail(ErrorCode::kOutOfRange, str_cat("rank ", rank, " has ", share.layers.count, " layers from layer ",
                                                share.layers.first, " on; the model has ", whole.layers));
  }
  return share;
}

KvShape RankShare::shape(const KvShape& whole) const {
  KvShape part = whole;
  part.layers = layers.count;
  part.heads = heads.heads;
  return part;
}

std::string RankShare::name() const {
  return str_cat("l", layers.first, "-", layers.end() - 1, ".h", heads.first_head, "-",
                 heads.first_head + heads.heads - 1);
}

}  // namespace cairn
