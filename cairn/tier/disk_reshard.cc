#include "cairn/tier/disk_reshard.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/tier/disk_lock.h"
#include "cairn/tier/disk_rank_files.h"

namespace cairn {

namespace {

constexpr const char* kUnfinished = ".reshard";  // after the name of a new file that has not got its name yet
constexpr const char* kJournalBegin = "cairn reshard 1";
constexpr const char* kJournalEnd = "end";

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// So that names survive a loss of power as the bytes do.
Status sync_names_beside(const std::string& path) {
  const std::string folder = folder_of(path);
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor == -1) {
    return Unexpected(disk::file_error("open", folder, errno));
  }
  const int number =
      ::fsync(descriptor) == 0 || errno == EINVAL ? 0 : errno;  // EINVAL: the file system has no such thing
  ::close(descriptor);
  return number == 0 ? Status() : Unexpected(disk::file_error("flush", folder, number));
}

bool is_there(const std::string& path) {
  std::error_code none;
  return std::filesystem::exists(std::filesystem::symlink_status(path, none));
}

// Also what a link leads to: an operator may keep a file elsewhere.
Status remove_file(const std::string& path) {
  std::error_code none;
  if (std::filesystem::is_symlink(path, none)) {
    std::filesystem::remove(std::filesystem::canonical(path, none), none);
  }
  return ::unlink(path.c_str()) == 0 || errno == ENOENT ? Status()
                                                        : Unexpected(disk::file_error("remove", path, errno));
}

// What is left to do once all new files are whole.
struct Journal {
  std::vector<std::string> to = {};       // names of new files, without "PATH."
  std::vector<std::string> removed = {};  // names of old ones

  [[nodiscard]] Status write(const std::string& path) const {
    std::string text = str_cat(kJournalBegin, "\n");
    for (const std::string& name : to) {
      text += str_cat("new ", name, "\n");
    }
    for (const std::string& name : removed) {
      text += str_cat("old ", name, "\n");
    }
    text += str_cat(kJournalEnd, "\n");
    const std::string unfinished = reshard_journal(path) + ".new";
    CAIRN_TRY_ASSIGN(const int file, disk::create_locked(unfinished));
    const bool is_written = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                            ::fsync(file) == 0 && std::rename(unfinished.c_str(), reshard_journal(path).c_str()) == 0;
    const int number = errno;
    ::close(file);
    if (!is_written) {
      ::unlink(unfinished.c_str());
      return Unexpected(disk::file_error("write", unfinished, number));
    }
    return sync_names_beside(path);
  }

  [[nodiscard]] static Result<Journal> read(const std::string& path) {
    const std::string name = reshard_journal(path);
    std::ifstream file(name);
    Journal journal;
    std::string line;
    bool is_good = std::getline(file, line) && line == kJournalBegin;
    bool is_ended = false;
    while (is_good && std::getline(file, line)) {
      is_ended = line == kJournalEnd;
      const std::string suffix = line.size() > 4 ? line.substr(4) : "";
      if (RankFileName::parse(suffix) && (line.starts_with("new ") || line.starts_with("old "))) {
        (line.starts_with("new ") ? journal.to : journal.removed).push_back(suffix);
      } else {
        is_good = is_ended;
      }
    }
    if (!is_good || !is_ended) {
      return fail(ErrorCode::kCorrupt,
                  str_cat(name,
                          " is not what `cairn disk reshard` writes; if it is not yours, start anew with "
                          "disk.opening = \"fresh\""));
    }
    return journal;
  }
};

// Names and removals only; may be repeated any number of times. Requires: nobody uses the files.
Status carry_out(const std::string& path, const Journal& journal) {
  for (const std::string& name : journal.to) {
    const std::string final_name = str_cat(path, ".", name);
    if (const std::string unfinished = final_name + kUnfinished; is_there(unfinished)) {
      if (std::rename(unfinished.c_str(), final_name.c_str()) != 0) {
        return Unexpected(disk::file_error("rename", unfinished, errno));
      }
    } else if (!is_there(final_name)) {
      return fail(ErrorCode::kNotFound, str_cat(final_name,
                                                " is missing, and so is what it was to be made of; start anew with "
                                                "disk.opening = \"fresh\""));
    }
  }
  CAIRN_TRY(sync_names_beside(path));  // the new names before the old ones are gone
  for (const std::string& name : journal.removed) {
    CAIRN_TRY(remove_file(str_cat(path, ".", name)));
  }
  CAIRN_TRY(sync_names_beside(path));
  CAIRN_TRY(remove_file(reshard_journal(path)));
  return sync_names_beside(path);
}

// Finishes a call that was killed after its point of no return. Returns whether there was one.
Result<bool> finish_earlier(const std::string& path, bool dry_run) {
  if (!is_there(reshard_journal(path))) {
    return false;
  }
  if (dry_run) {
    return fail(ErrorCode::kFailedPrecondition, str_cat("an earlier reshard of ", path,
                                                        " was killed when its new files were complete; the next one "
                                                        "without --dry-run finishes it first"));
  }
  CAIRN_TRY_ASSIGN(const Journal journal, Journal::read(path));
  CAIRN_TRY_ASSIGN(const DiskFile leader, DiskFile::inspect(path));
  std::vector<DiskFile> locked;
  for (const std::string& name : journal.removed) {
    if (const std::string old = str_cat(path, ".", name); is_there(old)) {
      CAIRN_TRY_ASSIGN(DiskFile file, DiskFile::inspect(old));
      locked.push_back(std::move(file));
    }
  }
  CAIRN_TRY(carry_out(path, journal));
  return true;
}

// New files without their names. Removed, however reshard() ends, unless the journal names them.
class UnnamedFiles {
 public:
  explicit UnnamedFiles(std::string path) : path_(std::move(path)) { remove_all(); }  // also of a call that was killed
  UnnamedFiles(const UnnamedFiles&) = delete;
  UnnamedFiles& operator=(const UnnamedFiles&) = delete;
  ~UnnamedFiles() {
    if (!is_kept_) {
      remove_all();
    }
  }
  void keep() { is_kept_ = true; }

