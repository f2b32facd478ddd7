#include "cairn/cli/disk.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <functional>
#include <iomanip>
#include <ostream>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "cairn/base/str_cat.h"
#include "cairn/cli/text.h"
#include "cairn/tier/disk_check.h"
#include "cairn/tier/disk_compact.h"
#include "cairn/tier/disk_file.h"
#include "cairn/tier/disk_rank_files.h"
#include "cairn/tier/disk_reshard.h"

namespace cairn::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostListed = 20;

struct Looked {
  DiskFile file;
  DiskRecovery recovery;
};

Result<Looked> look_at(const std::string& path) {
  CAIRN_TRY_ASSIGN(DiskFile file, DiskFile::inspect(path));
  CAIRN_TRY_ASSIGN(DiskRecovery recovery, file.recover());
  return Looked{std::move(file), std::move(recovery)};
}

std::string hex(std::uint64_t number) {
  std::ostringstream out;
  out << std::hex << std::setfill('0') << std::setw(16) << number;
  return out.str();
}

Json to_json(const DiskEntry& entry) {
  return {{"block", index_of(entry.block_id)},
          {"key", entry.key.to_string()},
          {"order", entry.order},
          {"checksum", hex(static_cast<std::uint64_t>(entry.checksum))},
          {"tokens_hash", hex(value_of(entry.tokens_hash))}};
}

Json to_json(const std::vector<DiskEntry>& entries) {
  Json all = Json::array();
  for (const DiskEntry& entry : entries) {
    all.push_back(to_json(entry));
  }
  return all;
}

// Numbers of blocks by position in their sequence: 0, 1, 2 to 3, 4 to 7 and so on.
std::vector<std::uint64_t> depths_of(const std::vector<DiskEntry>& entries) {
  std::vector<std::uint64_t> depths;
  for (const DiskEntry& entry : entries) {
    const auto bucket = static_cast<std::size_t>(std::bit_width(entry.key.position()));
    depths.resize(std::max(depths.size(), bucket + 1));
    ++depths[bucket];
  }
  return depths;
}
std::pair<std::uint32_t, std::uint32_t> range_of(std::size_t bucket) {
  return bucket == 0 ? std::pair(0U, 0U) : std::pair(1U << (bucket - 1), (1U << bucket) - 1);
}

std::uint64_t allocated_bytes(const std::string& path) {
  struct stat facts{};
  return stat(path.c_str(), &facts) == 0 ? static_cast<std::uint64_t>(facts.st_blocks) * 512 : 0;
}

// What the files of ranks beside a leader's file say of the grid that wrote them.
struct RanksSeen {
  std::vector<std::string> files = {};  // names, without "PATH."
  std::size_t stages = 0;               // that have different layers
  std::size_t heads = 0;                // parts of the heads in each
};
RanksSeen ranks_of(const std::string& path) {
  RanksSeen seen;
  std::set<std::uint32_t> layers;
  std::set<std::uint32_t> heads;
  for (const RankFileName& name : find_rank_files(path)) {
    seen.files.push_back(name.suffix);
    layers.insert(name.part.layers.first);
    heads.insert(name.part.first_head);
  }
  seen.stages = layers.size();
  seen.heads = heads.size();
  return seen;
}

std::string counted(std::size_t count, const char* what) { return str_cat(count, " ", what, count == 1 ? "" : "s"); }