 private:
  void remove_all() const {
    for (const std::string& end : {std::string(kUnfinished), str_cat(kUnfinished, ".new")}) {
      for (const RankFileName& name : find_rank_files(path_, end)) {
        ::unlink(str_cat(path_, ".", name.suffix, end).c_str());
      }
    }
  }
  const std::string path_;
  bool is_kept_ = false;
};

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Of one new file.
DiskGeometry geometry_of(const RankFiles& files, const DiskPart& part) {
  DiskGeometry geometry = files.file(0).geometry();
  geometry.space.shard = part.name();
  geometry.block_bytes = part.shape(files.whole()).block_bytes();
  return geometry;
}

class Reshard {
 public:
  Reshard(const std::string& path, RankFiles& files, std::vector<DiskPart> to)
      : path_(path), files_(files), to_(std::move(to)) {}

  // What it would do.
  [[nodiscard]] Result<Resharding> plan() {
    Resharding done;
    for (const DiskPart& part : files_.parts()) {
      done.from.push_back(part.name());
    }
    for (const DiskPart& part : to_) {
      done.to.push_back(part.name());
      if (is_among(done.from, part.name())) {
        done.kept.push_back(part.name());
        continue;
      }
      const DiskGeometry geometry = geometry_of(files_, part);
      CAIRN_TRY(geometry.validate());
      done.new_bytes += geometry.places()->file_bytes;
      new_.push_back(part);
    }
    for (std::size_t i = 0; i < done.from.size(); ++i) {
      if (!is_among(done.to, done.from[i])) {
        removed_.push_back(done.from[i]);
        done.old_bytes += files_.file(i).file_bytes();
      }
    }
    struct statvfs space{};
    if (::statvfs(folder_of(path_).c_str(), &space) == 0) {
      done.free_bytes = space.f_bavail * space.f_frsize;
      if (done.free_bytes < done.new_bytes) {
        return fail(ErrorCode::kExhausted,
                    str_cat("the new files of ", path_, " take ", done.new_bytes, " bytes and ", done.free_bytes,
                            " are free; make room, or start anew with disk.opening = \"fresh\""));
      }
    }
    CAIRN_TRY_ASSIGN(DiskRecovery recovery, files_.leader().recover());
    entries_ = std::move(recovery.entries);
    done.entries = entries_.size();
    return done;
  }