Json inspection_as_json(const Looked& looked, const DiskOptions& options) {
  const DiskGeometry& geometry = looked.file.geometry();
  const Namespace& space = geometry.space;
  const std::vector<std::uint64_t> depths = depths_of(looked.recovery.entries);
  Json json{{"path", options.path},
            {"format", DiskFile::kFormat},
            {"closed_in_order", looked.recovery.clean},
            {"model", space.model},
            {"tenant", space.tenant},
            {"weights_generation", space.weights_generation},
            {"layout", space.layout},
            {"element_type", space.element_type},
            {"shard", space.shard},
            {"key_scheme", to_string(space.scheme)},
            {"block_tokens", space.block_size},
            {"block_bytes", geometry.block_bytes},
            {"row_bytes", geometry.row_bytes},
            {"file_bytes", looked.file.file_bytes()},
            {"allocated_bytes", allocated_bytes(options.path)},
            {"blocks", geometry.blocks},
            {"used", looked.recovery.entries.size()},
            {"damaged", looked.recovery.damaged},
            {"superseded", looked.recovery.superseded},
            {"sequences", depths.empty() ? 0 : depths[0]},
            {"depths", Json::array()}};
  for (std::size_t i = 0; i < depths.size(); ++i) {
    json["depths"].push_back({{"from", range_of(i).first}, {"to", range_of(i).second}, {"blocks", depths[i]}});
  }
  if (!geometry.has_blocks()) {
    const RanksSeen seen = ranks_of(options.path);
    json["ranks"] = {{"files", seen.files}, {"stages", seen.stages}, {"parts_of_heads", seen.heads}};
  }
  json["is_of_rank"] = is_rank_file(looked.file);
  if (options.keys) {
    json["entries"] = to_json(looked.recovery.entries);
  }
  return json;
}

// Of a leader's file: the parts of its blocks.
void write_ranks(const std::string& path, std::ostream& out) {
  const RanksSeen seen = ranks_of(path);
  out << "\nfiles of ranks      ";
  if (seen.files.empty()) {
    out << "none beside it\n";
    return;
  }
  out << counted(seen.files.size(), "file") << ": " << counted(seen.stages, "pipeline stage") << ", heads in "
      << counted(seen.heads, "part") << "\n";
  for (const std::string& name : seen.files) {
    out << "  " << path << "." << name << "\n";
  }
}

void write_inspection(const Looked& looked, const DiskOptions& options, std::ostream& out) {
  const DiskGeometry& geometry = looked.file.geometry();
  const Namespace& space = geometry.space;
  const DiskRecovery& recovery = looked.recovery;
  const auto line = [&out](const char* name, const auto& value) {
    out << std::left << std::setw(20) << name << value << "\n";
  };
  const auto text = [](const std::string& name) { return name.empty() ? "-" : name; };
  const double share = 100.0 * static_cast<double>(recovery.entries.size()) / geometry.blocks;
  std::ostringstream used;
  used << with_commas(recovery.entries.size()) << " (" << std::fixed << std::setprecision(1) << share << " %)";
  out << options.path << ": a disk tier, format " << DiskFile::kFormat << ", "
      << (recovery.clean ? "closed cleanly" : "not closed cleanly: its process was killed or crashed") << "\n\n";
  line("model", text(space.model));
  line("tenant", text(space.tenant));
  line("weights generation", space.weights_generation);
  line("layout", text(space.layout));
  line("element type", text(space.element_type));
  line("shard", text(space.shard));
  line("key scheme", to_string(space.scheme));
  line("a block", geometry.has_blocks()
                      ? str_cat(with_commas(space.block_size), " tokens, ", with_commas(geometry.block_bytes),
                                " bytes in rows of ", with_commas(geometry.row_bytes))
                      : str_cat(with_commas(space.block_size), " tokens, in the files of the ranks"));
  line("file", str_cat(with_commas(looked.file.file_bytes()), " bytes, ", with_commas(allocated_bytes(options.path)),
                       " of them allocated"));
  line("blocks", with_commas(geometry.blocks));
  if (is_rank_file(looked.file)) {
    line("used", str_cat("see ", leader_of(looked.file), ": this is one rank's part of the blocks"));
    return;
  }
  line("used", used.str());
  line("damaged entries", with_commas(recovery.damaged));
  line("superseded entries", with_commas(recovery.superseded));
  const std::vector<std::uint64_t> depths = depths_of(recovery.entries);
  line("sequences", with_commas(depths.empty() ? 0 : depths[0]));
  if (!depths.empty()) {
    out << "\nposition        blocks\n";
  }
  for (std::size_t i = 0; i < depths.size(); ++i) {
    const auto [from, to] = range_of(i);
    out << std::left << std::setw(12) << (from == to ? str_cat(from) : str_cat(from, "-", to)) << std::right
        << std::setw(10) << with_commas(depths[i]) << "\n";
  }
  if (!geometry.has_blocks()) {
    write_ranks(options.path, out);
  }
  if (options.keys && !recovery.entries.empty()) {
    out << "\n      block     order  checksum          key, oldest first\n";
    for (const DiskEntry& entry : recovery.entries) {
      out << std::right << std::setw(10) << index_of(entry.block_id) << std::setw(10) << entry.order << "  "
          << hex(static_cast<std::uint64_t>(entry.checksum)) << "  " << entry.key.to_string() << "\n";
    }
  }
}

// Shows progress every second, on a terminal.
class Progress {
 public:
  explicit Progress(const DiskStreams& streams) : streams_(streams), shown_(streams.clock.now()) {}

  bool operator()(std::uint64_t done, std::uint64_t all) {
    const TimePoint now = streams_.clock.now();
    if (streams_.log_is_a_terminal && now - shown_ >= std::chrono::seconds(1)) {
      shown_ = now;
      streams_.log << "read " << with_commas(done) << " of " << with_commas(all) << " blocks" << std::endl;
    }
    return !streams_.stop;
  }

 private:
  const DiskStreams& streams_;
  TimePoint shown_;
};

void list(const char* what, const std::vector<DiskEntry>& entries, std::ostream& out) {
  for (std::size_t i = 0; i < std::min(entries.size(), kMostListed); ++i) {
    out << "  " << what << ": block " << index_of(entries[i].block_id) << ", key " << entries[i].key.to_string()
        << "\n";
  }
  if (entries.size() > kMostListed) {
    out << "  and " << with_commas(entries.size() - kMostListed) << " more that are " << what
        << "; --json lists them\n";
  }
}

Result<DiskEnd> written(DiskEnd end, std::ostream& out) {
  if (!out.flush()) {
    return fail(ErrorCode::kIo, "cannot write the output");
  }
  return end;
}

}  // namespace

Result<DiskEnd> inspect_disk(const DiskOptions& options, const DiskStreams& streams) {
  CAIRN_TRY_ASSIGN(const Looked looked, look_at(options.path));
  if (options.json) {
    streams.out << inspection_as_json(looked, options).dump(2) << "\n";
  } else {
    write_inspection(looked, options, streams.out);
  }
  return written(looked.recovery.damaged == 0 ? DiskEnd::kGood : DiskEnd::kWrong, streams.out);
}

Result<DiskEnd> verify_disk(const DiskOptions& options, const DiskStreams& streams) {
  CAIRN_TRY_ASSIGN(std::optional<Looked> looked, look_at(options.path));
  const DiskRecovery recovery = std::move(looked->recovery);
  Progress progress(streams);
  DiskCheck check;
  if (looked->file.geometry().has_blocks() && !is_rank_file(looked->file)) {
    CAIRN_TRY_ASSIGN(check, check_blocks(looked->file, recovery.entries, std::ref(progress)));
  } else {
    looked.reset();  // and unlocked
    CAIRN_TRY_ASSIGN(RankFiles files, RankFiles::open(options.path));
    CAIRN_TRY_ASSIGN(check, check_blocks(files, recovery.entries, std::ref(progress)));
  }
  const bool is_good = recovery.damaged == 0 && check.right.size() == recovery.entries.size();
  if (options.json) {
    streams.out << Json{{"path", options.path},
                        {"blocks", recovery.entries.size()},
                        {"right", check.right.size()},
                        {"wrong", to_json(check.wrong)},
                        {"unreadable", to_json(check.unreadable)},
                        {"damaged", recovery.damaged}}
                       .dump(2)
                << "\n";
  } else {
    streams.out << options.path << ": " << with_commas(check.right.size()) << " of "
                << with_commas(recovery.entries.size()) << " blocks are right\n";
    list("wrong", check.wrong, streams.out);
    list("unreadable", check.unreadable, streams.out);
    if (recovery.damaged > 0) {
      streams.out << "  damaged: " << with_commas(recovery.damaged) << " entries; which blocks they named is lost\n";
    }
    if (!is_good) {
      streams.out
          << "None of these would be served. `cairn disk compact` writes a file without them; if ranks hold the "
             "blocks,\n`cairn disk reshard` does.\n";
    }
  }
  return written(is_good ? DiskEnd::kGood : DiskEnd::kWrong, streams.out);
}