  // Requires: plan() was called.
  [[nodiscard]] Status run(Resharding& done, const DiskProgress& progress) {
    UnnamedFiles unfinished(path_);
    std::vector<DiskFile> files;
    for (const DiskPart& part : new_) {
      CAIRN_TRY_ASSIGN(DiskFile file,
                       DiskFile::create(str_cat(path_, ".", part.name(), kUnfinished), geometry_of(files_, part)));
      CAIRN_TRY(file.take_rights_of(files_.file(0)));
      files.push_back(std::move(file));
    }
    CAIRN_TRY(copy_blocks(files, done, progress));
    for (const DiskFile& file : files) {
      CAIRN_TRY(file.sync());
    }
    files.clear();  // closed, and marked as such
    const Journal journal{.to = names_of_new(), .removed = removed_};
    CAIRN_TRY(journal.write(path_));
    unfinished.keep();
    CAIRN_TRY(carry_out(path_, journal));
    // They are dropped already, because their checksums refuse them; without entries they are not even looked for.
    CAIRN_TRY(files_.leader().erase(wrong_));
    return files_.leader().sync();
  }
  [[nodiscard]] bool has_work() const { return !new_.empty() || !removed_.empty(); }

 private:
  [[nodiscard]] std::vector<std::string> names_of_new() const {
    std::vector<std::string> names;
    for (const DiskPart& part : new_) {
      names.push_back(part.name());
    }
    return names;
  }

  [[nodiscard]] Status copy_blocks(const std::vector<DiskFile>& to, Resharding& done, const DiskProgress& progress) {
    std::ranges::sort(entries_, {}, &DiskEntry::block_id);  // in the order of the files
    std::vector<std::byte> block(files_.whole().block_bytes());
    std::vector<std::byte> part;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const DiskEntry& entry = entries_[i];
      // The bytes that are written are those that were judged.
      if (!files_.read(entry.block_id, block) || !files_.is_right(entry, block)) {
        wrong_.push_back(entry.block_id);
      } else {
        for (std::size_t file = 0; file < to.size(); ++file) {
          part.resize(to[file].geometry().block_bytes);
          take_part(files_.whole(), new_[file], block, part);
          CAIRN_TRY(to[file].write_blocks(entry.block_id, part));
        }
        ++done.moved;
      }
      if (progress && !progress(i + 1, entries_.size())) {
        return fail(ErrorCode::kCancelled, str_cat("stopped; ", path_, " and the files of its ranks are as they were"));
      }
    }
    done.wrong = wrong_.size();
    if (done.moved == 0 && done.wrong > 0) {
      return fail(
          ErrorCode::kCorrupt,
          str_cat("none of the ", done.wrong, " blocks of ", path_,
                  " is right: these are not the files that it "
                  "was written with, or replicas on other machines keep copies of their own; nothing is changed. "
                  "To start anew, set disk.opening = \"fresh\""));
    }
    return {};
  }

  const std::string& path_;
  RankFiles& files_;
  const std::vector<DiskPart> to_;
  std::vector<DiskPart> new_;         // of to_: those that have no file yet
  std::vector<std::string> removed_;  // names of files that the new grid has not
  std::vector<DiskEntry> entries_;
  std::vector<BlockId> wrong_;  // that are not in the new files
};

}  // namespace

Result<Resharding> reshard(const std::string& path, const ReshardOptions& options, const DiskProgress& progress) {
  CAIRN_TRY_ASSIGN(const bool finished_earlier, finish_earlier(path, options.dry_run));
  // Locked until the new files have their names.
  CAIRN_TRY_ASSIGN(RankFiles files,
                   RankFiles::open(path, options.dry_run ? disk::Access::kRead : disk::Access::kWrite));
  if (const std::string& layout = files.leader().geometry().space.layout; layout.find('(') != std::string::npos) {
    return fail(
        ErrorCode::kFailedPrecondition,
        str_cat(path, " is of a model with layer groups, ", layout.substr(layout.find('(')),
                ": blocks of different groups are not divided between ranks in the same way, so that they cannot be "
                "divided anew; start anew with disk.opening = \"fresh\""));
  }
  CAIRN_TRY_ASSIGN(std::vector<DiskPart> to, parts_of(options.grid, files.whole(), options.stage_layers));
  Reshard work(path, files, std::move(to));
  CAIRN_TRY_ASSIGN(Resharding done, work.plan());
  done.finished_earlier = finished_earlier;
  if (!options.dry_run && work.has_work()) {
    CAIRN_TRY(work.run(done, progress));
  }
  return done;
}

std::string reshard_journal(const std::string& path) { return path + ".reshard"; }

Status remove_other_grids(const std::string& path, std::string_view own) {
  for (const std::string& other : files_of_another_grid(path, own)) {
    CAIRN_TRY(remove_file(other));
  }
  CAIRN_TRY(remove_file(reshard_journal(path)));
  const UnnamedFiles left(path);  // removes them
  return {};
}

}  // namespace cairn