Result<DiskEnd> compact_disk(const DiskOptions& options, const DiskStreams& streams) {
  Progress progress(streams);
  CAIRN_TRY_ASSIGN(const Compaction done, compact(options.path, options.blocks, std::ref(progress)));
  if (options.json) {
    streams.out << Json{{"path", options.path},       {"kept", done.kept},     {"left_out", done.left_out},
                        {"wrong", done.wrong},        {"blocks", done.blocks}, {"old_bytes", done.old_bytes},
                        {"new_bytes", done.new_bytes}}
                       .dump(2)
                << "\n";
  } else {
    streams.out << options.path << ": " << with_commas(done.kept) << " blocks kept, " << with_commas(done.wrong)
                << " were wrong, " << with_commas(done.left_out) << " older ones had no room; "
                << with_commas(done.blocks) << " blocks, " << with_commas(done.new_bytes) << " bytes (were "
                << with_commas(done.old_bytes) << ")\n";
  }
  return written(DiskEnd::kGood, streams.out);
}

Result<DiskEnd> reshard_disk(const DiskOptions& options, const DiskStreams& streams) {
  Progress progress(streams);
  const RankGrid grid(options.tensor, options.pipeline);
  CAIRN_TRY_ASSIGN(const Resharding done,
                   reshard(options.path, {.grid = grid, .stage_layers = options.layers, .dry_run = options.dry_run},
                           std::ref(progress)));
  if (options.json) {
    streams.out << Json{{"path", options.path},
                        {"tensor", grid.tensor},
                        {"pipeline", grid.pipeline},
                        {"dry_run", options.dry_run},
                        {"from", done.from},
                        {"to", done.to},
                        {"kept", done.kept},
                        {"entries", done.entries},
                        {"moved", done.moved},
                        {"wrong", done.wrong},
                        {"new_bytes", done.new_bytes},
                        {"old_bytes", done.old_bytes},
                        {"free_bytes", done.free_bytes},
                        {"finished_earlier", done.finished_earlier}}
                       .dump(2)
                << "\n";
    return written(done.wrong == 0 ? DiskEnd::kGood : DiskEnd::kWrong, streams.out);
  }
  if (done.finished_earlier) {
    streams.out << options.path << ": finished an earlier reshard that was killed\n";
  }
  const std::string sizes =
      str_cat(with_commas(done.new_bytes), " bytes of new files, ", with_commas(done.old_bytes), " bytes of old ones");
  if (done.kept.size() == done.to.size() && done.from.size() == done.to.size()) {
    streams.out << options.path << ": has the files of " << grid.to_string() << " already; nothing to do\n";
  } else if (options.dry_run) {
    streams.out << options.path << ": would rewrite " << with_commas(done.entries) << " blocks for " << grid.to_string()
                << "; " << sizes << " removed afterwards, " << with_commas(done.free_bytes) << " bytes free\n";
    for (const std::string& name : done.from) {
      streams.out << "  from  " << options.path << "." << name << "\n";
    }
    for (const std::string& name : done.to) {
      const bool is_kept = std::ranges::find(done.kept, name) != done.kept.end();
      streams.out << "  to    " << options.path << "." << name << (is_kept ? " (stays)" : "") << "\n";
    }
  } else {
    streams.out << options.path << ": " << with_commas(done.moved) << " blocks rewritten for " << grid.to_string()
                << ", " << with_commas(done.wrong) << " were wrong and are dropped; " << sizes << " removed\n";
  }
  return written(done.wrong == 0 ? DiskEnd::kGood : DiskEnd::kWrong, streams.out);
}

}  // namespace cairn::cli
